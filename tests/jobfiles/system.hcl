# page: nomad/docs/schedulers
# expect: running
job "everywhere" {
  type = "system"
  group "work" {
    task "work" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
    }
  }
}
