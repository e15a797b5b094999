# An agent on each Nomad client that measures what Nomad runs there (docs/observed.md), and runs nothing itself: `nomad job run allostat.nomad.hcl`.
# The client must allow raw_exec (`plugin "raw_exec" { config { enabled = true } }`) and have the binary; it runs as Nomad does, as root.
job "allostat" {
  type = "system"

  group "agent" {
    restart {
      attempts = 10
      interval = "10m"
      delay    = "5s"
      mode     = "delay"
    }

    network {
      mode = "host"
      port "metrics" {
        static = 9740
      }
    }

    # Prometheus finds the agents by it: prometheus-consul.yml, with `provider = "consul"`.
    service {
      name     = "allostat"
      port     = "metrics"
      provider = "nomad"
      tags     = ["metrics"]

      check {
        type     = "http"
        path     = "/healthz"
        interval = "15s"
        timeout  = "5s"
      }
    }

    task "agent" {
      driver = "raw_exec"

      config {
        command = "/usr/local/bin/allostat"
        args    = ["agent", "--data-dir", "/var/lib/allostat"]
      }

      env {
        # The host's port; close it to everybody but Prometheus.
        ALLOSTAT_LISTEN           = "0.0.0.0:9740"
        ALLOSTAT_TELEMETRY_PUBLIC = "metrics"
        ALLOSTAT_OBSERVE_SOURCES  = "nomad,systemd,docker"
        ALLOSTAT_DRIVERS          = "none"
      }

      resources {
        cpu    = 100
        memory = 256
      }

      kill_timeout = "10s"
    }
  }
}
