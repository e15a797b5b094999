//! Limits: a number, or none.
//!
//! Source: `memory.max`, `memory.high`, `memory.low`, `pids.max` (`max` for none); v1 `memory.limit_in_bytes`,
//! `memory.soft_limit_in_bytes`, which print a number near 2^63 for none.

use crate::kernel::error::ParseError;
use crate::kernel::text::{digits, trim};
use crate::model::units::Limit;

/// The maximum limit of v1 is the largest `long` rounded down to pages. With pages of up to 64 KiB it is never lower
/// than this; with 4 KiB pages it is 9223372036854771712.
const V1_UNLIMITED: u64 = (1 << 63) - (1 << 16);

/// `max` or a number.
pub fn parse(file: &'static str, bytes: &[u8]) -> Result<Limit, ParseError> {
    match trim(bytes) {
        b"max" => Ok(Limit::Max),
        text => digits(text).map(Limit::At).ok_or_else(|| ParseError::new(file, 1, "a number or max", text)),
    }
}

/// A v1 memory limit, where a large number means unlimited.
pub fn parse_v1(file: &'static str, bytes: &[u8]) -> Result<Limit, ParseError> {
    let text = trim(bytes);
    digits(text).map(v1).ok_or_else(|| ParseError::new(file, 1, "a number", text))
}

pub fn v1(bytes: u64) -> Limit {
    if bytes >= V1_UNLIMITED { Limit::Max } else { Limit::At(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn v1s_number_for_unlimited_is_no_limit() {
        assert_eq!(parse_v1("memory.limit_in_bytes", b"9223372036854771712\n"), Ok(Limit::Max));
        assert_eq!(parse_v1("memory.limit_in_bytes", b"9223372036854710272\n"), Ok(Limit::Max), "64 KiB pages");
        assert_eq!(parse_v1("memory.limit_in_bytes", b"67108864\n"), Ok(Limit::At(67_108_864)));
        assert_eq!(parse("memory.max", b"max\n"), Ok(Limit::Max));
    }

    #[test]
    fn minus_one_is_not_a_limit_of_v2() {
        let error = parse("pids.max", b"-1\n").unwrap_err();
        assert_eq!(error.to_string(), r#"pids.max, line 1: expected a number or max, found "-1""#);
    }

    proptest! {
        #[test]
        fn any_u64_survives(n: u64) {
            prop_assert_eq!(parse("memory.max", format!("{n}\n").as_bytes()), Ok(Limit::At(n)));
        }
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = (parse("memory.max", &bytes), parse_v1("memory.limit_in_bytes", &bytes));
        }
    }
}
