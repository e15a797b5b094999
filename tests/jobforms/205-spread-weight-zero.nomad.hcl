# Form: a spread with weight 0
# Nomad: refused: Spread block must have a positive weight from 0 to 100
# allostat: refused: `weight` must be at least 1
job "spread" {
  spread {
    attribute = "${meta.rack}"
    weight    = 0
    target "r1" {
      percent = 60
    }
    target "r2" {
      percent = 40
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
