# Form: a spread whose percentages add up to 110
# Nomad: refused: Sum of spread target percentages must not be greater than 100%; got 110%
# allostat: refused: the percentages of the targets add up to 110: at most 100
job "spread" {
  spread {
    attribute = "${meta.rack}"
    target "r1" {
      percent = 60
    }
    target "r2" {
      percent = 50
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
