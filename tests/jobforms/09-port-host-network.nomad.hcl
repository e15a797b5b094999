# Form: host_network on a port
# Nomad: accepted
# allostat: accepted
job "attic" {
  datacenters = ["lab"]
  group "main" {
    network {
      port "web" {
        to           = 80
        host_network = "private"
      }
    }
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/attic:1"
        ports = ["web"]
      }
    }
  }
}
