# Form: a periodic stanza that is not enabled: Nomad does not validate it
# Nomad: accepted
# allostat: accepted
job "bell" {
  type = "batch"
  periodic {
    enabled = false
    cron    = "whenever"
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
