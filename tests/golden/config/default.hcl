agent {
  # State, task directories, logs and the Unix socket. One agent at a time. (ALLOSTAT_DATA_DIR)
  data_dir = "/var/lib/allostat"
  # Where HTTP is served, by itself plain and what telemetry.public says. "none": only the Unix socket. (ALLOSTAT_LISTEN)
  listen = "127.0.0.1:9740"
  # The Unix socket, for acting and reading logs. Default: allostat.sock in the data directory. (ALLOSTAT_SOCKET)
  # socket =
  # A group whose members may use the Unix socket as its owner may: whoever can, can run programs as the agent's user. Default: none. (ALLOSTAT_SOCKET_GROUP)
  # socket_group =
  # TLS, certificates of clients and passwords of HTTP, in the format of Prometheus's web configuration file. Read anew when it or a file that it names changes. Default: none, HTTP is plain. (ALLOSTAT_WEB_CONFIG_FILE)
  # web_config_file =
  # Tokens, one on each line: who sends one (Authorization: Bearer) over https or from this host may do all that the Unix socket allows. Read anew when it changes. Default: none. (ALLOSTAT_AGENT_TOKEN_FILE)
  # token_file =
  # Names (DNS, IP, mail, URI) of certificates whose owners may do all that the Unix socket allows; "*": of each that the web configuration verifies. Default: none. (ALLOSTAT_ACTING_CERTIFICATES)
  # acting_certificates =
  # Names, besides loopback, the address itself, this host's own name and those of its certificate, under which HTTP may be asked. "*.cluster.example": any name below that domain, where nobody else gives names. (ALLOSTAT_HOST_NAMES)
  host_names = []
  # At most so many connections on HTTP, and as many on the Unix socket. (ALLOSTAT_MAX_CONNECTIONS)
  max_connections = 256
  # Memory that the agent keeps below, in MiB: near it, it leaves out observed workloads, then details. Its cgroup's limit counts as well. 0: that alone. (ALLOSTAT_MEMORY_LIMIT_MIB)
  memory_limit_mib = 1024
}

telemetry {
  # How often every task and the host are read. (ALLOSTAT_TICK)
  tick = "1s"
  # How long the final series of an ended task stay at least. (ALLOSTAT_RETENTION)
  retention = "5m"
  # How long they stay at most while a known scraper has not fetched them. (ALLOSTAT_RETENTION_MAX)
  retention_max = "10m"
  # New allocs of one workload an hour that get series of their own; those above it are one row, alloc_id="_overflow". 0: no limit. (ALLOSTAT_CHURN_LIMIT)
  churn_limit = 5000
  # How many series /metrics has. "lean": what alerts need; "standard": what boards need, at most 45 of a task and its alloc; "full": everything. `allostat catalogue --profile` lists each. (ALLOSTAT_PROFILE)
  profile = "standard"
  # Metrics that are there whatever the profile: names, or anchored regular expressions of names, of these by label too: allostat_task_page_faults_total{kind="major"}. (ALLOSTAT_INCLUDE)
  # include =
  # Metrics that are not there, whatever the profile and telemetry.include say; written likewise. (ALLOSTAT_EXCLUDE)
  # exclude =
  # What plain HTTP tells everybody who can connect. "metrics": /metrics and health; "read": what the commands read as well, without users, processes and places on this host; "none": health. (ALLOSTAT_TELEMETRY_PUBLIC)
  public = "read"
}

cgroup {
  # Tasks get cgroups <parent>/<alloc>/<task>. Default: in a scope of their own under systemd, else /allostat. (ALLOSTAT_CGROUP_PARENT)
  # parent =
  # cgroup v1: the peak of the last minute, by resetting memory.max_usage_in_bytes of our cgroups each 5 s. Others who read that file then see no lifetime peak; ours stays right. cgroup v2 needs no such thing. (ALLOSTAT_CGROUP_PEAK_WINDOW_V1)
  peak_window_v1 = false
}

collectors {
  # Measure cgroups by a program inside the kernel, where the agent may load one (CAP_BPF and CAP_PERFMON): the same values at a fraction of the CPU. "false": everything is read from files. (ALLOSTAT_KERNEL_PASS)
  kernel_pass = true
  # Let programs inside the kernel tell how what others run ended and what it had used, however short it was: beside kernel_pass, with the same rights. "false": what was read last is what is known. (ALLOSTAT_KERNEL_ENDS)
  kernel_ends = true
}

drivers {
  # raw_exec runs programs, docker containers; mock runs nothing, for tests. None, or "none": this agent starts nothing. (ALLOSTAT_DRIVERS)
  enabled = ["raw_exec", "docker"]
}

fingerprint {
  # Which fingerprinters look at the host: arch, cgroup, cpu, ... Default: all. (ALLOSTAT_FINGERPRINT_ALLOWLIST)
  # allowlist =
  # Which do not, whatever the other list says. Default: none. (ALLOSTAT_FINGERPRINT_DENYLIST)
  # denylist =
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

history {
  # How long the ends of allocs, ours and others', are kept for `allostat history`. 0s: not at all. (ALLOSTAT_HISTORY_KEEP)
  keep = "30d"
  # They take no more than this in the data directory: the oldest go. (ALLOSTAT_HISTORY_MAX_BYTES)
  max_bytes = 67108864
}

devices {
  # Whether NVIDIA's GPUs are looked for. Where there are none that costs nothing. (ALLOSTAT_DEVICES_NVIDIA)
  nvidia = true
  # Whether NVIDIA's library is loaded in a process of its own, which is run again where it dies. Otherwise the agent dies with it. (ALLOSTAT_DEVICES_NVIDIA_ISOLATED)
  nvidia_isolated = true
  # NVML, where the loader does not find libnvidia-ml.so.1 by itself. (ALLOSTAT_DEVICES_NVIDIA_LIBRARY)
  # nvidia_library =
  # UUIDs of GPUs that are neither shown nor given to tasks. (ALLOSTAT_DEVICES_IGNORED)
  # ignored =
  # Device plugins of others, as they are written for Nomad: each program in it is one, <its name>.json beside it its configuration. What others than its owner can write is not run. Default: none. (ALLOSTAT_DEVICES_PLUGIN_DIR)
  # plugin_dir =
  # How often a driver that is not there is looked for again. (ALLOSTAT_DEVICES_RETRY)
  retry = "5m"
  # Whether processes on devices are told whose they are. "auto": where the agent sees the processes of the whole host; elsewhere a driver's pids may be those of others. "always", "never". (ALLOSTAT_DEVICES_ATTRIBUTION)
  attribution = "auto"
}

log {
  # off, error, warn, info, debug or trace. (ALLOSTAT_LOG)
  level = "info"
}

otlp {
  # Where metrics, logs and traces are pushed: http://host:port or https://host:port, to /v1/metrics, /v1/logs and /v1/traces below it. Default: nowhere, and nothing is pushed. (OTEL_EXPORTER_OTLP_ENDPOINT)
  # endpoint =
  # true: nothing is pushed, whatever endpoints are set; in a destination, not there. (OTEL_SDK_DISABLED)
  disabled = false
  # http/protobuf or grpc. (OTEL_EXPORTER_OTLP_PROTOCOL)
  protocol = "http/protobuf"
  # Of gRPC, where the endpoint is host:port alone: whether that is http rather than https. (OTEL_EXPORTER_OTLP_INSECURE)
  insecure = false
  # https: the authorities that are believed, PEM. Read anew for each connection. Default: those of the system. (OTEL_EXPORTER_OTLP_CERTIFICATE)
  # certificate =
  # https: what is shown to a collector that asks for it, PEM with its chain. (OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE)
  # client_certificate =
  # Its key, PEM. (OTEL_EXPORTER_OTLP_CLIENT_KEY)
  # client_key =
  # Sent with each request: name=value, separated by commas, values percent-encoded. (OTEL_EXPORTER_OTLP_HEADERS)
  # headers =
  # How long one request may take. In the environment a number is milliseconds. (OTEL_EXPORTER_OTLP_TIMEOUT)
  timeout = "10s"
  # gzip, zstd or none. (OTEL_EXPORTER_OTLP_COMPRESSION)
  compression = "gzip"
  # What sums and histograms count from. cumulative: their beginning; delta: what the collector took last; lowmemory: histograms as delta, sums as cumulative. (OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE)
  temporality_preference = "cumulative"
  # explicit_bucket_histogram: the buckets of /metrics; base2_exponential_bucket_histogram: finer ones, as native histograms have them. (OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION)
  default_histogram_aggregation = "explicit_bucket_histogram"
  # Whether what a resource says stands on each of its points as well: for stores that keep nothing of a resource. (ALLOSTAT_OTLP_FLAT)
  flat = false
  # How often points are made. In the environment a number is milliseconds. (OTEL_METRIC_EXPORT_INTERVAL)
  interval = "1m"
  # service.name of the host and of the agent. Tasks and allocs have that of their workload. Default: allostat. (OTEL_SERVICE_NAME)
  # service_name =
  # On every resource: key=value, separated by commas, percent-encoded. What the agent knows itself stays. (OTEL_RESOURCE_ATTRIBUTES)
  # resource_attributes =
  # What waits for the collector, in the data directory, takes no more than this: the oldest goes. (ALLOSTAT_OTLP_QUEUE_BYTES)
  queue_bytes = 268435456
  # What waited for longer goes. (ALLOSTAT_OTLP_QUEUE_AGE)
  queue_age = "2d"
  # Whether metrics are pushed where an endpoint is set: otlp or none. (OTEL_METRICS_EXPORTER)
  metrics_exporter = "otlp"
  # Where metrics are pushed, with the whole path. It wins over endpoint, as all that is said of them alone. (OTEL_EXPORTER_OTLP_METRICS_ENDPOINT)
  # metrics_endpoint =
  # protocol, of metrics. (OTEL_EXPORTER_OTLP_METRICS_PROTOCOL)
  # metrics_protocol =
  # insecure, of metrics. (OTEL_EXPORTER_OTLP_METRICS_INSECURE)
  # metrics_insecure =
  # certificate, of metrics. (OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE)
  # metrics_certificate =
  # client_certificate, of metrics. (OTEL_EXPORTER_OTLP_METRICS_CLIENT_CERTIFICATE)
  # metrics_client_certificate =
  # client_key, of metrics. (OTEL_EXPORTER_OTLP_METRICS_CLIENT_KEY)
  # metrics_client_key =
  # headers, of metrics: in the place of those of all. (OTEL_EXPORTER_OTLP_METRICS_HEADERS)
  # metrics_headers =
  # timeout, of metrics. (OTEL_EXPORTER_OTLP_METRICS_TIMEOUT)
  # metrics_timeout =
  # compression, of metrics. (OTEL_EXPORTER_OTLP_METRICS_COMPRESSION)
  # metrics_compression =
  # Whether logs are pushed where an endpoint is set: otlp or none. (OTEL_LOGS_EXPORTER)
  logs_exporter = "otlp"
  # Where logs are pushed, with the whole path. It wins over endpoint, as all that is said of them alone. (OTEL_EXPORTER_OTLP_LOGS_ENDPOINT)
  # logs_endpoint =
  # protocol, of logs. (OTEL_EXPORTER_OTLP_LOGS_PROTOCOL)
  # logs_protocol =
  # insecure, of logs. (OTEL_EXPORTER_OTLP_LOGS_INSECURE)
  # logs_insecure =
  # certificate, of logs. (OTEL_EXPORTER_OTLP_LOGS_CERTIFICATE)
  # logs_certificate =
  # client_certificate, of logs. (OTEL_EXPORTER_OTLP_LOGS_CLIENT_CERTIFICATE)
  # logs_client_certificate =
  # client_key, of logs. (OTEL_EXPORTER_OTLP_LOGS_CLIENT_KEY)
  # logs_client_key =
  # headers, of logs: in the place of those of all. (OTEL_EXPORTER_OTLP_LOGS_HEADERS)
  # logs_headers =
  # timeout, of logs. (OTEL_EXPORTER_OTLP_LOGS_TIMEOUT)
  # logs_timeout =
  # compression, of logs. (OTEL_EXPORTER_OTLP_LOGS_COMPRESSION)
  # logs_compression =
  # Whether traces are pushed where an endpoint is set: otlp or none. (OTEL_TRACES_EXPORTER)
  traces_exporter = "otlp"
  # Where traces are pushed, with the whole path. It wins over endpoint, as all that is said of them alone. (OTEL_EXPORTER_OTLP_TRACES_ENDPOINT)
  # traces_endpoint =
  # protocol, of traces. (OTEL_EXPORTER_OTLP_TRACES_PROTOCOL)
  # traces_protocol =
  # insecure, of traces. (OTEL_EXPORTER_OTLP_TRACES_INSECURE)
  # traces_insecure =
  # certificate, of traces. (OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE)
  # traces_certificate =
  # client_certificate, of traces. (OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE)
  # traces_client_certificate =
  # client_key, of traces. (OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY)
  # traces_client_key =
  # headers, of traces: in the place of those of all. (OTEL_EXPORTER_OTLP_TRACES_HEADERS)
  # traces_headers =
  # timeout, of traces. (OTEL_EXPORTER_OTLP_TRACES_TIMEOUT)
  # traces_timeout =
  # compression, of traces. (OTEL_EXPORTER_OTLP_TRACES_COMPRESSION)
  # traces_compression =
}

observe {
  # Whether allocs that others run (services, containers, pods, jobs, plain cgroups) are shown beside our own. They are read and nothing else. (ALLOSTAT_OBSERVE)
  enabled = true
  # Whose: systemd, docker, podman, containerd, kubernetes, nomad, slurm, lxc, libvirt, cgroup. Default: all. (ALLOSTAT_OBSERVE_SOURCES)
  # sources =
  # Whether processes in no cgroup of their own are shown as well, by process group. Each process of the host is looked at each second for that. (ALLOSTAT_OBSERVE_PROCESSES)
  processes = false
  # Those that are shown: ids, as `allostat status` has them; image:registry.example/ci-*; label:com.example.team=core. * is any text. Default: all. (ALLOSTAT_OBSERVE_INCLUDE)
  # include =
  # Those that are not, whatever the other list says; written likewise. Default: none. (ALLOSTAT_OBSERVE_EXCLUDE)
  # exclude =
  # Which workload those are of whose names come once; the first that fits: "cgroup:/ci/* -> ci", or by what a label says: "label:com.example.job=* -> label:com.example.project". Default: none, each as its source names it. (ALLOSTAT_OBSERVE_WORKLOADS)
  # workloads =
  # Paths of cgroups above those of tasks (slices, users, parents of containers) that are shown as allostat_parent_* though they have no limit of memory or CPU time of their own; * is any text. Default: none; those with a limit always are. (ALLOSTAT_OBSERVE_PARENTS)
  # parents =
  # So many tasks of others are shown at most. Those above it are counted in allostat_observed_left_out. (ALLOSTAT_OBSERVE_MAX_ALLOCS)
  max_allocs = 5000
  # Labels of containers and annotations of pods that are shown on allostat_alloc_info: com.example/team is label_com_example_team. Default: none. (ALLOSTAT_OBSERVE_LABELS)
  # labels =
  # Where Docker is asked for names of containers and for how they ended. It is not believed if it is neither root's nor ours. (ALLOSTAT_OBSERVE_DOCKER_SOCKET)
  docker_socket = "/var/run/docker.sock"
  # Where the host's files are: /run and /var, which name containers, and /etc/os-release. For an agent in a container that has them mounted elsewhere than at /. (ALLOSTAT_OBSERVE_ROOT)
  root = "/"
}

docker {
  # The Unix socket of the Docker engine that runs containers. Default: unix:///var/run/docker.sock. (ALLOSTAT_DOCKER_ENDPOINT)
  # endpoint =
  # Whether jobs may run privileged containers, which can do on the host whatever root can. Default: false. (ALLOSTAT_DOCKER_ALLOW_PRIVILEGED)
  # allow_privileged =
  # Whether jobs may mount host paths outside of their alloc directory, named volumes and volume drivers. Default: false, as in Nomad. (ALLOSTAT_DOCKER_VOLUMES_ENABLED)
  # volumes_enabled =
  # Capabilities that containers may have, separated by commas; "all". Default: Docker's without net_raw, as in Nomad. (ALLOSTAT_DOCKER_ALLOW_CAPS)
  # allow_caps =
  # OCI runtimes that jobs may name, separated by commas. Default: runc,nvidia. (ALLOSTAT_DOCKER_ALLOW_RUNTIMES)
  # allow_runtimes =
  # A file in the form of ~/.docker/config.json with the credentials of registries. Default: none. (ALLOSTAT_DOCKER_AUTH_CONFIG)
  # auth_config =
  # A pull in which the engine reports no progress for this long is canceled; at least 1m. Default: 2m. (ALLOSTAT_DOCKER_PULL_ACTIVITY_TIMEOUT)
  # pull_activity_timeout =
  # Whether an image that the agent pulled is removed when no task uses it any more. Default: true, as in Nomad. (ALLOSTAT_DOCKER_GC_IMAGE)
  # gc_image =
  # How long such an image stays after its last task has ended. Default: 3m. (ALLOSTAT_DOCKER_GC_IMAGE_DELAY)
  # gc_image_delay =
}

mock {
  # What mock says of itself, each for so long: "undetected 3s, healthy 1m, unhealthy". Default: healthy. (ALLOSTAT_MOCK_FINGERPRINT)
  # fingerprint =
}
