# Form: log files that do not fit into the ephemeral disk
# Nomad: refused: log storage (1000 MB) must be less than requested disk capacity (300 MB)
# allostat: refused: 100 log files of 10 MiB may take 1000 MiB
job "logs" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      logs {
        max_files = 100
      }
    }
  }
}
