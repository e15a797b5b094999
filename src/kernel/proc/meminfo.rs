//! `/proc/meminfo`, reduced to what the host's families need. Units: bytes (the kernel prints KiB).

use crate::kernel::error::{ParseError, Parsed};
use crate::kernel::text::{digits, lines, trim, words};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Meminfo {
    pub total: Option<u64>,
    /// Since 3.14.
    pub available: Option<u64>,
    pub swap_total: Option<u64>,
    pub swap_free: Option<u64>,
}

pub fn parse(bytes: &[u8]) -> Parsed<Meminfo> {
    let mut info = Meminfo::default();
    let mut error = None;
    for (number, line) in lines(bytes) {
        let mut parts = words(line);
        let slot = match parts.next() {
            Some(b"MemTotal:") => &mut info.total,
            Some(b"MemAvailable:") => &mut info.available,
            Some(b"SwapTotal:") => &mut info.swap_total,
            Some(b"SwapFree:") => &mut info.swap_free,
            _ => continue,
        };
        let value = match (parts.next().and_then(digits), parts.next()) {
            (Some(kib), Some(b"kB")) => kib.checked_mul(1024),
            _ => None,
        };
        if value.is_none() {
            error.get_or_insert_with(|| ParseError::new("meminfo", number, "a number of kB", trim(line)));
        }
        *slot = value;
    }
    (info, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_bad_line_costs_its_own_value_only() {
        let (info, error) = parse(b"MemTotal: 1 kB\nMemFree: ?\nMemAvailable: x kB\nSwapTotal: 0 kB\n");
        assert_eq!(info, Meminfo { total: Some(1024), available: None, swap_total: Some(0), swap_free: None });
        assert_eq!(
            error.unwrap().to_string(),
            r#"meminfo, line 3: expected a number of kB, found "MemAvailable: x kB""#
        );
    }

    proptest! {
        #[test]
        fn any_size_survives(kib in 0..=u64::MAX / 1024) {
            prop_assert_eq!(parse(format!("MemTotal: {kib} kB\n").as_bytes()).0.total, Some(kib * 1024));
        }
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
