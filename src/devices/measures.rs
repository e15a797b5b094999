//! What is measured of devices, of their instances, and of tasks on them: each declared once. Units of NVML become base units here.

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

/// One cell for each word of a list.
macro_rules! each {
    ($nature:ident, $unit:ident, $label:literal, $of:ident { $($word:ident = $text:literal),+ $(,)? }, |$usage:ident, $at:ident| $get:expr) => {
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
        each!(Live, Hertz, "domain", ClockDomain { Graphics = "graphics", Sm = "sm", Memory = "memory", Video = "video" },
            |usage, at| usage.$field[at].map(Value::Int))
    };
}

macro_rules! throttles {
    ($nature:ident, $unit:ident, |$usage:ident, $at:ident| $get:expr) => {
        each!($nature, $unit, "reason", ThrottleReason {
            Idle = "idle", ApplicationClocks = "application_clocks", SoftwarePower = "software_power",
            HardwareSlowdown = "hardware_slowdown", SyncBoost = "sync_boost", SoftwareThermal = "software_thermal",
            HardwareThermal = "hardware_thermal", HardwarePowerBrake = "hardware_power_brake", DisplayClocks = "display_clocks",
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
        told(
            Measure::new(
                $name,
                $help,
                single!(Live, Ratio, |usage| usage.activity[GpuUnit::$unit as usize].map(Value::Float)),
            ),
            "nvmlGpmMetricsGet of two samples (Hopper and later)",
            "an older device or driver, or there was one sample only",
        )
        .otlp($otlp, "1")
    };
}

const fn told(measure: Measure<DeviceUsage>, source: &'static str, absent: &'static str) -> Measure<DeviceUsage> {
    measure.sources(source, source).absent_when(absent)
}

fn flag(is_so: Option<bool>) -> Option<Value> {
    is_so.map(|is_so| Value::Int(u64::from(is_so)))
}

const UNSUPPORTED: &str = "the device or its driver does not tell it";

const NO_LINK: &str = "no NVLink link of the device is up, or the driver does not count it";

/// Of whole devices.
pub static DEVICE: &[Measure<DeviceUsage>] = &[
    told(
        Measure::new(
            "utilization_ratio",
            "Share of the time in which a part of the device was at work: the processors (general), memory, encoder, decoder. The driver \
             averages over a sixth of a second to a second.",
            each!(Live, Ratio, "engine", Engine { General = "general", Memory = "memory", Encoder = "encoder", Decoder = "decoder" },
                |usage, at| usage.utilization[at].map(Value::Float)),
        ),
        "nvmlDeviceGetUtilizationRates, nvmlDeviceGetEncoderUtilization, nvmlDeviceGetDecoderUtilization",
        "the device is divided (MIG), or does not tell it",
    )
    .otlp("hw.gpu.utilization", "1"),
    told(
        Measure::new("memory_used_bytes", "Memory of the device in use, without what its driver reserves.",
            single!(Live, Bytes, |usage| usage.memory_used_bytes.map(Value::Int))),
        "nvmlDeviceGetMemoryInfo_v2",
        "the device shares the memory of the host",
    )
    .otlp("hw.gpu.memory.usage", "By"),
    told(
        Measure::new("memory_used_ratio", "Share of the device's memory that is in use.",
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
    told(
        Measure::new("memory_free_bytes", "Memory of the device that nobody uses.",
            single!(Live, Bytes, |usage| usage.memory_free_bytes.map(Value::Int))),
        "nvmlDeviceGetMemoryInfo_v2",
        "the device shares the memory of the host",
    )
    .otlp("allostat.device.memory.free", "By"),
    told(
        Measure::new("memory_reserved_bytes", "Memory of the device that its driver and firmware keep.",
            single!(Live, Bytes, |usage| usage.memory_reserved_bytes.map(Value::Int))),
        "nvmlDeviceGetMemoryInfo_v2",
        "the driver is older than 510",
    )
    .otlp("allostat.device.memory.reserved", "By"),
    told(
        Measure::new("memory_total_bytes", "Memory of the device.",
            single!(Live, Bytes, |usage| usage.memory_total_bytes.map(Value::Int))),
        "nvmlDeviceGetMemoryInfo_v2",
        "the device shares the memory of the host",
    )
    .otlp("hw.gpu.memory.limit", "By"),
    told(
        Measure::new("bar1_used_bytes", "Memory of the device that is mapped for the bus.",
            single!(Live, Bytes, |usage| usage.bar1_used_bytes.map(Value::Int))),
        "nvmlDeviceGetBAR1MemoryInfo",
        UNSUPPORTED,
    )
    .otlp("allostat.device.bar1.usage", "By"),
    told(
        Measure::new("temperature_celsius", "Temperature of the device.",
            each!(Live, Celsius, "sensor", Sensor { Gpu = "gpu", Memory = "memory" },
                |usage, at| usage.temperature[at].map(Value::Int))),
        "nvmlDeviceGetTemperature, field 82",
        "the device has no such sensor",
    )
    .otlp("hw.temperature", "Cel"),
    told(
        Measure::new("temperature_threshold_celsius", "Temperature at which the device slows down, is switched off, or that its maker wants as the highest.",
            each!(Live, Celsius, "threshold", Threshold { Slowdown = "slowdown", Shutdown = "shutdown", GpuMax = "gpu_max", MemoryMax = "memory_max" },
                |usage, at| usage.threshold[at].map(Value::Int))),
        "nvmlDeviceGetTemperatureThreshold",
        UNSUPPORTED,
    )
    .otlp("hw.temperature.limit", "Cel"),
    told(
        Measure::new("power_watts", "Power that the device draws now.",
            single!(Live, Watts, |usage| usage.power_milliwatts.map(thousandths))),
        "field 186, else nvmlDeviceGetPowerUsage",
        UNSUPPORTED,
    )
    .otlp("hw.power", "W"),
    told(
        Measure::new("power_average_watts", "Power that the device drew over the last second.",
            single!(Live, Watts, |usage| usage.power_average_milliwatts.map(thousandths))),
        "field 185",
        UNSUPPORTED,
    )
    .otlp("allostat.device.power.average", "W"),
    told(
        Measure::new("power_limit_watts", "Power that the device may draw.",
            single!(Live, Watts, |usage| usage.power_limit_milliwatts.map(thousandths))),
        "nvmlDeviceGetEnforcedPowerLimit",
        UNSUPPORTED,
    )
    .otlp("allostat.device.power.limit", "W"),
    told(
        Measure::new("energy_joules_total", "Energy that the device has used, as it counts it itself.",
            single!(Counter, Joules, |usage| usage.energy_millijoules.map(thousandths))),
        "nvmlDeviceGetTotalEnergyConsumption (Volta and later)",
        "the device does not count it: it is never made of watts",
    )
    .otlp("hw.energy", "J"),
    told(
        Measure::new("clock_hertz", "Clock of a part of the device now.", clocks!(clock_hertz)),
        "nvmlDeviceGetClockInfo",
        UNSUPPORTED,
    )
    .otlp("allostat.device.clock", "Hz"),
    told(
        Measure::new("clock_max_hertz", "Highest clock of a part of the device.", clocks!(clock_max_hertz)),
        "nvmlDeviceGetMaxClockInfo",
        UNSUPPORTED,
    )
    .otlp("allostat.device.clock.limit", "Hz"),
    told(
        Measure::new("throttle_active", "1: the device runs slower than it could, for this reason.",
            throttles!(Live, None, |usage, at| flag(usage.throttled.map(|all| all[at])))),
        "nvmlDeviceGetCurrentClocksThrottleReasons",
        UNSUPPORTED,
    )
    .otlp("allostat.device.throttle.active", "1"),
    told(
        Measure::new("throttle_seconds_total", "Time in which the device ran slower than it could, by reason.",
            throttles!(Counter, Seconds, |usage, at| usage.throttled_nanos[at].map(Value::Nanos))),
        "fields 74 and 269 to 273",
        "the driver does not count it",
    )
    .otlp("allostat.device.throttle.time", "s"),
    told(
        Measure::new("ecc_errors_total", "Errors in the memory of the device: since its driver was loaded (volatile), and in its life (aggregate).", ECC),
        "nvmlDeviceGetTotalEccErrors",
        "its memory has no ECC, or it is switched off: 0 would claim that all is well",
    )
    .otlp("hw.errors", "{error}"),
    told(
        Measure::new("remapped_rows", "Rows of memory that were replaced, by the kind of error.",
            each!(Live, None, "cause", EccKind { Corrected = "corrected", Uncorrected = "uncorrected" },
                |usage, at| usage.remapped_rows[at].map(Value::Int))),
        "nvmlDeviceGetFieldValues NVML_FI_DEV_REMAPPED_COR and the three after it (Ampere and later)",
        "an older device, or a divided one",
    )
    .otlp("allostat.device.remapped_rows", "{row}"),
    told(
        Measure::new("row_remap_pending", "1: rows are replaced at the next reset of the device.",
            single!(Live, None, |usage| flag(usage.row_remap_pending))),
        "nvmlDeviceGetFieldValues NVML_FI_DEV_REMAPPED_COR and the three after it (Ampere and later)",
        "an older device, or a divided one",
    )
    .otlp("allostat.device.row_remap.pending", "1"),
    told(
        Measure::new("row_remap_failed", "1: a row could not be replaced; the device is to be exchanged.",
            single!(Live, None, |usage| flag(usage.row_remap_failed))),
        "nvmlDeviceGetFieldValues NVML_FI_DEV_REMAPPED_COR and the three after it (Ampere and later)",
        "an older device, or a divided one",
    )
    .otlp("allostat.device.row_remap.failed", "1"),
    told(
        Measure::new("retired_pages", "Pages of memory that are not used any more, by the kind of error.",
            each!(Live, None, "cause", EccKind { Corrected = "corrected", Uncorrected = "uncorrected" },
                |usage, at| usage.retired_pages[at].map(Value::Int))),
        "nvmlDeviceGetRetiredPages (before Ampere)",
        "a newer device",
    )
    .otlp("allostat.device.retired_pages", "{page}"),
    told(
        Measure::new("pcie_transmit_bytes_total", "Bytes that the device sent over PCIe.",
            single!(Counter, Bytes, |usage| usage.pcie_transmit_bytes.map(Value::Int))),
        "field 197",
        UNSUPPORTED,
    )
    .otlp("hw.gpu.io", "By"),
    told(
        Measure::new("pcie_receive_bytes_total", "Bytes that the device received over PCIe.",
            single!(Counter, Bytes, |usage| usage.pcie_receive_bytes.map(Value::Int))),
        "field 198",
        UNSUPPORTED,
    )
    .otlp("hw.gpu.io", "By"),
    told(
        Measure::new("pcie_replays_total", "Packets that had to be sent over PCIe again.",
            single!(Counter, None, |usage| usage.pcie_replays.map(Value::Int))),
        "nvmlDeviceGetPcieReplayCounter",
        UNSUPPORTED,
    )
    .otlp("allostat.device.pcie.replays", "{packet}"),
    told(
        Measure::new("pcie_link_generation", "Generation of PCIe that is spoken now: it falls where the device idles.",
            single!(Live, None, |usage| usage.pcie_link_generation.map(Value::Int))),
        "nvmlDeviceGetCurrPcieLinkGeneration",
        UNSUPPORTED,
    )
    .otlp("allostat.device.pcie.link.generation", "1"),
    told(
        Measure::new("pcie_link_width", "Lanes of PCIe in use now.",
            single!(Live, None, |usage| usage.pcie_link_width.map(Value::Int))),
        "nvmlDeviceGetCurrPcieLinkWidth",
        UNSUPPORTED,
    )
    .otlp("allostat.device.pcie.link.width", "{lane}"),
    told(
        Measure::new("nvlink_transmit_bytes_total", "Bytes of payload that the device sent over all its NVLink links.",
            single!(Counter, Bytes, |usage| usage.nvlink_transmit_bytes.map(Value::Int))),
        "field 138 of all links",
        NO_LINK,
    )
    .otlp("allostat.device.nvlink.io", "By"),
    told(
        Measure::new("nvlink_receive_bytes_total", "Bytes of payload that the device received over all its NVLink links.",
            single!(Counter, Bytes, |usage| usage.nvlink_receive_bytes.map(Value::Int))),
        "field 139 of all links",
        NO_LINK,
    )
    .otlp("allostat.device.nvlink.io", "By"),
    told(
        Measure::new("nvlink_links", "NVLink links of the device: those that are up, and those that are not.",
            each!(Live, None, "state", LinkState { Active = "active", Inactive = "inactive" },
                |usage, at| usage.nvlink_links[at].map(Value::Int))),
        "nvmlDeviceGetNvLinkState of each link, each 30 readings",
        "the device has no NVLink",
    )
    .otlp("allostat.device.nvlink.links", "{link}"),
    told(
        Measure::new("nvlink_errors_total", "Errors on NVLink links that are up: sent again (replay), set up again (recovery), wrong checksums.",
            each!(Counter, None, "kind", LinkError { Replay = "replay", Recovery = "recovery", CrcFlit = "crc_flit", CrcData = "crc_data" },
                |usage, at| usage.nvlink_errors[at].map(Value::Int))),
        "nvmlDeviceGetNvLinkErrorCounter of each link, each 30 readings",
        NO_LINK,
    )
    .otlp("allostat.device.nvlink.errors", "{error}"),
    activity!(Sm, "sm_activity_ratio", "Share of the time in which a multiprocessor of the device had work, over all of them.", "allostat.device.sm.activity"),
    activity!(Tensor, "tensor_activity_ratio", "Share of the time in which the tensor cores of the device were at work.", "allostat.device.tensor.activity"),
    activity!(Dram, "dram_activity_ratio", "Share of what can go to and from the memory of the device that went.", "allostat.device.dram.activity"),
    told(
        Measure::new("recovery_action", "What the driver wants to be done: 0 nothing, 1 a reset, 2 a restart of the host, 3 draining, 4 draining and a reset.",
            single!(Live, None, |usage| usage.recovery_action.map(Value::Int))),
        "field 230",
        "the driver is too old",
    )
    .otlp("allostat.device.recovery_action", "1"),
    told(
        Measure::new("processes", "Processes that hold the device, whoever they belong to.",
            single!(Live, None, |usage| usage.processes.map(Value::Int))),
        "nvmlDeviceGetComputeRunningProcesses, nvmlDeviceGetMPSComputeRunningProcesses, nvmlDeviceGetGraphicsRunningProcesses",
        "the driver does not tell",
    )
    .otlp("allostat.device.processes", "{process}"),
];

/// Of instances of a divided device, whose whole has families of its own: a sum over either counts nothing twice.
pub static INSTANCE: &[Measure<DeviceUsage>] = &[
    told(
        Measure::new(
            "memory_used_bytes",
            "Memory of the instance in use.",
            single!(Live, Bytes, |usage| usage.memory_used_bytes.map(Value::Int)),
        ),
        "nvmlDeviceGetMemoryInfo_v2 of the instance",
        "the driver does not tell",
    )
    .otlp("allostat.mig.memory.usage", "By"),
    told(
        Measure::new(
            "memory_free_bytes",
            "Memory of the instance that nobody uses.",
            single!(Live, Bytes, |usage| usage.memory_free_bytes.map(Value::Int)),
        ),
        "nvmlDeviceGetMemoryInfo_v2 of the instance",
        "the driver does not tell",
    )
    .otlp("allostat.mig.memory.free", "By"),
    told(
        Measure::new(
            "memory_total_bytes",
            "Memory of the instance.",
            single!(Live, Bytes, |usage| usage.memory_total_bytes.map(Value::Int)),
        ),
        "nvmlDeviceGetMemoryInfo_v2 of the instance",
        "the driver does not tell",
    )
    .otlp("allostat.mig.memory.limit", "By"),
    activity!(
        Sm,
        "sm_activity_ratio",
        "Share of the time in which a multiprocessor of the instance had work, over all of them.",
        "allostat.mig.sm.activity"
    ),
    activity!(
        Tensor,
        "tensor_activity_ratio",
        "Share of the time in which the tensor cores of the instance were at work.",
        "allostat.mig.tensor.activity"
    ),
    activity!(
        Dram,
        "dram_activity_ratio",
        "Share of what can go to and from the memory of the instance that went.",
        "allostat.mig.dram.activity"
    ),
    told(
        Measure::new(
            "processes",
            "Processes that hold the instance, whoever they belong to.",
            single!(Live, None, |usage| usage.processes.map(Value::Int)),
        ),
        "nvmlDeviceGetComputeRunningProcesses of the instance",
        "the driver does not tell",
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

/// Of a task on a device.
pub static ON_TASK: &[Measure<TaskDeviceUsage>] = &[
    of_task(
        Measure::new(
            "memory_used_bytes",
            "Memory of the device that the task's processes hold.",
            single!(TaskLive, Bytes, |usage| usage.memory_used_bytes.map(Value::Int)),
        ),
        "nvmlDeviceGetComputeRunningProcesses and its like; /proc/PID/cgroup",
        "the driver does not tell it, or nobody can tell whose a process is",
    )
    .otlp("allostat.task.device.memory.usage", "By"),
    of_task(
        Measure::new(
            "memory_peak_bytes",
            "Most memory of the device that the task was seen to hold; where the driver keeps accounts of processes, at least the most that one of \
             its own ever held.",
            single!(TaskPeak, Bytes, |usage| usage.memory_peak_bytes.map(Value::Int)),
        ),
        "nvmlDeviceGetComputeRunningProcesses and its like, each tick; nvmlDeviceGetAccountingStats",
        "it was never seen to hold any",
    )
    .otlp("allostat.task.device.memory.peak", "By"),
    of_task(
        Measure::new(
            "sm_utilization_ratio",
            "Share of the time in which the task had the device's processors at work.",
            single!(TaskLive, Ratio, |usage| usage.sm_ratio.map(Value::Float)),
        ),
        "nvmlDeviceGetProcessUtilization since the reading before",
        "the device is divided (MIG), or there was no sample",
    )
    .otlp("allostat.task.device.sm.utilization", "1"),
    of_task(
        Measure::new(
            "processes",
            "Processes of the task that hold the device; 0: it was given the device and does not use it.",
            single!(TaskLive, None, |usage| usage.processes.map(Value::Int)),
        ),
        "nvmlDeviceGetComputeRunningProcesses and its like; /proc/PID/cgroup",
        "nobody can tell whose a process is",
    )
    .otlp("allostat.task.device.processes", "{process}"),
    of_task(
        Measure::new(
            "energy_joules_total",
            "Energy that the whole device used while the task held it alone.",
            single!(TaskCounter, Joules, |usage| usage.energy_millijoules.map(thousandths)),
        ),
        "nvmlDeviceGetTotalEnergyConsumption",
        "the device was not reserved for the task, or does not count it",
    )
    .otlp("allostat.task.device.energy", "J"),
    of_task(
        Measure::new(
            "xid_errors_total",
            "Errors that the driver told of while the task held or used the device.",
            single!(TaskCounter, None, |usage| usage.xid_errors.map(Value::Int)),
        ),
        "nvmlEventSetWait, critical XID",
        "the driver tells of none",
    )
    .otlp("allostat.task.device.xid_errors", "{error}"),
];
