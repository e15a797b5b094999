# page: nomad/docs/job-specification/constraint
# expect: complete
job "takes-signals" {
  type = "batch"
  constraint {
    attribute    = "${attr.os.signals}"
    set_contains = "SIGTERM,SIGHUP"
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
