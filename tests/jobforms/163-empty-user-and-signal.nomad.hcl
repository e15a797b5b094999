# Form: an empty user, an unknown kill_signal, cores = 0, cpu beyond what the kernel counts
# Nomad: accepted
# allostat: accepted
job "mill" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      user        = ""
      kill_signal = "SIGSTOPPED"
      resources {
        cores   = 0
        cpu     = 300000
        secrets = 5
        numa {
          affinity = "require"
        }
      }
      logs {
        enabled = false
      }
    }
  }
}
