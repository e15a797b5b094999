# page: nomad/docs/job-specification/resources
# expect: complete
# warns: disk iops
job "old-resources" {
  type = "batch"
  group "work" {
    task "work" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      resources {
        memory = 64
        disk   = 300
        iops   = 10
      }
    }
  }
}
