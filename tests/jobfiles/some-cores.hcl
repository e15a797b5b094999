# page: nomad/docs/job-specification/constraint
# expect: complete
job "some-cores" {
  type = "batch"
  group "work" {
    task "work" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      constraint {
        attribute = "${attr.cpu.numcores}"
        operator  = ">="
        value     = "1"
      }
    }
  }
}
