//! Who runs on a device, what each used of it lately, and what is kept of those that ended.

use std::ffi::{c_uint, c_ulonglong};

use super::frame::{claim, exports, handle, write_list};
use super::types::{AccountingStats, Handle, ProcessInfo, ProcessInfoV1, UtilizationSample};
use crate::codes::{self, Code};
use crate::scenario::{Accounting, Device, Instance, Process, ProcessSample};
use crate::state::{ResolvedTarget, call};

exports! {
    list nvmlDeviceGetComputeRunningProcesses() -> ProcessInfoV1 = |at| compute(at).map(oldest);
    list nvmlDeviceGetGraphicsRunningProcesses() -> ProcessInfoV1 =
        |at| list_processes(at, |device| &device.graphics).map(oldest);
    list nvmlDeviceGetMPSComputeRunningProcesses() -> ProcessInfoV1 =
        |at| list_processes(at, |device| &device.mps).map(oldest);
    list nvmlDeviceGetComputeRunningProcesses_v2() -> ProcessInfo = compute;
    list nvmlDeviceGetComputeRunningProcesses_v3() -> ProcessInfo = compute;
    list nvmlDeviceGetGraphicsRunningProcesses_v2() -> ProcessInfo = |at| list_processes(at, |device| &device.graphics);
    list nvmlDeviceGetGraphicsRunningProcesses_v3() -> ProcessInfo = |at| list_processes(at, |device| &device.graphics);
    list nvmlDeviceGetMPSComputeRunningProcesses_v2() -> ProcessInfo = |at| list_processes(at, |device| &device.mps);
    list nvmlDeviceGetMPSComputeRunningProcesses_v3() -> ProcessInfo = |at| list_processes(at, |device| &device.mps);

    value nvmlDeviceGetAccountingMode() -> c_uint = |at| Ok(accounting(at)?.enabled.into());
    value nvmlDeviceGetAccountingBufferSize() -> c_uint = |at| Ok(accounting(at)?.buffer_size);
    list nvmlDeviceGetAccountingPids() -> c_uint =
        |at| Ok(accounted(at)?.processes.iter().map(|one| one.pid).collect());
    value nvmlDeviceGetAccountingStats(pid: c_uint) -> AccountingStats = accounting_stats;
}

/// In no instance.
const NONE: c_uint = c_uint::MAX;
/// Above all that a kernel gives.
const FIRST_STRANGER: c_uint = 0x4000_0000;

fn process_info(process: &Process, instance: Option<&Instance>) -> ProcessInfo {
    ProcessInfo {
        pid: process.pid,
        memory: process.memory_bytes,
        gpu_instance: instance.map_or(NONE, |instance| instance.gpu_instance),
        compute_instance: instance.map_or(NONE, |instance| instance.compute_instance),
    }
}

/// Of a MIG device its own; of the device all, those of its MIG devices with their instances.
fn compute(at: &ResolvedTarget) -> Result<Vec<ProcessInfo>, Code> {
    let of = |instance: &Instance| -> Vec<ProcessInfo> {
        instance.compute.iter().map(|process| process_info(process, Some(instance))).collect()
    };
    let mut list = match at.instance() {
        Some(instance) => of(instance),
        None => {
            let device = at.device()?;
            let instances = device.mig.iter().filter(|mig| mig.enabled).flat_map(|mig| &mig.instances);
            device.compute.iter().map(|process| process_info(process, None)).chain(instances.flat_map(of)).collect()
        }
    };
    grow(at, &mut list);
    Ok(list)
}

fn list_processes(at: &ResolvedTarget, which: fn(&Device) -> &[Process]) -> Result<Vec<ProcessInfo>, Code> {
    let mut list = Vec::new();
    if at.instance().is_none() {
        list.extend(which(at.device()?).iter().map(|process| process_info(process, None)));
    }
    grow(at, &mut list);
    Ok(list)
}

/// In the form of drivers before R450, which has no instances.
fn oldest(list: Vec<ProcessInfo>) -> Vec<ProcessInfoV1> {
    list.into_iter().map(|of| ProcessInfoV1 { pid: of.pid, memory: of.memory }).collect()
}

/// Strangers whose pids no process has, as a fault wants it.
fn grow(at: &ResolvedTarget, list: &mut Vec<ProcessInfo>) {
    let strangers = (0..at.grown).map(|number| Process::new(FIRST_STRANGER + number, 0));
    list.extend(strangers.map(|process| process_info(&process, None)));
}

fn accounting(at: &ResolvedTarget) -> Result<&Accounting, Code> {
    let device = at.whole()?;
    let divided = device.mig.as_ref().is_some_and(|mig| mig.enabled);
    device.accounting.as_ref().filter(|_| !divided).ok_or(codes::NOT_SUPPORTED)
}

fn accounted(at: &ResolvedTarget) -> Result<&Accounting, Code> {
    let accounting = accounting(at)?;
    if accounting.enabled { Ok(accounting) } else { Err(codes::NOT_SUPPORTED) }
}

fn accounting_stats(at: &ResolvedTarget, pid: c_uint) -> Result<AccountingStats, Code> {
    let one = accounted(at)?.processes.iter().find(|one| one.pid == pid).ok_or(codes::NOT_FOUND)?;
    Ok(AccountingStats {
        gpu: one.gpu_percent,
        memory: one.memory_percent,
        max_memory: one.max_memory_bytes,
        time: one.time_ms,
        start_time: one.start_time_us,
        running: one.running.into(),
        reserved: [0; 5],
    })
}

/// The newest sample of each process, if it is newer than what the caller saw last.
fn newer(device: &Device, seen: u64) -> Vec<UtilizationSample> {
    let all = device.compute.iter().chain(&device.graphics).chain(&device.mps);
    let samples = all.filter_map(|process| Some((process.pid, process.sample.as_ref()?)));
    let newer = samples.filter(|(_, sample)| sample.timestamp_us > seen);
    newer.map(|(pid, sample)| utilization_sample(pid, sample)).collect()
}

fn utilization_sample(pid: u32, sample: &ProcessSample) -> UtilizationSample {
    UtilizationSample {
        pid,
        timestamp: sample.timestamp_us,
        sm: sample.sm_percent,
        memory: sample.memory_percent,
        encoder: sample.encoder_percent,
        decoder: sample.decoder_percent,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetProcessUtilization(
    device: Handle,
    samples: *mut UtilizationSample,
    count: *mut c_uint,
    seen: c_ulonglong,
) -> Code {
    call("nvmlDeviceGetProcessUtilization", handle(device), |at| {
        // SAFETY: the caller gives a place for the count, or null.
        unsafe { claim(count, at.claimed)? }
        let device = at.whole()?;
        if device.mig.as_ref().is_some_and(|mig| mig.enabled) {
            return Err(codes::NOT_SUPPORTED);
        }
        let newer = newer(device, seen);
        if newer.is_empty() {
            return Err(codes::NOT_FOUND);
        }
        // SAFETY: the caller says in `count` how many items have a place, or gives null.
        unsafe { write_list(count, samples, &newer) }
    })
}
