//! The body of `/containers/create`, from the request of a task and the settings of the agent. Pure.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::config::{Config, Ulimit};
use super::engine::label;
use super::etc;
use super::mounts::{ContainerMounts, object};
use super::settings::DockerSettings;
use crate::model::network::AllocPort;
use crate::model::placement::core_list;
use crate::runner::drivers::{DriverError, StartRequest};

/// Docker's default capabilities. Source: moby `oci/caps/defaults.go`.
const DOCKER_CAPS: [&str; 14] = [
    "chown",
    "dac_override",
    "fsetid",
    "fowner",
    "mknod",
    "net_raw",
    "setgid",
    "setuid",
    "setfcap",
    "setpcap",
    "net_bind_service",
    "sys_chroot",
    "kill",
    "audit_write",
];
const ALL: &str = "all";
/// A log driver whose files are limited, and which reads them back fast.
const LOCAL_LOGS: &str = "local";
/// Set by NVIDIA's device plugin for a task with GPUs.
const VISIBLE_GPUS: &str = "NVIDIA_VISIBLE_DEVICES";
const GPU_RUNTIME: &str = "nvidia";

/// Input for a container.
pub struct Parts<'a> {
    pub request: &'a StartRequest,
    pub config: &'a Config,
    pub settings: &'a DockerSettings,
    /// The image's ID.
    pub image: &'a str,
    /// OCI runtimes of the engine.
    pub runtimes: &'a [String],
    pub mounted: ContainerMounts,
    /// A path for `cgroupfs`, a slice for `systemd`. `None`: the engine chooses.
    pub cgroup_parent: Option<&'a str>,
    /// Paths of seccomp profiles are replaced by their text already.
    pub security_opt: Vec<String>,
}

fn refused(message: String) -> DriverError {
    DriverError::Start { message, recoverable: false }
}

/// Errors: what the agent does not allow, or a port that the group does not have.
pub fn body(parts: Parts<'_>) -> Result<Value, DriverError> {
    let Parts { request, config, image, .. } = &parts;
    let mode = config.network.mode.clone().unwrap_or_else(|| "default".to_owned());
    let ports = published(request, config, &mode)?;
    let mut host = host_config(&parts, &mode)?;
    let mut all = Object::default();
    all.put("Image", json!(image));
    all.put("Env", json!(environment(request, config)));
    all.put("Labels", labels(request, config));
    all.some("User", request.task.user.as_ref());
    all.some("Hostname", config.network.hostname.as_ref());
    all.some("WorkingDir", config.work_dir.as_ref());
    all.some("Entrypoint", config.entrypoint.as_ref());
    all.on("Tty", config.tty);
    all.on("OpenStdin", config.interactive);
    let command: Vec<&String> = config.command.iter().chain(&config.args).collect();
    all.list("Cmd", &command);
    all.some("MacAddress", config.network.mac_address.as_ref());
    if config.no_healthcheck {
        all.put("Healthcheck", json!({"Test": ["NONE"]}));
    }
    if !ports.is_empty() {
        let (mut exposed, mut bound) = (Map::new(), Map::new());
        for (inside, host_ip, host_port) in ports {
            for protocol in ["tcp", "udp"] {
                let name = format!("{inside}/{protocol}");
                exposed.insert(name.clone(), json!({}));
                let binding = json!({"HostIp": host_ip, "HostPort": host_port.to_string()});
                match bound.entry(name).or_insert_with(|| json!([])) {
                    Value::Array(bindings) => bindings.push(binding),
                    other => *other = json!([binding]),
                }
            }
        }
        all.put("ExposedPorts", Value::Object(exposed));
        host.put("PortBindings", Value::Object(bound));
    }
    all.put("HostConfig", Value::Object(host.0));
    if let Some(endpoint) = endpoint(config) {
        all.put("NetworkingConfig", json!({"EndpointsConfig": {mode: endpoint}}));
    }
    Ok(Value::Object(all.0))
}

fn host_config(parts: &Parts<'_>, mode: &str) -> Result<Object, DriverError> {
    let Parts { request, config, settings, runtimes, mounted, cgroup_parent, security_opt, .. } = parts;
    if config.privileged && !settings.allow_privileged {
        let message = "privileged containers are not allowed: set docker.allow_privileged of the agent to allow them";
        return Err(refused(message.to_owned()));
    }
    let mut host = Object::default();
    host.put("NetworkMode", json!(mode));
    host.list("Binds", &mounted.binds);
    host.list("Mounts", &mounted.mounts);
    host.some("CgroupParent", cgroup_parent.as_ref());
    // The agent restarts it, by the job's policy.
    host.put("RestartPolicy", json!({"Name": "no"}));
    host.put("AutoRemove", json!(false));
    limits(&mut host, request, config);
    host.on("Privileged", config.privileged);
    let (add, drop) = caps(config, settings)?;
    host.list("CapAdd", &add);
    host.list("CapDrop", &drop);
    host.on("ReadonlyRootfs", config.readonly_rootfs);
    host.list("SecurityOpt", security_opt);
    host.some("ShmSize", config.shm_size.as_ref());
    host.on("Init", config.init);
    for (key, mode) in [
        ("PidMode", &config.modes.pid),
        ("IpcMode", &config.modes.ipc),
        ("UTSMode", &config.modes.uts),
        ("UsernsMode", &config.modes.userns),
        ("CgroupnsMode", &config.modes.cgroupns),
        ("VolumeDriver", &config.volume_driver),
    ] {
        host.some(key, mode.as_ref());
    }
    for (key, pairs) in [("Sysctls", &config.sysctl), ("StorageOpt", &config.storage_opt)] {
        if !pairs.is_empty() {
            host.put(key, object(pairs));
        }
    }
    host.list("GroupAdd", &config.group_add);
    host.some("OomScoreAdj", config.oom_score_adj.as_ref());
    // If the agent writes these files, an engine would refuse to write them as well.
    if !config.network.joined {
        host.list("ExtraHosts", &config.network.extra_hosts);
    }
    if !etc::has_resolv_conf(request, &config.network) {
        host.list("Dns", &config.network.dns_servers);
        host.list("DnsSearch", &config.network.dns_search);
        host.list("DnsOptions", &config.network.dns_options);
    }
    let ulimit = |limit: &Ulimit| json!({"Name": limit.name, "Soft": limit.soft, "Hard": limit.hard});
    host.list("Ulimits", &config.ulimits.iter().map(ulimit).collect::<Vec<_>>());
    host.list("Devices", &devices(request, config));
    host.put("LogConfig", log_config(request, config));
    host.some("Runtime", runtime(request, config, settings, runtimes)?.as_ref());
    Ok(host)
}

/// As in Nomad: with a higher `memory_max`, `memory` is the reservation; `memory_max = -1` is no limit; reserved
/// `cores` replace `cpuset_cpus`. Without swap: the limit includes it.
fn limits(host: &mut Object, request: &StartRequest, config: &Config) {
    let resources = &request.task.resources;
    let hard = config.memory_hard_limit_bytes.filter(|_| !resources.memory_unlimited);
    let (limit, reservation) = match resources.memory_max_bytes.max(hard) {
        Some(higher) => (Some(higher), resources.memory_bytes),
        None => resources.memory(),
    };
    host.some("Memory", limit.as_ref());
    host.some("MemorySwap", limit.as_ref());
    host.some("MemoryReservation", reservation.as_ref());
    host.some("CpuShares", resources.cpu_shares.as_ref());
    let reserved = Some(core_list(&resources.core_ids)).filter(|cores| !cores.is_empty());
    host.some("CpusetCpus", reserved.as_ref().or(config.cpuset_cpus.as_ref()));
    host.some("PidsLimit", config.pids_limit.as_ref());
    if let Some(shares) = resources.cpu_shares.filter(|_| config.cpu_hard_limit) {
        // 1000 is one core on every host, as in `raw_exec`.
        let period = config.cpu_cfs_period;
        host.put("CpuPeriod", json!(period));
        host.put("CpuQuota", json!(shares.saturating_mul(period).div_ceil(1000).max(1000)));
    }
}

/// Capabilities added to and dropped from Docker's defaults. Errors: one that the agent does not allow.
fn caps(config: &Config, settings: &DockerSettings) -> Result<(Vec<String>, Vec<String>), DriverError> {
    let allows = |cap: &str| settings.allow_caps.iter().any(|allowed| allowed == cap || allowed == ALL);
    let refused_caps: Vec<&str> = config.caps.add.iter().map(String::as_str).filter(|cap| !allows(cap)).collect();
    if !refused_caps.is_empty() {
        let names = refused_caps.join(", ");
        return Err(refused(format!(
            "the capabilities {names} are not allowed: add them to docker.allow_caps of the agent"
        )));
    }
    let upper = |cap: &str| cap.to_ascii_uppercase();
    let mut drop: Vec<String> = config.caps.drop.iter().map(|cap| upper(cap)).collect();
    if !drop.iter().any(|cap| cap == "ALL") && !config.privileged {
        let not_allowed = DOCKER_CAPS.into_iter().filter(|cap| !allows(cap)).map(upper);
        drop.extend(
            not_allowed
                .filter(|cap| !config.caps.drop.iter().any(|dropped| upper(dropped) == *cap))
                .collect::<Vec<_>>(),
        );
    }
    Ok((config.caps.add.iter().map(|cap| upper(cap)).collect(), drop))
}

type Published = (u16, String, u16);

/// Port of the container, address and port of the host. Errors: a label that the group does not have.
fn published(request: &StartRequest, config: &Config, mode: &str) -> Result<Vec<Published>, DriverError> {
    let network = &config.network;
    let bound = |port: &AllocPort, inside: u16| (inside, port.host_ip.to_string(), port.value);
    let find = |label: &String| {
        let port = request.ports.iter().find(|port| port.label == *label);
        let known = || request.ports.iter().map(|port| port.label.as_str()).collect::<Vec<_>>().join(", ");
        port.ok_or_else(|| refused(format!("ports: the group's network has no port {label:?}; it has: {}", known())))
    };
    // The container that owns the network publishes the ports.
    let is_published = !mode.starts_with("container:");
    if !network.ports.is_empty() {
        if !is_published {
            return Ok(Vec::new());
        }
        return network.ports.iter().map(|label| find(label).map(|port| bound(port, port.inside()))).collect();
    }
    let of_task: Vec<&AllocPort> = request.ports.iter().filter(|port| port.task.is_some()).collect();
    if of_task.is_empty() {
        return match network.port_map.first() {
            None => Ok(Vec::new()),
            Some((label, port)) => Err(refused(format!(
                "port_map: {label:?} is no port of the task's own network; write to = {port} in the group's port and \
                 ports = [{label:?}]"
            ))),
        };
    }
    if !is_published {
        return Ok(Vec::new());
    }
    let mapped = |label: &str| network.port_map.iter().find(|(name, _)| name == label).map(|(_, port)| *port);
    Ok(of_task.into_iter().map(|port| bound(port, mapped(&port.label).unwrap_or_else(|| port.inside()))).collect())
}

fn environment(request: &StartRequest, config: &Config) -> Vec<String> {
    let mut env: BTreeMap<&str, String> = request.env.iter().map(|(k, v)| (k.as_str(), v.clone())).collect();
    let mapped: Vec<_> =
        config.network.port_map.iter().map(|(label, port)| (format!("NOMAD_PORT_{label}"), port.to_string())).collect();
    env.extend(mapped.iter().map(|(name, port)| (name.as_str(), port.clone())));
    env.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}

fn labels(request: &StartRequest, config: &Config) -> Value {
    // The agent's own labels cannot be set by a job.
    let own = config.labels.iter().filter(|(name, _)| !name.starts_with("io.allostat.")).cloned();
    let mut labels = object(&own.collect::<Vec<_>>());
    labels[label::RUN_DIR] = json!(request.dirs.run);
    labels[label::ALLOC] = json!(request.alloc_id.as_str());
    labels[label::TASK] = json!(request.task.name.as_str());
    labels[label::ATTEMPT] = json!(request.attempt.to_string());
    labels
}

/// The job's own log configuration, or files of as many bytes as allostat keeps itself: that much may wait for the
/// agent.
fn log_config(request: &StartRequest, config: &Config) -> Value {
    let logs = &request.task.logs;
    match &config.logging {
        Some(logging) if logging.driver.is_some() || !logging.options.is_empty() => {
            json!({"Type": logging.driver.clone().unwrap_or_default(), "Config": object(&logging.options)})
        }
        Some(_) | None if logs.disabled => json!({"Type": "none"}),
        Some(_) | None => json!({"Type": LOCAL_LOGS, "Config": {
            "max-size": format!("{}k", logs.max_file_bytes.div_ceil(1024).max(1)),
            "max-file": logs.max_files.max(2).to_string(),
            "compress": "false",
        }}),
    }
}

fn devices(request: &StartRequest, config: &Config) -> Vec<Value> {
    let device = |host: &str, inside: &str, permissions: &str| {
        json!({
            "PathOnHost": host,
            "PathInContainer": inside,
            "CgroupPermissions": permissions,
        })
    };
    let own = config.devices.iter().map(|of| device(&of.host_path, &of.container_path, &of.permissions));
    let reserved = request.devices.nodes.iter().map(|of| device(&of.host_path, &of.task_path, &of.permissions));
    own.chain(reserved).collect()
}

/// Errors: one that the agent does not allow.
fn runtime(
    request: &StartRequest,
    config: &Config,
    settings: &DockerSettings,
    runtimes: &[String],
) -> Result<Option<String>, DriverError> {
    let has_gpus = request.env.contains_key(VISIBLE_GPUS) && !request.task.resources.devices.is_empty();
    match &config.runtime {
        Some(named) if !settings.allow_runtimes.contains(named) => {
            Err(refused(format!("the runtime {named:?} is not allowed: add it to docker.allow_runtimes of the agent")))
        }
        Some(named) => Ok(Some(named.clone())),
        None => Ok((has_gpus && runtimes.iter().any(|name| name == GPU_RUNTIME)).then(|| GPU_RUNTIME.to_owned())),
    }
}

fn endpoint(config: &Config) -> Option<Value> {
    let network = &config.network;
    let mut endpoint = Object::default();
    endpoint.list("Aliases", &network.aliases);
    endpoint.some("MacAddress", network.mac_address.as_ref());
    if network.ipv4_address.is_some() || network.ipv6_address.is_some() {
        let mut addresses = Object::default();
        addresses.some("IPv4Address", network.ipv4_address.as_ref());
        addresses.some("IPv6Address", network.ipv6_address.as_ref());
        endpoint.put("IPAMConfig", Value::Object(addresses.0));
    }
    (!endpoint.0.is_empty()).then_some(Value::Object(endpoint.0))
}

/// A JSON object without unset values: an engine uses its own defaults for those.
#[derive(Default)]
struct Object(Map<String, Value>);

impl Object {
    fn put(&mut self, key: &str, value: Value) {
        self.0.insert(key.to_owned(), value);
    }
    fn some<T: serde::Serialize>(&mut self, key: &str, value: Option<T>) {
        if let Some(value) = value {
            self.put(key, json!(value));
        }
    }
    fn list<T: serde::Serialize>(&mut self, key: &str, list: &[T]) {
        if !list.is_empty() {
            self.put(key, json!(list));
        }
    }
    fn on(&mut self, key: &str, on: bool) {
        if on {
            self.put(key, json!(true));
        }
    }
}

#[cfg(test)]
#[path = "create_tests.rs"]
mod tests;
