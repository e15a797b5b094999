# page: nomad/docs/reference/hcl2/expressions
# expect: complete
locals {
  steps = { first = 1, second = 2 }
}
job "steps" {
  type = "batch"
  group "work" {
    dynamic "task" {
      for_each = local.steps
      iterator = step
      labels   = [step.key]
      content {
        driver = "raw_exec"
        config {
          command = "/bin/sh"
          args    = ["-c", "test \"$NOMAD_TASK_NAME=${step.value}\" = ${step.key}=${local.steps[step.key]}"]
        }
      }
    }
  }
}
