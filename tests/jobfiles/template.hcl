# page: nomad/docs/job-specification/template
# expect: running
job "rendered" {
  group "web" {
    task "serve" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "grep -q 8080 local/app.conf && exec sleep 600"]
      }
      template {
        data        = "port = 8080"
        destination = "local/app.conf"
      }
    }
  }
}
