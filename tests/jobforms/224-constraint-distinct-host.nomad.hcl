# Form: a constraint with a misspelled distinct_hosts
# Nomad: refused: Unknown constraint type
# allostat: refused: did you mean `distinct_hosts`?
job "spread" {
  group "main" {
    constraint {
      operator = "distinct_host"
    }
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
