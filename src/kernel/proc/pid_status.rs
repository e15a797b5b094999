//! `/proc/PID/status`: user and memory of one process. Units: bytes (the kernel prints KiB).

use crate::kernel::error::{ParseError, Parsed};
use crate::kernel::text::{digits, lines, trim, words};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PidStatus {
    /// The effective one.
    pub uid: Option<u32>,
    /// Absent of kernel threads and zombies.
    pub rss_bytes: Option<u64>,
    /// The highest resident set of its life.
    pub peak_rss_bytes: Option<u64>,
    pub threads: Option<u64>,
}

/// Source: proc(5).
pub fn parse(bytes: &[u8]) -> Parsed<PidStatus> {
    let (mut found, mut error) = (PidStatus::default(), None);
    for (number, line) in lines(bytes) {
        let mut parts = words(line);
        let key = parts.next();
        let kib = |value: Option<u64>| value.and_then(|n| n.checked_mul(1024));
        let mut value = || parts.next().and_then(digits);
        let is_read = match key {
            Some(b"Uid:") => {
                let _real = value();
                found.uid = value().and_then(|uid| u32::try_from(uid).ok());
                found.uid.is_some()
            }
            Some(b"VmRSS:") => {
                found.rss_bytes = kib(value());
                found.rss_bytes.is_some()
            }
            Some(b"VmHWM:") => {
                found.peak_rss_bytes = kib(value());
                found.peak_rss_bytes.is_some()
            }
            Some(b"Threads:") => {
                found.threads = value();
                found.threads.is_some()
            }
            _ => true,
        };
        if !is_read {
            error.get_or_insert_with(|| ParseError::new("status", number, "a number", trim(line)));
        }
    }
    (found, error)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn status_of_a_process_and_of_a_kernel_thread() {
        let text = b"Name:\tsh\nUid:\t1000\t65534\t0\t0\nVmHWM:\t    900 kB\nVmRSS:\t    700 kB\nThreads:\t3\n";
        let all = PidStatus {
            uid: Some(65_534),
            rss_bytes: Some(700 << 10),
            peak_rss_bytes: Some(900 << 10),
            threads: Some(3),
        };
        assert_eq!(parse(text), (all, None));
        let kernel = parse(b"Name:\tkthreadd\nUid:\t0\t0\t0\t0\nThreads:\t1\n").0;
        assert_eq!((kernel.rss_bytes, kernel.threads), (None, Some(1)));
    }

    #[test]
    fn a_bad_line_costs_its_own_value_only() {
        let (found, error) = parse(b"VmRSS:\tx kB\nThreads:\t3\n");
        assert_eq!((found.rss_bytes, found.threads), (None, Some(3)));
        assert_eq!(error.unwrap().to_string(), "status, line 1: expected a number, found \"VmRSS:\\tx kB\"");
    }

    proptest! {
        #[test]
        fn no_input_panics(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
