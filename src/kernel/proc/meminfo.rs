//! `/proc/meminfo`, as far as the host metrics need it. Units: bytes (the kernel prints KiB).

use crate::kernel::error::{ParseError, Parsed};
use crate::kernel::text::{digits, lines, trim, words};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Meminfo {
    pub total: Option<u64>,
    /// Since 3.14.
    pub available: Option<u64>,
    pub free: Option<u64>,
    pub buffers: Option<u64>,
    /// Page cache, including `shmem`.
    pub cached: Option<u64>,
    /// Anonymous memory of processes. Since 2.6.18.
    pub anonymous: Option<u64>,
    /// tmpfs and shared memory. Since 2.6.32.
    pub shared: Option<u64>,
    /// Since 2.6.19, like the next one.
    pub slab_reclaimable: Option<u64>,
    pub slab_unreclaimable: Option<u64>,
    pub dirty: Option<u64>,
    pub writeback: Option<u64>,
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
            Some(b"MemFree:") => &mut info.free,
            Some(b"Buffers:") => &mut info.buffers,
            Some(b"Cached:") => &mut info.cached,
            Some(b"AnonPages:") => &mut info.anonymous,
            Some(b"Shmem:") => &mut info.shared,
            Some(b"SReclaimable:") => &mut info.slab_reclaimable,
            Some(b"SUnreclaim:") => &mut info.slab_unreclaimable,
            Some(b"Dirty:") => &mut info.dirty,
            Some(b"Writeback:") => &mut info.writeback,
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
        let (info, error) = parse(b"MemTotal: 1 kB\nActive: ?\nMemAvailable: x kB\nSwapTotal: 0 kB\n");
        assert_eq!(info, Meminfo { total: Some(1024), swap_total: Some(0), ..Meminfo::default() });
        assert_eq!(
            error.unwrap().to_string(),
            r#"meminfo, line 3: expected a number of kB, found "MemAvailable: x kB""#
        );
    }

    #[test]
    fn each_field_has_its_own_line_and_none_is_taken_for_another() {
        let lines = "MemTotal: 1 kB\nMemFree: 2 kB\nMemAvailable: 3 kB\nBuffers: 4 kB\nCached: 5 kB\nSwapCached: 99 kB\n\
            SwapTotal: 6 kB\nSwapFree: 7 kB\nDirty: 8 kB\nWriteback: 9 kB\nAnonPages: 10 kB\nShmem: 11 kB\n\
            SReclaimable: 12 kB\nSUnreclaim: 13 kB\nWritebackTmp: 99 kB\nShmemHugePages: 99 kB\n";
        let kib = |n: u64| Some(n * 1024);
        let expected = Meminfo {
            total: kib(1),
            available: kib(3),
            free: kib(2),
            buffers: kib(4),
            cached: kib(5),
            anonymous: kib(10),
            shared: kib(11),
            slab_reclaimable: kib(12),
            slab_unreclaimable: kib(13),
            dirty: kib(8),
            writeback: kib(9),
            swap_total: kib(6),
            swap_free: kib(7),
        };
        assert_eq!(parse(lines.as_bytes()), (expected, None));
        assert_eq!(parse(b""), (Meminfo::default(), None));
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
