# page: nomad/docs/job-specification/task
# expect: complete
# needs: root
job "numeric-user" {
  type = "batch"
  group "work" {
    task "work" {
      driver = "exec"
      user   = "1000:1000"
      config {
        command = "/bin/sh"
        args    = ["-c", "test \"$(id -u):$(id -g)\" = 1000:1000"]
      }
    }
  }
}
