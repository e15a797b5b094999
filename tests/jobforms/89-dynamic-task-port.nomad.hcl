# Form: dynamic "port" and dynamic "task" with for_each and labels
# Nomad: accepted
# allostat: accepted
job "carousel" {
  group "main" {
    network {
      dynamic "port" {
        for_each = ["red", "blue"]
        labels   = [port.value]
        content {
          to = 80
        }
      }
    }
    dynamic "task" {
      for_each = { red = 1, blue = 2 }
      labels   = ["horse-${task.key}"]
      content {
        driver = "raw_exec"
        config {
          command = "/bin/echo"
          args    = [task.key, task.value]
        }
      }
    }
  }
}
