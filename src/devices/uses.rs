//! Who holds devices (from the board) and who uses them (from the processes on them).
//!
//! ```text
//! board ── follow ──► reserved, over; uses of removed allocs are dropped     (when the board changed)
//! reading ── spread, attribute ──► usage of each task                        (each reading, for its own users)
//! ```
//! Usage continues from an earlier agent: from the task's record and from the persisted file
//! ([`use_journal`](super::use_journal)). Values never fall, so the higher one is the later one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::owners::ProcessOwner;
use super::use_journal::RecordedUse;
use crate::board::{BoardView, PublishedAlloc};
use crate::model::alloc::AllocIdentity;
use crate::model::device::{
    Device, DeviceHolder, DeviceProcess, DeviceUsage, DeviceUsageSum, TaskDevice, TaskDeviceUsage,
};
use crate::model::device_used::DeviceUsed;
use crate::model::id::{AllocId, DeviceId, TaskName};
use crate::model::task::TaskState;

/// Usage of devices by tasks.
#[derive(Debug, Default)]
pub(super) struct DeviceUses {
    all: BTreeMap<UseKey, UseState>,
    /// By device: who holds or uses it or one of its instances.
    users: HashMap<DeviceId, BTreeSet<UseKey>>,
    /// Version of the board that was applied last. `None`: apply it again.
    followed: Option<u64>,
    /// Usage from an earlier agent, until the board is applied for the first time.
    found: Vec<RecordedUse>,
}

type UseKey = (AllocId, TaskName, DeviceId);

/// Usage of one device by one task.
#[derive(Debug)]
struct UseState {
    shown: TaskDevice,
    /// A process of the task was on the device at the last reading.
    seen: bool,
    /// The task has ended.
    over: bool,
    /// Energy counter of the device at the last update of the task's share, millijoules. `None`: the task does not hold
    /// the device.
    counted_to: Option<u64>,
}

/// Labels of a device or instance.
struct DeviceLabels {
    device: DeviceId,
    whole: DeviceId,
    gpu_instance: String,
}

impl From<&Device> for DeviceLabels {
    fn from(device: &Device) -> DeviceLabels {
        DeviceLabels {
            device: device.id.clone(),
            whole: device.facts.parent.clone().unwrap_or_else(|| device.id.clone()),
            gpu_instance: device.facts.gpu_instance.map(|n| n.to_string()).unwrap_or_default(),
        }
    }
}

impl From<&DeviceUsed> for DeviceLabels {
    fn from(used: &DeviceUsed) -> DeviceLabels {
        DeviceLabels { device: used.device.clone(), whole: used.whole.clone(), gpu_instance: used.gpu_instance.clone() }
    }
}

impl DeviceUses {
    /// Starts with the usage of an earlier agent.
    pub(super) fn after(found: Vec<RecordedUse>) -> DeviceUses {
        DeviceUses { found, ..DeviceUses::default() }
    }
    /// The list of devices changed.
    pub(super) fn invalidate(&mut self) {
        self.followed = None;
    }

    /// Applies the holders from the board. They are recorded, so they are known after a restart of the agent before any
    /// plugin has reported.
    pub(super) fn follow<'d>(&mut self, board: &BoardView, device: impl Fn(&DeviceId) -> Option<&'d Device>) {
        // Ignores a board view that is older than the last one.
        if self.followed.is_some_and(|followed| followed >= board.version) {
            return;
        }
        let allocs: HashMap<&AllocId, &Arc<PublishedAlloc>> =
            board.allocs.iter().map(|alloc| (&alloc.identity.id, alloc)).collect();
        self.all.retain(|key, _| allocs.contains_key(&key.0));
        let all = &self.all;
        self.users.retain(|_, keys| {
            keys.retain(|key| all.contains_key(key));
            !keys.is_empty()
        });
        for (key, of) in &mut self.all {
            of.shown.reserved = false;
            of.over = allocs.get(&key.0).is_some_and(|alloc| is_over(alloc, &key.1));
        }
        for retained in std::mem::take(&mut self.found) {
            let Some(alloc) = allocs.get(&retained.alloc) else { continue };
            let of = self.restore(&alloc.identity, &retained.task, &retained.used);
            (of.counted_to, of.over) = (retained.counted_to, is_over(alloc, &retained.task));
        }
        for alloc in &board.allocs {
            for task in alloc.status.iter().flat_map(|status| &status.tasks) {
                for used in &task.used_devices {
                    self.restore(&alloc.identity, &task.name, used).over = task.state == TaskState::Dead;
                }
                for id in &task.devices {
                    let key = (alloc.identity.id.clone(), task.name.clone(), id.clone());
                    match device(id) {
                        Some(device) => {
                            self.hold(key, &alloc.identity, DeviceLabels::from(device)).shown.reserved = true
                        }
                        // Its plugin has not listed it yet.
                        None => drop(self.all.get_mut(&key).map(|of| of.shown.reserved = true)),
                    }
                }
            }
        }
        for of in self.all.values_mut().filter(|of| !of.shown.reserved) {
            of.counted_to = None;
        }
        self.followed = Some(board.version);
    }

    fn restore(&mut self, alloc: &Arc<AllocIdentity>, task: &TaskName, used: &DeviceUsed) -> &mut UseState {
        let key = (alloc.id.clone(), task.clone(), used.device.clone());
        let of = self.hold(key, alloc, DeviceLabels::from(used));
        of.shown.usage.not_below(used);
        of
    }

    /// The usage of devices by a task so far.
    pub(super) fn used(&self, holder: &DeviceHolder) -> Vec<DeviceUsed> {
        let first = (holder.alloc.clone(), holder.task.clone(), DeviceId::from(""));
        let own = self.all.range(first..).take_while(|(key, _)| key.0 == holder.alloc && key.1 == holder.task);
        own.map(|(_, of)| of.shown.used()).collect()
    }

    /// The usage for the next agent to continue.
    pub(super) fn recorded_uses(&self) -> Vec<RecordedUse> {
        let retained = |((alloc, task, _), of): (&UseKey, &UseState)| RecordedUse {
            alloc: alloc.clone(),
            task: task.clone(),
            used: of.shown.used(),
            counted_to: of.counted_to,
        };
        self.all.iter().map(retained).collect()
    }

    /// Sorted by alloc, task and device.
    pub(super) fn shown(&self) -> Vec<Arc<TaskDevice>> {
        let shown = |of: &UseState| Arc::new(TaskDevice { ended: of.over || !of.is_live(), ..of.shown.clone() });
        self.all.values().map(shown).collect()
    }

    /// Adds the device's energy and errors since the last reading to its holders.
    pub(super) fn spread(&mut self, device: &Device, before: Option<&DeviceUsage>, now: &DeviceUsage) {
        let xids = |values: &DeviceUsage| values.xids.values().map(|xid| xid.count).sum::<u64>();
        let errors = before.map_or(0, |before| xids(now).saturating_sub(xids(before)));
        let before = before.and_then(|before| before.energy_millijoules);
        for key in self.users.get(&device.id).into_iter().flatten() {
            let Some(of) = self.all.get_mut(key).filter(|of| of.is_live()) else { continue };
            if !now.xids.is_empty() {
                *of.shown.usage.xid_errors.get_or_insert(0) += errors;
            }
            // The energy of a whole device is not attributed to an instance.
            if of.shown.reserved
                && of.shown.device == device.id
                && let Some(now) = now.energy_millijoules
            {
                let from = of.counted_to.replace(now).or(before).unwrap_or(now);
                *of.shown.usage.energy_millijoules.get_or_insert(0) += now.saturating_sub(from);
            }
        }
    }

    /// Sets the usage of each task from its processes. Returns the memory that all of them hold; `None`: unknown for
    /// some.
    pub(super) fn attribute<'o>(
        &mut self,
        device: &Device,
        processes: impl Iterator<Item = (DeviceProcess, &'o ProcessOwner)>,
    ) -> Option<u64> {
        let mut found: BTreeMap<UseKey, (Arc<AllocIdentity>, DeviceUsageSum)> = BTreeMap::new();
        let mut held = Some(0u64);
        for (process, owner) in processes {
            let ProcessOwner::Task(alloc, task) = owner else { continue };
            let bytes = if process.ended { Some(0) } else { process.memory_bytes };
            held = held.zip(bytes).map(|(held, bytes)| held.saturating_add(bytes));
            let key = (alloc.id.clone(), task.clone(), device.id.clone());
            let (_, sum) = found.entry(key).or_insert_with(|| (Arc::clone(alloc), DeviceUsageSum::default()));
            sum.add(&TaskDeviceUsage {
                memory_used_bytes: bytes,
                memory_peak_bytes: process.memory_peak_bytes,
                sm_ratio: process.sm_ratio,
                processes: Some(u64::from(!process.ended)),
                energy_millijoules: None,
                xid_errors: None,
            });
        }
        for key in self.users.get(&device.id).cloned().unwrap_or_default() {
            if key.2 == device.id
                && !found.contains_key(&key)
                && let Some(of) = self.all.get_mut(&key)
            {
                of.seen = false;
                of.shown.usage.sets(TaskDeviceUsage {
                    processes: Some(0),
                    memory_used_bytes: Some(0),
                    ..Default::default()
                });
            }
        }
        for (key, (alloc, sum)) in found {
            let (usage, of) = (*sum.get(), self.hold(key, &alloc, DeviceLabels::from(device)));
            of.seen = usage.processes != Some(0);
            of.shown.usage.sets(usage);
        }
        held
    }

    /// Between two readings only the peak is updated. Current usage belongs to the time of a reading, so that it stays
    /// consistent with the values of the whole device.
    pub(super) fn sample_processes<'o>(
        &mut self,
        device: &Device,
        processes: impl Iterator<Item = (DeviceProcess, &'o ProcessOwner)>,
    ) {
        let mut found: BTreeMap<UseKey, (Arc<AllocIdentity>, u64)> = BTreeMap::new();
        for (process, owner) in processes {
            let ProcessOwner::Task(alloc, task) = owner else { continue };
            let key = (alloc.id.clone(), task.clone(), device.id.clone());
            let (_, bytes) = found.entry(key).or_insert_with(|| (Arc::clone(alloc), 0));
            *bytes = bytes.saturating_add(process.memory_bytes.unwrap_or(0));
        }
        for (key, (alloc, bytes)) in found {
            let of = self.hold(key, &alloc, DeviceLabels::from(device));
            of.seen = true;
            of.shown.usage.memory_peak_bytes =
                of.shown.usage.memory_peak_bytes.max(Some(bytes).filter(|bytes| *bytes > 0));
        }
    }

    /// Attribution is unavailable: drops the current usage.
    pub(super) fn clear_attribution(&mut self, device: &DeviceId) {
        for key in self.users.get(device).into_iter().flatten().filter(|key| key.2 == *device) {
            if let Some(of) = self.all.get_mut(key) {
                of.seen = false;
                of.shown.usage.sets(TaskDeviceUsage::default());
            }
        }
    }

    fn hold(&mut self, key: UseKey, alloc: &Arc<AllocIdentity>, place: DeviceLabels) -> &mut UseState {
        for of in [&place.device, &place.whole] {
            self.users.entry(of.clone()).or_default().insert(key.clone());
        }
        if !self.all.contains_key(&key) {
            self.followed = None;
        }
        let task = key.1.clone();
        self.all.entry(key).or_insert_with(|| UseState {
            shown: TaskDevice {
                alloc: Arc::clone(alloc),
                task,
                device: place.device,
                whole: place.whole,
                gpu_instance: place.gpu_instance,
                reserved: false,
                usage: TaskDeviceUsage::default(),
                ended: false,
            },
            seen: false,
            over: false,
            counted_to: None,
        })
    }
}

impl UseState {
    fn is_live(&self) -> bool {
        self.shown.reserved || self.seen
    }
}

impl TaskDeviceUsage {
    /// Sets the live values; peaks and counters stay.
    fn sets(&mut self, now: TaskDeviceUsage) {
        let highest = now.memory_used_bytes.max(now.memory_peak_bytes).filter(|bytes| *bytes > 0);
        self.memory_peak_bytes = self.memory_peak_bytes.max(highest);
        (self.memory_used_bytes, self.sm_ratio, self.processes) = (now.memory_used_bytes, now.sm_ratio, now.processes);
    }
}

/// An observed task is over when its cgroup is removed, which ends its processes too.
fn is_over(alloc: &PublishedAlloc, task: &TaskName) -> bool {
    let status = alloc.status.as_ref().and_then(|status| status.tasks.iter().find(|of| of.name == *task));
    status.is_some_and(|status| status.state == TaskState::Dead)
}
