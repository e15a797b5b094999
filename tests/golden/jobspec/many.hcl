# One of each kind of mistake.
job "shop" {
  typ = "service"

  group "frontend" {
    count = 0
    driver = "raw_exec"

    restart {
      attempts = 10
      interval = "1m"
      delay    = "15s"
    }

    task "server" {
      driver = "raw_exec"
      config {
        command = "/usr/bin/python3"
        args    = ["-m", "http.server", "${NOMAD_PORT_http}"]
      }
      resources {
	memroy = 200
        cpu    = "500"
      }
      kill_timeout = 30
      kill_signal  = "SIGNIT"
      template {
        data = "x"
      }
    }

    task "server" {
      driver = raw_exec
    }
  }

  group "größe" {
    task "a/b" {
      env { ÄÖ = var.x }
    }
  }
}
