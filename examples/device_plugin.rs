//! A device plugin of ours that has devices without a host that has them, served in Nomad's protocol: for the tests.
//!
//! Two devices; the second one falls ill after a second, and is read no more. `DEVICE_PLUGIN=missing`: it finds nothing
//! to work with.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use allostat::devices::plugin::{DevicePlugin, PluginError, PluginFault, PluginReports};
use allostat::devices::served::serve;
use allostat::model::attribute::Attribute;
use allostat::model::device::{
    Device, DeviceFacts, DeviceGroup, DeviceKind, DeviceNode, DeviceReading, DeviceReservation, DeviceUsage,
};
use allostat::model::id::DeviceId;
use allostat::model::stat::{StatObject, StatReading, StatValue};
use allostat::model::units::Timestamp;

struct Scripted;

fn main() {
    let emit = |line: &str| writeln!(std::io::stdout(), "{line}").and_then(|()| std::io::stdout().flush());
    if let Err(error) = serve(Arc::new(Scripted), emit) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn groups(ill: Option<&str>) -> Vec<DeviceGroup> {
    let kind = DeviceKind { vendor: "nvidia".into(), kind: "gpu".into(), name: "Scripted".into() };
    let facts = DeviceFacts { pci_bus_id: "0000:3b:00.0".into(), ..DeviceFacts::default() };
    let device = |id: &str, ill: Option<&str>| Device {
        unhealthy: ill.map(str::to_owned),
        facts: facts.clone(),
        ..Device::of(DeviceId::from(id))
    };
    let attribute = |text: &str| Attribute::parse(text).expect("it must be an attribute");
    let attributes = [("memory".to_owned(), attribute("16 GiB")), ("mode".to_owned(), attribute("fast"))];
    vec![DeviceGroup {
        kind,
        attributes: attributes.into(),
        devices: vec![device("GPU-1", None), device("GPU-2", ill)],
    }]
}

fn reading(id: &str) -> DeviceReading {
    let values = DeviceUsage {
        power_milliwatts: Some(70_900),
        power_limit_milliwatts: Some(250_000),
        memory_used_bytes: Some(3 << 30),
        memory_total_bytes: Some(16 << 30),
        ..DeviceUsage::default()
    };
    let own = StatValue { value: Some(StatReading::Bool(false)), description: None };
    DeviceReading {
        device: DeviceId::from(id),
        at: Timestamp::from_system(std::time::SystemTime::now()),
        up: true,
        values: Arc::new(values),
        stats: Arc::new(StatObject { attributes: BTreeMap::from([("own".to_owned(), own)]), ..StatObject::default() }),
        processes: None,
    }
}

impl DevicePlugin for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }
    fn run(&self, reports: &PluginReports) -> PluginError {
        if std::env::var("DEVICE_PLUGIN").as_deref() == Ok("missing") {
            return PluginError::new(PluginFault::Missing, "there is no library");
        }
        reports.groups(groups(None));
        reports.reading(reading("GPU-1"));
        reports.reading(DeviceReading { up: false, ..reading("GPU-2") });
        if !reports.wait(Duration::from_secs(1)) {
            return PluginError::stopped();
        }
        reports.groups(groups(Some("fell off the bus")));
        while reports.wait(reports.tick) {
            reports.reading(reading("GPU-1"));
        }
        PluginError::stopped()
    }
    fn reserve(&self, ids: &[DeviceId]) -> Result<DeviceReservation, PluginError> {
        if let Some(unknown) = ids.iter().find(|id| !["GPU-1", "GPU-2"].contains(&id.as_str())) {
            return Err(PluginError::new(PluginFault::Invalid, format!("there is no device {unknown}: 100% sure")));
        }
        let ids = ids.iter().map(DeviceId::as_str).collect::<Vec<_>>().join(",");
        let node = |path: &str| DeviceNode { task_path: path.into(), host_path: path.into(), permissions: "rw".into() };
        let env = [("NVIDIA_VISIBLE_DEVICES".to_owned(), ids)].into();
        Ok(DeviceReservation { env, nodes: vec![node("/dev/nvidia0")], mounts: Vec::new() })
    }
}
