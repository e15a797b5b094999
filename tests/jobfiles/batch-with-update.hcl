# page: nomad/docs/job-specification/update
# expect: refused update
job "batch-with-update" {
  type = "batch"
  update {
    max_parallel = 2
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
