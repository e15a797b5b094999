//! Reserves devices for tasks: selected from the table, completed by the plugins.
//!
//! ```text
//! reserve ── table (at once) ──► plugins (each with a deadline, on another thread) ──► IDs, variables, nodes
//!                 ▲ freed ◄────────────── one fails
//! ```
//! Concurrency: any task may call. A caller that drops the future of `reserve` must free the holder.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::choose::ChooseError;
use super::plugin::{DevicePlugin, PluginError, PluginFault};
use super::reservations::{ReservationConflict, Reservations};
use crate::model::demand::DeviceRequest;
use crate::model::device::{DeviceGroup, DeviceHolder, DeviceReservation, ReservedDevices};
use crate::model::device_used::DeviceUsed;
use crate::model::id::DeviceId;
use crate::telemetry::lock;

/// Deadline for a plugin's answer to a reservation.
const ANSWER: Duration = Duration::from_secs(10);
/// Maximum wait for the first report of the plugins.
const FIRST: Duration = Duration::from_secs(10);
const RETRY_EVERY: Duration = Duration::from_millis(50);

/// A device group and its plugin.
pub type OwnedGroup = (Arc<dyn DevicePlugin>, DeviceGroup);

/// The devices that the plugins report.
pub trait DeviceInventory: Send + Sync {
    fn groups(&self) -> Vec<OwnedGroup>;
    /// Whether each plugin has reported or failed.
    fn is_complete(&self) -> bool;
    /// The usage of devices by a task so far.
    fn used(&self, holder: &DeviceHolder) -> Vec<DeviceUsed>;
}

/// Why a task gets no devices.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReserveError {
    #[error(transparent)]
    ChooseError(#[from] ChooseError),
    /// The task holds it, but no plugin lists it.
    #[error("device {0} is gone")]
    Unknown(DeviceId),
    #[error("device plugin {plugin} failed to reserve: {error}")]
    Plugin { plugin: String, error: PluginError },
}

/// Reserves devices for tasks, and asks their plugins how to use them.
pub struct ReservationKeeper {
    inventory: Arc<dyn DeviceInventory>,
    table: Mutex<Reservations>,
    /// One call at a time per plugin name: a plugin that hangs blocks one thread.
    questions: Mutex<BTreeMap<String, Arc<Semaphore>>>,
}

impl ReservationKeeper {
    pub fn new(inventory: Arc<dyn DeviceInventory>) -> ReservationKeeper {
        ReservationKeeper { inventory, table: Mutex::default(), questions: Mutex::default() }
    }

    /// Reserves all requested devices or none. Repeated for the same holder it returns the same devices.
    ///
    /// Errors: the devices are not available, or a plugin failed; the holder has none then.
    pub async fn reserve(
        &self,
        holder: &DeviceHolder,
        requests: &[DeviceRequest],
    ) -> Result<ReservedDevices, ReserveError> {
        let until = Instant::now() + FIRST;
        while !self.inventory.is_complete() && Instant::now() < until {
            tokio::time::sleep(RETRY_EVERY).await;
        }
        let owned = self.inventory.groups();
        let groups: Vec<&DeviceGroup> = owned.iter().map(|(_, group)| group).collect();
        let ids = lock(&self.table).reserve(holder, requests, &groups)?;
        let with = self.call_plugins(&owned, &ids).await;
        if with.is_err() {
            self.free(holder);
        }
        with.map(|with| ReservedDevices { denied_nodes: unneeded_nodes(&groups, &ids, &with), ids, with })
    }

    /// Restores the recorded devices of an attempt that may still run. Errors: another task holds one of them; nothing
    /// changes.
    pub fn hold(&self, holder: &DeviceHolder, ids: &[DeviceId]) -> Result<(), ReservationConflict> {
        lock(&self.table).hold(holder, ids)
    }
    /// Idempotent.
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

    /// Calls each plugin once, for all of its devices.
    async fn call_plugins(&self, owned: &[OwnedGroup], ids: &[DeviceId]) -> Result<DeviceReservation, ReserveError> {
        let mut shares: BTreeMap<String, (Arc<dyn DevicePlugin>, Vec<DeviceId>)> = BTreeMap::new();
        for id in ids {
            let has = |(_, group): &&OwnedGroup| group.devices.iter().any(|device| device.id == *id);
            let Some((plugin, _)) = owned.iter().find(has) else { return Err(ReserveError::Unknown(id.clone())) };
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
            let request = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                plugin.reserve(&ids)
            });
            request.await.unwrap_or_else(|e| Err(PluginError::new(PluginFault::Failed, format!("internal error: {e}"))))
        };
        let late = || PluginError::new(PluginFault::Timeout, format!("no answer within {ANSWER:?}"));
        tokio::time::timeout(ANSWER, answer).await.unwrap_or_else(|_| Err(late()))
    }
}

/// Device nodes of other devices that the task does not need.
fn unneeded_nodes(groups: &[&DeviceGroup], ids: &[DeviceId], with: &DeviceReservation) -> Vec<String> {
    let devices = || groups.iter().flat_map(|group| &group.devices);
    let own = devices().filter(|device| ids.contains(&device.id)).flat_map(|device| &device.facts.nodes);
    let own: BTreeSet<&String> = own.chain(with.nodes.iter().map(|node| &node.host_path)).collect();
    let all: BTreeSet<&String> = devices().flat_map(|device| &device.facts.nodes).collect();
    all.difference(&own).map(|node| (*node).clone()).collect()
}

#[cfg(test)]
#[path = "keeper_tests.rs"]
mod tests;
