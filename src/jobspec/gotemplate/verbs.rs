//! Go's `Sprintf`.

use super::fault::FunctionFault;
use super::floats;
use super::printing;
use super::quoting;
use super::value::TemplateValue;

/// Of widths and precisions.
const WIDEST: usize = 10_000;
/// Of what one call makes.
const MOST: usize = 16 << 20;

#[derive(Debug, Clone, Default)]
struct FormatVerb {
    minus: bool,
    plus: bool,
    sharp: bool,
    space: bool,
    zero: bool,
    width: Option<usize>,
    precision: Option<usize>,
}

/// Errors: a width beyond reason, or a result that is too long. Wrong verbs are part of the text, as in Go.
pub(super) fn sprintf(format: &str, arguments: &[TemplateValue]) -> Result<String, FunctionFault> {
    let mut out = String::new();
    let mut state = Arguments { arguments, next: 0, reordered: false };
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        let mut chars = Chars(after.get(1..).unwrap_or(""));
        let mut verb = FormatVerb::default();
        while let Some(flag) = chars.peek().filter(|c| "-+# 0".contains(*c)) {
            match flag {
                '-' => verb.minus = true,
                '+' => verb.plus = true,
                '#' => verb.sharp = true,
                ' ' => verb.space = true,
                _ => verb.zero = true,
            }
            chars.take();
        }
        let mut bad_index = state.index(&mut chars);
        verb.width = if chars.is('*') { state.star(&mut verb, true, &mut out)? } else { chars.digits()? };
        if chars.is('.') {
            bad_index |= state.index(&mut chars);
            verb.precision = match chars.is('*') {
                true => state.star(&mut verb, false, &mut out)?,
                false => Some(chars.digits()?.unwrap_or(0)),
            };
        }
        bad_index |= state.index(&mut chars);
        match chars.take() {
            None => out.push_str("%!(NOVERB)"),
            Some('%') => out.push('%'),
            Some(c) if bad_index => out.push_str(&format!("%!{c}(BADINDEX)")),
            Some(c) => match state.take() {
                None => out.push_str(&format!("%!{c}(MISSING)")),
                Some(value) => value_by(&mut out, c, &verb, value),
            },
        }
        if out.len() > MOST {
            return Err(format!("the result is longer than {} MiB", MOST >> 20).into());
        }
        rest = chars.0;
    }
    out.push_str(rest);
    if !state.reordered && state.next < arguments.len() {
        let extra = arguments.iter().skip(state.next).map(|value| match value {
            TemplateValue::Nil => "<nil>".to_owned(),
            value => format!("{}={}", value.go_type(), printing::plain(value)),
        });
        out.push_str(&format!("%!(EXTRA {})", extra.collect::<Vec<_>>().join(", ")));
    }
    Ok(out)
}

struct Chars<'t>(&'t str);

impl Chars<'_> {
    fn peek(&self) -> Option<char> {
        self.0.chars().next()
    }
    fn take(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.0 = self.0.get(c.len_utf8()..).unwrap_or("");
        Some(c)
    }
    fn is(&mut self, c: char) -> bool {
        let rest = self.0.strip_prefix(c);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }
    fn digits(&mut self) -> Result<Option<usize>, FunctionFault> {
        let end = self.0.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.0.len());
        let (digits, rest) = self.0.split_at(end);
        self.0 = rest;
        if digits.is_empty() {
            return Ok(None);
        }
        let n = digits.parse().ok().filter(|n| *n <= WIDEST);
        n.map(Some).ok_or_else(|| format!("a width or precision of more than {WIDEST}").into())
    }
}

struct Arguments<'v> {
    arguments: &'v [TemplateValue],
    next: usize,
    reordered: bool,
}

impl<'v> Arguments<'v> {
    fn take(&mut self) -> Option<&'v TemplateValue> {
        let value = self.arguments.get(self.next)?;
        self.next += 1;
        Some(value)
    }
    /// `[2]`: the next argument is the second. Returns whether it is wrong.
    fn index(&mut self, chars: &mut Chars<'_>) -> bool {
        if chars.peek() != Some('[') {
            return false;
        }
        self.reordered = true;
        let Some(end) = chars.0.find(']') else {
            chars.take();
            return true;
        };
        let index = chars.0.get(1..end).and_then(|digits| digits.parse::<usize>().ok());
        chars.0 = chars.0.get(end + 1..).unwrap_or("");
        match index.filter(|index| (1..=self.arguments.len()).contains(index)) {
            Some(index) => self.next = index - 1,
            None => return true,
        }
        false
    }
    /// A width or precision that is an argument.
    fn star(
        &mut self,
        verb: &mut FormatVerb,
        is_width: bool,
        out: &mut String,
    ) -> Result<Option<usize>, FunctionFault> {
        let bad = if is_width { "%!(BADWIDTH)" } else { "%!(BADPREC)" };
        let Some(TemplateValue::Int(n)) = self.take() else {
            out.push_str(bad);
            return Ok(None);
        };
        if *n < 0 && !is_width {
            out.push_str(bad);
            return Ok(None);
        }
        verb.minus |= *n < 0;
        let n = usize::try_from(n.unsigned_abs()).ok().filter(|n| *n <= WIDEST);
        n.map(Some).ok_or_else(|| format!("a width or precision of more than {WIDEST}").into())
    }
}

fn value_by(out: &mut String, c: char, verb: &FormatVerb, value: &TemplateValue) {
    // The caller refuses what got this far.
    if out.len() > MOST {
        return;
    }
    match (c, value) {
        // Go's %+v is for the fields of structs.
        ('v', _) if verb.plus => value_by(out, c, &FormatVerb { plus: false, ..verb.clone() }, value),
        ('T', value) => pad(out, verb, value.go_type(), false),
        ('p', _) => bad(out, c, verb, value),
        ('v', TemplateValue::Nil) => pad(out, verb, "<nil>", false),
        (_, TemplateValue::Nil) => out.push_str(&format!("%!{c}(<nil>)")),
        (_, TemplateValue::List(list)) => {
            out.push('[');
            for (at, item) in list.items().iter().enumerate() {
                if at > 0 {
                    out.push(' ');
                }
                nested(out, c, verb, item);
            }
            out.push(']');
        }
        (_, TemplateValue::Map(map)) => {
            out.push_str("map[");
            for (at, (key, value)) in map.entries().iter().enumerate() {
                if at > 0 {
                    out.push(' ');
                }
                text(out, c, verb, key);
                out.push(':');
                nested(out, c, verb, value);
            }
            out.push(']');
        }
        (_, TemplateValue::Text(value)) => text(out, c, verb, value),
        (_, TemplateValue::Bool(b)) => match c {
            't' | 'v' => pad(out, verb, if *b { "true" } else { "false" }, false),
            _ => bad(out, c, verb, value),
        },
        (_, TemplateValue::Int(n)) => integer(out, c, verb, *n < 0, n.unsigned_abs(), value),
        (_, TemplateValue::Uint(n)) => integer(out, c, verb, false, *n, value),
        (_, TemplateValue::Float(n)) => float(out, c, verb, *n, value),
        (_, TemplateValue::Pair(_) | TemplateValue::Count(..) | TemplateValue::Scratch) => {
            pad(out, verb, &printing::plain(value), false);
        }
    }
}

/// An element: nil has no verb there.
fn nested(out: &mut String, c: char, verb: &FormatVerb, value: &TemplateValue) {
    match value {
        TemplateValue::Nil => out.push_str("<nil>"),
        value => value_by(out, c, verb, value),
    }
}

/// A verb that does not fit, as Go shows it.
fn bad(out: &mut String, c: char, verb: &FormatVerb, value: &TemplateValue) {
    out.push_str(&format!("%!{c}({}=", value.go_type()));
    value_by(out, 'v', verb, value);
    out.push(')');
}

fn text(out: &mut String, c: char, verb: &FormatVerb, text: &str) {
    let cut: String;
    let shown = match verb.precision {
        Some(most) if matches!(c, 's' | 'v' | 'q') => {
            cut = text.chars().take(most).collect();
            &cut
        }
        _ => text,
    };
    match c {
        'v' if verb.sharp => pad(out, verb, &quoting::quote(shown), false),
        's' | 'v' => pad(out, verb, shown, false),
        'q' if verb.sharp && !shown.contains(['`', '\r', '\u{feff}']) && is_one_line(shown) => {
            pad(out, verb, &format!("`{shown}`"), false);
        }
        'q' if verb.plus => pad(out, verb, &quoting::ascii(&quoting::quote(shown)), false),
        'q' => pad(out, verb, &quoting::quote(shown), false),
        'x' | 'X' => {
            let bytes = shown.as_bytes();
            let bytes = bytes.get(..verb.precision.unwrap_or(usize::MAX).min(bytes.len())).unwrap_or(bytes);
            let mut digits = String::new();
            for (at, byte) in bytes.iter().enumerate() {
                if verb.space && at > 0 {
                    digits.push(' ');
                }
                if verb.sharp && (verb.space || at == 0) {
                    digits.push_str(if c == 'x' { "0x" } else { "0X" });
                }
                digits.push_str(&if c == 'x' { format!("{byte:02x}") } else { format!("{byte:02X}") });
            }
            pad(out, verb, &digits, false);
        }
        _ => bad(out, c, verb, &text.into()),
    }
}

fn is_one_line(text: &str) -> bool {
    !text.chars().any(|c| c.is_control() && c != '\t')
}

fn integer(out: &mut String, c: char, verb: &FormatVerb, is_negative: bool, n: u64, value: &TemplateValue) {
    let digits = match c {
        'd' | 'v' => n.to_string(),
        'b' => format!("{n:b}"),
        'o' | 'O' => format!("{n:o}"),
        'x' => format!("{n:x}"),
        'X' => format!("{n:X}"),
        'c' | 'q' | 'U' => {
            let character = u32::try_from(n).ok().filter(|_| !is_negative).and_then(char::from_u32);
            let character = character.unwrap_or('\u{fffd}');
            let shown = match c {
                'c' => character.to_string(),
                'q' if verb.plus => quoting::ascii(&quoting::quote_character(character)),
                'q' => quoting::quote_character(character),
                _ if verb.sharp => format!("U+{n:04X} '{character}'"),
                _ => format!("U+{n:04X}"),
            };
            return pad(out, verb, &shown, false);
        }
        _ => return bad(out, c, verb, value),
    };
    let digits = match verb.precision {
        Some(0) if n == 0 => String::new(),
        Some(precision) => format!("{digits:0>precision$}"),
        None => digits,
    };
    let prefix = match c {
        'O' => "0o",
        'b' if verb.sharp => "0b",
        'o' if verb.sharp && !digits.starts_with('0') => "0",
        'x' if verb.sharp => "0x",
        'X' if verb.sharp => "0X",
        _ => "",
    };
    signed(out, verb, is_negative, &format!("{prefix}{digits}"), verb.precision.is_none());
}

fn float(out: &mut String, c: char, verb: &FormatVerb, n: f64, value: &TemplateValue) {
    let magnitude = n.abs();
    let digits = match c {
        'v' => floats::general(magnitude, verb.precision, false),
        'g' | 'G' => floats::general(magnitude, verb.precision, verb.sharp),
        'e' | 'E' => floats::exponential(magnitude, Some(verb.precision.unwrap_or(6))),
        'f' | 'F' => floats::fixed(magnitude, Some(verb.precision.unwrap_or(6))),
        'x' | 'X' => floats::hexadecimal(magnitude, verb.precision),
        'b' => floats::binary(magnitude),
        _ => return bad(out, c, verb, value),
    };
    let digits = if matches!(c, 'G' | 'E' | 'X') { digits.to_uppercase() } else { digits };
    let is_special = !n.is_finite();
    let digits = if is_special { digits.trim_start_matches('+').to_owned() } else { digits };
    let is_plus = n == f64::INFINITY && !verb.plus;
    let verb = if is_plus { FormatVerb { plus: true, ..verb.clone() } } else { verb.clone() };
    signed(out, &verb, n.is_sign_negative() && !n.is_nan(), &digits, !is_special);
}

fn signed(out: &mut String, verb: &FormatVerb, is_negative: bool, digits: &str, takes_zeros: bool) {
    let sign = match is_negative {
        true => "-",
        false if verb.plus => "+",
        false if verb.space => " ",
        false => "",
    };
    let missing = verb.width.unwrap_or(0).saturating_sub(sign.len() + digits.chars().count());
    if verb.zero && !verb.minus && takes_zeros && missing > 0 {
        out.push_str(sign);
        out.extend(std::iter::repeat_n('0', missing));
        out.push_str(digits);
        return;
    }
    pad(out, verb, &format!("{sign}{digits}"), true);
}

fn pad(out: &mut String, verb: &FormatVerb, shown: &str, is_number: bool) {
    let missing = verb.width.unwrap_or(0).saturating_sub(shown.chars().count());
    if verb.minus {
        out.push_str(shown);
        out.extend(std::iter::repeat_n(' ', missing));
        return;
    }
    // Go pads texts with zeros as well.
    let filler = if verb.zero && !is_number { '0' } else { ' ' };
    out.extend(std::iter::repeat_n(filler, missing));
    out.push_str(shown);
}
