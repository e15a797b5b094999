//! Settings of the runner: limits and budgets.

mod migration;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

pub use self::migration::{MigrationConfig, MigrationPeer, PeerToken};
use super::decide::limits::GcConfig;
use crate::model::id::CgroupPath;

#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The parent cgroup of all allocs of this agent.
    pub cgroup_parent: CgroupPath,
    pub gc: GcConfig,
    /// Time from the end of a workload's last alloc until its totals move to the node's.
    pub retire_after: Duration,
    /// How long a task may outlive SIGKILL before it is abandoned.
    pub kill_budget: Duration,
    /// How long a driver may take to start a task before the task is abandoned: it may have to pull an image first.
    pub start_budget: Duration,
    pub network: NetworkConfig,
    pub artifact: ArtifactConfig,
    pub migration: MigrationConfig,
    pub template: TemplateConfig,
    /// Whether the secrets of each task are on a tmpfs of its own.
    pub secrets_in_memory: bool,
}

/// Templates of job files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TemplateConfig {
    /// The directory of the key tree: one file per key. `None`: templates cannot read keys.
    pub key_dir: Option<PathBuf>,
}

/// Limits for artifacts. Sizes are bytes; 0: no limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactConfig {
    /// Timeout of a whole download.
    pub http_read_timeout: Duration,
    /// Timeout of a connection without data.
    pub http_idle_timeout: Duration,
    pub http_max_size: u64,
    /// Timeout of all git commands for one artifact.
    pub git_timeout: Duration,
    pub decompression_size_limit: u64,
    pub decompression_file_count_limit: u64,
    /// Maximum number of files and directories of a repository, git's own included.
    pub git_file_count_limit: u64,
    /// Bytes that stay free on the data directory's file system.
    pub free_space_reserve: u64,
}

impl Default for ArtifactConfig {
    /// Nomad's defaults, and a reserve.
    fn default() -> ArtifactConfig {
        ArtifactConfig {
            http_read_timeout: Duration::from_secs(30 * 60),
            http_idle_timeout: Duration::from_secs(60),
            http_max_size: 100 << 30,
            git_timeout: Duration::from_secs(30 * 60),
            decompression_size_limit: 100 << 30,
            decompression_file_count_limit: 4096,
            git_file_count_limit: 1_000_000,
            free_space_reserve: 256 << 20,
        }
    }
}

/// The ports and networks of allocs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkConfig {
    /// Range of dynamic ports, both ends included.
    pub dynamic_ports: (u16, u16),
    /// Networks that `host_network` may name: addresses of this host other than that of its default route.
    pub host_networks: Vec<HostNetwork>,
    /// Directories with CNI plugins, in search order.
    pub cni_path: Vec<PathBuf>,
    /// Directory with the configurations that `cni/NAME` names.
    pub cni_config_dir: PathBuf,
    /// The bridge of `mode = "bridge"`, and its network.
    pub bridge_name: String,
    pub bridge_subnet: String,
}

impl Default for NetworkConfig {
    fn default() -> NetworkConfig {
        NetworkConfig {
            dynamic_ports: (20_000, 32_000),
            host_networks: Vec::new(),
            // Nomad's, and Debian's.
            cni_path: vec!["/opt/cni/bin".into(), "/usr/lib/cni".into()],
            cni_config_dir: "/etc/cni/net.d".into(),
            bridge_name: "allostat".to_owned(),
            // As large as Nomad's, and next to it.
            bridge_subnet: "172.26.80.0/20".to_owned(),
        }
    }
}

/// Errors: why it is not an IPv4 network with room for allocs.
pub fn bridge_subnet(text: &str) -> Result<String, String> {
    let requested = || format!("{text:?} is no network, as 172.26.80.0/20 is one");
    let (address, bits) = text.split_once('/').ok_or_else(requested)?;
    let address = u32::from(address.parse::<Ipv4Addr>().map_err(|_| requested())?);
    let bits = bits.parse::<u32>().ok().filter(|bits| (8..=29).contains(bits)).ok_or_else(requested)?;
    if address.trailing_zeros() < 32 - bits {
        let first = Ipv4Addr::from(address & (u32::MAX << (32 - bits)));
        return Err(format!("{text:?} is an address within a network: write {first}/{bits}"));
    }
    Ok(text.to_owned())
}

/// Errors: why it cannot be the name of an interface. Source: IFNAMSIZ.
pub fn interface_name(text: &str) -> Result<String, String> {
    let fits = (1..16).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    if !fits || text == "." || text == ".." {
        return Err(format!("{text:?} cannot be the name of an interface: 1 to 15 letters, digits and _ - ."));
    }
    Ok(text.to_owned())
}

/// `lan=192.168.1.10`: a name for one of this host's addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostNetwork {
    pub name: String,
    pub address: IpAddr,
}

impl HostNetwork {
    /// Errors: why it is invalid.
    pub fn parse(text: &str) -> Result<HostNetwork, String> {
        let (name, address) =
            text.split_once('=').ok_or_else(|| format!("{text:?} is no host network: write NAME=ADDRESS"))?;
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
        if !is_name || name == "default" {
            return Err(format!("{name:?} cannot be the name of a host network"));
        }
        let address = address.parse().map_err(|_| format!("{address:?} is no address, as 192.168.1.10 is one"))?;
        Ok(HostNetwork { name: name.to_owned(), address })
    }
}

impl fmt::Display for HostNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.address)
    }
}

impl Config {
    /// What is set of it; the rest as usual.
    pub fn of(
        cgroup_parent: CgroupPath,
        gc: GcConfig,
        network: NetworkConfig,
        (artifact, migration, template): (ArtifactConfig, MigrationConfig, TemplateConfig),
        secrets_in_memory: bool,
    ) -> Config {
        Config { cgroup_parent, gc, network, artifact, migration, template, secrets_in_memory, ..Config::default() }
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            cgroup_parent: CgroupPath::from("/allostat"),
            gc: GcConfig::default(),
            retire_after: Duration::from_secs(24 * 3600),
            kill_budget: Duration::from_secs(30),
            start_budget: Duration::from_secs(300),
            network: NetworkConfig::default(),
            artifact: ArtifactConfig::default(),
            migration: MigrationConfig::default(),
            template: TemplateConfig::default(),
            secrets_in_memory: false,
        }
    }
}
