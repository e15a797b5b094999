# Form: batch with periodic { cron, prohibit_overlap }
# Nomad: accepted
# allostat: accepted
job "bell" {
  type = "batch"
  periodic {
    cron             = "*/15 * * * * *"
    prohibit_overlap = true
    time_zone        = "Europe/Berlin"
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
