# page: nomad/docs/job-specification/constraint
# expect: complete
job "modern-kernel" {
  type = "batch"
  constraint {
    attribute = "${attr.kernel.version}"
    semver    = ">= 3.10"
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
