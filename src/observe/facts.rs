//! What sources read alike: answers of runtimes in JSON, their times, the environment of a process.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::host::roots::Roots;
use crate::model::units::Timestamp;

/// A larger file is not read.
const LARGEST: u64 = 4 << 20;

/// A file of a runtime's.
pub fn json(path: &Path) -> Option<serde_json::Value> {
    let mut text = Vec::new();
    std::fs::File::open(path).ok()?.take(LARGEST).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// The texts of an object, by their names.
pub fn texts(object: &serde_json::Value) -> BTreeMap<String, String> {
    let entries = object.as_object().into_iter().flatten();
    entries.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
}

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

/// Of the environment of a process of this cgroup, what is wanted and nothing else: it may hold secrets. Empty: no process that
/// lets us look has any of it.
pub fn environment(roots: &Roots, lists: &[PathBuf], wanted: &[&str]) -> BTreeMap<String, String> {
    /// So many processes are asked.
    const ASKED: usize = 8;
    let pids = lists.iter().filter_map(|list| std::fs::read_to_string(list).ok());
    let pids: Vec<u32> =
        pids.flat_map(|text| text.lines().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect();
    for pid in pids.into_iter().take(ASKED) {
        let Ok(bytes) = roots.read_proc(format!("{pid}/environ")) else { continue };
        let pairs = bytes.split(|b| *b == 0).filter_map(|pair| std::str::from_utf8(pair).ok()?.split_once('='));
        let found: BTreeMap<String, String> = pairs
            .filter(|(name, value)| wanted.contains(name) && !value.is_empty())
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        if !found.is_empty() {
            return found;
        }
    }
    BTreeMap::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_of_runtimes_are_read_to_the_nanosecond_and_never_is_none() {
        let seconds = |n: u64| Some(Timestamp(n * 1_000_000_000));
        for (text, time) in [
            ("1970-01-01T00:00:00Z", seconds(0)),
            ("2000-02-29T12:00:00Z", seconds(951_825_600)),
            ("2026-11-23T06:43:21Z", seconds(1_795_416_201)),
            ("2026-11-23T08:43:21+02:00", seconds(1_795_416_201)),
            ("1970-01-01T00:00:01.5Z", Some(Timestamp(1_500_000_000))),
            ("1970-01-01T00:00:00.123456789Z", Some(Timestamp(123_456_789))),
            ("0001-01-01T00:00:00Z", None),
            ("", None),
            ("soon", None),
            ("2026-13-01T00:00:00Z", None),
        ] {
            assert_eq!(moment(text), time, "{text}");
        }
    }

    #[test]
    fn of_an_environment_only_what_is_wanted_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots { proc: dir.path().to_owned(), sys: dir.path().to_owned() };
        std::fs::create_dir(dir.path().join("7")).unwrap();
        std::fs::write(dir.path().join("7/environ"), b"SECRET=x\0JOB=web\0EMPTY=\0\xff=1\0").unwrap();
        let list = dir.path().join("cgroup.procs");
        std::fs::write(&list, "6\n7\n").unwrap();
        let found = environment(&roots, &[list], &["JOB", "EMPTY", "GROUP"]);
        assert_eq!(found, BTreeMap::from([("JOB".to_owned(), "web".to_owned())]));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9:.TZ+-]{0,36}|.{0,20}") {
            let _ = moment(&text);
        }
    }
}
