//! GPM: what was measured between two samples. The later one brings its values from the scenario.

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_uint;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use super::frame::{exports, handle, write};
use super::types::{GpmMetric, GpmMetrics, GpmSupport, Handle};
use crate::codes::{self, Code};
use crate::state::{Target, call};

exports! {}

type Values = BTreeMap<u32, f64>;

/// By number, from 1; `None` before it was taken.
static SAMPLES: LazyLock<Mutex<HashMap<usize, Option<Values>>>> = LazyLock::new(Mutex::default);

fn samples() -> MutexGuard<'static, HashMap<usize, Option<Values>>> {
    SAMPLES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmQueryDeviceSupport(device: Handle, out: *mut GpmSupport) -> Code {
    call("nvmlGpmQueryDeviceSupport", handle(device), |at| {
        let supported = at.device()?.gpm.is_some().into();
        // SAFETY: the caller gives a structure whose version is set, or null.
        let requested = unsafe { out.as_mut() }.ok_or(codes::INVALID_ARGUMENT)?;
        if requested.version != 1 {
            return Err(codes::ARGUMENT_VERSION_MISMATCH);
        }
        requested.supported = supported;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmSampleAlloc(out: *mut Handle) -> Code {
    call("nvmlGpmSampleAlloc", Target::Library, |_| {
        let mut samples = samples();
        let number = samples.keys().max().map_or(1, |last| last + 1);
        samples.insert(number, None);
        // SAFETY: the caller gives a place for one value, or null.
        unsafe { write(out, number as Handle) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlGpmSampleFree(sample: Handle) -> Code {
    call("nvmlGpmSampleFree", Target::Library, |_| {
        samples().remove(&(sample as usize)).map(|_| ()).ok_or(codes::INVALID_ARGUMENT)
    })
}

fn take(sample: Handle, values: &Values) -> Result<(), Code> {
    let mut samples = samples();
    let place = samples.get_mut(&(sample as usize)).ok_or(codes::INVALID_ARGUMENT)?;
    *place = Some(values.clone());
    Ok(())
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlGpmSampleGet(device: Handle, sample: Handle) -> Code {
    call("nvmlGpmSampleGet", handle(device), |at| take(sample, at.whole()?.gpm.as_ref().ok_or(codes::NOT_SUPPORTED)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlGpmMigSampleGet(device: Handle, gpu_instance: c_uint, sample: Handle) -> Code {
    call("nvmlGpmMigSampleGet", handle(device), |at| {
        let device = at.whole()?;
        let mig = device.mig.as_ref().filter(|mig| mig.enabled && device.gpm.is_some()).ok_or(codes::NOT_SUPPORTED)?;
        let mut instances = mig.instances.iter();
        let instance = instances.find(|instance| instance.gpu_instance == gpu_instance).ok_or(codes::NOT_FOUND)?;
        take(sample, &instance.gpm)
    })
}

fn measured(metric: &mut GpmMetric, values: &Values) {
    let value = values.get(&metric.id);
    metric.code = if value.is_some() { codes::SUCCESS } else { codes::NOT_SUPPORTED };
    metric.value = value.copied().unwrap_or(0.0);
    metric.names = [std::ptr::null(); 3];
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmMetricsGet(request: *mut GpmMetrics) -> Code {
    call("nvmlGpmMetricsGet", Target::Library, |_| {
        // SAFETY: the caller gives a structure whose version, samples and metrics are set, or null.
        let request = unsafe { request.as_mut() }.ok_or(codes::INVALID_ARGUMENT)?;
        if request.version != 1 {
            return Err(codes::ARGUMENT_VERSION_MISMATCH);
        }
        let samples = samples();
        let taken = |sample: Handle| samples.get(&(sample as usize)).and_then(Option::as_ref);
        let (Some(_), Some(later)) = (taken(request.first), taken(request.second)) else {
            return Err(codes::INVALID_ARGUMENT);
        };
        for metric in request.metrics.iter_mut().take(request.count as usize) {
            measured(metric, later);
        }
        Ok(())
    })
}
