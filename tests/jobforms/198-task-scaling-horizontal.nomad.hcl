# Form: scaling of a task with the type of a group
# Nomad: refused: Invalid policy type
# allostat: refused: the `type` of this `scaling` is `vertical_cpu`, not `horizontal`
job "task" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      scaling "cpu" {
        max  = 500
        type = "horizontal"
      }
    }
  }
}
