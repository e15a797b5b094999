# Form: provider = "nomad" with native connect
# Nomad: refused: Service with provider nomad cannot include Connect blocks
# allostat: refused: a service with provider = "nomad" takes no `connect`
job "connect" {
  group "main" {
    network {
      mode = "bridge"
    }
    service {
      provider = "nomad"
      name     = "web"
      port     = "9001"
      connect {
        native = true
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
