//! Lists of CPUs: `0-3,8,10-11`.
//!
//! Source: v2 `cpuset.cpus.effective`, v1 `cpuset.effective_cpus`; also `/sys/devices/system/cpu/online`.

use crate::kernel::error::ParseError;
use crate::kernel::text::{digits, trim};

/// How many CPUs a list names; an empty list names none.
pub fn count(file: &'static str, bytes: &[u8]) -> Result<u64, ParseError> {
    let text = trim(bytes);
    if text.is_empty() {
        return Ok(0);
    }
    let bad = || ParseError::new(file, 1, "a list of CPUs", text);
    text.split(|b| *b == b',').try_fold(0u64, |sum, part| {
        let mut ends = part.splitn(2, |b| *b == b'-');
        let first = ends.next().and_then(digits).ok_or_else(bad)?;
        let last = ends.next().map_or(Some(first), digits).ok_or_else(bad)?;
        let many = last.checked_sub(first).and_then(|n| n.checked_add(1)).ok_or_else(bad)?;
        sum.checked_add(many).ok_or_else(bad)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_and_single_cpus_are_counted() {
        assert_eq!(count("f", b"0-3,8,10-11\n"), Ok(7));
        assert_eq!(count("f", b"\n"), Ok(0));
        assert!(count("f", b"3-1\n").is_err());
        assert!(count("f", b"0-18446744073709551615\n").is_err());
    }

    proptest! {
        #[test]
        fn a_range_of_any_width_survives(first in 0..u64::MAX / 2, more in 0..u64::MAX / 2) {
            prop_assert_eq!(count("f", format!("{first}-{}", first + more).as_bytes()), Ok(more + 1));
        }
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = count("f", &bytes);
        }
    }
}
