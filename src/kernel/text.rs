//! Numbers, lines and words from bytes: the basis of the frequently used parsers.

use super::error::ParseError;

/// A decimal `u64`: digits only, no sign, no space, no overflow.
pub fn digits(text: &[u8]) -> Option<u64> {
    // Any 19 digits fit, so only longer numbers need overflow checks.
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

/// Removes spaces, tabs and newlines on both sides.
pub fn trim(text: &[u8]) -> &[u8] {
    text.trim_ascii()
}

/// Non-empty lines with their numbers, counted from 1.
pub fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    bytes.split(|b| *b == b'\n').enumerate().map(|(i, l)| (i + 1, l)).filter(|(_, l)| !trim(l).is_empty())
}

/// Words of a line, separated by spaces and tabs.
pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|b| *b == b' ' || *b == b'\t').filter(|w| !w.is_empty())
}

/// A device number: `8:16`.
pub fn is_device(word: &[u8]) -> bool {
    device(word).is_some()
}

/// Major and minor number of a device.
pub fn device(word: &[u8]) -> Option<(u64, u64)> {
    let mut parts = word.splitn(2, |b| *b == b':');
    Some((parts.next().and_then(digits)?, parts.next().and_then(digits)?))
}

/// A file with one number.
pub fn single(file: &'static str, bytes: &[u8]) -> Result<u64, ParseError> {
    let text = trim(bytes);
    digits(text).ok_or_else(|| ParseError::new(file, 1, "a number", text))
}

/// Fills the values of `key number` lines. Returns the first wanted key without a number, or the first line if the file
/// has no `key number` line at all. Other keys are ignored.
pub fn pairs(file: &'static str, bytes: &[u8], fields: &mut [(&str, &mut Option<u64>)]) -> Option<ParseError> {
    const EXPECTED: &str = "a key and a number";
    let (mut error, mut any) = (None, false);
    for (number, line) in lines(bytes) {
        let mut parts = words(line);
        let key = parts.next();
        let value = parts.next().and_then(digits).filter(|_| parts.next().is_none());
        any |= value.is_some();
        let Some((_, slot)) = fields.iter_mut().find(|(name, _)| Some(name.as_bytes()) == key) else { continue };
        **slot = value;
        if value.is_none() {
            error.get_or_insert_with(|| ParseError::new(file, number, EXPECTED, trim(line)));
        }
    }
    error.or_else(|| unknown(file, bytes, any, EXPECTED))
}

/// The first line of a file without any known line: it is a different file. `any`: a known line was found.
pub fn unknown(file: &'static str, bytes: &[u8], any: bool, expected: &'static str) -> Option<ParseError> {
    let (number, line) = lines(bytes).next().filter(|_| !any)?;
    Some(ParseError::new(file, number, expected, trim(line)))
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
        fn number_out_of_range_is_refused_not_wrapped(n in u128::from(u64::MAX) + 1..) {
            prop_assert_eq!(digits(n.to_string().as_bytes()), None);
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = single("f", &bytes);
            let _ = pairs("f", &bytes, &mut [("a", &mut None)]);
        }
    }

    #[test]
    fn a_bad_line_is_named_and_costs_no_other_line() {
        let (mut anon, mut file, mut shmem) = (None, None, None);
        let fields = &mut [("anon", &mut anon), ("file", &mut file), ("shmem", &mut shmem)];
        let error = pairs("memory.stat", b"anon 1\nfile x\nshmem 3\n", fields).unwrap();
        assert_eq!((anon, file, shmem), (Some(1), None, Some(3)));
        assert_eq!(error.to_string(), r#"memory.stat, line 2: expected a key and a number, found "file x""#);
    }

    #[test]
    fn signs_spaces_and_nothing_are_no_numbers() {
        for text in ["", "-1", "+1", " 1", "1 ", "0x1", "1.0", "max"] {
            assert_eq!(digits(text.as_bytes()), None, "{text:?}");
        }
    }
}
