# Form: an unknown time zone
# Nomad: refused
# allostat: refused: there is no time zone `Mars/Olympus`
job "bell" {
  type = "batch"
  periodic {
    crons     = ["@daily"]
    time_zone = "Mars/Olympus"
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
