# page: nomad/docs/job-specification/constraint
# expect: complete
job "no-windows" {
  type = "batch"
  group "work" {
    constraint {
      attribute = "${attr.kernel.name}"
      operator  = "!="
      value     = "windows"
    }
    task "work" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
