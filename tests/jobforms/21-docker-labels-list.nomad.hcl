# Form: labels = [{ ... }] as a list of one map
# Nomad: accepted
# allostat: accepted
job "blotter" {
  datacenters = ["lab"]
  group "main" {
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/blotter:1"
        labels = [{
          team = "paper"
        }]
      }
    }
  }
}
