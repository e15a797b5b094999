# page: nomad/docs/job-specification/lifecycle
# expect: complete
# An init task makes what the main task needs; the main task waits for its success.
job "import" {
  type = "batch"
  group "import" {
    task "fetch" {
      lifecycle {
        hook    = "prestart"
        sidecar = false
      }
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "sleep 0.2; echo rows > $NOMAD_ALLOC_DIR/data/rows"]
      }
    }
    task "load" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "test \"$(cat $NOMAD_ALLOC_DIR/data/rows)\" = rows"]
      }
    }
  }
}
