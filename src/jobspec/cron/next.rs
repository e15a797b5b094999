//! When an expression is due next. A time zone is a row of stretches with one offset each; within a stretch local time
//! is plain arithmetic.

use super::expression::{CronExpression, DaysOfMonth, DaysOfWeek};
use super::zone::Zone;

const DAY: i64 = 86_400;
/// The last year that an expression can name.
const LAST_YEAR: i64 = 2099;

pub(super) fn after(expression: &CronExpression, after: i64, zone: &Zone) -> Option<i64> {
    let mut at = after.checked_add(1)?;
    loop {
        let (offset, ends) = zone.stretch(at);
        let local = at.saturating_add(offset);
        if year_of(local.div_euclid(DAY)) > LAST_YEAR {
            return None;
        }
        let limit = ends.map_or(i64::MAX, |ends| ends.saturating_add(offset));
        if let Some(due) = within(expression, local, limit) {
            return Some(due - offset);
        }
        at = ends?;
    }
}

/// The first local second from `local` on, before `limit`.
fn within(expression: &CronExpression, local: i64, limit: i64) -> Option<i64> {
    let mut day = local.div_euclid(DAY);
    let mut second = local.rem_euclid(DAY);
    while day.saturating_mul(DAY) < limit {
        let (year, month, of_month) = civil(day);
        if year > LAST_YEAR {
            return None;
        }
        let first = day - i64::from(of_month) + 1;
        if !expression.has_month(year, month) {
            (day, second) = (first + days_in(year, month), 0);
            continue;
        }
        if expression.has_day(first, days_in(year, month), of_month)
            && let Some(second) = expression.second_of_day(second)
        {
            return Some(day * DAY + second).filter(|due| *due < limit);
        }
        (day, second) = (day + 1, 0);
    }
    None
}

/// The first bit from `from` on.
fn bit(bits: u64, from: i64) -> Option<i64> {
    let left = u32::try_from(from).ok().filter(|from| *from < 64).map_or(0, |from| bits >> from << from);
    (left != 0).then(|| i64::from(left.trailing_zeros()))
}

impl CronExpression {
    fn has_month(&self, year: i64, month: u32) -> bool {
        let has_year = self.years.as_ref().is_none_or(|years| u16::try_from(year).is_ok_and(|y| years.contains(&y)));
        has_year && self.months >> month & 1 == 1
    }

    /// `first`: the first day of the month, in days of the epoch; `day`: from 1.
    fn has_day(&self, first: i64, length: i64, day: u32) -> bool {
        match (&self.days, &self.week) {
            (None, None) => true,
            (Some(days), None) => days.has(first, length, i64::from(day)),
            (None, Some(week)) => week.has(first, length, i64::from(day)),
            (Some(days), Some(week)) => {
                days.has(first, length, i64::from(day)) || week.has(first, length, i64::from(day))
            }
        }
    }

    #[cfg(test)]
    pub(super) fn has_day_for_tests(&self, first: i64, length: i64, day: i64) -> bool {
        self.has_day(first, length, u32::try_from(day).unwrap_or(1))
    }

    fn second_of_day(&self, from: i64) -> Option<i64> {
        let (mut hour, mut minute, mut second) = (from / 3_600, from / 60 % 60, from % 60);
        loop {
            let at = bit(self.hours, hour)?;
            if at > hour {
                (minute, second) = (0, 0);
            }
            hour = at;
            let Some(at) = bit(self.minutes, minute) else {
                (hour, minute, second) = (hour + 1, 0, 0);
                continue;
            };
            if at > minute {
                second = 0;
            }
            minute = at;
            match bit(self.seconds, second) {
                Some(second) => return Some((hour * 60 + minute) * 60 + second),
                None => (minute, second) = (minute + 1, 0),
            }
        }
    }
}

impl DaysOfMonth {
    fn has(&self, first: i64, length: i64, day: i64) -> bool {
        let nearest = |target: i64| nearest_weekday(first, length, target);
        let before_last = |n: &i64| self.before_last >> n & 1 == 1;
        let is_weekday_of = |target: &i64| self.weekdays >> target & 1 == 1;
        self.days >> day & 1 == 1
            || (self.last && day == length)
            || (self.last_weekday && day == nearest(length))
            || (1..=31).filter(before_last).any(|n| day == (length - n).max(1))
            || (1..=length).filter(is_weekday_of).any(|target| day == nearest(target))
    }
}

impl DaysOfWeek {
    fn has(&self, first: i64, length: i64, day: i64) -> bool {
        let of_week = weekday(first + day - 1);
        let is_last = day + 7 > length;
        let number = (day - 1) / 7 + 1;
        let nth = usize::try_from(of_week).map_or(0, |of_week| self.nth[of_week]);
        self.days >> of_week & 1 == 1 || (is_last && self.last >> of_week & 1 == 1) || nth >> number & 1 == 1
    }
}

/// A Saturday's is the Friday before, a Sunday's the Monday after; never in another month.
fn nearest_weekday(first: i64, length: i64, day: i64) -> i64 {
    match weekday(first + day - 1) {
        6 if day > 1 => day - 1,
        6 => day + 2,
        0 if day < length => day + 1,
        0 => day - 2,
        _ => day,
    }
}

/// The epoch began on a Thursday.
fn weekday(day: i64) -> i64 {
    (day + 4).rem_euclid(7)
}

fn days_in(year: i64, month: u32) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn year_of(day: i64) -> i64 {
    civil(day).0
}

/// Year, month and day of a day of the epoch.
///
/// Source: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`.
fn civil(day: i64) -> (i64, u32, u32) {
    let day = day.saturating_add(719_468);
    let era = day.div_euclid(146_097);
    let of_era = day.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let small = |n: i64| u32::try_from(n).unwrap_or(1);
    (year + era * 400 + i64::from(month <= 2), small(month), small(of_month))
}
