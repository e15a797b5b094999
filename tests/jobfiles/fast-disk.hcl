# page: nomad/docs/job-specification/constraint
# expect: waits constraint
job "fast-disk" {
  type = "batch"
  group "work" {
    constraint {
      attribute = "${meta.ssd}"
      value     = "true"
    }
    task "work" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
