//! Lists of CPUs: `0-3,8,10-11`.
//!
//! Source: v2 `cpuset.cpus.effective`, v1 `cpuset.effective_cpus`; also `/sys/devices/system/cpu/online`.

use crate::kernel::error::ParseError;
use crate::kernel::text::{digits, trim};

/// Number of CPUs in a list; 0 for an empty list.
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

/// More CPUs than any kernel supports.
const MOST: usize = 1 << 16;

/// The CPUs in a list. Errors: invalid, or more CPUs than any kernel supports.
pub fn list(file: &'static str, bytes: &[u8]) -> Result<Vec<u32>, ParseError> {
    let text = trim(bytes);
    let bad = || ParseError::new(file, 1, "a list of CPUs", text);
    if usize::try_from(count(file, bytes)?).map_or(true, |many| many > MOST) {
        return Err(bad());
    }
    let mut all = Vec::new();
    for part in text.split(|b| *b == b',').filter(|part| !part.is_empty()) {
        let mut ends = part.splitn(2, |b| *b == b'-');
        let number = |end: Option<&[u8]>| end.and_then(digits).and_then(|n| u32::try_from(n).ok());
        let first = number(ends.next()).ok_or_else(bad)?;
        let last = ends.next().map_or(Some(first), |end| number(Some(end))).ok_or_else(bad)?;
        all.extend(first..=last);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_and_single_cpus_are_counted() {
        assert_eq!(count("f", b"0-3,8,10-11\n"), Ok(7));
        assert_eq!(count("f", b"\n"), Ok(0));
        assert_eq!(list("f", b"0-3,8,10-11\n").unwrap(), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(list("f", b"\n").unwrap(), [0_u32; 0]);
        assert!(list("f", b"0-99999999\n").is_err());
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
            let (count, list) = (count("f", &bytes), list("f", &bytes));
            if let Ok(list) = list {
                prop_assert_eq!(count, Ok(list.len() as u64));
            }
        }
    }
}
