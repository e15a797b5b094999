# page: nomad/docs/job-specification/constraint
# expect: complete
job "some-memory" {
  type = "batch"
  constraint {
    attribute = "${attr.memory.totalbytes}"
    operator  = ">"
    value     = "67108864"
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
