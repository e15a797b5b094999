# Form: periodic { crons = [ ] } and @daily
# Nomad: accepted
# allostat: refused, unlike Nomad: `periodic` is not supported: nothing is started by the clock; let cron or a systemd timer run `allostat run`
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
