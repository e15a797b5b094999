# page: nomad/docs/job-specification/identity
# expect: complete
# warns: identity
job "workload-identity" {
  type = "batch"
  group "work" {
    task "work" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      identity {
        env  = true
        file = true
      }
    }
  }
}
