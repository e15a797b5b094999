# Form: several mount blocks, bind and tmpfs, tmpfs_options on one line
# Nomad: accepted
# allostat: accepted
job "drawer" {
  datacenters = ["lab"]
  group "main" {
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/drawer:1"
        mount {
          type     = "bind"
          source   = "local/app.conf"
          target   = "/etc/app.conf"
          readonly = true
        }
        mount {
          type   = "tmpfs"
          target = "/run"
          tmpfs_options { size = 1048576 }
        }
      }
    }
  }
}
