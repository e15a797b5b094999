# Form: job plainly, variable plain: labels without quotes
# Nomad: accepted
# allostat: accepted
variable shade {
  type    = string
  default = "blue"
}
job dyehouse {
  group main {
    task app {
      driver = "raw_exec"
      config {
        command = "/bin/echo"
        args    = [var.shade]
      }
    }
  }
}
