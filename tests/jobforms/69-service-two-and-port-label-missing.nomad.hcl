# Form: a service whose port has no label in any network
# Nomad: refused (port label "web" referenced by services but does not exist)
# allostat: refused: no `network` has a port `web`
job "ferry" {
  datacenters = ["lab"]
  group "main" {
    service {
      name = "ferry"
      port = "web"
    }
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/ferry:1"
      }
    }
  }
}
