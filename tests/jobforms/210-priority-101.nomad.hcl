# Form: priority = 101
# Nomad: refused, unless job_max_priority of its servers allows it: job priority must be between [1, 100]
# allostat: refused: `priority` must be at most 100
job "priority" {
  priority = 101
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
