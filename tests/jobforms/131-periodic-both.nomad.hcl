# Form: periodic { cron } beside crons
# Nomad: refused
# allostat: refused: `cron` and `crons` exclude each other
job "bell" {
  type = "batch"
  periodic {
    cron  = "@daily"
    crons = ["@hourly"]
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
