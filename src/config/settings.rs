//! Everything that can be set, once: the words of the file, the environment, the printed configuration and the table in
//! docs/commands.md are made from it. One more setting is one more entry; a driver has its own beside it.

use std::sync::LazyLock;
use std::time::Duration;

use super::setting::{A_DAY, Setting, SettingKind, TEN_YEARS};
use super::values::{absolute, cgroup_parent, fingerprinters, listed, listen_address, short, size, word, written};
use crate::api::PublicAccess;
use crate::devices::Attribution;
use crate::exporters::catalogue;
use crate::model::profile::Profile;
use crate::runner::drivers::{self, DriverEntry, DriverSetting};
use crate::telemetry::LoggingError;

/// Ours, those of OTLP, then those of each driver.
pub static SETTINGS: LazyLock<Vec<&'static Setting>> = LazyLock::new(|| {
    let of_driver = |driver: &'static DriverEntry| {
        driver.settings.iter().map(|setting| {
            let DriverSetting { key, env, about, check } = *setting;
            let kind = SettingKind::OfDriver(check);
            &*Box::leak(Box::new(Setting { stanza: driver.name, key, env, about, kind, get: |_| None }))
        })
    };
    let own = AGENT_SETTINGS
        .iter()
        .chain(super::otlp::OTLP)
        .chain(super::signals::SIGNALS.iter().copied().flatten())
        .chain(super::observed::SETTINGS)
        .chain(super::network::SETTINGS)
        .chain(super::artifact::SETTINGS)
        .chain(super::migrate::SETTINGS)
        .chain(super::template::SETTINGS)
        .chain(super::node::SETTINGS);
    own.chain(drivers::ALL.iter().flat_map(|driver| of_driver(driver))).collect()
});

static AGENT_SETTINGS: &[Setting] = &[
    Setting {
        stanza: "agent",
        key: "data_dir",
        env: "ALLOSTAT_DATA_DIR",
        about: "State, task directories, logs and the Unix socket. Only one agent can use it at a time.",
        kind: SettingKind::Text(|c, text| absolute(text).map(|dir| c.data_dir = dir)),
        get: |c| Some(c.data_dir.display().to_string()),
    },
    Setting {
        stanza: "agent",
        key: "listen",
        env: "ALLOSTAT_LISTEN",
        about: "Address of the HTTP listener: plain HTTP by default, with the access that telemetry.public gives. \
                \"none\": only the Unix socket.",
        kind: SettingKind::Text(|c, text| {
            c.api.listen = if text == "none" { None } else { Some(listen_address(text)?) };
            Ok(())
        }),
        get: |c| Some(c.api.listen.map_or_else(|| "none".to_owned(), |a| a.to_string())),
    },
    Setting {
        stanza: "agent",
        key: "socket",
        env: "ALLOSTAT_SOCKET",
        about: "Path of the Unix socket, which allows all requests (run, stop, logs, ...). Default: allostat.sock in \
                the data directory.",
        kind: SettingKind::Text(|c, text| absolute(text).map(|path| c.api.socket = Some(path))),
        get: |c| c.api.socket.as_ref().map(|p| p.display().to_string()),
    },
    Setting {
        stanza: "agent",
        key: "socket_group",
        env: "ALLOSTAT_SOCKET_GROUP",
        about: "Group whose members may use the Unix socket like its owner: they can run programs as the agent's \
                user. Default: none.",
        kind: SettingKind::Text(|c, text| {
            c.api.socket_group = Some(text.to_owned()).filter(|name| !name.is_empty());
            Ok(())
        }),
        get: |c| c.api.socket_group.clone(),
    },
    Setting {
        stanza: "agent",
        key: "web_config_file",
        env: "ALLOSTAT_WEB_CONFIG_FILE",
        about: "TLS, client certificates and passwords of HTTP, in the format of Prometheus's web configuration \
                file. Reloaded when it or a file that it names changes. Default: none, plain HTTP.",
        kind: SettingKind::Text(|c, text| absolute(text).map(|path| c.api.web_config_file = Some(path))),
        get: |c| c.api.web_config_file.as_ref().map(|p| p.display().to_string()),
    },
    Setting {
        stanza: "agent",
        key: "token_file",
        env: "ALLOSTAT_AGENT_TOKEN_FILE",
        about: "File of tokens, one per line. A client that sends one (Authorization: Bearer) over https or from \
                this host may do everything that the Unix socket allows. Reloaded on change. Default: none.",
        kind: SettingKind::Text(|c, text| absolute(text).map(|path| c.api.token_file = Some(path))),
        get: |c| c.api.token_file.as_ref().map(|p| p.display().to_string()),
    },
    Setting {
        stanza: "agent",
        key: "acting_certificates",
        env: "ALLOSTAT_ACTING_CERTIFICATES",
        about: "Names (DNS, IP, mail, URI) of client certificates that may do everything that the Unix socket \
                allows. \"*\": every certificate that the web configuration verifies. Default: none.",
        kind: SettingKind::Texts(|c, names| {
            c.api.acting_certificates = names;
            Ok(())
        }),
        get: |c| listed(&c.api.acting_certificates),
    },
    Setting {
        stanza: "agent",
        key: "host_names",
        env: "ALLOSTAT_HOST_NAMES",
        about: "Host names that HTTP requests may use, besides loopback, the address, this host's name and the names \
                of its certificate. \"*.cluster.example\": any name below a domain in which only you assign names.",
        kind: SettingKind::Texts(|c, names| {
            let is_wrong = |name: &&String| {
                let of_domain = name.strip_prefix("*.");
                // A point more would be of no name that there is.
                of_domain.is_some_and(|domain| domain.is_empty() || domain.starts_with('.'))
                    || of_domain.unwrap_or(name.as_str()).contains([':', '/', ' ', '*'])
            };
            if let Some(name) = names.iter().find(is_wrong) {
                return Err(format!(
                    "{name:?} is no host name (no port, no address; a wildcard only as \"*.cluster.example\", for all \
                     below a domain)"
                ));
            }
            c.api.host_names = names;
            Ok(())
        }),
        get: |c| Some(c.api.host_names.join(",")),
    },
    Setting {
        stanza: "agent",
        key: "max_connections",
        env: "ALLOSTAT_MAX_CONNECTIONS",
        about: "Maximum number of connections on HTTP, and of connections on the Unix socket.",
        kind: SettingKind::Whole(1, 100_000, |c, n| c.api.max_connections = size(n)),
        get: |c| Some(c.api.max_connections.to_string()),
    },
    Setting {
        stanza: "agent",
        key: "disable_remote_exec",
        env: "ALLOSTAT_DISABLE_REMOTE_EXEC",
        about: "Refuse `allostat exec`: no client runs commands in tasks through the agent.",
        kind: SettingKind::Bool(|c, on| c.api.disable_remote_exec = on),
        get: |c| Some(c.api.disable_remote_exec.to_string()),
    },
    Setting {
        stanza: "agent",
        key: "memory_limit_mib",
        env: "ALLOSTAT_MEMORY_LIMIT_MIB",
        about: "Memory limit of the agent in MiB. Near it, the agent drops observed workloads, then details. The \
                limit of its cgroup applies as well. 0: only that of its cgroup.",
        kind: SettingKind::Whole(0, 1_000_000, |c, n| c.memory_limit_mib = n),
        get: |c| Some(c.memory_limit_mib.to_string()),
    },
    Setting {
        stanza: "telemetry",
        key: "tick",
        env: "ALLOSTAT_TICK",
        about: "Sampling interval of all tasks and the host.",
        kind: SettingKind::Duration(Duration::from_millis(100), Duration::from_secs(60), |c, d| c.telemetry.tick = d),
        get: |c| Some(short(c.telemetry.tick)),
    },
    Setting {
        stanza: "telemetry",
        key: "retention",
        env: "ALLOSTAT_RETENTION",
        about: "Minimum retention of the final series of an ended task.",
        kind: SettingKind::Duration(Duration::ZERO, A_DAY, |c, d| c.telemetry.retention.least = d),
        get: |c| Some(short(c.telemetry.retention.least)),
    },
    Setting {
        stanza: "telemetry",
        key: "retention_max",
        env: "ALLOSTAT_RETENTION_MAX",
        about: "Maximum retention of final series that a known scraper has not read.",
        kind: SettingKind::Duration(Duration::ZERO, A_DAY, |c, d| c.telemetry.retention.most = d),
        get: |c| Some(short(c.telemetry.retention.most)),
    },
    Setting {
        stanza: "telemetry",
        key: "churn_limit",
        env: "ALLOSTAT_CHURN_LIMIT",
        about: "New allocs per workload and hour that get their own series. Allocs above it share one row, \
                alloc_id=\"_overflow\". 0: no limit.",
        kind: SettingKind::Whole(0, 1_000_000, |c, n| c.telemetry.churn_limit = u32::try_from(n).unwrap_or(u32::MAX)),
        get: |c| Some(c.telemetry.churn_limit.to_string()),
    },
    Setting {
        stanza: "telemetry",
        key: "profile",
        env: "ALLOSTAT_PROFILE",
        about: "Set of metrics in /metrics. \"lean\": what alerts need; \"standard\": what boards need, at most 47 \
                series for a task and its alloc; \"full\": everything. `allostat catalogue --profile` lists each.",
        kind: SettingKind::Text(|c, text| {
            c.selection.profile = word(text, Profile::ALL, Profile::as_str)?;
            Ok(())
        }),
        get: |c| Some(c.selection.profile.as_str().to_owned()),
    },
    Setting {
        stanza: "telemetry",
        key: "include",
        env: "ALLOSTAT_INCLUDE",
        about: "Metrics to expose in addition to the profile: names, or anchored regular expressions of names, \
                optionally with a label: allostat_task_page_faults_total{kind=\"major\"}.",
        kind: SettingKind::Texts(|c, texts| catalogue::patterns(&texts).map(|patterns| c.selection.include = patterns)),
        get: |c| written(&c.selection.include),
    },
    Setting {
        stanza: "telemetry",
        key: "exclude",
        env: "ALLOSTAT_EXCLUDE",
        about: "Metrics not to expose, even if in the profile or in telemetry.include; same syntax.",
        kind: SettingKind::Texts(|c, texts| catalogue::patterns(&texts).map(|patterns| c.selection.exclude = patterns)),
        get: |c| written(&c.selection.exclude),
    },
    Setting {
        stanza: "telemetry",
        key: "public",
        env: "ALLOSTAT_TELEMETRY_PUBLIC",
        about: "What plain HTTP exposes to every client. \"metrics\": /metrics and health; \"read\": also what the \
                read commands need, without users, processes and paths of this host; \"none\": health.",
        kind: SettingKind::Text(|c, text| {
            c.api.public = PublicAccess::parse(text).ok_or_else(|| {
                let known = PublicAccess::ALL.map(PublicAccess::as_str).join(", ");
                format!("{text:?} is none of {known}")
            })?;
            Ok(())
        }),
        get: |c| Some(c.api.public.as_str().to_owned()),
    },
    Setting {
        stanza: "cgroup",
        key: "parent",
        env: "ALLOSTAT_CGROUP_PARENT",
        about: "Parent cgroup of tasks, which get <parent>/<alloc>/<task>. Default: a scope of its own under \
                systemd, else /allostat.",
        kind: SettingKind::Text(|c, text| cgroup_parent(text).map(|parent| c.cgroup.parent = Some(parent))),
        get: |c| c.cgroup.parent.clone(),
    },
    Setting {
        stanza: "cgroup",
        key: "peak_window_v1",
        env: "ALLOSTAT_CGROUP_PEAK_WINDOW_V1",
        about: "cgroup v1: measure the peak of the last minute by resetting memory.max_usage_in_bytes of managed \
                cgroups every 5 s. Other readers of that file then see no lifetime peak; the agent's stays correct. \
                Not needed on cgroup v2.",
        kind: SettingKind::Bool(|c, on| c.cgroup.peak_window_v1 = on),
        get: |c| Some(c.cgroup.peak_window_v1.to_string()),
    },
    Setting {
        stanza: "collectors",
        key: "kernel_pass",
        env: "ALLOSTAT_KERNEL_PASS",
        about: "Read cgroups with a BPF program in the kernel, if the agent may load one (CAP_BPF and CAP_PERFMON): \
                the same values at a fraction of the CPU cost. \"false\": read everything from files.",
        kind: SettingKind::Bool(|c, on| c.collectors.kernel_pass = on),
        get: |c| Some(c.collectors.kernel_pass.to_string()),
    },
    Setting {
        stanza: "collectors",
        key: "kernel_ends",
        env: "ALLOSTAT_KERNEL_ENDS",
        about: "Record with BPF programs in the kernel how observed tasks ended and what they had used, however \
                short they lived. Works beside kernel_pass, with the same capabilities. \"false\": only the last \
                sample is known.",
        kind: SettingKind::Bool(|c, on| c.collectors.kernel_ends = on),
        get: |c| Some(c.collectors.kernel_ends.to_string()),
    },
    Setting {
        stanza: "drivers",
        key: "enabled",
        env: "ALLOSTAT_DRIVERS",
        about: "Enabled drivers: raw_exec and exec run programs, docker containers; mock runs nothing, for tests. \
                Empty, or \"none\": this agent starts no tasks.",
        kind: SettingKind::Texts(|c, mut names| {
            names.retain(|name| name != "none");
            if let Some(name) = names.iter().find(|name| !drivers::names().contains(&name.as_str())) {
                return Err(format!("there is no driver {name:?}; there are {}", drivers::names().join(", ")));
            }
            c.drivers.enabled = names;
            Ok(())
        }),
        get: |c| Some(c.drivers.enabled.join(",")),
    },
    Setting {
        stanza: "fingerprint",
        key: "allowlist",
        env: "ALLOSTAT_FINGERPRINT_ALLOWLIST",
        about: "Fingerprinters to run: arch, cgroup, cpu, ... Default: all.",
        kind: SettingKind::Texts(|c, names| {
            c.fingerprint.allowlist = fingerprinters(names)?;
            Ok(())
        }),
        get: |c| listed(&c.fingerprint.allowlist),
    },
    Setting {
        stanza: "fingerprint",
        key: "denylist",
        env: "ALLOSTAT_FINGERPRINT_DENYLIST",
        about: "Fingerprinters not to run, even if in the allowlist. Default: none.",
        kind: SettingKind::Texts(|c, names| {
            c.fingerprint.denylist = fingerprinters(names)?;
            Ok(())
        }),
        get: |c| listed(&c.fingerprint.denylist),
    },
    Setting {
        stanza: "gc",
        key: "max_terminal",
        env: "ALLOSTAT_GC_MAX_TERMINAL",
        about: "Maximum number of ended allocs. Above it the oldest are garbage-collected, once their final series \
                were read.",
        kind: SettingKind::Whole(0, 1_000_000, |c, n| c.gc.max_terminal = size(n)),
        get: |c| Some(c.gc.max_terminal.to_string()),
    },
    Setting {
        stanza: "gc",
        key: "max_age",
        env: "ALLOSTAT_GC_MAX_AGE",
        about: "Garbage-collect allocs that ended longer ago than this, once their final series were read. Default: \
                none.",
        kind: SettingKind::Duration(Duration::ZERO, TEN_YEARS, |c, d| c.gc.max_age = Some(d)),
        get: |c| c.gc.max_age.map(short),
    },
    Setting {
        stanza: "gc",
        key: "disk_used_percent",
        env: "ALLOSTAT_GC_DISK_USED_PERCENT",
        about: "Garbage-collect the oldest ended allocs if the file system of the data directory is fuller than \
                this. 100: never.",
        kind: SettingKind::Whole(1, 100, |c, n| c.gc.disk_used_percent = n),
        get: |c| Some(c.gc.disk_used_percent.to_string()),
    },
    Setting {
        stanza: "gc",
        key: "inodes_used_percent",
        env: "ALLOSTAT_GC_INODES_USED_PERCENT",
        about: "The same for its inodes.",
        kind: SettingKind::Whole(1, 100, |c, n| c.gc.inodes_used_percent = n),
        get: |c| Some(c.gc.inodes_used_percent.to_string()),
    },
    Setting {
        stanza: "history",
        key: "keep",
        env: "ALLOSTAT_HISTORY_KEEP",
        about: "Retention of the history of ended allocs, managed and observed, for `allostat history`. 0s: no \
                history.",
        kind: SettingKind::Duration(Duration::ZERO, TEN_YEARS, |c, d| c.history.keep = d),
        get: |c| Some(short(c.history.keep)),
    },
    Setting {
        stanza: "history",
        key: "max_bytes",
        env: "ALLOSTAT_HISTORY_MAX_BYTES",
        about: "Maximum size of the history in the data directory: the oldest records are dropped.",
        kind: SettingKind::Whole(1 << 20, 1 << 40, |c, n| c.history.max_bytes = n),
        get: |c| Some(c.history.max_bytes.to_string()),
    },
    Setting {
        stanza: "history",
        key: "series_interval",
        env: "ALLOSTAT_HISTORY_SERIES_INTERVAL",
        about: "Interval of the points of the last hour, which the page at / and `allostat top` show.",
        kind: SettingKind::Duration(Duration::from_secs(5), Duration::from_secs(30), |c, d| c.recent.interval = d),
        get: |c| Some(short(c.recent.interval)),
    },
    Setting {
        stanza: "history",
        key: "series_max_bytes",
        env: "ALLOSTAT_HISTORY_SERIES_MAX_BYTES",
        about: "Maximum memory of the last hour: ended allocs leave it first, then the newest. 0: no last hour.",
        kind: SettingKind::Whole(0, 1 << 30, |c, n| c.recent.max_bytes = n),
        get: |c| Some(c.recent.max_bytes.to_string()),
    },
    Setting {
        stanza: "devices",
        key: "nvidia",
        env: "ALLOSTAT_DEVICES_NVIDIA",
        about: "Detect NVIDIA GPUs. On a host without GPUs this costs nothing.",
        kind: SettingKind::Bool(|c, on| c.devices.nvidia = on),
        get: |c| Some(c.devices.nvidia.to_string()),
    },
    Setting {
        stanza: "devices",
        key: "nvidia_isolated",
        env: "ALLOSTAT_DEVICES_NVIDIA_ISOLATED",
        about: "Load NVIDIA's library in a separate process, which is restarted if it crashes. Otherwise a crash \
                ends the agent too.",
        kind: SettingKind::Bool(|c, on| c.devices.nvidia_isolated = on),
        get: |c| Some(c.devices.nvidia_isolated.to_string()),
    },
    Setting {
        stanza: "devices",
        key: "nvidia_library",
        env: "ALLOSTAT_DEVICES_NVIDIA_LIBRARY",
        about: "Path of NVML, if the loader does not find libnvidia-ml.so.1.",
        kind: SettingKind::Text(|c, text| absolute(text).map(|path| c.devices.gpus.library = Some(path))),
        get: |c| c.devices.gpus.library.as_ref().map(|path| path.display().to_string()),
    },
    Setting {
        stanza: "devices",
        key: "ignored",
        env: "ALLOSTAT_DEVICES_IGNORED",
        about: "UUIDs of GPUs that are neither exposed nor assigned to tasks.",
        kind: SettingKind::Texts(|c, ids| {
            c.devices.gpus.ignored = ids;
            Ok(())
        }),
        get: |c| Some(&c.devices.gpus.ignored).filter(|ids| !ids.is_empty()).map(|ids| ids.join(",")),
    },
    Setting {
        stanza: "devices",
        key: "plugin_dir",
        env: "ALLOSTAT_DEVICES_PLUGIN_DIR",
        about: "Directory of third-party device plugins, written for Nomad: each program in it is one, with its \
                configuration in <its name>.json beside it. A program that others than its owner can write is not \
                run. Default: none.",
        kind: SettingKind::Text(|c, text| absolute(text).map(|path| c.devices.plugin_dir = Some(path))),
        get: |c| c.devices.plugin_dir.as_ref().map(|path| path.display().to_string()),
    },
    Setting {
        stanza: "devices",
        key: "retry",
        env: "ALLOSTAT_DEVICES_RETRY",
        about: "Interval between attempts to find a missing driver.",
        kind: SettingKind::Duration(Duration::from_secs(1), A_DAY, |c, d| c.devices.follow.retry = d),
        get: |c| Some(short(c.devices.follow.retry)),
    },
    Setting {
        stanza: "devices",
        key: "attribution",
        env: "ALLOSTAT_DEVICES_ATTRIBUTION",
        about: "Map processes on devices to tasks. \"auto\": only where the agent sees the processes of the whole \
                host; elsewhere a driver's PIDs may belong to other processes. \"always\", \"never\".",
        kind: SettingKind::Text(|c, text| {
            c.devices.follow.attribution = word(text, Attribution::ALL, Attribution::as_str)?;
            Ok(())
        }),
        get: |c| Some(c.devices.follow.attribution.as_str().to_owned()),
    },
    Setting {
        stanza: "log",
        key: "level",
        env: "ALLOSTAT_LOG",
        about: "off, error, warn, info, debug or trace.",
        kind: SettingKind::Text(|c, text| {
            c.log_level = text.parse().map_err(|e: LoggingError| e.to_string())?;
            Ok(())
        }),
        get: |c| Some(c.log_level.to_string()),
    },
];
