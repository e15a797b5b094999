# Form: count = -1
# Nomad: refused: Task group count can't be negative
# allostat: refused: `count` must be at least 0
job "count" {
  group "main" {
    count = -1
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
