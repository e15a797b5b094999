//! A cron expression as it was understood.

use std::collections::BTreeSet;

/// An expression that was understood. A bit is set for each value that matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CronExpression {
    pub(super) seconds: u64,
    pub(super) minutes: u64,
    pub(super) hours: u64,
    pub(super) months: u64,
    pub(super) days: Option<DaysOfMonth>,
    pub(super) week: Option<DaysOfWeek>,
    /// `None`: every year.
    pub(super) years: Option<BTreeSet<u16>>,
}

/// `*` restricts nothing, and is `None` above.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DaysOfMonth {
    pub(super) days: u64,
    /// `15W`: the weekday nearest to it, within the month.
    pub(super) weekdays: u64,
    /// `L`
    pub(super) last: bool,
    /// `LW`
    pub(super) last_weekday: bool,
    /// `L-3`: so many days before the last.
    pub(super) before_last: u64,
}

/// Sunday is 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DaysOfWeek {
    pub(super) days: u64,
    /// `5L`: the last Friday of the month.
    pub(super) last: u64,
    /// `5#3`: the third Friday; of each day of the week the numbers 1 to 5.
    pub(super) nth: [u64; 7],
}
