# page: nomad/docs/job-specification/constraint
# expect: waits constraint
job "windows-only" {
  type = "batch"
  constraint {
    attribute = "${attr.kernel.name}"
    value     = "windows"
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
