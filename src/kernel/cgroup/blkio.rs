//! `blkio.throttle.io_service_bytes_recursive` and `io_serviced_recursive`: bytes and operations, summed over devices.
//!
//! Source: v1 only; lines like `8:0 Read 4096`, then `Total 4096`.

use crate::kernel::error::{ParseError, Parsed};
use crate::kernel::text::{device, digits, is_device, lines, trim, unknown, words};

/// Sums over all devices. A value with an unparsable line is absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Blkio {
    pub read: Option<u64>,
    pub write: Option<u64>,
    /// Since 4.20.
    pub discard: Option<u64>,
}

pub fn parse(file: &'static str, bytes: &[u8]) -> Parsed<Blkio> {
    parse_each(file, bytes, |_, _, _| {})
}

/// As [`parse`]. `each` gets what every device read (`false`) and wrote (`true`).
pub fn parse_each(file: &'static str, bytes: &[u8], mut each: impl FnMut((u64, u64), bool, u64)) -> Parsed<Blkio> {
    let mut sums = Blkio { read: Some(0), write: Some(0), discard: Some(0) };
    let (mut devices, mut discards, mut total) = (false, false, false);
    let mut error = None;
    for (number, line) in lines(bytes) {
        let mut parts = words(line);
        // Lines without a device number belong to no device.
        let first = parts.next();
        let Some(device) = first.and_then(device) else {
            total |= first == Some(b"Total");
            continue;
        };
        devices = true;
        let (slot, is_write) = match parts.next() {
            Some(b"Read") => (&mut sums.read, Some(false)),
            Some(b"Write") => (&mut sums.write, Some(true)),
            Some(b"Discard") => {
                discards = true;
                (&mut sums.discard, None)
            }
            // Sync, Async and the Total of each device count the same bytes again.
            _ => continue,
        };
        let value = parts.next().and_then(digits);
        if value.is_none() {
            error.get_or_insert_with(|| {
                ParseError::new(file, number, "a device, an operation and a number", trim(line))
            });
        }
        if let (Some(is_write), Some(n)) = (is_write, value) {
            each(device, is_write, n);
        }
        *slot = slot.zip(value).map(|(sum, n)| sum.saturating_add(n));
    }
    if devices && !discards {
        sums.discard = None;
    }
    match unknown(file, bytes, devices || total, "a device, an operation and a number") {
        None => (sums, error),
        error => (Blkio::default(), error),
    }
}

/// Whether the file has a line for any device.
pub fn names_a_device(bytes: &[u8]) -> bool {
    lines(bytes).any(|(_, line)| words(line).next().is_some_and(is_device))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn devices_are_summed_and_nothing_counts_twice() {
        let text = b"8:0 Read 1\n8:0 Write 2\n8:0 Sync 3\n8:0 Async 0\n8:0 Discard 4\n8:0 Total 7\n\
            8:16 Read 10\n8:16 Write 20\n8:16 Sync 0\n8:16 Async 30\n8:16 Discard 0\n8:16 Total 30\nTotal 37\n";
        assert_eq!(parse("f", text), (Blkio { read: Some(11), write: Some(22), discard: Some(4) }, None));
    }

    #[test]
    fn a_file_without_devices_is_zero_and_an_old_kernel_has_no_discards() {
        assert_eq!(parse("f", b"Total 0\n").0, Blkio { read: Some(0), write: Some(0), discard: Some(0) });
        assert!(!names_a_device(b"Total 0\n") && !names_a_device(b"") && names_a_device(b"8:0 Read 0\nTotal 0\n"));
        assert_eq!(parse("f", b"8:0 Read 1\n8:0 Write 2\nTotal 3\n").0.discard, None);
    }

    #[test]
    fn a_truncated_line_is_named() {
        let (sums, error) = parse("blkio", b"8:0 Read 1\n8:0 Write");
        assert_eq!((sums.read, sums.write), (Some(1), None));
        assert_eq!(error.unwrap().line, 2);
        let (sums, error) = parse("blkio", b"8:0 Read 1\n8:0 Write 2x\n");
        assert_eq!((sums.read, sums.write, error.is_some()), (Some(1), None, true));
    }

    proptest! {
        #[test]
        fn any_u64_survives(n: u64) {
            prop_assert_eq!(parse("f", format!("8:0 Read {n}\n").as_bytes()).0.read, Some(n));
        }
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = parse("f", &bytes);
        }
    }
}
