# Form: periodic { crons = [ ] } and @daily
# Nomad: accepted
# allostat: accepted
job "chime" {
  type = "batch"
  periodic {
    crons            = ["@daily", "0 12 * * *"]
    prohibit_overlap = true
  }
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/date"
      }
    }
  }
}
