//! Floating-point numbers as Go's `strconv` writes them.

/// Go's `%g` with the fewest digits that read back as the same number.
pub(super) fn shortest(n: f64) -> String {
    general(n, None, false)
}

/// Go's `%e`; without a precision: the fewest digits.
pub(super) fn exponential(n: f64, precision: Option<usize>) -> String {
    if let Some(special) = special(n) {
        return special.to_owned();
    }
    let written = match precision {
        Some(precision) => format!("{n:.precision$e}"),
        None => format!("{n:e}"),
    };
    let (digits, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    format!("{digits}e{sign}{exponent:0>2}")
}

/// Go's `%f`; without a precision: the fewest digits.
pub(super) fn fixed(n: f64, precision: Option<usize>) -> String {
    match (special(n), precision) {
        (Some(special), _) => special.to_owned(),
        (None, Some(precision)) => format!("{n:.precision$}"),
        (None, None) => format!("{n}"),
    }
}

/// Go's `%g`. `keeps_zeros`: with its flag `#`.
pub(super) fn general(n: f64, precision: Option<usize>, keeps_zeros: bool) -> String {
    if let Some(special) = special(n) {
        return special.to_owned();
    }
    let written = match precision {
        Some(precision) => format!("{n:.*e}", precision.max(1) - 1),
        None => format!("{n:e}"),
    };
    let (mantissa, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = match mantissa.contains('.') && !keeps_zeros {
        true => mantissa.trim_end_matches('0').trim_end_matches('.'),
        false => mantissa,
    };
    let count = i32::try_from(trimmed.bytes().filter(u8::is_ascii_digit).count()).unwrap_or(i32::MAX);
    let most = match precision {
        None => 6,
        Some(precision) => {
            let most = i32::try_from(precision.max(1)).unwrap_or(i32::MAX);
            if most > count && count > exponent { count } else { most }
        }
    };
    if exponent < -4 || exponent >= most {
        let (sign, magnitude) = if exponent < 0 { ('-', -exponent) } else { ('+', exponent) };
        return format!("{trimmed}e{sign}{magnitude:02}");
    }
    let decimals = usize::try_from((count - 1 - exponent).max(0)).unwrap_or(0);
    format!("{n:.decimals$}")
}

/// Go's `%x` of a number that is not negative; without a precision: the fewest digits.
pub(super) fn hexadecimal(n: f64, precision: Option<usize>) -> String {
    if let Some(special) = special(n) {
        return special.to_owned();
    }
    let (mut mantissa, mut exponent) = parts(n);
    if mantissa == 0 {
        exponent = 0;
    } else {
        // One bit before the point, 52 behind it.
        while mantissa < 1 << 52 {
            mantissa <<= 1;
            exponent -= 1;
        }
        exponent += 52;
    }
    if let Some(dropped) = precision.and_then(|digits| 52usize.checked_sub(digits * 4)).filter(|bits| *bits > 0) {
        let (half, rest) = (1u64 << (dropped - 1), mantissa & ((1 << dropped) - 1));
        mantissa >>= dropped;
        // Half goes to the even one.
        mantissa += u64::from(rest > half || (rest == half && mantissa & 1 == 1));
        mantissa <<= dropped;
        if mantissa >= 1 << 53 {
            mantissa >>= 1;
            exponent += 1;
        }
    }
    let digits = format!("{:013x}", mantissa & ((1 << 52) - 1));
    let digits = match precision {
        Some(most) => format!("{:0<most$}", digits.get(..most.min(13)).unwrap_or("")),
        None => digits.trim_end_matches('0').to_owned(),
    };
    let point = if digits.is_empty() { "" } else { "." };
    let (sign, magnitude) = if exponent < 0 { ('-', -exponent) } else { ('+', exponent) };
    format!("0x{}{point}{digits}p{sign}{magnitude:02}", mantissa >> 52)
}

/// Go's `%b` of a number that is not negative.
pub(super) fn binary(n: f64) -> String {
    let (mantissa, exponent) = parts(n);
    special(n).map_or_else(|| format!("{mantissa}p{exponent:+}"), str::to_owned)
}

/// Mantissa and power of two of a number that is not negative.
fn parts(n: f64) -> (u64, i32) {
    let bits = n.to_bits();
    let fraction = bits & ((1 << 52) - 1);
    match i32::try_from(bits >> 52).unwrap_or(0) {
        0 => (fraction, -1_074),
        exponent => (fraction | 1 << 52, exponent - 1_075),
    }
}

/// As `encoding/json` writes it; `None`: it has no form in JSON.
pub(super) fn json(n: f64) -> Option<String> {
    if !n.is_finite() {
        return None;
    }
    let magnitude = n.abs();
    if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        let written = exponential(n, None);
        // e-09 is written e-9.
        return Some(written.replace("e-0", "e-"));
    }
    Some(fixed(n, None))
}

fn special(n: f64) -> Option<&'static str> {
    match n {
        n if n.is_nan() => Some("NaN"),
        n if n == f64::INFINITY => Some("+Inf"),
        n if n == f64::NEG_INFINITY => Some("-Inf"),
        _ => None,
    }
}
