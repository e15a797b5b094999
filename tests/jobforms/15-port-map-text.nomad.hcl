# Form: port_map { db = "3306" }: the number as text
# Nomad: accepted: converted
# allostat: accepted
job "silo" {
  datacenters = ["lab"]
  group "main" {
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/silo:1"
        port_map {
          db = "3306"
        }
      }
      resources {
        network {
          port "db" {}
        }
      }
    }
  }
}
