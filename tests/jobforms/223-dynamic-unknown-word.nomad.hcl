# Form: a word in a dynamic block that it does not have
# Nomad: refused: Unsupported argument
# allostat: refused: a dynamic block has no `label`
job "loop" {
  group "main" {
    dynamic "task" {
      for_each = ["a", "b"]
      label    = [task.value]
      content {
        driver = "raw_exec"
        config {
          command = "/bin/true"
        }
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
