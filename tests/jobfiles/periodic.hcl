# page: nomad/docs/job-specification/periodic
# expect: launches
job "hourly" {
  type = "batch"
  periodic {
    crons = ["0 * * * *"]
  }
  group "work" {
    task "work" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
