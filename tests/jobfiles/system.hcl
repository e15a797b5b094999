# page: nomad/docs/schedulers
# expect: refused system
job "everywhere" {
  type = "system"
  group "agent" {
    task "agent" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
