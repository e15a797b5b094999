//! Numbers, characters and strings as Go writes them.

use super::value::TemplateValue;

/// Errors: why it is none.
pub(super) fn number(text: &str) -> Result<TemplateValue, String> {
    let invalid = || format!("{text} is no number");
    if text.ends_with('i') {
        return Err("complex numbers are not supported".to_owned());
    }
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, body) = match lower.get(..2) {
        Some("0x") => (16, lower.get(2..)),
        Some("0o") => (8, lower.get(2..)),
        Some("0b") => (2, lower.get(2..)),
        _ => (10, Some(lower.as_str())),
    };
    let body = body.unwrap_or("");
    // An underscore separates digits, or the prefix from them.
    let joined = if radix == 10 { body.to_owned() } else { format!("0{body}") };
    if joined.starts_with('_') || joined.ends_with('_') || joined.contains("__") {
        return Err(invalid());
    }
    let body = body.replace('_', "");
    if radix == 10 && body.contains(['.', 'e']) {
        let is_plain = body.chars().all(|c| c.is_ascii_digit() || "+-.e".contains(c));
        let float: f64 = body.parse().ok().filter(|float: &f64| is_plain && float.is_finite()).ok_or_else(invalid)?;
        return Ok(TemplateValue::Float(if is_negative { -float } else { float }));
    }
    if radix == 16 && body.contains(['.', 'p']) {
        return Err("hexadecimal floating-point numbers are not supported".to_owned());
    }
    // A leading zero is octal.
    let (radix, body) = match body.strip_prefix('0') {
        Some(octal) if radix == 10 && !octal.is_empty() => (8, octal),
        _ => (radix, body.as_str()),
    };
    if body.is_empty() || !body.chars().all(|c| c.is_digit(radix)) {
        return Err(invalid());
    }
    let magnitude = u64::from_str_radix(body, radix).map_err(|_| format!("{text} overflows int"))?;
    let signed = if is_negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() };
    signed.map(TemplateValue::Int).ok_or_else(|| format!("{text} overflows int"))
}

/// The number of a character in single quotes. Errors: why it is none.
pub(super) fn character(text: &str) -> Result<TemplateValue, String> {
    let inside = text.get(1..text.len().saturating_sub(1)).unwrap_or("");
    let unescaped = unescape(inside, '\'')?;
    let mut chars = unescaped.chars();
    match (chars.next(), chars.next()) {
        (Some(c), None) => Ok(TemplateValue::Int(i64::from(u32::from(c)))),
        _ => Err(format!("{text} is not one character")),
    }
}

/// A string in double quotes. Errors: why it is none.
pub(super) fn quoted(text: &str) -> Result<String, String> {
    unescape(text.get(1..text.len().saturating_sub(1)).unwrap_or(""), '"')
}

/// Bytes from `\x` and octal escapes must be UTF-8 together: the output is text.
fn unescape(inside: &str, quote: char) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(inside.len());
    let mut chars = inside.chars();
    let mut buffer = [0; 4];
    while let Some(c) = chars.next() {
        if c != '\\' {
            bytes.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
            continue;
        }
        let escape = chars.next().ok_or("a lone \\ at the end")?;
        let digits = |chars: &mut std::str::Chars<'_>, count: usize, radix: u32, first: Option<char>| {
            let digits: String = first.into_iter().chain(chars.take(count)).collect();
            let complete = digits.chars().count() == count + usize::from(first.is_some());
            let n = u32::from_str_radix(&digits, radix).ok().filter(|_| complete && !digits.starts_with('+'));
            n.ok_or_else(|| format!("\\{escape} needs more digits"))
        };
        match escape {
            'a' => bytes.push(7),
            'b' => bytes.push(8),
            'f' => bytes.push(12),
            'n' => bytes.push(b'\n'),
            'r' => bytes.push(b'\r'),
            't' => bytes.push(b'\t'),
            'v' => bytes.push(11),
            '\\' => bytes.push(b'\\'),
            c if c == quote => bytes.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes()),
            'x' | '0'..='7' => {
                let n = match escape {
                    'x' => digits(&mut chars, 2, 16, None)?,
                    first => digits(&mut chars, 2, 8, Some(first))?,
                };
                let byte = u8::try_from(n).map_err(|_| format!("\\{escape} is more than a byte"))?;
                // A character of its own number, as Go has it in single quotes.
                match quote {
                    '\'' => bytes.extend_from_slice(char::from(byte).encode_utf8(&mut buffer).as_bytes()),
                    _ => bytes.push(byte),
                }
            }
            'u' | 'U' => {
                let n = digits(&mut chars, if escape == 'u' { 4 } else { 8 }, 16, None)?;
                let c = char::from_u32(n).ok_or_else(|| format!("\\{escape} is no character"))?;
                bytes.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
            }
            c => return Err(format!("\\{c} is no escape; write \\\\ for a backslash")),
        }
    }
    String::from_utf8(bytes).map_err(|_| "the bytes of this string are not UTF-8".to_owned())
}
