# page: nomad/docs/job-specification/constraint
# expect: waits constraint
job "named-node" {
  type = "batch"
  constraint {
    attribute = "${node.unique.name}"
    value     = "no-such-node.example"
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
