//! Numbers with their unit in the type.

use serde::{Deserialize, Serialize};

use super::words;

/// A duration or a counter of time, in integer nanoseconds: integers stay integers from the kernel file to the text.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    pub const ZERO: Nanos = Nanos(0);

    pub fn from_micros(micros: u64) -> Nanos {
        Nanos(micros.saturating_mul(1_000))
    }
    pub fn from_secs(secs: u64) -> Nanos {
        Nanos(secs.saturating_mul(1_000_000_000))
    }
    /// A `Duration` of more than 584 years saturates.
    pub fn from_duration(d: std::time::Duration) -> Nanos {
        Nanos(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
    }
    pub fn as_duration(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0)
    }
    pub fn saturating_add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
    pub fn saturating_sub(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }
    /// For drawing only; never for exposition, which prints the integer.
    #[allow(clippy::cast_precision_loss)]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

/// A moment of the wall clock: nanoseconds since 1970-01-01 UTC.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    pub fn since(self, earlier: Timestamp) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
    pub fn plus(self, d: Nanos) -> Timestamp {
        Timestamp(self.0.saturating_add(d.0))
    }
    pub fn from_system(t: std::time::SystemTime) -> Timestamp {
        let d = t.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
    }
    pub fn as_system(self) -> std::time::SystemTime {
        std::time::UNIX_EPOCH + std::time::Duration::from_nanos(self.0)
    }
    /// `2026-11-21`, in UTC.
    ///
    /// Source: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`.
    pub fn date(self) -> String {
        let days = self.0 / 1_000_000_000 / 86_400 + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
        let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
        let year = year_of_era + era * 400 + u64::from(month <= 2);
        format!("{year:04}-{month:02}-{day:02}")
    }
    /// `12:04:31`, in UTC: the local time zone needs a database that may not be there.
    pub fn time_of_day(self) -> String {
        let secs = self.0 / 1_000_000_000 % 86_400;
        format!("{:02}:{:02}:{:02}", secs / 3600, secs % 3600 / 60, secs % 60)
    }
    /// `2026-11-21T12:04:31.000000001Z`.
    pub fn rfc3339(self) -> String {
        format!("{}T{}.{:09}Z", self.date(), self.time_of_day(), self.0 % 1_000_000_000)
    }
}

/// A moment of the runner's own clock, which cannot be set (`runner::persistence::steady_clock`): nanoseconds, near
/// those of the wall clock where that was never set. Only differences mean something. People see times of the wall
/// clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Steady(pub u64);

impl Steady {
    /// None at all, where that is later.
    pub fn since(self, earlier: Steady) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
    pub fn plus(self, d: Nanos) -> Steady {
        Steady(self.0.saturating_add(d.0))
    }
}

/// A limit as the kernel prints it: a number, or `max` (no limit).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Limit {
    Max,
    At(u64),
}

impl Limit {
    /// The number, or `None` where there is no limit (then there is no series either).
    pub fn finite(self) -> Option<u64> {
        match self {
            Limit::Max => None,
            Limit::At(n) => Some(n),
        }
    }
}

words! {
    /// The unit of a metric: base units only. The name of a metric ends in it.
    pub enum Unit {
        /// A plain count.
        None = "none",
        Bytes = "bytes",
        Seconds = "seconds",
        /// Seconds since 1970.
        TimestampSeconds = "timestamp_seconds",
        Ratio = "ratio",
        Cores = "cores",
        Celsius = "celsius",
        Hertz = "hertz",
        Joules = "joules",
        Watts = "watts",
    }
}
