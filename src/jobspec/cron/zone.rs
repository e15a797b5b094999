//! Time zones by their names: of the host's database, else of the one in this program.

use jiff::Timestamp;
use jiff::tz::TimeZone;

#[derive(Debug, Clone)]
pub struct Zone(TimeZone);

impl Zone {
    /// An IANA name as the database spells it; `UTC`; `Local`, the host's own. Empty: UTC.
    pub fn named(name: &str) -> Option<Zone> {
        match name {
            "" | "UTC" => Some(Zone(TimeZone::UTC)),
            "Local" => Some(Zone(TimeZone::try_system().unwrap_or(TimeZone::UTC))),
            _ => TimeZone::get(name).ok().filter(|zone| zone.iana_name() == Some(name)).map(Zone),
        }
    }

    /// The offset from UTC at a second of the Unix epoch.
    pub fn offset_seconds(&self, at: i64) -> i64 {
        self.stretch(at).0
    }

    /// The offset from UTC at a second of the Unix epoch, and the second from which on another one holds; `None`:
    /// never.
    pub(super) fn stretch(&self, at: i64) -> (i64, Option<i64>) {
        // What is no moment of the calendar has no year that an expression can name.
        let Ok(moment) = Timestamp::from_second(at) else { return (0, None) };
        let offset = i64::from(self.0.to_offset(moment).seconds());
        let ends = self.0.following(moment).map(|change| change.timestamp().as_second()).find(|ends| *ends > at);
        (offset, ends)
    }
}
