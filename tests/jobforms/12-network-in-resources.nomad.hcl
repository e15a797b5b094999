# Form: network inside resources, with mbits and port_map as a block: what was written before Nomad 0.12
# Nomad: accepted with a warning (deprecated)
# allostat: accepted
job "cellar" {
  datacenters = ["lab"]
  group "main" {
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/cellar:1"
        port_map {
          db = 6379
        }
      }
      resources {
        cpu    = 100
        memory = 64
        network {
          mbits = 10
          port "db" {}
        }
      }
    }
  }
}
