//! Moments in text, as container runtimes write them.

use super::units::Timestamp;

/// RFC 3339, as runtimes write it: `2026-01-02T03:04:05.678Z`. `None`: it is none, or before 1970: never.
pub fn moment(text: &str) -> Option<Timestamp> {
    let (date, rest) = text.split_once('T')?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let zone = rest.rfind(['Z', '+', '-'])?;
    let (time, zone) = rest.split_at(zone);
    let offset = match zone {
        "Z" => 0,
        zone => {
            let (hours, minutes) = zone[1..].split_once(':')?;
            let seconds = hours.parse::<i64>().ok()? * 3_600 + minutes.parse::<i64>().ok()? * 60;
            if zone.starts_with('-') { -seconds } else { seconds }
        }
    };
    let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
    let mut time = time.splitn(3, ':').map(|part| part.parse::<i64>().ok());
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    let nanos: u64 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    let possible = (1..=12).contains(&month) && (1..=31).contains(&day) && (1970..3000).contains(&year);
    if !possible || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - offset;
    Some(Timestamp(u64::try_from(seconds).ok()?.checked_mul(1_000_000_000)?.checked_add(nanos)?))
}

/// Since 1970-01-01. Years begin in March here, so that a leap day is the last one.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}
