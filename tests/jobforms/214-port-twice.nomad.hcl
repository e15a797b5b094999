# Form: two ports of one label
# Nomad: refused: Port label http already in use by taskgroup network
# allostat: refused: there is a port `http` already, in line 7
job "ports" {
  group "main" {
    network {
      port "http" {}
      port "http" {
        static = 8080
      }
    }
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
