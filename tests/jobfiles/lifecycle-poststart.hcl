# page: nomad/docs/job-specification/lifecycle
# expect: running
# A one-shot that announces the service once it runs.
job "announced" {
  group "web" {
    task "serve" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
    }
    task "announce" {
      lifecycle {
        hook = "poststart"
      }
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
