# page: nomad/docs/deploy/task-driver/exec
# expect: failed
# needs: root
# It has no capability to mount anything.
job "isolated-mount" {
  type = "batch"
  group "work" {
    restart {
      attempts = 0
      mode     = "fail"
    }
    reschedule {
      attempts  = 0
      unlimited = false
    }
    task "work" {
      driver = "exec"
      user   = "root"
      config {
        command = "/bin/mount"
        args    = ["-t", "tmpfs", "none", "/tmp"]
      }
    }
  }
}
