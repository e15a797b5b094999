//! The `config` of a task, with the names of Nomad's `docker` driver.

use std::time::Duration;

use crate::model::job::Task;
use crate::runner::drivers::DriverError;

use super::forms::{self, ConfigForm};
use super::settings::cap;

/// Nomad's default.
const PULL_TIMEOUT: Duration = Duration::from_secs(300);
const CFS_PERIOD_US: u64 = 100_000;
/// Limits of the kernel for a period. Source: Documentation/scheduler/sched-bwc.rst.
const CFS_PERIODS_US: std::ops::RangeInclusive<u64> = 1_000..=1_000_000;
/// Resource limits that an engine supports.
const ULIMITS: [&str; 15] = [
    "core",
    "cpu",
    "data",
    "fsize",
    "locks",
    "memlock",
    "msgqueue",
    "nice",
    "nofile",
    "nproc",
    "rss",
    "rtprio",
    "rttime",
    "sigpending",
    "stack",
];

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Config {
    pub image: String,
    pub pull_timeout: Duration,
    pub force_pull: bool,
    pub auth: Option<Auth>,
    pub auth_soft_fail: bool,
    /// An archive of images, below the task's `local`.
    pub load: Option<String>,
    pub command: Option<String>,
    pub args: Vec<String>,
    pub entrypoint: Option<Vec<String>>,
    pub work_dir: Option<String>,
    pub labels: Vec<(String, String)>,
    pub volumes: Vec<Volume>,
    pub volume_driver: Option<String>,
    pub mounts: Vec<ContainerMount>,
    pub devices: Vec<HostDevice>,
    pub ulimits: Vec<Ulimit>,
    pub caps: Caps,
    pub privileged: bool,
    pub readonly_rootfs: bool,
    pub security_opt: Vec<String>,
    pub network: ContainerNetwork,
    pub shm_size: Option<u64>,
    pub init: bool,
    pub modes: NamespaceModes,
    pub sysctl: Vec<(String, String)>,
    pub storage_opt: Vec<(String, String)>,
    pub tty: bool,
    pub interactive: bool,
    pub group_add: Vec<String>,
    pub oom_score_adj: Option<i64>,
    pub pids_limit: Option<u64>,
    pub cpu_hard_limit: bool,
    pub cpu_cfs_period: u64,
    pub cpuset_cpus: Option<String>,
    pub memory_hard_limit_bytes: Option<u64>,
    pub logging: Option<Logging>,
    pub runtime: Option<String>,
    pub no_healthcheck: bool,
}

#[derive(Clone, Default, PartialEq)]
pub struct Auth {
    pub username: String,
    pub password: String,
    pub email: String,
    pub server_address: String,
}

/// A password is never shown.
impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Auth").field("username", &self.username).field("server_address", &self.server_address).finish()
    }
}

/// `source:target[:mode]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Volume {
    pub source: String,
    pub target: String,
    pub mode: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ContainerMount {
    pub target: String,
    pub readonly: bool,
    pub kind: MountKind,
}

#[derive(Debug, Clone, PartialEq)]
pub enum MountKind {
    Bind {
        source: String,
        propagation: Option<String>,
    },
    Volume {
        source: String,
        no_copy: bool,
        labels: Vec<(String, String)>,
        driver: Option<String>,
        options: Vec<(String, String)>,
    },
    Tmpfs {
        size_bytes: Option<u64>,
        mode: Option<u64>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct HostDevice {
    pub host_path: String,
    pub container_path: String,
    pub permissions: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Ulimit {
    pub name: String,
    pub soft: i64,
    pub hard: i64,
}

/// In lower case, without `cap_`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Caps {
    pub add: Vec<String>,
    pub drop: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct ContainerNetwork {
    pub mode: Option<String>,
    pub aliases: Vec<String>,
    /// Labels of ports of the group.
    pub ports: Vec<String>,
    /// Deprecated: the container's port of each label.
    pub port_map: Vec<(String, u16)>,
    pub extra_hosts: Vec<String>,
    pub dns_servers: Vec<String>,
    pub dns_search: Vec<String>,
    pub dns_options: Vec<String>,
    pub hostname: Option<String>,
    pub mac_address: Option<String>,
    pub ipv4_address: Option<String>,
    pub ipv6_address: Option<String>,
    pub advertise_ipv6: bool,
    /// The network namespace of its group: the engine's other networks do not apply.
    pub joined: bool,
}

impl ContainerNetwork {
    /// Joins the network of a pause container of this agent.
    pub fn join(&mut self, pause: &str) {
        self.mode = Some(format!("container:{pause}"));
        self.joined = true;
    }
}

/// The owner of its namespaces.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NamespaceModes {
    pub pid: Option<String>,
    pub ipc: Option<String>,
    pub uts: Option<String>,
    pub userns: Option<String>,
    pub cgroupns: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Logging {
    pub driver: Option<String>,
    pub options: Vec<(String, String)>,
}

impl Config {
    /// Errors: everything invalid in it, at least one error.
    pub fn of(task: &Task) -> Result<Config, DriverError> {
        let mut form = ConfigForm::new(&task.config);
        let config = Config::read(&mut form);
        let problems = form.done();
        if problems.is_empty() { Ok(config) } else { Err(DriverError::Config(problems)) }
    }

    fn read(form: &mut ConfigForm<'_>) -> Config {
        windows(form);
        // Handled by the engine: the number of retries for a name in use.
        let _ = form.whole("container_exists_attempts");
        let mut mounts = form.stanzas("mount", mount);
        mounts.extend(form.stanzas("mounts", mount));
        Config {
            image: image(form),
            pull_timeout: form.duration("image_pull_timeout").unwrap_or(PULL_TIMEOUT),
            force_pull: form.flag("force_pull").unwrap_or(false),
            auth: form.stanza("auth", auth),
            auth_soft_fail: form.flag("auth_soft_fail").unwrap_or(false),
            load: form.text("load"),
            command: command(form),
            args: form.texts("args").unwrap_or_default(),
            entrypoint: form.texts("entrypoint"),
            work_dir: form.text("work_dir"),
            labels: form.texts_by_name("labels"),
            volumes: volumes(form),
            volume_driver: form.text("volume_driver"),
            mounts: mounts.into_iter().flatten().collect(),
            devices: form.stanzas("devices", device).into_iter().flatten().collect(),
            ulimits: ulimits(form),
            caps: Caps { add: caps(form, "cap_add"), drop: caps(form, "cap_drop") },
            privileged: form.flag("privileged").unwrap_or(false),
            readonly_rootfs: form.flag("readonly_rootfs").unwrap_or(false),
            security_opt: form.texts("security_opt").unwrap_or_default(),
            network: network(form),
            shm_size: form.count("shm_size").filter(|size| *size > 0),
            init: form.flag("init").unwrap_or(false),
            modes: NamespaceModes {
                pid: form.text("pid_mode"),
                ipc: form.text("ipc_mode"),
                uts: form.text("uts_mode"),
                userns: form.text("userns_mode"),
                cgroupns: form.text("cgroupns"),
            },
            sysctl: form.texts_by_name("sysctl"),
            storage_opt: form.texts_by_name("storage_opt"),
            tty: form.flag("tty").unwrap_or(false),
            interactive: form.flag("interactive").unwrap_or(false),
            group_add: form.texts("group_add").unwrap_or_default(),
            oom_score_adj: form.whole("oom_score_adj"),
            pids_limit: form.count("pids_limit").filter(|limit| *limit > 0),
            cpu_hard_limit: form.flag("cpu_hard_limit").unwrap_or(false),
            cpu_cfs_period: cfs_period(form),
            cpuset_cpus: form.text("cpuset_cpus"),
            memory_hard_limit_bytes: form
                .count("memory_hard_limit")
                .filter(|mib| *mib > 0)
                .map(|mib| mib.saturating_mul(1 << 20)),
            logging: form.stanza("logging", logging),
            runtime: form.text("runtime"),
            no_healthcheck: form.stanza("healthchecks", |form| form.flag("disable")).flatten().unwrap_or(false),
        }
    }
}

/// Fields for containers of Windows.
fn windows(form: &mut ConfigForm<'_>) {
    for name in ["isolation", "windows_allow_insecure_container_admin"] {
        if form.text(name).is_some_and(|value| value != "false") {
            form.refuse(name, "is for containers of Windows", Some("leave it out"));
        }
    }
}

/// Nomad accepts an `https://` prefix, which no engine does.
fn image(form: &mut ConfigForm<'_>) -> String {
    let image = form.text("image");
    if image.is_none() {
        form.refuse("image", "is needed", Some("add image = \"redis:7\""));
    }
    let image = image.unwrap_or_default();
    image.strip_prefix("https://").map_or(image.clone(), str::to_owned)
}

fn command(form: &mut ConfigForm<'_>) -> Option<String> {
    let command = form.text("command")?;
    if command.trim().len() != command.len() {
        form.refuse("command", format!("has white space around it: {command:?}"), Some("put arguments into `args`"));
    }
    Some(command)
}

fn auth(form: &mut ConfigForm<'_>) -> Auth {
    let mut text = |name| form.text(name).unwrap_or_default();
    Auth {
        username: text("username"),
        password: text("password"),
        email: text("email"),
        server_address: text("server_address"),
    }
}

fn volumes(form: &mut ConfigForm<'_>) -> Vec<Volume> {
    let all = form.texts("volumes").unwrap_or_default();
    let one = |(at, text): (usize, &String)| {
        if text.contains("${") {
            return None;
        }
        let parts: Vec<&str> = text.split(':').collect();
        let volume = match parts.as_slice() {
            [source, target] => Some((source, target, None)),
            [source, target, mode] => Some((source, target, Some((*mode).to_owned()))),
            _ => None,
        };
        let volume = volume.filter(|(source, target, _)| !source.is_empty() && target.starts_with('/'));
        if volume.is_none() {
            let message =
                format!("must be \"source:/path/in/container\" or \"source:/path/in/container:ro\", not {text:?}");
            form.refuse(&format!("volumes[{at}]"), message, None);
        }
        volume.map(|(source, target, mode)| Volume { source: (*source).to_owned(), target: (*target).to_owned(), mode })
    };
    all.iter().enumerate().filter_map(one).collect()
}

/// `None`: it is refused, or unknown before the start.
fn mount(form: &mut ConfigForm<'_>) -> Option<ContainerMount> {
    let kind = form.text("type").unwrap_or_else(|| "volume".to_owned());
    let (target, source) = (form.text("target"), form.text("source"));
    let readonly = form.flag("readonly").unwrap_or(false);
    let propagation = form.stanza("bind_options", |form| form.text("propagation")).flatten();
    let tmpfs = form.stanza("tmpfs_options", |form| (form.count("size"), form.count("mode")));
    let volume = form.stanza("volume_options", |form| {
        let (no_copy, labels) = (form.flag("no_copy").unwrap_or(false), form.texts_by_name("labels"));
        let driver = form.stanza("driver_config", |form| (form.text("name"), form.texts_by_name("options")));
        let (driver, options) = driver.unwrap_or_default();
        (no_copy, labels, driver, options)
    });
    if target.is_none() {
        form.refuse("target", "is needed", Some("add target = \"/path/in/container\""));
    }
    let kind = match kind.as_str() {
        "bind" => {
            if source.is_none() {
                form.refuse("source", "is needed for a bind mount", Some("add source = \"local/file\""));
            }
            MountKind::Bind { source: source?, propagation }
        }
        "volume" => {
            let (no_copy, labels, driver, options) = volume.unwrap_or_default();
            MountKind::Volume { source: source.unwrap_or_default(), no_copy, labels, driver, options }
        }
        "tmpfs" => {
            if source.is_some() {
                form.refuse("source", "a tmpfs has none", Some("leave it out"));
            }
            let (size, mode) = tmpfs.unwrap_or_default();
            MountKind::Tmpfs { size_bytes: size.filter(|n| *n > 0), mode: mode.filter(|n| *n > 0) }
        }
        template if template.contains("${") => return None,
        other => {
            form.refuse("type", format!("must be \"bind\", \"volume\" or \"tmpfs\", not {other:?}"), None);
            return None;
        }
    };
    Some(ContainerMount { target: target?, readonly, kind })
}

fn device(form: &mut ConfigForm<'_>) -> Option<HostDevice> {
    let (host, inside) = (form.text("host_path"), form.text("container_path"));
    let permissions = form.text("cgroup_permissions").unwrap_or_else(|| "rwm".to_owned());
    if host.is_none() {
        form.refuse("host_path", "is needed", Some("add host_path = \"/dev/...\""));
    }
    if !permissions.contains("${") && !permissions.chars().all(|c| "rwm".contains(c)) {
        form.refuse("cgroup_permissions", format!("must be of the letters r, w and m, not {permissions:?}"), None);
    }
    let host_path = host?;
    Some(HostDevice { container_path: inside.unwrap_or_else(|| host_path.clone()), host_path, permissions })
}

fn ulimits(form: &mut ConfigForm<'_>) -> Vec<Ulimit> {
    let parse = |value: &serde_json::Value| {
        let text = forms::text(value)?;
        let number = |text: &str| text.trim().parse::<i64>().ok().filter(|n| *n >= -1);
        let (soft, hard) = match text.split_once(':') {
            Some((soft, hard)) => (number(soft)?, number(hard)?),
            None => (number(&text)?, number(&text)?),
        };
        // -1 is no limit, and so the highest value.
        let height = |limit: i64| if limit == -1 { i64::MAX } else { limit };
        (height(soft) <= height(hard)).then_some((soft, hard))
    };
    let what = "\"SOFT:HARD\" or one number for both, the soft limit not above the hard one";
    let all = form.pairs("ulimit", what, parse).unwrap_or_default();
    let mut limits = Vec::new();
    for (name, (soft, hard)) in all {
        if !ULIMITS.contains(&name.as_str()) {
            form.refuse(
                &format!("ulimit.{name}"),
                format!("is no limit of a process; there are {}", ULIMITS.join(", ")),
                None,
            );
        }
        limits.push(Ulimit { name, soft, hard });
    }
    limits
}

fn caps(form: &mut ConfigForm<'_>, name: &'static str) -> Vec<String> {
    form.texts(name).unwrap_or_default().iter().map(|name| cap(name)).collect()
}

fn network(form: &mut ConfigForm<'_>) -> ContainerNetwork {
    let port = |value: &serde_json::Value| {
        forms::whole(value).and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0)
    };
    ContainerNetwork {
        mode: form.text("network_mode"),
        aliases: form.texts("network_aliases").unwrap_or_default(),
        ports: form.texts("ports").unwrap_or_default(),
        port_map: form.pairs("port_map", "a port from 1 to 65535", port).unwrap_or_default(),
        extra_hosts: extra_hosts(form),
        // As in Nomad: invalid addresses are left out.
        dns_servers: form
            .texts("dns_servers")
            .unwrap_or_default()
            .into_iter()
            .filter(|server| server.parse::<std::net::IpAddr>().is_ok())
            .collect(),
        dns_search: form.texts("dns_search_domains").unwrap_or_default(),
        dns_options: form.texts("dns_options").unwrap_or_default(),
        hostname: form.text("hostname"),
        mac_address: form.text("mac_address"),
        ipv4_address: form.text("ipv4_address"),
        ipv6_address: form.text("ipv6_address"),
        advertise_ipv6: form.flag("advertise_ipv6_address").unwrap_or(false),
        joined: false,
    }
}

fn extra_hosts(form: &mut ConfigForm<'_>) -> Vec<String> {
    let all = form.texts("extra_hosts").unwrap_or_default();
    for (at, host) in all.iter().enumerate() {
        if !host.contains(':') && !host.contains("${") {
            form.refuse(&format!("extra_hosts[{at}]"), format!("must be \"name:address\", not {host:?}"), None);
        }
    }
    all
}

fn cfs_period(form: &mut ConfigForm<'_>) -> u64 {
    match form.count("cpu_cfs_period") {
        None | Some(0) => CFS_PERIOD_US,
        Some(period) if CFS_PERIODS_US.contains(&period) => period,
        Some(period) => {
            form.refuse("cpu_cfs_period", format!("must be 1000 to 1000000 microseconds, not {period}"), None);
            CFS_PERIOD_US
        }
    }
}

fn logging(form: &mut ConfigForm<'_>) -> Logging {
    let (kind, driver) = (form.text("type"), form.text("driver"));
    Logging { driver: kind.or(driver), options: form.texts_by_name("config") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::job::JobKind;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn read(config: Value) -> Result<Config, String> {
        let Value::Object(config) = config else { panic!("an object") };
        Config::of(&Task::new("t", "docker", config, JobKind::Batch)).map_err(|e| e.to_string())
    }

    #[test]
    fn an_image_is_all_that_is_needed() {
        let config = read(json!({"image": "https://registry.example/redis:7"})).unwrap();
        let expected = Config {
            image: "registry.example/redis:7".to_owned(),
            pull_timeout: PULL_TIMEOUT,
            cpu_cfs_period: CFS_PERIOD_US,
            ..Config::default()
        };
        assert_eq!(config, expected);
        assert_eq!(read(json!({})).unwrap_err(), "image: is needed; add image = \"redis:7\"");
    }

    #[test]
    fn each_wrong_value_is_named_with_what_would_be_right() {
        let text = |more: Value| {
            let mut config = json!({"image": "x"});
            config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            read(config).unwrap_err()
        };
        for (config, expected) in [
            (json!({"imagge": "y"}), "imagge: is no field of `config` here; did you mean `image`?"),
            (json!({"volumes": ["a"]}), "volumes[0]: must be \"source:/path/in/container\""),
            (json!({"volumes": ["a:b"]}), "volumes[0]: must be"),
            (json!({"volumes": "a:/b"}), "volumes: must be a list of strings, not \"a:/b\""),
            (
                json!({"mount": {"type": "nfs", "target": "/x"}}),
                "mount.type: must be \"bind\", \"volume\" or \"tmpfs\", not \"nfs\"",
            ),
            (json!({"mount": {"type": "tmpfs", "target": "/x", "source": "y"}}), "mount.source: a tmpfs has none"),
            (json!({"mounts": [{"type": "bind", "target": "/x"}]}), "mounts[0].source: is needed for a bind mount"),
            (json!({"devices": [{"container_path": "/dev/x"}]}), "devices[0].host_path: is needed"),
            (
                json!({"devices": {"host_path": "/dev/x", "cgroup_permissions": "rx"}}),
                "devices.cgroup_permissions: must be",
            ),
            (json!({"ulimit": {"nofile": "10:5"}}), "ulimit.nofile: must be \"SOFT:HARD\""),
            (json!({"ulimit": {"nofiles": "5"}}), "ulimit.nofiles: is no limit of a process"),
            (json!({"port_map": {"http": 70000}}), "port_map.http: must be a port from 1 to 65535, not 70000"),
            (json!({"extra_hosts": ["db"]}), "extra_hosts[0]: must be \"name:address\", not \"db\""),
            (json!({"isolation": "hyperv"}), "isolation: is for containers of Windows; leave it out"),
            (json!({"cpu_cfs_period": 5}), "cpu_cfs_period: must be 1000 to 1000000 microseconds, not 5"),
            (json!({"command": " sh"}), "command: has white space around it"),
            (
                json!({"image_pull_timeout": "soon"}),
                "image_pull_timeout: must be a duration such as \"5m\", not \"soon\"",
            ),
            (json!({"privileged": "perhaps"}), "privileged: must be true or false"),
        ] {
            let found = text(config.clone());
            assert!(found.contains(expected), "{config}: {found}");
        }
    }

    #[test]
    fn a_field_that_is_a_template_waits_for_the_start() {
        let config = json!({"image": "redis:${NOMAD_META_tag}", "port_map": {"http": "${NOMAD_PORT_http}"}, "volumes": ["${NOMAD_META_v}"],
            "shm_size": "${NOMAD_META_shm}", "mount": {"type": "${NOMAD_META_kind}", "target": "/x"}});
        let config = read(config).unwrap();
        assert_eq!((config.image.as_str(), config.network.port_map.len()), ("redis:${NOMAD_META_tag}", 0));
    }

    #[test]
    fn a_password_is_not_shown() {
        let config = read(json!({"image": "x", "auth": {"username": "u", "password": "sesame"}})).unwrap();
        assert!(!format!("{config:?}").contains("sesame") && config.auth.unwrap().password == "sesame");
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map("[a-z_:]{1,8}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_config_panics(values in proptest::collection::btree_map("[a-z_]{2,12}", any_json(), 0..6)) {
            let mut config: serde_json::Map<String, Value> = values.into_iter().collect();
            for name in ["volumes", "mount", "ulimit", "devices", "logging", "port_map", "labels"] {
                let value = config.values().next().cloned().unwrap_or(Value::Null);
                config.insert(name.to_owned(), value);
            }
            let _ = read(Value::Object(config));
        }
    }
}
