agent {
  # State, task directories, logs and the Unix socket. Only one agent can use it at a time. (ALLOSTAT_DATA_DIR)
  data_dir = "/var/lib/allostat"
  # Address of the HTTP listener: plain HTTP by default, with the access that telemetry.public gives. "none": only the Unix socket. (ALLOSTAT_LISTEN)
  listen = "127.0.0.1:9740"
  # Path of the Unix socket, which allows all requests (run, stop, logs, ...). Default: allostat.sock in the data directory. (ALLOSTAT_SOCKET)
  # socket =
  # Group whose members may use the Unix socket like its owner: they can run programs as the agent's user. Default: none. (ALLOSTAT_SOCKET_GROUP)
  # socket_group =
  # TLS, client certificates and passwords of HTTP, in the format of Prometheus's web configuration file. Reloaded when it or a file that it names changes. Default: none, plain HTTP. (ALLOSTAT_WEB_CONFIG_FILE)
  # web_config_file =
  # File of tokens, one per line. A client that sends one (Authorization: Bearer) over https or from this host may do everything that the Unix socket allows. Reloaded on change. Default: none. (ALLOSTAT_AGENT_TOKEN_FILE)
  # token_file =
  # Names (DNS, IP, mail, URI) of client certificates that may do everything that the Unix socket allows. "*": every certificate that the web configuration verifies. Default: none. (ALLOSTAT_ACTING_CERTIFICATES)
  # acting_certificates =
  # Host names that HTTP requests may use, besides loopback, the address, this host's name and the names of its certificate. "*.cluster.example": any name below a domain in which only you assign names. (ALLOSTAT_HOST_NAMES)
  host_names = []
  # Maximum number of connections on HTTP, and of connections on the Unix socket. (ALLOSTAT_MAX_CONNECTIONS)
  max_connections = 256
  # Refuse `allostat exec`: no client runs commands in tasks through the agent. (ALLOSTAT_DISABLE_REMOTE_EXEC)
  disable_remote_exec = false
  # Memory limit of the agent in MiB. Near it, the agent drops observed workloads, then details. The limit of its cgroup applies as well. 0: only that of its cgroup. (ALLOSTAT_MEMORY_LIMIT_MIB)
  memory_limit_mib = 1024
}

telemetry {
  # Sampling interval of all tasks and the host. (ALLOSTAT_TICK)
  tick = "1s"
  # Minimum retention of the final series of an ended task. (ALLOSTAT_RETENTION)
  retention = "5m"
  # Maximum retention of final series that a known scraper has not read. (ALLOSTAT_RETENTION_MAX)
  retention_max = "10m"
  # New allocs per workload and hour that get their own series. Allocs above it share one row, alloc_id="_overflow". 0: no limit. (ALLOSTAT_CHURN_LIMIT)
  churn_limit = 5000
  # Set of metrics in /metrics. "lean": what alerts need; "standard": what boards need, at most 47 series for a task and its alloc; "full": everything. `allostat catalogue --profile` lists each. (ALLOSTAT_PROFILE)
  profile = "standard"
  # Metrics to expose in addition to the profile: names, or anchored regular expressions of names, optionally with a label: allostat_task_page_faults_total{kind="major"}. (ALLOSTAT_INCLUDE)
  # include =
  # Metrics not to expose, even if in the profile or in telemetry.include; same syntax. (ALLOSTAT_EXCLUDE)
  # exclude =
  # What plain HTTP exposes to every client. "metrics": /metrics and health; "read": also what the read commands need, without users, processes and paths of this host; "none": health. (ALLOSTAT_TELEMETRY_PUBLIC)
  public = "read"
}

cgroup {
  # Parent cgroup of tasks, which get <parent>/<alloc>/<task>. Default: a scope of its own under systemd, else /allostat. (ALLOSTAT_CGROUP_PARENT)
  # parent =
  # cgroup v1: measure the peak of the last minute by resetting memory.max_usage_in_bytes of managed cgroups every 5 s. Other readers of that file then see no lifetime peak; the agent's stays correct. Not needed on cgroup v2. (ALLOSTAT_CGROUP_PEAK_WINDOW_V1)
  peak_window_v1 = false
}

collectors {
  # Read cgroups with a BPF program in the kernel, if the agent may load one (CAP_BPF and CAP_PERFMON): the same values at a fraction of the CPU cost. "false": read everything from files. (ALLOSTAT_KERNEL_PASS)
  kernel_pass = true
  # Record with BPF programs in the kernel how observed tasks ended and what they had used, however short they lived. Works beside kernel_pass, with the same capabilities. "false": only the last sample is known. (ALLOSTAT_KERNEL_ENDS)
  kernel_ends = true
}

drivers {
  # Enabled drivers: raw_exec and exec run programs, docker containers; mock runs nothing, for tests. Empty, or "none": this agent starts no tasks. (ALLOSTAT_DRIVERS)
  enabled = ["raw_exec", "exec", "docker"]
}

fingerprint {
  # Fingerprinters to run: arch, cgroup, cpu, ... Default: all. (ALLOSTAT_FINGERPRINT_ALLOWLIST)
  # allowlist =
  # Fingerprinters not to run, even if in the allowlist. Default: none. (ALLOSTAT_FINGERPRINT_DENYLIST)
  # denylist =
}

gc {
  # Maximum number of ended allocs. Above it the oldest are garbage-collected, once their final series were read. (ALLOSTAT_GC_MAX_TERMINAL)
  max_terminal = 2000
  # Garbage-collect allocs that ended longer ago than this, once their final series were read. Default: none. (ALLOSTAT_GC_MAX_AGE)
  # max_age =
  # Garbage-collect the oldest ended allocs if the file system of the data directory is fuller than this. 100: never. (ALLOSTAT_GC_DISK_USED_PERCENT)
  disk_used_percent = 80
  # The same for its inodes. (ALLOSTAT_GC_INODES_USED_PERCENT)
  inodes_used_percent = 70
}

history {
  # Retention of the history of ended allocs, managed and observed, for `allostat history`. 0s: no history. (ALLOSTAT_HISTORY_KEEP)
  keep = "30d"
  # Maximum size of the history in the data directory: the oldest records are dropped. (ALLOSTAT_HISTORY_MAX_BYTES)
  max_bytes = 67108864
  # Interval of the points of the last hour, which the page at / and `allostat top` show. (ALLOSTAT_HISTORY_SERIES_INTERVAL)
  series_interval = "10s"
  # Maximum memory of the last hour: ended allocs leave it first, then the newest. 0: no last hour. (ALLOSTAT_HISTORY_SERIES_MAX_BYTES)
  series_max_bytes = 8388608
}

devices {
  # Detect NVIDIA GPUs. On a host without GPUs this costs nothing. (ALLOSTAT_DEVICES_NVIDIA)
  nvidia = true
  # Load NVIDIA's library in a separate process, which is restarted if it crashes. Otherwise a crash ends the agent too. (ALLOSTAT_DEVICES_NVIDIA_ISOLATED)
  nvidia_isolated = true
  # Path of NVML, if the loader does not find libnvidia-ml.so.1. (ALLOSTAT_DEVICES_NVIDIA_LIBRARY)
  # nvidia_library =
  # UUIDs of GPUs that are neither exposed nor assigned to tasks. (ALLOSTAT_DEVICES_IGNORED)
  # ignored =
  # Directory of third-party device plugins, written for Nomad: each program in it is one, with its configuration in <its name>.json beside it. A program that others than its owner can write is not run. Default: none. (ALLOSTAT_DEVICES_PLUGIN_DIR)
  # plugin_dir =
  # Interval between attempts to find a missing driver. (ALLOSTAT_DEVICES_RETRY)
  retry = "5m"
  # Map processes on devices to tasks. "auto": only where the agent sees the processes of the whole host; elsewhere a driver's PIDs may belong to other processes. "always", "never". (ALLOSTAT_DEVICES_ATTRIBUTION)
  attribution = "auto"
}

log {
  # off, error, warn, info, debug or trace. (ALLOSTAT_LOG)
  level = "info"
}

otlp {
  # Endpoint for metrics, logs and traces: http://host:port or https://host:port, with /v1/metrics, /v1/logs and /v1/traces below it. Default: none, nothing is pushed. (OTEL_EXPORTER_OTLP_ENDPOINT)
  # endpoint =
  # true: push nothing, whatever endpoints are set; in a destination, nothing to it. (OTEL_SDK_DISABLED)
  disabled = false
  # http/protobuf or grpc. (OTEL_EXPORTER_OTLP_PROTOCOL)
  protocol = "http/protobuf"
  # gRPC, with an endpoint of host:port alone: use http rather than https. (OTEL_EXPORTER_OTLP_INSECURE)
  insecure = false
  # https: trusted CA certificates, PEM. Reloaded for each connection. Default: those of the system. (OTEL_EXPORTER_OTLP_CERTIFICATE)
  # certificate =
  # https: client certificate for a collector that requires one, PEM with its chain. (OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE)
  # client_certificate =
  # https: key of the client certificate, PEM. (OTEL_EXPORTER_OTLP_CLIENT_KEY)
  # client_key =
  # Headers of each request: name=value, separated by commas, values percent-encoded. (OTEL_EXPORTER_OTLP_HEADERS)
  # headers =
  # Timeout of one request. In the environment a number is milliseconds. (OTEL_EXPORTER_OTLP_TIMEOUT)
  timeout = "10s"
  # gzip, zstd or none. (OTEL_EXPORTER_OTLP_COMPRESSION)
  compression = "gzip"
  # Temporality of sums and histograms. cumulative: since their start; delta: since the last export that the collector accepted; lowmemory: histograms as delta, sums as cumulative. (OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE)
  temporality_preference = "cumulative"
  # explicit_bucket_histogram: the buckets of /metrics; base2_exponential_bucket_histogram: finer buckets, as in native histograms. (OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION)
  default_histogram_aggregation = "explicit_bucket_histogram"
  # Names of pushed metrics. conventions: those of OpenTelemetry; prometheus: names, labels and profile of /metrics, so that the boards and alerts work on pushed data. (ALLOSTAT_OTLP_NAMES)
  names = "conventions"
  # Repeat resource attributes on each of its points, for stores that drop resources. (ALLOSTAT_OTLP_FLAT)
  flat = false
  # Export interval. In the environment a number is milliseconds. (OTEL_METRIC_EXPORT_INTERVAL)
  interval = "1m"
  # service.name of the host and of the agent. Tasks and allocs have that of their workload. Default: allostat. (OTEL_SERVICE_NAME)
  # service_name =
  # Attributes of every resource: key=value, separated by commas, percent-encoded. Attributes that the agent sets itself win. (OTEL_RESOURCE_ATTRIBUTES)
  # resource_attributes =
  # Maximum size of the queue for the collector, in the data directory: the oldest points are dropped. (ALLOSTAT_OTLP_QUEUE_BYTES)
  queue_bytes = 268435456
  # Maximum age of queued points: older ones are dropped. (ALLOSTAT_OTLP_QUEUE_AGE)
  queue_age = "2d"
  # Push the output of managed tasks with the logs: stdout, stderr, or both separated by a comma. Default: none. (ALLOSTAT_OTLP_LOGS_TASKS)
  # logs_tasks =
  # Maximum output of one task to push, in bytes per second; each line counts 64 more. Bursts may have four seconds of it. (ALLOSTAT_OTLP_LOGS_TASKS_RATE)
  logs_tasks_rate = 65536
  # Maximum output of all tasks together to push, in bytes per second. (ALLOSTAT_OTLP_LOGS_TASKS_TOTAL_RATE)
  logs_tasks_total_rate = 1048576
  # Push metrics if an endpoint is set: otlp or none. (OTEL_METRICS_EXPORTER)
  metrics_exporter = "otlp"
  # Endpoint for metrics, with the whole path. Like all settings of one signal, it takes precedence over the common one. (OTEL_EXPORTER_OTLP_METRICS_ENDPOINT)
  # metrics_endpoint =
  # protocol for metrics only. (OTEL_EXPORTER_OTLP_METRICS_PROTOCOL)
  # metrics_protocol =
  # insecure for metrics only. (OTEL_EXPORTER_OTLP_METRICS_INSECURE)
  # metrics_insecure =
  # certificate for metrics only. (OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE)
  # metrics_certificate =
  # client_certificate for metrics only. (OTEL_EXPORTER_OTLP_METRICS_CLIENT_CERTIFICATE)
  # metrics_client_certificate =
  # client_key for metrics only. (OTEL_EXPORTER_OTLP_METRICS_CLIENT_KEY)
  # metrics_client_key =
  # headers for metrics only, instead of the common ones. (OTEL_EXPORTER_OTLP_METRICS_HEADERS)
  # metrics_headers =
  # timeout for metrics only. (OTEL_EXPORTER_OTLP_METRICS_TIMEOUT)
  # metrics_timeout =
  # compression for metrics only. (OTEL_EXPORTER_OTLP_METRICS_COMPRESSION)
  # metrics_compression =
  # Push logs if an endpoint is set: otlp or none. (OTEL_LOGS_EXPORTER)
  logs_exporter = "otlp"
  # Endpoint for logs, with the whole path. Like all settings of one signal, it takes precedence over the common one. (OTEL_EXPORTER_OTLP_LOGS_ENDPOINT)
  # logs_endpoint =
  # protocol for logs only. (OTEL_EXPORTER_OTLP_LOGS_PROTOCOL)
  # logs_protocol =
  # insecure for logs only. (OTEL_EXPORTER_OTLP_LOGS_INSECURE)
  # logs_insecure =
  # certificate for logs only. (OTEL_EXPORTER_OTLP_LOGS_CERTIFICATE)
  # logs_certificate =
  # client_certificate for logs only. (OTEL_EXPORTER_OTLP_LOGS_CLIENT_CERTIFICATE)
  # logs_client_certificate =
  # client_key for logs only. (OTEL_EXPORTER_OTLP_LOGS_CLIENT_KEY)
  # logs_client_key =
  # headers for logs only, instead of the common ones. (OTEL_EXPORTER_OTLP_LOGS_HEADERS)
  # logs_headers =
  # timeout for logs only. (OTEL_EXPORTER_OTLP_LOGS_TIMEOUT)
  # logs_timeout =
  # compression for logs only. (OTEL_EXPORTER_OTLP_LOGS_COMPRESSION)
  # logs_compression =
  # Push traces if an endpoint is set: otlp or none. (OTEL_TRACES_EXPORTER)
  traces_exporter = "otlp"
  # Endpoint for traces, with the whole path. Like all settings of one signal, it takes precedence over the common one. (OTEL_EXPORTER_OTLP_TRACES_ENDPOINT)
  # traces_endpoint =
  # protocol for traces only. (OTEL_EXPORTER_OTLP_TRACES_PROTOCOL)
  # traces_protocol =
  # insecure for traces only. (OTEL_EXPORTER_OTLP_TRACES_INSECURE)
  # traces_insecure =
  # certificate for traces only. (OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE)
  # traces_certificate =
  # client_certificate for traces only. (OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE)
  # traces_client_certificate =
  # client_key for traces only. (OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY)
  # traces_client_key =
  # headers for traces only, instead of the common ones. (OTEL_EXPORTER_OTLP_TRACES_HEADERS)
  # traces_headers =
  # timeout for traces only. (OTEL_EXPORTER_OTLP_TRACES_TIMEOUT)
  # traces_timeout =
  # compression for traces only. (OTEL_EXPORTER_OTLP_TRACES_COMPRESSION)
  # traces_compression =
}

observe {
  # Observe allocs of other runtimes (services, containers, pods, jobs, plain cgroups) beside managed ones. They are only read. (ALLOSTAT_OBSERVE)
  enabled = true
  # Sources to observe: systemd, docker, podman, containerd, kubernetes, nomad, slurm, lxc, libvirt, cgroup. Default: all. (ALLOSTAT_OBSERVE_SOURCES)
  # sources =
  # Observe processes without a cgroup of their own as well, by process group. This reads each process of the host every second. (ALLOSTAT_OBSERVE_PROCESSES)
  processes = false
  # Allocs to observe: IDs, as in `allostat status`; image:registry.example/ci-*; label:com.example.team=core. * is any text. Default: all. (ALLOSTAT_OBSERVE_INCLUDE)
  # include =
  # Allocs not to observe, even if in the other list; same syntax. Default: none. (ALLOSTAT_OBSERVE_EXCLUDE)
  # exclude =
  # Workload of allocs whose names are used once, by the first rule that matches: "cgroup:/ci/* -> ci", or from a label: "label:com.example.job=* -> label:com.example.project". Default: none, the name that the source gives. (ALLOSTAT_OBSERVE_WORKLOADS)
  # workloads =
  # Parent cgroups (slices, users, parents of containers) to expose as allostat_parent_* although they have no memory or CPU limit of their own; * is any text. Default: none; those with a limit are always exposed. (ALLOSTAT_OBSERVE_PARENTS)
  # parents =
  # Maximum number of observed tasks to expose. Those above it are counted in allostat_observed_left_out. (ALLOSTAT_OBSERVE_MAX_ALLOCS)
  max_allocs = 5000
  # Container labels and pod annotations to expose on allostat_alloc_info: com.example/team is label_com_example_team. Default: none. (ALLOSTAT_OBSERVE_LABELS)
  # labels =
  # Docker socket, for names of containers and how they ended. Ignored unless it belongs to root or to the agent's user. (ALLOSTAT_OBSERVE_DOCKER_SOCKET)
  docker_socket = "/var/run/docker.sock"
  # Root of the host's files: /run and /var, which name containers, and /etc/os-release. For an agent in a container that has them mounted elsewhere than at /. (ALLOSTAT_OBSERVE_ROOT)
  root = "/"
}

network {
  # The first port for tasks that request none in particular. (ALLOSTAT_MIN_DYNAMIC_PORT)
  min_dynamic_port = 20000
  # The last one. Outgoing connections have the ports of net.ipv4.ip_local_port_range: stay below them. (ALLOSTAT_MAX_DYNAMIC_PORT)
  max_dynamic_port = 32000
  # Names for addresses of this host, which `host_network` of a port may name: "lan=192.168.1.10". Ports without it are at the address of the default route. Default: none. (ALLOSTAT_HOST_NETWORKS)
  # host_networks =
  # Directories with CNI plugins (containernetworking-plugins), for networks of mode bridge and cni/NAME. (ALLOSTAT_CNI_PATH)
  cni_path = ["/opt/cni/bin", "/usr/lib/cni"]
  # Where the CNI configurations are that mode cni/NAME names. (ALLOSTAT_CNI_CONFIG_DIR)
  cni_config_dir = "/etc/cni/net.d"
  # The bridge that allocs with mode bridge are connected to; it is made with the first. (ALLOSTAT_BRIDGE_NAME)
  bridge_name = "allostat"
  # The IPv4 network behind that bridge. (ALLOSTAT_BRIDGE_SUBNET)
  bridge_subnet = "172.26.80.0/20"
}

artifact {
  # Maximum duration of one download over HTTP, redirects included. (ALLOSTAT_ARTIFACT_HTTP_READ_TIMEOUT)
  http_read_timeout = "30m"
  # How long a server may send nothing before the download fails. (ALLOSTAT_ARTIFACT_HTTP_IDLE_TIMEOUT)
  http_idle_timeout = "1m"
  # Maximum size of one download over HTTP, in MiB. 0: no limit. (ALLOSTAT_ARTIFACT_HTTP_MAX_SIZE_MIB)
  http_max_size_mib = 102400
  # Maximum duration of cloning one repository, submodules included. (ALLOSTAT_ARTIFACT_GIT_TIMEOUT)
  git_timeout = "30m"
  # Maximum size of an unpacked archive, and of the files of a repository, in MiB. 0: no limit. (ALLOSTAT_ARTIFACT_DECOMPRESSION_SIZE_LIMIT_MIB)
  decompression_size_limit_mib = 102400
  # Maximum number of entries of an archive. 0: no limit. (ALLOSTAT_ARTIFACT_DECOMPRESSION_FILE_COUNT_LIMIT)
  decompression_file_count_limit = 4096
  # Maximum number of files and directories of a repository, git's own included. 0: no limit. (ALLOSTAT_ARTIFACT_GIT_FILE_COUNT_LIMIT)
  git_file_count_limit = 1000000
  # Space of the data directory's file system that artifacts leave free, in MiB: below it a download fails. (ALLOSTAT_ARTIFACT_FREE_SPACE_RESERVE_MIB)
  free_space_reserve_mib = 256
}

migrate {
  # Agents from which `run --migrate-from` may fetch the data of an alloc: NAME=https://HOST:PORT, on this host also http:// and unix:. Default: none. (ALLOSTAT_MIGRATE_PEERS)
  # peers =
  # Token files for peers, PEER=/PATH: one of the tokens in the peer's agent.token_file. Read for each request. Default: none. (ALLOSTAT_MIGRATE_TOKENS)
  # tokens =
  # https: trusted CA certificates of peers, PEM. Reloaded for each connection. Default: those of the system. (ALLOSTAT_MIGRATE_CA_FILE)
  # ca_file =
  # https: client certificate that this agent shows to peers, PEM with its chain. Its name is one of the peer's agent.acting_certificates. Default: none. (ALLOSTAT_MIGRATE_CERT_FILE)
  # cert_file =
  # https: key of the client certificate, PEM. (ALLOSTAT_MIGRATE_KEY_FILE)
  # key_file =
  # Maximum duration of a migration, from the submission of the job: waiting for the end of the old alloc, retries and restarts of the agent included. (ALLOSTAT_MIGRATE_DEADLINE)
  deadline = "24h"
  # How long a peer may send nothing before the transfer is retried. (ALLOSTAT_MIGRATE_IDLE_TIMEOUT)
  idle_timeout = "1m"
  # Maximum size of the data of one alloc, holes of sparse files included, in MiB. 0: no limit. (ALLOSTAT_MIGRATE_MAX_SIZE_MIB)
  max_size_mib = 102400
  # Maximum number of files, directories and links of one alloc. A peer sends at most 1,000,000, so larger values and 0 have no effect. (ALLOSTAT_MIGRATE_MAX_ENTRIES)
  max_entries = 1000000
  # Space of the data directory's file system that migrations leave free, in MiB: below it a migration fails. (ALLOSTAT_MIGRATE_FREE_SPACE_RESERVE_MIB)
  free_space_reserve_mib = 256
}

template {
  # Directory of the key tree: `key "a/b"` in a template is the content of its file a/b. Every job can read all of it, so it is no place for secrets. Default: none, and jobs whose templates read keys are refused. (ALLOSTAT_TEMPLATE_KEY_DIR)
  # key_dir =
}

node {
  # The datacenter of this node: a job whose datacenters do not include it is not placed. Default: none, the node is in every datacenter. (ALLOSTAT_NODE_DATACENTER)
  # datacenter =
  # What a job file reads as ${node.class}. Default: none. (ALLOSTAT_NODE_CLASS)
  # class =
  # The node pool of this node: a job that names another one is not placed. Default: none, the node is in every pool. (ALLOSTAT_NODE_POOL)
  # pool =
  # Metadata of this node, each as KEY=VALUE: constraints of job files use ${meta.KEY}. Default: none. (ALLOSTAT_NODE_META)
  # meta =
  # Paths of this host that jobs may mount with `volume`, each as NAME=/path, or NAME=/path:ro for reading only. Tasks write there as their own user. Default: none. (ALLOSTAT_NODE_HOST_VOLUMES)
  # host_volumes =
}

exec {
  # Capabilities that tasks may have, by name, separated by commas; "all" is one. Default: Nomad's, which tasks have. (ALLOSTAT_EXEC_ALLOW_CAPS)
  # allow_caps =
  # What of the host tasks see, read-only: paths separated by commas, HOST or HOST:INSIDE. Default: Nomad's. (ALLOSTAT_EXEC_CHROOT_ENV)
  # chroot_env =
  # IPC namespace of a task that names none: private or host. Default: private. (ALLOSTAT_EXEC_DEFAULT_IPC_MODE)
  # default_ipc_mode =
  # PID namespace of a task that names none: private or host. Default: private. (ALLOSTAT_EXEC_DEFAULT_PID_MODE)
  # default_pid_mode =
  # "true" where the root file system is a RAM disk, which cannot be left by pivot_root. Default: false. (ALLOSTAT_EXEC_NO_PIVOT_ROOT)
  # no_pivot_root =
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
  # Health that mock reports, each state for a time: "undetected 3s, healthy 1m, unhealthy". Default: healthy. (ALLOSTAT_MOCK_FINGERPRINT)
  # fingerprint =
}
