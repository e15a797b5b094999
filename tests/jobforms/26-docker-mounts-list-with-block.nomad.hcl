# Form: a block inside an object of a list: tmpfs_options { } in mounts = [ { } ]
# Nomad: refused by HCL2 (missing key/value separator); HCL1 took it
# allostat: refused: HCL syntax: invalid object value assignment; expected `=` or `:`
job "wardrobe" {
  datacenters = ["lab"]
  group "main" {
    task "app" {
      driver = "docker"
      config {
        image = "registry.lab/wardrobe:1"
        mounts = [
          {
            type   = "tmpfs"
            target = "/tmp"
            tmpfs_options {
              size = 4096
            }
          }
        ]
      }
    }
  }
}
