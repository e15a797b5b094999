# Form: cron expressions of 5, 6 and 7 fields with names, L, W, # and ?
# Nomad: accepted
# allostat: accepted
job "bell" {
  type = "sysbatch"
  periodic {
    crons = [
      "0 3 * * *",
      "0 3 1 JAN ? 2030-2040/2",
      "*/15 * * * * * *",
      "0 0 L * *",
      "0 0 LW * *",
      "0 0 15W * *",
      "0 9 * * MON-FRI",
      "0 9 * * 5L",
      "0 9 * * fri#2",
      "@weekly",
    ]
    time_zone = "America/New_York"
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
