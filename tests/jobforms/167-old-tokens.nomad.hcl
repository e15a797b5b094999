# Form: consul_token and vault_token of a job
# Nomad: accepted, deprecated
# allostat: accepted
job "mill" {
  consul_token = "x"
  vault_token  = "y"
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
