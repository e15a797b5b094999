# page: nomad/docs/job-specification/group
# expect: complete
# Ended when its time is over, and complete all the same.
job "bounded-time" {
  type = "batch"
  group "work" {
    max_run_duration = "500ms"
    task "work" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
    }
  }
}
