# page: nomad/docs/job-specification/constraint
# expect: complete
job "any-host-name" {
  type = "batch"
  constraint {
    attribute = "${attr.unique.hostname}"
    regexp    = "."
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
