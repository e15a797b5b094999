# Form: a task and a port of one name in two groups
# Nomad: accepted
# allostat: accepted
job "names" {
  group "other" {
    network {
      port "http" {}
    }
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
  group "main" {
    network {
      port "http" {}
    }
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
