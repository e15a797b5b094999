# page: nomad/docs/job-specification/restart
# expect: complete
# Fails twice, then succeeds.
job "flaky" {
  type = "batch"
  group "try" {
    restart {
      attempts = 3
      interval = "10s"
      delay    = "100ms"
      mode     = "fail"
    }
    task "third-time" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo x >> $NOMAD_ALLOC_DIR/data/tries; test $(wc -l < $NOMAD_ALLOC_DIR/data/tries) -ge 3"]
      }
    }
  }
}
