# Form: priority = 0
# Nomad: accepted: as its default of 50
# allostat: accepted
job "priority" {
  priority = 0
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
