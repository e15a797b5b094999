# Form: regular expressions that only Go's syntax has: a brace and a bracket that stand for themselves
# Nomad: accepted
# allostat: accepted
locals {
  short = regex_replace("server { listen 80; }", "server\\s{\\s", "")
}
job "proxy" {
  constraint {
    attribute = "${attr.unique.hostname}"
    operator  = "regexp"
    value     = "^web[[0-9]"
  }
  group "main" {
    meta {
      nginx = local.short
    }
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
