# Form: a group without a task
# Nomad: refused (missing tasks for task group)
# allostat: refused: the group `empty` has no `task`
job "void" {
  datacenters = ["lab"]
  group "empty" {
  }
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
