# Form: artifacts whose archive is chosen, chown, insecure, a destination in the shared directory
# Nomad: accepted
# allostat: accepted
job "cargo" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      artifact {
        source      = "https://files.lab/get?archive=tar.gz"
        destination = "../alloc/data"
        chown       = true
        insecure    = true
      }
      artifact {
        source = "https://files.lab/app-${attr.cpu.arch}.zip"
        mode   = "dir"
        options {
          archive  = false
          checksum = "sha256:${NOMAD_META_SUM}"
        }
      }
      artifact {
        source = "http::https://files.lab/a.txz//bin"
      }
    }
  }
}
