# Form: numbers as text: static = "18081", to = "80", count = "2", cpu = "100", memory = "64"
# Nomad: accepted: converted to numbers
# allostat: accepted
job "grater" {
  datacenters = ["lab"]
  group "main" {
    count = "1"
    network {
      port "web" {
        static = "18081"
        to     = "80"
      }
    }
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/grater:1"
        ports = ["web"]
      }
      resources {
        cpu    = "100"
        memory = "64"
      }
    }
  }
}
