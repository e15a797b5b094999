# page: nomad/docs/deploy/task-driver/exec
# expect: complete
# needs: root
# It runs as nobody, sees its own processes alone, and nothing of the host's /root.
job "isolated" {
  type = "batch"
  group "work" {
    task "work" {
      driver = "exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "test \"$(id -u)\" = 65534 && test $$ -le 4 && test ! -e /root"]
      }
    }
  }
}
