//! Numbers, lines and words from bytes: what the hot parsers are made of.

use super::error::ParseError;

/// A whole decimal `u64`: digits only, no sign, no space, nothing that does not fit.
pub fn digits(text: &[u8]) -> Option<u64> {
    // Any 19 digits fit, so only longer numbers pay for the overflow checks.
    if text.is_empty() || text.len() > 20 {
        return None;
    }
    let mut n: u64 = 0;
    for &b in text {
        let d = b.wrapping_sub(b'0');
        if d > 9 {
            return None;
        }
        n = n.checked_mul(10)?.checked_add(u64::from(d))?;
    }
    Some(n)
}

/// Without spaces, tabs and line ends on both sides.
pub fn trim(text: &[u8]) -> &[u8] {
    text.trim_ascii()
}

/// The lines that hold anything, with their number counted from 1.
pub fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    bytes.split(|b| *b == b'\n').enumerate().map(|(i, l)| (i + 1, l)).filter(|(_, l)| !trim(l).is_empty())
}

/// The words of a line: what stands between spaces and tabs.
pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|b| *b == b' ' || *b == b'\t').filter(|w| !w.is_empty())
}

/// A file that holds one number and a line end.
pub fn single(file: &'static str, bytes: &[u8]) -> Result<u64, ParseError> {
    let text = trim(bytes);
    digits(text).ok_or_else(|| ParseError::new(file, 1, "a number", text))
}

/// Calls `each` with every `key number` line of a flat keyed file; gives the first line that is none. The others count all
/// the same.
pub fn pairs<'a>(file: &'static str, bytes: &'a [u8], mut each: impl FnMut(&'a [u8], u64)) -> Option<ParseError> {
    let mut error = None;
    for (number, line) in lines(bytes) {
        let mut parts = words(line);
        match (parts.next(), parts.next().and_then(digits), parts.next()) {
            (Some(key), Some(value), None) => each(key, value),
            _ => {
                error.get_or_insert_with(|| ParseError::new(file, number, "a key and a number", trim(line)));
            }
        }
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_u64_comes_out_digit_for_digit(n: u64) {
            prop_assert_eq!(digits(n.to_string().as_bytes()), Some(n));
            prop_assert_eq!(single("f", format!("{n}\n").as_bytes()), Ok(n));
        }

        #[test]
        fn what_does_not_fit_is_refused_not_wrapped(n in u128::from(u64::MAX) + 1..) {
            prop_assert_eq!(digits(n.to_string().as_bytes()), None);
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = single("f", &bytes);
            let _ = pairs("f", &bytes, |_, _| {});
        }
    }

    #[test]
    fn a_bad_line_is_named_and_costs_no_other_line() {
        let mut seen = Vec::new();
        let error = pairs("memory.stat", b"anon 1\nfile x\nshmem 3\n", |k, v| seen.push((k.to_vec(), v))).unwrap();
        assert_eq!(seen, [(b"anon".to_vec(), 1), (b"shmem".to_vec(), 3)]);
        assert_eq!(error.to_string(), r#"memory.stat, line 2: expected a key and a number, found "file x""#);
    }

    #[test]
    fn signs_spaces_and_nothing_are_no_numbers() {
        for text in ["", "-1", "+1", " 1", "1 ", "0x1", "1.0", "max"] {
            assert_eq!(digits(text.as_bytes()), None, "{text:?}");
        }
    }
}
