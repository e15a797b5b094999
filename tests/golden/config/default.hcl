agent {
  # State, task directories, logs and the Unix socket. One agent at a time. (ALLOSTAT_DATA_DIR)
  data_dir = "/var/lib/allostat"
  # Where plain HTTP is served: what telemetry.public says. "none": only the Unix socket. (ALLOSTAT_LISTEN)
  listen = "127.0.0.1:9740"
  # The Unix socket, for acting and reading logs. Default: allostat.sock in the data directory. (ALLOSTAT_SOCKET)
  # socket =
  # Names, besides loopback and the address itself, under which plain HTTP may be asked. (ALLOSTAT_HOST_NAMES)
  host_names = []
  # At most so many connections on plain HTTP, and as many on the Unix socket. (ALLOSTAT_MAX_CONNECTIONS)
  max_connections = 256
}

telemetry {
  # How often every task and the host are read. (ALLOSTAT_TICK)
  tick = "1s"
  # How long the final series of an ended task stay at least. (ALLOSTAT_RETENTION)
  retention = "5m"
  # How long they stay at most while a known scraper has not fetched them. (ALLOSTAT_RETENTION_MAX)
  retention_max = "10m"
  # What plain HTTP tells everybody who can connect. "metrics": /metrics and health; "read": what the commands read as well, without users, processes and places on this host; "none": health. (ALLOSTAT_TELEMETRY_PUBLIC)
  public = "read"
}

cgroup {
  # Tasks get cgroups <parent>/<alloc>/<task>. Default: in a scope of their own under systemd, else /allostat. (ALLOSTAT_CGROUP_PARENT)
  # parent =
  # cgroup v1: the peak of the last minute, by resetting memory.max_usage_in_bytes of our cgroups each 5 s. Others who read that file then see no lifetime peak; ours stays right. cgroup v2 needs no such thing. (ALLOSTAT_CGROUP_PEAK_WINDOW_V1)
  peak_window_v1 = false
}

drivers {
  # raw_exec runs programs; mock runs nothing, for tests. (ALLOSTAT_DRIVERS)
  enabled = ["raw_exec"]
}

gc {
  # Ended allocs that are kept; the oldest above it go, once their final series were fetched. (ALLOSTAT_GC_MAX_TERMINAL)
  max_terminal = 2000
  # Allocs that ended longer ago than this go, once their final series were fetched. Default: none. (ALLOSTAT_GC_MAX_AGE)
  # max_age =
  # The data directory's file system is fuller than this: the oldest ended allocs go. 100: never. (ALLOSTAT_GC_DISK_USED_PERCENT)
  disk_used_percent = 80
  # The same of its inodes. (ALLOSTAT_GC_INODES_USED_PERCENT)
  inodes_used_percent = 70
}

log {
  # off, error, warn, info, debug or trace. (ALLOSTAT_LOG)
  level = "info"
}
