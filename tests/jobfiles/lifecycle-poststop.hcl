# page: nomad/docs/job-specification/lifecycle
# expect: complete
# A clean-up that runs when everything else has ended.
job "cleaned" {
  type = "batch"
  group "work" {
    task "work" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "touch $NOMAD_ALLOC_DIR/data/lock"]
      }
    }
    task "clean" {
      lifecycle {
        hook = "poststop"
      }
      driver = "raw_exec"
      config {
        command = "/bin/rm"
        args    = ["${NOMAD_ALLOC_DIR}/data/lock"]
      }
    }
  }
}
