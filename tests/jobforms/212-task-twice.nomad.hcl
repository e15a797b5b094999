# Form: two tasks of one name in a group
# Nomad: refused: Task 2 redefines 'app' from task 1
# allostat: refused: there is a task `app` already, in line 6
job "tasks" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
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
