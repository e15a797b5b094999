# page: nomad/docs/job-specification/affinity
# expect: refused affinity
job "system-with-affinity" {
  type = "system"
  affinity {
    attribute = "${node.class}"
    value     = "x"
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
