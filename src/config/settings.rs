//! Everything that can be set, once: the words of the file, the environment, the printed configuration and the table in
//! docs/commands.md are made from it. One more setting is one more entry.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::Config;
use crate::api::{DEFAULT_PORT, Public};
use crate::jobspec::quantity::{format_duration, parse_duration};
use crate::runner::drivers;
use crate::telemetry::LoggingError;

/// One thing that can be set.
pub struct Setting {
    /// `agent` of `agent.data_dir`: settings of one stanza stand together.
    pub stanza: &'static str,
    pub key: &'static str,
    pub env: &'static str,
    /// Stands above it in the printed configuration.
    pub about: &'static str,
    pub(super) kind: Kind,
    /// As text that can be read again; `None`: not set.
    pub(super) get: fn(&Config) -> Option<String>,
}

/// What its value is, and where that goes.
pub(super) enum Kind {
    Text(fn(&mut Config, &str) -> Result<(), String>),
    /// A list in the file, separated by commas elsewhere.
    Texts(fn(&mut Config, Vec<String>) -> Result<(), String>),
    Duration(Duration, Duration, fn(&mut Config, Duration)),
    Whole(u64, u64, fn(&mut Config, u64)),
    Bool(fn(&mut Config, bool)),
}

impl Setting {
    /// Errors: the value cannot be, in a sentence without its name.
    pub(super) fn set(&self, config: &mut Config, text: &str) -> Result<(), String> {
        match self.kind {
            Kind::Text(put) => put(config, text),
            Kind::Texts(put) => put(config, list(text)),
            Kind::Duration(least, most, put) => duration(text, least, most).map(|value| put(config, value)),
            Kind::Whole(least, most, put) => {
                let value = text.parse().ok().filter(|n| (least..=most).contains(n));
                let value = value.ok_or_else(|| format!("a whole number between {least} and {most} is wanted"))?;
                put(config, value);
                Ok(())
            }
            Kind::Bool(put) => {
                put(config, text.parse().map_err(|_| "must be true or false".to_owned())?);
                Ok(())
            }
        }
    }
}

const A_DAY: Duration = Duration::from_secs(86_400);
const TEN_YEARS: Duration = Duration::from_secs(3_650 * 86_400);

pub static SETTINGS: &[Setting] = &[
    Setting {
        stanza: "agent",
        key: "data_dir",
        env: "ALLOSTAT_DATA_DIR",
        about: "State, task directories, logs and the Unix socket. One agent at a time.",
        kind: Kind::Text(|c, text| absolute(text).map(|dir| c.data_dir = dir)),
        get: |c| Some(c.data_dir.display().to_string()),
    },
    Setting {
        stanza: "agent",
        key: "listen",
        env: "ALLOSTAT_LISTEN",
        about: "Where plain HTTP is served: what telemetry.public says. \"none\": only the Unix socket.",
        kind: Kind::Text(|c, text| {
            c.api.listen = if text == "none" { None } else { Some(listen_address(text)?) };
            Ok(())
        }),
        get: |c| Some(c.api.listen.map_or_else(|| "none".to_owned(), |a| a.to_string())),
    },
    Setting {
        stanza: "agent",
        key: "socket",
        env: "ALLOSTAT_SOCKET",
        about: "The Unix socket, for acting and reading logs. Default: allostat.sock in the data directory.",
        kind: Kind::Text(|c, text| absolute(text).map(|path| c.api.socket = Some(path))),
        get: |c| c.api.socket.as_ref().map(|p| p.display().to_string()),
    },
    Setting {
        stanza: "agent",
        key: "host_names",
        env: "ALLOSTAT_HOST_NAMES",
        about: "Names, besides loopback and the address itself, under which plain HTTP may be asked.",
        kind: Kind::Texts(|c, names| {
            if let Some(name) = names.iter().find(|n| n.contains([':', '/', ' ', '*'])) {
                return Err(format!("{name:?} is no host name (no port, no address, no wildcard)"));
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
        about: "At most so many connections on plain HTTP, and as many on the Unix socket.",
        kind: Kind::Whole(1, 100_000, |c, n| c.api.max_connections = size(n)),
        get: |c| Some(c.api.max_connections.to_string()),
    },
    Setting {
        stanza: "telemetry",
        key: "tick",
        env: "ALLOSTAT_TICK",
        about: "How often every task and the host are read.",
        kind: Kind::Duration(Duration::from_millis(100), Duration::from_secs(60), |c, d| c.telemetry.tick = d),
        get: |c| Some(short(c.telemetry.tick)),
    },
    Setting {
        stanza: "telemetry",
        key: "retention",
        env: "ALLOSTAT_RETENTION",
        about: "How long the final series of an ended task stay at least.",
        kind: Kind::Duration(Duration::ZERO, A_DAY, |c, d| c.telemetry.retention.least = d),
        get: |c| Some(short(c.telemetry.retention.least)),
    },
    Setting {
        stanza: "telemetry",
        key: "retention_max",
        env: "ALLOSTAT_RETENTION_MAX",
        about: "How long they stay at most while a known scraper has not fetched them.",
        kind: Kind::Duration(Duration::ZERO, A_DAY, |c, d| c.telemetry.retention.most = d),
        get: |c| Some(short(c.telemetry.retention.most)),
    },
    Setting {
        stanza: "telemetry",
        key: "public",
        env: "ALLOSTAT_TELEMETRY_PUBLIC",
        about: "What plain HTTP tells everybody who can connect. \"metrics\": /metrics and health; \"read\": what the commands read as \
                well, without users, processes and places on this host; \"none\": health.",
        kind: Kind::Text(|c, text| {
            c.api.public = Public::parse(text).ok_or_else(|| {
                let known = Public::ALL.map(Public::as_str).join(", ");
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
        about: "Tasks get cgroups <parent>/<alloc>/<task>. Default: in a scope of their own under systemd, else /allostat.",
        kind: Kind::Text(|c, text| cgroup_parent(text).map(|parent| c.cgroup.parent = Some(parent))),
        get: |c| c.cgroup.parent.clone(),
    },
    Setting {
        stanza: "cgroup",
        key: "peak_window_v1",
        env: "ALLOSTAT_CGROUP_PEAK_WINDOW_V1",
        about: "cgroup v1: the peak of the last minute, by resetting memory.max_usage_in_bytes of our cgroups each 5 s. \
                Others who read that file then see no lifetime peak; ours stays right. cgroup v2 needs no such thing.",
        kind: Kind::Bool(|c, on| c.cgroup.peak_window_v1 = on),
        get: |c| Some(c.cgroup.peak_window_v1.to_string()),
    },
    Setting {
        stanza: "drivers",
        key: "enabled",
        env: "ALLOSTAT_DRIVERS",
        about: "raw_exec runs programs; mock runs nothing, for tests.",
        kind: Kind::Texts(|c, names| {
            if let Some(name) = names.iter().find(|name| !drivers::names().contains(&name.as_str())) {
                return Err(format!("there is no driver {name:?}; there are {}", drivers::names().join(", ")));
            }
            c.drivers.enabled = names;
            Ok(())
        }),
        get: |c| Some(c.drivers.enabled.join(",")),
    },
    Setting {
        stanza: "gc",
        key: "max_terminal",
        env: "ALLOSTAT_GC_MAX_TERMINAL",
        about: "Ended allocs that are kept; the oldest above it go, once their final series were fetched.",
        kind: Kind::Whole(0, 1_000_000, |c, n| c.gc.max_terminal = size(n)),
        get: |c| Some(c.gc.max_terminal.to_string()),
    },
    Setting {
        stanza: "gc",
        key: "max_age",
        env: "ALLOSTAT_GC_MAX_AGE",
        about: "Allocs that ended longer ago than this go, once their final series were fetched. Default: none.",
        kind: Kind::Duration(Duration::ZERO, TEN_YEARS, |c, d| c.gc.max_age = Some(d)),
        get: |c| c.gc.max_age.map(short),
    },
    Setting {
        stanza: "gc",
        key: "disk_used_percent",
        env: "ALLOSTAT_GC_DISK_USED_PERCENT",
        about: "The data directory's file system is fuller than this: the oldest ended allocs go. 100: never.",
        kind: Kind::Whole(1, 100, |c, n| c.gc.disk_used_percent = n),
        get: |c| Some(c.gc.disk_used_percent.to_string()),
    },
    Setting {
        stanza: "gc",
        key: "inodes_used_percent",
        env: "ALLOSTAT_GC_INODES_USED_PERCENT",
        about: "The same of its inodes.",
        kind: Kind::Whole(1, 100, |c, n| c.gc.inodes_used_percent = n),
        get: |c| Some(c.gc.inodes_used_percent.to_string()),
    },
    Setting {
        stanza: "log",
        key: "level",
        env: "ALLOSTAT_LOG",
        about: "off, error, warn, info, debug or trace.",
        kind: Kind::Text(|c, text| {
            c.log_level = text.parse().map_err(|e: LoggingError| e.to_string())?;
            Ok(())
        }),
        get: |c| Some(c.log_level.to_string()),
    },
];

fn size(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// `5m` for Go's `5m0s`.
fn short(duration: Duration) -> String {
    let text = format_duration(duration);
    match text.strip_suffix("m0s") {
        Some(minutes) => format!("{minutes}m"),
        None => text,
    }
}

pub(super) fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|t| !t.is_empty()).map(str::to_owned).collect()
}

fn absolute(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if text.is_empty() {
        return Err("a path is missing".to_owned());
    }
    // Against the directory that the agent is started in: it works in another one later.
    std::path::absolute(&path).map_err(|e| format!("{text:?} is no path: {e}"))
}

fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let spelled = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    spelled.parse().map_err(|_| format!("{text:?} is no address: write 127.0.0.1:{} or [::1]:{0}", DEFAULT_PORT))
}

fn cgroup_parent(text: &str) -> Result<String, String> {
    let wrong = |why: &str| Err(format!("{text:?} is no parent for cgroups: {why}"));
    match text {
        text if !text.starts_with('/') => wrong("it starts with /, at the root of each hierarchy"),
        "/" => wrong("allocs are not put into the root itself"),
        text if text.split('/').any(|part| part == "..") => wrong(".. leads out of it"),
        text if text.split('/').skip(1).any(|part| part.is_empty() || part == ".") => wrong("a part of it is empty"),
        text if text.contains(char::is_control) => wrong("it has a control character"),
        text => Ok(text.to_owned()),
    }
}

fn duration(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    let value = parse_duration(text).map_err(|e| format!("{text:?} is no duration: {e}"))?;
    if value < least || value > most {
        return Err(format!("{text:?} is not between {} and {}", format_duration(least), format_duration(most)));
    }
    Ok(value)
}
