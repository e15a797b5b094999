//! Repeated readings of one GPU. A call that is not supported is made once; one that fails is reported and repeated in
//! the next reading.

// `nvmlDeviceGetGpuInstanceId` and similar functions have no safe wrapper.
#![allow(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, RetirementCause, TemperatureSensor, TemperatureThreshold,
};
use nvml_wrapper::enum_wrappers::nv_link::ErrorCounter;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;

use super::activity::GpmActivity;
use super::lists::{self, GpuUse};
use super::number::{hertz, sane, share_of, whole};
use super::{GpuError, fabric};
use crate::model::device::{DeviceProcess, DeviceUsage};
use crate::model::id::DeviceId;

/// Slowly changing values (limits, thresholds, faults) are read once in this many readings.
const SELDOM: u32 = 30;
/// A list of processes may grow between the call for its length and the call for the list.
const TRIES: usize = 3;

/// Field ids that are read in one call.
mod field {
    pub const PERF_POLICY_POWER: u32 = 74;
    pub const PERF_POLICY_SYNC_BOOST: u32 = 76;
    pub const MEMORY_TEMPERATURE: u32 = 82;
    pub const REMAPPED_CORRECTED: u32 = 142;
    pub const REMAPPED_UNCORRECTED: u32 = 143;
    pub const REMAPPED_PENDING: u32 = 144;
    pub const REMAPPED_FAILED: u32 = 145;
    pub const POWER_AVERAGE: u32 = 185;
    pub const POWER_INSTANT: u32 = 186;
    pub const PCIE_TRANSMIT: u32 = 197;
    pub const PCIE_RECEIVE: u32 = 198;
    pub const RECOVERY_ACTION: u32 = 230;
    /// Id of CUDA 12; the wrapper translates it for newer drivers.
    pub const SOFTWARE_THERMAL: u32 = 251;
    pub const HARDWARE_THERMAL: u32 = 252;
    pub const HARDWARE_POWER_BRAKE: u32 = 253;

    pub const ALL: [u32; 15] = [
        PERF_POLICY_POWER,
        PERF_POLICY_SYNC_BOOST,
        MEMORY_TEMPERATURE,
        REMAPPED_CORRECTED,
        REMAPPED_UNCORRECTED,
        REMAPPED_PENDING,
        REMAPPED_FAILED,
        POWER_AVERAGE,
        POWER_INSTANT,
        PCIE_TRANSMIT,
        PCIE_RECEIVE,
        RECOVERY_ACTION,
        SOFTWARE_THERMAL,
        HARDWARE_THERMAL,
        HARDWARE_POWER_BRAKE,
    ];
}

/// A GPU for repeated readings. Concurrency: one thread.
#[derive(Debug)]
pub struct Gpu<'l> {
    device: Device<'l>,
    /// Calls that are not supported or not permitted.
    refused: BTreeSet<&'static str>,
    /// The last slowly changing values.
    seldom: DeviceUsage,
    readings: u32,
    /// Timestamp of the last processed sample, in microseconds.
    sampled_to: u64,
    /// The PIDs of the last reading.
    listed: BTreeSet<u32>,
    /// The PIDs of the last quick check, with the memory of each in bytes.
    last_checked: BTreeMap<u32, Option<u64>>,
    activity: GpmActivity<'l>,
    /// By kind, in the order of `LinkError`.
    link_errors: [fabric::Errors; 4],
}

/// The result of one reading.
#[derive(Debug, Default)]
pub struct GpuReading {
    /// Counters as the driver reports them: they restart at 0 with the driver.
    pub values: DeviceUsage,
    /// `None`: not known, or reported by instance.
    pub processes: Option<Vec<DeviceProcess>>,
    pub instances: Vec<(DeviceId, DeviceUsage, Option<Vec<DeviceProcess>>)>,
    /// Supported calls that failed.
    pub failed: Vec<GpuError>,
    /// Calls that this library, driver or GPU does not support, with the reading that found out.
    pub unsupported: Vec<&'static str>,
}

/// One reading in progress.
struct ReadAttempt<'a, 'l> {
    gpu: &'a Device<'l>,
    refused: &'a mut BTreeSet<&'static str>,
    failed: Vec<GpuError>,
    unsupported: Vec<&'static str>,
    lost: Option<GpuError>,
}

impl<'a, 'l> ReadAttempt<'a, 'l> {
    fn of(gpu: &'a Device<'l>, refused: &'a mut BTreeSet<&'static str>) -> ReadAttempt<'a, 'l> {
        ReadAttempt { gpu, refused, failed: Vec::new(), unsupported: Vec::new(), lost: None }
    }
    /// `None`: not supported or failed; or the device is lost, and no further call is made.
    fn query<T>(&mut self, name: &'static str, call: impl FnOnce(&Device<'l>) -> Result<T, NvmlError>) -> Option<T> {
        if self.lost.is_some() || self.refused.contains(name) {
            return None;
        }
        match call(self.gpu).map_err(|e| GpuError::of(name, &e)) {
            Ok(value) => Some(value),
            Err(GpuError::Nothing(_)) => None,
            Err(GpuError::Unsupported(_)) => {
                self.refused.insert(name);
                self.unsupported.push(name);
                None
            }
            Err(error @ GpuError::NoPermission(_)) => {
                self.refused.insert(name);
                self.failed.push(error);
                None
            }
            Err(error @ GpuError::Lost(_)) => {
                self.lost = Some(error);
                None
            }
            Err(error) => {
                self.failed.push(error);
                None
            }
        }
    }
    /// A number for which the maximum value means "not available".
    fn number(&mut self, name: &'static str, call: impl FnOnce(&Device<'l>) -> Result<u32, NvmlError>) -> Option<u64> {
        self.query(name, call).filter(|n| *n != u32::MAX).map(u64::from)
    }
}

impl<'l> Gpu<'l> {
    pub(super) fn new(device: Device<'l>) -> Gpu<'l> {
        Gpu {
            device,
            refused: BTreeSet::new(),
            seldom: DeviceUsage::default(),
            readings: 0,
            sampled_to: 0,
            listed: BTreeSet::new(),
            last_checked: BTreeMap::new(),
            activity: GpmActivity::default(),
            link_errors: Default::default(),
        }
    }

    /// The processes, if a process is new or uses more memory than at the last quick check. `None`: no such change, the
    /// GPU is divided (MIG), or a call failed, which the next reading reports. Costs a hundredth of a reading
    /// (docs/figures.md). Errors: the GPU is lost.
    pub fn processes_if_changed(&mut self) -> Result<Option<Vec<DeviceProcess>>, GpuError> {
        let mut attempt = ReadAttempt::of(&self.device, &mut self.refused);
        let processes = processes(&mut attempt);
        let now: BTreeMap<_, _> =
            processes.iter().flatten().map(|process| (process.pid, process.memory_bytes)).collect();
        let before = std::mem::replace(&mut self.last_checked, now);
        let is_more =
            |process: &DeviceProcess| before.get(&process.pid).is_none_or(|bytes| *bytes < process.memory_bytes);
        let changed = processes.filter(|all| all.iter().any(is_more));
        // The instances of a divided GPU report their own processes, so the MIG mode must be known: otherwise the GPU
        // would report them too.
        const DIVIDED: &str = "nvmlDeviceGetMigMode";
        let mode = changed.as_ref().and_then(|_| attempt.query(DIVIDED, Device::mig_mode));
        let is_whole = mode.map_or(attempt.refused.contains(DIVIDED), |mode| mode.current == 0);
        match attempt.lost {
            Some(lost) => Err(lost),
            None => Ok(changed.filter(|_| is_whole)),
        }
    }

    /// Errors: the GPU is lost; this reading has no values.
    pub fn read(&mut self) -> Result<GpuReading, GpuError> {
        let Gpu { device, refused, seldom, readings, sampled_to, listed, last_checked: _, activity, link_errors } =
            self;
        let mut attempt = ReadAttempt::of(device, refused);
        if *readings % SELDOM == 0 {
            *seldom = read_seldom(&mut attempt, link_errors);
        }
        *readings += 1;
        let mut values = seldom.clone();
        read_now(&mut attempt, &mut values);
        read_fields(&mut attempt, &mut values);
        values.activity = attempt.query("nvmlGpmSampleGet", |gpu| activity.since_last(gpu, None)).unwrap_or_default();
        let instances = read_instances(&mut attempt, activity);
        let all = processes(&mut attempt);
        values.processes = all.as_ref().map(|all| all.len() as u64);
        let mut processes = all.filter(|_| instances.is_empty());
        if let Some(processes) = &mut processes {
            share(&mut attempt, processes, sampled_to);
            account(&mut attempt, processes, listed);
        }
        match attempt.lost {
            Some(lost) => Err(lost),
            None => {
                let ReadAttempt { failed, unsupported, .. } = attempt;
                Ok(GpuReading { values, processes, instances, failed, unsupported })
            }
        }
    }
}

fn read_seldom(attempt: &mut ReadAttempt<'_, '_>, link_errors: &mut [fabric::Errors; 4]) -> DeviceUsage {
    let thresholds = [
        ("slowdown threshold", TemperatureThreshold::Slowdown),
        ("shutdown threshold", TemperatureThreshold::Shutdown),
        ("GPU threshold", TemperatureThreshold::GpuMax),
        ("memory threshold", TemperatureThreshold::MemoryMax),
    ];
    let clocks = [
        ("highest graphics clock", Clock::Graphics),
        ("highest SM clock", Clock::SM),
        ("highest memory clock", Clock::Memory),
        ("highest video clock", Clock::Video),
    ];
    let causes = [
        ("pages retired for corrected errors", RetirementCause::MultipleSingleBitEccErrors),
        ("pages retired for an uncorrected error", RetirementCause::DoubleBitEccError),
    ];
    DeviceUsage {
        threshold: thresholds.map(|(name, of)| attempt.number(name, |gpu| gpu.temperature_threshold(of))),
        clock_max_hertz: clocks.map(|(name, of)| hertz(attempt.number(name, |gpu| gpu.max_clock_info(of)))),
        power_limit_milliwatts: attempt.number("nvmlDeviceGetEnforcedPowerLimit", Device::enforced_power_limit),
        retired_pages: causes.map(|(name, of)| attempt.query(name, |gpu| lists::retired_pages(gpu, &of))),
        pcie_link_generation: attempt.number("nvmlDeviceGetCurrPcieLinkGeneration", Device::current_pcie_link_gen),
        pcie_link_width: attempt.number("nvmlDeviceGetCurrPcieLinkWidth", Device::current_pcie_link_width),
        ecc_errors: read_ecc(attempt),
        ..read_links(attempt, link_errors)
    }
}

/// NVLink state and errors, without traffic.
fn read_links(attempt: &mut ReadAttempt<'_, '_>, known: &mut [fabric::Errors; 4]) -> DeviceUsage {
    let mut values = DeviceUsage::default();
    let Some(links) = attempt.query("nvmlDeviceGetNvLinkState", |gpu| fabric::links(gpu)) else { return values };
    let up = links.iter().filter(|is_up| **is_up).count();
    values.nvlink_links = [up, links.len() - up].map(|count| Some(count as u64));
    let kinds = [
        ("NVLink replays", ErrorCounter::DlReplay),
        ("NVLink recoveries", ErrorCounter::DlRecovery),
        ("NVLink CRC errors of flow control", ErrorCounter::DlCrcFlit),
        ("NVLink CRC errors of data", ErrorCounter::DlCrcData),
    ];
    // No link is up: a sum of 0 would be misleading.
    if up > 0 {
        for ((errors, known), (name, kind)) in values.nvlink_errors.iter_mut().zip(known).zip(kinds) {
            *errors = attempt.query(name, |gpu| fabric::errors(gpu, &links, kind, known));
        }
    }
    values
}

/// With ECC off there are no counters; 0 would mean "no errors".
fn read_ecc(attempt: &mut ReadAttempt<'_, '_>) -> [[Option<u64>; 2]; 2] {
    let on = attempt.query("nvmlDeviceGetEccMode", Device::is_ecc_enabled).is_some_and(|mode| mode.currently_enabled);
    let mut of = |name, kind: &MemoryError, counter: EccCounter| {
        if !on {
            return None;
        }
        attempt.query(name, |gpu| gpu.total_ecc_errors(*kind, counter)).filter(|n| *n != u64::MAX)
    };
    let (corrected, uncorrected) = (MemoryError::Corrected, MemoryError::Uncorrected);
    [
        [
            of("corrected errors, volatile", &corrected, EccCounter::Volatile),
            of("corrected errors, aggregate", &corrected, EccCounter::Aggregate),
        ],
        [
            of("uncorrected errors, volatile", &uncorrected, EccCounter::Volatile),
            of("uncorrected errors, aggregate", &uncorrected, EccCounter::Aggregate),
        ],
    ]
}

fn read_now(attempt: &mut ReadAttempt<'_, '_>, values: &mut DeviceUsage) {
    if let Some(of) = attempt.query("nvmlDeviceGetUtilizationRates", Device::utilization_rates) {
        (values.utilization[0], values.utilization[1]) = (share_of(of.gpu), share_of(of.memory));
    }
    let encoder = attempt.query("nvmlDeviceGetEncoderUtilization", Device::encoder_utilization);
    values.utilization[2] = encoder.and_then(|of| share_of(of.utilization));
    let decoder = attempt.query("nvmlDeviceGetDecoderUtilization", Device::decoder_utilization);
    values.utilization[3] = decoder.and_then(|of| share_of(of.utilization));
    read_memory(attempt, values);
    if let Some(bar1) = attempt.query("nvmlDeviceGetBAR1MemoryInfo", Device::bar1_memory_info) {
        (values.bar1_used_bytes, values.bar1_total_bytes) = (sane(bar1.used), sane(bar1.total));
    }
    values.temperature[0] = attempt.number("nvmlDeviceGetTemperature", |gpu| gpu.temperature(TemperatureSensor::Gpu));
    values.power_milliwatts = attempt.number("nvmlDeviceGetPowerUsage", Device::power_usage);
    let energy = attempt.query("nvmlDeviceGetTotalEnergyConsumption", Device::total_energy_consumption);
    values.energy_millijoules = energy.and_then(sane);
    let clocks = [
        ("graphics clock", Clock::Graphics),
        ("SM clock", Clock::SM),
        ("memory clock", Clock::Memory),
        ("video clock", Clock::Video),
    ];
    values.clock_hertz = clocks.map(|(name, of)| hertz(attempt.number(name, |gpu| gpu.clock_info(of))));
    let reasons = attempt.query("nvmlDeviceGetCurrentClocksThrottleReasons", Device::current_throttle_reasons);
    // The bits are in the order of `ThrottleReason`.
    values.throttled = reasons.map(|bits| std::array::from_fn(|n| bits.bits() & (1 << n) != 0));
    values.pcie_replays = attempt.number("nvmlDeviceGetPcieReplayCounter", Device::pcie_replay_counter);
    if values.nvlink_links[0].is_some_and(|up| up > 0) {
        let bytes = attempt.query("NVLink data", |gpu| fabric::bytes(gpu)).unwrap_or_default();
        [values.nvlink_transmit_bytes, values.nvlink_receive_bytes] = bytes;
    }
}

fn read_memory(attempt: &mut ReadAttempt<'_, '_>, values: &mut DeviceUsage) {
    if let Some(memory) = attempt.query("nvmlDeviceGetMemoryInfo", |gpu| lists::memory(gpu)) {
        values.memory_used_bytes = sane(memory.used);
        values.memory_free_bytes = sane(memory.free);
        values.memory_reserved_bytes = memory.reserved.and_then(sane);
        values.memory_total_bytes = sane(memory.total);
    }
}

/// One call for all fields; each field has its own result.
fn read_fields(attempt: &mut ReadAttempt<'_, '_>, values: &mut DeviceUsage) {
    let ids = field::ALL.map(FieldId);
    let Some(answers) = attempt.query("nvmlDeviceGetFieldValues", |gpu| gpu.field_values_for(&ids)) else { return };
    // Answers are matched to ids in request order, since the driver may use other ids.
    let known: BTreeMap<u32, u64> = field::ALL
        .into_iter()
        .zip(answers)
        .filter_map(|(id, answer)| Some((id, whole(answer.ok()?.value.ok()?)?)))
        .collect();
    let of = |id| known.get(&id).copied();
    values.temperature[1] = of(field::MEMORY_TEMPERATURE);
    values.power_milliwatts = of(field::POWER_INSTANT).or(values.power_milliwatts);
    values.power_average_milliwatts = of(field::POWER_AVERAGE);
    values.pcie_transmit_bytes = of(field::PCIE_TRANSMIT);
    values.pcie_receive_bytes = of(field::PCIE_RECEIVE);
    values.recovery_action = of(field::RECOVERY_ACTION);
    values.remapped_rows = [of(field::REMAPPED_CORRECTED), of(field::REMAPPED_UNCORRECTED)];
    values.row_remap_pending = of(field::REMAPPED_PENDING).map(|n| n > 0);
    values.row_remap_failed = of(field::REMAPPED_FAILED).map(|n| n > 0);
    let throttled = [
        (2, field::PERF_POLICY_POWER),
        (4, field::PERF_POLICY_SYNC_BOOST),
        (5, field::SOFTWARE_THERMAL),
        (6, field::HARDWARE_THERMAL),
        (7, field::HARDWARE_POWER_BRAKE),
    ];
    for (reason, id) in throttled {
        values.throttled_nanos[reason] = of(id);
    }
}

fn read_instances<'l>(
    attempt: &mut ReadAttempt<'_, 'l>,
    activity: &mut GpmActivity<'l>,
) -> Vec<(DeviceId, DeviceUsage, Option<Vec<DeviceProcess>>)> {
    let divided = attempt.query("nvmlDeviceGetMigMode", Device::mig_mode).is_some_and(|mode| mode.current == 1);
    if !divided || attempt.lost.is_some() {
        return Vec::new();
    }
    let mut all = Vec::new();
    for instance in super::instances(attempt.gpu) {
        let Ok(id) = instance.uuid() else { continue };
        let mut refused = BTreeSet::new();
        let mut own = ReadAttempt::of(&instance, &mut refused);
        let mut values = DeviceUsage::default();
        read_memory(&mut own, &mut values);
        let processes = processes(&mut own);
        values.processes = processes.as_ref().map(|all| all.len() as u64);
        if let (Some(number), _) = instance_ids(&instance) {
            let own = attempt.query("nvmlGpmMigSampleGet", |gpu| activity.since_last(gpu, Some(number)));
            values.activity = own.unwrap_or_default();
        }
        all.push((DeviceId::from(id.as_str()), values, processes));
    }
    all
}

/// All kinds of processes, each PID once. `None`: the driver reports none of them.
fn processes(attempt: &mut ReadAttempt<'_, '_>) -> Option<Vec<DeviceProcess>> {
    let lists = [
        attempt.query("nvmlDeviceGetComputeRunningProcesses", |gpu| tried(|| lists::processes(gpu, GpuUse::Compute))),
        attempt.query("nvmlDeviceGetMPSComputeRunningProcesses", |gpu| tried(|| lists::processes(gpu, GpuUse::Mps))),
        attempt.query("nvmlDeviceGetGraphicsRunningProcesses", |gpu| tried(|| lists::processes(gpu, GpuUse::Graphics))),
    ];
    // Without the first list the compute processes are not known.
    lists[0].as_ref()?;
    let mut all: BTreeMap<u32, DeviceProcess> = BTreeMap::new();
    for process in lists.into_iter().flatten().flatten() {
        let memory_bytes = sane(process.usedGpuMemory);
        let gpu_instance = Some(process.gpuInstanceId).filter(|id| *id != u32::MAX);
        let one = DeviceProcess { memory_bytes, gpu_instance, ..DeviceProcess::of(process.pid) };
        let known = all.entry(process.pid).or_insert(one);
        known.memory_bytes = known.memory_bytes.max(memory_bytes);
    }
    Some(all.into_values().collect())
}

fn tried<T>(list: impl Fn() -> Result<T, NvmlError>) -> Result<T, NvmlError> {
    for _ in 1..TRIES {
        match list() {
            Err(NvmlError::InsufficientSize(_)) => {}
            other => return other,
        }
    }
    list()
}

/// The SM utilisation of each process: the mean of its samples since the last reading.
fn share(attempt: &mut ReadAttempt<'_, '_>, processes: &mut [DeviceProcess], sampled_to: &mut u64) {
    // Skip this call without processes: it is an expensive one.
    if processes.is_empty() {
        return;
    }
    let since = *sampled_to;
    let samples = attempt.query("nvmlDeviceGetProcessUtilization", |gpu| lists::samples(gpu, since));
    let mut sums: BTreeMap<u32, (u64, u32)> = BTreeMap::new();
    // Some drivers also return samples from before `since`.
    for sample in samples.into_iter().flatten().filter(|sample| sample.timeStamp > since && sample.smUtil <= 100) {
        *sampled_to = (*sampled_to).max(sample.timeStamp);
        let (sum, count) = sums.entry(sample.pid).or_default();
        *sum += u64::from(sample.smUtil);
        *count += 1;
    }
    for process in processes {
        #[allow(clippy::cast_precision_loss)]
        let mean = |(sum, count): &(u64, u32)| *sum as f64 / f64::from(*count) / 100.0;
        process.sm_ratio = sums.get(&process.pid).map(mean);
    }
}

/// With accounting mode on, the driver keeps each process's peak memory, also of those that have ended since the last
/// reading.
fn account(attempt: &mut ReadAttempt<'_, '_>, processes: &mut Vec<DeviceProcess>, listed: &mut BTreeSet<u32>) {
    let now = processes.iter().map(|process| process.pid).collect();
    let before = std::mem::replace(listed, now);
    if attempt.query("nvmlDeviceGetAccountingMode", Device::is_accounting_enabled) != Some(true) {
        return;
    }
    let ended = before.difference(listed).map(|pid| DeviceProcess { ended: true, ..DeviceProcess::of(*pid) });
    processes.extend(ended);
    for process in processes {
        let retained = attempt.query("nvmlDeviceGetAccountingStats", |gpu| gpu.accounting_stats_for(process.pid));
        process.memory_peak_bytes = retained.and_then(|retained| retained.max_memory_usage).and_then(sane);
    }
}

/// The GPU instance id and the compute instance id.
pub(super) fn instance_ids(instance: &Device<'_>) -> (Option<u32>, Option<u32>) {
    let lib = instance.nvml().lib();
    let mut ids = (None, None);
    let mut id = 0;
    if let Ok(call) = &lib.nvmlDeviceGetGpuInstanceId {
        // SAFETY: the wrapper's handle is valid; `id` is local.
        ids.0 = (unsafe { call(instance.handle(), &raw mut id) } == 0).then_some(id);
    }
    if let Ok(call) = &lib.nvmlDeviceGetComputeInstanceId {
        // SAFETY: as above.
        ids.1 = (unsafe { call(instance.handle(), &raw mut id) } == 0).then_some(id);
    }
    ids
}
