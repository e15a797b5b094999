# Form: a sidecar in a group without a network
# Nomad: refused: Consul Connect sidecars require exactly 1 network
# allostat: refused: a `sidecar_service` needs a network of its own in the group
job "connect" {
  group "main" {
    service {
      name = "web"
      port = "9001"
      connect {
        sidecar_service {}
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
