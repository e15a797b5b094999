# page: nomad/docs/job-specification/constraint
# expect: waits constraint
job "needs-a-cluster-version" {
  type = "batch"
  constraint {
    attribute = "${attr.nomad.version}"
    operator  = "version"
    value     = ">= 1.4"
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
