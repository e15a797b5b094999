//! Numbers with their unit in the type.

use serde::{Deserialize, Serialize};

/// A duration or a counter of time, in integer nanoseconds: integers stay integers from the kernel file to the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
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
}

/// A moment of the runner's own line of time, which nobody sets (`runner::kept::steady`): nanoseconds, near those of the wall clock
/// where that was never set. Only differences mean something, and only people are told of the wall clock's.
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

/// The unit of a metric: base units only. The name of a metric ends with [`Unit::suffix`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A plain count: no suffix.
    None,
    Bytes,
    Seconds,
    /// Seconds since 1970 (`_timestamp_seconds`).
    TimestampSeconds,
    Ratio,
    Cores,
    Celsius,
    Hertz,
    Joules,
}

impl Unit {
    /// What a metric name in this unit ends with, before `_total`.
    pub fn suffix(self) -> &'static str {
        match self {
            Unit::None => "",
            Unit::Bytes => "_bytes",
            Unit::Seconds => "_seconds",
            Unit::TimestampSeconds => "_timestamp_seconds",
            Unit::Ratio => "_ratio",
            Unit::Cores => "_cores",
            Unit::Celsius => "_celsius",
            Unit::Hertz => "_hertz",
            Unit::Joules => "_joules",
        }
    }
    /// The unit in OTLP's notation (UCUM).
    pub fn ucum(self) -> &'static str {
        match self {
            Unit::None | Unit::Ratio => "1",
            Unit::Bytes => "By",
            Unit::Seconds | Unit::TimestampSeconds => "s",
            Unit::Cores => "{cpu}",
            Unit::Celsius => "Cel",
            Unit::Hertz => "Hz",
            Unit::Joules => "J",
        }
    }
}
