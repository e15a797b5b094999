//! `timestamp`, `sprig_now` and `sprig_date` with Go's layouts, in UTC.

use super::arguments::{TemplateFunction, TemplateFunctionResult, Tools, argument, bounded, sourced, text};
use crate::jobspec::gotemplate::value::TemplateValue;

pub(super) static FUNCTIONS: &[TemplateFunction] = &[
    sourced("timestamp", (0, 1), timestamp),
    // As Go prints a time.
    sourced("sprig_now", (0, 0), |_, tools| {
        let (seconds, nanoseconds) = tools.sources.now()?;
        Ok(formatted("2006-01-02 15:04:05.999999999 -0700 MST", seconds, nanoseconds).into())
    }),
    // As sprig has it, what is no number of seconds is now.
    sourced("sprig_date", (2, 2), |a, tools| {
        let layout = text(a, 0)?;
        bounded(layout.len().saturating_mul(9))?;
        let (seconds, nanoseconds) = match argument(a, 1) {
            TemplateValue::Int(seconds) => (*seconds, 0),
            _ => tools.sources.now()?,
        };
        Ok(formatted(&layout, seconds, nanoseconds).into())
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

fn timestamp(arguments: &[TemplateValue], tools: &Tools<'_>) -> TemplateFunctionResult {
    let (seconds, nanoseconds) = tools.sources.now()?;
    if arguments.is_empty() {
        return Ok(formatted("2006-01-02T15:04:05Z07:00", seconds, nanoseconds).into());
    }
    let layout = text(arguments, 0)?;
    if &*layout == "unix" {
        return Ok(seconds.to_string().into());
    }
    bounded(layout.len().saturating_mul(9))?;
    Ok(formatted(&layout, seconds, nanoseconds).into())
}

/// The date of a day since 1970: year, month and day from 1.
fn date(days: i64) -> (i64, usize, i64) {
    // Years begin in March, so that the leap day is the last; eras have 400 years.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, usize::try_from(month).unwrap_or(1), day)
}

/// Go's layouts: each part of the reference time stands for that part.
fn formatted(layout: &str, seconds: i64, nanoseconds: u32) -> String {
    // Of the years 1 to 9999.
    let seconds = seconds.clamp(-62_135_596_800, 253_402_300_799);
    let days = seconds.div_euclid(86_400);
    let (year, month, day) = date(days);
    let second_of_day = seconds.rem_euclid(86_400);
    let (hour, minute, second) = (second_of_day / 3_600, second_of_day / 60 % 60, second_of_day % 60);
    let month_name = MONTHS.get(month.saturating_sub(1)).copied().unwrap_or("");
    let day_name = DAYS.get(usize::try_from(days.rem_euclid(7)).unwrap_or(0)).copied().unwrap_or("");
    let twelve = if hour % 12 == 0 { 12 } else { hour % 12 };
    let of_year = days - days_before(year) + 1;
    let parts: [(&str, String); 30] = [
        ("January", month_name.to_owned()),
        ("Jan", month_name.chars().take(3).collect()),
        ("Monday", day_name.to_owned()),
        ("Mon", day_name.chars().take(3).collect()),
        ("MST", "UTC".to_owned()),
        ("2006", format!("{year:04}")),
        ("002", format!("{of_year:03}")),
        ("__2", format!("{of_year:3}")),
        ("01", format!("{month:02}")),
        ("02", format!("{day:02}")),
        ("03", format!("{twelve:02}")),
        ("04", format!("{minute:02}")),
        ("05", format!("{second:02}")),
        ("06", format!("{:02}", year % 100)),
        ("15", format!("{hour:02}")),
        ("_2", format!("{day:2}")),
        ("PM", if hour < 12 { "AM" } else { "PM" }.to_owned()),
        ("pm", if hour < 12 { "am" } else { "pm" }.to_owned()),
        ("Z07:00", "Z".to_owned()),
        ("Z0700", "Z".to_owned()),
        ("Z07", "Z".to_owned()),
        ("-07:00:00", "+00:00:00".to_owned()),
        ("-07:00", "+00:00".to_owned()),
        ("-0700", "+0000".to_owned()),
        ("-07", "+00".to_owned()),
        ("1", month.to_string()),
        ("2", day.to_string()),
        ("3", twelve.to_string()),
        ("4", minute.to_string()),
        ("5", second.to_string()),
    ];
    let mut out = String::new();
    let mut rest = layout;
    while let Some(c) = rest.chars().next() {
        if let Some((fraction, after)) = fraction(rest, nanoseconds) {
            out.push_str(&fraction);
            rest = after;
            continue;
        }
        let part = parts.iter().find_map(|(reference, value)| rest.strip_prefix(reference).map(|after| (after, value)));
        match part {
            Some((after, value)) => {
                out.push_str(value);
                rest = after;
            }
            None => {
                out.push(c);
                rest = rest.get(c.len_utf8()..).unwrap_or("");
            }
        }
    }
    out
}

/// `.000` or `,999`, which no further digit follows.
fn fraction(rest: &str, nanoseconds: u32) -> Option<(String, &str)> {
    let sign = rest.chars().next().filter(|c| matches!(c, '.' | ','))?;
    let after = rest.get(1..)?;
    let digit = after.chars().next().filter(|c| matches!(c, '0' | '9'))?;
    let count = after.len() - after.trim_start_matches(digit).len();
    let behind = after.get(count..)?;
    if behind.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let digits = format!("{nanoseconds:09}");
    let digits = digits.get(..count.min(9)).unwrap_or("");
    if digit == '9' {
        let trimmed = digits.trim_end_matches('0');
        let shown = if trimmed.is_empty() { String::new() } else { format!("{sign}{trimmed}") };
        return Some((shown, behind));
    }
    Some((format!("{sign}{digits:0<count$}"), behind))
}

/// Days since 1970 of the first of January.
fn days_before(year: i64) -> i64 {
    let before = year - 1;
    before * 365 + before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400) - 719_162
}
