# Form: a function around a heredoc and around a list: trimspace(<<EOF ..), join, lookup
# Nomad: accepted
# allostat: accepted
locals {
  sizes = { small = 1, large = 9 }
}
job "scroll" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args = ["-c", trimspace(<<EOF
        echo ${lookup(local.sizes, "large", 3)} $HOME
        EOF
        )]
      }
    }
  }
}
