//! Durations in Go's notation, as job files write them, and sizes in bytes.

use std::time::Duration;

/// Why a text is no duration or no size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("it is empty")]
    Empty,
    #[error("it is negative")]
    Negative,
    #[error("the unit is missing")]
    NoUnit,
    #[error("`{0}` is no unit")]
    UnknownUnit(String),
    #[error("a number is missing")]
    NoNumber,
    #[error("it is too large")]
    TooLarge,
    #[error("it is not a whole number of bytes")]
    NotWhole,
}

/// Parses `300ms`, `1.5h`, `1h30m`: the units are ns, us, ms, s, m and h; `0` needs none.
///
/// Errors: negative, without a unit, or more than Go's 292 years.
pub fn parse_duration(text: &str) -> Result<Duration, QuantityError> {
    let unsigned = match text.strip_prefix('-') {
        Some(_) => return Err(QuantityError::Negative),
        None => text.strip_prefix('+').unwrap_or(text),
    };
    match unsigned {
        "" => return Err(QuantityError::Empty),
        "0" => return Ok(Duration::ZERO),
        _ => {}
    }
    let mut nanos: u128 = 0;
    let mut rest = unsigned;
    while !rest.is_empty() {
        let (number, after) = split_number(rest)?;
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, next) = after.split_at(end);
        let scale: u128 = match unit {
            "" => return Err(QuantityError::NoUnit),
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            other => return Err(QuantityError::UnknownUnit(other.chars().take(20).collect())),
        };
        // As Go does: what is below a nanosecond is cut off.
        nanos = number.times(scale).and_then(|(n, _)| nanos.checked_add(n)).ok_or(QuantityError::TooLarge)?;
        rest = next;
    }
    let nanos = u64::try_from(nanos).map_err(|_| QuantityError::TooLarge)?;
    if i64::try_from(nanos).is_err() {
        return Err(QuantityError::TooLarge);
    }
    Ok(Duration::from_nanos(nanos))
}

/// The same, and `7d`, which Go's durations lack: whole days, of 24 hours.
///
/// Errors: those of [`parse_duration`].
pub fn parse_days(text: &str) -> Result<Duration, QuantityError> {
    match text.strip_suffix('d').and_then(|days| days.parse::<u64>().ok()) {
        Some(days) => parse_duration(&format!("{}h", days.checked_mul(24).ok_or(QuantityError::TooLarge)?)),
        None => parse_duration(text),
    }
}

/// How long ago, as [`parse_days`]; what is too large is ever.
///
/// Errors: it is none of these, in a sentence.
pub fn parse_ago(text: &str) -> Result<Duration, String> {
    match parse_days(text) {
        Err(QuantityError::TooLarge) => Ok(Duration::MAX),
        parsed => parsed.map_err(|error| format!("{text:?} is no time ago, as 30m, 24h, 7d: {error}")),
    }
}

/// As Go prints them: `1h30m0s`, `1.5s`, `300ms`, `0s`; [`parse_duration`] reads it back.
pub fn format_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let fraction = |n: u128, unit: u128, name: &str| {
        let digits = format!("{:0width$}", n % unit, width = unit.ilog10() as usize);
        match digits.trim_end_matches('0') {
            "" => format!("{}{name}", n / unit),
            digits => format!("{}.{digits}{name}", n / unit),
        }
    };
    match nanos {
        0 => "0s".to_owned(),
        1..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => fraction(nanos, 1_000, "µs"),
        1_000_000..1_000_000_000 => fraction(nanos, 1_000_000, "ms"),
        _ => {
            let (hours, minutes) = (nanos / 3_600_000_000_000, nanos / 60_000_000_000 % 60);
            let seconds = fraction(nanos % 60_000_000_000, 1_000_000_000, "s");
            match (hours, minutes) {
                (0, 0) => seconds,
                (0, m) => format!("{m}m{seconds}"),
                (h, m) => format!("{h}h{m}m{seconds}"),
            }
        }
    }
}

/// Parses `10MiB`, `1.5 GiB`, `200kB`, `4096`, `4096B` into bytes.
///
/// Errors: negative, an unknown unit, a fraction of a byte, or more than fits.
pub fn parse_size(text: &str) -> Result<u64, QuantityError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(QuantityError::Empty);
    }
    if text.starts_with('-') {
        return Err(QuantityError::Negative);
    }
    let (number, unit) = split_number(text)?;
    let scale: u128 = match unit.trim_start() {
        "" | "B" => 1,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "PB" => 1_000_000_000_000_000,
        "EB" => 1_000_000_000_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        "PiB" => 1 << 50,
        "EiB" => 1 << 60,
        other => return Err(QuantityError::UnknownUnit(other.chars().take(20).collect())),
    };
    match number.times(scale) {
        Some((bytes, true)) => u64::try_from(bytes).map_err(|_| QuantityError::TooLarge),
        Some((_, false)) => Err(QuantityError::NotWhole),
        None => Err(QuantityError::TooLarge),
    }
}

/// `digits / 10^places`, exactly.
struct Decimal {
    digits: u128,
    places: u32,
}

impl Decimal {
    /// The product, and whether nothing was cut off; `None` if it does not fit.
    fn times(&self, scale: u128) -> Option<(u128, bool)> {
        let product = self.digits.checked_mul(scale)?;
        let divisor = 10u128.checked_pow(self.places)?;
        Some((product / divisor, product % divisor == 0))
    }
}

fn split_number(text: &str) -> Result<(Decimal, &str), QuantityError> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err(QuantityError::NoNumber);
    }
    let fraction = fraction.trim_end_matches('0');
    // More places than any unit has nanoseconds or bytes say nothing.
    let fraction = fraction.get(..fraction.len().min(18)).unwrap_or(fraction);
    let places = u32::try_from(fraction.len()).map_err(|_| QuantityError::TooLarge)?;
    let digits = format!("0{whole}{fraction}").parse().map_err(|_| QuantityError::TooLarge)?;
    Ok((Decimal { digits, places }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn whole_days_are_read_where_they_may_be() {
        let hours = |text: &str| parse_days(text).map(|d| d.as_secs_f64() / 3600.0);
        assert_eq!([hours("0d"), hours("30d"), hours("1.5h")], [Ok(0.0), Ok(720.0), Ok(1.5)]);
        assert_eq!(hours("106752d"), Err(QuantityError::TooLarge));
        assert_eq!(hours(&format!("{}d", u64::MAX)), Err(QuantityError::TooLarge));
        assert_eq!(parse_ago("200000d"), Ok(Duration::MAX), "ever");
        for text in ["d", "1.5d", "-1d", "1d12h"] {
            assert!(hours(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_read_as_go_reads_them() {
        let ns = |text| parse_duration(text).map(|d| d.as_nanos());
        for (text, nanos) in [
            ("0", 0),
            ("0s", 0),
            ("5s", 5_000_000_000),
            ("+5s", 5_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1.5h", 5_400_000_000_000),
            ("300ms", 300_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("1us1µs1μs", 3_000),
            ("0.3ns", 0),
            ("2562047h47m16.854775807s", 9_223_372_036_854_775_807),
        ] {
            assert_eq!(ns(text), Ok(nanos), "{text}");
        }
        for (text, error) in [
            ("", QuantityError::Empty),
            ("-1s", QuantityError::Negative),
            ("30", QuantityError::NoUnit),
            ("1h30", QuantityError::NoUnit),
            ("5 s", QuantityError::UnknownUnit(" s".into())),
            ("1d", QuantityError::UnknownUnit("d".into())),
            ("s", QuantityError::NoNumber),
            (".s", QuantityError::NoNumber),
            ("1..5s", QuantityError::NoNumber),
            ("2562047h47m16.854775808s", QuantityError::TooLarge),
            ("99999999999999999999999999999999999999999999h", QuantityError::TooLarge),
        ] {
            assert_eq!(ns(text), Err(error), "{text}");
        }
    }

    #[test]
    fn sizes_are_exact() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4096B", 4096),
            ("10 MiB", 10 << 20),
            ("1.5GiB", 3 << 29),
            ("200kB", 200_000),
            ("15EiB", 15 << 60),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for (text, error) in [
            ("", QuantityError::Empty),
            ("-5", QuantityError::Negative),
            ("16EiB", QuantityError::TooLarge),
            ("0.5", QuantityError::NotWhole),
            ("5 mb", QuantityError::UnknownUnit("mb".into())),
        ] {
            assert_eq!(parse_size(text), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn formatted_duration_parses_back(nanos in 0u64..=i64::MAX as u64) {
            let d = Duration::from_nanos(nanos);
            prop_assert_eq!(parse_duration(&format_duration(d)), Ok(d));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}", near in "[-+0-9.a-zµ ]{0,40}") {
            let _ = (parse_duration(&text), parse_duration(&near), parse_size(&text), parse_size(&near));
        }
    }
}
