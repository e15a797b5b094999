//! Numbers for people. Absent is `-`, never 0.

use crate::model::units::{Nanos, Timestamp};

pub const ABSENT: &str = "-";

pub fn or_absent(text: Option<String>) -> String {
    text.unwrap_or_else(|| ABSENT.to_owned())
}

/// `1023 B`, `1.5 KiB`, `200 MiB`: three digits at least, and no more than needed.
#[allow(clippy::cast_precision_loss)] // for the eye
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut value, mut unit) = (bytes as f64 / 1024.0, 0);
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value < 99.95 { format!("{value:.1} {}", UNITS[unit]) } else { format!("{value:.0} {}", UNITS[unit]) }
}

/// `64.0 of 64.0 MiB`, `512 KiB of 2.0 GiB`.
pub fn part_of(part: u64, whole: u64) -> String {
    let (part, whole) = (bytes(part), bytes(whole));
    let unit = |text: &str| text.split_once(' ').map(|(_, unit)| unit.to_owned());
    match part.split_once(' ') {
        Some((number, own)) if unit(&whole).as_deref() == Some(own) => format!("{number} of {whole}"),
        _ => format!("{part} of {whole}"),
    }
}

/// `340 µs`, `1.2 s`, `3m 05s`, `2h 10m`, `4d 6h`.
#[allow(clippy::cast_precision_loss)] // for the eye
pub fn duration(d: Nanos) -> String {
    let ns = d.0;
    let secs = ns / 1_000_000_000;
    match ns {
        0 => "0 s".to_owned(),
        1..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} µs", ns / 1_000),
        1_000_000..1_000_000_000 => format!("{} ms", ns / 1_000_000),
        _ => match secs {
            0..60 => format!("{:.1} s", (ns / 100_000_000) as f64 / 10.0),
            60..3600 => format!("{}m {:02}s", secs / 60, secs % 60),
            3600..86_400 => format!("{}h {:02}m", secs / 3600, secs % 3600 / 60),
            _ => format!("{}d {}h", secs / 86_400, secs % 86_400 / 3600),
        },
    }
}

/// `3m 05s ago`; a moment that is not here yet (another clock) is `now`.
pub fn ago(then: Timestamp, now: Timestamp) -> String {
    match now.since(then) {
        Nanos(0..1_000_000) => "now".to_owned(),
        d => format!("{} ago", duration(d)),
    }
}

/// `37 %`, `0.4 %`.
pub fn percent_of(ratio: f64) -> String {
    let percent = ratio * 100.0;
    if percent < 9.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// `12:04:31`, in UTC.
pub fn time_of_day(t: Timestamp) -> String {
    t.time_of_day()
}

/// `2026-11-21 12:04:31`, in UTC.
pub fn date_and_time(t: Timestamp) -> String {
    format!("{} {}", t.date(), t.time_of_day())
}

/// `12:04:31.250`, in UTC; of another day than that of `now` with its date.
pub fn moment(t: Timestamp, now: Timestamp) -> String {
    let date = if t.date() == now.date() { String::new() } else { format!("{} ", t.date()) };
    format!("{date}{}.{:03}", t.time_of_day(), t.0 / 1_000_000 % 1000)
}

/// `1 alloc`, `3 allocs`.
pub fn count(n: usize, one: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_short_and_have_their_unit() {
        for (n, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (200 << 20, "200 MiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(bytes(n), text);
        }
    }

    #[test]
    fn a_part_shares_the_unit_of_its_whole_where_they_have_one() {
        assert_eq!(part_of(64 << 20, 64 << 20), "64.0 of 64.0 MiB");
        assert_eq!(part_of(512 << 10, 2 << 30), "512 KiB of 2.0 GiB");
        assert_eq!(part_of(0, 0), "0 of 0 B");
    }

    #[test]
    fn durations_are_short_and_have_their_unit() {
        for (ns, text) in [
            (0, "0 s"),
            (999, "999 ns"),
            (340_000, "340 µs"),
            (50_000_000, "50 ms"),
            (1_250_000_000, "1.2 s"),
            (59_999_999_999, "59.9 s"),
            (185_000_000_000, "3m 05s"),
            (7_800_000_000_000, "2h 10m"),
            (367_200_000_000_000, "4d 6h"),
        ] {
            assert_eq!(duration(Nanos(ns)), text);
        }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (secs, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_795_255_471, "2026-11-21 10:04:31"),
            (4_107_542_399, "2100-02-28 23:59:59"),
        ] {
            assert_eq!(date_and_time(Timestamp(secs * 1_000_000_000)), text);
        }
    }

    #[test]
    fn a_moment_of_another_day_has_its_date() {
        let at = |secs: u64| Timestamp(secs * 1_000_000_000 + 7_000_000);
        let (midnight, now) = (1_795_219_200, at(1_795_255_471));
        assert_eq!(moment(at(midnight), now), "00:00:00.007");
        assert_eq!(moment(at(midnight - 1), now), "2026-11-20 23:59:59.007");
        assert_eq!(moment(at(midnight + 86_400), now), "2026-11-22 00:00:00.007", "of a clock that went back");
    }

    #[test]
    fn shares_are_in_percent() {
        assert_eq!(percent_of(0.0), "0.0 %");
        assert_eq!(percent_of(1.0 / 3.0), "33 %");
        assert_eq!(percent_of(2.5), "250 %");
    }

    proptest! {
        #[test]
        fn no_number_panics_or_prints_nothing(n in any::<u64>()) {
            prop_assert!(!bytes(n).is_empty() && !duration(Nanos(n)).is_empty());
            prop_assert!(!date_and_time(Timestamp(n)).is_empty());
        }
    }
}
