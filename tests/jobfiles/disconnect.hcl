# page: nomad/docs/job-specification/disconnect
# expect: running
# warns: disconnect
job "disconnect" {
  type = "service"
  group "work" {
    disconnect {
      lost_after = "12h"
      replace    = false
      reconcile  = "best_score"
    }
    task "work" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
    }
  }
}
