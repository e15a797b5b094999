# Form: attribute = attr.unique.hostname without quotes, regexp short form, distinct_property, is_set
# Nomad: accepted
# allostat: accepted
job "meadow" {
  group "main" {
    constraint {
      attribute = attr.unique.hostname
      regexp    = "^lab-[0-9]+$"
    }
    constraint {
      distinct_property = "${node.datacenter}"
      value             = 2
    }
    constraint {
      attribute = "${meta.disk}"
      operator  = "is_set"
    }
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
    }
  }
}
