# Form: constraints on attr, node, meta, with operators and short forms
# Nomad: accepted
# allostat: accepted
job "vineyard" {
  constraint {
    attribute = "${attr.kernel.name}"
    value     = "linux"
  }
  constraint {
    attribute = "${attr.os.version}"
    version   = ">= 10"
  }
  group "main" {
    constraint {
      attribute = "${meta.rack}"
      operator  = "set_contains_any"
      value     = "r1,r2"
    }
    constraint {
      attribute = "${attr.memory.totalbytes}"
      operator  = ">="
      value     = "1GB"
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
