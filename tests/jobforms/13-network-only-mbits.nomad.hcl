# Form: resources { network { mbits } } without a port, and an empty port_map { }
# Nomad: accepted with a warning
# allostat: accepted
job "barn" {
  datacenters = ["lab"]
  group "main" {
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/barn:1"
        port_map {

        }
      }
      resources {
        memory = 64
        network {
          mbits = 1
        }
      }
    }
  }
}
