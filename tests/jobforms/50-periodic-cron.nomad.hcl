# Form: batch with periodic { cron, prohibit_overlap }
# Nomad: accepted
# allostat: refused, unlike Nomad: `periodic` is not supported: nothing is started by the clock; let cron or a systemd timer run `allostat run`
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
