# page: nomad/docs/job-specification/resources
# expect: complete
# warns: priority
job "numbers-as-texts" {
  type     = "batch"
  priority = "60"
  group "work" {
    count = "2"
    task "work" {
      driver       = "raw_exec"
      kill_timeout = "10s"
      leader       = "true"
      config {
        command = "/bin/true"
      }
      resources {
        cpu    = "200"
        memory = "64"
      }
      logs {
        max_files = "2"
      }
    }
  }
}
