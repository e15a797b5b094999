# Form: distinct_hosts in a task
# Nomad: refused: Constraint 1 has disallowed Operand at task level: distinct_hosts
# allostat: refused: `distinct_hosts` is a constraint of a job or a group
job "task" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      constraint {
        distinct_hosts = true
      }
    }
  }
}
