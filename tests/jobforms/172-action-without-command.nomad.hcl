# Form: an action without a command
# Nomad: refused: Missing required argument
# allostat: refused: `action` has no `command`
job "mill" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      action "show" {
      }
    }
  }
}
