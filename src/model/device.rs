//! Devices: what a host has, what was read of each, who holds them and who uses them.
//!
//! ```text
//! DeviceGroup (vendor/kind/name, attributes) ── devices: Device (id, health, locality)
//! DeviceReading (one device, one moment)     ── values; stats, whose shape is the plugin's own; processes
//! TaskDevice (one task on one device)        ── reserved, used, or both
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::alloc::AllocIdentity;
use super::attribute::Attribute;
use super::device_used::DeviceUsed;
use super::id::{AllocId, DeviceId, TaskName};
use super::metric::Value;
use super::stat::StatObject;
use super::units::Timestamp;
use super::words;

/// What devices of one make are called, in a job file too: `nvidia/gpu/Tesla T4`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceKind {
    pub vendor: String,
    /// `gpu`, `fpga` ...
    #[serde(rename = "type")]
    pub kind: String,
    pub name: String,
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.vendor, self.kind, self.name)
    }
}

/// Devices of one make, as a plugin reports them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceGroup {
    pub kind: DeviceKind,
    /// Those that are the same for all devices of the group.
    pub attributes: BTreeMap<String, Attribute>,
    pub devices: Vec<Device>,
}

impl DeviceGroup {
    /// Groups devices of one kind, in the order in which they come. Attributes with the same value on all devices of a
    /// kind are the group's; the others stay with their device.
    pub fn of_kinds(all: impl IntoIterator<Item = (DeviceKind, Device)>) -> Vec<DeviceGroup> {
        let mut groups: Vec<DeviceGroup> = Vec::new();
        for (kind, device) in all {
            match groups.iter_mut().find(|group| group.kind == kind) {
                Some(group) => group.devices.push(device),
                None => groups.push(DeviceGroup { kind, attributes: BTreeMap::new(), devices: vec![device] }),
            }
        }
        groups.iter_mut().for_each(DeviceGroup::share_attributes);
        groups
    }

    fn share_attributes(&mut self) {
        let Some((first, rest)) = self.devices.split_first_mut() else { return };
        let is_shared = |(name, value): &(&String, &Attribute)| {
            rest.iter().all(|other| other.attributes.get(*name) == Some(*value))
        };
        let shared = first.attributes.iter().filter(is_shared).map(|(name, value)| (name.clone(), value.clone()));
        self.attributes = shared.collect();
        for device in &mut self.devices {
            device.attributes.retain(|name, _| !self.attributes.contains_key(name));
        }
    }

    /// An attribute of one of its devices.
    pub fn attribute<'a>(&'a self, device: &'a Device, name: &str) -> Option<&'a Attribute> {
        device.attributes.get(name).or_else(|| self.attributes.get(name))
    }
}

/// One device, or one instance of a divided one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Does not change while the host runs; of a GPU its UUID.
    pub id: DeviceId,
    /// Why it is not well; `None`: it is.
    pub unhealthy: Option<String>,
    pub facts: DeviceFacts,
    /// Attributes in which it differs from other devices of its group, beside those of the group.
    pub attributes: BTreeMap<String, Attribute>,
}

impl Device {
    /// A healthy device with an ID and no facts.
    pub fn of(id: DeviceId) -> Device {
        Device { id, unhealthy: None, facts: DeviceFacts::default(), attributes: BTreeMap::new() }
    }
}

/// What else is known of a device. An empty text: unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// The whole device that this one is an instance of (MIG).
    pub parent: Option<DeviceId>,
    /// Its place on this host, which may be another after a restart.
    pub index: Option<u32>,
    pub pci_bus_id: String,
    pub serial: String,
    pub driver_version: String,
    pub vbios_version: String,
    pub numa_node: Option<u32>,
    /// Of an instance of a divided GPU.
    pub gpu_instance: Option<u32>,
    pub compute_instance: Option<u32>,
    /// Character devices below `/dev` without which it cannot be used.
    pub nodes: Vec<String>,
}

/// What a task gets with the devices that were reserved for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceReservation {
    pub env: BTreeMap<String, String>,
    pub nodes: Vec<DeviceNode>,
    pub mounts: Vec<DeviceMount>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceNode {
    pub task_path: String,
    pub host_path: String,
    /// Of `r`, `w` and `m`, as in the kernel's `devices.allow`.
    pub permissions: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceMount {
    pub task_path: String,
    pub host_path: String,
    pub read_only: bool,
}

/// Whose a device is: an attempt's, for as long as anything of it may run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceHolder {
    pub alloc: AllocId,
    pub task: TaskName,
}

impl fmt::Display for DeviceHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.alloc.short(), self.task)
    }
}

/// The devices that a task got, and what it gets with them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReservedDevices {
    pub ids: Vec<DeviceId>,
    pub with: DeviceReservation,
    /// Character devices of others: what the task is not to open.
    pub denied_nodes: Vec<String>,
}

/// One device at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceReading {
    pub device: DeviceId,
    pub at: Timestamp,
    /// `false`: it has fallen off its bus or answers nothing; then nothing else is known of it.
    pub up: bool,
    pub values: Arc<DeviceUsage>,
    /// What a plugin reports beyond the values that have a name here, in Nomad's shape.
    pub stats: Arc<StatObject>,
    /// `None`: who uses it is not known.
    pub processes: Option<Vec<DeviceProcess>>,
}

/// A process that uses a device.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DeviceProcess {
    /// As the host counts processes.
    pub pid: u32,
    /// Memory of the device that it holds, in bytes; `None`: the driver does not say.
    pub memory_bytes: Option<u64>,
    /// The most that it ever held, as the driver kept it; `None`: it keeps nothing.
    pub memory_peak_bytes: Option<u64>,
    /// It has ended since the reading before, and holds nothing any more.
    pub ended: bool,
    /// The share of the time in which it had the device's processors at work, 0 to 1, since the reading before; `None`:
    /// no sample.
    pub sm_ratio: Option<f64>,
    /// Of a divided device.
    pub gpu_instance: Option<u32>,
}

impl DeviceProcess {
    /// Nothing else of it is known.
    pub fn of(pid: u32) -> DeviceProcess {
        DeviceProcess {
            pid,
            memory_bytes: None,
            memory_peak_bytes: None,
            ended: false,
            sm_ratio: None,
            gpu_instance: None,
        }
    }
}

macro_rules! device_words {
    ($($(#[$doc:meta])* $name:ident: $($value:ident = $word:literal),+;)*) => {
        $(words! { $(#[$doc])* pub enum $name { $($value = $word,)+ } })*
    };
}

device_words! {
    /// A part of a GPU that can be busy by itself.
    Engine: General = "general", Memory = "memory", Encoder = "encoder", Decoder = "decoder";
    Sensor: Gpu = "gpu", Memory = "memory";
    /// Temperatures at which something is done: it slows down, is switched off; the highest that its maker wants.
    Threshold: Slowdown = "slowdown", Shutdown = "shutdown", GpuMax = "gpu_max", MemoryMax = "memory_max";
    ClockDomain: Graphics = "graphics", Sm = "sm", Memory = "memory", Video = "video";
    /// Why a GPU runs slower than it could.
    ThrottleReason:
        Idle = "idle", ApplicationClocks = "application_clocks", SoftwarePower = "software_power",
        HardwareSlowdown = "hardware_slowdown", SyncBoost = "sync_boost", SoftwareThermal = "software_thermal",
        HardwareThermal = "hardware_thermal", HardwarePowerBrake = "hardware_power_brake",
        DisplayClocks = "display_clocks";
    /// Parts of a GPU whose work it measures itself.
    GpuUnit: Sm = "sm", Tensor = "tensor", Dram = "dram";
    LinkState: Active = "active", Inactive = "inactive";
    /// What went wrong on a link: sent again; set up again; a checksum of flow control, of data.
    LinkError: Replay = "replay", Recovery = "recovery", CrcFlit = "crc_flit", CrcData = "crc_data";
    EccKind: Corrected = "corrected", Uncorrected = "uncorrected";
    /// Since the driver was loaded, or in the life of the device.
    EccCounter: Volatile = "volatile", Aggregate = "aggregate";
    /// How a device is, in the words of OpenTelemetry's `hw.state`.
    DeviceState: Ok = "ok", Degraded = "degraded", PredictedFailure = "predicted_failure", Failed = "failed";
}

/// What is known by name of a GPU. `None`: it was not read; never 0 for that.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceUsage {
    /// Shares of time, 0 to 1, in the order of [`Engine::ALL`].
    pub utilization: [Option<f64>; 4],
    pub memory_used_bytes: Option<u64>,
    pub memory_free_bytes: Option<u64>,
    pub memory_reserved_bytes: Option<u64>,
    pub memory_total_bytes: Option<u64>,
    pub bar1_used_bytes: Option<u64>,
    pub bar1_total_bytes: Option<u64>,
    /// Degrees Celsius, in the order of [`Sensor::ALL`].
    pub temperature: [Option<u64>; 2],
    /// Degrees Celsius, in the order of [`Threshold::ALL`].
    pub threshold: [Option<u64>; 4],
    pub power_milliwatts: Option<u64>,
    pub power_average_milliwatts: Option<u64>,
    pub power_limit_milliwatts: Option<u64>,
    /// Since its driver was loaded; goes on over a reload as long as the agent lives.
    pub energy_millijoules: Option<u64>,
    /// In the order of [`ClockDomain::ALL`].
    pub clock_hertz: [Option<u64>; 4],
    pub clock_max_hertz: [Option<u64>; 4],
    /// In the order of [`ThrottleReason::ALL`].
    pub throttled: Option<[bool; 9]>,
    pub throttled_nanos: [Option<u64>; 9],
    /// By [`EccKind`], then [`EccCounter`].
    pub ecc_errors: [[Option<u64>; 2]; 2],
    /// By [`EccKind`].
    pub remapped_rows: [Option<u64>; 2],
    pub row_remap_pending: Option<bool>,
    pub row_remap_failed: Option<bool>,
    /// Pages, by [`EccKind`]: of too many errors that were corrected, of one that was not.
    pub retired_pages: [Option<u64>; 2],
    pub pcie_transmit_bytes: Option<u64>,
    pub pcie_receive_bytes: Option<u64>,
    pub pcie_replays: Option<u64>,
    pub pcie_link_generation: Option<u64>,
    pub pcie_link_width: Option<u64>,
    /// Bytes of payload over all links (NVLink).
    pub nvlink_transmit_bytes: Option<u64>,
    pub nvlink_receive_bytes: Option<u64>,
    /// How many there are, in the order of [`LinkState::ALL`].
    pub nvlink_links: [Option<u64>; 2],
    /// In the order of [`LinkError::ALL`].
    pub nvlink_errors: [Option<u64>; 4],
    /// Shares, 0 to 1, since the reading before, in the order of [`GpuUnit::ALL`].
    pub activity: [Option<f64>; 3],
    /// What its driver wants to be done: 0 nothing ... 7 a restart of the host.
    pub recovery_action: Option<u64>,
    /// How many processes hold it.
    pub processes: Option<u64>,
    /// By their number; what is dangerous is there from the start, at 0.
    pub xids: BTreeMap<u64, Xid>,
}

/// Errors that a driver reported, of one number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Xid {
    /// Since the agent watches.
    pub count: u64,
    pub last: Option<Timestamp>,
}

/// What a plugin calls the kind of a GPU.
pub const GPU_KIND: &str = "gpu";

/// One task on one device.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskDevice {
    pub alloc: Arc<AllocIdentity>,
    pub task: TaskName,
    pub device: DeviceId,
    /// The device that it is an instance of, else the same.
    pub whole: DeviceId,
    /// Of a divided device, which part; empty: of a whole one.
    pub gpu_instance: String,
    /// It was given the device, whether it uses it or not.
    pub reserved: bool,
    pub usage: TaskDeviceUsage,
    /// The task has ended, or does not hold it any more: what is used now is gone, what stays stays.
    pub ended: bool,
}

/// What a task uses of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TaskDeviceUsage {
    pub memory_used_bytes: Option<u64>,
    /// The highest that was read.
    pub memory_peak_bytes: Option<u64>,
    pub sm_ratio: Option<f64>,
    /// Of its processes; absent where none can be known.
    pub processes: Option<u64>,
    /// Of the whole device, while the task held it alone.
    pub energy_millijoules: Option<u64>,
    /// Errors that its driver reported while the task held or used it.
    pub xid_errors: Option<u64>,
}

/// Usage of one device by several processes or tasks. What is used now is absent if a part of it is unknown: a sum
/// without a part would be too low. Values that a device reports to all of them at once count once.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DeviceUsageSum {
    sum: TaskDeviceUsage,
    has_parts: bool,
}

impl DeviceUsageSum {
    pub fn get(&self) -> &TaskDeviceUsage {
        &self.sum
    }
    /// Adds what a process or a running task uses and has used.
    pub fn add(&mut self, part: &TaskDeviceUsage) {
        let (first, sum) = (!self.has_parts, self.sum);
        let all = |sum: Option<u64>, part: Option<u64>| {
            if first { part } else { sum.zip(part).map(|(sum, part)| sum.saturating_add(part)) }
        };
        self.sum.memory_used_bytes = all(sum.memory_used_bytes, part.memory_used_bytes);
        self.sum.processes = all(sum.processes, part.processes);
        // Processes without a sample in the interval kept nothing busy.
        self.sum.sm_ratio = match (sum.sm_ratio, part.sm_ratio) {
            (Some(sum), Some(part)) => Some(sum + part),
            (sum, part) => sum.or(part),
        };
        self.has_parts = true;
        self.add_ended(part);
    }
    /// Adds what an ended task has used.
    pub fn add_ended(&mut self, part: &TaskDeviceUsage) {
        let sum = &mut self.sum;
        sum.memory_peak_bytes = sum.memory_peak_bytes.max(part.memory_peak_bytes);
        sum.energy_millijoules = match (sum.energy_millijoules, part.energy_millijoules) {
            (Some(sum), Some(part)) => Some(sum.saturating_add(part)),
            (sum, part) => sum.or(part),
        };
        sum.xid_errors = sum.xid_errors.max(part.xid_errors);
    }
}

impl TaskDevice {
    pub fn used(&self) -> DeviceUsed {
        DeviceUsed {
            device: self.device.clone(),
            whole: self.whole.clone(),
            gpu_instance: self.gpu_instance.clone(),
            memory_peak_bytes: self.usage.memory_peak_bytes,
            energy_millijoules: self.usage.energy_millijoules,
            xid_errors: self.usage.xid_errors,
        }
    }
}

impl TaskDeviceUsage {
    /// What is on record of it was reached already.
    pub fn not_below(&mut self, used: &DeviceUsed) {
        self.memory_peak_bytes = self.memory_peak_bytes.max(used.memory_peak_bytes);
        self.energy_millijoules = self.energy_millijoules.max(used.energy_millijoules);
        self.xid_errors = self.xid_errors.max(used.xid_errors);
    }
}

/// Whole numbers of a thousandth of a unit, exactly.
pub fn thousandths(n: u64) -> Value {
    Value::Nanos(n.saturating_mul(1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(memory: Option<u64>, processes: Option<u64>, sm_ratio: Option<f64>) -> TaskDeviceUsage {
        TaskDeviceUsage { memory_used_bytes: memory, processes, sm_ratio, ..TaskDeviceUsage::default() }
    }

    #[test]
    fn device_attributes_that_differ_within_a_kind_belong_to_each_device() {
        let attributes = |of: &[(&str, &str)]| -> BTreeMap<String, Attribute> {
            of.iter().map(|(name, value)| ((*name).to_owned(), Attribute::parse(value).unwrap())).collect()
        };
        let kind = |name: &str| DeviceKind { vendor: "nvidia".into(), kind: "gpu".into(), name: name.into() };
        let gpu = |name: &str, id: &str, of: &[(&str, &str)]| {
            (kind(name), Device { attributes: attributes(of), ..Device::of(id.into()) })
        };
        let groups = DeviceGroup::of_kinds([
            gpu("H100", "a", &[("memory", "80 GiB"), ("power", "700 W"), ("mode", "true")]),
            gpu("T4", "t", &[("memory", "15 GiB")]),
            gpu("H100", "b", &[("memory", "80 GiB"), ("power", "350 W"), ("bar1", "1 GiB")]),
        ]);
        assert_eq!(groups.iter().map(|group| group.kind.name.as_str()).collect::<Vec<_>>(), ["H100", "T4"]);
        assert_eq!(groups[0].attributes, attributes(&[("memory", "80 GiB")]));
        assert_eq!(groups[0].devices[0].attributes, attributes(&[("power", "700 W"), ("mode", "true")]));
        assert_eq!(groups[0].devices[1].attributes, attributes(&[("power", "350 W"), ("bar1", "1 GiB")]));
        assert_eq!(groups[1].attributes, attributes(&[("memory", "15 GiB")]), "one alone shares all");
        let power = |at: usize| groups[0].attribute(&groups[0].devices[at], "power").map(ToString::to_string);
        assert_eq!((power(0), power(1)), (Some("700 W".into()), Some("350 W".into())));
        assert_eq!(groups[0].attribute(&groups[0].devices[1], "mode"), None);
    }

    #[test]
    fn sum_over_tasks_is_absent_if_a_part_of_it_is_unknown() {
        let mut sum = DeviceUsageSum::default();
        assert_eq!(sum.get(), &TaskDeviceUsage::default());
        sum.add(&used(Some(3), Some(1), Some(0.25)));
        sum.add(&used(Some(4), Some(2), None));
        assert_eq!(sum.get(), &used(Some(7), Some(3), Some(0.25)));
        sum.add(&used(None, Some(1), Some(0.5)));
        assert_eq!(sum.get(), &used(None, Some(4), Some(0.75)), "not the memory of the other two");
        sum.add(&used(Some(1), None, None));
        assert_eq!(sum.get(), &used(None, None, Some(0.75)), "it stays unknown");
    }

    #[test]
    fn ended_task_adds_its_device_usage_and_hides_no_usage_of_other_tasks() {
        let mut sum = DeviceUsageSum::default();
        let part =
            TaskDeviceUsage { energy_millijoules: Some(5), memory_peak_bytes: Some(9), ..used(Some(3), Some(1), None) };
        sum.add(&part);
        sum.add_ended(&TaskDeviceUsage {
            memory_peak_bytes: Some(11),
            energy_millijoules: Some(2),
            ..used(None, None, None)
        });
        let expected = TaskDeviceUsage { memory_peak_bytes: Some(11), energy_millijoules: Some(7), ..part };
        assert_eq!(sum.get(), &expected);
    }
}
