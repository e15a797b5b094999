# page: nomad/docs/job-specification/volume
# expect: refused volume
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
