# Form: a spread whose percentages add up to 100
# Nomad: accepted
# allostat: accepted
job "spread" {
  spread {
    attribute = "${meta.rack}"
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
