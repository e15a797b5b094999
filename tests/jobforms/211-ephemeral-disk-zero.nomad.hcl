# Form: an ephemeral_disk of size 0
# Nomad: refused: minimum DiskMB value is 10; got 0
# allostat: refused: `size` must be at least 10
job "disk" {
  group "main" {
    ephemeral_disk {
      size = 0
    }
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
