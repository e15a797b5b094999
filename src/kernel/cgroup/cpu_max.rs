//! CPU bandwidth: quota and period.
//!
//! Source: v2 `cpu.max` (`max 100000`), v1 `cpu.cfs_quota_us` (-1: none) beside `cpu.cfs_period_us`. Units: µs.

use crate::kernel::error::ParseError;
use crate::kernel::text::{digits, trim, words};
use crate::model::units::Limit;

/// `cpu.max`: quota and period.
pub fn v2(bytes: &[u8]) -> Result<(Limit, u64), ParseError> {
    let mut parts = words(trim(bytes));
    let quota = parts.next().and_then(|w| if w == b"max" { Some(Limit::Max) } else { digits(w).map(Limit::At) });
    match (quota, parts.next().and_then(digits), parts.next()) {
        (Some(quota), Some(period), None) => Ok((quota, period)),
        _ => Err(ParseError::new("cpu.max", 1, "a quota and a period", trim(bytes))),
    }
}

/// `cpu.cfs_quota_us`.
pub fn v1_quota(bytes: &[u8]) -> Result<Limit, ParseError> {
    match trim(bytes) {
        b"-1" => Ok(Limit::Max),
        text => {
            digits(text).map(Limit::At).ok_or_else(|| ParseError::new("cpu.cfs_quota_us", 1, "a number or -1", text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_quota_is_no_limit() {
        assert_eq!(v2(b"max 100000\n"), Ok((Limit::Max, 100_000)));
        assert_eq!(v1_quota(b"-1\n"), Ok(Limit::Max));
        assert!(v1_quota(b"-2\n").is_err());
        assert!(v2(b"100000\n").is_err());
    }

    proptest! {
        #[test]
        fn any_u64_survives(quota: u64, period: u64) {
            prop_assert_eq!(v2(format!("{quota} {period}\n").as_bytes()), Ok((Limit::At(quota), period)));
            prop_assert_eq!(v1_quota(format!("{quota}\n").as_bytes()), Ok(Limit::At(quota)));
        }
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = (v2(&bytes), v1_quota(&bytes));
        }
    }
}
