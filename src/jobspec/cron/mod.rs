//! Cron expressions as Nomad takes them, and when they are due in a time zone. Pure, but for the time zone database.
//!
//! ```text
//! 5 fields         minute hour day-of-month month day-of-week
//! 6 fields         the same, and a year
//! 7 fields or more second before them, year after them; what follows is ignored
//! @yearly @annually @monthly @weekly @daily @hourly
//! ```
//! Source: the README of `hashicorp/cronexpr`. Where day of month and day of week are both restricted, either is
//! enough.

mod expression;
mod fields;
mod next;
mod zone;

pub use expression::CronExpression;
pub use zone::Zone;

impl CronExpression {
    /// Errors: it is none: what of it, and what would be right.
    pub fn parse(text: &str) -> Result<CronExpression, String> {
        fields::parse(text)
    }

    /// The first moment after `after` at which it is due, both in seconds of the Unix epoch; `None`: not before the
    /// year 2100. Local times that a change of the clock skips are never due; those that it repeats are due twice.
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
