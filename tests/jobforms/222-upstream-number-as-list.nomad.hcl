# Form: values of the wrong type in a sidecar
# Nomad: refused: Unsuitable value type
# allostat: refused: `local_bind_port` takes a text, not a list
job "mesh" {
  group "main" {
    network {
      mode = "bridge"
    }
    service {
      name = "web"
      port = "8080"
      connect {
        sidecar_service {
          proxy {
            upstreams {
              destination_name = "db"
              local_bind_port  = [5432]
            }
          }
        }
      }
    }
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
