# page: nomad/docs/job-specification/resources
# expect: waits cores
job "more-cores-than-any-host" {
  type = "batch"
  group "work" {
    task "work" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      resources {
        cores = 4096
      }
    }
  }
}
