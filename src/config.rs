//! Gathers the settings of the rooms; loads, merges and checks them. Flags over `ALLOSTAT_*` over the file over the
//! defaults, and everything is checked before anything is bound.
//!
//! [`SETTINGS`] has each setting with its environment variable and how it is read and printed: `check`, `agent` and the golden default
//! configuration follow it. The words of the file and the documentation are lists of their own, held against it by tests.

mod gc;
mod public;

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::api;
use crate::host::http::{MAX_SOCKET_PATH_BYTES, socket_path_fits};
use crate::jobspec;
use crate::jobspec::diagnostic::{Diagnostics, Problems, Source, Span};
use crate::jobspec::fields::{Fields, Stanza, Word};
use crate::jobspec::quantity::{format_duration, parse_duration};
use crate::jobspec::tree;
use crate::runner::{GcConfig, drivers};
use crate::snapshot::{self, RetentionConfig};
use crate::telemetry::Level;

/// Everything that can be set.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// State, logs and the Unix socket live here; mode 0700, for one agent at a time.
    pub data_dir: PathBuf,
    pub api: api::Config,
    pub telemetry: snapshot::Config,
    pub cgroup: Cgroup,
    pub drivers: Drivers,
    pub gc: GcConfig,
    pub log_level: Level,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cgroup {
    /// Below it, in every hierarchy, each task gets a cgroup: `<parent>/<alloc>/<task>`. `None`: in a scope of systemd where there is
    /// one to be had, else `/allostat`.
    pub parent: Option<String>,
    /// Resets the kernel's memory peak of cgroup v1 every 5 s: other readers of it then see no lifetime peak.
    pub peak_window_v1: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drivers {
    pub enabled: Vec<String>,
}

impl Default for Drivers {
    fn default() -> Drivers {
        Drivers { enabled: vec!["raw_exec".into()] }
    }
}

impl Config {
    pub fn new(data_dir: PathBuf) -> Config {
        Config {
            data_dir,
            api: api::Config::default(),
            telemetry: snapshot::Config::default(),
            cgroup: Cgroup::default(),
            drivers: Drivers::default(),
            gc: GcConfig::default(),
            log_level: Level::default(),
        }
    }
    pub fn socket(&self) -> PathBuf {
        self.api.socket.clone().unwrap_or_else(|| self.data_dir.join(api::SOCKET_NAME))
    }
}

/// Root: `/var/lib/allostat`; others: `$XDG_STATE_HOME/allostat`, `~/.local/state/allostat`. `None` without a home.
pub fn default_data_dir() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some("/var/lib/allostat".into());
    }
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    state.map(|dir| dir.join("allostat"))
}

/// One thing that can be set.
pub struct Setting {
    /// `agent.data_dir`: stanza and key in the file.
    pub stanza: &'static str,
    pub key: &'static str,
    pub env: &'static str,
    /// Stands above it in the printed configuration.
    pub about: &'static str,
    kind: Kind,
    set: fn(&mut Config, &str) -> Result<(), String>,
    /// As text that `set` reads; `None`: not set.
    get: fn(&Config) -> Option<String>,
}

enum Kind {
    Text,
    Duration,
    Whole(u64, u64),
    Bool,
    /// A list in the file, separated by commas elsewhere.
    Texts,
}

pub static SETTINGS: &[Setting] = &[
    Setting {
        stanza: "agent",
        key: "data_dir",
        env: "ALLOSTAT_DATA_DIR",
        about: "State, task directories, logs and the Unix socket. One agent at a time.",
        kind: Kind::Text,
        set: |c, text| {
            let dir = absolute(text)?;
            c.data_dir = dir;
            Ok(())
        },
        get: |c| Some(c.data_dir.display().to_string()),
    },
    Setting {
        stanza: "agent",
        key: "listen",
        env: "ALLOSTAT_LISTEN",
        about: "Where plain HTTP is served: what telemetry.public says. \"none\": only the Unix socket.",
        kind: Kind::Text,
        set: |c, text| {
            c.api.listen = match text {
                "none" => None,
                text => Some(listen_address(text)?),
            };
            Ok(())
        },
        get: |c| Some(c.api.listen.map_or_else(|| "none".to_owned(), |a| a.to_string())),
    },
    Setting {
        stanza: "agent",
        key: "socket",
        env: "ALLOSTAT_SOCKET",
        about: "The Unix socket, for acting and reading logs. Default: allostat.sock in the data directory.",
        kind: Kind::Text,
        set: |c, text| {
            c.api.socket = Some(absolute(text)?);
            Ok(())
        },
        get: |c| c.api.socket.as_ref().map(|p| p.display().to_string()),
    },
    Setting {
        stanza: "agent",
        key: "host_names",
        env: "ALLOSTAT_HOST_NAMES",
        about: "Names, besides loopback and the address itself, under which plain HTTP may be asked.",
        kind: Kind::Texts,
        set: |c, text| {
            c.api.host_names = list(text);
            match c.api.host_names.iter().find(|n| n.contains([':', '/', ' ', '*'])) {
                Some(name) => Err(format!("{name:?} is no host name (no port, no address, no wildcard)")),
                None => Ok(()),
            }
        },
        get: |c| Some(c.api.host_names.join(",")),
    },
    Setting {
        stanza: "agent",
        key: "max_connections",
        env: "ALLOSTAT_MAX_CONNECTIONS",
        about: "At most so many connections on plain HTTP, and as many on the Unix socket.",
        kind: Kind::Whole(1, 100_000),
        set: |c, text| {
            c.api.max_connections = text.parse().map_err(|_| not_between(1, 100_000))?;
            if (1..=100_000).contains(&c.api.max_connections) { Ok(()) } else { Err(not_between(1, 100_000)) }
        },
        get: |c| Some(c.api.max_connections.to_string()),
    },
    Setting {
        stanza: "telemetry",
        key: "tick",
        env: "ALLOSTAT_TICK",
        about: "How often every task and the host are read.",
        kind: Kind::Duration,
        set: |c, text| {
            c.telemetry.tick = duration(text, Duration::from_millis(100), Duration::from_secs(60))?;
            Ok(())
        },
        get: |c| Some(short(c.telemetry.tick)),
    },
    Setting {
        stanza: "telemetry",
        key: "retention",
        env: "ALLOSTAT_RETENTION",
        about: "How long the final series of an ended task stay at least.",
        kind: Kind::Duration,
        set: |c, text| {
            c.telemetry.retention.least = duration(text, Duration::ZERO, Duration::from_secs(86_400))?;
            Ok(())
        },
        get: |c| Some(short(c.telemetry.retention.least)),
    },
    Setting {
        stanza: "telemetry",
        key: "retention_max",
        env: "ALLOSTAT_RETENTION_MAX",
        about: "How long they stay at most while a known scraper has not fetched them.",
        kind: Kind::Duration,
        set: |c, text| {
            c.telemetry.retention.most = duration(text, Duration::ZERO, Duration::from_secs(86_400))?;
            Ok(())
        },
        get: |c| Some(short(c.telemetry.retention.most)),
    },
    public::PUBLIC,
    Setting {
        stanza: "cgroup",
        key: "parent",
        env: "ALLOSTAT_CGROUP_PARENT",
        about: "Tasks get cgroups <parent>/<alloc>/<task>. Default: in a scope of their own under systemd, else /allostat.",
        kind: Kind::Text,
        set: |c, text| {
            c.cgroup.parent = Some(cgroup_parent(text)?);
            Ok(())
        },
        get: |c| c.cgroup.parent.clone(),
    },
    Setting {
        stanza: "cgroup",
        key: "peak_window_v1",
        env: "ALLOSTAT_CGROUP_PEAK_WINDOW_V1",
        about: "cgroup v1: the peak of the last minute, by resetting memory.max_usage_in_bytes of our cgroups each 5 s. \
                Others who read that file then see no lifetime peak; ours stays right. cgroup v2 needs no such thing.",
        kind: Kind::Bool,
        set: |c, text| {
            c.cgroup.peak_window_v1 = text.parse().map_err(|_| "must be true or false".to_owned())?;
            Ok(())
        },
        get: |c| Some(c.cgroup.peak_window_v1.to_string()),
    },
    Setting {
        stanza: "drivers",
        key: "enabled",
        env: "ALLOSTAT_DRIVERS",
        about: "raw_exec runs programs; mock runs nothing, for tests.",
        kind: Kind::Texts,
        set: |c, text| {
            c.drivers.enabled = list(text);
            match c.drivers.enabled.iter().find(|d| !drivers::names().contains(&d.as_str())) {
                Some(name) => Err(format!("there is no driver {name:?}; there are {}", drivers::names().join(", "))),
                None => Ok(()),
            }
        },
        get: |c| Some(c.drivers.enabled.join(",")),
    },
    gc::MAX_TERMINAL,
    gc::MAX_AGE,
    gc::DISK_USED,
    gc::INODES_USED,
    Setting {
        stanza: "log",
        key: "level",
        env: "ALLOSTAT_LOG",
        about: "off, error, warn, info, debug or trace.",
        kind: Kind::Text,
        set: |c, text| {
            c.log_level = text.parse().map_err(|e: crate::telemetry::LoggingError| e.to_string())?;
            Ok(())
        },
        get: |c| Some(c.log_level.to_string()),
    },
];

static FILE: Stanza = Stanza {
    name: "",
    words: &[
        Word::stanza("agent"),
        Word::stanza("telemetry"),
        Word::stanza("cgroup"),
        Word::stanza("drivers"),
        Word::stanza("gc"),
        Word::stanza("log"),
    ],
};
static AGENT: Stanza = Stanza {
    name: "agent",
    words: &[
        Word::value("data_dir"),
        Word::value("listen"),
        Word::value("socket"),
        Word::value("host_names"),
        Word::value("max_connections"),
    ],
};
static TELEMETRY: Stanza = Stanza {
    name: "telemetry",
    words: &[Word::value("tick"), Word::value("retention"), Word::value("retention_max"), Word::value("public")],
};
static CGROUP: Stanza = Stanza { name: "cgroup", words: &[Word::value("parent"), Word::value("peak_window_v1")] };
static DRIVERS_STANZA: Stanza = Stanza { name: "drivers", words: &[Word::value("enabled")] };
static LOG: Stanza = Stanza { name: "log", words: &[Word::value("level")] };
static STANZAS: [&Stanza; 6] = [&AGENT, &TELEMETRY, &CGROUP, &DRIVERS_STANZA, &gc::STANZA, &LOG];

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{0}")]
    File(Diagnostics),
    /// Of an environment variable or a flag: its name and what is wrong.
    #[error("{name}: {message}")]
    Value { name: String, message: String },
    #[error("there is no home directory to keep the state in: give --data-dir, or set HOME or XDG_STATE_HOME")]
    NoHome,
    /// Settings that are fine alone and impossible together.
    #[error("{0}")]
    Together(String),
}

/// Where settings come from, weakest first.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    pub file: Option<PathBuf>,
    /// `ALLOSTAT_*`, by name.
    pub env: Vec<(String, String)>,
    /// By `stanza.key`, with the flag's name for the error.
    pub flags: Vec<(&'static str, &'static str, String)>,
}

impl Sources {
    /// The variables of this process; those that mean nothing here are left alone (`ALLOSTAT_ADDR` is the commands').
    #[must_use]
    pub fn with_environment(mut self) -> Sources {
        self.env = SETTINGS
            .iter()
            .filter_map(|s| Some((s.env.to_owned(), std::env::var(s.env).ok()?)))
            .filter(|(_, value)| !value.is_empty())
            .collect();
        self
    }

    /// Merges and checks. Touches nothing but the file.
    pub fn load(&self) -> Result<Config, ConfigError> {
        // A data directory from a source replaces this; without a home it must.
        let default_dir = default_data_dir();
        let mut config = Config::new(default_dir.clone().unwrap_or_default());
        if let Some(path) = &self.file {
            read_file(path, &mut config)?;
        }
        for (name, value) in &self.env {
            if let Some(setting) = SETTINGS.iter().find(|s| s.env == name) {
                (setting.set)(&mut config, value)
                    .map_err(|message| ConfigError::Value { name: name.clone(), message })?;
            }
        }
        for (path, flag, value) in &self.flags {
            let setting = SETTINGS.iter().find(|s| format!("{}.{}", s.stanza, s.key) == *path);
            let setting = setting.expect("a flag must name a setting");
            (setting.set)(&mut config, value)
                .map_err(|message| ConfigError::Value { name: (*flag).to_owned(), message })?;
        }
        if config.data_dir.as_os_str().is_empty() {
            return Err(ConfigError::NoHome);
        }
        together(&config)?;
        Ok(config)
    }
}

fn together(config: &Config) -> Result<(), ConfigError> {
    let socket = config.socket();
    if !socket_path_fits(&socket) {
        return Err(ConfigError::Together(format!(
            "the path of the Unix socket, {}, has {} bytes; the system allows {MAX_SOCKET_PATH_BYTES}: \
             choose a shorter agent.data_dir or agent.socket",
            socket.display(),
            socket.as_os_str().len()
        )));
    }
    let RetentionConfig { least, most, .. } = config.telemetry.retention;
    if most < least {
        return Err(ConfigError::Together(format!(
            "telemetry.retention_max ({}) is shorter than telemetry.retention ({})",
            format_duration(most),
            format_duration(least)
        )));
    }
    Ok(())
}

fn read_file(path: &Path, config: &mut Config) -> Result<(), ConfigError> {
    let bytes = File::open(path).and_then(jobspec::bytes_of);
    let bytes = bytes.map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    let name = path.display().to_string();
    let text = jobspec::text_of(&name, bytes).map_err(ConfigError::File)?;
    read_text(&name, &text, config)
}

/// Reads HCL or JSON into `config`.
///
/// Errors: every problem of the file, each with its place.
pub fn read_text(name: &str, text: &str, config: &mut Config) -> Result<(), ConfigError> {
    let source = Source::new(name, text);
    let problems = Problems::new(&source);
    let body = tree::read_into(&problems);
    let family: Vec<&'static Stanza> = STANZAS.to_vec();
    let top = Fields::open(&body, &FILE, &family, "", &problems);
    for stanza in STANZAS {
        let Some(body) = top.stanza(stanza.name) else { continue };
        let fields = Fields::open(body, stanza, &family, stanza.name, &problems);
        for setting in SETTINGS.iter().filter(|s| s.stanza == stanza.name) {
            let Some((value, span)) = value_of(&fields, setting) else { continue };
            // Of a list, the element that is wrong: alone it is refused too.
            let elements = if let Kind::Texts = setting.kind { fields.texts(setting.key) } else { None };
            let alone = elements.iter().flat_map(|list| &list.value).enumerate().find_map(|(i, element)| {
                let refused = (setting.set)(&mut config.clone(), &element.value).err()?;
                Some((element.span.clone(), format!("{}[{i}]", setting.key), refused))
            });
            if let Some((span, key, message)) = alone {
                fields.error(&span, &key, message, None);
            } else if let Err(message) = (setting.set)(config, &value) {
                fields.error(&span, setting.key, message, None);
            }
        }
    }
    drop(top);
    let (errors, _) = problems.into_parts();
    if errors.0.is_empty() { Ok(()) } else { Err(ConfigError::File(errors)) }
}

/// The value as the text that `set` reads; a wrong type is recorded and yields nothing.
fn value_of(fields: &Fields<'_>, setting: &Setting) -> Option<(String, Span)> {
    match setting.kind {
        Kind::Text => fields.text(setting.key).map(|at| (at.value, at.span)),
        Kind::Duration => fields.duration(setting.key).map(|at| (format_duration(at.value), at.span)),
        Kind::Whole(least, most) => fields.integer(setting.key, least..=most).map(|at| (at.value.to_string(), at.span)),
        Kind::Bool => fields.bool(setting.key).map(|at| (at.value.to_string(), at.span)),
        Kind::Texts => fields.texts(setting.key).map(|at| {
            let texts: Vec<String> = at.value.into_iter().map(|t| t.value).collect();
            (texts.join(","), at.span)
        }),
    }
}

/// The configuration as a file that says the same.
pub fn print(config: &Config) -> String {
    let mut out = String::new();
    for stanza in STANZAS {
        out.push_str(&format!("{}{} {{\n", if out.is_empty() { "" } else { "\n" }, stanza.name));
        for setting in SETTINGS.iter().filter(|s| s.stanza == stanza.name) {
            out.push_str(&format!("  # {} ({})\n", setting.about, setting.env));
            let quoted = |text: &str| format!("{:?}", tree::escape(text));
            match ((setting.get)(config), &setting.kind) {
                (None, _) => out.push_str(&format!("  # {} =\n", setting.key)),
                (Some(text), Kind::Whole(..) | Kind::Bool) => out.push_str(&format!("  {} = {text}\n", setting.key)),
                (Some(text), Kind::Text | Kind::Duration) => {
                    out.push_str(&format!("  {} = {}\n", setting.key, quoted(&text)));
                }
                (Some(text), Kind::Texts) => {
                    let items: Vec<String> = list(&text).iter().map(|t| quoted(t)).collect();
                    out.push_str(&format!("  {} = [{}]\n", setting.key, items.join(", ")));
                }
            }
        }
        out.push_str("}\n");
    }
    out
}

/// `5m` for Go's `5m0s`.
fn short(duration: Duration) -> String {
    let text = format_duration(duration);
    match text.strip_suffix("m0s") {
        Some(minutes) => format!("{minutes}m"),
        None => text,
    }
}

fn list(text: &str) -> Vec<String> {
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
    spelled.parse().map_err(|_| format!("{text:?} is no address: write 127.0.0.1:{} or [::1]:{0}", api::DEFAULT_PORT))
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

fn not_between(least: u64, most: u64) -> String {
    format!("a whole number between {least} and {most} is wanted")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn base() -> Config {
        Config::new("/var/lib/allostat".into())
    }

    fn problem(text: &str) -> (usize, String) {
        match read_text("agent.hcl", text, &mut base()) {
            Err(ConfigError::File(Diagnostics(all))) => (all[0].line, all[0].to_string()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_table_and_the_stanzas_know_the_same_words() {
        for stanza in STANZAS {
            let words: Vec<&str> = stanza.words.iter().map(|w| w.name).collect();
            let keys: Vec<&str> = SETTINGS.iter().filter(|s| s.stanza == stanza.name).map(|s| s.key).collect();
            assert_eq!(words, keys, "{}", stanza.name);
        }
        assert!(SETTINGS.iter().all(|s| STANZAS.iter().any(|t| t.name == s.stanza)));
        for (i, s) in SETTINGS.iter().enumerate() {
            assert!(SETTINGS[i + 1..].iter().all(|t| t.env != s.env), "{}", s.env);
        }
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_place_and_the_nearest_name() {
        let (line, text) = problem("agent {\n  data_dri = \"/x\"\n}\n");
        assert_eq!(line, 2);
        assert!(text.contains("agent.hcl:2:3") && text.contains("data_dir"), "{text}");
        assert!(problem("agnet {\n}\n").1.contains("agent"));
    }

    #[test]
    fn a_value_that_cannot_be_is_refused_with_its_place() {
        for (line, text) in [
            (1, "telemetry { tick = \"1h\" }"),
            (1, "telemetry { tick = 5 }"),
            (2, "cgroup {\n parent = \"allostat\" }"),
            (1, "cgroup { parent = \"/a/../b\" }"),
            (1, "drivers { enabled = [\"docker\"] }"),
            (1, "agent { listen = \"9740\" }"),
            (1, "agent { max_connections = 0 }"),
            (1, "log { level = \"loud\" }"),
        ] {
            assert_eq!(problem(text).0, line, "{text}");
        }
    }

    #[test]
    fn flags_win_over_the_environment_and_that_over_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("agent.hcl");
        std::fs::write(&file, "telemetry {\n tick = \"2s\"\n retention = \"1m\"\n}\nlog { level = \"debug\" }\n")
            .unwrap();
        let mut sources = Sources { file: Some(file), ..Sources::default() };
        sources.flags.push(("agent.data_dir", "--data-dir", "/tmp/flag".into()));
        sources.env.push(("ALLOSTAT_TICK".into(), "3s".into()));
        sources.env.push(("ALLOSTAT_DATA_DIR".into(), "/tmp/env".into()));
        let config = sources.load().unwrap();
        assert_eq!(config.data_dir, Path::new("/tmp/flag"));
        assert_eq!(config.telemetry.tick, Duration::from_secs(3));
        assert_eq!(config.telemetry.retention.least, Duration::from_secs(60));
        assert_eq!(config.log_level, Level::Debug);
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        let with = |env: &str, value: &str| {
            let mut sources = Sources::default();
            sources.flags.push(("agent.data_dir", "--data-dir", "/tmp/x".into()));
            sources.env.push((env.into(), value.into()));
            sources.load()
        };
        assert!(matches!(with("ALLOSTAT_RETENTION", "11m"), Err(ConfigError::Together(_))));
        let long = format!("/tmp/{}", "x".repeat(110));
        assert!(matches!(with("ALLOSTAT_SOCKET", &long), Err(ConfigError::Together(_))));
    }

    #[test]
    fn json_says_the_same_as_hcl() {
        let (mut hcl, mut json) = (base(), base());
        read_text("a.hcl", "drivers {\n enabled = [\"mock\"]\n}\n", &mut hcl).unwrap();
        read_text("a.json", r#"{"drivers": {"enabled": ["mock"]}}"#, &mut json).unwrap();
        assert_eq!(hcl, json);
        assert_eq!(hcl.drivers.enabled, ["mock"]);
    }

    #[test]
    fn what_is_printed_reads_as_the_same_configuration() {
        let mut config = base();
        config.api.host_names = vec!["a.example".into(), "b.example".into()];
        config.telemetry.tick = Duration::from_millis(1500);
        config.api.listen = None;
        config.cgroup.parent = Some("/odd ${name}".into());
        let mut again = base();
        read_text("printed.hcl", &print(&config), &mut again).unwrap();
        assert_eq!(again, config);
    }

    proptest! {
        #[test]
        fn no_file_panics(text in ".*") {
            let _ = read_text("x.hcl", &text, &mut base());
            let _ = read_text("x.json", &text, &mut base());
        }
        #[test]
        fn no_value_panics(text in ".*") {
            for setting in SETTINGS {
                let _ = (setting.set)(&mut base(), &text);
            }
        }
    }
}
