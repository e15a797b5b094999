# page: nomad/docs/job-specification/constraint
# expect: complete
job "one-of-each-rack" {
  type = "batch"
  group "work" {
    constraint {
      distinct_property = "${node.unique.name}"
    }
    task "work" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
