# Form: check with header { X-Name = [".."] }, method, body, protocol, tls_skip_verify, counts as text
# Nomad: accepted
# allostat: accepted
job "tannery" {
  datacenters = ["lab"]
  group "main" {
    network {
      port "web" {}
    }
    service {
      port = "web"
      check {
        type     = "http"
        protocol = "https"
        path     = "/"
        method   = "POST"
        body     = "{}"
        interval = "10s"
        timeout  = "2s"
        tls_skip_verify        = true
        success_before_passing = "3"
        header {
          X-Probe = ["lab"]
        }
      }
    }
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/tannery:1"
        ports = ["web"]
      }
    }
  }
}
