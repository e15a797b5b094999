//! One value of a device each.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong};

use super::frame::{exports, handle, known, write, write_list};
use super::types::{Bar1, Handle, MemoryInfo, MemoryInfo2, PciInfo, Rates, Temperature, ViolationTime};
use crate::codes::{self, Code};
use crate::scenario::{Device, EccErrors, Memory, NvLinks, Power, PowerLimit, RetiredPage, RetiredPages};
use crate::state::{ResolvedTarget, call};

exports! {
    text nvmlDeviceGetUUID() -> String = |at| match at.instance() {
        Some(instance) => Ok(instance.uuid.clone()),
        None => Ok(at.device()?.uuid.clone()),
    };
    text nvmlDeviceGetName() -> String = |at| match at.instance() {
        Some(instance) => Ok(instance.name.clone()),
        None => Ok(at.device()?.name.clone()),
    };
    text nvmlDeviceGetSerial() -> String = |at| known(at.device()?.serial.as_ref());
    text nvmlDeviceGetVbiosVersion() -> String = |at| known(at.device()?.vbios.as_ref());
    text nvmlDeviceGetBoardPartNumber() -> String = |at| known(at.device()?.board_part_number.as_ref());
    value nvmlDeviceGetIndex() -> c_uint = |at| {
        let position = at.instance_position().map_or_else(|| at.position(), Ok)?;
        c_uint::try_from(position).map_err(|_| codes::UNKNOWN)
    };
    value nvmlDeviceGetMinorNumber() -> c_uint = |at| known(at.whole()?.minor.as_ref());
    value nvmlDeviceGetPciInfo_v3() -> PciInfo = |at| Ok(pci_info(at.device()?));
    value nvmlDeviceGetBrand() -> c_uint = |at| Ok(at.device()?.brand);
    value nvmlDeviceGetArchitecture() -> c_uint = |at| Ok(at.device()?.architecture);
    both nvmlDeviceGetCudaComputeCapability() -> c_int = |at| Ok(at.device()?.compute_capability);
    value nvmlDeviceGetNumGpuCores() -> c_uint = |at| known(at.whole()?.cores.as_ref());

    value nvmlDeviceGetUtilizationRates() -> Rates = |at| {
        let rates = known(without_mig(at)?.utilization.as_ref())?;
        Ok(Rates { gpu: rates.gpu_percent, memory: rates.memory_percent })
    };
    both nvmlDeviceGetEncoderUtilization() -> c_uint = |at| {
        known(without_mig(at)?.encoder.as_ref()).map(|engine| [engine.percent, engine.sampling_period_us])
    };
    both nvmlDeviceGetDecoderUtilization() -> c_uint = |at| {
        known(without_mig(at)?.decoder.as_ref()).map(|engine| [engine.percent, engine.sampling_period_us])
    };
    value nvmlDeviceGetMemoryInfo() -> MemoryInfo = |at| {
        let Memory { total_bytes: total, reserved_bytes, used_bytes } = memory(at)?;
        let used = used_bytes.saturating_add(reserved_bytes);
        Ok(MemoryInfo { total, free: total.saturating_sub(used), used })
    };
    value nvmlDeviceGetBAR1MemoryInfo() -> Bar1 = |at| {
        let Memory { total_bytes: total, used_bytes: used, .. } = known(at.device()?.bar1.as_ref())?;
        Ok(Bar1 { total, free: total.saturating_sub(used), used })
    };

    value nvmlDeviceGetTemperature(sensor: c_uint) -> c_uint = |at, sensor| celsius(at, sensor);
    value nvmlDeviceGetTemperatureThreshold(kind: c_uint) -> c_uint = |at, kind| {
        known(at.whole()?.temperature_thresholds.get(&kind))
    };
    value nvmlDeviceGetNumFans() -> c_uint = |at| c_uint::try_from(fans(at)?.len()).map_err(|_| codes::UNKNOWN);
    value nvmlDeviceGetFanSpeed_v2(fan: c_uint) -> c_uint = |at, fan| {
        fans(at)?.get(fan as usize).copied().ok_or(codes::INVALID_ARGUMENT)
    };

    value nvmlDeviceGetPowerUsage() -> c_uint = |at| Ok(power(at)?.usage_mw);
    value nvmlDeviceGetPowerManagementLimit() -> c_uint = |at| Ok(limit(at)?.set_mw);
    value nvmlDeviceGetPowerManagementDefaultLimit() -> c_uint = |at| Ok(limit(at)?.default_mw);
    both nvmlDeviceGetPowerManagementLimitConstraints() -> c_uint = |at| limit(at).map(|l| [l.min_mw, l.max_mw]);
    value nvmlDeviceGetEnforcedPowerLimit() -> c_uint = |at| Ok(limit(at)?.enforced_mw);
    value nvmlDeviceGetTotalEnergyConsumption() -> c_ulonglong = |at| known(at.whole()?.energy_mj.as_ref());

    value nvmlDeviceGetClockInfo(clock: c_uint) -> c_uint = |at, clock| {
        one_of(&known(at.whole()?.clocks.as_ref())?.now_mhz, clock)
    };
    value nvmlDeviceGetMaxClockInfo(clock: c_uint) -> c_uint = |at, clock| {
        one_of(&known(at.whole()?.clocks.as_ref())?.max_mhz, clock)
    };
    value nvmlDeviceGetPerformanceState() -> c_uint = |at| known(at.whole()?.performance_state.as_ref());
    value nvmlDeviceGetComputeMode() -> c_uint = |at| Ok(at.whole()?.compute_mode);
    value nvmlDeviceGetCurrentClocksThrottleReasons() -> c_ulonglong =
        |at| known(at.whole()?.throttle_reasons.as_ref());
    value nvmlDeviceGetCurrentClocksEventReasons() -> c_ulonglong = |at| known(at.whole()?.throttle_reasons.as_ref());
    value nvmlDeviceGetSupportedClocksThrottleReasons() -> c_ulonglong = |at| {
        known(at.whole()?.throttle_reasons_supported.as_ref())
    };
    value nvmlDeviceGetSupportedClocksEventReasons() -> c_ulonglong = |at| {
        known(at.whole()?.throttle_reasons_supported.as_ref())
    };
    value nvmlDeviceGetViolationStatus(policy: c_uint) -> ViolationTime = |at, policy| {
        let violation = known(at.whole()?.violations_ns.get(&policy))?;
        Ok(ViolationTime { reference: now_us(), violation })
    };

    both nvmlDeviceGetEccMode() -> c_uint = |at| {
        known(at.device()?.ecc.as_ref()).map(|ecc| [ecc.enabled.into(), ecc.pending.into()])
    };
    value nvmlDeviceGetTotalEccErrors(kind: c_uint, counter: c_uint) -> c_ulonglong = |at, kind, counter| {
        ecc_errors(at.whole()?, kind, counter)
    };
    value nvmlDeviceGetRetiredPagesPendingStatus() -> c_uint = |at| {
        known(at.whole()?.retired_pages.as_ref()).map(|pages| pages.pending.into())
    };
    list nvmlDeviceGetRetiredPages(cause: c_uint) -> c_ulonglong = |at, cause| {
        Ok(retired(at, cause)?.iter().map(|page| page.address).collect())
    };

    value nvmlDeviceGetCurrPcieLinkGeneration() -> c_uint = |at| known(at.whole()?.pcie.as_ref()).map(|p| p.generation);
    value nvmlDeviceGetMaxPcieLinkGeneration() -> c_uint =
        |at| known(at.whole()?.pcie.as_ref()).map(|p| p.max_generation);
    value nvmlDeviceGetCurrPcieLinkWidth() -> c_uint = |at| known(at.whole()?.pcie.as_ref()).map(|pcie| pcie.width);
    value nvmlDeviceGetMaxPcieLinkWidth() -> c_uint = |at| known(at.whole()?.pcie.as_ref()).map(|pcie| pcie.max_width);
    value nvmlDeviceGetPcieReplayCounter() -> c_uint = |at| known(at.whole()?.pcie.as_ref()).map(|pcie| pcie.replays);
    value nvmlDeviceGetPcieThroughput(counter: c_uint) -> c_uint = |at, counter| throughput(at.whole()?, counter);
    value nvmlDeviceGetNvLinkState(link: c_uint) -> c_uint = |at, link| Ok(nvlink(at, link)?.1.into());
    value nvmlDeviceGetNvLinkVersion(link: c_uint) -> c_uint = |at, link| Ok(nvlink(at, link)?.0.version);
    value nvmlDeviceGetNvLinkErrorCounter(link: c_uint, counter: c_uint) -> c_ulonglong = |at, link, counter| {
        let (links, _) = nvlink(at, link)?;
        let errors = links.errors.get(&link).copied().unwrap_or_default();
        errors.get(counter as usize).copied().ok_or(codes::INVALID_ARGUMENT)
    };
    value nvmlDeviceGetPersistenceMode() -> c_uint = |at| known(at.device()?.persistence.as_ref()).map(c_uint::from);
    value nvmlDeviceGetDisplayMode() -> c_uint = |at| known(at.whole()?.display_connected.as_ref()).map(c_uint::from);
    value nvmlDeviceGetDisplayActive() -> c_uint = |at| known(at.whole()?.display_active.as_ref()).map(c_uint::from);
}

/// What the hardware measures of itself as a whole is not supported while it is divided.
fn without_mig(at: &ResolvedTarget) -> Result<&Device, Code> {
    let device = at.whole()?;
    let divided = device.mig.as_ref().is_some_and(|mig| mig.enabled);
    if divided { Err(codes::NOT_SUPPORTED) } else { Ok(device) }
}

fn memory(at: &ResolvedTarget) -> Result<Memory, Code> {
    match at.instance() {
        Some(instance) => Ok(instance.memory.clone()),
        None => known(at.device()?.memory.as_ref()),
    }
}

fn power(at: &ResolvedTarget) -> Result<&Power, Code> {
    at.whole()?.power.as_ref().ok_or(codes::NOT_SUPPORTED)
}

fn limit(at: &ResolvedTarget) -> Result<&PowerLimit, Code> {
    power(at)?.limit.as_ref().ok_or(codes::NOT_SUPPORTED)
}

fn fans(at: &ResolvedTarget) -> Result<&[u32], Code> {
    let fans = &at.whole()?.fans_percent;
    if fans.is_empty() { Err(codes::NOT_SUPPORTED) } else { Ok(fans) }
}

fn celsius(at: &ResolvedTarget, sensor: c_uint) -> Result<c_uint, Code> {
    if sensor == 0 { known(at.whole()?.temperature_celsius.as_ref()) } else { Err(codes::INVALID_ARGUMENT) }
}

fn one_of(values: &[u32], index: c_uint) -> Result<c_uint, Code> {
    values.get(index as usize).copied().ok_or(codes::INVALID_ARGUMENT)
}

fn ecc_errors(device: &Device, kind: c_uint, counter: c_uint) -> Result<u64, Code> {
    let ecc = device.ecc.as_ref().filter(|ecc| ecc.enabled).ok_or(codes::NOT_SUPPORTED)?;
    let EccErrors { corrected, uncorrected } = *match counter {
        0 => &ecc.volatile,
        1 => &ecc.aggregate,
        _ => return Err(codes::INVALID_ARGUMENT),
    };
    match kind {
        0 => Ok(corrected),
        1 => Ok(uncorrected),
        _ => Err(codes::INVALID_ARGUMENT),
    }
}

fn retired(at: &ResolvedTarget, cause: c_uint) -> Result<&[RetiredPage], Code> {
    let RetiredPages { single_bit, double_bit, .. } = at.whole()?.retired_pages.as_ref().ok_or(codes::NOT_SUPPORTED)?;
    match cause {
        0 => Ok(single_bit),
        1 => Ok(double_bit),
        _ => Err(codes::INVALID_ARGUMENT),
    }
}

/// The hardware counts for 20 ms in each direction, and so long it takes.
fn throughput(device: &Device, counter: c_uint) -> Result<c_uint, Code> {
    let directions = known(known(device.pcie.as_ref())?.throughput_kib_per_second.as_ref())?;
    std::thread::sleep(std::time::Duration::from_millis(20));
    one_of(&directions, counter)
}

/// All links, and whether this one is active.
fn nvlink(at: &ResolvedTarget, link: c_uint) -> Result<(&NvLinks, bool), Code> {
    let links = at.whole()?.nvlink.as_ref().ok_or(codes::NOT_SUPPORTED)?;
    let active = links.active.get(link as usize).ok_or(codes::INVALID_ARGUMENT)?;
    Ok((links, *active))
}

fn pci_info(device: &Device) -> PciInfo {
    let pci = &device.pci;
    PciInfo {
        bus_id_legacy: text_in(&pci.bus_id()[4..]),
        domain: pci.domain,
        bus: pci.bus.unwrap_or(0),
        device: pci.device,
        device_id: pci.device_id,
        subsystem_id: pci.subsystem_id,
        bus_id: text_in(&pci.bus_id()),
    }
}

fn text_in<const LENGTH: usize>(text: &str) -> [c_char; LENGTH] {
    let mut all = [0; LENGTH];
    for (place, byte) in all.iter_mut().zip(text.bytes().take(LENGTH - 1)) {
        *place = c_char::from_ne_bytes([byte]);
    }
    all
}

pub(super) fn now_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The version that the caller wrote into a structure, which must be the one that the library knows.
fn version<T>(number: u32) -> u32 {
    u32::try_from(size_of::<T>()).unwrap_or(u32::MAX) | number << 24
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: Handle, out: *mut MemoryInfo2) -> Code {
    call("nvmlDeviceGetMemoryInfo_v2", handle(device), |at| {
        // SAFETY: the caller gives a structure whose version is set, or null.
        let requested = unsafe { out.as_mut() }.ok_or(codes::INVALID_ARGUMENT)?;
        if requested.version != version::<MemoryInfo2>(2) {
            return Err(codes::ARGUMENT_VERSION_MISMATCH);
        }
        let Memory { total_bytes: total, reserved_bytes: reserved, used_bytes: used } = memory(at)?;
        let free = total.saturating_sub(reserved).saturating_sub(used);
        *requested = MemoryInfo2 { version: requested.version, total, reserved, free, used };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTemperatureV(device: Handle, out: *mut Temperature) -> Code {
    call("nvmlDeviceGetTemperatureV", handle(device), |at| {
        // SAFETY: the caller gives a structure whose version and sensor are set, or null.
        let requested = unsafe { out.as_mut() }.ok_or(codes::INVALID_ARGUMENT)?;
        if requested.version != version::<Temperature>(1) {
            return Err(codes::ARGUMENT_VERSION_MISMATCH);
        }
        requested.celsius = c_int::try_from(celsius(at, requested.sensor)?).map_err(|_| codes::UNKNOWN)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetRetiredPages_v2(
    device: Handle,
    cause: c_uint,
    count: *mut c_uint,
    addresses: *mut c_ulonglong,
    timestamps: *mut c_ulonglong,
) -> Code {
    call("nvmlDeviceGetRetiredPages_v2", handle(device), |at| {
        let pages = retired(at, cause)?;
        let of = |value: fn(&RetiredPage) -> u64| pages.iter().map(value).collect::<Vec<_>>();
        // SAFETY: the caller says in `count` how many items have a place in each list, or gives null.
        unsafe {
            write_list(count, addresses, &of(|page| page.address))?;
            write_list(count, timestamps, &of(|page| page.timestamp_us))
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetRemappedRows(
    device: Handle,
    corrected: *mut c_uint,
    uncorrected: *mut c_uint,
    pending: *mut c_uint,
    failed: *mut c_uint,
) -> Code {
    call("nvmlDeviceGetRemappedRows", handle(device), |at| {
        let rows = known(without_mig(at)?.remapped_rows.as_ref())?;
        // SAFETY: the caller gives a place for each value, or null.
        unsafe {
            write(corrected, rows.corrected)?;
            write(uncorrected, rows.uncorrected)?;
            write(pending, rows.pending.into())?;
            write(failed, rows.failed.into())
        }
    })
}
