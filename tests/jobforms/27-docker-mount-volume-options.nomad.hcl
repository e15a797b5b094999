# Form: mount of a volume with volume_options { driver_config { options { } } }, booleans as text
# Nomad: accepted
# allostat: accepted
job "trunk" {
  datacenters = ["lab"]
  group "main" {
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/trunk:1"
        mount {
          source = "paper"
          target = "/data"
          volume_options {
            no_copy = "false"
            driver_config {
              name = "local"
              options {
                type = "nfs"
                size = 10
              }
            }
          }
        }
      }
    }
  }
}
