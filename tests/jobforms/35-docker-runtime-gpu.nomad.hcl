# Form: runtime = "nvidia" and a device in resources
# Nomad: accepted
# allostat: accepted
job "prism" {
  datacenters = ["lab"]
  group "main" {
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/prism:1"
        runtime = "nvidia"
      }
      resources {
        device "nvidia/gpu" {
          count = 1
          constraint {
            attribute = "${device.model}"
            value     = "T4"
          }
        }
      }
    }
  }
}
