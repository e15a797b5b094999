# Form: check without interval and timeout
# Nomad: refused (interval and timeout are needed, at least 1s)
# allostat: refused: the check has no `interval`
job "quarry" {
  datacenters = ["lab"]
  group "main" {
    network {
      port "web" {}
    }
    service {
      name = "quarry"
      port = "web"
      check {
        type = "tcp"
      }
    }
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/quarry:1"
        ports = ["web"]
      }
    }
  }
}
