# page: nomad/docs/job-specification/task
# expect: running
job "polite" {
  group "web" {
    shutdown_delay = "100ms"
    task "serve" {
      driver         = "raw_exec"
      kill_signal    = "SIGTERM"
      kill_timeout   = "2s"
      shutdown_delay = "100ms"
      config {
        command = "/bin/sh"
        args    = ["-c", "trap 'exit 0' TERM; while :; do sleep 0.05; done"]
      }
    }
  }
}
