# Form: lifecycle with sidecar as text, kill_signal, kill_timeout as a number, user, leader, logs
# Nomad: accepted; kill_timeout = 120 means 120 nanoseconds
# allostat: accepted
job "gatehouse" {
  group "main" {
    shutdown_delay = "0s"
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
      lifecycle {
        hook    = "prestart"
        sidecar = "false"
      }
      kill_signal  = "SIGTERM"
      kill_timeout = 120
      user         = "nobody"
      logs {
        max_files     = 3
        max_file_size = 2
      }
    }
  }
}
