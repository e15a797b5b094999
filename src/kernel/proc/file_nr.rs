//! `/proc/sys/fs/file-nr`: file handles in use, free ones (always 0), and their maximum.

use crate::kernel::error::ParseError;
use crate::kernel::text::{digits, trim, words};

/// In use, and the limit. Source: Documentation/admin-guide/sysctl/fs.rst.
pub fn parse(bytes: &[u8]) -> Result<(u64, u64), ParseError> {
    let numbers: Option<Vec<u64>> = words(trim(bytes)).map(digits).collect();
    match numbers.as_deref() {
        Some([allocated, free, limit]) => Ok((allocated.saturating_sub(*free), *limit)),
        _ => Err(ParseError::new("file-nr", 1, "three numbers", trim(bytes))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn handles_in_use_and_their_limit_are_read() {
        assert_eq!(parse(b"1952\t0\t9223372036854775807\n"), Ok((1952, 9_223_372_036_854_775_807)));
        assert_eq!(parse(b"100 40 500\n"), Ok((60, 500)), "a kernel before 2.6 counts free ones");
        for text in ["", "1 2", "1 2 3 4", "1 x 3", "-1 0 3"] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
