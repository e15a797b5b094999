# page: nomad/docs/job-specification/ephemeral_disk
# expect: complete
job "scratch" {
  type = "batch"
  group "work" {
    ephemeral_disk {
      size    = "500"
      sticky  = "true"
      migrate = true
    }
    task "work" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
