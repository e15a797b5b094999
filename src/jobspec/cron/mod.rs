//! Cron expressions as Nomad takes them, and when they are due in a time zone. Pure, but for the time zone database.
//!
//! ```text
//! 5 fields         minute hour day-of-month month day-of-week
//! 6 fields         the same, and a year
//! 7 fields or more second before them, year after them; what follows is ignored
//! @yearly @annually @monthly @weekly @daily @hourly
//! ```
//! Source: the README of `hashicorp/cronexpr`. Where day of month and day of week are both restricted, either is enough.

mod fields;
mod next;
mod zone;

use std::collections::BTreeSet;

pub use zone::Zone;

/// An expression that was understood. A bit is set for each value that matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CronExpression {
    seconds: u64,
    minutes: u64,
    hours: u64,
    months: u64,
    days: Option<DaysOfMonth>,
    week: Option<DaysOfWeek>,
    /// `None`: every year.
    years: Option<BTreeSet<u16>>,
}

/// `*` restricts nothing, and is `None` above.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct DaysOfMonth {
    days: u64,
    /// `15W`: the weekday nearest to it, within the month.
    weekdays: u64,
    /// `L`
    last: bool,
    /// `LW`
    last_weekday: bool,
    /// `L-3`: so many days before the last.
    before_last: u64,
}

/// Sunday is 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct DaysOfWeek {
    days: u64,
    /// `5L`: the last Friday of the month.
    last: u64,
    /// `5#3`: the third Friday; of each day of the week the numbers 1 to 5.
    nth: [u64; 7],
}

impl CronExpression {
    /// Errors: it is none: what of it, and what would be right.
    pub fn parse(text: &str) -> Result<CronExpression, String> {
        fields::parse(text)
    }

    /// The first moment after `after` at which it is due, both in seconds of the Unix epoch; `None`: not before the year 2100. Local
    /// times that a change of the clock skips are never due; those that it repeats are due twice.
    pub fn next_after(&self, after: i64, zone: &Zone) -> Option<i64> {
        next::after(self, after, zone)
    }
}

/// Several expressions in one time zone: due when any of them is.
#[derive(Debug, Clone)]
pub struct CronSchedule {
    expressions: Vec<CronExpression>,
    zone: Zone,
}

impl CronSchedule {
    /// Errors: an expression or the time zone is wrong, in a sentence.
    pub fn parse(crons: &[String], time_zone: &str) -> Result<CronSchedule, String> {
        let expressions = crons.iter().map(|cron| CronExpression::parse(cron)).collect::<Result<_, _>>()?;
        let zone = Zone::named(time_zone).ok_or_else(|| format!("there is no time zone {time_zone:?}"))?;
        Ok(CronSchedule { expressions, zone })
    }
    /// In seconds of the Unix epoch.
    pub fn next_after(&self, after: u64) -> Option<u64> {
        let after = i64::try_from(after).ok()?;
        let next = self.expressions.iter().filter_map(|one| one.next_after(after, &self.zone)).min()?;
        u64::try_from(next).ok()
    }
}

#[cfg(test)]
mod tests;
