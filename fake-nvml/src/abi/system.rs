//! Beginning and end, versions, and how devices are found.

use std::ffi::{c_char, c_int, c_uint};

use super::frame::{read_text, write, write_text};
use super::types::Handle;
use crate::codes::{self, Code};
use crate::state::{ResolvedTarget, Target, call, state};

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> Code {
    call("nvmlInit_v2", Target::Library, init)
}
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> Code {
    call("nvmlInitWithFlags", Target::Library, init)
}
fn init(_: &ResolvedTarget) -> Result<(), Code> {
    state().init();
    Ok(())
}
#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> Code {
    call("nvmlShutdown", Target::Library, |_| {
        state().shut_down();
        Ok(())
    })
}
/// Answers without the driver, and so whatever the scenario says.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(code: Code) -> *const c_char {
    codes::text(code).as_ptr()
}

/// # Safety
/// As of [`write_text`].
unsafe fn version(name: &str, buffer: *mut c_char, length: c_uint, of: impl Fn(&ResolvedTarget) -> &str) -> Code {
    call(name, Target::Library, |found| {
        // SAFETY: the caller promises it.
        unsafe { write_text(buffer, length, of(found)) }
    })
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetDriverVersion(buffer: *mut c_char, length: c_uint) -> Code {
    // SAFETY: the caller gives a buffer of that length, or null.
    unsafe { version("nvmlSystemGetDriverVersion", buffer, length, |found| &found.scenario.system.driver_version) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetNVMLVersion(buffer: *mut c_char, length: c_uint) -> Code {
    // SAFETY: as above.
    unsafe { version("nvmlSystemGetNVMLVersion", buffer, length, |found| &found.scenario.system.nvml_version) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetCudaDriverVersion(out: *mut c_int) -> Code {
    // SAFETY: the caller gives a place for one value, or null.
    call("nvmlSystemGetCudaDriverVersion", Target::Library, |found| unsafe {
        write(out, found.scenario.system.cuda_version)
    })
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetCudaDriverVersion_v2(out: *mut c_int) -> Code {
    // SAFETY: as above.
    call("nvmlSystemGetCudaDriverVersion_v2", Target::Library, |found| unsafe {
        write(out, found.scenario.system.cuda_version)
    })
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetProcessName(pid: c_uint, buffer: *mut c_char, length: c_uint) -> Code {
    call("nvmlSystemGetProcessName", Target::Library, |_| {
        let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).map_err(|_| codes::NOT_FOUND)?;
        // SAFETY: the caller gives a buffer of that length, or null.
        unsafe { write_text(buffer, length, command.split('\0').next().unwrap_or_default()) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(out: *mut c_uint) -> Code {
    call("nvmlDeviceGetCount_v2", Target::Library, |found| {
        // SAFETY: the caller gives a place for one value, or null.
        unsafe {
            write(out, found.claimed.unwrap_or(c_uint::try_from(found.scenario.devices.len()).unwrap_or(c_uint::MAX)))
        }
    })
}

/// # Safety
/// As of [`write`].
unsafe fn lookup(name: &str, target: Target, out: *mut Handle) -> Code {
    call(name, target, |found| {
        let uuid = found.instance().map_or(&found.device()?.uuid, |instance| &instance.uuid);
        let handle = state().handle(uuid);
        // SAFETY: the caller promises it.
        unsafe { write(out, handle as Handle) }
    })
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, out: *mut Handle) -> Code {
    // SAFETY: the caller gives a place for one value, or null.
    unsafe { lookup("nvmlDeviceGetHandleByIndex_v2", Target::Index(index), out) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, out: *mut Handle) -> Code {
    // SAFETY: the caller gives a string that ends in a zero, and a place for one value; or null.
    unsafe {
        match read_text(uuid) {
            Ok(uuid) => lookup("nvmlDeviceGetHandleByUUID", Target::Uuid(uuid), out),
            Err(code) => code,
        }
    }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(id: *const c_char, out: *mut Handle) -> Code {
    // SAFETY: as above.
    unsafe {
        match read_text(id) {
            Ok(id) => lookup("nvmlDeviceGetHandleByPciBusId_v2", Target::BusId(id), out),
            Err(code) => code,
        }
    }
}
