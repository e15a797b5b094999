# Form: a cron expression that is empty
# Nomad: refused: Must specify a spec
# allostat: refused: `periodic` has no `crons`
job "bell" {
  type = "batch"
  periodic {
    cron = ""
  }
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
