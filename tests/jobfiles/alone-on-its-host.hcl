# page: nomad/docs/job-specification/constraint
# expect: complete
job "alone-on-its-host" {
  type = "batch"
  constraint {
    operator = "distinct_hosts"
    value    = "true"
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
