//! `cgroup.procs`, and the `children` file of a thread: process IDs.
//!
//! Source: v1 and v2 alike, one id per line; `/proc/PID/task/TID/children` (3.5) has them on one line.

use crate::kernel::error::{ParseError, Parsed};
use crate::kernel::text::digits;

/// Appends the IDs. A process of another PID namespace appears as 0; it is counted but cannot be looked up.
pub fn pids(file: &'static str, bytes: &[u8], out: &mut Vec<u32>) -> Parsed<()> {
    let mut error = None;
    let mut line = 1;
    for word in bytes.split_inclusive(|b| b.is_ascii_whitespace()) {
        let (number, end) = match word.split_last() {
            Some((last, rest)) if last.is_ascii_whitespace() => (rest, Some(*last)),
            _ => (word, None),
        };
        if !number.is_empty() {
            match digits(number).and_then(|n| u32::try_from(n).ok()) {
                Some(pid) => out.push(pid),
                None => {
                    error.get_or_insert_with(|| ParseError::new(file, line, "a process id", number));
                }
            }
        }
        line += usize::from(end == Some(b'\n'));
    }
    ((), error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_and_words_are_taken_alike_and_a_bad_one_is_named() {
        let mut pids_seen = Vec::new();
        let ((), error) = pids("cgroup.procs", b"1\n20\nx\n300", &mut pids_seen);
        assert_eq!(pids_seen, [1, 20, 300]);
        assert_eq!(error.unwrap().to_string(), r#"cgroup.procs, line 3: expected a process id, found "x""#);
        pids_seen.clear();
        assert_eq!(pids("children", b"7 8 9 ", &mut pids_seen), ((), None));
        assert_eq!(pids_seen, [7, 8, 9]);
    }

    proptest! {
        #[test]
        fn any_pid_survives(pid: u32) {
            let mut out = Vec::new();
            prop_assert_eq!(pids("f", format!("{pid}\n").as_bytes(), &mut out), ((), None));
            prop_assert_eq!(out, [pid]);
        }
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = pids("f", &bytes, &mut Vec::new());
        }
    }
}
