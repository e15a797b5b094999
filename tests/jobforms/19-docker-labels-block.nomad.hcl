# Form: labels { key = "v" } as a block
# Nomad: accepted
# allostat: accepted
job "quill" {
  datacenters = ["lab"]
  group "main" {
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/quill:1"
        labels {
          team = "paper"
          tier = 2
        }
      }
    }
  }
}
