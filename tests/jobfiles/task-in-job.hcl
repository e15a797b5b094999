# page: nomad/docs/job-specification/task
# expect: complete
job "task-in-job" {
  type = "batch"
  task "count" {
    driver = "raw_exec"
    config {
      command = "/bin/sh"
      args    = ["-c", "test \"$NOMAD_GROUP_NAME\" = count"]
    }
  }
}
