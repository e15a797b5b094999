# page: nomad/docs/job-specification/service
# expect: running
job "registered" {
  group "web" {
    service {
      name     = "web"
      provider = "nomad"
      tags     = ["http"]
    }
    task "serve" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
    }
  }
}
