# Configuration of the allostat agent. Every setting has a default: an empty file is a complete configuration.
#
#   allostat agent --print-config     prints every setting, its default and what it does
#   allostat check /etc/allostat/agent.hcl
#   systemctl restart allostat        applies a change; running tasks continue
#
# Each setting can be an environment variable as well: `systemctl edit allostat`, then Environment=ALLOSTAT_TICK=5s.

agent {
  # Address of /metrics and of the read API. Only this host reaches the default.
  # listen = "127.0.0.1:9740"

  # Members of this group may run and stop jobs, which means running programs as root.
  # socket_group = "allostat"
}

telemetry {
  # Sampling interval.
  # tick = "1s"

  # "lean": what the alerts need; "standard": what the dashboards need; "full": everything.
  # profile = "standard"
}

drivers {
  # Empty: this agent observes workloads and starts no tasks.
  # enabled = ["raw_exec", "exec", "docker"]
}
