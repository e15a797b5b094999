//! MIG: a device divided into several.

use std::ffi::c_uint;

use super::frame::{exports, handle, known, write};
use super::types::{Attributes, Handle};
use crate::codes::{self, Code};
use crate::scenario::{Instance, Mig};
use crate::state::{ResolvedTarget, call, state};

exports! {
    both nvmlDeviceGetMigMode() -> c_uint = |at| mig(at).map(|mig| [mig.enabled.into(), mig.pending.into()]);
    value nvmlDeviceGetMaxMigDeviceCount() -> c_uint =
        |at| Ok(at.device()?.mig.as_ref().map_or(0, |mig| mig.max_instances));
    value nvmlDeviceIsMigDeviceHandle() -> c_uint = |at| {
        at.device()?;
        Ok(at.instance().is_some().into())
    };
    value nvmlDeviceGetDeviceHandleFromMigDeviceHandle() -> Handle = |at| {
        instance(at)?;
        Ok(state().handle(&at.device()?.uuid) as Handle)
    };
    value nvmlDeviceGetGpuInstanceId() -> c_uint = |at| Ok(instance(at)?.gpu_instance);
    value nvmlDeviceGetComputeInstanceId() -> c_uint = |at| Ok(instance(at)?.compute_instance);
    value nvmlDeviceGetAttributes_v2() -> Attributes = |at| Ok(attributes(instance(at)?));
}

fn mig(at: &ResolvedTarget) -> Result<Mig, Code> {
    known(at.whole()?.mig.as_ref())
}

fn instance(at: &ResolvedTarget) -> Result<&Instance, Code> {
    at.instance().ok_or(codes::INVALID_ARGUMENT)
}

fn attributes(instance: &Instance) -> Attributes {
    Attributes {
        multiprocessors: instance.multiprocessors,
        copy_engines: instance.gpu_slices,
        decoders: 0,
        encoders: 0,
        jpeg: 0,
        ofa: 0,
        gpu_slices: instance.gpu_slices,
        compute_slices: instance.compute_slices,
        memory_mib: instance.memory.total_bytes >> 20,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(device: Handle, index: c_uint, out: *mut Handle) -> Code {
    call("nvmlDeviceGetMigDeviceHandleByIndex", handle(device), |at| {
        let mig = mig(at)?;
        if index >= mig.max_instances {
            return Err(codes::INVALID_ARGUMENT);
        }
        let instance = mig.instances.get(index as usize).filter(|_| mig.enabled).ok_or(codes::NOT_FOUND)?;
        // SAFETY: the caller gives a place for one value, or null.
        unsafe { write(out, state().handle(&instance.uuid) as Handle) }
    })
}
