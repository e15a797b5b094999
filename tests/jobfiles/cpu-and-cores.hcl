# page: nomad/docs/job-specification/resources
# expect: refused cpu
job "cpu-and-cores" {
  type = "batch"
  group "work" {
    task "work" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      resources {
        cpu   = 500
        cores = 1
      }
    }
  }
}
