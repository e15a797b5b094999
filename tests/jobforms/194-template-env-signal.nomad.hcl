# Form: a template with env = true and change_mode = "signal"
# Nomad: refused: cannot use signals with env var templates
# allostat: refused: a template with env = true takes no change_mode = "signal"
job "template" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      template {
        data          = "A=b"
        destination   = "local/a"
        env           = true
        change_mode   = "signal"
        change_signal = "SIGHUP"
      }
    }
  }
}
