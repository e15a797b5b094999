# page: nomad/docs/job-specification/update
# expect: running
# warns: migrate
job "rolled-out" {
  update {
    max_parallel     = 1
    min_healthy_time = "10s"
    auto_revert      = true
  }
  migrate {
    max_parallel = 1
  }
  group "web" {
    reschedule {
      attempts  = 3
      interval  = "1h"
      unlimited = false
    }
    task "serve" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
    }
  }
}
