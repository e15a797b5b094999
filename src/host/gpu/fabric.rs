//! NVLink: what a GPU exchanges with other GPUs and with switches, over all its links together.

// `nvml-wrapper` asks for fields of a whole device; how much went over links is asked by link, or of all of them.
#![allow(unsafe_code)]

use std::collections::BTreeMap;

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::nv_link::ErrorCounter;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::struct_wrappers::device::FieldValueSample;
use nvml_wrapper_sys::bindings::nvmlFieldValue_t;

use super::number::whole;

/// `NVML_NVLINK_MAX_LINKS`
const MOST: u32 = 18;
/// The scope that means all links.
const ALL: u32 = u32::MAX;
/// Payload, in KiB: `NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX` and `_RX`. The same numbers for all drivers.
const DATA: [u32; 2] = [138, 139];
const KIB: u64 = 1 << 10;

/// Its links, each with whether it is up. Errors: it has none.
pub(super) fn links(gpu: &Device<'_>) -> Result<Vec<bool>, NvmlError> {
    let mut links = Vec::new();
    for link in 0..MOST {
        match gpu.link_wrapper_for(link).is_active() {
            Ok(is_up) => links.push(is_up),
            // Behind its last one.
            Err(NvmlError::InvalidArg | NvmlError::NotSupported) => break,
            Err(error) => return Err(error),
        }
    }
    if links.is_empty() { Err(NvmlError::NotSupported) } else { Ok(links) }
}

/// Errors of one kind, by link.
pub(super) type Errors = BTreeMap<u32, u64>;

/// Their sum. Of a link that is down what it had counted before is in it: it does not fall with the link.
pub(super) fn errors(
    gpu: &Device<'_>,
    links: &[bool],
    kind: ErrorCounter,
    known: &mut Errors,
) -> Result<u64, NvmlError> {
    for (link, _) in (0..MOST).zip(links).filter(|(_, is_up)| **is_up) {
        known.insert(link, gpu.link_wrapper_for(link).error_counter(kind)?);
    }
    Ok(known.values().sum())
}

/// Bytes of payload that were sent and received, over all links. `None`: it does not count them.
pub(super) fn bytes(gpu: &Device<'_>) -> Result<[Option<u64>; 2], NvmlError> {
    let call = nvml_sym(gpu.nvml().lib().nvmlDeviceGetFieldValues.as_ref())?;
    let mut fields = DATA.map(|id| {
        // SAFETY: a plain structure of numbers, of which zeros are such.
        let mut field: nvmlFieldValue_t = unsafe { std::mem::zeroed() };
        (field.fieldId, field.scopeId) = (id, ALL);
        field
    });
    // SAFETY: the handle is the wrapper's own and lives; there are two fields, as is said.
    nvml_try(unsafe { call(gpu.handle(), 2, fields.as_mut_ptr()) })?;
    let told = |field| whole(FieldValueSample::try_from(field).ok()?.value.ok()?)?.checked_mul(KIB);
    Ok(fields.map(told))
}
