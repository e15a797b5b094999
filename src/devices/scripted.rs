//! A simulated GPU for the demo on a host without one. A fixed schedule generates its values, and its name marks it as
//! not real.
//!
//! ```text
//! each 6 s    3 s busy     3 s idle      like the demo's worker
//! power         310 W         45 W       energy is derived from it
//! ```
//! On a host with a GPU the simulated one does not exist.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::entry::PluginEntry;
use super::nvidia::NvidiaConfig;
use super::plugin::{DevicePlugin, PluginError, PluginFault, PluginReports};
use crate::host::clock::Clock;
use crate::host::gpu::Library;
use crate::model::attribute::{Attribute, AttributeUnit, Number, UnitName};
use crate::model::device::{
    Device, DeviceFacts, DeviceGroup, DeviceKind, DeviceReading, DeviceReservation, DeviceUsage, Engine, Sensor,
    Threshold,
};
use crate::model::id::DeviceId;
use crate::model::units::Timestamp;

pub const NAME: &str = "scripted (not real)";
const ID: &str = "scripted-0";
const ABOUT: &str = "simulated for the demo: there is no such device";

const GIB: u64 = 1 << 30;
const MEMORY: u64 = 24 * GIB;
const CYCLE_MS: u64 = 6_000;
const WORK_MS: u64 = 3_000;
const WORK_WATTS: u64 = 310;
const REST_WATTS: u64 = 45;

pub static ENTRY: PluginEntry = PluginEntry {
    kind: "scripted",
    build: |parts| match parts.config.scripted {
        true => vec![Arc::new(SimulatedGpus::new(parts.config.gpus.clone(), Arc::clone(parts.clock)))],
        false => Vec::new(),
    },
};

/// The plugin of simulated GPUs.
pub struct SimulatedGpus {
    gpus: NvidiaConfig,
    clock: Arc<dyn Clock>,
}

impl SimulatedGpus {
    /// `gpus`: settings with which a real GPU would be found.
    pub fn new(gpus: NvidiaConfig, clock: Arc<dyn Clock>) -> SimulatedGpus {
        SimulatedGpus { gpus, clock }
    }

    fn is_needed(&self) -> bool {
        let found = Library::load(self.gpus.library.as_deref()).and_then(|library| library.inventory());
        !found.is_ok_and(|gpus| !gpus.is_empty())
    }
}

impl DevicePlugin for SimulatedGpus {
    fn name(&self) -> &str {
        "scripted"
    }

    fn run(&self, reports: &PluginReports) -> PluginError {
        if !self.is_needed() {
            return PluginError::new(PluginFault::Missing, "no simulated GPU on a host with a real one");
        }
        let began = self.clock.instant();
        if !reports.groups(vec![group()]) {
            return PluginError::stopped();
        }
        loop {
            let elapsed = self.clock.instant().saturating_duration_since(began);
            if !reports.reading(reading(elapsed, self.clock.now())) || !reports.wait(reports.tick) {
                return PluginError::stopped();
            }
        }
    }

    /// A task needs nothing to use it.
    fn reserve(&self, ids: &[DeviceId]) -> Result<DeviceReservation, PluginError> {
        match ids.iter().find(|id| id.as_str() != ID) {
            Some(id) => Err(PluginError::new(PluginFault::Invalid, format!("there is no device {id}"))),
            None => Ok(DeviceReservation::default()),
        }
    }
}

fn group() -> DeviceGroup {
    let kind = DeviceKind { vendor: "allostat".to_owned(), kind: "gpu".to_owned(), name: NAME.to_owned() };
    let memory =
        Attribute::Number { value: Number::from(MEMORY / GIB), unit: Some(UnitName::Known(AttributeUnit::GiB)) };
    let about = Attribute::Text(ABOUT.to_owned());
    let attributes = BTreeMap::from([("memory".to_owned(), memory), ("description".to_owned(), about)]);
    let facts = DeviceFacts { index: Some(0), ..DeviceFacts::default() };
    DeviceGroup { kind, attributes, devices: vec![Device { facts, ..Device::of(DeviceId::from(ID)) }] }
}

fn reading(elapsed: Duration, at: Timestamp) -> DeviceReading {
    DeviceReading {
        device: DeviceId::from(ID),
        at,
        up: true,
        values: Arc::new(values(elapsed)),
        stats: Arc::default(),
        // An empty list would mean that its memory in use belongs to no process.
        processes: None,
    }
}

/// Pure.
fn values(elapsed: Duration) -> DeviceUsage {
    let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    let (cycles, into) = (elapsed_ms / CYCLE_MS, elapsed_ms % CYCLE_MS);
    let (works, worked_ms) = (into < WORK_MS, into.min(WORK_MS));
    let rested_ms = into - worked_ms;
    let (watts, used) = if works { (WORK_WATTS, 14 * GIB) } else { (REST_WATTS, 2 * GIB) };
    let each_cycle = WORK_MS * WORK_WATTS + (CYCLE_MS - WORK_MS) * REST_WATTS;
    let mut usage = DeviceUsage {
        memory_used_bytes: Some(used),
        memory_free_bytes: Some(MEMORY - used),
        memory_total_bytes: Some(MEMORY),
        power_milliwatts: Some(watts * 1_000),
        power_limit_milliwatts: Some(350_000),
        energy_millijoules: Some(cycles * each_cycle + worked_ms * WORK_WATTS + rested_ms * REST_WATTS),
        ..DeviceUsage::default()
    };
    usage.utilization[Engine::General.index()] = Some(if works { 0.92 } else { 0.0 });
    usage.utilization[Engine::Memory.index()] = Some(if works { 0.55 } else { 0.0 });
    // The temperature rises by 6 degrees a second when busy, and falls as fast when idle.
    usage.temperature[Sensor::Gpu.index()] = Some(52 + 6 * (worked_ms - rested_ms) / 1_000);
    usage.threshold[Threshold::Slowdown.index()] = Some(90);
    usage
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;
    use crate::devices::checks;
    use crate::devices::plugin::{PluginReport, StopSignal};
    use crate::host::clock::SystemClock;

    fn at(ms: u64) -> DeviceUsage {
        values(Duration::from_millis(ms))
    }

    #[test]
    fn scripted_gpu_works_half_of_each_six_seconds_and_its_energy_integrates_power() {
        let busy = |ms| at(ms).utilization[Engine::General.index()];
        assert_eq!([0, 2_999, 3_000, 5_999, 6_000].map(busy), [0.92, 0.92, 0.0, 0.0, 0.92].map(Some));
        let mut joules = 0;
        for ms in 0..20_000 {
            let now = at(ms);
            assert_eq!(now.energy_millijoules, Some(joules), "after {ms} ms");
            joules += now.power_milliwatts.unwrap() / 1_000;
            assert_eq!(now.memory_used_bytes.unwrap() + now.memory_free_bytes.unwrap(), MEMORY);
            assert!((52..=70).contains(&now.temperature[Sensor::Gpu.index()].unwrap()), "after {ms} ms");
        }
    }

    #[test]
    fn scripted_plugin_announces_itself_and_its_devices_are_accepted() {
        let (to, received) = sync_channel(8);
        let ends = Arc::<StopSignal>::default();
        let reports = PluginReports::new(to, Arc::clone(&ends), Duration::from_millis(1));
        let nowhere =
            NvidiaConfig { library: Some("/nonexistent/libnvidia-ml.so.1".into()), ..NvidiaConfig::default() };
        let plugin = Arc::new(SimulatedGpus::new(nowhere, Arc::new(SystemClock)));
        let running = std::thread::spawn({
            let plugin = Arc::clone(&plugin);
            move || plugin.run(&reports)
        });
        let PluginReport::Groups(groups) = received.recv().unwrap() else { panic!("groups come first") };
        checks::groups(&groups).unwrap();
        assert_eq!(groups[0].kind.to_string(), "allostat/gpu/scripted (not real)");
        assert_eq!(groups[0].attributes["description"], Attribute::Text(ABOUT.to_owned()));
        let PluginReport::Reading(reading) = received.recv().unwrap() else { panic!("then readings") };
        checks::reading(&reading).unwrap();
        assert_eq!(reading.device, groups[0].devices[0].id);
        ends.end();
        drop(received);
        assert_eq!(running.join().unwrap().fault, PluginFault::Stopped);
        assert_eq!(plugin.reserve(&[DeviceId::from(ID)]), Ok(DeviceReservation::default()));
        assert_eq!(plugin.reserve(&[DeviceId::from("GPU-0")]).unwrap_err().fault, PluginFault::Invalid);
    }
}
