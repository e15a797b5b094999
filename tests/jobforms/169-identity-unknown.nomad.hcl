# Form: a field of identity that Nomad does not have
# Nomad: refused: Unsupported argument
# allostat: refused: `envs` is not a field of `identity`
job "mill" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      identity {
        envs = true
      }
    }
  }
}
