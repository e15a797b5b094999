//! The ports of this node that allocs hold. One keeper for all, so that no port is held by two allocs.
//!
//! ```text
//! reserve ─► held: its tasks start, run and end; the next agent holds it again (hold) ─► release
//!             └─ another program took it before a task started (taken, exchange): another dynamic port
//! ```
//! A port in use by another program is not assigned: for a dynamic port another one is tried, a static one is a
//! conflict. The test binds the port, for TCP and UDP, and closes the sockets: an open socket would keep the task
//! itself from the port. So a program may take it between the test and the task's bind. Then the task fails, and
//! before its restart the ports are tested again.
//!
//! No test of a port runs under the lock of what is held: an exhausted range takes seconds. A free port is found first
//! and held afterwards, if no other alloc has got it meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::settings::NetworkConfig;
use crate::host::ports;
use crate::host::roots::Roots;
use crate::model::attributes::{Attributes, HostAttribute};
use crate::model::constraint::NodeValues;
use crate::model::host::NodeInfo;
use crate::model::id::{AllocId, JobId, TaskName};
use crate::model::job::TaskGroup;
use crate::model::network::{AllocPort, PortRequest, PortTarget};
use crate::telemetry::lock;
use crate::telemetry::ports::{PortMetrics, PortRange};

/// Ports in use by programs of this host. May block as long as a system call does.
pub trait PortsInUse: Send + Sync {
    /// The program that uses it at this address. `None`: it is free.
    fn user(&self, at: SocketAddr) -> Option<String>;
    /// Whether a program uses it at any address.
    fn is_used(&self, port: u16) -> bool;
}

/// Ports in the host's own network namespace.
#[derive(Default)]
pub struct HostPorts(Roots);

impl PortsInUse for HostPorts {
    fn user(&self, at: SocketAddr) -> Option<String> {
        let user = || ports::user_of(&self.0, at).unwrap_or_else(|| "another program".to_owned());
        ports::is_bound(at).then(user)
    }
    fn is_used(&self, port: u16) -> bool {
        ports::is_bound_anywhere(port)
    }
}

/// The alloc that holds ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortHolder {
    pub alloc: AllocId,
    pub job: JobId,
}

/// A port that an alloc needs, with its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortAsk {
    pub label: String,
    pub task: Option<TaskName>,
    pub fixed: Option<u16>,
    pub to: PortTarget,
    pub host_ip: IpAddr,
    pub ignore_collision: bool,
}

/// Why a port is not available now. It may be later.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PortConflict {
    #[error("port {port} ({label}) is held by alloc {} of job {}", owner.alloc.short(), owner.job)]
    Alloc { label: String, port: u16, owner: PortHolder },
    #[error("port {port} ({label}) is in use by {user}")]
    Program { label: String, port: u16, user: String },
    #[error("no dynamic port is free for {label}: each from {} to {} is held or in use", range.0, range.1)]
    Exhausted { label: String, range: (u16, u16) },
}

/// Number of ports whose programs are looked up and named.
const NAMED: usize = 3;

/// The request that a held port answers, unless others may have the port as well.
fn ask_of<'a>(asks: &'a [PortAsk], port: &AllocPort) -> Option<&'a PortAsk> {
    asks.iter().find(|ask| ask.label == port.label && ask.task == port.task && !ask.ignore_collision)
}

/// A port names a network that this host does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no host network {name:?}; this agent has {known}")]
pub struct UnknownHostNetwork {
    pub label: String,
    pub task: Option<TaskName>,
    pub name: String,
    known: String,
}

/// A port of an alloc that another program uses, and what the alloc gets for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortReplacement {
    lost: AllocPort,
    user: String,
    /// `None`: the port is static, or others may have it as well.
    new: Option<Result<u16, PortConflict>>,
}

/// Other allocs have got these ports since they were found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortsLost(BTreeSet<u16>);

impl PortsLost {
    pub fn add(&mut self, more: PortsLost) {
        self.0.extend(more.0);
    }
}

/// Concurrency: any thread. [`PortKeeper::reserve`], [`PortKeeper::conflicts`], [`PortKeeper::taken`] and
/// [`PortKeeper::replacements`] block for some system calls per port of the range, and never hold `held` meanwhile.
pub struct PortKeeper {
    config: NetworkConfig,
    in_use: Arc<dyn PortsInUse>,
    held: Mutex<HeldPorts>,
    /// Serializes tests of ports: a test binds the port, and a concurrent one would report it as used by a program. Lock
    /// order: before `held`.
    testing: Mutex<()>,
    /// Notifies of released ports.
    released: watch::Sender<()>,
    metrics: PortMetrics,
}

#[derive(Default)]
struct HeldPorts {
    by_port: BTreeMap<u16, Vec<HeldPort>>,
    by_alloc: BTreeMap<AllocId, Vec<AllocPort>>,
}

struct HeldPort {
    ip: IpAddr,
    owner: PortHolder,
}

impl PortKeeper {
    pub fn new(config: NetworkConfig, in_use: Arc<dyn PortsInUse>, metrics: PortMetrics) -> PortKeeper {
        let (first, last) = config.dynamic_ports;
        metrics.range(u32::from(last).saturating_sub(u32::from(first)) + 1);
        let (held, testing) = (Mutex::default(), Mutex::default());
        PortKeeper { config, in_use, held, testing, released: watch::Sender::new(()), metrics }
    }

    /// The ports that an alloc of this group needs on a host with these attributes.
    ///
    /// Errors: the first port whose network this host does not have.
    pub fn asks(
        &self,
        group: &TaskGroup,
        node: &NodeInfo,
        known: &Attributes,
    ) -> Result<Vec<PortAsk>, UnknownHostNetwork> {
        let named = |name: &str| match name.starts_with("${") {
            true => NodeValues::new(node, known).text_of(name).unwrap_or_else(|| name.to_owned()),
            false => name.to_owned(),
        };
        let ask = |(task, port): (Option<&TaskName>, &PortRequest)| {
            let network = port.host_network.as_deref().map(named);
            let host_ip = self.address(network.as_deref(), known).ok_or_else(|| UnknownHostNetwork {
                label: port.label.clone(),
                task: task.cloned(),
                name: network.unwrap_or_default(),
                known: self.networks(),
            })?;
            Ok(PortAsk {
                label: port.label.clone(),
                task: task.cloned(),
                fixed: port.fixed,
                to: port.to,
                host_ip,
                ignore_collision: port.ignore_collision,
            })
        };
        group.port_requests().map(ask).collect()
    }

    /// The address of the host's default network.
    pub fn host_address(&self, known: &Attributes) -> IpAddr {
        self.address(None, known).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// As in Nomad: the address of the default route's interface. A host without one uses its loopback.
    fn address(&self, network: Option<&str>, known: &Attributes) -> Option<IpAddr> {
        match network {
            None | Some("default") => {
                let own = known.get(HostAttribute::UniqueNetworkIpAddress.as_str());
                Some(own.and_then(|ip| ip.bare().parse().ok()).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)))
            }
            Some(name) => self.config.host_networks.iter().find(|one| one.name == name).map(|one| one.address),
        }
    }
    fn networks(&self) -> String {
        let named = self.config.host_networks.iter().map(|one| one.name.as_str());
        std::iter::once("default").chain(named).collect::<Vec<_>>().join(", ")
    }

    /// Reserves all requested ports, in order, or none. A holder that has ports already gets the same ones. `before`:
    /// ports that it had earlier; it gets them again if they are free.
    ///
    /// Errors: the first port that is not available now.
    pub fn reserve(
        &self,
        holder: &PortHolder,
        asks: &[PortAsk],
        before: &[AllocPort],
    ) -> Result<Vec<AllocPort>, PortConflict> {
        // Each turn adds a port: it ends with the range.
        let mut lost = BTreeSet::new();
        loop {
            if let Some(ports) = self.held_by(&holder.alloc) {
                return Ok(ports);
            }
            let ports = self.free(holder, asks, before, &lost)?;
            let mut held = lock(&self.held);
            if let Some(ports) = held.by_alloc.get(&holder.alloc) {
                return Ok(ports.clone());
            }
            if let Some((_, conflict)) = asks.iter().find_map(|ask| held.conflict(ask)) {
                return Err(conflict);
            }
            let dynamic = asks.iter().zip(&ports).filter(|(ask, _)| ask.fixed.is_none()).map(|(_, port)| port.value);
            let again = held.held_of(dynamic);
            if again.is_empty() {
                held.add(holder, &ports);
                self.count(&held);
                return Ok(ports);
            }
            lost.extend(again);
        }
    }

    /// A free port for each request. Another alloc may get it before it is held.
    fn free(
        &self,
        holder: &PortHolder,
        asks: &[PortAsk],
        before: &[AllocPort],
        lost: &BTreeSet<u16>,
    ) -> Result<Vec<AllocPort>, PortConflict> {
        for ask in asks {
            if let Some(conflict) = self.conflict(ask, &|_| false) {
                return Err(conflict);
            }
        }
        let mut given: BTreeSet<u16> = asks.iter().filter_map(|ask| ask.fixed).chain(lost.iter().copied()).collect();
        let mut ports = Vec::with_capacity(asks.len());
        for ask in asks {
            let value = match ask.fixed {
                Some(value) => value,
                None => {
                    let had = before.iter().find(|port| port.label == ask.label && port.task == ask.task);
                    let value = self.dynamic(&given, holder, ask, had.map(|port| port.value))?;
                    given.insert(value);
                    value
                }
            };
            let (label, task) = (ask.label.clone(), ask.task.clone());
            ports.push(AllocPort { label, value, to: ask.to.of(value), host_ip: ask.host_ip, task });
        }
        Ok(ports)
    }

    /// A different port of the range for each label of each alloc, so that a port that was just released is rarely the
    /// next.
    fn dynamic(
        &self,
        given: &BTreeSet<u16>,
        holder: &PortHolder,
        ask: &PortAsk,
        before: Option<u16>,
    ) -> Result<u16, PortConflict> {
        let range = self.config.dynamic_ports;
        let (first, last) = (u64::from(range.0), u64::from(range.1));
        let mut hasher = DefaultHasher::new();
        (holder.alloc.as_str(), &ask.label, ask.task.as_ref().map(TaskName::as_str)).hash(&mut hasher);
        let (start, size) = (hasher.finish(), last - first + 1);
        let all = (0..size).filter_map(|step| u16::try_from(first + start.wrapping_add(step) % size).ok());
        let is_free = |port: &u16| {
            let _testing = lock(&self.testing);
            let is_held = lock(&self.held).by_port.contains_key(port);
            !is_held && !given.contains(port) && !self.in_use.is_used(*port)
        };
        let again = before.filter(|port| (range.0..=range.1).contains(port));
        let found = again.into_iter().chain(all).find(is_free);
        found.ok_or_else(|| PortConflict::Exhausted { label: ask.label.clone(), range })
    }

    /// The conflict of a static port.
    fn conflict(&self, ask: &PortAsk, leaves: &dyn Fn(&PortHolder) -> bool) -> Option<PortConflict> {
        let port = ask.fixed.filter(|_| !ask.ignore_collision)?;
        let held = lock(&self.held).conflict(ask);
        if let Some((owner, conflict)) = held {
            // Its program uses the port as well.
            return Some(conflict).filter(|_| !leaves(&owner));
        }
        let _testing = lock(&self.testing);
        let user = self.in_use.user(SocketAddr::new(ask.host_ip, port))?;
        Some(PortConflict::Program { label: ask.label.clone(), port, user })
    }

    /// Static ports that an alloc of a job could not reserve now. Ports of the job's own allocs count as free: those
    /// end first.
    pub fn conflicts(&self, job: &JobId, asks: &[PortAsk]) -> Vec<(PortAsk, PortConflict)> {
        let leaves = |owner: &PortHolder| owner.job == *job;
        asks.iter().filter_map(|ask| Some((ask.clone(), self.conflict(ask, &leaves)?))).collect()
    }

    /// After a restart of the agent: holds the recorded ports of an alloc that may run, whatever others hold.
    ///
    /// Errors: another alloc holds one of them too.
    pub fn hold(&self, holder: &PortHolder, ports: &[AllocPort]) -> Result<(), PortConflict> {
        let mut held = lock(&self.held);
        if held.by_alloc.contains_key(&holder.alloc) {
            return Ok(());
        }
        let conflict = ports.iter().find_map(|port| {
            let mut holders = held.by_port.get(&port.value)?.iter();
            let owner = holders.find(|one| one.ip == port.host_ip)?.owner.clone();
            Some(PortConflict::Alloc { label: port.label.clone(), port: port.value, owner })
        });
        held.add(holder, ports);
        self.count(&held);
        conflict.map_or(Ok(()), Err)
    }

    /// The ports that an alloc holds. `None`: it holds none.
    pub fn held_by(&self, alloc: &AllocId) -> Option<Vec<AllocPort>> {
        lock(&self.held).by_alloc.get(alloc).cloned()
    }

    /// Tests the ports of an alloc, none of whose processes runs: those that another program uses, with the program.
    /// Blocks for some system calls per port; only the programs of the first few ports are looked up.
    pub fn taken(&self, alloc: &AllocId, asks: &[PortAsk]) -> Vec<(AllocPort, String)> {
        let mut taken = Vec::new();
        for port in self.held_by(alloc).unwrap_or_default() {
            let Some(ask) = ask_of(asks, &port) else { continue };
            let is_named = taken.len() < NAMED;
            let user = is_named.then(|| self.in_use.user(SocketAddr::new(port.host_ip, port.value))).flatten();
            // A task with a dynamic port may bind it at all addresses.
            let is_tested_anywhere = ask.fixed.is_none() || !is_named;
            if user.is_some() || (is_tested_anywhere && self.in_use.is_used(port.value)) {
                taken.push((port, user.unwrap_or_else(|| "another program".to_owned())));
            }
        }
        taken
    }

    /// Finds free ports for the dynamic ones of these. The alloc gets them with [`PortKeeper::exchange`]. Blocks for some
    /// system calls per port of the range, once for all if none is free.
    pub fn replacements(
        &self,
        holder: &PortHolder,
        asks: &[PortAsk],
        taken: &[(AllocPort, String)],
        lost: &PortsLost,
    ) -> Vec<PortReplacement> {
        let (mut given, mut is_exhausted) = (lost.0.clone(), false);
        let one = |(port, user): &(AllocPort, String)| {
            let new = ask_of(asks, port).filter(|ask| ask.fixed.is_none()).map(|ask| {
                let range = self.config.dynamic_ports;
                let found = match is_exhausted {
                    true => Err(PortConflict::Exhausted { label: ask.label.clone(), range }),
                    false => self.dynamic(&given, holder, ask, None),
                };
                is_exhausted = found.is_err();
                given.extend(found.as_ref().ok());
                found
            });
            PortReplacement { lost: port.clone(), user: user.clone(), new }
        };
        taken.iter().map(one).collect()
    }

    /// Replaces ports of an alloc. Returns its ports now, and what became of each of the given ones, in a sentence for
    /// people. `None`: the alloc holds no ports. Tests no port.
    ///
    /// Errors: another alloc has got one of the new ports since. Nothing is replaced then.
    pub fn exchange(
        &self,
        holder: &PortHolder,
        asks: &[PortAsk],
        replacements: &[PortReplacement],
    ) -> Result<Option<(Vec<AllocPort>, String)>, PortsLost> {
        let mut held = lock(&self.held);
        let Some(mut ports) = held.by_alloc.get(&holder.alloc).cloned() else { return Ok(None) };
        let new = replacements.iter().filter_map(|one| one.new.as_ref()?.as_ref().ok().copied());
        let lost = held.held_of(new);
        if !lost.is_empty() {
            return Err(PortsLost(lost));
        }
        let (mut is_new, mut said) = (false, Vec::new());
        for PortReplacement { lost, user, new } in replacements {
            let Some(port) = ports.iter_mut().find(|port| *port == lost) else { continue };
            let (label, user) = (lost.label.clone(), user.clone());
            let conflict = PortConflict::Program { label, port: lost.value, user };
            match new {
                None => said.push(conflict.to_string()),
                Some(Err(none)) => said.push(format!("{conflict}; {none}")),
                Some(Ok(value)) => {
                    let to = ask_of(asks, port).map_or(port.to, |ask| ask.to.of(*value));
                    (port.value, port.to, is_new) = (*value, to, true);
                    said.push(format!("{conflict}; the alloc has port {value} instead"));
                }
            }
        }
        held.remove(&holder.alloc);
        held.add(holder, &ports);
        self.count(&held);
        drop(held);
        if is_new {
            self.released.send_replace(());
        }
        let more = said.len().saturating_sub(NAMED);
        said.truncate(NAMED);
        let rest = if more > 0 { format!("; and {more} more") } else { String::new() };
        Ok(Some((ports, said.join("; ") + &rest)))
    }

    /// Idempotent.
    pub fn release(&self, alloc: &AllocId) {
        let mut held = lock(&self.held);
        if held.remove(alloc) {
            self.count(&held);
            self.released.send_replace(());
        }
    }

    fn count(&self, held: &HeldPorts) {
        let (first, last) = self.config.dynamic_ports;
        let dynamic = if first <= last { held.by_port.range(first..=last).count() } else { 0 };
        self.metrics.held(PortRange::Dynamic, dynamic);
        self.metrics.held(PortRange::Other, held.by_port.len() - dynamic);
    }

    /// Changes when ports are released.
    pub fn releases(&self) -> watch::Receiver<()> {
        self.released.subscribe()
    }
}

impl HeldPorts {
    /// The alloc that holds this static port.
    fn conflict(&self, ask: &PortAsk) -> Option<(PortHolder, PortConflict)> {
        let port = ask.fixed.filter(|_| !ask.ignore_collision)?;
        let mut holders = self.by_port.get(&port).into_iter().flatten();
        let is_same =
            |one: &&HeldPort| one.ip == ask.host_ip || one.ip.is_unspecified() || ask.host_ip.is_unspecified();
        let owner = holders.find(is_same)?.owner.clone();
        let conflict = PortConflict::Alloc { label: ask.label.clone(), port, owner: owner.clone() };
        Some((owner, conflict))
    }
    /// Those of these ports that are held.
    fn held_of(&self, ports: impl Iterator<Item = u16>) -> BTreeSet<u16> {
        ports.filter(|port| self.by_port.contains_key(port)).collect()
    }
    fn add(&mut self, holder: &PortHolder, ports: &[AllocPort]) {
        if ports.is_empty() {
            return;
        }
        for port in ports {
            let held = HeldPort { ip: port.host_ip, owner: holder.clone() };
            self.by_port.entry(port.value).or_default().push(held);
        }
        self.by_alloc.insert(holder.alloc.clone(), ports.to_vec());
    }
    fn remove(&mut self, alloc: &AllocId) -> bool {
        let Some(ports) = self.by_alloc.remove(alloc) else { return false };
        for port in ports {
            if let Some(holders) = self.by_port.get_mut(&port.value) {
                holders.retain(|one| one.owner.alloc != *alloc);
                if holders.is_empty() {
                    self.by_port.remove(&port.value);
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests;
