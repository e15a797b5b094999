# Form: script check with command, args and task, check_restart in the service, check without a port
# Nomad: accepted (not with provider = "nomad")
# allostat: accepted
job "forge" {
  datacenters = ["lab"]
  group "main" {
    service {
      name = "forge"
      task = "app"
      check {
        type     = "script"
        command  = "/bin/sh"
        args     = ["-c", "test -e /run/ready"]
        task     = "app"
        interval = "30s"
        timeout  = "5s"
      }
      check_restart {
        limit = 3
        grace = "10s"
      }
    }
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/forge:1"
      }
    }
  }
}
