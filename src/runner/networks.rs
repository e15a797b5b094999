//! The network namespaces of allocs: their interface, and its implementation on this host.
//!
//! ```text
//! none     a namespace with its loopback
//! bridge   the same, connected by CNI plugins to a bridge of the agent
//! cni/NAME the same, connected as a CNI configuration of the host says
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::cni::{CniNetwork, bridge_list, list_named, port_mappings};
use super::persistence::record::{CniRecord, NetworkRecord};
use super::settings::NetworkConfig;
use crate::host::{netns, tree};
use crate::model::id::AllocId;
use crate::model::network::{AllocNetwork, AllocPort, DnsConfig, NetworkMode};

/// The directory of named namespaces, shared with `ip netns`.
const NAMESPACES: &str = "/run/netns";

/// The network that an alloc requests.
#[derive(Debug, Clone)]
pub struct NetworkRequest {
    pub alloc: AllocId,
    pub mode: NetworkMode,
    /// With references resolved.
    pub hostname: Option<String>,
    pub dns: Option<DnsConfig>,
    pub cni_args: BTreeMap<String, String>,
    pub ports: Vec<AllocPort>,
    /// The directory of its hosts file and resolv.conf.
    pub files: PathBuf,
}

/// Concurrency: any thread; each method may block as long as plugins take.
pub trait AllocNetworks: Send + Sync {
    /// Creates the namespace, connects it and writes its files. One that an earlier agent left incomplete is created
    /// again.
    ///
    /// Errors: the first step that failed, as a sentence; then nothing is left.
    fn set_up(&self, request: &NetworkRequest) -> Result<NetworkRecord, String>;
    /// Whether its namespace still exists: not after a reboot.
    fn exists(&self, record: &NetworkRecord) -> bool;
    /// Disconnects and removes it, by its record if there is one. Idempotent.
    fn tear_down(&self, request: &NetworkRequest, record: Option<&NetworkRecord>) -> Result<(), String>;
    /// Removes what is kept of an alloc without a record.
    fn forget(&self, alloc: &AllocId);
}

pub struct HostNetworks {
    config: NetworkConfig,
    namespaces: PathBuf,
}

impl HostNetworks {
    pub fn new(config: NetworkConfig) -> HostNetworks {
        HostNetworks { config, namespaces: NAMESPACES.into() }
    }

    fn namespace(&self, alloc: &AllocId) -> PathBuf {
        self.namespaces.join(alloc.as_str())
    }

    /// `None`: the mode needs no plugins.
    fn list(&self, mode: &NetworkMode) -> Result<Option<Value>, String> {
        match mode {
            NetworkMode::Host | NetworkMode::None => Ok(None),
            NetworkMode::Bridge => Ok(Some(bridge_list(&self.config.bridge_name, &self.config.bridge_subnet))),
            NetworkMode::Cni(name) => list_named(&self.config.cni_config_dir, name).map(Some),
        }
    }

    fn connect(&self, request: &NetworkRequest, namespace: &Path) -> Result<Option<CniRecord>, String> {
        let Some(list) = self.list(&request.mode)? else { return Ok(None) };
        let runtime = port_mappings(&request.ports);
        let args = args(&request.cni_args);
        let result = self.plugins(request.alloc.as_str(), namespace, &list, &args, &runtime).add()?;
        Ok(Some(CniRecord { list, result, args, runtime }))
    }

    fn plugins<'a>(
        &'a self,
        container: &'a str,
        namespace: &'a Path,
        list: &'a Value,
        args: &'a str,
        runtime: &'a Value,
    ) -> CniNetwork<'a> {
        CniNetwork { path: &self.config.cni_path, list, container, namespace, args, runtime }
    }

    fn disconnect(&self, request: &NetworkRequest, record: Option<&NetworkRecord>) -> Result<(), String> {
        let namespace = self.namespace(&request.alloc);
        let unrecorded = || {
            // An agent died before it recorded the result of the plugins: they identify it by the alloc's ID.
            let list = self.list(&request.mode).ok().flatten()?;
            Some(CniRecord {
                list,
                result: Value::Null,
                args: args(&request.cni_args),
                runtime: port_mappings(&request.ports),
            })
        };
        let cni = record.map_or_else(unrecorded, |record| record.cni.clone());
        cni.map_or(Ok(()), |CniRecord { list, result, args, runtime }| {
            self.plugins(request.alloc.as_str(), &namespace, &list, &args, &runtime).delete(&result)
        })
    }
}

impl AllocNetworks for HostNetworks {
    fn set_up(&self, request: &NetworkRequest) -> Result<NetworkRecord, String> {
        let namespace = self.namespace(&request.alloc);
        if netns::exists(&namespace) {
            let _ = self.tear_down(request, None);
        }
        netns::create(&namespace).map_err(|e| match e.kind() {
            io::ErrorKind::PermissionDenied => {
                format!("mode {:?} of its network needs root (CAP_SYS_ADMIN): {e}", request.mode.to_string())
            }
            _ => format!("cannot make its network namespace {}: {e}", namespace.display()),
        })?;
        let made = self.connect(request, &namespace).and_then(|cni| {
            let network = network_of(request, namespace.clone(), cni.as_ref());
            write_files(request, &network).map_err(|e| format!("cannot write {}: {e}", request.files.display()))?;
            Ok(NetworkRecord { network, cni })
        });
        if made.is_err() {
            let _ = netns::remove(&namespace);
            let _ = tree::remove(&request.files);
        }
        made
    }
    fn exists(&self, record: &NetworkRecord) -> bool {
        netns::exists(&record.network.namespace)
    }
    fn tear_down(&self, request: &NetworkRequest, record: Option<&NetworkRecord>) -> Result<(), String> {
        let disconnected = self.disconnect(request, record);
        let removed = netns::remove(&self.namespace(&request.alloc))
            .map_err(|e| format!("cannot remove its network namespace: {e}"));
        let _ = tree::remove(&request.files);
        disconnected.and(removed)
    }
    fn forget(&self, alloc: &AllocId) {
        let _ = netns::remove(&self.namespace(alloc));
    }
}

/// Source: CNI conventions: a plugin ignores arguments that it does not know.
fn args(args: &BTreeMap<String, String>) -> String {
    let own = args.iter().map(|(name, value)| format!("{name}={value}"));
    std::iter::once("IgnoreUnknown=true".to_owned()).chain(own).collect::<Vec<_>>().join(";")
}

/// The network as the plugins report it.
fn network_of(request: &NetworkRequest, namespace: PathBuf, cni: Option<&CniRecord>) -> AllocNetwork {
    const MOST: usize = 16;
    let result = cni.map_or(&Value::Null, |cni| &cni.result);
    let interfaces = result["interfaces"].as_array().map_or(&[][..], Vec::as_slice);
    // An interface in the namespace other than the loopback.
    let is_own = |one: &Value| one["sandbox"].as_str().is_some_and(|s| !s.is_empty()) && one["name"] != "lo";
    let place = interfaces.iter().position(is_own);
    let of_it = |ip: &&Value| match (ip["interface"].as_u64(), place) {
        (Some(at), Some(place)) => usize::try_from(at) == Ok(place),
        _ => true,
    };
    let address = |ip: &Value| ip["address"].as_str()?.split('/').next()?.parse::<IpAddr>().ok();
    let ips = result["ips"].as_array().map_or(&[][..], Vec::as_slice);
    AllocNetwork {
        mode: request.mode.clone(),
        namespace,
        interface: place.and_then(|at| interfaces[at]["name"].as_str()).map(|name| name.chars().take(MOST).collect()),
        addresses: ips.iter().filter(of_it).filter_map(address).take(MOST).collect(),
        hostname: request.hostname.clone().unwrap_or_else(|| request.alloc.short().to_owned()),
    }
}

pub const HOSTS: &str = "hosts";
pub const RESOLV_CONF: &str = "resolv.conf";

/// Writes `hosts` and `resolv.conf`, for drivers whose tasks have their own root.
fn write_files(request: &NetworkRequest, network: &AllocNetwork) -> io::Result<()> {
    fs::create_dir_all(&request.files)?;
    write_readable(&request.files.join(HOSTS), &hosts(network))?;
    request.dns.as_ref().map_or(Ok(()), |dns| write_resolv_conf(&request.files, dns))
}

/// For tasks in the host's network with their own root. Blocks.
pub fn write_resolv_conf(files: &Path, dns: &DnsConfig) -> io::Result<()> {
    fs::create_dir_all(files)?;
    write_readable(&files.join(RESOLV_CONF), &resolv_conf(dns))
}

/// Readable by every user of a task, whatever the agent's umask.
fn write_readable(path: &Path, text: &str) -> io::Result<()> {
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))
}

fn hosts(network: &AllocNetwork) -> String {
    let mut text =
        "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\nff02::1 ip6-allnodes\nff02::2 ip6-allrouters\n"
            .to_owned();
    let own = network.addresses.first().map_or_else(|| "127.0.1.1".to_owned(), IpAddr::to_string);
    text.push_str(&format!("{own} {}\n", network.hostname));
    text
}

pub fn resolv_conf(dns: &DnsConfig) -> String {
    let mut text: String = dns.servers.iter().map(|server| format!("nameserver {server}\n")).collect();
    for (word, words) in [("search", &dns.searches), ("options", &dns.options)] {
        if !words.is_empty() {
            text.push_str(&format!("{word} {}\n", words.join(" ")));
        }
    }
    text
}

#[cfg(test)]
mod tests;
