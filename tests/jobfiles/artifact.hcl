# page: nomad/docs/job-specification/artifact
# expect: checked
job "fetched" {
  group "web" {
    task "serve" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      artifact {
        source = "https://example.com/app.tar.gz"
      }
    }
  }
}
