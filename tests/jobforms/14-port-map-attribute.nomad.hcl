# Form: port_map = { web = 80 } as an attribute (and in a list below, commented)
# Nomad: accepted with network in resources
# allostat: accepted
job "shed" {
  datacenters = ["lab"]
  group "main" {
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/shed:1"
        port_map = {
          web = 80
        }
        # port_map = [{ web = 80 }] is the same
      }
      resources {
        network {
          port "web" {
            static = "18082"
          }
        }
      }
    }
  }
}
