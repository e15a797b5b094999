# Form: a cron expression of four fields
# Nomad: refused
# allostat: refused: has 4 of at least 5 fields
job "bell" {
  type = "batch"
  periodic {
    crons = ["*/5 * * *"]
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
