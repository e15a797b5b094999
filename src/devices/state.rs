//! State of devices, their holders and users. Plugin reports and the runner's reservations change it; readers get it as
//! a whole.
//!
//! ```text
//! groups  ─► devices: listed or not           changes are reported
//! reading ─► values; tasks of its processes ─► uses
//! board   ─► uses: who holds what, what has ended
//! look    ─► DevicesView: without outdated values; ended uses keep only final values
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::checks;
use super::owners::ProcessOwner;
use super::plugin::{PluginError, PluginFault};
use super::use_journal::RecordedUse;
use super::uses::DeviceUses;
use crate::board::BoardView;
use crate::board::devices::{DeviceView, DevicesView, PluginDown, PluginView};
use crate::model::attribute::Attribute;
use crate::model::device::{Device, DeviceGroup, DeviceHolder, DeviceKind, DeviceProcess, DeviceReading, DeviceUsage};
use crate::model::device_used::DeviceUsed;
use crate::model::id::DeviceId;

/// Minimum age at which a reading is outdated.
const STALE: Duration = Duration::from_secs(10);

/// A change that is reported to users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceChange {
    pub device: DeviceId,
    pub kind: Arc<DeviceKind>,
    /// `up`, `down`, `unhealthy`, `gone`.
    pub now: &'static str,
    pub message: String,
    /// The plugin's reason.
    pub error: Option<String>,
}

/// The devices of all plugins.
#[derive(Debug)]
pub struct DeviceState {
    plugins: Vec<PluginState>,
    devices: BTreeMap<DeviceId, KnownDevice>,
    uses: DeviceUses,
    stale: Duration,
}

/// One plugin, and what it listed last.
#[derive(Debug)]
struct PluginState {
    view: PluginView,
    groups: Vec<DeviceGroup>,
    /// Devices that it listed before.
    left: BTreeSet<DeviceId>,
}

/// One device or instance that was listed once.
#[derive(Debug)]
struct KnownDevice {
    plugin: usize,
    kind: Arc<DeviceKind>,
    attributes: Arc<BTreeMap<String, Attribute>>,
    device: Arc<Device>,
    info: Arc<[(&'static str, String)]>,
    listed: bool,
    stuck: bool,
    /// The last reading, and when it arrived.
    reading: Option<(Arc<DeviceReading>, Instant)>,
    /// Values of the last reading with a response.
    answered: Option<Arc<DeviceUsage>>,
    unowned: Option<u64>,
}

impl DeviceState {
    /// `found`: usage that an earlier agent persisted.
    pub fn new(plugins: impl IntoIterator<Item = String>, tick: Duration, found: Vec<RecordedUse>) -> DeviceState {
        let plugin = |name: String| PluginState {
            view: PluginView { name: name.into(), down: Some(not_reported()), faults: BTreeMap::new() },
            groups: Vec::new(),
            left: BTreeSet::new(),
        };
        DeviceState {
            plugins: plugins.into_iter().map(plugin).collect(),
            devices: BTreeMap::new(),
            uses: DeviceUses::after(found),
            stale: STALE.max(tick * 5),
        }
    }

    /// The groups of running plugins, for reservations.
    pub fn groups(&self) -> impl Iterator<Item = (usize, DeviceGroup)> {
        let running = self.plugins.iter().enumerate().filter(|(_, plugin)| plugin.view.down.is_none());
        running.flat_map(move |(at, plugin)| plugin.groups.iter().map(move |group| (at, self.as_read(group))))
    }

    /// The group with the health from readings: a plugin may list a device that does not respond any more.
    fn as_read(&self, group: &DeviceGroup) -> DeviceGroup {
        let mut group = group.clone();
        for device in group.devices.iter_mut().filter(|device| device.unhealthy.is_none()) {
            let Some(known) = self.devices.get(&device.id) else { continue };
            let answers = known.reading.as_ref().is_none_or(|(reading, _)| reading.up);
            device.unhealthy = match (answers, known.stuck) {
                (false, _) => Some("the device does not respond".to_owned()),
                (true, true) => Some("a call to the driver hangs".to_owned()),
                (true, false) => None,
            };
        }
        group
    }

    /// Whether each plugin has reported or failed.
    pub fn is_complete(&self) -> bool {
        self.plugins.iter().all(|plugin| plugin.view.down.as_ref() != Some(&not_reported()))
    }

    /// Replaces the plugin's list. Errors: the list is invalid and nothing changes.
    pub fn list(&mut self, plugin: usize, groups: Vec<DeviceGroup>) -> Result<Vec<DeviceChange>, PluginError> {
        checks::groups(&groups)?;
        let rest = |id: &DeviceId| self.devices.get(id).filter(|known| known.plugin != plugin && known.listed);
        if let Some(twice) = groups.iter().flat_map(|group| &group.devices).find(|device| rest(&device.id).is_some()) {
            let message = format!("another plugin already lists device {}", twice.id);
            return Err(PluginError::new(PluginFault::Invalid, message));
        }
        self.plugins[plugin].view.down = None;
        self.uses.invalidate();
        let mut changes = Vec::new();
        let mut listed = BTreeSet::new();
        for group in &groups {
            let (kind, shared) = (Arc::new(group.kind.clone()), Arc::new(group.attributes.clone()));
            for device in &group.devices {
                listed.insert(device.id.clone());
                let mut attributes = Arc::clone(&shared);
                if !device.attributes.is_empty() {
                    Arc::make_mut(&mut attributes).extend(device.attributes.clone());
                }
                changes.extend(self.take(plugin, &kind, &attributes, device));
            }
        }
        changes.extend(self.miss(plugin, &listed));
        self.plugins[plugin].groups = groups;
        Ok(changes)
    }

    fn take(
        &mut self,
        plugin: usize,
        kind: &Arc<DeviceKind>,
        attributes: &Arc<BTreeMap<String, Attribute>>,
        device: &Device,
    ) -> Option<DeviceChange> {
        // Removes the device that was at this PCI address before: a reset may give a new ID.
        let place = &device.facts.pci_bus_id;
        let replaced: Vec<DeviceId> = if place.is_empty() || device.facts.parent.is_some() {
            Vec::new()
        } else {
            let same = |known: &&KnownDevice| {
                known.device.facts.pci_bus_id == *place
                    && known.device.id != device.id
                    && known.plugin == plugin
                    && known.device.facts.parent.is_none()
            };
            self.devices.values().filter(same).map(|known| known.device.id.clone()).collect()
        };
        for id in replaced {
            self.devices.remove(&id);
            self.plugins[plugin].left.insert(id);
        }
        let name = Arc::clone(&self.plugins[plugin].view.name);
        let before = self.devices.get(&device.id);
        let reported = before.map(|known| (known.listed, known.device.unhealthy.clone()));
        if before.is_none_or(|known| *known.device != *device || known.kind != *kind) {
            let (reading, answered) =
                before.map_or((None, None), |known| (known.reading.clone(), known.answered.clone()));
            let stuck = before.is_some_and(|known| known.stuck);
            let known = KnownDevice {
                plugin,
                kind: Arc::clone(kind),
                attributes: Arc::clone(attributes),
                device: Arc::new(device.clone()),
                info: info(&name, kind, device),
                listed: true,
                stuck,
                reading,
                answered,
                unowned: None,
            };
            self.devices.insert(device.id.clone(), known);
        } else if let Some(known) = self.devices.get_mut(&device.id) {
            known.listed = true;
            known.attributes = Arc::clone(attributes);
        }
        let change = |now, message: String| {
            let error = device.unhealthy.clone();
            Some(DeviceChange { device: device.id.clone(), kind: Arc::clone(kind), now, message, error })
        };
        match (reported, &device.unhealthy) {
            (None, None) => change("up", format!("device {} ({kind}) is available", device.id)),
            (Some((true, None)), None) => None,
            (Some(_), None) => change("up", format!("device {} ({kind}) is healthy again", device.id)),
            (Some((true, Some(before))), Some(why)) if before == *why => None,
            (_, Some(why)) => change("unhealthy", format!("device {} ({kind}) is unhealthy: {why}", device.id)),
        }
    }

    /// Marks the devices that the plugin no longer lists.
    fn miss(&mut self, plugin: usize, listed: &BTreeSet<DeviceId>) -> Vec<DeviceChange> {
        let removed = self.devices.values_mut().filter(|known| known.plugin == plugin && known.listed);
        let removed = removed.filter(|known| !listed.contains(&known.device.id)).map(|known| {
            known.listed = false;
            let (device, kind) = (known.device.id.clone(), Arc::clone(&known.kind));
            let message = format!("device {device} ({kind}) is gone");
            DeviceChange { device, kind, now: "gone", message, error: None }
        });
        let removed: Vec<DeviceChange> = removed.collect();
        // An instance never returns: a new one has another ID.
        let (devices, plugins) = (&mut self.devices, &mut self.plugins);
        devices.retain(|id, known| {
            let stays = known.listed || known.device.facts.parent.is_none();
            if !stays {
                plugins[known.plugin].left.insert(id.clone());
            }
            stays
        });
        removed
    }

    /// Applies a reading. `owners`: owners of its processes, in their order; `None`: attribution is off.
    ///
    /// Errors: the reading is invalid and nothing changes.
    pub fn read(
        &mut self,
        plugin: usize,
        reading: DeviceReading,
        owners: Option<&[ProcessOwner]>,
        now: Instant,
    ) -> Result<Option<DeviceChange>, PluginError> {
        checks::reading(&reading)?;
        let Some(known) = self.devices.get_mut(&reading.device).filter(|known| known.plugin == plugin) else {
            // The reading was in the queue when the device was removed.
            if self.plugins[plugin].left.contains(&reading.device) {
                return Ok(None);
            }
            let message = format!("reading of unlisted device {}", reading.device);
            return Err(PluginError::new(PluginFault::Invalid, message));
        };
        let before = known.reading.take().map(|(reading, _)| reading);
        let reading = Arc::new(reading);
        known.reading = Some((Arc::clone(&reading), now));
        let (kind, device) = (Arc::clone(&known.kind), Arc::clone(&known.device));
        let was_up = before.as_ref().is_none_or(|before| before.up);
        if reading.up {
            let values = known.answered.replace(Arc::clone(&reading.values));
            self.uses.spread(&device, values.as_deref(), &reading.values);
        }
        let unowned = match (&reading.processes, owners) {
            (Some(processes), Some(owners)) => {
                let held = self.uses.attribute(&device, processes.iter().copied().zip(owners));
                reading.values.memory_used_bytes.zip(held).map(|(used, held)| used.saturating_sub(held))
            }
            _ => {
                self.uses.clear_attribution(&device.id);
                None
            }
        };
        if let Some(known) = self.devices.get_mut(&device.id) {
            known.unowned = unowned;
        }
        let (now, message) = match (was_up, reading.up) {
            (true, false) => ("down", format!("device {} ({kind}) does not respond", device.id)),
            (false, true) => ("up", format!("device {} ({kind}) responds again", device.id)),
            _ => return Ok(None),
        };
        Ok(Some(DeviceChange { device: device.id.clone(), kind, now, message, error: None }))
    }

    /// Applies a sample of processes between two readings; ignored for a device that does not respond. `owners`: as for
    /// [`DeviceState::read`].
    ///
    /// Errors: the sample is invalid and nothing changes.
    pub fn sample_processes(
        &mut self,
        plugin: usize,
        device: &DeviceId,
        processes: &[DeviceProcess],
        owners: Option<&[ProcessOwner]>,
    ) -> Result<(), PluginError> {
        checks::processes(device, processes)?;
        let known = self.devices.get(device).filter(|known| known.plugin == plugin);
        let is_up = |known: &&KnownDevice| known.reading.as_ref().is_none_or(|(reading, _)| reading.up);
        if let (Some(known), Some(owners)) = (known.filter(is_up), owners) {
            self.uses.sample_processes(&known.device, processes.iter().copied().zip(owners));
        }
        Ok(())
    }

    pub fn stuck(&mut self, device: &DeviceId, is_stuck: bool) {
        if let Some(known) = self.devices.get_mut(device) {
            known.stuck = is_stuck;
        }
    }

    pub fn fault(&mut self, plugin: usize, error: &PluginError) {
        let faults = &mut self.plugins[plugin].view.faults;
        if !error.is_missing() && error.fault != PluginFault::Stopped {
            *faults.entry(error.fault.as_str()).or_default() += 1;
        }
    }

    /// The plugin stopped: its devices are unlisted, and their values expire.
    pub fn down(&mut self, plugin: usize, error: &PluginError) -> Vec<DeviceChange> {
        self.fault(plugin, error);
        let reason = error.fault.as_str();
        self.plugins[plugin].view.down = Some(PluginDown { reason, message: error.message.clone() });
        self.plugins[plugin].groups.clear();
        self.miss(plugin, &BTreeSet::new())
    }

    pub fn is_down(&self, plugin: usize) -> bool {
        self.plugins[plugin].view.down.is_some()
    }

    pub fn used(&self, holder: &DeviceHolder) -> Vec<DeviceUsed> {
        self.uses.used(holder)
    }
    /// The usage for the next agent to continue.
    pub fn recorded_uses(&self) -> Vec<RecordedUse> {
        self.uses.recorded_uses()
    }

    /// Updates the holders from the board.
    pub fn follow(&mut self, board: &BoardView) {
        self.uses.follow(board, |id| self.devices.get(id).map(|known| &*known.device));
    }

    /// A view of everything at this moment.
    pub fn view(&mut self, board: &BoardView, now: Instant) -> DevicesView {
        self.follow(board);
        DevicesView {
            uses: self.uses.shown(),
            devices: self.devices.values().map(|known| Arc::new(self.device_view(known, now))).collect(),
            plugins: self.plugins.iter().map(|plugin| plugin.view.clone()).collect(),
        }
    }

    fn device_view(&self, known: &KnownDevice, now: Instant) -> DeviceView {
        let fresh = known.reading.as_ref().filter(|(_, at)| now.saturating_duration_since(*at) <= self.stale);
        let reading = fresh.map(|(reading, _)| Arc::clone(reading));
        let answers = known.reading.as_ref().is_none_or(|(reading, _)| reading.up);
        DeviceView {
            plugin: Arc::clone(&self.plugins[known.plugin].view.name),
            kind: Arc::clone(&known.kind),
            attributes: Arc::clone(&known.attributes),
            device: Arc::clone(&known.device),
            info: Arc::clone(&known.info),
            up: known.listed && answers,
            stuck: known.stuck,
            unowned_bytes: known.unowned.filter(|_| reading.is_some()),
            reading,
        }
    }
}

fn not_reported() -> PluginDown {
    PluginDown { reason: PluginFault::Missing.as_str(), message: "no report yet".to_owned() }
}

/// Labels of a device's info metric, besides its ID.
fn info(plugin: &str, kind: &DeviceKind, device: &Device) -> Arc<[(&'static str, String)]> {
    let facts = &device.facts;
    let number = |n: Option<u32>| n.map(|n| n.to_string()).unwrap_or_default();
    if facts.parent.is_some() {
        return Arc::new([
            ("profile", kind.name.clone()),
            ("gpu_instance_id", number(facts.gpu_instance)),
            ("compute_instance_id", number(facts.compute_instance)),
        ]);
    }
    Arc::new([
        ("plugin", plugin.to_owned()),
        ("vendor", kind.vendor.clone()),
        ("device_type", kind.kind.clone()),
        ("model", kind.name.clone()),
        ("index", number(facts.index)),
        ("pci_bus_id", facts.pci_bus_id.clone()),
        ("numa_node", number(facts.numa_node)),
        ("driver_version", facts.driver_version.clone()),
        ("vbios_version", facts.vbios_version.clone()),
    ])
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
