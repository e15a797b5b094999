//! `/proc/PID/io`: I/O of one process and of the descendants that it waited for (CONFIG_TASK_IO_ACCOUNTING). Units:
//! bytes.

use crate::kernel::error::Parsed;
use crate::kernel::text::pairs;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PidIo {
    /// Read from block devices; reads from the page cache are not in it.
    pub read_bytes: Option<u64>,
    /// Pages that the process made dirty, counted before the kernel writes them.
    pub written_bytes: Option<u64>,
}

/// Source: proc(5).
pub fn parse(bytes: &[u8]) -> Parsed<PidIo> {
    let mut io = PidIo::default();
    let fields = &mut [("read_bytes:", &mut io.read_bytes), ("write_bytes:", &mut io.written_bytes)];
    let error = pairs("io", bytes, fields);
    (io, error)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bytes_of_devices_are_read_and_those_of_system_calls_are_not() {
        let text = b"rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\ncancelled_write_bytes: 7\n";
        assert_eq!(parse(text), (PidIo { read_bytes: Some(5), written_bytes: Some(6) }, None));
    }

    #[test]
    fn a_bad_line_costs_its_own_value_only() {
        let (io, error) = parse(b"read_bytes: x\nwrite_bytes: 6\n");
        assert_eq!((io.read_bytes, io.written_bytes), (None, Some(6)));
        assert!(error.is_some());
    }

    proptest! {
        #[test]
        fn no_input_panics(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
