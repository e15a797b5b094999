# page: nomad/docs/job-specification/volume_mount
# expect: refused dta
job "misspelled" {
  group "db" {
    volume "data" {
      type   = "host"
      source = "data"
    }
    task "db" {
      driver = "exec"
      config {
        command = "/bin/true"
      }
      volume_mount {
        volume      = "dta"
        destination = "/data"
      }
    }
  }
}
