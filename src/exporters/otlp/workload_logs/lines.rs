//! Output of a task in lines. Pure: the bytes are the task's own and may be anything.

/// Longest line of a record, in bytes of the output. Longer lines are split: collectors limit the size of a record.
pub(super) const LONGEST: usize = 32 << 10;

/// One record of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OutputLine {
    pub text: String,
    /// It was split here, or has no line end.
    pub is_partial: bool,
    /// Bytes of the output that it takes, with its line end.
    pub bytes: usize,
}

/// The first line of `bytes`. `None`: its end is not there yet. `is_closed`: nothing will follow these bytes.
pub(super) fn first_line(bytes: &[u8], is_closed: bool) -> Option<OutputLine> {
    let within = &bytes[..bytes.len().min(LONGEST + 1)];
    if let Some(end) = within.iter().position(|byte| *byte == b'\n') {
        return Some(OutputLine { text: clean(&bytes[..end]), is_partial: false, bytes: end + 1 });
    }
    let length = match bytes.len() {
        0 => return None,
        length if length > LONGEST => boundary(&bytes[..LONGEST]),
        length if is_closed => length,
        _ => return None,
    };
    Some(OutputLine { text: clean(&bytes[..length]), is_partial: true, bytes: length })
}

/// The length without an incomplete character at the end. A character has at most four bytes.
fn boundary(bytes: &[u8]) -> usize {
    let is_start = |at: &usize| bytes[*at] & 0xC0 != 0x80;
    let start = (bytes.len().saturating_sub(4)..bytes.len()).rev().find(is_start);
    match start.map(|at| (at, std::str::from_utf8(&bytes[at..]))) {
        Some((at, Err(error))) if error.error_len().is_none() && at > 0 => at,
        _ => bytes.len(),
    }
}

/// UTF-8 without NUL, which some stores refuse. Anything else stays as the task wrote it.
fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    if text.contains('\0') { text.replace('\0', "\u{FFFD}") } else { text.into_owned() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(mut bytes: &[u8], is_closed: bool) -> Vec<OutputLine> {
        let mut lines = Vec::new();
        while let Some(line) = first_line(bytes, is_closed) {
            bytes = &bytes[line.bytes..];
            lines.push(line);
        }
        lines
    }

    fn texts(bytes: &[u8], is_closed: bool) -> Vec<String> {
        all(bytes, is_closed).into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn output_is_cut_at_line_ends_and_an_open_line_waits_for_its_end() {
        assert_eq!(texts(b"one\n\ntwo\nthr", false), ["one", "", "two"]);
        assert_eq!(texts(b"one\n\ntwo\nthr", true), ["one", "", "two", "thr"]);
        assert!(all(b"thr", true)[0].is_partial && !all(b"thr\n", true)[0].is_partial);
        assert!(all(b"", true).is_empty());
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(texts(b"a\xFFb\0c\x1b[2J\n", false), ["a\u{FFFD}b\u{FFFD}c\u{1b}[2J"]);
    }

    #[test]
    fn long_line_is_split_between_characters() {
        let exact = format!("{}\n", "x".repeat(LONGEST));
        assert_eq!(all(exact.as_bytes(), false).len(), 1);
        let long = format!("{}é{}\n", "x".repeat(LONGEST - 1), "y".repeat(10));
        let lines = all(long.as_bytes(), false);
        assert_eq!(lines.iter().map(|line| line.is_partial).collect::<Vec<_>>(), [true, false]);
        assert_eq!(lines[1].text, format!("é{}", "y".repeat(10)));
        let binary = vec![0x80; LONGEST + 7];
        assert_eq!(all(&binary, true).iter().map(|line| line.bytes).sum::<usize>(), binary.len());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever a task writes: each byte is in one line, and no line is longer than it may be.
        #[test]
        fn every_byte_is_in_one_line(
            bytes in prop::collection::vec(prop_oneof![3 => any::<u8>(), 1 => Just(b'\n'), 2 => Just(0xC3)], 0..400),
            repeat in 1_usize..400,
        ) {
            let bytes = bytes.repeat(repeat);
            let lines = all(&bytes, true);
            prop_assert_eq!(lines.iter().map(|line| line.bytes).sum::<usize>(), bytes.len());
            prop_assert!(lines.iter().all(|line| line.bytes <= LONGEST + 1 && line.text.len() <= 3 * LONGEST));
            prop_assert!(lines.iter().all(|line| !line.text.contains(['\n', '\0'])));
        }
    }
}
