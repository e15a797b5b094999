# Form: upstream instead of upstreams in a sidecar
# Nomad: refused: Unsupported block type
# allostat: refused: `upstream` is not a field of `proxy`
job "mill" {
  group "main" {
    service {
      name = "web"
      port = "8080"
      connect {
        sidecar_service {
          proxy {
            upstream {
              destination_name = "db"
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
