# Form: scaling in the group and in the task, max_client_disconnect, disconnect
# Nomad: accepted (only one of the two)
# allostat: accepted
job "swarm" {
  group "main" {
    max_client_disconnect = "1h"
    scaling {
      enabled = true
      min     = 1
      max     = 5
      policy {
        cooldown = "1m"
      }
    }
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
      scaling "cpu" {
        max = 500
      }
    }
  }
}
