# A service: a static web server that is restarted when it dies. It needs Debian's python3.
job "web" {
  type = "service"

  meta {
    owner = "ops"
  }

  group "site" {
    count = 2

    # At most three restarts in ten minutes; then the task has failed.
    restart {
      attempts = 3
      interval = "10m"
      delay    = "5s"
      mode     = "fail"
    }

    task "server" {
      driver = "raw_exec"

      config {
        command = "/usr/bin/python3"
        # Each alloc gets a port of its own: 8100, 8101.
        args = ["-m", "http.server", "--bind", "127.0.0.1", "--directory", "${NOMAD_TASK_DIR}", "810${NOMAD_ALLOC_INDEX}"]

        # `cpu` is a quota too: 500 is half a core. And no more than 64 processes.
        cpu_hard_limit = true
        pids_limit     = 64
      }

      env {
        PYTHONUNBUFFERED = "1"
        SITE_OWNER       = "${meta.owner}"
      }

      resources {
        cpu    = 500
        memory = 128 # MiB, enforced
      }

      logs {
        max_files     = 3
        max_file_size = 5 # MiB
      }

      kill_signal  = "SIGINT"
      kill_timeout = "10s"
    }
  }
}
