# Form: constraint { distinct_hosts = true } on one line, and as operator with value = "true"
# Nomad: accepted
# allostat: accepted
job "orchard" {
  constraint { distinct_hosts = true }
  group "main" {
    constraint {
      operator = "distinct_hosts"
      value    = "true"
    }
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
    }
  }
}
