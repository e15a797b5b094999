# page: nomad/docs/job-specification/scaling
# expect: refused scaling
job "elastic" {
  group "web" {
    scaling {
      min = 1
      max = 5
    }
    task "serve" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
