# Form: a spread with one target twice
# Nomad: refused: Spread target value "r1" already defined
# allostat: refused: the `spread` has a target `r1` already
job "spread" {
  spread {
    attribute = "${meta.rack}"
    target "r1" {
      percent = 10
    }
    target "r1" {
      percent = 20
    }
  }
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
