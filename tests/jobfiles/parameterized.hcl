# page: nomad/docs/job-specification/parameterized
# expect: launches
job "convert" {
  type = "batch"
  parameterized {
    payload = "required"
  }
  group "work" {
    task "work" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
