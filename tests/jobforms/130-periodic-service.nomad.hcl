# Form: periodic on a service
# Nomad: refused
# allostat: refused: `periodic` is for jobs of type `batch` and `sysbatch`
job "bell" {
  periodic {
    cron = "@daily"
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
