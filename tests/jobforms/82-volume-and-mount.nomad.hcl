# Form: volume "data" { type = "host" } and volume_mount
# Nomad: accepted
# allostat: accepted
job "granary" {
  datacenters = ["lab"]
  group "main" {
    volume "grain" {
      type      = "host"
      source    = "grain"
      read_only = false
    }
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/granary:1"
      }
      volume_mount {
        volume      = "grain"
        destination = "/data"
        read_only   = false
      }
    }
  }
}
