//! Gives devices to tasks: what is free by the table, what comes with it by the plugin.
//!
//! ```text
//! reserve ── table (at once) ──► plugins (each within a deadline, on another thread) ──► ids, variables, nodes
//!                 ▲ freed ◄────────────── one fails
//! ```
//! Concurrency: every call from any task. Whoever drops a `reserve` frees what it may have taken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::choose::Refused;
use super::plugin::{DevicePlugin, PluginError, PluginFault};
use super::reservations::{Conflict, Reservations};
use crate::model::demand::DeviceRequest;
use crate::model::device::{DeviceGroup, DeviceHolder, DeviceReservation, ReservedDevices};
use crate::model::device_used::DeviceUsed;
use crate::model::id::DeviceId;
use crate::telemetry::lock;

/// How long a plugin may take to say what comes with its devices.
const ANSWER: Duration = Duration::from_secs(10);
/// How long a task waits for plugins that have said nothing yet.
const FIRST: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(50);

/// Devices of one make, and the plugin whose they are.
pub type Owned = (Arc<dyn DevicePlugin>, DeviceGroup);

/// What there is, as the plugins have it.
pub trait Inventory: Send + Sync {
    fn groups(&self) -> Vec<Owned>;
    /// Each plugin has said what it has, or that it cannot.
    fn is_complete(&self) -> bool;
    /// What a task has used of devices up to now.
    fn used(&self, holder: &DeviceHolder) -> Vec<DeviceUsed>;
}

/// Why a task gets no devices.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReserveError {
    #[error(transparent)]
    Refused(#[from] Refused),
    /// It holds them, and no plugin has them any more.
    #[error("the device {0} is gone")]
    Gone(DeviceId),
    #[error("the device plugin {plugin} does not give its devices: {error}")]
    Plugin { plugin: String, error: PluginError },
}

pub struct Keeper {
    inventory: Arc<dyn Inventory>,
    table: Mutex<Reservations>,
    /// One question at a time of each plugin, by its name: one that hangs keeps one thread.
    questions: Mutex<BTreeMap<String, Arc<Semaphore>>>,
}

impl Keeper {
    pub fn new(inventory: Arc<dyn Inventory>) -> Keeper {
        Keeper { inventory, table: Mutex::default(), questions: Mutex::default() }
    }

    /// All that is asked for, or nothing. Asked again by who holds devices, it gives the same.
    ///
    /// Errors: they cannot be had, or a plugin does not give them; then it holds none.
    pub async fn reserve(
        &self,
        holder: &DeviceHolder,
        requests: &[DeviceRequest],
    ) -> Result<ReservedDevices, ReserveError> {
        let until = Instant::now() + FIRST;
        while !self.inventory.is_complete() && Instant::now() < until {
            tokio::time::sleep(LOOK).await;
        }
        let owned = self.inventory.groups();
        let groups: Vec<&DeviceGroup> = owned.iter().map(|(_, group)| group).collect();
        let ids = lock(&self.table).reserve(holder, requests, &groups)?;
        let with = self.ask(&owned, &ids).await;
        if with.is_err() {
            self.free(holder);
        }
        with.map(|with| ReservedDevices { denied_nodes: others(&groups, &ids, &with), ids, with })
    }

    /// What is on record of an attempt that may run. Errors: somebody else holds one of them; it holds what it held.
    pub fn hold(&self, holder: &DeviceHolder, ids: &[DeviceId]) -> Result<(), Conflict> {
        lock(&self.table).hold(holder, ids)
    }
    /// Repeating it does no harm.
    pub fn free(&self, holder: &DeviceHolder) {
        lock(&self.table).free(holder);
    }
    pub fn holder(&self, device: &DeviceId) -> Option<DeviceHolder> {
        lock(&self.table).holder(device).cloned()
    }
    pub fn held_by(&self, holder: &DeviceHolder) -> Vec<DeviceId> {
        lock(&self.table).held_by(holder).to_vec()
    }

    pub fn used(&self, holder: &DeviceHolder) -> Vec<DeviceUsed> {
        self.inventory.used(holder)
    }

    /// Each plugin once, for all of its own.
    async fn ask(&self, owned: &[Owned], ids: &[DeviceId]) -> Result<DeviceReservation, ReserveError> {
        let mut shares: BTreeMap<String, (Arc<dyn DevicePlugin>, Vec<DeviceId>)> = BTreeMap::new();
        for id in ids {
            let has = |(_, group): &&Owned| group.devices.iter().any(|device| device.id == *id);
            let Some((plugin, _)) = owned.iter().find(has) else { return Err(ReserveError::Gone(id.clone())) };
            let share = shares.entry(plugin.name().to_owned());
            share.or_insert_with(|| (Arc::clone(plugin), Vec::new())).1.push(id.clone());
        }
        let mut all = DeviceReservation::default();
        for (name, (plugin, ids)) in shares {
            let answer = self.answer(&name, plugin, ids).await;
            let one = answer.map_err(|error| ReserveError::Plugin { plugin: name, error })?;
            all.env.extend(one.env);
            all.nodes.extend(one.nodes);
            all.mounts.extend(one.mounts);
        }
        Ok(all)
    }

    async fn answer(
        &self,
        name: &str,
        plugin: Arc<dyn DevicePlugin>,
        ids: Vec<DeviceId>,
    ) -> Result<DeviceReservation, PluginError> {
        let turn =
            Arc::clone(lock(&self.questions).entry(name.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(1))));
        let answer = async {
            let turn = turn.acquire_owned().await;
            let asked = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                plugin.reserve(&ids)
            });
            asked
                .await
                .unwrap_or_else(|e| Err(PluginError::new(PluginFault::Failed, format!("an internal error: {e}"))))
        };
        let late = || PluginError::new(PluginFault::Timeout, format!("it does not answer within {ANSWER:?}"));
        tokio::time::timeout(ANSWER, answer).await.unwrap_or_else(|_| Err(late()))
    }
}

/// Nodes of devices that are not among these, and that these do not need.
fn others(groups: &[&DeviceGroup], ids: &[DeviceId], with: &DeviceReservation) -> Vec<String> {
    let devices = || groups.iter().flat_map(|group| &group.devices);
    let own = devices().filter(|device| ids.contains(&device.id)).flat_map(|device| &device.facts.nodes);
    let own: BTreeSet<&String> = own.chain(with.nodes.iter().map(|node| &node.host_path)).collect();
    let all: BTreeSet<&String> = devices().flat_map(|device| &device.facts.nodes).collect();
    all.difference(&own).map(|node| (*node).clone()).collect()
}

#[cfg(test)]
#[path = "keeper_tests.rs"]
mod tests;
