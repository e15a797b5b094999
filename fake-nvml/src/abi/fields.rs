//! Field values: many at once, each with its own answer. Those of the table come from the device's values; whatever
//! stands in its `fields` comes before.

use std::ffi::c_int;

use super::device::now_us;
use super::frame::handle;
use super::types::{FieldValue, Handle};
use crate::codes::{self, Code};
use crate::scenario::{Device, System};
use crate::state::call;

/// `nvmlValueType_t`.
const UNSIGNED_INT: u32 = 1;
const UNSIGNED_LONG_LONG: u32 = 3;

/// Those that are 32 bits wide.
fn kind(id: u32) -> u32 {
    match id {
        1 | 2 | 29..=31 | 82 | 84..=95 | 164..=168 | 170..=172 | 184..=190 | 192..=196 | 199 | 230 => UNSIGNED_INT,
        _ => UNSIGNED_LONG_LONG,
    }
}

/// What the values of the device say of a field.
fn derived(device: &Device, id: u32) -> Option<u64> {
    let ecc = device.ecc.as_ref();
    let errors = ecc.filter(|ecc| ecc.enabled);
    let pages = device.retired_pages.as_ref();
    let power = device.power.as_ref();
    let limit = power.and_then(|power| power.limit.as_ref());
    let pcie = device.pcie.as_ref();
    let rows = device.remapped_rows.as_ref();
    match id {
        1 => ecc.map(|ecc| ecc.enabled.into()),
        2 => ecc.map(|ecc| ecc.pending.into()),
        3 => errors.map(|ecc| ecc.volatile.corrected),
        4 => errors.map(|ecc| ecc.volatile.uncorrected),
        5 => errors.map(|ecc| ecc.aggregate.corrected),
        6 => errors.map(|ecc| ecc.aggregate.uncorrected),
        29 => pages.map(|pages| pages.single_bit.len() as u64),
        30 => pages.map(|pages| pages.double_bit.len() as u64),
        31 => pages.map(|pages| pages.pending.into()),
        74..=81 => device.violations_ns.get(&policy(id)).copied(),
        82 => device.memory_temperature_celsius.map(u64::from),
        83 | 191 => device.energy_mj,
        91 => device.nvlink.as_ref().map(|links| links.active.len() as u64),
        94 => pcie.map(|pcie| pcie.replays.into()),
        142 => rows.map(|rows| rows.corrected.into()),
        143 => rows.map(|rows| rows.uncorrected.into()),
        144 => rows.map(|rows| rows.pending.into()),
        145 => rows.map(|rows| rows.failed.into()),
        185 => power.and_then(|power| power.average_mw).map(u64::from),
        186 => power.and_then(|power| power.instant_mw).map(u64::from),
        187 => limit.map(|limit| limit.min_mw.into()),
        188 => limit.map(|limit| limit.max_mw.into()),
        189 => limit.map(|limit| limit.default_mw.into()),
        190 => limit.map(|limit| limit.enforced_mw.into()),
        192 => limit.map(|limit| limit.set_mw.into()),
        197 => pcie.and_then(|pcie| pcie.transmitted_bytes),
        198 => pcie.and_then(|pcie| pcie.received_bytes),
        _ => None,
    }
}

/// What one link counted, or, asked with the highest number there is, all of them.
fn by_link(device: &Device, id: u32, link: u32) -> Option<u64> {
    let direction = usize::try_from(id.checked_sub(138)?).ok()?;
    let links = &device.nvlink.as_ref()?.data_kib;
    let of = |kib: &[u64; 2]| kib.get(direction).copied();
    match link {
        u32::MAX if links.is_empty() => None,
        u32::MAX => links.values().map(of).sum(),
        link => of(links.get(&link)?),
    }
}

/// `nvmlPerfPolicyType_t` of the fields 74 to 81: after the sixth the header leaves a gap.
fn policy(id: u32) -> u32 {
    if id < 80 { id - 74 } else { id - 70 }
}

/// The number in NVML 12 of the field that a driver of this version knows as `id`: 580.82 gave those from 251 to 273
/// others.
fn number_in_12(system: &System, id: u32) -> u32 {
    let mut parts = system.driver_version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    match id {
        269..=273 if version >= (580, 82) => id - 18,
        251..=268 if version >= (580, 82) => id + 5,
        _ => id,
    }
}

fn answer(system: &System, device: &Device, requested: &mut FieldValue) {
    let id = number_in_12(system, requested.id);
    let refused = device.refuses.contains(&format!("field:{id}"));
    let value = device.fields.get(&id).copied().or_else(|| derived(device, id));
    let value = value.or_else(|| by_link(device, id, requested.scope)).filter(|_| !refused);
    requested.timestamp = i64::try_from(now_us()).unwrap_or(i64::MAX);
    requested.latency = 0;
    requested.kind = kind(id);
    requested.code = if value.is_some() { codes::SUCCESS } else { codes::NOT_SUPPORTED };
    // A union: a value of 32 bits lies at its beginning.
    requested.value = match requested.kind {
        UNSIGNED_INT => union_of(value.map_or(0, |value| u32::try_from(value).unwrap_or(u32::MAX))),
        _ => value.unwrap_or(0),
    };
}

fn union_of(value: u32) -> u64 {
    let [a, b, c, d] = value.to_ne_bytes();
    u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0])
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetFieldValues(device: Handle, count: c_int, values: *mut FieldValue) -> Code {
    call("nvmlDeviceGetFieldValues", handle(device), |at| {
        let count = usize::try_from(count).map_err(|_| codes::INVALID_ARGUMENT)?;
        if values.is_null() || count == 0 {
            return Err(codes::INVALID_ARGUMENT);
        }
        let device = at.whole()?;
        // SAFETY: the caller gives so many values with their ids, or null.
        for requested in unsafe { std::slice::from_raw_parts_mut(values, count) } {
            answer(&at.scenario.system, device, requested);
        }
        Ok(())
    })
}
