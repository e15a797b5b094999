//! What stands in a scenario file: the driver, the devices with all their values, what goes wrong, what happens.
//!
//! A value that is not there is one that this hardware does not have: its function answers "not supported".

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, io};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fault::Fault;
use crate::functions;
use crate::profile;

/// NVML's word for "this value is not known": memory of a process, instance of a process that is in none.
pub const NOT_AVAILABLE: u64 = u64::MAX;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    pub system: System,
    pub devices: Vec<Device>,
    pub faults: Vec<Fault>,
    /// Delivered once each to clients that had registered before they stood here.
    pub events: Vec<Event>,
    /// Every call is noted in the file beside this one: see [`crate::calls`].
    pub record_calls: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct System {
    /// From 580.82 on, field ids 251 to 273 are other ones; so they are here.
    pub driver_version: String,
    pub nvml_version: String,
    /// 12.8 is 12080.
    pub cuda_version: i32,
}

impl Default for System {
    fn default() -> System {
        System { driver_version: "570.172.08".into(), nvml_version: "12.570.172.08".into(), cuda_version: 12080 }
    }
}

/// Something that an event set hears of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// Growing: what was delivered is known by it.
    pub id: u64,
    /// The position of the device.
    pub device: usize,
    /// `nvmlEventType*`; 8 is a critical XID.
    pub kind: u64,
    /// The XID.
    pub data: u64,
    #[serde(default)]
    pub gpu_instance: Option<u32>,
    #[serde(default)]
    pub compute_instance: Option<u32>,
}

pub const EVENT_XID: u64 = 8;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Device {
    /// Whose values these are, but for those that stand beside it. What is written has all values, and needs none.
    #[serde(skip_serializing)]
    pub profile: String,
    /// Made of the device's position where nothing is given; so are bus and minor number.
    pub uuid: String,
    pub name: String,
    /// The GPU has fallen off the bus: all that is asked of it answers so.
    pub lost: bool,
    /// Functions that this hardware answers with "not supported", whatever stands below; of the field values,
    /// `field:82`.
    pub refuses: BTreeSet<String>,
    pub minor: Option<u32>,
    pub serial: Option<String>,
    pub vbios: Option<String>,
    pub board_part_number: Option<String>,
    pub pci: Pci,
    /// `nvmlBrandType_t`.
    pub brand: u32,
    /// `NVML_DEVICE_ARCH_*`.
    pub architecture: u32,
    pub compute_capability: [i32; 2],
    pub cores: Option<u32>,
    pub utilization: Option<Utilization>,
    pub encoder: Option<Engine>,
    pub decoder: Option<Engine>,
    pub memory: Option<Memory>,
    pub bar1: Option<Memory>,
    pub temperature_celsius: Option<u32>,
    /// Field 82.
    pub memory_temperature_celsius: Option<u32>,
    /// By `nvmlTemperatureThresholds_t`.
    pub temperature_thresholds: BTreeMap<u32, u32>,
    pub fans_percent: Vec<u32>,
    pub power: Option<Power>,
    /// Since the driver was loaded.
    pub energy_mj: Option<u64>,
    pub clocks: Option<Clocks>,
    pub performance_state: Option<u32>,
    pub compute_mode: u32,
    /// `nvmlClocksEventReason*`.
    pub throttle_reasons: Option<u64>,
    pub throttle_reasons_supported: Option<u64>,
    /// Nanoseconds by `nvmlPerfPolicyType_t`.
    pub violations_ns: BTreeMap<u32, u64>,
    pub ecc: Option<Ecc>,
    pub retired_pages: Option<RetiredPages>,
    pub remapped_rows: Option<RemappedRows>,
    pub pcie: Option<Pcie>,
    pub nvlink: Option<NvLinks>,
    pub persistence: Option<bool>,
    pub display_connected: Option<bool>,
    pub display_active: Option<bool>,
    /// Field values by their ids in NVML 12; what is not here is answered from the values above, where they have it.
    pub fields: BTreeMap<u32, u64>,
    pub compute: Vec<Process>,
    pub graphics: Vec<Process>,
    pub mps: Vec<Process>,
    pub accounting: Option<Accounting>,
    /// `nvmlEventType*` that can be registered.
    pub events: Option<u64>,
    /// What GPM measures, by `nvmlGpmMetricId_t`.
    pub gpm: Option<BTreeMap<u32, f64>>,
    pub mig: Option<Mig>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pci {
    pub domain: u32,
    pub bus: Option<u32>,
    pub device: u32,
    /// Device and vendor, as in `pciDeviceId`.
    pub device_id: u32,
    pub subsystem_id: u32,
}

impl Pci {
    /// `00000000:3B:00.0`
    pub fn bus_id(&self) -> String {
        format!("{:08X}:{:02X}:{:02X}.0", self.domain, self.bus.unwrap_or(0), self.device)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Utilization {
    pub gpu_percent: u32,
    pub memory_percent: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Engine {
    pub percent: u32,
    pub sampling_period_us: u32,
}

/// What is free follows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    pub total_bytes: u64,
    /// By driver and firmware: part of `used` in the first form of the call, apart in the second.
    #[serde(default)]
    pub reserved_bytes: u64,
    pub used_bytes: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    /// Of `nvmlDeviceGetPowerUsage`.
    pub usage_mw: u32,
    /// Field 186.
    #[serde(default)]
    pub instant_mw: Option<u32>,
    /// Field 185.
    #[serde(default)]
    pub average_mw: Option<u32>,
    #[serde(default)]
    pub limit: Option<PowerLimit>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PowerLimit {
    pub set_mw: u32,
    pub enforced_mw: u32,
    pub default_mw: u32,
    pub min_mw: u32,
    pub max_mw: u32,
}

/// By `nvmlClockType_t`: graphics, SM, memory, video.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clocks {
    pub now_mhz: [u32; 4],
    pub max_mhz: [u32; 4],
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ecc {
    pub enabled: bool,
    pub pending: bool,
    #[serde(default)]
    pub volatile: EccErrors,
    #[serde(default)]
    pub aggregate: EccErrors,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EccErrors {
    pub corrected: u64,
    pub uncorrected: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetiredPages {
    pub single_bit: Vec<RetiredPage>,
    pub double_bit: Vec<RetiredPage>,
    pub pending: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetiredPage {
    pub address: u64,
    pub timestamp_us: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RemappedRows {
    pub corrected: u32,
    pub uncorrected: u32,
    pub pending: bool,
    pub failed: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pcie {
    pub generation: u32,
    pub max_generation: u32,
    pub width: u32,
    pub max_width: u32,
    #[serde(default)]
    pub replays: u32,
    /// Field 197; the hardware's counter wraps.
    #[serde(default)]
    pub transmitted_bytes: Option<u64>,
    /// Field 198.
    #[serde(default)]
    pub received_bytes: Option<u64>,
    /// To and from the device.
    #[serde(default)]
    pub throughput_kib_per_second: Option<[u32; 2]>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvLinks {
    pub version: u32,
    /// One for each link.
    pub active: Vec<bool>,
    /// By link, then by `nvmlNvLinkErrorCounter_t`. A link that is not here has had none.
    #[serde(default)]
    pub errors: BTreeMap<u32, [u64; 5]>,
    /// KiB of payload that were sent and received, by link; none: it does not count them.
    #[serde(default)]
    pub data_kib: BTreeMap<u32, [u64; 2]>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    pub pid: u32,
    /// [`NOT_AVAILABLE`] where the driver cannot say.
    pub memory_bytes: u64,
    /// The newest sample of what it uses; none for one that does nothing.
    #[serde(default)]
    pub sample: Option<ProcessSample>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProcessSample {
    pub timestamp_us: u64,
    pub sm_percent: u32,
    pub memory_percent: u32,
    pub encoder_percent: u32,
    pub decoder_percent: u32,
}

impl Process {
    pub fn new(pid: u32, memory_bytes: u64) -> Process {
        Process { pid, memory_bytes, sample: None }
    }
    pub fn uses(mut self, timestamp_us: u64, sm_percent: u32) -> Process {
        self.sample = Some(ProcessSample { timestamp_us, sm_percent, ..ProcessSample::default() });
        self
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Accounting {
    pub enabled: bool,
    pub buffer_size: u32,
    pub processes: Vec<Accounted>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Accounted {
    pub pid: u32,
    pub gpu_percent: u32,
    pub memory_percent: u32,
    pub max_memory_bytes: u64,
    pub time_ms: u64,
    pub start_time_us: u64,
    pub running: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mig {
    pub enabled: bool,
    pub pending: bool,
    pub max_instances: u32,
    pub instances: Vec<Instance>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Instance {
    pub uuid: String,
    pub name: String,
    pub gpu_instance: u32,
    pub compute_instance: u32,
    pub gpu_slices: u32,
    pub compute_slices: u32,
    pub multiprocessors: u32,
    pub memory: Memory,
    pub compute: Vec<Process>,
    pub gpm: BTreeMap<u32, f64>,
}

impl Device {
    /// A device of a profile of `profiles/`, whose values can then be set.
    ///
    /// # Panics
    /// Where there is no such profile.
    #[must_use]
    pub fn of(profile: &str) -> Device {
        let value = profile::merged(serde_json::json!({ "profile": profile }));
        serde_json::from_value(value.unwrap_or_else(|e| panic!("{e}"))).expect("a profile must hold a device")
    }
    #[must_use]
    pub fn uuid(mut self, uuid: &str) -> Device {
        uuid.clone_into(&mut self.uuid);
        self
    }
    #[must_use]
    pub fn runs(mut self, process: Process) -> Device {
        self.compute.push(process);
        self
    }
    #[must_use]
    pub fn refuses(mut self, function: &str) -> Device {
        self.refuses.insert(function.to_owned());
        self
    }
    /// Gives what a device has of its position where nothing else was said.
    fn placed_at(&mut self, position: usize) {
        let number = u32::try_from(position).unwrap_or(u32::MAX);
        if self.uuid.is_empty() {
            self.uuid = format!("GPU-fa4e0000-0000-4000-8000-{position:012x}");
        }
        self.pci.bus.get_or_insert(number + 1);
        self.minor.get_or_insert(number);
        for (at, instance) in self.mig.iter_mut().flat_map(|mig| &mut mig.instances).enumerate() {
            if instance.uuid.is_empty() {
                instance.uuid = format!("MIG-fa4e0000-0000-4000-{at:04x}-{position:012x}");
            }
        }
    }
}

impl Scenario {
    #[must_use]
    pub fn new() -> Scenario {
        Scenario::default()
    }
    #[must_use]
    pub fn with(mut self, device: Device) -> Scenario {
        self.add(device);
        self
    }
    #[must_use]
    pub fn fault(mut self, fault: Fault) -> Scenario {
        self.faults.push(fault);
        self
    }
    pub fn add(&mut self, mut device: Device) -> &mut Device {
        device.placed_at(self.devices.len());
        self.devices.push(device);
        self.devices.last_mut().expect("it was just added")
    }
    /// Adds an event of a critical XID.
    pub fn xid(&mut self, device: usize, xid: u64) {
        let id = self.events.last().map_or(1, |event| event.id + 1);
        let (gpu_instance, compute_instance) = (None, None);
        self.events.push(Event { id, device, kind: EVENT_XID, data: xid, gpu_instance, compute_instance });
    }

    /// Errors: what is wrong with the text; no profile, no function of that name.
    pub fn parse(text: &str) -> Result<Scenario, String> {
        let mut value: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        for device in value.get_mut("devices").and_then(Value::as_array_mut).into_iter().flatten() {
            *device = profile::merged(device.take())?;
        }
        let mut scenario: Scenario = serde_json::from_value(value).map_err(|e| e.to_string())?;
        for (position, device) in scenario.devices.iter_mut().enumerate() {
            device.placed_at(position);
        }
        scenario.check()?;
        Ok(scenario)
    }

    /// A fault of a call that does not exist would never show.
    fn check(&self) -> Result<(), String> {
        let refused = self.devices.iter().flat_map(|device| &device.refuses);
        let refused = refused.filter(|name| !name.starts_with("field:"));
        let mut named = self.faults.iter().filter_map(|fault| fault.function.as_ref()).chain(refused);
        match named.find(|name| !functions::ALL.contains(&name.as_str())) {
            Some(name) => Err(format!("there is no function {name}")),
            None => Ok(()),
        }
    }

    /// In one step: a reader has the old one or the new one.
    ///
    /// Errors: a function that there is not; the file cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        self.check().map_err(io::Error::other)?;
        let mut next = path.as_os_str().to_owned();
        next.push(".next");
        fs::write(&next, serde_json::to_string_pretty(self)?)?;
        fs::rename(&next, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_the_values_of_its_profile_but_for_its_own() {
        let text = r#"{"devices": [{"profile": "h100", "temperature_celsius": 64, "energy_mj": null,
            "power": {"usage_mw": 5}, "fans_percent": [1]}, {"profile": "h100", "uuid": "GPU-mine"}]}"#;
        let scenario = Scenario::parse(text).unwrap();
        let (device, plain) = (&scenario.devices[0], Device::of("h100"));
        assert_eq!((device.temperature_celsius, device.energy_mj), (Some(64), None));
        let power = device.power.clone().unwrap();
        assert_eq!((power.usage_mw, power.limit), (5, plain.power.unwrap().limit));
        assert_eq!((&device.name, &device.fans_percent), (&plain.name, &vec![1]));
        assert_eq!(device.uuid, "GPU-fa4e0000-0000-4000-8000-000000000000");
        assert_eq!((scenario.devices[1].uuid.as_str(), scenario.devices[1].pci.bus), ("GPU-mine", Some(2)));
    }

    #[test]
    fn written_scenario_reads_back_equal() {
        let mut scenario = Scenario::new().with(Device::of("a100-mig")).fault(Fault::slow("nvmlShutdown", 3).after(1));
        scenario.xid(0, 79);
        scenario.devices[0].fields.clear();
        scenario.devices[0].memory = None;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("scenario.json");
        scenario.write(&path).unwrap();
        let mut read = Scenario::parse(&fs::read_to_string(&path).unwrap()).unwrap();
        read.devices[0].profile.clone_from(&scenario.devices[0].profile);
        assert_eq!(read, scenario);
    }

    #[test]
    fn a_wrong_word_is_named() {
        let wrong = |text: &str| Scenario::parse(text).unwrap_err();
        assert!(wrong(r#"{"devices": [{"profile": "h1000"}]}"#).contains("h1000"));
        assert!(wrong(r#"{"devices": [{"temprature": 3}]}"#).contains("temprature"));
        assert!(wrong(r#"{"devices": [{"refuses": ["nvmlDeviceGetNothing"]}]}"#).contains("nvmlDeviceGetNothing"));
        assert!(wrong(r#"{"faults": [{"function": "nvmlInit", "does": "hangs"}]}"#).contains("nvmlInit"));
        assert!(wrong(r#"{"faults": [{"does": "sings"}]}"#).contains("sings"));
    }

    #[test]
    fn the_example_of_the_header_can_be_played() {
        let header = include_str!("lib.rs");
        let example = header.split("```json").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let scenario = Scenario::parse(&example.replace("//!", "")).unwrap();
        assert_eq!((scenario.devices.len(), scenario.faults.len()), (1, 3));
    }
}
