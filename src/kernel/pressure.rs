//! Pressure stall information: `/proc/pressure/*` and `*.pressure` of a cgroup.
//!
//! Source: `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`, then `full ...`; 4.20, `irq` (full only) 6.1. Only totals
//! are used, because averages cannot be added or compared. Units: ns (the kernel prints µs; values above 584 years
//! saturate).

use crate::kernel::error::{ParseError, Parsed};
use crate::kernel::text::{digits, lines, trim, unknown, words};

/// Stall times of one resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pressure {
    pub some_ns: Option<u64>,
    pub full_ns: Option<u64>,
}

pub fn parse(file: &'static str, bytes: &[u8]) -> Parsed<Pressure> {
    let mut pressure = Pressure::default();
    let (mut error, mut any) = (None, false);
    for (number, line) in lines(bytes) {
        let mut parts = words(line);
        let slot = match parts.next() {
            Some(b"some") => &mut pressure.some_ns,
            Some(b"full") => &mut pressure.full_ns,
            _ => continue,
        };
        any = true;
        let total = parts.filter_map(|w| w.strip_prefix(b"total=")).next().and_then(digits);
        *slot = total.map(|n| n.saturating_mul(1_000));
        if slot.is_none() {
            error.get_or_insert_with(|| ParseError::new(file, number, "some or full with a total", trim(line)));
        }
    }
    let error = error.or_else(|| unknown(file, bytes, any, "some or full with a total"));
    (pressure, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn totals_are_taken_and_irq_has_no_some() {
        let text =
            b"some avg10=2.01 avg60=1.23 avg300=0.48 total=8703720\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n";
        assert_eq!(parse("cpu", text), (Pressure { some_ns: Some(8_703_720_000), full_ns: Some(5_000) }, None));
        assert_eq!(parse("irq", b"full avg10=0.00 avg60=0.00 avg300=0.00 total=1\n").0.some_ns, None);
    }

    #[test]
    fn a_line_without_a_total_is_named() {
        let (pressure, error) = parse("io", b"some avg10=0.00\nfull total=1\n");
        assert_eq!(pressure, Pressure { some_ns: None, full_ns: Some(1_000) });
        assert_eq!(error.unwrap().line, 1);
    }

    proptest! {
        #[test]
        fn any_total_survives(n in 0..=u64::MAX / 1000) {
            prop_assert_eq!(parse("io", format!("some avg10=0.00 total={n}\n").as_bytes()).0.some_ns, Some(n * 1000));
        }
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = parse("io", &bytes);
        }
    }
}
