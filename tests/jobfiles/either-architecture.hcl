# page: nomad/docs/job-specification/constraint
# expect: complete
job "either-architecture" {
  type = "batch"
  constraint {
    attribute = "${attr.cpu.arch}"
    operator  = "regexp"
    value     = "^(amd64|arm64)$"
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
