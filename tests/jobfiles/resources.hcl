# page: nomad/docs/job-specification/resources
# expect: complete
job "bounded" {
  type = "batch"
  group "work" {
    task "work" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "test \"$NOMAD_MEMORY_LIMIT\" = 32 && test \"$NOMAD_MEMORY_MAX_LIMIT\" = 64 && test \"$NOMAD_CPU_LIMIT\" = 500"]
      }
      resources {
        cpu        = 500
        memory     = 32
        memory_max = 64
      }
    }
  }
}
