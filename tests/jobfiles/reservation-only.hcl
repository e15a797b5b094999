# page: nomad/docs/job-specification/resources
# expect: complete
job "reservation-only" {
  type = "batch"
  group "work" {
    task "work" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      resources {
        cpu        = 100
        memory     = 64
        memory_max = -1
      }
    }
  }
}
