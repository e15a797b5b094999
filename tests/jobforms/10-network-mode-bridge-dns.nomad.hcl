# Form: network with mode bridge and a dns block
# Nomad: accepted
# allostat: accepted
job "porch" {
  datacenters = ["lab"]
  group "main" {
    network {
      mode = "bridge"
      port "web" {
        to = 80
      }
      dns {
        servers  = ["192.0.2.53"]
        searches = ["lab.example"]
        options  = ["ndots:2"]
      }
    }
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/porch:1"
      }
    }
  }
}
