//! Lists of NVML, each bounded whatever count the library reports, and the functions of older libraries.

// `nvml-wrapper` allocates as many items as the library reports, and falls back to no older function.
#![allow(unsafe_code)]

use std::ffi::c_uint;
use std::ptr;

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::RetirementCause;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper_sys::bindings::{
    nvmlMemory_t, nvmlProcessInfo_t, nvmlProcessUtilizationSample_t, nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE,
    nvmlReturn_enum_NVML_SUCCESS, nvmlReturn_t,
};

/// GPUs of a host: more than any has.
pub(super) const MOST_GPUS: u32 = 1 << 10;
/// Instances of a GPU; there are 7 at most so far.
pub(super) const MOST_INSTANCES: u32 = 64;
/// Processes on a GPU, their samples, pages of its memory.
const MOST: u32 = 1 << 12;
/// Who may come between the question how many there are and the list.
const HEADROOM: u32 = 5;

/// Of a GPU or an instance.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    pub(super) total: u64,
    pub(super) used: u64,
    pub(super) free: u64,
    /// An older library counts it as used.
    pub(super) reserved: Option<u64>,
}

/// Source: `nvmlDeviceGetMemoryInfo_v2` (R510), `nvmlDeviceGetMemoryInfo`.
pub(super) fn memory(gpu: &Device<'_>) -> Result<Memory, NvmlError> {
    let newer = || {
        let of = gpu.memory_info()?;
        Ok(Memory { total: of.total, used: of.used, free: of.free, reserved: Some(of.reserved) })
    };
    newer_or(newer, || {
        let call = nvml_sym(gpu.nvml().lib().nvmlDeviceGetMemoryInfo.as_ref())?;
        let mut of = nvmlMemory_t { total: 0, free: 0, used: 0 };
        // SAFETY: the handle is the wrapper's own and lives; the structure is ours.
        nvml_try(unsafe { call(gpu.handle(), &raw mut of) })?;
        Ok(Memory { total: of.total, used: of.used, free: of.free, reserved: None })
    })
}

/// What a process is on a GPU for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Use {
    Compute,
    Mps,
    Graphics,
}

/// Source: `nvmlDeviceGet*RunningProcesses_v3` (R510), `_v2`, which fill the same structure.
pub(super) fn processes(gpu: &Device<'_>, of: Use) -> Result<Vec<nvmlProcessInfo_t>, NvmlError> {
    let lib = gpu.nvml().lib();
    let (newer, older) = match of {
        Use::Compute => (&lib.nvmlDeviceGetComputeRunningProcesses_v3, &lib.nvmlDeviceGetComputeRunningProcesses_v2),
        Use::Mps => (&lib.nvmlDeviceGetMPSComputeRunningProcesses_v3, &lib.nvmlDeviceGetMPSComputeRunningProcesses_v2),
        Use::Graphics => (&lib.nvmlDeviceGetGraphicsRunningProcesses_v3, &lib.nvmlDeviceGetGraphicsRunningProcesses_v2),
    };
    let nothing = nvmlProcessInfo_t { pid: 0, usedGpuMemory: 0, gpuInstanceId: 0, computeInstanceId: 0 };
    let list = |call: unsafe extern "C" fn(_, _, _) -> _| {
        // SAFETY: the handle is the wrapper's own and lives; `items` has room for `count` items.
        listed(nothing, |count, items| unsafe { call(gpu.handle(), count, items) })
    };
    newer_or(|| list(*nvml_sym(newer.as_ref())?), || list(*nvml_sym(older.as_ref())?))
}

/// Since that time, in microseconds.
pub(super) fn samples(gpu: &Device<'_>, since: u64) -> Result<Vec<nvmlProcessUtilizationSample_t>, NvmlError> {
    let call = nvml_sym(gpu.nvml().lib().nvmlDeviceGetProcessUtilization.as_ref())?;
    let nothing =
        nvmlProcessUtilizationSample_t { pid: 0, timeStamp: 0, smUtil: 0, memUtil: 0, encUtil: 0, decUtil: 0 };
    // SAFETY: the handle is the wrapper's own and lives; `items` has room for `count` items.
    listed(nothing, |count, items| unsafe { call(gpu.handle(), items, count, since) })
}

/// How many pages of its memory were retired for that.
pub(super) fn retired_pages(gpu: &Device<'_>, cause: &RetirementCause) -> Result<u64, NvmlError> {
    let call = nvml_sym(gpu.nvml().lib().nvmlDeviceGetRetiredPages.as_ref())?;
    let (mut count, mut address) = (0, 0);
    // SAFETY: the handle is the wrapper's own and lives; `count` is 0, so nothing is written to `address`, which must not be null.
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

/// Calls the newer function, and falls back to the older one where the newer is missing (before R510) or fails with "unknown" (WSL).
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
