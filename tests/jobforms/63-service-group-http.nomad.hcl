# Form: service in the group with an http check, tags with traefik rules and backquotes
# Nomad: accepted
# allostat: accepted
job "bakery" {
  datacenters = ["lab"]
  group "main" {
    network {
      port "web" {
        to = 80
      }
    }
    service {
      name     = "bakery"
      port     = "web"
      provider = "nomad"
      tags     = ["traefik.enable=true", "traefik.http.routers.b.rule=Host(`bakery.lab`)"]
      check {
        type     = "http"
        path     = "/ok"
        interval = "10s"
        timeout  = "2s"
      }
    }
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/bakery:1"
        ports = ["web"]
      }
    }
  }
}
