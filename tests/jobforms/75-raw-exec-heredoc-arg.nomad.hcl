# Form: a heredoc in a list of args, with $(..) and ${NOMAD_..} in it, bracket on the next line
# Nomad: accepted
# allostat: accepted
job "treadle" {
  group "main" {
    task "app" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args = [
          "-c",
          <<-EOF
          set -eu
          echo "$(date) in ${NOMAD_TASK_DIR} $HOME"
          EOF
        ]
      }
    }
  }
}
