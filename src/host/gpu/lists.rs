//! NVML lists with an upper bound on the length that the library reports, and fallbacks to the functions of older
//! libraries.

// `nvml-wrapper` allocates as many items as the library reports and has no fallback to older functions.
#![allow(unsafe_code)]

use std::ffi::c_uint;
use std::ptr;

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::RetirementCause;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper_sys::bindings::{
    nvmlMemory_t, nvmlProcessInfo_t, nvmlProcessInfo_v1_t, nvmlProcessUtilizationSample_t,
    nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE, nvmlReturn_enum_NVML_SUCCESS, nvmlReturn_t,
};

/// GPUs per host.
pub(super) const MOST_GPUS: u32 = 1 << 10;
/// Instances per GPU; NVML supports 7 so far.
pub(super) const MOST_INSTANCES: u32 = 64;
/// Processes on a GPU, samples, retired pages.
const MOST: u32 = 1 << 12;
/// Room for processes that start between the call for the count and the call for the list.
const HEADROOM: u32 = 5;

/// Memory of a GPU or an instance, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct GpuMemory {
    pub(super) total: u64,
    pub(super) used: u64,
    pub(super) free: u64,
    /// `None`: an older library includes it in `used`.
    pub(super) reserved: Option<u64>,
}

/// Source: `nvmlDeviceGetMemoryInfo_v2` (R510), `nvmlDeviceGetMemoryInfo`.
pub(super) fn memory(gpu: &Device<'_>) -> Result<GpuMemory, NvmlError> {
    let newer = || {
        let of = gpu.memory_info()?;
        Ok(GpuMemory { total: of.total, used: of.used, free: of.free, reserved: Some(of.reserved) })
    };
    newer_or(newer, || {
        let call = nvml_sym(gpu.nvml().lib().nvmlDeviceGetMemoryInfo.as_ref())?;
        let mut of = nvmlMemory_t { total: 0, free: 0, used: 0 };
        // SAFETY: the wrapper's handle is valid; the structure is local.
        nvml_try(unsafe { call(gpu.handle(), &raw mut of) })?;
        Ok(GpuMemory { total: of.total, used: of.used, free: of.free, reserved: None })
    })
}

/// How a process uses a GPU.
#[derive(Debug, Clone, Copy)]
pub(super) enum GpuUse {
    Compute,
    Mps,
    Graphics,
}

/// Source: `nvmlDeviceGet*RunningProcesses_v3` (R510) and `_v2`, which use the same structure, and the functions
/// without a version (before R450), whose structure has no instances.
pub(super) fn processes(gpu: &Device<'_>, of: GpuUse) -> Result<Vec<nvmlProcessInfo_t>, NvmlError> {
    let lib = gpu.nvml().lib();
    let (newest, newer, oldest) = match of {
        GpuUse::Compute => (
            &lib.nvmlDeviceGetComputeRunningProcesses_v3,
            &lib.nvmlDeviceGetComputeRunningProcesses_v2,
            &lib.nvmlDeviceGetComputeRunningProcesses,
        ),
        GpuUse::Mps => (
            &lib.nvmlDeviceGetMPSComputeRunningProcesses_v3,
            &lib.nvmlDeviceGetMPSComputeRunningProcesses_v2,
            &lib.nvmlDeviceGetMPSComputeRunningProcesses,
        ),
        GpuUse::Graphics => (
            &lib.nvmlDeviceGetGraphicsRunningProcesses_v3,
            &lib.nvmlDeviceGetGraphicsRunningProcesses_v2,
            &lib.nvmlDeviceGetGraphicsRunningProcesses,
        ),
    };
    let nothing = nvmlProcessInfo_t { pid: 0, usedGpuMemory: 0, gpuInstanceId: 0, computeInstanceId: 0 };
    let list = |call: unsafe extern "C" fn(_, _, _) -> _| {
        // SAFETY: the wrapper's handle is valid; `items` has room for `count` items.
        listed(nothing, |count, items| unsafe { call(gpu.handle(), count, items) })
    };
    let list_oldest = || {
        let call = nvml_sym(oldest.as_ref())?;
        let nothing = nvmlProcessInfo_v1_t { pid: 0, usedGpuMemory: 0 };
        // SAFETY: as above.
        let all = listed(nothing, |count, items| unsafe { call(gpu.handle(), count, items) })?;
        let in_no_instance = |of: nvmlProcessInfo_v1_t| nvmlProcessInfo_t {
            pid: of.pid,
            usedGpuMemory: of.usedGpuMemory,
            gpuInstanceId: c_uint::MAX,
            computeInstanceId: c_uint::MAX,
        };
        Ok(all.into_iter().map(in_no_instance).collect())
    };
    let list_older = || newer_or(|| list(*nvml_sym(newer.as_ref())?), list_oldest);
    newer_or(|| list(*nvml_sym(newest.as_ref())?), list_older)
}

/// Samples newer than `since`, a timestamp in microseconds.
pub(super) fn samples(gpu: &Device<'_>, since: u64) -> Result<Vec<nvmlProcessUtilizationSample_t>, NvmlError> {
    let call = nvml_sym(gpu.nvml().lib().nvmlDeviceGetProcessUtilization.as_ref())?;
    let nothing =
        nvmlProcessUtilizationSample_t { pid: 0, timeStamp: 0, smUtil: 0, memUtil: 0, encUtil: 0, decUtil: 0 };
    // SAFETY: the wrapper's handle is valid; `items` has room for `count` items.
    listed(nothing, |count, items| unsafe { call(gpu.handle(), items, count, since) })
}

/// The number of memory pages retired for this cause.
pub(super) fn retired_pages(gpu: &Device<'_>, cause: &RetirementCause) -> Result<u64, NvmlError> {
    let call = nvml_sym(gpu.nvml().lib().nvmlDeviceGetRetiredPages.as_ref())?;
    let (mut count, mut address) = (0, 0);
    // SAFETY: the wrapper's handle is valid; with a `count` of 0 nothing is written to `address`, which must not be
    // null.
    let code = unsafe { call(gpu.handle(), cause.as_c(), &raw mut count, &raw mut address) };
    if code != nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE {
        nvml_try(code)?;
    }
    checked(count).map(u64::from)
}

/// Reads the count, then the items.
fn listed<T: Copy>(nothing: T, call: impl Fn(*mut c_uint, *mut T) -> nvmlReturn_t) -> Result<Vec<T>, NvmlError> {
    let mut count = 0;
    match call(&raw mut count, ptr::null_mut()) {
        #[allow(non_upper_case_globals)]
        nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE => {}
        #[allow(non_upper_case_globals)]
        nvmlReturn_enum_NVML_SUCCESS => return Ok(Vec::new()),
        code => return nvml_try(code).map(|()| Vec::new()),
    }
    count = checked(count)? + HEADROOM;
    let mut items = vec![nothing; count as usize];
    nvml_try(call(&raw mut count, items.as_mut_ptr()))?;
    items.truncate(count as usize);
    Ok(items)
}

fn checked(count: c_uint) -> Result<c_uint, NvmlError> {
    if count <= MOST { Ok(count) } else { Err(NvmlError::UnexpectedVariant(count)) }
}

/// Calls the newer function. Falls back to the older one if the newer is missing (an older driver) or fails with
/// "unknown" (WSL).
fn newer_or<T>(
    newer: impl FnOnce() -> Result<T, NvmlError>,
    older: impl FnOnce() -> Result<T, NvmlError>,
) -> Result<T, NvmlError> {
    use NvmlError as E;
    let error = match newer() {
        Err(error @ (E::FailedToLoadSymbol(_) | E::FunctionNotFound | E::NotSupported | E::Unknown)) => error,
        other => return other,
    };
    older().map_err(|older| match older {
        E::FailedToLoadSymbol(_) | E::FunctionNotFound | E::NotSupported => error,
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn count_above_the_limit_is_refused_before_the_list_is_requested() {
        let listed_if = |claimed: u32| {
            let calls = Cell::new(0);
            let list = listed(0_u8, |count, items| {
                calls.set(calls.get() + 1);
                let (number, code) = match items.is_null() {
                    true => (claimed, nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE),
                    false => (3, nvmlReturn_enum_NVML_SUCCESS),
                };
                // SAFETY: `listed` passes its own count.
                unsafe { *count = number };
                code
            });
            (list.ok().map(|items| items.len()), calls.get())
        };
        assert_eq!(listed_if(MOST), (Some(3), 2));
        assert_eq!(listed_if(MOST + 1), (None, 1));
        assert_eq!(listed_if(u32::MAX), (None, 1));
    }
}
