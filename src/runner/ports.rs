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
//! and held afterwards, if no other alloc has got it meanwhile. The name of a program is looked up apart from the tests
//! ([`PortKeeper::programs`]): that takes longer still, and no other alloc waits for it.

mod searches;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::sync::watch;

use self::searches::{NAMED, Searches};
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
    /// Whether a program uses it at this address.
    fn is_used_at(&self, at: SocketAddr) -> bool;
    /// Whether a program uses it at any address.
    fn is_used(&self, port: u16) -> bool;
    /// The program that uses it at this address. `None`: not found until then.
    fn user(&self, at: SocketAddr, until: Instant) -> Option<String>;
}

/// Ports in the host's own network namespace.
#[derive(Default)]
pub struct HostPorts(Roots);

impl PortsInUse for HostPorts {
    fn is_used_at(&self, at: SocketAddr) -> bool {
        ports::is_bound(at)
    }
    fn is_used(&self, port: u16) -> bool {
        ports::is_bound_anywhere(port)
    }
    fn user(&self, at: SocketAddr, until: Instant) -> Option<String> {
        ports::user_of(&self.0, at, until)
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
pub struct NeededPort {
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
    #[error("port {} ({label}) is in use by {}", at.port(), user.as_deref().unwrap_or("another program"))]
    Program {
        label: String,
        at: SocketAddr,
        /// `None`: not looked up, or not found.
        user: Option<String>,
    },
    #[error("no dynamic port is free for {label}: each from {} to {} is held or in use", range.0, range.1)]
    Exhausted { label: String, range: (u16, u16) },
}

impl PortConflict {
    /// Where a program uses the port.
    pub fn program_at(&self) -> Option<SocketAddr> {
        match self {
            PortConflict::Program { at, .. } => Some(*at),
            PortConflict::Alloc { .. } | PortConflict::Exhausted { .. } => None,
        }
    }
    /// The same conflict with this name of its program.
    pub fn with_user(self, user: Option<String>) -> PortConflict {
        match self {
            PortConflict::Program { label, at, .. } => PortConflict::Program { label, at, user },
            other => other,
        }
    }
    /// Whether this was not reported yet. A program whose name was not found now is no news.
    pub fn differs_from(&self, reported: Option<&PortConflict>) -> bool {
        let is_same = |one: &PortConflict| one == self || one.clone().with_user(None) == *self;
        !reported.is_some_and(is_same)
    }
}

/// The request that a held port answers, unless others may have the port as well.
fn needed_for<'a>(needed: &'a [NeededPort], port: &AllocPort) -> Option<&'a NeededPort> {
    needed.iter().find(|need| need.label == port.label && need.task == port.task && !need.ignore_collision)
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

/// A port of an alloc that another program uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenPort {
    port: AllocPort,
    /// `None`: not looked up, or not found.
    user: Option<String>,
}

impl TakenPort {
    pub fn at(&self) -> SocketAddr {
        SocketAddr::new(self.port.host_ip, self.port.value)
    }
    pub fn with_user(self, user: Option<String>) -> TakenPort {
        TakenPort { user, ..self }
    }
}

/// A port of an alloc that another program uses, and what the alloc gets for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortReplacement {
    old: TakenPort,
    /// `None`: the port is static, or others may have it as well.
    new: Option<Result<u16, PortConflict>>,
}

/// Ports that a search found free, and that another alloc has got before they were held.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortsHeldMeanwhile(BTreeSet<u16>);

impl PortsHeldMeanwhile {
    pub fn add(&mut self, more: PortsHeldMeanwhile) {
        self.0.extend(more.0);
    }
}

/// The ports that [`PortKeeper::reserve`] returns.
#[derive(Debug, PartialEq, Eq)]
pub struct Reservation {
    pub ports: Vec<AllocPort>,
    /// The number of this reservation, if it added the ports. `None`: the alloc held them already.
    added: Option<u64>,
}

/// Concurrency: any thread. [`PortKeeper::reserve`], [`PortKeeper::conflicts`], [`PortKeeper::taken`] and
/// [`PortKeeper::replacements`] block for some system calls per port of the range, and never hold `held` meanwhile.
/// They run in [`PortKeeper::search`].
pub struct PortKeeper {
    config: NetworkConfig,
    in_use: Arc<dyn PortsInUse>,
    held: Mutex<HeldPorts>,
    /// Serializes tests of ports: a test binds the port, and a concurrent one would report it as used by a program.
    /// Held for the test of one port, and not while a program is looked up. Lock order: before `held`.
    testing: Mutex<()>,
    searches: Searches,
    /// Notifies of released ports.
    released: watch::Sender<()>,
    metrics: PortMetrics,
}

#[derive(Default)]
struct HeldPorts {
    by_port: BTreeMap<u16, Vec<HeldPort>>,
    by_alloc: BTreeMap<AllocId, Vec<AllocPort>>,
    /// The reservation that added the ports of an alloc, as long as no other one has returned them.
    added_by: BTreeMap<AllocId, u64>,
    /// Number of reservations that added ports.
    reservations: u64,
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
        let (searches, released) = (Searches::new(), watch::Sender::new(()));
        PortKeeper { config, in_use, held, testing, searches, released, metrics }
    }

    /// Runs tests of ports on a thread, one caller at a time. They go on if the caller stops waiting.
    ///
    /// Errors: they panicked, or the runtime is shutting down.
    pub async fn search<T: Send + 'static>(
        self: &Arc<Self>,
        tests: impl FnOnce(&Arc<PortKeeper>) -> T + Send + 'static,
    ) -> Result<T, String> {
        let keeper = Arc::clone(self);
        self.searches.test(move || tests(&keeper)).await
    }
    /// The programs that use ports at these addresses. `None`: not found within a second, or not looked up: only those
    /// of the first few ports are.
    pub async fn programs(&self, at: Vec<SocketAddr>) -> Vec<Option<String>> {
        let in_use = Arc::clone(&self.in_use);
        self.searches.programs(at, move |at, until| in_use.user(at, until)).await
    }

    /// The ports that an alloc of this group needs on a host with these attributes.
    ///
    /// Errors: the first port whose network this host does not have.
    pub fn needed_ports(
        &self,
        group: &TaskGroup,
        node: &NodeInfo,
        known: &Attributes,
    ) -> Result<Vec<NeededPort>, UnknownHostNetwork> {
        let named = |name: &str| match name.starts_with("${") {
            true => NodeValues::new(node, known).text_of(name).unwrap_or_else(|| name.to_owned()),
            false => name.to_owned(),
        };
        let needed = |(task, port): (Option<&TaskName>, &PortRequest)| {
            let network = port.host_network.as_deref().map(named);
            let host_ip = self.address(network.as_deref(), known).ok_or_else(|| UnknownHostNetwork {
                label: port.label.clone(),
                task: task.cloned(),
                name: network.unwrap_or_default(),
                known: self.networks(),
            })?;
            Ok(NeededPort {
                label: port.label.clone(),
                task: task.cloned(),
                fixed: port.fixed,
                to: port.to,
                host_ip,
                ignore_collision: port.ignore_collision,
            })
        };
        group.port_requests().map(needed).collect()
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
    /// Errors: the first port that is not available now. A program that uses it is not named.
    pub fn reserve(
        &self,
        holder: &PortHolder,
        needed: &[NeededPort],
        before: &[AllocPort],
    ) -> Result<Reservation, PortConflict> {
        // Each turn adds a port: it ends with the range.
        let mut meanwhile = PortsHeldMeanwhile::default();
        loop {
            if let Some(reservation) = lock(&self.held).again(&holder.alloc) {
                return Ok(reservation);
            }
            let ports = self.free(holder, needed, before, &meanwhile)?;
            let mut held = lock(&self.held);
            if let Some(reservation) = held.again(&holder.alloc) {
                return Ok(reservation);
            }
            if let Some((_, conflict)) = needed.iter().find_map(|need| held.conflict(need)) {
                return Err(conflict);
            }
            let dynamic =
                needed.iter().zip(&ports).filter(|(need, _)| need.fixed.is_none()).map(|(_, port)| port.value);
            let more = held.held_of(dynamic);
            if more.0.is_empty() {
                held.add(holder, &ports);
                let added = (!ports.is_empty()).then(|| held.number(&holder.alloc));
                self.count(&held);
                return Ok(Reservation { ports, added });
            }
            meanwhile.add(more);
        }
    }

    /// Takes back a reservation that has no owner any more: releases the ports that it added, unless another
    /// reservation of the alloc has returned them since.
    pub fn take_back(&self, alloc: &AllocId, reservation: &Reservation) {
        let mut held = lock(&self.held);
        let is_own = reservation.added.is_some() && held.added_by.get(alloc).copied() == reservation.added;
        if is_own && held.remove(alloc) {
            self.count(&held);
            self.released.send_replace(());
        }
    }

    /// A free port for each request. Another alloc may get it before it is held.
    fn free(
        &self,
        holder: &PortHolder,
        needed: &[NeededPort],
        before: &[AllocPort],
        meanwhile: &PortsHeldMeanwhile,
    ) -> Result<Vec<AllocPort>, PortConflict> {
        for need in needed {
            if let Some(conflict) = self.conflict(need, &|_| false) {
                return Err(conflict);
            }
        }
        let fixed = needed.iter().filter_map(|need| need.fixed);
        let mut given: BTreeSet<u16> = fixed.chain(meanwhile.0.iter().copied()).collect();
        let mut ports = Vec::with_capacity(needed.len());
        for need in needed {
            let value = match need.fixed {
                Some(value) => value,
                None => {
                    let had = before.iter().find(|port| port.label == need.label && port.task == need.task);
                    let value = self.dynamic(&given, holder, need, had.map(|port| port.value))?;
                    given.insert(value);
                    value
                }
            };
            let (label, task) = (need.label.clone(), need.task.clone());
            ports.push(AllocPort { label, value, to: need.to.of(value), host_ip: need.host_ip, task });
        }
        Ok(ports)
    }

    /// A different port of the range for each label of each alloc, so that a port that was just released is rarely the
    /// next.
    fn dynamic(
        &self,
        given: &BTreeSet<u16>,
        holder: &PortHolder,
        needed: &NeededPort,
        before: Option<u16>,
    ) -> Result<u16, PortConflict> {
        let range = self.config.dynamic_ports;
        let (first, last) = (u64::from(range.0), u64::from(range.1));
        let mut hasher = DefaultHasher::new();
        (holder.alloc.as_str(), &needed.label, needed.task.as_ref().map(TaskName::as_str)).hash(&mut hasher);
        let (start, size) = (hasher.finish(), last - first + 1);
        let all = (0..size).filter_map(|step| u16::try_from(first + start.wrapping_add(step) % size).ok());
        let is_free = |port: &u16| {
            let _testing = lock(&self.testing);
            let is_held = lock(&self.held).by_port.contains_key(port);
            !is_held && !given.contains(port) && !self.in_use.is_used(*port)
        };
        let again = before.filter(|port| (range.0..=range.1).contains(port));
        let found = again.into_iter().chain(all).find(is_free);
        found.ok_or_else(|| PortConflict::Exhausted { label: needed.label.clone(), range })
    }

    /// The conflict of a static port.
    fn conflict(&self, needed: &NeededPort, leaves: &dyn Fn(&PortHolder) -> bool) -> Option<PortConflict> {
        let port = needed.fixed.filter(|_| !needed.ignore_collision)?;
        let held = lock(&self.held).conflict(needed);
        if let Some((owner, conflict)) = held {
            // Its program uses the port as well.
            return Some(conflict).filter(|_| !leaves(&owner));
        }
        let at = SocketAddr::new(needed.host_ip, port);
        let _testing = lock(&self.testing);
        let is_used = self.in_use.is_used_at(at);
        is_used.then(|| PortConflict::Program { label: needed.label.clone(), at, user: None })
    }

    /// Static ports that an alloc of a job could not reserve now. Ports of the job's own allocs count as free: those
    /// end first. Programs are not named.
    pub fn conflicts(&self, job: &JobId, needed: &[NeededPort]) -> Vec<(NeededPort, PortConflict)> {
        let leaves = |owner: &PortHolder| owner.job == *job;
        needed.iter().filter_map(|need| Some((need.clone(), self.conflict(need, &leaves)?))).collect()
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

    /// Tests the ports of an alloc, none of whose processes runs: those that another program uses. Blocks for some
    /// system calls per port. The programs are not named.
    pub fn taken(&self, alloc: &AllocId, needed: &[NeededPort]) -> Vec<TakenPort> {
        let is_taken = |port: &AllocPort| {
            let Some(need) = needed_for(needed, port) else { return false };
            let _testing = lock(&self.testing);
            // A task with a dynamic port may bind it at all addresses.
            self.in_use.is_used_at(SocketAddr::new(port.host_ip, port.value))
                || (need.fixed.is_none() && self.in_use.is_used(port.value))
        };
        let ports = self.held_by(alloc).unwrap_or_default().into_iter();
        ports.filter(is_taken).map(|port| TakenPort { port, user: None }).collect()
    }

    /// Finds free ports for the dynamic ones of these. The alloc gets them with [`PortKeeper::exchange`]. Blocks for
    /// some system calls per port of the range, once for all if none is free.
    pub fn replacements(
        &self,
        holder: &PortHolder,
        needed: &[NeededPort],
        taken: &[TakenPort],
        meanwhile: &PortsHeldMeanwhile,
    ) -> Vec<PortReplacement> {
        let (mut given, mut is_exhausted) = (meanwhile.0.clone(), false);
        let one = |old: &TakenPort| {
            let new = needed_for(needed, &old.port).filter(|need| need.fixed.is_none()).map(|need| {
                let range = self.config.dynamic_ports;
                let found = match is_exhausted {
                    true => Err(PortConflict::Exhausted { label: need.label.clone(), range }),
                    false => self.dynamic(&given, holder, need, None),
                };
                is_exhausted = found.is_err();
                given.extend(found.as_ref().ok());
                found
            });
            PortReplacement { old: old.clone(), new }
        };
        taken.iter().map(one).collect()
    }

    /// Replaces ports of an alloc. Returns its ports now, and what became of each of the given ones, in a sentence for
    /// people; empty if the alloc has none of the given ones. `None`: the alloc holds no ports. Tests no port.
    ///
    /// Errors: another alloc has got one of the new ports since. Nothing is replaced then.
    pub fn exchange(
        &self,
        holder: &PortHolder,
        needed: &[NeededPort],
        replacements: &[PortReplacement],
    ) -> Result<Option<(Vec<AllocPort>, String)>, PortsHeldMeanwhile> {
        let mut held = lock(&self.held);
        let Some(mut ports) = held.by_alloc.get(&holder.alloc).cloned() else { return Ok(None) };
        let new = replacements.iter().filter_map(|one| one.new.as_ref()?.as_ref().ok().copied());
        let meanwhile = held.held_of(new);
        if !meanwhile.0.is_empty() {
            return Err(meanwhile);
        }
        let (mut is_new, mut text) = (false, Vec::new());
        for PortReplacement { old, new } in replacements {
            let Some(port) = ports.iter_mut().find(|port| **port == old.port) else { continue };
            let (label, user) = (old.port.label.clone(), old.user.clone());
            let conflict = PortConflict::Program { label, at: old.at(), user };
            match new {
                None => text.push(conflict.to_string()),
                Some(Err(none)) => text.push(format!("{conflict}; {none}")),
                Some(Ok(value)) => {
                    let to = needed_for(needed, port).map_or(port.to, |need| need.to.of(*value));
                    (port.value, port.to, is_new) = (*value, to, true);
                    text.push(format!("{conflict}; the alloc has port {value} instead"));
                }
            }
        }
        held.replace(holder, &ports);
        self.count(&held);
        drop(held);
        if is_new {
            self.released.send_replace(());
        }
        let more = text.len().saturating_sub(NAMED);
        text.truncate(NAMED);
        let rest = if more > 0 { format!("; and {more} more") } else { String::new() };
        Ok(Some((ports, text.join("; ") + &rest)))
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
    fn conflict(&self, needed: &NeededPort) -> Option<(PortHolder, PortConflict)> {
        let port = needed.fixed.filter(|_| !needed.ignore_collision)?;
        let mut holders = self.by_port.get(&port).into_iter().flatten();
        let is_same =
            |one: &&HeldPort| one.ip == needed.host_ip || one.ip.is_unspecified() || needed.host_ip.is_unspecified();
        let owner = holders.find(is_same)?.owner.clone();
        let conflict = PortConflict::Alloc { label: needed.label.clone(), port, owner: owner.clone() };
        Some((owner, conflict))
    }
    /// Those of these ports that are held.
    fn held_of(&self, ports: impl Iterator<Item = u16>) -> PortsHeldMeanwhile {
        PortsHeldMeanwhile(ports.filter(|port| self.by_port.contains_key(port)).collect())
    }
    /// The ports that an alloc holds, for one more reservation.
    fn again(&mut self, alloc: &AllocId) -> Option<Reservation> {
        let ports = self.by_alloc.get(alloc).cloned()?;
        self.added_by.remove(alloc);
        Some(Reservation { ports, added: None })
    }
    /// The number of the reservation that added the ports of an alloc now.
    fn number(&mut self, alloc: &AllocId) -> u64 {
        self.reservations += 1;
        self.added_by.insert(alloc.clone(), self.reservations);
        self.reservations
    }
    /// The alloc has these ports in place of its own. They are of the same reservation.
    fn replace(&mut self, holder: &PortHolder, ports: &[AllocPort]) {
        let added_by = self.added_by.get(&holder.alloc).copied();
        self.remove(&holder.alloc);
        self.add(holder, ports);
        self.added_by.extend(added_by.map(|number| (holder.alloc.clone(), number)));
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
        self.added_by.remove(alloc);
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
