# page: nomad/docs/job-specification/restart
# expect: failed
job "broken" {
  type = "batch"
  group "try" {
    task "never" {
      driver = "raw_exec"
      config {
        command = "/bin/false"
      }
      restart {
        attempts = 1
        interval = "10s"
        delay    = "100ms"
        mode     = "fail"
      }
    }
  }
}
