# Form: an artifact whose checksum is no checksum
# Nomad: refused
# allostat: refused: hexadecimal digits
job "cargo" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      artifact {
        source = "https://files.lab/x"
        options {
          checksum = "md5:abcd"
        }
      }
    }
  }
}
