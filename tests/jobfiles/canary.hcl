# page: nomad/docs/job-specification/update
# expect: running
# warns: canary
job "canary" {
  type = "service"
  update {
    max_parallel      = 1
    canary            = 1
    min_healthy_time  = "15s"
    healthy_deadline  = "4m"
    progress_deadline = "9m"
    auto_promote      = true
    auto_revert       = true
  }
  group "work" {
    task "work" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["600"]
      }
    }
  }
}
