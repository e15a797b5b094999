//! Networks and ports: what a job file asks for, and what an alloc got.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::id::TaskName;

/// A group's `network`, or a task's deprecated one in `resources`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupNetwork {
    pub mode: NetworkMode,
    /// In the order of the job file; labels are unique in an alloc.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortRequest>,
    /// A template. Of a network namespace of its own, and of containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<DnsConfig>,
    /// `CNI_ARGS` for the plugins of `bridge` and `cni/NAME`: templates.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cni_args: BTreeMap<String, String>,
}

/// Whether it may be the name or the value of an argument. Source: CNI specification, CNI_ARGS: `FOO=BAR;ABC=123`.
pub fn is_cni_arg(text: &str) -> bool {
    !text.contains([';', '=', '\0'])
}

/// In which network namespace the tasks of an alloc run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(into = "String", try_from = "String")]
pub enum NetworkMode {
    /// The host's.
    #[default]
    Host,
    /// The alloc's own, with nothing in it but loopback.
    None,
    /// The alloc's own, connected to a bridge of this host.
    Bridge,
    /// The alloc's own, connected by the CNI configuration of that name.
    Cni(String),
}

impl NetworkMode {
    /// Before the name of a CNI configuration.
    pub const CNI: &'static str = "cni/";

    /// `None`: it is no mode.
    pub fn parse(text: &str) -> Option<NetworkMode> {
        match text {
            "host" => Some(NetworkMode::Host),
            "none" => Some(NetworkMode::None),
            "bridge" => Some(NetworkMode::Bridge),
            _ => text.strip_prefix(Self::CNI).filter(|name| is_cni_name(name)).map(|name| Self::Cni(name.to_owned())),
        }
    }
    /// Whether its allocs have a network namespace of their own.
    pub fn is_isolated(&self) -> bool {
        *self != NetworkMode::Host
    }
    /// Whether ports of the host lead into its namespace.
    pub fn maps_ports(&self) -> bool {
        matches!(self, NetworkMode::Bridge | NetworkMode::Cni(_))
    }
}

/// Source: CNI specification 1.0, "name": it becomes a part of file names.
fn is_cni_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    name.len() <= 128 && name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(allowed)
}

impl fmt::Display for NetworkMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NetworkMode::Host => f.write_str("host"),
            NetworkMode::None => f.write_str("none"),
            NetworkMode::Bridge => f.write_str("bridge"),
            NetworkMode::Cni(name) => write!(f, "{}{name}", Self::CNI),
        }
    }
}

impl From<NetworkMode> for String {
    fn from(mode: NetworkMode) -> String {
        mode.to_string()
    }
}

impl TryFrom<String> for NetworkMode {
    type Error = String;
    fn try_from(text: String) -> Result<NetworkMode, String> {
        NetworkMode::parse(&text).ok_or_else(|| format!("{text:?} is not a network mode"))
    }
}

/// A `port` of a `network`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PortRequest {
    pub label: String,
    /// The port of the host. Absent: a dynamic port.
    #[serde(rename = "static", default, skip_serializing_if = "Option::is_none")]
    pub fixed: Option<u16>,
    #[serde(default, skip_serializing_if = "PortTarget::is_unset")]
    pub to: PortTarget,
    /// The name of a host network. Absent: the address of the default route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_network: Option<String>,
    /// A static port that other allocs of jobs with the same word may have as well.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignore_collision: bool,
}

impl fmt::Display for PortRequest {
    /// `http 8080 -> 80`, `db dynamic`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fixed {
            Some(port) => write!(f, "{} {port}", self.label)?,
            None => write!(f, "{} dynamic", self.label)?,
        }
        match self.to {
            PortTarget::Port(to) => write!(f, " -> {to}"),
            PortTarget::Unset | PortTarget::Same => Ok(()),
        }
    }
}

/// The port inside the namespace of the alloc, or of the container, that a port of the host leads to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PortTarget {
    /// Not given: the driver's, or the same one.
    #[default]
    Unset,
    /// Nomad's -1: the same as the port of the host.
    Same,
    Port(u16),
}

impl PortTarget {
    pub fn is_unset(&self) -> bool {
        *self == PortTarget::Unset
    }
    /// 0: there is none.
    pub fn of(self, host_port: u16) -> u16 {
        match self {
            PortTarget::Unset => 0,
            PortTarget::Same => host_port,
            PortTarget::Port(port) => port,
        }
    }
}

/// What resolv.conf says in a container or a namespace: a network's `dns`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DnsConfig {
    pub servers: Vec<String>,
    pub searches: Vec<String>,
    pub options: Vec<String>,
}

/// A port that was reserved for an alloc, from before its start to its end.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AllocPort {
    pub label: String,
    /// The port of the host.
    pub value: u16,
    /// The port inside the alloc's namespace, or its container's; 0: none was named.
    #[serde(default)]
    pub to: u16,
    /// The address of the host.
    pub host_ip: IpAddr,
    /// Of a task's own, deprecated `network`: only that task has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskName>,
}

impl AllocPort {
    /// One that is not reserved yet: for what follows from its name alone.
    pub fn named(label: &str, task: Option<TaskName>) -> AllocPort {
        let host_ip = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        AllocPort { label: label.to_owned(), value: 0, to: 0, host_ip, task }
    }
    /// Where others reach it.
    pub fn host_address(&self) -> SocketAddr {
        SocketAddr::new(self.host_ip, self.value)
    }
    /// `http 10.0.0.7:20001 -> 80`
    pub fn shown(&self) -> String {
        let leads = if self.to == 0 || self.to == self.value { String::new() } else { format!(" -> {}", self.to) };
        format!("{} {}{leads}", self.label, self.host_address())
    }
    /// Whether this task has it.
    pub fn is_of(&self, task: &TaskName) -> bool {
        self.task.as_ref().is_none_or(|owner| owner == task)
    }
    /// Where it leads to inside the namespace: the same port where none was named.
    pub fn inside(&self) -> u16 {
        if self.to == 0 { self.value } else { self.to }
    }
}

/// The network namespace that an alloc has of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocNetwork {
    pub mode: NetworkMode,
    /// A file to join it by.
    pub namespace: PathBuf,
    /// Inside; `None`: there is none but the loopback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Of that interface.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    pub hostname: String,
}

/// Where a task is reached whose runtime gave it a network of its own, known only after its start: Nomad's
/// DriverNetwork.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DriverNetwork {
    /// In the network that was chosen.
    pub ip: IpAddr,
    /// All of its networks, in the order of their names.
    pub addresses: Vec<NetworkAddress>,
    /// The ports inside, by label.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ports: BTreeMap<String, u16>,
    /// Whether services advertise that address by themselves: not one that only this host reaches.
    #[serde(default)]
    pub auto_advertise: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NetworkAddress {
    pub network: String,
    pub ip: IpAddr,
}

impl fmt::Display for DriverNetwork {
    /// `172.17.0.2 (bridge)`; of several networks `10.1.0.2 (back 10.1.0.2, zone 10.2.0.2)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (", self.ip)?;
        match self.addresses.as_slice() {
            [one] => write!(f, "{}", one.network)?,
            several => {
                let all: Vec<String> = several.iter().map(|one| format!("{} {}", one.network, one.ip)).collect();
                write!(f, "{}", all.join(", "))?;
            }
        }
        f.write_str(")")
    }
}

/// What the `network` of its group means to a task whose driver gives it a root or a host name of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskNetwork {
    /// Its mode, whether or not the alloc has a namespace for it.
    pub mode: NetworkMode,
    pub hostname: Option<String>,
    pub dns: Option<DnsConfig>,
    /// Files of the host for its `/etc`.
    pub hosts: Option<PathBuf>,
    pub resolv_conf: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_modes_are_read_as_they_are_written() {
        for text in ["host", "none", "bridge", "cni/mynet", "cni/a.b-c_1"] {
            let mode = NetworkMode::parse(text).unwrap();
            assert_eq!(mode.to_string(), text);
            let json = serde_json::to_string(&mode).unwrap();
            assert_eq!(serde_json::from_str::<NetworkMode>(&json).unwrap(), mode);
        }
        for text in ["", "Host", "cni/", "cni/../x", "cni/a/b", "cni/-a", "container:x"] {
            assert_eq!(NetworkMode::parse(text), None, "{text}");
        }
    }

    #[test]
    fn port_target_of_host_port() {
        let cases = [(PortTarget::Unset, 0), (PortTarget::Same, 20_001), (PortTarget::Port(80), 80)];
        for (target, inside) in cases {
            assert_eq!(target.of(20_001), inside);
        }
    }
}
