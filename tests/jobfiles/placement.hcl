# page: nomad/docs/job-specification/constraint
# expect: complete
# warns: node_pool priority spread
job "placed" {
  type      = "batch"
  node_pool = "default"
  priority  = 70
  constraint {
    attribute = "${attr.kernel.name}"
    value     = "linux"
  }
  affinity {
    attribute = "${node.datacenter}"
    value     = "dc1"
    weight    = 50
  }
  spread {
    attribute = "${node.datacenter}"
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
