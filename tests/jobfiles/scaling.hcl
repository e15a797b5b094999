# page: nomad/docs/job-specification/scaling
# expect: running
# warns: scaling
job "elastic" {
  type = "service"
  group "work" {
    count = 2
    scaling {
      enabled = true
      min     = 1
      max     = 5
      policy {
        cooldown = "2m"
        check "load" {
          query = "avg_cpu"
        }
      }
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
