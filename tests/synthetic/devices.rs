//! Devices that are made up: one wholly known, one that is gone, one that is divided, one of another maker.

use std::collections::BTreeMap;
use std::sync::Arc;

use allostat::board::devices::{DeviceView, DevicesView, PluginDown, PluginView};
use allostat::model::alloc::AllocIdentity;
use allostat::model::device::{
    Device, DeviceFacts, DeviceKind, DeviceReading, DeviceUsage, TaskDevice, TaskDeviceUsage, Xid,
};
use allostat::model::id::DeviceId;
use allostat::model::stat::{StatObject, StatReading, StatValue};
use allostat::model::units::Timestamp;

use super::NOW;

/// Every field present: a number that identifies it.
pub fn usage() -> DeviceUsage {
    let some = |first: u64| move |n: usize| Some(first + n as u64);
    DeviceUsage {
        utilization: [Some(0.875), Some(0.5), Some(0.0), Some(1.0)],
        memory_used_bytes: Some(40 << 30),
        memory_free_bytes: Some(39 << 30),
        memory_reserved_bytes: Some(1 << 30),
        memory_total_bytes: Some(80 << 30),
        bar1_used_bytes: Some(1 << 20),
        bar1_total_bytes: Some(128 << 30),
        temperature: [Some(41), Some(52)],
        threshold: std::array::from_fn(some(87)),
        power_milliwatts: Some(412_345),
        power_average_milliwatts: Some(400_001),
        power_limit_milliwatts: Some(700_000),
        energy_millijoules: Some(123_456_789_012),
        clock_hertz: std::array::from_fn(some(1_980_000_000)),
        clock_max_hertz: std::array::from_fn(some(2_000_000_000)),
        throttled: Some([true, false, true, false, false, false, false, false, false]),
        throttled_nanos: std::array::from_fn(some(7_000_000_000)),
        ecc_errors: [[Some(1), Some(2)], [Some(0), Some(3)]],
        remapped_rows: [Some(4), Some(5)],
        row_remap_pending: Some(true),
        row_remap_failed: Some(false),
        retired_pages: [Some(6), Some(7)],
        pcie_transmit_bytes: Some(1 << 40),
        pcie_receive_bytes: Some(1 << 41),
        pcie_replays: Some(8),
        pcie_link_generation: Some(5),
        pcie_link_width: Some(16),
        nvlink_transmit_bytes: Some(1 << 42),
        nvlink_receive_bytes: Some(1 << 43),
        nvlink_links: [Some(17), Some(1)],
        nvlink_errors: std::array::from_fn(some(9)),
        activity: [Some(0.625), Some(0.25), Some(0.375)],
        recovery_action: Some(0),
        processes: Some(3),
        xids: BTreeMap::from([(48, Xid::default()), (79, Xid { count: 2, last: Some(Timestamp(NOW.0 - 1)) })]),
    }
}

fn kind(vendor: &str, kind: &str, name: &str) -> DeviceKind {
    DeviceKind { vendor: vendor.into(), kind: kind.into(), name: name.into() }
}

fn device(id: &str, facts: DeviceFacts, usage: Option<DeviceUsage>, info: &[(&'static str, &str)]) -> DeviceView {
    let reading = usage.map(|values| {
        Arc::new(DeviceReading {
            device: DeviceId::from(id),
            at: NOW,
            up: true,
            values: Arc::new(values),
            stats: Arc::default(),
            processes: None,
        })
    });
    DeviceView {
        plugin: "nvidia".into(),
        kind: Arc::new(kind("nvidia", "gpu", "NVIDIA H100")),
        attributes: Arc::default(),
        device: Arc::new(Device { facts, ..Device::of(DeviceId::from(id)) }),
        info: info.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
        up: reading.is_some(),
        stuck: false,
        reading,
        unowned_bytes: None,
    }
}

/// As an FPGA's plugin reports: two numbers, and what is no number.
fn foreign() -> StatObject {
    let value = |value| StatValue { value: Some(value), description: None };
    let ratio = |n: u64, unit: &str| value(StatReading::number(n, Some(unit.to_owned().into())));
    let below = StatObject { attributes: BTreeMap::from([("used".into(), ratio(3, "MiB"))]), nested: BTreeMap::new() };
    StatObject {
        attributes: BTreeMap::from([
            ("lanes \"in\" use".into(), ratio(7, "")),
            ("state".into(), value(StatReading::Text("on".into()))),
        ]),
        nested: BTreeMap::from([("memory".into(), below)]),
    }
}

/// Held and used by the first task of the first alloc, with a second task beside it; by the second alloc until its end.
pub fn some(allocs: [&Arc<AllocIdentity>; 2]) -> DevicesView {
    let info =
        [("plugin", "nvidia"), ("vendor", "nvidia"), ("device_type", "gpu"), ("model", "NVIDIA H100"), ("index", "0")];
    let part = DeviceFacts { parent: Some(DeviceId::from("GPU-2")), ..DeviceFacts::default() };
    let of_part = [("profile", "MIG 1g.10gb"), ("gpu_instance_id", "7"), ("compute_instance_id", "0")];
    let whole = |id: &str, usage| device(id, DeviceFacts::default(), usage, &info);
    let mut full = whole("GPU-0", Some(usage()));
    full.unowned_bytes = Some(5 << 20);
    let mut stuck = whole("GPU-1", None);
    stuck.stuck = true;
    let of_fpga = [("plugin", "acme"), ("vendor", "acme"), ("device_type", "fpga"), ("model", "U250")];
    let mut fpga = device("fpga0", DeviceFacts::default(), Some(DeviceUsage::default()), &of_fpga);
    (fpga.plugin, fpga.kind) = ("acme".into(), Arc::new(kind("acme", "fpga", "U250")));
    let reading = fpga.reading.as_mut().map(Arc::make_mut).expect("it was read");
    reading.stats = Arc::new(foreign());
    let memory = |used| DeviceUsage { memory_used_bytes: Some(used), ..DeviceUsage::default() };
    let instance = device("MIG-2-7", part, Some(memory(2 << 30)), &of_part);
    let on = |alloc: &Arc<AllocIdentity>, task: usize, device: (&str, &str, &str), usage, ended: bool| {
        Arc::new(TaskDevice {
            alloc: Arc::clone(alloc),
            task: alloc.tasks[task].name.clone(),
            device: DeviceId::from(device.0),
            whole: DeviceId::from(device.1),
            gpu_instance: device.2.to_owned(),
            reserved: !ended,
            usage,
            ended,
        })
    };
    let usage = |first: u64| TaskDeviceUsage {
        memory_used_bytes: Some(first),
        memory_peak_bytes: Some(first * 2),
        sm_ratio: Some(0.25),
        processes: Some(1),
        energy_millijoules: Some(first + 1),
        xid_errors: Some(2),
    };
    let mut uses = vec![
        on(allocs[0], 0, ("GPU-0", "GPU-0", ""), usage(1_000_000), false),
        on(allocs[0], 0, ("MIG-2-7", "GPU-2", "7"), TaskDeviceUsage::default(), false),
        on(allocs[0], 1, ("GPU-0", "GPU-0", ""), usage(3_000_000), false),
        on(allocs[1], 0, ("GPU-0", "GPU-0", ""), usage(7), true),
    ];
    uses.sort_by(|a, b| (&a.alloc.id, &a.task, &a.device).cmp(&(&b.alloc.id, &b.task, &b.device)));
    let down = PluginDown { reason: "died", message: "it ended".into() };
    let plugins = vec![
        PluginView { name: "fpga".into(), down: Some(down), faults: BTreeMap::from([("died", 3)]) },
        PluginView { name: "nvidia".into(), down: None, faults: BTreeMap::new() },
    ];
    DevicesView { devices: [full, stuck, whole("GPU-2", None), instance, fpga].map(Arc::new).into(), uses, plugins }
}
