//! Numbers as the library tells them: some of them say that there is none.

use nvml_wrapper::enums::device::SampleValue;

pub(super) fn whole(value: SampleValue) -> Option<u64> {
    match value {
        SampleValue::U32(n) => Some(n).filter(|n| *n != u32::MAX).map(u64::from),
        SampleValue::U64(n) => sane(n),
        SampleValue::I64(n) => u64::try_from(n).ok(),
        SampleValue::F64(_) => None,
    }
}

/// The highest number there is says that there is none.
pub(super) fn sane(n: u64) -> Option<u64> {
    Some(n).filter(|n| *n != u64::MAX)
}

/// Of a percentage, which some drivers overdraw by a little.
pub(super) fn share_of(percent: u32) -> Option<f64> {
    Some(percent).filter(|n| *n != u32::MAX).map(|n| f64::from(n.min(100)) / 100.0)
}

pub(super) fn hertz(megahertz: Option<u64>) -> Option<u64> {
    megahertz.map(|n| n.saturating_mul(1_000_000))
}
