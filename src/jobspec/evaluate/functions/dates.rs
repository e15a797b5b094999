//! Times in the notation of RFC 3339: `formatdate` and `timeadd`.

use super::arguments::{HclFunction, bounded, pure, text};
use crate::jobspec::evaluate::value::HclValue;

pub(super) static FUNCTIONS: &[HclFunction] = &[
    pure("formatdate", (2, 2), |a| formatted(&text(a, 0)?, &OffsetTimestamp::parse(&text(a, 1)?)?).map(HclValue::Text)),
    pure("timeadd", (2, 2), |a| {
        let time = OffsetTimestamp::parse(&text(a, 0)?)?;
        time.plus(duration(&text(a, 1)?)?).map(|time| HclValue::Text(time.shown()))
    }),
];

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// A time of the years 0 to 9999, as the clock shows it at its offset.
struct OffsetTimestamp {
    /// Since 1970, of the clock at the offset.
    seconds: i64,
    nanoseconds: i64,
    /// East of Greenwich, in minutes.
    offset: i64,
    is_utc: bool,
}

/// Days since 1970.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that the leap day is the last; eras have 400 years.
    let year = if month <= 2 { year - 1 } else { year };
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year.div_euclid(400) * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month and day, both from 1.
fn date_of(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year + era * 400 + i64::from(month <= 2), month, of_year - (153 * from_march + 2) / 5 + 1)
}

impl OffsetTimestamp {
    fn parse(text: &str) -> Result<OffsetTimestamp, String> {
        OffsetTimestamp::read(text)
            .ok_or_else(|| format!("{text:?} is no time of RFC 3339, as in 2026-01-31T12:00:00Z"))
    }

    fn read(text: &str) -> Option<OffsetTimestamp> {
        let number = |from: usize, to: usize| {
            let digits = text.get(from..to).filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?;
            digits.parse::<i64>().ok()
        };
        let is = |at: usize, c: char| text.get(at..at + 1).is_some_and(|found| found.starts_with(c));
        if !(is(4, '-') && is(7, '-') && is(10, 'T') && is(13, ':') && is(16, ':')) {
            return None;
        }
        let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
        let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
        let days = days_of(year, month, day);
        if date_of(days) != (year, month, day) || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let mut rest = text.get(19..)?;
        let mut nanoseconds = 0;
        if let Some(after) = rest.strip_prefix('.') {
            let count = after.find(|c: char| !c.is_ascii_digit()).filter(|count| *count > 0)?;
            let nine: String = after.chars().take(count).chain("000000000".chars()).take(9).collect();
            nanoseconds = nine.parse().ok()?;
            rest = after.get(count..)?;
        }
        let (offset, is_utc) = match rest {
            "Z" => (0, true),
            rest => {
                let (sign, at) = (rest.get(..1)?, text.len() - rest.len());
                let (hours, minutes) = (number(at + 1, at + 3)?, number(at + 4, at + 6)?);
                if rest.len() != 6 || !is(at + 3, ':') || hours > 23 || minutes > 59 {
                    return None;
                }
                match sign {
                    "+" => (hours * 60 + minutes, false),
                    "-" => (-(hours * 60 + minutes), false),
                    _ => return None,
                }
            }
        };
        let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second;
        Some(OffsetTimestamp { seconds, nanoseconds, offset, is_utc })
    }

    fn plus(&self, nanoseconds: i128) -> Result<OffsetTimestamp, String> {
        const NANOS: i128 = 1_000_000_000;
        let all = i128::from(self.seconds) * NANOS + i128::from(self.nanoseconds) + nanoseconds;
        let seconds = i64::try_from(all.div_euclid(NANOS)).ok();
        // The years 0 to 9999.
        let seconds = seconds.filter(|seconds| (-62_167_219_200..=253_402_300_799).contains(seconds));
        let nanoseconds = i64::try_from(all.rem_euclid(NANOS)).unwrap_or_default();
        Ok(OffsetTimestamp { seconds: seconds.ok_or("the year would have more than 4 digits")?, nanoseconds, ..*self })
    }

    /// Without a fraction, as Go's RFC3339 has it.
    fn shown(&self) -> String {
        let (year, month, day) = date_of(self.seconds.div_euclid(86_400));
        let of_day = self.seconds.rem_euclid(86_400);
        let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
        let zone = if self.is_utc || self.offset == 0 { "Z".to_owned() } else { self.zone(":") };
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{zone}")
    }

    fn zone(&self, between: &str) -> String {
        let sign = if self.offset < 0 { '-' } else { '+' };
        let minutes = self.offset.abs();
        format!("{sign}{:02}{between}{:02}", minutes / 60, minutes % 60)
    }
}

/// Nanoseconds: Go's notation, as in `-1h30m`.
fn duration(text: &str) -> Result<i128, String> {
    let wrong = || format!("{text:?} is no duration: write it like 10m, 1h30m or -24h");
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    let mut all: i128 = 0;
    loop {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let (number, unit) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let end = unit.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(unit.len());
        let (unit, after) = unit.split_at(end);
        let size: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return Err(wrong()),
        };
        let digits = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<i64>().ok().map(i128::from) };
        if (whole.is_empty() && fraction.is_empty()) || fraction.len() > 18 {
            return Err(wrong());
        }
        let (whole, part) = (digits(whole).ok_or_else(wrong)?, digits(fraction).ok_or_else(wrong)?);
        let scale = 10_i128.pow(u32::try_from(fraction.len()).unwrap_or_default());
        all += whole * size + part * size / scale;
        // As many as Go counts.
        if all > i128::from(i64::MAX) {
            return Err(wrong());
        }
        rest = after;
        if rest.is_empty() {
            return Ok(sign * all);
        }
    }
}

/// Letters in a row are a part of the time; text stands in single quotes, a quote in it twice.
fn formatted(format: &str, time: &OffsetTimestamp) -> Result<String, String> {
    bounded(format.len().saturating_mul(9))?;
    let mut out = String::new();
    let mut rest = format;
    while let Some(c) = rest.chars().next() {
        if c == '\'' {
            let (text, after) = quoted(rest).ok_or("a text in single quotes has no end")?;
            out.push_str(&text);
            rest = after;
        } else if c.is_ascii_alphabetic() {
            let end = rest.find(|other| other != c).unwrap_or(rest.len());
            let (part, after) = rest.split_at(end);
            out.push_str(&shown(part, time)?);
            rest = after;
        } else {
            out.push(c);
            rest = rest.get(c.len_utf8()..).unwrap_or_default();
        }
    }
    Ok(out)
}

/// The text behind a quote, and what follows its end.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut rest = text.strip_prefix('\'')?;
    loop {
        let end = rest.find('\'')?;
        out.push_str(rest.get(..end)?);
        rest = rest.get(end + 1..)?;
        match rest.strip_prefix('\'') {
            Some(after) => {
                out.push('\'');
                rest = after;
            }
            None => return Some((out, rest)),
        }
    }
}

fn shown(part: &str, time: &OffsetTimestamp) -> Result<String, String> {
    let days = time.seconds.div_euclid(86_400);
    let (year, month, day) = date_of(days);
    let of_day = time.seconds.rem_euclid(86_400);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    let twelve = if hour % 12 == 0 { 12 } else { hour % 12 };
    let name = |names: &[&str], at: i64| {
        usize::try_from(at).ok().and_then(|at| names.get(at).copied()).unwrap_or("").to_owned()
    };
    let short = |name: String| name.chars().take(3).collect::<String>();
    Ok(match part {
        "YYYY" => format!("{year:04}"),
        "YY" => format!("{:02}", year % 100),
        "MMMM" => name(&MONTHS, month - 1),
        "MMM" => short(name(&MONTHS, month - 1)),
        "MM" => format!("{month:02}"),
        "M" => month.to_string(),
        "DD" => format!("{day:02}"),
        "D" => day.to_string(),
        "EEEE" => name(&DAYS, days.rem_euclid(7)),
        "EEE" => short(name(&DAYS, days.rem_euclid(7))),
        "hh" => format!("{hour:02}"),
        "h" => hour.to_string(),
        "HH" => format!("{twelve:02}"),
        "H" => twelve.to_string(),
        "AA" => if hour < 12 { "AM" } else { "PM" }.to_owned(),
        "aa" => if hour < 12 { "am" } else { "pm" }.to_owned(),
        "mm" => format!("{minute:02}"),
        "m" => minute.to_string(),
        "ss" => format!("{second:02}"),
        "s" => second.to_string(),
        "ZZZZZ" => time.zone(":"),
        "ZZZZ" => time.zone(""),
        "ZZZ" if time.is_utc || time.offset == 0 => "UTC".to_owned(),
        "ZZZ" => time.zone(""),
        "Z" if time.is_utc || time.offset == 0 => "Z".to_owned(),
        "Z" => time.zone(":"),
        other => return Err(format!("no part of a time is written {other:?}: text stands in single quotes")),
    })
}
