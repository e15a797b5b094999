# page: nomad/docs/job-specification/template
# expect: complete
# needs: root
job "isolated-template" {
  type = "batch"
  group "work" {
    task "work" {
      driver = "exec"
      template {
        data        = "of {{ env \"NOMAD_TASK_NAME\" }}"
        destination = "local/greeting"
      }
      config {
        command = "/bin/sh"
        args    = ["-c", "test \"$(cat /local/greeting)\" = 'of work' && test \"$NOMAD_TASK_DIR\" = /local"]
      }
    }
  }
}
