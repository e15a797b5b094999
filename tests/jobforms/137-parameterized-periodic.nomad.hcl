# Form: parameterized and periodic together
# Nomad: accepted
# allostat: accepted
job "bell" {
  type = "batch"
  parameterized {
    payload = "forbidden"
  }
  periodic {
    cron = "@hourly"
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
