# page: nomad/docs/job-specification/volume
# expect: waits host_volume
job "stored" {
  group "db" {
    volume "data" {
      type   = "host"
      source = "data"
    }
    task "db" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
