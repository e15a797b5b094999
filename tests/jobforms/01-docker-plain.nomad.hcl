# Form: docker with image, ports and a group network, the most frequent file of all
# Nomad: accepted
# allostat: accepted
job "teahouse" {
  datacenters = ["lab"]
  group "main" {
    network {
      port "web" {
        to = 8080
      }
    }
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/teahouse:1"
        ports = ["web"]
      }
      resources {
        cpu    = 100
        memory = 128
      }
    }
  }
}
