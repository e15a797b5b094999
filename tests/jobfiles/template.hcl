# page: nomad/docs/job-specification/template
# expect: refused template
job "rendered" {
  group "web" {
    task "serve" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      template {
        data        = "port = 8080"
        destination = "local/app.conf"
      }
    }
  }
}
