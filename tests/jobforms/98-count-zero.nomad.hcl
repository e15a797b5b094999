# Form: count = 0: the group is kept in the file, and runs nothing
# Nomad: accepted
# allostat: accepted
job "dormouse" {
  group "main" {
    count = 0
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
    }
  }
}
