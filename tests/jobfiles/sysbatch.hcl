# page: nomad/docs/schedulers
# expect: complete
job "sysbatch" {
  type = "sysbatch"
  group "work" {
    task "work" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "test -n \"$NOMAD_ALLOC_ID\""]
      }
    }
  }
}
