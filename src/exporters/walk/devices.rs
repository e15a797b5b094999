//! Devices: what they are and how they are, who holds and uses them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::device_rows::AllocDevice;
use super::listener::{Families, Listener, SINGLE, by, int, plain};
use super::rows::{Rows, Walk};
use super::subject::{Labels, RowSubject};
use crate::board::devices::{DeviceView, DevicesView};
use crate::model::attribute::UnitName;
use crate::model::device::{DeviceState, TaskDevice};
use crate::model::measure::Nature;
use crate::model::metric::{MetricDesc, Value, families};
use crate::model::profile::Profile;
use crate::model::stat::{StatObject, StatReading};
use crate::model::units::Unit;

const DEVICE: &[&str] = &["device_uuid"];
const INSTANCE: &[&str] = &["device_uuid", "mig_uuid"];

families! {
pub static DEVICE_INFO: MetricDesc = MetricDesc::info(
    "allostat_device_info",
    "Device identity; join: * on (job, instance, device_uuid) group_left (model, index) allostat_device_info.",
    &[
        "device_uuid", "plugin", "vendor", "device_type", "model", "index", "pci_bus_id", "numa_node", "driver_version",
        "vbios_version",
    ],
)
.from_source("device plugin");

pub static MIG_INFO: MetricDesc = MetricDesc::info(
    "allostat_mig_info",
    "MIG instance of a partitioned device, with its profile and IDs.",
    &["device_uuid", "mig_uuid", "profile", "gpu_instance_id", "compute_instance_id"],
)
.from_source("device plugin");

pub static DEVICE_UP: MetricDesc = MetricDesc::gauge(
    "allostat_device_up",
    Unit::None,
    "1 if the device answers; 0 if it is off the bus, needs a reset or is no longer listed by its plugin.",
    DEVICE,
)
.stays()
.from_source("device plugin")
.otlp("allostat.device.up", "1");

pub static DEVICE_STATUS: MetricDesc = MetricDesc::gauge(
    "allostat_device_status",
    Unit::None,
    "1 for the current state of the device (ok, degraded, predicted_failure, failed), 0 for the other states.",
    &["device_uuid", "state"],
)
.from_profile(Profile::Full)
.stays()
.from_source("device plugin")
.otlp("hw.status", "1");

pub static DEVICE_STUCK: MetricDesc = MetricDesc::gauge(
    "allostat_device_stuck",
    Unit::None,
    "1 while a call to the device exceeds its deadline; its values are absent until it returns.",
    DEVICE,
)
.stays()
.from_source("device plugin")
.otlp("allostat.device.stuck", "1");

pub static DEVICE_READ: MetricDesc = MetricDesc::gauge(
    "allostat_device_read_timestamp_seconds",
    Unit::TimestampSeconds,
    "Time of the last reading of the device.",
    DEVICE,
)
.from_source("device plugin")
.absent_when("never read, or the last reading is too old")
.otlp("allostat.device.read.time", "s");

pub static DEVICE_UNOWNED: MetricDesc = MetricDesc::gauge(
    "allostat_device_unowned_memory_bytes",
    Unit::Bytes,
    "Device memory in use by no task: other processes, dead processes, the driver.",
    DEVICE,
)
.from_source("device memory in use minus device memory of tasks")
.absent_when("the tasks of the processes on it are unknown")
.otlp("allostat.device.memory.unowned", "By");

pub static XID_ERRORS: MetricDesc = MetricDesc::counter(
    "allostat_device_xid_errors_total",
    Unit::None,
    "XID errors reported by the driver, by number; critical XIDs are exposed from the start at 0.",
    &["device_uuid", "xid"],
)
.from_source("nvmlEventSetWait, critical XID")
.absent_when("the device reports no XID errors")
.otlp("allostat.device.xid_errors", "{error}");

pub static XID_LAST: MetricDesc = MetricDesc::gauge(
    "allostat_device_xid_last_timestamp_seconds",
    Unit::TimestampSeconds,
    "Time of the last XID error with this number.",
    &["device_uuid", "xid"],
)
.stays()
.from_source("nvmlEventSetWait, critical XID")
.absent_when("no such error since the agent started to watch the device")
.otlp("allostat.device.xid_errors.last_time", "s");

pub static DEVICE_STAT: MetricDesc = MetricDesc::gauge(
    "allostat_device_stat",
    Unit::None,
    "Plugin-specific statistic, in the unit that the plugin reports; of a fraction, the numerator.",
    &["device_uuid", "stat", "stat_unit"],
)
.from_source("device plugin")
.absent_when("the plugin reports no such statistic")
.otlp("allostat.device.stat", "1");

pub static ALLOC_DEVICE_INFO: MetricDesc = MetricDesc::info(
    "allostat_alloc_device_info",
    "Device or device instance of an alloc; reserved: assigned to it, whether used or not.",
    &["alloc_id", "workload", "device_uuid", "gpu_instance_id", "mig_uuid", "reserved"],
)
.from_source("reservations and running processes")
.otlp("allostat.alloc.device.assigned", "1");

pub static PLUGIN_UP: MetricDesc = MetricDesc::gauge(
    "allostat_device_plugin_up",
    Unit::None,
    "1 if the plugin runs; 0 if not, or if GPUs are on the PCI bus without their driver or its library.",
    &["plugin"],
)
.from_source("devices")
.absent_when("the host has neither a device of its kind nor what the plugin needs")
.otlp("allostat.device.plugin.up", "1");

pub static PLUGIN_FAULTS: MetricDesc = MetricDesc::counter(
    "allostat_device_plugin_faults_total",
    Unit::None,
    "Exits and invalid reports of a device plugin, by reason.",
    &["plugin", "reason"],
)
.from_source("devices")
.otlp("allostat.device.plugin.faults", "{fault}");
}

/// Whole devices.
pub static DEVICE_ROWS: Rows = Rows {
    // There are few devices: all that they report is in every profile, but for what follows from the rest.
    profile: |profiles| if profiles.own == Profile::Full { Profile::Full } else { Profile::Lean },
    ..Rows::new(
        "allostat_device_",
        DEVICE,
        |walk| walk.devices.wholes.len(),
        |walk, row| of_device(walk.devices.wholes[row]),
    )
};

/// Instances of divided devices.
pub static INSTANCE_ROWS: Rows = Rows {
    profile: |_| Profile::Lean,
    ..Rows::new(
        "allostat_mig_",
        INSTANCE,
        |walk| walk.devices.instances.len(),
        |walk, row| of_instance(walk.devices.instances[row]),
    )
};

/// A task on a device.
pub static TASK_DEVICE_ROWS: Rows = Rows::new(
    "allostat_task_device_",
    &["alloc_id", "task", "workload", "device_uuid", "gpu_instance_id"],
    |walk| walk.devices.tasks.len(),
    |walk, row| on_task(walk.devices.tasks[row]),
);

/// An alloc on a device: its tasks together.
pub static ALLOC_DEVICE_ROWS: Rows = Rows {
    has: Nature::is_of_allocs,
    about: |_| "; sum over the alloc's tasks",
    otlp: Some("alloc"),
    profile: |profiles| profiles.alloc,
    ..Rows::new(
        "allostat_alloc_device_",
        &["alloc_id", "workload", "device_uuid", "gpu_instance_id"],
        |walk| walk.devices.allocs.len(),
        |walk, row| on_alloc(&walk.devices.allocs[row]),
    )
};

impl<'a> Walk<'a> {
    /// Whole devices, then instances of divided ones.
    pub fn devices(&self) -> impl Iterator<Item = &'a DeviceView> + use<'a, '_> {
        self.devices.wholes.iter().chain(&self.devices.instances).copied()
    }
    /// The device of a row of devices.
    pub fn device(&self, rows: &Rows, row: usize) -> Option<&'a DeviceView> {
        if *rows == DEVICE_ROWS {
            self.devices.wholes.get(row).copied()
        } else if *rows == INSTANCE_ROWS {
            self.devices.instances.get(row).copied()
        } else {
            None
        }
    }
}

fn of_device(view: &DeviceView) -> RowSubject<'_> {
    RowSubject {
        labels: vec![("device_uuid", view.device.id.as_str())],
        info: view.info.iter().map(|(name, value)| (*name, value.as_str())).collect(),
        read_at: view.reading.as_ref().map(|reading| reading.at),
        since: None,
    }
}

fn of_instance(view: &DeviceView) -> RowSubject<'_> {
    let whole = view.device.facts.parent.as_ref().map_or("", |parent| parent.as_str());
    RowSubject { labels: vec![("device_uuid", whole), ("mig_uuid", view.device.id.as_str())], ..of_device(view) }
}

fn on_task(of: &TaskDevice) -> RowSubject<'_> {
    let mut labels = vec![("alloc_id", of.alloc.id.as_str()), ("task", of.task.as_str()), ("workload", workload(of))];
    labels.extend(on(of));
    RowSubject { labels, since: of.alloc.created_at, ..RowSubject::default() }
}

fn on_alloc<'a>(sum: &AllocDevice<'a>) -> RowSubject<'a> {
    let of = sum.of;
    let mut labels = vec![("alloc_id", of.alloc.id.as_str()), ("workload", workload(of))];
    labels.extend(on(of));
    let instance = if of.device == of.whole { "" } else { of.device.as_str() };
    let info = vec![("mig_uuid", instance), ("reserved", if sum.reserved { "true" } else { "false" })];
    RowSubject { labels, info, since: of.alloc.created_at, ..RowSubject::default() }
}

fn on(of: &TaskDevice) -> [(&str, &str); 2] {
    [("device_uuid", of.whole.as_str()), ("gpu_instance_id", of.gpu_instance.as_str())]
}

fn workload(of: &TaskDevice) -> &str {
    of.alloc.workload.as_ref().map_or("", |workload| workload.as_str())
}

/// Whose devices are.
pub(super) fn held(out: &mut Families<'_, impl Listener>, walk: &Walk<'_>) {
    let live = walk.devices.allocs.iter().map(|sum| [int(1).filter(|_| !sum.ended)]);
    out.all(&ALLOC_DEVICE_INFO, &ALLOC_DEVICE_ROWS, SINGLE, live);
}

/// What devices are, and how they are.
pub(super) fn states(out: &mut Families<'_, impl Listener>, walk: &Walk<'_>) {
    let (wholes, view) = (|| walk.devices.wholes.iter(), &walk.snapshot.devices);
    out.all(&DEVICE_INFO, &DEVICE_ROWS, SINGLE, wholes().map(|_| [int(1)]));
    out.all(&MIG_INFO, &INSTANCE_ROWS, SINGLE, walk.devices.instances.iter().map(|_| [int(1)]));
    out.all(&DEVICE_UP, &DEVICE_ROWS, SINGLE, wholes().map(|view| [int(u64::from(view.up))]));
    let status = |view: &&DeviceView| {
        let state = view.state();
        DeviceState::ALL.map(|of| int(u64::from(of == state)))
    };
    let states = by("state", DeviceState::ALL.iter().map(|state| state.as_str()));
    out.all(&DEVICE_STATUS, &DEVICE_ROWS, &states, wholes().map(status));
    out.all(&DEVICE_STUCK, &DEVICE_ROWS, SINGLE, wholes().map(|view| [int(u64::from(view.stuck))]));
    let read = |view: &&DeviceView| [view.reading.as_ref().and_then(|reading| plain(Value::Nanos(reading.at.0)))];
    out.all(&DEVICE_READ, &DEVICE_ROWS, SINGLE, wholes().map(read));
    out.all(&DEVICE_UNOWNED, &DEVICE_ROWS, SINGLE, wholes().map(|view| [view.unowned_bytes.and_then(int)]));
    xids(out, &walk.devices.wholes);
    stats(out, view);
    let running = view.plugins.iter().filter(|plugin| plugin.down.as_ref().is_none_or(|down| down.reason != "missing"));
    let (names, up): (Vec<&str>, Vec<Value>) =
        running.map(|plugin| (&*plugin.name, Value::Int(u64::from(plugin.down.is_none())))).unzip();
    out.one(&PLUGIN_UP, &by("plugin", names), up);
    let faults = view.plugins.iter().flat_map(|of| of.faults.iter().map(|(reason, n)| (&*of.name, *reason, *n)));
    let (cells, counts): (Vec<Labels<'_>>, Vec<Value>) =
        faults.map(|(plugin, reason, n)| (vec![("plugin", plugin), ("reason", reason)], Value::Int(n))).unzip();
    out.one(&PLUGIN_FAULTS, &cells, counts);
}

/// A device has the few that it reported, and those that are dangerous.
fn xids(out: &mut Families<'_, impl Listener>, wholes: &[&DeviceView]) {
    let of = |view: &DeviceView| view.reading.as_ref().map(|reading| Arc::clone(&reading.values));
    let all: Vec<_> = wholes.iter().map(|view| of(view)).collect();
    let numbers: BTreeSet<u64> = all.iter().flatten().flat_map(|values| values.xids.keys().copied()).collect();
    let texts: Vec<String> = numbers.iter().map(u64::to_string).collect();
    let cells = by("xid", texts.iter().map(String::as_str));
    let known = || all.iter().map(|values| numbers.iter().map(move |number| values.as_ref()?.xids.get(number)));
    out.all(&XID_ERRORS, &DEVICE_ROWS, &cells, known().map(|all| all.map(|xid| int(xid?.count))));
    let last = known().map(|all| all.map(|xid| plain(Value::Nanos(xid?.last?.0))));
    out.all(&XID_LAST, &DEVICE_ROWS, &cells, last);
}

/// Stats of external plugins, by the names that they give.
fn stats(out: &mut Families<'_, impl Listener>, view: &DevicesView) {
    let mut all: Vec<(&str, String, &str, Value)> = Vec::new();
    for device in &view.devices {
        let Some(reading) = &device.reading else { continue };
        gather(&reading.stats, "", &mut |name, unit, value| all.push((device.device.id.as_str(), name, unit, value)));
    }
    let cells: Vec<Labels<'_>> = all
        .iter()
        .map(|(device, name, unit, _)| vec![("device_uuid", *device), ("stat", name.as_str()), ("stat_unit", *unit)])
        .collect();
    out.one(&DEVICE_STAT, &cells, all.iter().map(|(.., value)| *value));
}

fn gather<'a>(of: &'a StatObject, path: &str, each: &mut impl FnMut(String, &'a str, Value)) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
    for (name, stat) in &of.attributes {
        if let Some(StatReading::Ratio { numerator, unit, .. }) = &stat.value {
            each(below(name), unit.as_ref().map_or("", UnitName::as_str), Value::Float(numerator.as_f64()));
        }
    }
    for (name, nested) in &of.nested {
        gather(nested, &below(name), each);
    }
}
