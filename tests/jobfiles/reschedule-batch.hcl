# page: nomad/docs/job-specification/reschedule
# expect: complete
job "reschedule-batch" {
  type = "batch"
  group "work" {
    reschedule {
      attempts       = 2
      interval       = "1h"
      delay          = "30s"
      delay_function = "constant"
      unlimited      = false
    }
    task "work" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
    }
  }
}
