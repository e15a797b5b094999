//! `io.stat`: bytes and operations of a cgroup, summed over devices.
//!
//! Source: v2 only, `blkcg_print_one_stat` in block/blk-cgroup.c; one line per used device: `8:0 rbytes=1 wbytes=2
//! rios=3 wios=4 dbytes=5 dios=6`.

use crate::kernel::error::{ParseError, Parsed};
use crate::kernel::text::{device, digits, lines, unknown, words};
use crate::model::disk_io::DiskIo;

/// Sums over all devices. An empty file means 0. If a number cannot be parsed, its sum is absent, because it would be
/// too low. All sums are absent if the file has lines, but none of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Io {
    pub read_bytes: Option<u64>,
    pub written_bytes: Option<u64>,
    pub discarded_bytes: Option<u64>,
    pub reads: Option<u64>,
    pub writes: Option<u64>,
}

impl Io {
    const ZERO: Io =
        Io { read_bytes: Some(0), written_bytes: Some(0), discarded_bytes: Some(0), reads: Some(0), writes: Some(0) };
}

pub fn parse(bytes: &[u8]) -> Parsed<Io> {
    parse_each(bytes, |_, _, _| {})
}

/// As [`parse`]. `each` gets every number of each device that [`DiskIo`] has, with its index there.
pub fn parse_each(bytes: &[u8], mut each: impl FnMut((u64, u64), usize, u64)) -> Parsed<Io> {
    let mut io = Io::ZERO;
    let (mut error, mut devices, mut rest) = (None, false, false);
    for (number, line) in lines(bytes) {
        let mut parts = words(line);
        // Lines without a device number: a path of a multipath device (NVMe), or a device without a name.
        let Some(device) = parts.next().and_then(device) else {
            rest |= parts.any(|part| part.contains(&b'='));
            continue;
        };
        devices = true;
        for part in parts {
            let mut pair = part.splitn(2, |b| *b == b'=');
            let (key, value) = (pair.next(), pair.next().and_then(digits));
            let (slot, index) = match key {
                Some(b"rbytes") => (&mut io.read_bytes, Some(DiskIo::READ_BYTES)),
                Some(b"wbytes") => (&mut io.written_bytes, Some(DiskIo::WRITTEN_BYTES)),
                Some(b"dbytes") => (&mut io.discarded_bytes, None),
                Some(b"rios") => (&mut io.reads, Some(DiskIo::READS)),
                Some(b"wios") => (&mut io.writes, Some(DiskIo::WRITES)),
                // Other keys belong to io.cost, io.latency and future features.
                _ => continue,
            };
            if let (Some(index), Some(n)) = (index, value) {
                each(device, index, n);
            }
            if value.is_none() {
                error.get_or_insert_with(|| ParseError::new("io.stat", number, "key=number", part));
            }
            *slot = slot.zip(value).map(|(sum, n)| sum.saturating_add(n));
        }
    }
    if !devices && lines(bytes).next().is_some() {
        return (Io::default(), unknown("io.stat", bytes, rest, "a device and its counts"));
    }
    (io, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn devices_are_summed_and_an_empty_file_is_zero() {
        let (io, error) = parse(b"8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n254:0 rbytes=10 wbytes=0 rios=1 wios=0 dbytes=0 dios=0 cost.usage=9\n");
        assert_eq!(error, None);
        assert_eq!((io.read_bytes, io.written_bytes, io.discarded_bytes), (Some(11), Some(2), Some(5)));
        assert_eq!((io.reads, io.writes), (Some(4), Some(4)));
        assert_eq!(parse(b""), (Io::ZERO, None));
    }

    #[test]
    fn each_device_has_its_own_numbers() {
        let mut seen = Vec::new();
        let _ = parse_each(
            b"8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5\n254:16 rios=7\nodd rbytes=9\n",
            |of, index, n| {
                seen.push((of, index, n));
            },
        );
        let first = [1, 2, 3, 4].into_iter().enumerate().map(|(index, n)| ((8, 0), index, n));
        assert_eq!(seen, first.chain([((254, 16), DiskIo::READS, 7)]).collect::<Vec<_>>());
    }

    #[test]
    fn a_row_without_a_device_number_costs_only_itself() {
        let (io, error) = parse(b"(unknown) rbytes=9\n8:0 rbytes=1 wbytes=2\nnvme0c0n1 rbytes=7 wbytes=7\n");
        assert_eq!((io.read_bytes, io.written_bytes, error), (Some(1), Some(2), None));
        assert_eq!(parse(b"(unknown) rbytes=9\n"), (Io::default(), None));
        assert!(parse(b"garbage\n").1.is_some());
    }

    #[test]
    fn a_sum_that_lacks_a_device_is_absent() {
        let (io, error) = parse(b"8:0 rbytes=1 wbytes=2\n8:16 rbytes=x wbytes=3\n");
        assert_eq!((io.read_bytes, io.written_bytes), (None, Some(5)));
        assert_eq!(error.unwrap().to_string(), r#"io.stat, line 2: expected key=number, found "rbytes=x""#);
    }

    proptest! {
        #[test]
        fn any_u64_survives(n: u64) {
            prop_assert_eq!(parse(format!("8:0 rbytes={n}\n").as_bytes()).0.read_bytes, Some(n));
        }
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
