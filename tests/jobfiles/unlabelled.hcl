# page: nomad/docs/job-specification/constraint
# expect: complete
job "unlabelled" {
  type = "batch"
  constraint {
    attribute = "${meta.reserved_for}"
    operator  = "is_not_set"
  }
  group "work" {
    task "work" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
