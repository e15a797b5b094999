# page: nomad/docs/job-specification/spread
# expect: running
# warns: spread
job "spread-over-datacenters" {
  type = "service"
  spread {
    attribute = "${node.datacenter}"
    weight    = 100
    target "dc1" {
      percent = 70
    }
    target "dc2" {
      percent = 30
    }
  }
  group "work" {
    task "work" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
    }
  }
}
