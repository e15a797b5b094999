# Form: to = -1: the same port inside as outside
# Nomad: accepted
# allostat: accepted
job "churn" {
  datacenters = ["lab"]
  group "main" {
    network {
      port "web" {
        to = -1
      }
    }
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/churn:1"
        ports = ["web"]
      }
      env {
        PORT = "${NOMAD_PORT_web}"
      }
    }
  }
}
