# Form: mode = 0777 in tmpfs_options (HCL2 reads 777, HCL1 octal), args = [], volumes = []
# Nomad: accepted
# allostat: accepted
job "crate" {
  datacenters = ["lab"]
  group "main" {
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/crate:1"
        args    = []
        volumes = []
        mount {
          type   = "tmpfs"
          target = "/scratch"
          tmpfs_options {
            size = 30000
            mode = 0777
          }
        }
      }
    }
  }
}
