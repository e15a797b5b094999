# Form: resources beside the task instead of in it
# Nomad: refused (Blocks of type "resources" are not expected here)
# allostat: refused: `resources` belongs in `task`, not in `group`
job "stall" {
  datacenters = ["lab"]
  group "main" {
    resources {
      cpu = 100
    }
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/stall:1"
        args = ["serve"]
      }
    }
  }
}
