# page: nomad/docs/job-specification/constraint
# expect: waits constraint
job "node-class" {
  type = "batch"
  constraint {
    attribute = "${node.class}"
    operator  = "="
    value     = "gpu"
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
