//! Gathers the settings of the rooms; loads, merges and checks them. Flags over `ALLOSTAT_*` over the file over the
//! defaults, and everything is checked before anything is bound.
//!
//! [`SETTINGS`] is the one list of them.

mod artifact;
mod conflicts;
mod migrate;
mod network;
mod node;
mod observed;
mod otlp;
mod paths;
mod setting;
mod settings;
mod signals;
mod template;
mod values;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::api;
use crate::collectors;
use crate::devices;
use crate::exporters;
use crate::fingerprint;
use crate::jobspec;
use crate::jobspec::diagnostic::{Diagnostic, Diagnostics, Problems, SourceText, Span};
use crate::jobspec::fields::{Fields, Stanza, Word};
use crate::jobspec::quantity::format_duration;
use crate::jobspec::{read, tree};
use crate::model::host::NodeIdentity;
use crate::model::nearest::nearest;
use crate::observe;
use crate::runner::drivers::DriverSettings;
use crate::runner::{ArtifactConfig, GcConfig, MigrationConfig, NetworkConfig, TemplateConfig};
use crate::snapshot;
use crate::telemetry::LogLevel;
use crate::telemetry::otlp::OtlpSignal;

pub use conflicts::together;
pub use paths::{PathError, check_paths, check_push};
pub use setting::Setting;
use setting::SettingKind;
pub use settings::SETTINGS;
use values::list;

/// Everything that can be set.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// State, logs and the Unix socket live here, for one agent at a time.
    pub data_dir: PathBuf,
    pub api: api::Config,
    /// Memory that the agent keeps below, in MiB; 0: its cgroup's limit alone.
    pub memory_limit_mib: u64,
    pub telemetry: snapshot::Config,
    pub cgroup: CgroupConfig,
    pub collectors: collectors::Config,
    pub drivers: DriversConfig,
    pub fingerprint: fingerprint::Config,
    pub gc: GcConfig,
    pub network: NetworkConfig,
    pub artifact: ArtifactConfig,
    pub migrate: MigrationConfig,
    pub template: TemplateConfig,
    pub otlp: exporters::otlp::Config,
    pub history: exporters::history::Config,
    /// The last hour, in memory.
    pub recent: exporters::recent::RecentConfig,
    /// What is exposed.
    pub selection: exporters::Selection,
    pub devices: devices::Config,
    pub observe: observe::Config,
    /// What the operator calls this node; its ID is found, not set.
    pub node: NodeIdentity,
    pub log_level: LogLevel,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CgroupConfig {
    /// Below it, in every hierarchy, each task gets a cgroup: `<parent>/<alloc>/<task>`. `None`: in a scope of systemd
    /// where there is one to be had, else `/allostat`.
    pub parent: Option<String>,
    /// Resets the kernel's memory peak of cgroup v1 every 5 s: other readers of it then see no lifetime peak.
    pub peak_window_v1: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriversConfig {
    pub enabled: Vec<String>,
    /// What each has of its own.
    pub settings: DriverSettings,
}

impl Default for DriversConfig {
    fn default() -> DriversConfig {
        let enabled = ["raw_exec", "exec", "docker"].map(str::to_owned).to_vec();
        DriversConfig { enabled, settings: DriverSettings::default() }
    }
}

impl Config {
    pub fn new(data_dir: PathBuf) -> Config {
        Config {
            data_dir,
            api: api::Config::default(),
            memory_limit_mib: 1024,
            telemetry: snapshot::Config::default(),
            collectors: collectors::Config::default(),
            cgroup: CgroupConfig::default(),
            drivers: DriversConfig::default(),
            fingerprint: fingerprint::Config::default(),
            gc: GcConfig::default(),
            network: NetworkConfig::default(),
            artifact: ArtifactConfig::default(),
            migrate: MigrationConfig::default(),
            template: TemplateConfig::default(),
            otlp: exporters::otlp::Config::default(),
            history: exporters::history::Config::default(),
            recent: exporters::recent::RecentConfig::default(),
            selection: exporters::Selection::default(),
            devices: devices::Config::default(),
            observe: observe::Config::default(),
            node: NodeIdentity::default(),
            log_level: LogLevel::default(),
        }
    }
    pub fn socket(&self) -> PathBuf {
        self.api.socket.clone().unwrap_or_else(|| self.data_dir.join(api::SOCKET_NAME))
    }
}

/// Of an agent that root runs.
pub const SYSTEM_DATA_DIR: &str = "/var/lib/allostat";

/// Root: `/var/lib/allostat`; others: `$XDG_STATE_HOME/allostat`, `~/.local/state/allostat`. `None` without a home.
pub fn default_data_dir() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(SYSTEM_DATA_DIR.into());
    }
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    state.map(|dir| dir.join("allostat"))
}

/// The words of the file, as [`SETTINGS`] has them: those of the top, and of each stanza.
static WORDS: LazyLock<(Stanza, Vec<Stanza>)> = LazyLock::new(|| {
    let mut stanzas: Vec<Stanza> = Vec::new();
    for group in SETTINGS.chunk_by(|a, b| a.stanza == b.stanza) {
        let mut words: Vec<Word> = group.iter().map(|setting| Word::value(setting.key)).collect();
        if group.first().is_some_and(|setting| setting.stanza == otlp::STANZA) {
            words.push(Word::named(DESTINATION));
        }
        stanzas.extend(group.first().map(|first| Stanza { name: first.stanza, words: words.leak() }));
    }
    let top: Vec<Word> = stanzas.iter().map(|stanza| Word::stanza(stanza.name)).collect();
    (Stanza { name: "", words: top.leak() }, stanzas)
});

/// A further one of OTLP's: `destination "name" { }` in its stanza, with the same words.
const DESTINATION: &str = "destination";
static OF_DESTINATION: LazyLock<Stanza> = LazyLock::new(|| {
    let words = SETTINGS.iter().filter(|setting| setting.stanza == otlp::STANZA);
    Stanza { name: DESTINATION, words: words.map(|setting| Word::value(setting.key)).collect::<Vec<_>>().leak() }
});

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: std::io::Error },
    /// Of a file, and what clashes: with its place; and what clashes without one, since it stands in no file.
    #[error("{}", listed(.0, .1))]
    Refused(Diagnostics, Vec<String>),
    /// Of an environment variable or a flag: its name and what is wrong.
    #[error("{name}: {message}")]
    Value { name: String, message: String },
    #[error("there is no home directory to keep the state in: give --data-dir, or set HOME or XDG_STATE_HOME")]
    NoHome,
}

fn listed(problems: &Diagnostics, rest: &[String]) -> String {
    let placed = problems.0.iter().map(ToString::to_string);
    let all: Vec<String> = placed.chain(rest.iter().cloned()).collect();
    all.join("\n\n")
}

/// Where settings come from, weakest first.
#[derive(Debug, Clone, Default)]
pub struct ConfigSources {
    pub file: Option<PathBuf>,
    /// `ALLOSTAT_*`, by name.
    pub env: Vec<(String, String)>,
    /// By `stanza.key`, with the flag's name for the error.
    pub flags: Vec<(&'static str, &'static str, String)>,
}

impl ConfigSources {
    /// The variables of this process; those that mean nothing here are left alone (`ALLOSTAT_ADDR` is the commands').
    #[must_use]
    pub fn with_environment(mut self) -> ConfigSources {
        self.env = SETTINGS
            .iter()
            .filter_map(|setting| Some((setting.env.to_owned(), std::env::var(setting.env).ok()?)))
            .filter(|(_, value)| !value.is_empty())
            .collect();
        self
    }

    /// Merges and checks. Touches nothing but the file.
    pub fn load(&self) -> Result<Config, ConfigError> {
        // A data directory from a source replaces this; without a home it must.
        let default_dir = default_data_dir();
        let mut config = Config::new(default_dir.clone().unwrap_or_default());
        let mut file = self.file.as_deref().map(|path| read_file(path, &mut config)).transpose()?;
        match self.set_over(&mut config, file.as_mut()) {
            // The file's come first, and all at once.
            Err(error) if file.as_ref().is_none_or(|file| file.problems.0.is_empty()) => return Err(error),
            Ok(()) | Err(_) => together(&config, file)?,
        };
        if config.data_dir.as_os_str().is_empty() {
            return Err(ConfigError::NoHome);
        }
        Ok(config)
    }

    /// What wins over the file: of that it has no place any more.
    fn set_over(&self, config: &mut Config, mut file: Option<&mut ReadFile>) -> Result<(), ConfigError> {
        for (name, value) in &self.env {
            if let Some(setting) = SETTINGS.iter().find(|s| s.env == *name) {
                setting.set(config, value).map_err(|message| ConfigError::Value { name: name.clone(), message })?;
                file.as_mut().map(|file| file.places.remove(&format!("{}.{}", setting.stanza, setting.key)));
            }
        }
        for (path, flag, value) in &self.flags {
            let setting = SETTINGS.iter().find(|s| format!("{}.{}", s.stanza, s.key) == *path);
            let setting = setting.expect("a flag must name a setting");
            setting.set(config, value).map_err(|message| ConfigError::Value { name: (*flag).to_owned(), message })?;
            file.as_mut().map(|file| file.places.remove(*path));
        }
        Ok(())
    }
}

/// Of tests, benchmarks and what packages them: what begins so is theirs.
const OF_TESTS: &[&str] = &[
    "BENCH",
    "BIN",
    "BLESS",
    "CHAOS_",
    "FUZZ_",
    "OLD_BINARY",
    "PARTS",
    "PATIENCE",
    "PICTURES",
    "PLACE",
    "SEED",
    "SIZE",
    "SKIPS",
    "TEST",
    "WORKLOAD",
];

/// Of these names of variables those that begin as ours do and set nothing, each with the nearest that does.
/// `remaining`: such as are no settings, of the commands.
pub fn unknown_variables(set: impl Iterator<Item = String>, remaining: &[String]) -> Vec<(String, Option<String>)> {
    let settings = SETTINGS.iter().map(|setting| setting.env).filter(|name| name.starts_with(ENV_PREFIX));
    let known: Vec<&str> = settings.chain(remaining.iter().map(String::as_str)).collect();
    let is_unknown = |name: &String| {
        let Some(rest) = name.strip_prefix(ENV_PREFIX) else { return false };
        !known.contains(&name.as_str()) && !OF_TESTS.iter().any(|test| rest.starts_with(test))
    };
    // All begin alike: only what comes behind that can be near or far.
    let near = |name: &str| nearest(&name[ENV_PREFIX.len()..], known.iter().map(|known| &known[ENV_PREFIX.len()..]));
    set.filter(is_unknown)
        .map(|name| {
            let suggestion = near(&name).map(|near| format!("{ENV_PREFIX}{near}"));
            (name, suggestion)
        })
        .collect()
}

const ENV_PREFIX: &str = "ALLOSTAT_";

fn read_file(path: &Path, config: &mut Config) -> Result<ReadFile, ConfigError> {
    let bytes = File::open(path).and_then(jobspec::bytes_of);
    let bytes = bytes.map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    let name = path.display().to_string();
    let text = jobspec::text_of(&name, bytes).map_err(|errors| ConfigError::Refused(errors, Vec::new()))?;
    Ok(read_text(&name, &text, config))
}

/// A configuration file that was read, with what is wrong in it.
#[derive(Debug, Clone)]
pub struct ReadFile {
    source: SourceText,
    /// Of what stands in the file alone.
    pub problems: Diagnostics,
    /// What of it does less than one could think.
    pub warnings: Vec<Diagnostic>,
    /// Of each setting that it has, its place: `otlp.destination.second.endpoint`.
    places: BTreeMap<String, Span>,
}

/// Reads HCL or JSON into `config`: every problem of the file, each with its place.
pub fn read_text(name: &str, text: &str, config: &mut Config) -> ReadFile {
    let source = SourceText::new(name, text);
    let problems = Problems::new(&source);
    let body = read::read_into(&problems, None);
    let (top, stanzas) = &*WORDS;
    let family: Vec<&'static Stanza> = stanzas.iter().collect();
    let file = Fields::open(&body, top, &family, "", &problems);
    let mut places = BTreeMap::new();
    for stanza in stanzas {
        let Some(body) = file.stanza(stanza.name) else { continue };
        let fields = Fields::open(body, stanza, &family, stanza.name, &problems);
        set_all(&fields, stanza.name, config, &mut places);
        if stanza.name == otlp::STANZA {
            config.otlp.destinations = destinations(&fields, &family, config, &mut places);
            let goes_anywhere = config.otlp.disabled
                || config.otlp.endpoint.is_some()
                || !config.otlp.destinations.is_empty()
                || OtlpSignal::ALL.iter().any(|signal| config.otlp.target(*signal).is_some());
            let is_tried = body.entries.iter().any(|e| e.key.ends_with("endpoint") || e.key == DESTINATION);
            if let (false, false, Some(entry)) = (goes_anywhere, is_tried, file.entry(otlp::STANZA)) {
                let message = "nothing is pushed: there is no `endpoint`, and nothing in its place";
                let advice = "add endpoint = \"http://host:4318\", or set OTEL_EXPORTER_OTLP_ENDPOINT".to_owned();
                problems.warn(&entry.key_span, otlp::STANZA, message, Some(advice));
            }
        }
    }
    drop(file);
    let (errors, warnings) = problems.into_parts();
    ReadFile { source, problems: errors, warnings, places }
}

/// What stands in a stanza; what is wrong is recorded.
fn set_all(fields: &Fields<'_>, stanza: &str, config: &mut Config, places: &mut BTreeMap<String, Span>) {
    for setting in SETTINGS.iter().filter(|s| s.stanza == stanza) {
        let Some((value, span)) = value_of(fields, setting) else { continue };
        places.insert(fields.path_of(setting.key), span.clone());
        // Of a list, each element that is wrong: alone it is refused too.
        let elements = if let SettingKind::Texts(_) = setting.kind { fields.texts(setting.key) } else { None };
        let mut is_reported = false;
        for (i, element) in elements.iter().flat_map(|list| &list.value).enumerate() {
            if let Err(message) = setting.set(&mut config.clone(), &element.value) {
                fields.error(&element.span, &format!("{}[{i}]", setting.key), message, None);
                is_reported = true;
            }
        }
        if !is_reported && let Err(message) = setting.set(config, &value) {
            fields.error(&span, setting.key, message, None);
        }
    }
}

/// Each by itself, from the defaults on: no header and no key of one goes to another.
fn destinations(
    fields: &Fields<'_>,
    family: &[&'static Stanza],
    config: &Config,
    places: &mut BTreeMap<String, Span>,
) -> Vec<(String, exporters::otlp::Config)> {
    let mut all: Vec<(String, exporters::otlp::Config)> = Vec::new();
    for named in fields.named(DESTINATION) {
        let refused = |message| fields.error(named.name_span, DESTINATION, message, None);
        if let Err(message) = exporters::otlp::destination_name(named.name) {
            refused(message);
        } else if all.iter().any(|(name, _)| name == named.name) {
            refused(format!("there are two destinations {:?}", named.name));
        }
        let path = fields.path_of(&format!("{DESTINATION}.{}", named.name));
        let inner = Fields::open(named.body, &OF_DESTINATION, family, path, fields.problems());
        let mut own = Config::new(config.data_dir.clone());
        set_all(&inner, otlp::STANZA, &mut own, places);
        if OtlpSignal::ALL.iter().all(|signal| own.otlp.target(*signal).is_none())
            && named.body.entries.iter().all(|entry| !entry.key.ends_with("endpoint"))
        {
            refused(format!("the destination {:?} has no endpoint", named.name));
        }
        all.push((named.name.to_owned(), own.otlp));
    }
    all
}

/// The value as the text that `set` reads; a wrong type is recorded and yields nothing.
fn value_of(fields: &Fields<'_>, setting: &Setting) -> Option<(String, Span)> {
    match setting.kind {
        SettingKind::Text(_) | SettingKind::OfDriver(_) => fields.text(setting.key).map(|at| (at.value, at.span)),
        SettingKind::Duration(..) => fields.days(setting.key).map(|at| (format_duration(at.value), at.span)),
        SettingKind::Whole(least, most, _) => {
            fields.integer(setting.key, least..=most).map(|at| (at.value.to_string(), at.span))
        }
        SettingKind::Bool(_) => fields.bool(setting.key).map(|at| (at.value.to_string(), at.span)),
        SettingKind::Texts(_) => fields.texts(setting.key).map(|at| {
            let texts: Vec<String> = at.value.into_iter().map(|t| t.value).collect();
            (texts.join(","), at.span)
        }),
    }
}

/// As it stands in a file; `None`: not set.
fn printed(setting: &Setting, config: &Config) -> Option<String> {
    let quoted = |text: &str| format!("{:?}", tree::escape(text));
    let text = setting.get(config)?;
    Some(match setting.kind {
        SettingKind::Whole(..) | SettingKind::Bool(_) => text,
        SettingKind::Text(_) | SettingKind::OfDriver(_) | SettingKind::Duration(..) => quoted(&text),
        SettingKind::Texts(_) => {
            let items: Vec<String> = list(&text).iter().map(|t| quoted(t)).collect();
            format!("[{}]", items.join(", "))
        }
    })
}

/// The configuration as a file that says the same.
pub fn print(config: &Config) -> String {
    let mut out = String::new();
    for stanza in &WORDS.1 {
        out.push_str(&format!("{}{} {{\n", if out.is_empty() { "" } else { "\n" }, stanza.name));
        for setting in SETTINGS.iter().filter(|s| s.stanza == stanza.name) {
            out.push_str(&format!("  # {} ({})\n", setting.about, setting.env));
            match printed(setting, config) {
                None => out.push_str(&format!("  # {} =\n", setting.key)),
                Some(value) => out.push_str(&format!("  {} = {value}\n", setting.key)),
            }
        }
        let further = if stanza.name == otlp::STANZA { config.otlp.destinations.as_slice() } else { &[] };
        for (name, destination) in further {
            let own = Config { otlp: destination.clone(), ..config.clone() };
            let settings = SETTINGS.iter().filter(|setting| setting.stanza == otlp::STANZA);
            let lines = settings.filter_map(|s| Some(format!("    {} = {}\n", s.key, printed(s, &own)?)));
            out.push_str(&format!("  {DESTINATION} {name:?} {{\n{}  }}\n", lines.collect::<String>()));
        }
        out.push_str("}\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use proptest::prelude::*;

    fn base() -> Config {
        Config::new("/var/lib/allostat".into())
    }

    fn problem(text: &str) -> (usize, String) {
        let Diagnostics(all) = read_text("agent.hcl", text, &mut base()).problems;
        (all[0].line, all[0].to_string())
    }

    #[test]
    fn no_two_settings_share_a_variable_or_a_name_and_those_of_a_stanza_stand_together() {
        for (i, s) in SETTINGS.iter().enumerate() {
            assert!(SETTINGS[i + 1..].iter().all(|t| t.env != s.env), "{}", s.env);
            assert!(SETTINGS[i + 1..].iter().all(|t| (t.stanza, t.key) != (s.stanza, s.key)), "{}", s.key);
        }
        for (i, stanza) in WORDS.1.iter().enumerate() {
            assert!(WORDS.1[i + 1..].iter().all(|other| other.name != stanza.name), "{}", stanza.name);
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
            (1, "drivers { enabled = [\"podman\"] }"),
            (1, "fingerprint { allowlist = [\"cpu\", \"gpus\"] }"),
            (2, "mock {\n fingerprint = \"helthy\" }"),
            (1, "agent { listen = \"9740\" }"),
            (1, "agent { max_connections = 0 }"),
            (1, "log { level = \"loud\" }"),
        ] {
            assert_eq!(problem(text).0, line, "{text}");
        }
    }

    #[test]
    fn invalid_list_element_is_reported_with_its_place() {
        let text = "observe {\n  exclude = [\"docker:ci-*\", \"label:team\"]\n  workloads = [\"cgroup:/ci/* -> ci\",\n    \"image: -> a\"]\n}\n";
        let Diagnostics(all) = read_text("agent.hcl", text, &mut base()).problems;
        let found: Vec<_> = all.iter().map(|p| (p.line, p.column, p.field.as_str())).collect();
        assert_eq!(found, [(2, 29, "observe.exclude[1]"), (4, 5, "observe.workloads[1]")], "{all:?}");
        assert!(all[0].message.contains("has no value") && all[1].message.contains("names no image"), "{all:?}");
    }

    #[test]
    fn flags_win_over_the_environment_and_that_over_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("agent.hcl");
        std::fs::write(&file, "telemetry {\n tick = \"2s\"\n retention = \"1m\"\n}\nlog { level = \"debug\" }\n")
            .unwrap();
        let mut sources = ConfigSources { file: Some(file), ..ConfigSources::default() };
        sources.flags.push(("agent.data_dir", "--data-dir", "/tmp/flag".into()));
        sources.env.push(("ALLOSTAT_TICK".into(), "3s".into()));
        sources.env.push(("ALLOSTAT_DATA_DIR".into(), "/tmp/env".into()));
        let config = sources.load().unwrap();
        assert_eq!(config.data_dir, Path::new("/tmp/flag"));
        assert_eq!(config.telemetry.tick, Duration::from_secs(3));
        assert_eq!(config.telemetry.retention.least, Duration::from_secs(60));
        assert_eq!(config.log_level, LogLevel::Debug);
    }

    /// Promise (Input validation): `host_names` may have all names below a domain, and never all names
    #[test]
    fn a_name_of_the_host_may_be_all_below_a_domain_and_not_all_there_is() {
        let with = |names: &str| {
            let text = format!("agent {{\n host_names = [{names}]\n}}\n");
            read_text("a.hcl", &text, &mut base()).problems.0.is_empty()
        };
        assert!(with("\"vm.cluster\", \"*.cluster\", \"*.prod.example\""));
        for name in
            ["*", "*.", "*..", "*..example", "*.*", "*.*.example", "a*.example", "a.*.example", "*example", "*.a:80"]
        {
            assert!(!with(&format!("{name:?}")), "{name}");
        }
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        let with = |env: &str, value: &str| {
            let mut sources = ConfigSources::default();
            sources.flags.push(("agent.data_dir", "--data-dir", "/tmp/x".into()));
            sources.env.push((env.into(), value.into()));
            sources.load()
        };
        let unplaced = |refused| matches!(refused, Err(ConfigError::Refused(Diagnostics(all), _)) if all.is_empty());
        assert!(unplaced(with("ALLOSTAT_RETENTION", "11m")));
        let long = format!("/tmp/{}", "x".repeat(110));
        assert!(unplaced(with("ALLOSTAT_SOCKET", &long)));
    }

    #[test]
    fn json_config_equals_hcl_config() {
        let (mut hcl, mut json) = (base(), base());
        let (none, text) = (Diagnostics::default(), "drivers {\n enabled = [\"mock\"]\n}\n");
        assert_eq!(read_text("a.hcl", text, &mut hcl).problems, none);
        assert_eq!(read_text("a.json", r#"{"drivers": {"enabled": ["mock"]}}"#, &mut json).problems, none);
        assert_eq!(hcl, json);
        assert_eq!(hcl.drivers.enabled, ["mock"]);
    }

    #[test]
    fn printed_config_parses_to_equal_config() {
        let mut config = base();
        config.api.host_names = vec!["a.example".into(), "b.example".into()];
        config.telemetry.tick = Duration::from_millis(1500);
        config.fingerprint.denylist = vec!["cpu".into(), "network".into()];
        config.api.listen = None;
        config.cgroup.parent = Some("/odd ${name}".into());
        let rule = "label:com.example/\"job\"=* -> label:com.example/project";
        config.observe.workloads = vec![observe::WorkloadRule::parse(rule).unwrap()];
        config.observe.exclude = vec![observe::ObservedPattern::parse("image:registry.example/ci-*").unwrap()];
        let mut again = base();
        assert_eq!(read_text("printed.hcl", &print(&config), &mut again).problems, Diagnostics::default());
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
            for setting in SETTINGS.iter() {
                let _ = setting.set(&mut base(), &text);
            }
        }
    }
}
