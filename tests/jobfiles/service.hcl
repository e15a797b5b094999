# page: nomad/docs/job-specification/group
# expect: running
job "api" {
  group "servers" {
    count = 2
    restart {
      attempts = 2
      interval = "1m"
      delay    = "1s"
      mode     = "delay"
    }
    task "listen" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
    }
  }
}
