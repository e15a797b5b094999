# Form: connect { sidecar_service { proxy { upstreams { } } } }
# Nomad: accepted (with Consul)
# allostat: accepted
job "canal" {
  datacenters = ["lab"]
  group "main" {
    network {
      mode = "bridge"
    }
    service {
      name = "canal"
      port = "9001"
      connect {
        sidecar_service {
          proxy {
            upstreams {
              destination_name = "lock"
              local_bind_port  = 9002
            }
          }
        }
      }
    }
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/canal:1"
      }
    }
  }
}
