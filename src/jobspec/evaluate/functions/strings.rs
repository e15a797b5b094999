//! Strings.

use regex::RegexBuilder;

use super::arguments::{ANY, HclFunction, HclFunctionResult, bounded, pure, text, texts, whole};
use crate::jobspec::evaluate::value::HclValue;
use crate::model::go_regex::from_go;

pub(super) static FUNCTIONS: &[HclFunction] = &[
    pure("chomp", (1, 1), |a| Ok(HclValue::Text(text(a, 0)?.trim_end_matches(['\r', '\n']).to_owned()))),
    pure("format", (1, ANY), |a| format(&text(a, 0)?, a.get(1..).unwrap_or_default()).map(HclValue::Text)),
    pure("formatlist", (1, ANY), formatlist),
    pure("indent", (2, 2), indent),
    pure("join", (2, ANY), join),
    pure("lower", (1, 1), |a| Ok(HclValue::Text(text(a, 0)?.to_lowercase()))),
    pure("regex_replace", (3, 3), |a| replaced(&text(a, 0)?, &text(a, 1)?, &text(a, 2)?)),
    pure("replace", (3, 3), replace),
    pure("split", (2, 2), split),
    pure("strlen", (1, 1), |a| Ok(HclValue::Int(i128::try_from(text(a, 0)?.chars().count()).unwrap_or_default()))),
    pure("strrev", (1, 1), |a| Ok(HclValue::Text(text(a, 0)?.chars().rev().collect()))),
    pure("substr", (3, 3), substr),
    pure("title", (1, 1), |a| Ok(HclValue::Text(title(&text(a, 0)?)))),
    pure("trim", (2, 2), |a| {
        let set: Vec<char> = text(a, 1)?.chars().collect();
        Ok(HclValue::Text(text(a, 0)?.trim_matches(&set[..]).to_owned()))
    }),
    pure("trimprefix", (2, 2), |a| {
        let (whole, prefix) = (text(a, 0)?, text(a, 1)?);
        Ok(HclValue::Text(whole.strip_prefix(&prefix).unwrap_or(&whole).to_owned()))
    }),
    pure("trimspace", (1, 1), |a| Ok(HclValue::Text(text(a, 0)?.trim().to_owned()))),
    pure("trimsuffix", (2, 2), |a| {
        let (whole, suffix) = (text(a, 0)?, text(a, 1)?);
        Ok(HclValue::Text(whole.strip_suffix(&suffix).unwrap_or(&whole).to_owned()))
    }),
    pure("upper", (1, 1), |a| Ok(HclValue::Text(text(a, 0)?.to_uppercase()))),
];

/// The verbs of Go's fmt that HCL takes: `%s %q %d %f %e %g %x %X %o %b %c %t %v %%`, with flags, width and precision.
fn format(template: &str, arguments: &[HclValue]) -> Result<String, String> {
    let (mut out, mut next) = (String::new(), 0);
    let mut rest = template;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let flags = rest.find(|c: char| !"+-# 0".contains(c)).unwrap_or(rest.len());
        let (flags, after) = rest.split_at(flags);
        let (width, after) = digits(after)?;
        let (precision, after) = match after.strip_prefix('.') {
            Some(after) => digits(after).map(|(digits, after)| (Some(digits.unwrap_or(0)), after))?,
            None => (None, after),
        };
        let mut chars = after.chars();
        let verb = chars.next().ok_or("a lone % at the end")?;
        rest = chars.as_str();
        if verb == '%' {
            out.push('%');
            continue;
        }
        let value = arguments.get(next).ok_or_else(|| format!("%{verb} has no argument"))?;
        next += 1;
        let shown = verbed(verb, flags, precision, value)?;
        let missing = width.unwrap_or(0).saturating_sub(shown.chars().count());
        let is_number = matches!(verb, 'd' | 'f' | 'e' | 'g' | 'x' | 'X' | 'o' | 'b');
        if flags.contains('-') {
            out.push_str(&shown);
            out.extend(std::iter::repeat_n(' ', missing));
        } else if flags.contains('0') && is_number {
            let (sign, number) = shown.split_at(usize::from(shown.starts_with(['-', '+'])));
            out.push_str(sign);
            out.extend(std::iter::repeat_n('0', missing));
            out.push_str(number);
        } else {
            out.extend(std::iter::repeat_n(' ', missing));
            out.push_str(&shown);
        }
        bounded(out.len())?;
    }
    out.push_str(rest);
    if next < arguments.len() {
        return Err(format!("it has {next} verbs for {} arguments", arguments.len()));
    }
    Ok(out)
}

fn digits(text: &str) -> Result<(Option<usize>, &str), String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    if digits.is_empty() {
        return Ok((None, rest));
    }
    let n = digits.parse().ok().filter(|n| *n <= 10_000).ok_or("a width of more than 10000")?;
    Ok((Some(n), rest))
}

fn verbed(verb: char, flags: &str, precision: Option<usize>, value: &HclValue) -> Result<String, String> {
    let wrong = || format!("%{verb} does not take {}", value.kind());
    let as_text = || match value {
        HclValue::Null | HclValue::List(_) | HclValue::Set(_) | HclValue::Object(_) if verb == 'v' => {
            value.to_json().map(|json| json.to_string()).ok_or_else(wrong)
        }
        other => other.to_text().ok_or_else(wrong),
    };
    let as_whole = || match value.to_number() {
        Some(HclValue::Int(n)) => Ok(n),
        Some(HclValue::Float(n)) if verb == 'd' => HclValue::number(n.trunc())
            .and_then(|n| if let HclValue::Int(n) = n { Some(n) } else { None })
            .ok_or_else(wrong),
        _ => Err(wrong()),
    };
    let plus = |shown: String, is_negative: bool| match flags.contains('+') && !is_negative {
        true => format!("+{shown}"),
        false => shown,
    };
    Ok(match verb {
        's' | 'v' => {
            let shown = as_text()?;
            precision.map_or(shown.clone(), |most| shown.chars().take(most).collect())
        }
        'q' => format!("{:?}", as_text()?),
        't' => value.to_bool().ok_or_else(wrong)?.to_string(),
        'd' => {
            let n = as_whole()?;
            plus(n.to_string(), n < 0)
        }
        'x' => format!("{:x}", as_whole()?),
        'X' => format!("{:X}", as_whole()?),
        'o' => format!("{:o}", as_whole()?),
        'b' => format!("{:b}", as_whole()?),
        'c' => {
            let n = u32::try_from(as_whole()?).ok().and_then(char::from_u32);
            n.ok_or_else(wrong)?.to_string()
        }
        'f' | 'e' | 'g' => {
            let n = value.to_float().ok_or_else(wrong)?;
            let digits = precision.unwrap_or(6).min(100);
            let shown = match verb {
                'f' => format!("{n:.digits$}"),
                'e' => format!("{n:.digits$e}"),
                _ => n.to_string(),
            };
            plus(shown, n < 0.0)
        }
        other => return Err(format!("there is no verb %{other}")),
    })
}

fn formatlist(arguments: &[HclValue]) -> HclFunctionResult {
    let template = text(arguments, 0)?;
    let rest = arguments.get(1..).unwrap_or_default();
    let lengths: Vec<usize> = rest.iter().filter_map(|value| value.elements().map(<[HclValue]>::len)).collect();
    let Some(length) = lengths.first().copied() else {
        return format(&template, rest).map(|t| HclValue::List(vec![HclValue::Text(t)]));
    };
    if lengths.iter().any(|other| *other != length) {
        return Err("its lists have different lengths".to_owned());
    }
    let row = |at: usize| -> Vec<HclValue> {
        let cell = |value: &HclValue| value.elements().and_then(|list| list.get(at)).unwrap_or(value).clone();
        rest.iter().map(cell).collect()
    };
    let lines = (0..length).map(|at| format(&template, &row(at)).map(HclValue::Text));
    lines.collect::<Result<_, _>>().map(HclValue::List)
}

fn indent(arguments: &[HclValue]) -> HclFunctionResult {
    let spaces = usize::try_from(whole(arguments, 0)?).map_err(|_| "argument 1 is not negative")?;
    let whole = text(arguments, 1)?;
    bounded(spaces.saturating_mul(whole.lines().count()))?;
    Ok(HclValue::Text(whole.replace('\n', &format!("\n{}", " ".repeat(spaces)))))
}

fn join(arguments: &[HclValue]) -> HclFunctionResult {
    let between = text(arguments, 0)?;
    let mut all = Vec::new();
    for at in 1..arguments.len() {
        all.extend(texts(arguments, at)?);
    }
    bounded(all.iter().map(String::len).sum::<usize>() + between.len().saturating_mul(all.len()))?;
    Ok(HclValue::Text(all.join(&between)))
}

fn compiled(pattern: &str) -> Result<regex::Regex, String> {
    let built = RegexBuilder::new(&from_go(pattern)).size_limit(1 << 20).dfa_size_limit(1 << 20).build();
    built.map_err(|error| error.to_string().lines().last().unwrap_or_default().to_owned())
}

/// A match without groups is a string, with groups a list, with named groups an object.
fn replaced(whole: &str, pattern: &str, by: &str) -> HclFunctionResult {
    let regex = compiled(pattern)?;
    bounded(whole.len().saturating_add(by.len().saturating_mul(regex.find_iter(whole).count())))?;
    Ok(HclValue::Text(regex.replace_all(whole, by).into_owned()))
}

/// A pattern between slashes is a regular expression.
fn replace(arguments: &[HclValue]) -> HclFunctionResult {
    let (whole, pattern, by) = (text(arguments, 0)?, text(arguments, 1)?, text(arguments, 2)?);
    match pattern.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')) {
        Some(pattern) => replaced(&whole, pattern, &by),
        None => {
            bounded(whole.len().saturating_add(by.len().saturating_mul(whole.matches(&pattern).count())))?;
            Ok(HclValue::Text(whole.replace(&pattern, &by)))
        }
    }
}

fn split(arguments: &[HclValue]) -> HclFunctionResult {
    let (between, whole) = (text(arguments, 0)?, text(arguments, 1)?);
    let parts: Vec<HclValue> = match (whole.is_empty(), between.is_empty()) {
        (true, _) => vec!["".into()],
        (false, true) => whole.chars().map(|c| HclValue::Text(c.to_string())).collect(),
        (false, false) => whole.split(&between).map(HclValue::from).collect(),
    };
    Ok(HclValue::List(parts))
}

fn substr(arguments: &[HclValue]) -> HclFunctionResult {
    let chars: Vec<char> = text(arguments, 0)?.chars().collect();
    let (offset, length) = (whole(arguments, 1)?, whole(arguments, 2)?);
    let count = i64::try_from(chars.len()).unwrap_or(i64::MAX);
    // Negative: counted from the end.
    let start = if offset < 0 { (count + offset).max(0) } else { offset.min(count) };
    let end = if length < 0 { count } else { start.saturating_add(length).min(count) };
    let range = usize::try_from(start).unwrap_or(0)..usize::try_from(end).unwrap_or(0);
    Ok(HclValue::Text(chars.get(range).unwrap_or_default().iter().collect()))
}

fn title(text: &str) -> String {
    let mut begins = true;
    let upper = |c: char, begins: &mut bool| -> String {
        let shown = if *begins { c.to_uppercase().collect() } else { c.to_string() };
        *begins = c.is_whitespace();
        shown
    };
    text.chars().map(|c| upper(c, &mut begins)).collect()
}
