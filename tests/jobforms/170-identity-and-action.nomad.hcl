# Form: identity, action, ui, weights and connect with all of their shapes
# Nomad: accepted
# allostat: accepted
job "mill" {
  ui {
    description = "A mill"
    link {
      label = "docs"
      url   = "https://mill.lab"
    }
  }
  group "main" {
    network {
      mode = "bridge"
      port "web" {}
    }
    service {
      name = "web"
      port = "web"
      weights {
        passing = 1
      }
      connect {
        sidecar_service {
          proxy {
            upstreams {
              destination_name = "db"
              local_bind_port  = 5432
            }
          }
        }
        sidecar_task {
          resources {
            cpu = 20
          }
        }
      }
    }
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      identity {
        name = "one"
        aud  = ["x"]
      }
      identity {
        name = "two"
        file = true
      }
      action "show" {
        command = "/bin/true"
        args    = ["a"]
      }
    }
  }
}
