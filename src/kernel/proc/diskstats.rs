//! `/proc/diskstats`: I/O of each block device, including partitions. Units: operations, sectors of 512 bytes,
//! milliseconds.

use crate::kernel::error::{ParseError, Parsed};
use crate::kernel::text::{digits, lines, trim, words};

/// The counters of one block device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskCounters<'a> {
    /// Name below `/dev`, including any `/`.
    pub name: &'a str,
    pub read: DiskOperations,
    pub written: DiskOperations,
    /// Since 4.18.
    pub discarded: Option<DiskOperations>,
    pub flushed: Option<DiskFlushes>,
    /// Absent when: the kernel decremented the count below 0, which some drivers cause.
    pub in_flight: Option<u64>,
    /// Time with at least one operation in progress.
    pub busy_ms: u64,
    /// Sum of the time of all operations: two concurrent operations count twice.
    pub queue_ms: u64,
}

/// Counters of one kind of operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskOperations {
    pub operations: u64,
    pub sectors: u64,
    pub ms: u64,
}

/// Counters of flush requests. Since 5.5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskFlushes {
    pub operations: u64,
    pub ms: u64,
}

/// Source: `diskstats_show` in block/genhd.c; Documentation/admin-guide/iostats.rst. Major, minor, name; then 11
/// numbers, 15 since 4.18, 17 since 5.5, possibly more in newer kernels. Before 2.6.25 partitions had 4 numbers; such
/// lines are ignored.
pub fn parse(bytes: &[u8]) -> Parsed<Vec<DiskCounters<'_>>> {
    let mut disks = Vec::new();
    let mut error = None;
    for (number, line) in lines(bytes) {
        match disk(line) {
            Some(disk) => disks.push(disk),
            // A line without a device number is no disk.
            None if words(line).next().and_then(digits).is_none() => {}
            None => {
                error.get_or_insert_with(|| ParseError::new("diskstats", number, "a disk and its numbers", trim(line)));
            }
        }
    }
    (disks, error)
}

fn disk(line: &[u8]) -> Option<DiskCounters<'_>> {
    let mut words = words(line);
    let (_major, _minor) = (digits(words.next()?)?, digits(words.next()?)?);
    let name = std::str::from_utf8(words.next()?).ok()?;
    let mut next = || words.next().map(digits);
    // Merged requests are no operations of the device.
    let mut operations_done = || {
        let [operations, _merged, sectors, ms] = [next()?, next()?, next()?, next()?];
        Some(DiskOperations { operations: operations?, sectors: sectors?, ms: ms? })
    };
    let (read, written) = (operations_done()?, operations_done()?);
    let mut number = || words.next().and_then(digits);
    let (in_flight, busy_ms, queue_ms) = (number(), number()?, number()?);
    let rest: Vec<u64> = words.map_while(digits).collect();
    let discarded = match rest[..] {
        [operations, _merged, sectors, ms, ..] => Some(DiskOperations { operations, sectors, ms }),
        _ => None,
    };
    let flushed = match rest[..] {
        [_, _, _, _, operations, ms, ..] => Some(DiskFlushes { operations, ms }),
        _ => None,
    };
    Some(DiskCounters { name, read, written, discarded, flushed, in_flight, busy_ms, queue_ms })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OLD: &str = "8 0 sda 1 2 3 4 5 6 7 8 9 10 11";

    #[test]
    fn each_kernel_has_the_numbers_that_it_prints() {
        let discards = format!("{OLD} 12 13 14 15");
        let flushes = format!("{discards} 16 17");
        let text = format!(" {OLD}\n {discards}\n {flushes}\n {flushes} 18 19\n");
        let (disks, error) = parse(text.as_bytes());
        assert_eq!(error, None);
        let first = &disks[0];
        assert_eq!((first.name, first.in_flight, first.busy_ms, first.queue_ms), ("sda", Some(9), 10, 11));
        assert_eq!(first.read, DiskOperations { operations: 1, sectors: 3, ms: 4 });
        assert_eq!(first.written, DiskOperations { operations: 5, sectors: 7, ms: 8 });
        let discarded = Some(DiskOperations { operations: 12, sectors: 14, ms: 15 });
        assert_eq!(disks.iter().map(|d| d.discarded).collect::<Vec<_>>(), [None, discarded, discarded, discarded]);
        let flushed = Some(DiskFlushes { operations: 16, ms: 17 });
        assert_eq!(disks.iter().map(|d| d.flushed).collect::<Vec<_>>(), [None, None, flushed, flushed]);
    }

    #[test]
    fn a_bad_line_costs_its_own_disk_only() {
        let text = format!("8 1 sda1 1 2 3 4\n{OLD}\n8 0 sdb 1 2 x\n");
        let (disks, error) = parse(text.as_bytes());
        assert_eq!(disks.iter().map(|d| d.name).collect::<Vec<_>>(), ["sda"]);
        assert_eq!(
            error.unwrap().to_string(),
            r#"diskstats, line 1: expected a disk and its numbers, found "8 1 sda1 1 2 3 4""#
        );
        let (disks, error) = parse(b"8 0 sda 1 2 3 4 5 6 7 8 -3 10 11 12 13 14 15 x\n");
        assert_eq!((disks[0].in_flight, disks[0].busy_ms, error), (None, 10, None));
        assert_eq!((disks[0].discarded.map(|operations_done| operations_done.ms), disks[0].flushed), (Some(15), None));
    }

    #[test]
    fn an_empty_file_has_no_disk() {
        assert_eq!(parse(b""), (Vec::new(), None));
    }

    proptest! {
        #[test]
        fn any_numbers_survive(n: u64) {
            let text = format!("259 0 nvme0n1 {n} 0 {n} {n} {n} 0 {n} {n} {n} {n} {n}\n");
            let all = DiskOperations { operations: n, sectors: n, ms: n };
            let (disks, _) = parse(text.as_bytes());
            prop_assert_eq!((disks[0].read, disks[0].written, disks[0].in_flight), (all, all, Some(n)));
        }
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
        #[test]
        fn no_text_in_place_of_a_field_panics(field in "\\PC{0,12}", at in 0usize..14) {
            let mut fields: Vec<&str> = OLD.split(' ').collect();
            fields[at] = &field;
            let _ = parse(fields.join(" ").as_bytes());
        }
    }
}
