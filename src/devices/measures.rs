//! Measures of devices, of their instances, and of tasks on devices. NVML units are converted to base units.

use crate::model::device::{
    ClockDomain, DeviceUsage, EccCounter, EccKind, Engine, GpuUnit, LinkError, LinkState, Sensor, TaskDeviceUsage,
    Threshold, ThrottleReason, thousandths,
};
use crate::model::measure::{Cell, HasFields, Measure, Nature};
use crate::model::metric::Value;
use crate::model::profile::Profile::Full;
use crate::model::units::Unit;

impl HasFields for DeviceUsage {
    type Field = ();
}

impl HasFields for TaskDeviceUsage {
    type Field = ();
}

/// One cell without labels.
macro_rules! single {
    ($nature:ident, $unit:ident, $get:expr) => {
        &[Cell { labels: &[], nature: Nature::$nature, unit: Unit::$unit, get: $get }]
    };
}

/// One cell per word of a list.
macro_rules! each {
    (
        $nature:ident, $unit:ident, $label:literal, $of:ident { $($word:ident = $text:literal),+ $(,)? },
        |$usage:ident, $at:ident| $get:expr
    ) => {
        &[$(Cell {
            labels: &[($label, $text)],
            nature: Nature::$nature,
            unit: Unit::$unit,
            get: |$usage| { let $at = $of::$word as usize; $get },
        },)+]
    };
}

macro_rules! clocks {
    ($field:ident) => {
        each!(Live, Hertz, "domain",
            ClockDomain { Graphics = "graphics", Sm = "sm", Memory = "memory", Video = "video" },
            |usage, at| usage.$field[at].map(Value::Int))
    };
}

macro_rules! throttles {
    ($nature:ident, $unit:ident, |$usage:ident, $at:ident| $get:expr) => {
        each!($nature, $unit, "reason", ThrottleReason {
            Idle = "idle", ApplicationClocks = "application_clocks", SoftwarePower = "software_power",
            HardwareSlowdown = "hardware_slowdown", SyncBoost = "sync_boost", SoftwareThermal = "software_thermal",
            HardwareThermal = "hardware_thermal", HardwarePowerBrake = "hardware_power_brake",
            DisplayClocks = "display_clocks",
        }, |$usage, $at| $get)
    };
}

macro_rules! ecc_cell {
    ($kind:ident $kind_text:literal, $counter:ident $counter_text:literal) => {
        Cell {
            labels: &[("kind", $kind_text), ("counter", $counter_text)],
            nature: Nature::Counter,
            unit: Unit::None,
            get: |usage| usage.ecc_errors[EccKind::$kind as usize][EccCounter::$counter as usize].map(Value::Int),
        }
    };
}

const ECC: &[Cell<DeviceUsage>] = &[
    ecc_cell!(Corrected "corrected", Volatile "volatile"),
    ecc_cell!(Corrected "corrected", Aggregate "aggregate"),
    ecc_cell!(Uncorrected "uncorrected", Volatile "volatile"),
    ecc_cell!(Uncorrected "uncorrected", Aggregate "aggregate"),
];

macro_rules! activity {
    ($unit:ident, $name:literal, $help:literal, $otlp:literal) => {
        sourced(
            Measure::new(
                $name,
                $help,
                single!(Live, Ratio, |usage| usage.activity[GpuUnit::$unit as usize].map(Value::Float)),
            ),
            "nvmlGpmMetricsGet of two samples (Hopper and later)",
            "the device or driver is too old, or there is only one sample",
        )
        .otlp($otlp, "1")
    };
}

const fn sourced(measure: Measure<DeviceUsage>, source: &'static str, absent: &'static str) -> Measure<DeviceUsage> {
    measure.sources(source, source).absent_when(absent)
}

fn flag(is_so: Option<bool>) -> Option<Value> {
    is_so.map(|is_so| Value::Int(u64::from(is_so)))
}

const UNSUPPORTED: &str = "the device or its driver does not report it";

const NO_LINK: &str = "no NVLink link of the device is active, or the driver does not count it";

/// Measures of whole devices.
#[rustfmt::skip] // A table: few lines for each measure.
pub static DEVICE: &[Measure<DeviceUsage>] = &[
    sourced(
        Measure::new(
            "utilization_ratio",
            "Busy share of a device engine (general, memory, encoder, decoder), averaged over at most 1 s.",
            each!(Live, Ratio, "engine",
                Engine { General = "general", Memory = "memory", Encoder = "encoder", Decoder = "decoder" },
                |usage, at| usage.utilization[at].map(Value::Float)),
        ),
        "nvmlDeviceGetUtilizationRates, nvmlDeviceGetEncoderUtilization, nvmlDeviceGetDecoderUtilization",
        "the device is partitioned (MIG), or does not report it",
    )
    .otlp("hw.gpu.utilization", "1"),
    sourced(
        Measure::new("memory_used_bytes", "Device memory in use, without the part reserved by its driver.",
            single!(Live, Bytes, |usage| usage.memory_used_bytes.map(Value::Int))),
        "nvmlDeviceGetMemoryInfo_v2",
        "the device shares the memory of the host",
    )
    .otlp("hw.gpu.memory.usage", "By"),
    sourced(
        Measure::new("memory_used_ratio", "Share of device memory in use.",
            single!(Live, Ratio, |usage| {
                let (used, total) = usage.memory_used_bytes.zip(usage.memory_total_bytes.filter(|total| *total > 0))?;
                // No device has 2^53 bytes.
                #[allow(clippy::cast_precision_loss)]
                Some(Value::Float(used as f64 / total as f64))
            })),
        "nvmlDeviceGetMemoryInfo_v2",
        "the device shares the memory of the host",
    )
    .in_profiles(Full, Full, Full)
    .otlp("hw.gpu.memory.utilization", "1"),
    sourced(
        Measure::new("memory_free_bytes", "Unused device memory.",
            single!(Live, Bytes, |usage| usage.memory_free_bytes.map(Value::Int))),
        "nvmlDeviceGetMemoryInfo_v2",
        "the device shares the memory of the host",
    )
    .otlp("allostat.device.memory.free", "By"),
    sourced(
        Measure::new("memory_reserved_bytes", "Device memory reserved by its driver and firmware.",
            single!(Live, Bytes, |usage| usage.memory_reserved_bytes.map(Value::Int))),
        "nvmlDeviceGetMemoryInfo_v2",
        "the driver is older than 510",
    )
    .otlp("allostat.device.memory.reserved", "By"),
    sourced(
        Measure::new("memory_total_bytes", "Total device memory.",
            single!(Live, Bytes, |usage| usage.memory_total_bytes.map(Value::Int))),
        "nvmlDeviceGetMemoryInfo_v2",
        "the device shares the memory of the host",
    )
    .otlp("hw.gpu.memory.limit", "By"),
    sourced(
        Measure::new("bar1_used_bytes", "Device memory mapped on the bus (BAR1).",
            single!(Live, Bytes, |usage| usage.bar1_used_bytes.map(Value::Int))),
        "nvmlDeviceGetBAR1MemoryInfo",
        UNSUPPORTED,
    )
    .otlp("allostat.device.bar1.usage", "By"),
    sourced(
        Measure::new("temperature_celsius", "Temperature of the device by sensor.",
            each!(Live, Celsius, "sensor", Sensor { Gpu = "gpu", Memory = "memory" },
                |usage, at| usage.temperature[at].map(Value::Int))),
        "nvmlDeviceGetTemperature, field 82",
        "the device has no such sensor",
    )
    .otlp("hw.temperature", "Cel"),
    sourced(
        Measure::new("temperature_threshold_celsius", "Temperature threshold of the device by kind.",
            each!(Live, Celsius, "threshold", Threshold {
                    Slowdown = "slowdown", Shutdown = "shutdown", GpuMax = "gpu_max", MemoryMax = "memory_max",
                },
                |usage, at| usage.threshold[at].map(Value::Int))),
        "nvmlDeviceGetTemperatureThreshold",
        UNSUPPORTED,
    )
    .otlp("hw.temperature.limit", "Cel"),
    sourced(
        Measure::new("power_watts", "Current power draw of the device.",
            single!(Live, Watts, |usage| usage.power_milliwatts.map(thousandths))),
        "field 186, else nvmlDeviceGetPowerUsage",
        UNSUPPORTED,
    )
    .otlp("hw.power", "W"),
    sourced(
        Measure::new("power_average_watts", "Average power draw of the device over the last second.",
            single!(Live, Watts, |usage| usage.power_average_milliwatts.map(thousandths))),
        "field 185",
        UNSUPPORTED,
    )
    .otlp("allostat.device.power.average", "W"),
    sourced(
        Measure::new("power_limit_watts", "Enforced power limit of the device.",
            single!(Live, Watts, |usage| usage.power_limit_milliwatts.map(thousandths))),
        "nvmlDeviceGetEnforcedPowerLimit",
        UNSUPPORTED,
    )
    .otlp("allostat.device.power.limit", "W"),
    sourced(
        Measure::new("energy_joules_total", "Energy used by the device, by its own counter.",
            single!(Counter, Joules, |usage| usage.energy_millijoules.map(thousandths))),
        "nvmlDeviceGetTotalEnergyConsumption (Volta and later)",
        "the device has no energy counter (it is never derived from power)",
    )
    .otlp("hw.energy", "J"),
    sourced(
        Measure::new("clock_hertz", "Current clock of the device by domain.", clocks!(clock_hertz)),
        "nvmlDeviceGetClockInfo",
        UNSUPPORTED,
    )
    .otlp("allostat.device.clock", "Hz"),
    sourced(
        Measure::new("clock_max_hertz", "Maximum clock of the device by domain.", clocks!(clock_max_hertz)),
        "nvmlDeviceGetMaxClockInfo",
        UNSUPPORTED,
    )
    .otlp("allostat.device.clock.limit", "Hz"),
    sourced(
        Measure::new("throttle_active", "1 while the device is throttled for this reason.",
            throttles!(Live, None, |usage, at| flag(usage.throttled.map(|all| all[at])))),
        "nvmlDeviceGetCurrentClocksThrottleReasons",
        UNSUPPORTED,
    )
    .otlp("allostat.device.throttle.active", "1"),
    sourced(
        Measure::new("throttle_seconds_total", "Time in which the device was throttled, by reason.",
            throttles!(Counter, Seconds, |usage, at| usage.throttled_nanos[at].map(Value::Nanos))),
        "fields 74 and 269 to 273",
        "the driver does not count it",
    )
    .otlp("allostat.device.throttle.time", "s"),
    sourced(
        Measure::new("ecc_errors_total",
            "ECC errors since driver load (volatile) or in the device's life (aggregate).", ECC),
        "nvmlDeviceGetTotalEccErrors",
        "the device has no ECC memory, or ECC is off (0 would claim that all is well)",
    )
    .otlp("hw.errors", "{error}"),
    sourced(
        Measure::new("remapped_rows", "Remapped memory rows of the device, by kind of error.",
            each!(Live, None, "cause", EccKind { Corrected = "corrected", Uncorrected = "uncorrected" },
                |usage, at| usage.remapped_rows[at].map(Value::Int))),
        "nvmlDeviceGetFieldValues NVML_FI_DEV_REMAPPED_COR and the three after it (Ampere and later)",
        "the device is older than Ampere, or partitioned (MIG)",
    )
    .otlp("allostat.device.remapped_rows", "{row}"),
    sourced(
        Measure::new("row_remap_pending", "1 if rows will be remapped at the next reset of the device.",
            single!(Live, None, |usage| flag(usage.row_remap_pending))),
        "nvmlDeviceGetFieldValues NVML_FI_DEV_REMAPPED_COR and the three after it (Ampere and later)",
        "the device is older than Ampere, or partitioned (MIG)",
    )
    .otlp("allostat.device.row_remap.pending", "1"),
    sourced(
        Measure::new("row_remap_failed", "1 if a row could not be remapped: the device must be replaced.",
            single!(Live, None, |usage| flag(usage.row_remap_failed))),
        "nvmlDeviceGetFieldValues NVML_FI_DEV_REMAPPED_COR and the three after it (Ampere and later)",
        "the device is older than Ampere, or partitioned (MIG)",
    )
    .otlp("allostat.device.row_remap.failed", "1"),
    sourced(
        Measure::new("retired_pages", "Retired memory pages of the device, by kind of error.",
            each!(Live, None, "cause", EccKind { Corrected = "corrected", Uncorrected = "uncorrected" },
                |usage, at| usage.retired_pages[at].map(Value::Int))),
        "nvmlDeviceGetRetiredPages (before Ampere)",
        "the device is Ampere or newer",
    )
    .otlp("allostat.device.retired_pages", "{page}"),
    sourced(
        Measure::new("pcie_transmit_bytes_total", "Bytes sent by the device over PCIe.",
            single!(Counter, Bytes, |usage| usage.pcie_transmit_bytes.map(Value::Int))),
        "field 197",
        UNSUPPORTED,
    )
    .otlp("hw.gpu.io", "By"),
    sourced(
        Measure::new("pcie_receive_bytes_total", "Bytes received by the device over PCIe.",
            single!(Counter, Bytes, |usage| usage.pcie_receive_bytes.map(Value::Int))),
        "field 198",
        UNSUPPORTED,
    )
    .otlp("hw.gpu.io", "By"),
    sourced(
        Measure::new("pcie_replays_total", "Packets sent again over PCIe (replays).",
            single!(Counter, None, |usage| usage.pcie_replays.map(Value::Int))),
        "nvmlDeviceGetPcieReplayCounter",
        UNSUPPORTED,
    )
    .otlp("allostat.device.pcie.replays", "{packet}"),
    sourced(
        Measure::new("pcie_link_generation", "Current PCIe link generation; lower while the device is idle.",
            single!(Live, None, |usage| usage.pcie_link_generation.map(Value::Int))),
        "nvmlDeviceGetCurrPcieLinkGeneration",
        UNSUPPORTED,
    )
    .otlp("allostat.device.pcie.link.generation", "1"),
    sourced(
        Measure::new("pcie_link_width", "Current number of PCIe lanes in use.",
            single!(Live, None, |usage| usage.pcie_link_width.map(Value::Int))),
        "nvmlDeviceGetCurrPcieLinkWidth",
        UNSUPPORTED,
    )
    .otlp("allostat.device.pcie.link.width", "{lane}"),
    sourced(
        Measure::new("nvlink_transmit_bytes_total", "Payload bytes sent by the device over all its NVLink links.",
            single!(Counter, Bytes, |usage| usage.nvlink_transmit_bytes.map(Value::Int))),
        "field 138 of all links",
        NO_LINK,
    )
    .otlp("allostat.device.nvlink.io", "By"),
    sourced(
        Measure::new("nvlink_receive_bytes_total", "Payload bytes received by the device over all its NVLink links.",
            single!(Counter, Bytes, |usage| usage.nvlink_receive_bytes.map(Value::Int))),
        "field 139 of all links",
        NO_LINK,
    )
    .otlp("allostat.device.nvlink.io", "By"),
    sourced(
        Measure::new("nvlink_links", "NVLink links of the device by state (active, inactive).",
            each!(Live, None, "state", LinkState { Active = "active", Inactive = "inactive" },
                |usage, at| usage.nvlink_links[at].map(Value::Int))),
        "nvmlDeviceGetNvLinkState of each link, each 30 readings",
        "the device has no NVLink",
    )
    .otlp("allostat.device.nvlink.links", "{link}"),
    sourced(
        Measure::new("nvlink_errors_total", "Errors on active NVLink links by kind: replays, recoveries, CRC errors.",
            each!(Counter, None, "kind",
                LinkError { Replay = "replay", Recovery = "recovery", CrcFlit = "crc_flit", CrcData = "crc_data" },
                |usage, at| usage.nvlink_errors[at].map(Value::Int))),
        "nvmlDeviceGetNvLinkErrorCounter of each link, each 30 readings",
        NO_LINK,
    )
    .otlp("allostat.device.nvlink.errors", "{error}"),
    activity!(Sm, "sm_activity_ratio",
        "Share of time with busy SMs, averaged over SMs.", "allostat.device.sm.activity"),
    activity!(Tensor, "tensor_activity_ratio",
        "Share of time with busy tensor cores.", "allostat.device.tensor.activity"),
    activity!(Dram, "dram_activity_ratio", "Share of memory bandwidth in use.", "allostat.device.dram.activity"),
    sourced(
        Measure::new("recovery_action",
            "Recovery action that the driver requires: 0 none, 1 reset, 2 host restart, 3 drain, 4 drain and reset.",
            single!(Live, None, |usage| usage.recovery_action.map(Value::Int))),
        "field 230",
        "the driver is too old",
    )
    .otlp("allostat.device.recovery_action", "1"),
    sourced(
        Measure::new("processes", "Processes that hold the device, of any owner.",
            single!(Live, None, |usage| usage.processes.map(Value::Int))),
        "nvmlDeviceGetComputeRunningProcesses, nvmlDeviceGetMPSComputeRunningProcesses, \
         nvmlDeviceGetGraphicsRunningProcesses",
        "the driver does not report it",
    )
    .otlp("allostat.device.processes", "{process}"),
];

/// Measures of instances of a partitioned device. Whole devices have other families, so neither sum counts twice.
pub static INSTANCE: &[Measure<DeviceUsage>] = &[
    sourced(
        Measure::new(
            "memory_used_bytes",
            "Instance memory in use.",
            single!(Live, Bytes, |usage| usage.memory_used_bytes.map(Value::Int)),
        ),
        "nvmlDeviceGetMemoryInfo_v2 of the instance",
        "the driver does not report it",
    )
    .otlp("allostat.mig.memory.usage", "By"),
    sourced(
        Measure::new(
            "memory_free_bytes",
            "Unused instance memory.",
            single!(Live, Bytes, |usage| usage.memory_free_bytes.map(Value::Int)),
        ),
        "nvmlDeviceGetMemoryInfo_v2 of the instance",
        "the driver does not report it",
    )
    .otlp("allostat.mig.memory.free", "By"),
    sourced(
        Measure::new(
            "memory_total_bytes",
            "Total instance memory.",
            single!(Live, Bytes, |usage| usage.memory_total_bytes.map(Value::Int)),
        ),
        "nvmlDeviceGetMemoryInfo_v2 of the instance",
        "the driver does not report it",
    )
    .otlp("allostat.mig.memory.limit", "By"),
    activity!(
        Sm,
        "sm_activity_ratio",
        "Share of time with busy SMs of the instance, averaged over SMs.",
        "allostat.mig.sm.activity"
    ),
    activity!(
        Tensor,
        "tensor_activity_ratio",
        "Share of time with busy tensor cores of the instance.",
        "allostat.mig.tensor.activity"
    ),
    activity!(
        Dram,
        "dram_activity_ratio",
        "Share of the instance's memory bandwidth in use.",
        "allostat.mig.dram.activity"
    ),
    sourced(
        Measure::new(
            "processes",
            "Processes that hold the instance, of any owner.",
            single!(Live, None, |usage| usage.processes.map(Value::Int)),
        ),
        "nvmlDeviceGetComputeRunningProcesses of the instance",
        "the driver does not report it",
    )
    .otlp("allostat.mig.processes", "{process}"),
];

const fn of_task(
    measure: Measure<TaskDeviceUsage>,
    source: &'static str,
    absent: &'static str,
) -> Measure<TaskDeviceUsage> {
    measure.sources(source, source).absent_when(absent)
}

/// Measures of tasks on a device.
pub static ON_TASK: &[Measure<TaskDeviceUsage>] = &[
    of_task(
        Measure::new(
            "memory_used_bytes",
            "Device memory held by the task's processes.",
            single!(TaskLive, Bytes, |usage| usage.memory_used_bytes.map(Value::Int)),
        ),
        "nvmlDeviceGetComputeRunningProcesses and its like; /proc/PID/cgroup",
        "the driver does not report it, or the task of a process is unknown; of an alloc: unknown for one of its tasks",
    )
    .otlp("allostat.task.device.memory.usage", "By"),
    of_task(
        Measure::new(
            "memory_peak_bytes",
            "Highest sampled device memory of the task; with driver accounting, at least the peak of each process.",
            single!(TaskPeak, Bytes, |usage| usage.memory_peak_bytes.map(Value::Int)),
        ),
        "nvmlDeviceGetComputeRunningProcesses and its like, each tick; nvmlDeviceGetAccountingStats",
        "the task was never seen holding device memory",
    )
    .otlp("allostat.task.device.memory.peak", "By"),
    of_task(
        Measure::new(
            "sm_utilization_ratio",
            "Share of time in which the task kept the device's processors (SMs) busy.",
            single!(TaskLive, Ratio, |usage| usage.sm_ratio.map(Value::Float)),
        ),
        "nvmlDeviceGetProcessUtilization since the reading before",
        "the device is partitioned (MIG), or there is no sample",
    )
    .otlp("allostat.task.device.sm.utilization", "1"),
    of_task(
        Measure::new(
            "processes",
            "Processes of the task that hold the device; 0 if it is reserved but unused.",
            single!(TaskLive, None, |usage| usage.processes.map(Value::Int)),
        ),
        "nvmlDeviceGetComputeRunningProcesses and its like; /proc/PID/cgroup",
        "the task of a process is unknown; of an alloc: unknown for one of its tasks",
    )
    .otlp("allostat.task.device.processes", "{process}"),
    of_task(
        Measure::new(
            "energy_joules_total",
            "Energy of the whole device while the task held it exclusively.",
            single!(TaskCounter, Joules, |usage| usage.energy_millijoules.map(thousandths)),
        ),
        "nvmlDeviceGetTotalEnergyConsumption",
        "the device is not reserved for the task, or has no energy counter",
    )
    .otlp("allostat.task.device.energy", "J"),
    of_task(
        Measure::new(
            "xid_errors_total",
            "XID errors reported by the driver while the task held or used the device.",
            single!(TaskCounter, None, |usage| usage.xid_errors.map(Value::Int)),
        ),
        "nvmlEventSetWait, critical XID",
        "the driver reports no XID errors",
    )
    .otlp("allostat.task.device.xid_errors", "{error}"),
];
