//! Times as people write and read them.

use super::follow;
use crate::jobspec::cron::Zone;
use crate::jobspec::quantity::parse_duration;
use crate::model::moment::moment;
use crate::model::units::{Nanos, Timestamp};

/// `10m`: so long ago; or a time, RFC 3339.
pub fn since(text: &str) -> Result<Timestamp, String> {
    if let Some(time) = moment(text) {
        return Ok(time);
    }
    match parse_duration(text) {
        Ok(ago) => Ok(Timestamp(follow::now().0.saturating_sub(Nanos::from_duration(ago).0))),
        Err(_) => {
            Err("write how long ago, such as 90s, 10m or 2h30m, or a time such as 2026-01-31T12:00:00Z".to_owned())
        }
    }
}

/// Where times are shown in.
pub struct ShownZone(Option<Zone>);

impl ShownZone {
    /// The user's own (`TZ`, else that of the host), or UTC.
    pub fn new(utc: bool) -> ShownZone {
        ShownZone(if utc { None } else { Zone::named("Local") })
    }

    /// `12:04:31.250+01:00`; `12:04:31.250Z` in UTC; of another day than that of `now` with its date.
    pub fn moment(&self, t: Timestamp, now: Timestamp) -> String {
        let offset = self.offset(t);
        let (local, today) = (shifted(t, offset), shifted(now, self.offset(now)));
        let date = if local.date() == today.date() { String::new() } else { format!("{} ", local.date()) };
        let zone = match offset {
            0 => "Z".to_owned(),
            _ => {
                let (sign, minutes) = (if offset < 0 { '-' } else { '+' }, offset.unsigned_abs() / 60);
                format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60)
            }
        };
        format!("{date}{}.{:03}{zone}", local.time_of_day(), t.0 / 1_000_000 % 1000)
    }

    fn offset(&self, t: Timestamp) -> i64 {
        let second = i64::try_from(t.0 / 1_000_000_000).unwrap_or(i64::MAX);
        self.0.as_ref().map_or(0, |zone| zone.offset_seconds(second))
    }
}

fn shifted(t: Timestamp, seconds: i64) -> Timestamp {
    let nanos = seconds.unsigned_abs().saturating_mul(1_000_000_000);
    Timestamp(if seconds < 0 { t.0.saturating_sub(nanos) } else { t.0.saturating_add(nanos) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_has_the_offset_of_its_zone_and_a_date_on_another_day() {
        let noon = moment("2026-07-01T12:00:00.25Z").unwrap();
        let berlin = ShownZone(Zone::named("Europe/Berlin"));
        assert_eq!(berlin.moment(noon, noon), "14:00:00.250+02:00");
        let winter = moment("2026-01-01T23:30:00Z").unwrap();
        assert_eq!(berlin.moment(winter, noon), "2026-01-02 00:30:00.000+01:00");
        assert_eq!(ShownZone(Zone::named("America/St_Johns")).moment(winter, winter), "20:00:00.000-03:30");
        assert_eq!(ShownZone::new(true).moment(noon, noon), "12:00:00.250Z");
    }

    #[test]
    fn since_takes_how_long_ago_and_times() {
        assert_eq!(since("2026-07-01T12:00:00+02:00").unwrap(), moment("2026-07-01T10:00:00Z").unwrap());
        let ago = follow::now().since(since("10m").unwrap()).0;
        assert!((599_000_000_000..660_000_000_000).contains(&ago), "{ago}");
        for wrong in ["", "yesterday", "10", "-5m"] {
            assert!(since(wrong).is_err(), "{wrong}");
        }
    }
}
