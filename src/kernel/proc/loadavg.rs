//! `/proc/loadavg`: threads running, runnable or blocked on disk I/O, averaged over 1, 5 and 15 minutes.

use crate::kernel::error::ParseError;
use crate::kernel::text::{trim, words};

/// Source: `loadavg_proc_show` in fs/proc/loadavg.c: three numbers with two decimals, then current values, which are
/// ignored.
pub fn parse(bytes: &[u8]) -> Result<[f64; 3], ParseError> {
    let mut words = words(trim(bytes));
    let mut load = [0.0; 3];
    for slot in &mut load {
        *slot = words
            .next()
            .and_then(average)
            .ok_or_else(|| ParseError::new("loadavg", 1, "three averages", trim(bytes)))?;
    }
    Ok(load)
}

/// Digits, a point, digits; other float formats are rejected.
fn average(word: &[u8]) -> Option<f64> {
    let plain = word.iter().all(|b| b.is_ascii_digit() || *b == b'.') && word.first()?.is_ascii_digit();
    std::str::from_utf8(word).ok().filter(|_| plain)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn three_averages_are_taken_and_what_is_of_the_moment_is_not() {
        assert_eq!(parse(b"0.21 12.78 1000.44 1/5105 20936\n"), Ok([0.21, 12.78, 1000.44]));
    }

    #[test]
    fn malformed_loadavg_is_named_in_the_error() {
        for text in ["", "0.1 0.2", "0.1 0.2 inf", "0.1 -0.2 0.3", "0.1 0.2.3 0.4", "0,1 0,2 0,3"] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
        assert_eq!(
            parse(b"0.1 x 0.3\n").unwrap_err().to_string(),
            r#"loadavg, line 1: expected three averages, found "0.1 x 0.3""#
        );
    }

    proptest! {
        #[test]
        fn any_load_survives(whole: u32, hundredths in 0u32..100) {
            let text = format!("{whole}.{hundredths:02}");
            let parsed = parse(format!("{text} {text} {text} 1/2 3\n").as_bytes()).unwrap();
            prop_assert_eq!(parsed, [text.parse::<f64>().unwrap(); 3]);
        }
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            if let Ok(load) = parse(&bytes) {
                prop_assert!(load.iter().all(|n| n.is_finite()));
            }
        }
    }
}
