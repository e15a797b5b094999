# page: nomad/docs/job-specification/task
# expect: complete
job "user-ids" {
  type = "batch"
  group "work" {
    task "work" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "test $(id -g) = 0"]
      }
      user = "0:0"
    }
  }
}
