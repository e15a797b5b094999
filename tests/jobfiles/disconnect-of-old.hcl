# page: nomad/docs/job-specification/group
# expect: running
# warns: max_client_disconnect prevent_reschedule_on_lost
job "disconnect-of-old" {
  type = "service"
  group "work" {
    max_client_disconnect      = "6h"
    prevent_reschedule_on_lost = true
    task "work" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
    }
  }
}
