# Form: consul { } in a group and a task
# Nomad: accepted
# allostat: accepted
job "consul" {
  group "main" {
    consul {}
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      consul {
        namespace = "lab"
      }
    }
  }
}
