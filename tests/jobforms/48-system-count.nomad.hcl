# Form: type = "system" with count = 3
# Nomad: refused (count cannot exceed 1 with system scheduler)
# allostat: refused: a job of type `system` has one alloc on each node: `count` is 1
job "watchtower" {
  type = "system"
  group "main" {
    count = 3
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
    }
  }
}
