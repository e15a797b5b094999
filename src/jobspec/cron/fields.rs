//! The fields of an expression into bits.

use std::collections::BTreeSet;

use super::expression::{CronExpression, DaysOfMonth, DaysOfWeek};

/// A field: its name, its values, and words for some of them.
struct CronField {
    name: &'static str,
    least: u16,
    most: u16,
    /// The first is the word for `least`... in order; each may be given in full or by its first three letters.
    words: &'static [&'static str],
}

const SECOND: CronField = CronField { name: "second", least: 0, most: 59, words: &[] };
const MINUTE: CronField = CronField { name: "minute", least: 0, most: 59, words: &[] };
const HOUR: CronField = CronField { name: "hour", least: 0, most: 23, words: &[] };
const DAY: CronField = CronField { name: "day-of-month", least: 1, most: 31, words: &[] };
const MONTH: CronField = CronField {
    name: "month",
    least: 1,
    most: 12,
    words: &[
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ],
};
/// 7 is Sunday too.
const WEEKDAY: CronField = CronField {
    name: "day-of-week",
    least: 0,
    most: 7,
    words: &["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"],
};
const YEAR: CronField = CronField { name: "year", least: 1970, most: 2099, words: &[] };

const NICKNAMES: [(&str, &str); 6] = [
    ("@yearly", "0 0 0 1 1 * *"),
    ("@annually", "0 0 0 1 1 * *"),
    ("@monthly", "0 0 0 1 * * *"),
    ("@weekly", "0 0 0 * * 0 *"),
    ("@daily", "0 0 0 * * * *"),
    ("@hourly", "0 0 * * * * *"),
];

/// One of the parts of a field that commas separate.
enum CronListItem<'a> {
    /// `*` or `?`
    All,
    /// First, last, step.
    Span(u16, u16, u16),
    /// A form that only some fields have, in lower case.
    Other(&'a str),
}

pub(super) fn parse(text: &str) -> Result<CronExpression, String> {
    let mut whole = text.to_owned();
    for (name, expression) in NICKNAMES {
        whole = whole.replace(name, expression);
    }
    if whole.contains('@') {
        let known: Vec<&str> = NICKNAMES.iter().map(|(name, _)| *name).collect();
        return Err(format!("{text:?} has an unknown descriptor; there are {}", known.join(", ")));
    }
    let lower = whole.to_lowercase();
    let fields: Vec<&str> = lower.split_whitespace().collect();
    let (second, rest) = match fields.len() {
        0..5 => {
            let count = fields.len();
            let expected = "minute, hour, day of month, month and day of week";
            return Err(format!("{text:?} has {count} of at least 5 fields: {expected}"));
        }
        5 | 6 => (None, fields.as_slice()),
        _ => (fields.first(), &fields[1..7]),
    };
    Ok(CronExpression {
        seconds: second.map_or(Ok(1), |second| bits(second, &SECOND))?,
        minutes: bits(rest[0], &MINUTE)?,
        hours: bits(rest[1], &HOUR)?,
        days: days_of_month(rest[2])?,
        months: bits(rest[3], &MONTH)?,
        week: days_of_week(rest[4])?,
        years: rest.get(5).map_or(Ok(None), |years| set_of_years(years))?,
    })
}

fn wrong(part: &str, field: &CronField) -> String {
    format!("{part:?} is no {} ({} to {})", field.name, field.least, field.most)
}

fn parts<'a>(text: &'a str, field: &CronField) -> Result<Vec<(&'a str, CronListItem<'a>)>, String> {
    let parts = text.split(',').filter(|part| !part.is_empty());
    let parts: Vec<_> = parts.map(|part| Ok((part, part_of(part, field)?))).collect::<Result<_, String>>()?;
    if parts.is_empty() { Err(format!("the field {} has no value", field.name)) } else { Ok(parts) }
}

fn part_of<'a>(part: &'a str, field: &CronField) -> Result<CronListItem<'a>, String> {
    if matches!(part, "*" | "?") {
        return Ok(CronListItem::All);
    }
    let (range, step) = match part.split_once('/') {
        None => (part, None),
        Some((range, step)) => {
            let known = step.parse().ok().filter(|step| (1..=field.most).contains(step));
            (range, Some(known.ok_or_else(|| format!("{part:?}: the step is 1 to {}", field.most))?))
        }
    };
    let of_week = field.name == WEEKDAY.name;
    let last = if of_week { 6 } else { field.most };
    let span = match (range, range.split_once('-')) {
        ("*", _) if step.is_some() => Some((field.least, last)),
        (_, Some((from, to))) => value(from, field).zip(value(to, field)),
        (one, None) => value(one, field).map(|one| (one, if step.is_some() { last.max(one) } else { one })),
    };
    let Some((from, to)) = span else {
        return if step.is_some() { Err(wrong(part, field)) } else { Ok(CronListItem::Other(part)) };
    };
    // Sunday ends a range as 7 and begins one as 0.
    let (from, to) = match range.contains('-') && of_week {
        true if from == 7 && to < 7 => (0, to),
        true if to == 0 && from > 0 => (from, 7),
        _ => (from, to),
    };
    if from > to {
        return Err(format!("{part:?}: the range ends before it begins"));
    }
    Ok(CronListItem::Span(from, to, step.unwrap_or(1)))
}

fn value(text: &str, field: &CronField) -> Option<u16> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) && (1..=4).contains(&text.len()) {
        let fits = text.len() <= if field.most > 99 { 4 } else { 2 };
        return text.parse().ok().filter(|value| fits && (field.least..=field.most).contains(value));
    }
    let at = field.words.iter().position(|word| *word == text || (text.len() == 3 && word.starts_with(text)))?;
    u16::try_from(at).ok().map(|at| at + field.least)
}

fn span_bits(from: u16, to: u16, step: u16) -> u64 {
    (from..=to).step_by(usize::from(step)).fold(0, |bits, value| bits | 1 << value)
}

fn bits(text: &str, field: &CronField) -> Result<u64, String> {
    let mut bits = 0;
    for (part, read) in parts(text, field)? {
        bits |= match read {
            CronListItem::All => span_bits(field.least, field.most, 1),
            CronListItem::Span(from, to, step) => span_bits(from, to, step),
            CronListItem::Other(_) => return Err(wrong(part, field)),
        };
    }
    Ok(bits)
}

fn set_of_years(text: &str) -> Result<Option<BTreeSet<u16>>, String> {
    let mut years = BTreeSet::new();
    for (part, read) in parts(text, &YEAR)? {
        match read {
            CronListItem::All => return Ok(None),
            CronListItem::Span(from, to, step) => years.extend((from..=to).step_by(usize::from(step))),
            CronListItem::Other(_) => return Err(wrong(part, &YEAR)),
        }
    }
    Ok(Some(years))
}

fn days_of_month(text: &str) -> Result<Option<DaysOfMonth>, String> {
    let mut of = DaysOfMonth::default();
    let mut restricted = true;
    for (part, read) in parts(text, &DAY)? {
        match read {
            CronListItem::All => restricted = false,
            CronListItem::Span(from, to, step) => of.days |= span_bits(from, to, step),
            CronListItem::Other("l") => of.last = true,
            CronListItem::Other("lw") => of.last_weekday = true,
            CronListItem::Other(other) => {
                let before = other.strip_prefix("l-").and_then(|days| value(days, &DAY));
                let weekday = other.strip_suffix('w').and_then(|day| value(day, &DAY));
                match (before, weekday) {
                    (Some(before), _) => of.before_last |= 1 << before,
                    (None, Some(day)) => of.weekdays |= 1 << day,
                    (None, None) => return Err(format!("{}, L, L-3, 15W or LW", wrong(part, &DAY))),
                }
            }
        }
    }
    Ok(restricted.then_some(of))
}

fn days_of_week(text: &str) -> Result<Option<DaysOfWeek>, String> {
    let mut of = DaysOfWeek::default();
    let mut restricted = true;
    // Sunday has two numbers.
    let folded = |bits: u64| (bits & 0x7f) | (bits >> 7 & 1);
    for (part, read) in parts(text, &WEEKDAY)? {
        match read {
            CronListItem::All => restricted = false,
            CronListItem::Span(from, to, step) => of.days |= folded(span_bits(from, to, step)),
            CronListItem::Other(other) => {
                let last = other.strip_suffix('l').and_then(|day| value(day, &WEEKDAY));
                let nth = other.split_once('#').and_then(|(day, n)| {
                    let n: u64 = n.parse().ok().filter(|n| (1..=5).contains(n) && other.ends_with(char::is_numeric))?;
                    Some((value(day, &WEEKDAY)?, n))
                });
                match (last, nth) {
                    (Some(day), _) => of.last |= 1 << (day % 7),
                    (None, Some((day, n))) => of.nth[usize::from(day % 7)] |= 1 << n,
                    (None, None) => return Err(format!("{}, MON to SUN, 5L or 5#3", wrong(part, &WEEKDAY))),
                }
            }
        }
    }
    Ok(restricted.then_some(of))
}
