//! Conversion of NVML numbers. Some values mean "not available".

use nvml_wrapper::enums::device::SampleValue;

pub(super) fn whole(value: SampleValue) -> Option<u64> {
    match value {
        SampleValue::U32(n) => Some(n).filter(|n| *n != u32::MAX).map(u64::from),
        SampleValue::U64(n) => sane(n),
        SampleValue::I64(n) => u64::try_from(n).ok(),
        SampleValue::F64(_) => None,
    }
}

/// `None` for the maximum value, which means "not available".
pub(super) fn sane(n: u64) -> Option<u64> {
    Some(n).filter(|n| *n != u64::MAX)
}

/// A percentage as a ratio; some drivers slightly exceed 100.
pub(super) fn share_of(percent: u32) -> Option<f64> {
    Some(percent).filter(|n| *n != u32::MAX).map(|n| f64::from(n.min(100)) / 100.0)
}

pub(super) fn hertz(megahertz: Option<u64>) -> Option<u64> {
    megahertz.map(|n| n.saturating_mul(1_000_000))
}
