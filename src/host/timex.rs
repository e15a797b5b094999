//! How accurate the kernel takes its wall clock to be. Source: adjtimex(2), which any process may read.

#![allow(unsafe_code)]

use std::io;

use crate::model::units::Nanos;

/// State of the kernel's clock discipline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClockAccuracy {
    /// A time service disciplines the clock. The kernel clears it when the maximum error reaches 16 s.
    pub is_synchronized: bool,
    /// Seconds between the reference and this clock, as the kernel's loop has it; negative: the clock is ahead.
    pub offset_seconds: f64,
    /// Grows by 500 ppm until the time service corrects the clock again.
    pub max_error: Nanos,
}

/// Reads the state; changes nothing.
///
/// Errors: EPERM where a seccomp filter refuses the call.
pub fn clock_accuracy() -> io::Result<ClockAccuracy> {
    // SAFETY: `timex` has plain numbers, and 0 is a valid value of each; `modes` 0 asks the kernel to read only.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live `timex` that nothing else uses.
    let state = unsafe { libc::adjtimex(&raw mut timex) };
    if state < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(accuracy(timex.status, timex.offset, timex.maxerror))
}

/// `offset` is in ns or µs by [`libc::STA_NANO`], `max_error` always in µs.
fn accuracy(status: i32, offset: i64, max_error: i64) -> ClockAccuracy {
    let per_second = if status & libc::STA_NANO == 0 { 1e6 } else { 1e9 };
    let offset_seconds = offset as f64 / per_second;
    let max_error = Nanos(u64::try_from(max_error).unwrap_or(0).saturating_mul(1_000));
    ClockAccuracy { is_synchronized: status & libc::STA_UNSYNC == 0, offset_seconds, max_error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_seconds_in_both_units_of_the_kernel() {
        let nanos = accuracy(libc::STA_NANO, -50_000_000, 16_000_000);
        assert_eq!((nanos.is_synchronized, nanos.offset_seconds), (true, -0.05));
        assert_eq!(nanos.max_error, Nanos::from_secs(16));
        let micros = accuracy(libc::STA_UNSYNC, 250_000, -1);
        assert_eq!((micros.is_synchronized, micros.offset_seconds, micros.max_error), (false, 0.25, Nanos::ZERO));
    }

    #[test]
    fn clock_accuracy_is_read_from_this_kernel() {
        // A sandbox may refuse the call.
        if let Ok(accuracy) = clock_accuracy() {
            assert!(accuracy.offset_seconds.abs() <= 0.5, "the kernel limits it: {accuracy:?}");
        }
    }
}
