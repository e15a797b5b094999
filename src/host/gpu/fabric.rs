//! NVLink: traffic and errors of a GPU's links, summed over all links.

// `nvml-wrapper` reads field values of a whole device only; the throughput fields take a link as their scope.
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
/// The scope for the sum over all links.
const ALL: u32 = u32::MAX;
/// Payload in KiB: `NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX` and `_RX`. Every driver uses the same ids.
const DATA: [u32; 2] = [138, 139];
const KIB: u64 = 1 << 10;

/// Whether each link is up. Errors: the GPU has no links.
pub(super) fn links(gpu: &Device<'_>) -> Result<Vec<bool>, NvmlError> {
    let mut links = Vec::new();
    for link in 0..MOST {
        match gpu.link_wrapper_for(link).is_active() {
            Ok(is_up) => links.push(is_up),
            // No further link.
            Err(NvmlError::InvalidArg | NvmlError::NotSupported) => break,
            Err(error) => return Err(error),
        }
    }
    if links.is_empty() { Err(NvmlError::NotSupported) } else { Ok(links) }
}

/// The last error counter of each link, of one kind.
pub(super) type Errors = BTreeMap<u32, u64>;

/// The sum over all links. A link that is down contributes its last value, so the sum does not fall.
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

/// Payload bytes sent and received, summed over all links. `None`: not counted.
pub(super) fn bytes(gpu: &Device<'_>) -> Result<[Option<u64>; 2], NvmlError> {
    let call = nvml_sym(gpu.nvml().lib().nvmlDeviceGetFieldValues.as_ref())?;
    let mut fields = DATA.map(|id| {
        // SAFETY: a plain structure of numbers, for which zeros are valid.
        let mut field: nvmlFieldValue_t = unsafe { std::mem::zeroed() };
        (field.fieldId, field.scopeId) = (id, ALL);
        field
    });
    // SAFETY: the wrapper's handle is valid; the array has the two fields that the count says.
    nvml_try(unsafe { call(gpu.handle(), 2, fields.as_mut_ptr()) })?;
    let bytes = |field| whole(FieldValueSample::try_from(field).ok()?.value.ok()?)?.checked_mul(KIB);
    Ok(fields.map(bytes))
}
