//! Software RAID of the host. Source: `/sys/block/md*/md/{raid_disks,degraded}`, `dev-*/state`.
//!
//! Shape: three values of each array, at most [`MOST`].

use std::borrow::Cow;
use std::path::Path;

use crate::collectors::{CollectError, Collector};
use crate::host::roots::{ReadError, Roots};
use crate::host::untrusted;
use crate::kernel::text::{single, trim};
use crate::model::metric::{MetricDesc, Samples, Value};
use crate::model::units::Unit;

const MOST: usize = 64;
/// The kernel's limit for one array (format 1.x) is higher; more are not counted.
const MOST_MEMBERS: usize = 384;
const LARGEST_FILE: usize = 4096;

static DISKS: MetricDesc =
    gauge("allostat_host_raid_disks", "Disks that a software RAID array consists of when whole.")
        .from_source("/sys/block/*/md/raid_disks")
        .otlp("allostat.host.raid.disks", "{disk}");

static DEGRADED: MetricDesc = gauge(
    "allostat_host_raid_degraded_disks",
    "Disks that a software RAID array lacks: failed, removed or rebuilding.",
)
.from_source("/sys/block/*/md/degraded")
.otlp("allostat.host.raid.degraded_disks", "{disk}");

static FAILED: MetricDesc =
    gauge("allostat_host_raid_failed_disks", "Members of a software RAID array that the kernel marked faulty.")
        .from_source("/sys/block/*/md/dev-*/state")
        .otlp("allostat.host.raid.failed_disks", "{disk}");

static METRICS: &[&MetricDesc] = &[&DISKS, &DEGRADED, &FAILED];

const fn gauge(name: &'static str, help: &'static str) -> MetricDesc {
    MetricDesc::gauge(name, Unit::None, help, &["disk"])
        .absent_when("the array has no redundancy (raid0, linear), the host has no software RAID, or 64 are exposed")
}

/// State of the host's software RAID arrays.
#[derive(Debug)]
pub(super) struct RaidCollector;

impl Collector for RaidCollector {
    fn name(&self) -> &'static str {
        "raid"
    }
    fn metrics(&self) -> &'static [&'static MetricDesc] {
        METRICS
    }
    fn collect(&mut self, roots: &Roots, out: &mut Samples) -> Result<(), CollectError> {
        let block = roots.sys.join("block");
        let names = directory(&block, |name| name.starts_with("md"), MOST)?;
        if names.is_empty() {
            return Err(CollectError::Absent("this host has no software RAID".to_owned()));
        }
        let mut result = Ok(());
        let mut arrays = Vec::new();
        for name in names {
            match array(&block.join(&name).join("md")) {
                Ok(Some(counts)) => arrays.push((name, counts)),
                Ok(None) => {}
                Err(error) => result = Err(error),
            }
        }
        for (place, desc) in [&DISKS, &DEGRADED, &FAILED].into_iter().enumerate() {
            for (name, counts) in &arrays {
                out.push_owned(desc, vec![Cow::Owned(name.clone())], Value::Int(counts[place]));
            }
        }
        result
    }
}

/// Names in a directory in their order; none where it is absent.
fn directory(path: &Path, accepts: impl Fn(&str) -> bool, most: usize) -> Result<Vec<String>, CollectError> {
    let entries = match std::fs::read_dir(path).map_err(|e| ReadError::new(path, e)) {
        Ok(entries) => entries,
        Err(ReadError::Absent { .. } | ReadError::Vanished { .. }) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| accepts(name)).collect();
    names.sort();
    names.truncate(most);
    Ok(names)
}

/// Disks, missing ones, faulty ones. `None`: an array without redundancy, or one that is gone.
fn array(md: &Path) -> Result<Option<[u64; 3]>, CollectError> {
    let (Some(disks), Some(degraded)) = (number(md, "raid_disks")?, number(md, "degraded")?) else { return Ok(None) };
    let mut failed = 0;
    for member in directory(md, |name| name.starts_with("dev-"), MOST_MEMBERS)? {
        // `faulty,blocked` and the like; a member may go at any moment.
        let state = untrusted::read(&md.join(member).join("state"), LARGEST_FILE).unwrap_or_default();
        let line = state.split(|b| *b == b'\n').next().unwrap_or_default();
        failed += u64::from(line.split(|b| *b == b',').any(|word| trim(word) == b"faulty"));
    }
    Ok(Some([disks, degraded, failed]))
}

fn number(md: &Path, name: &'static str) -> Result<Option<u64>, CollectError> {
    let path = md.join(name);
    match untrusted::read(&path, LARGEST_FILE).map_err(|e| ReadError::new(path, e)) {
        Ok(bytes) => {
            // While an array is reshaped: the new number, and the old one in parentheses.
            let first = trim(&bytes).split(u8::is_ascii_whitespace).next().unwrap_or_default();
            Ok(Some(single(name, first)?))
        }
        Err(ReadError::Absent { .. } | ReadError::Vanished { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{host, lines};
    use super::*;

    fn lines_of(files: &[(&str, &str)]) -> (Vec<String>, bool) {
        let (_dir, roots) = host(files);
        let mut out = Samples::default();
        let is_ok = RaidCollector.collect(&roots, &mut out).is_ok();
        (lines(&out), is_ok)
    }

    #[test]
    fn missing_and_faulty_disks_of_each_array_are_counted() {
        let (found, is_ok) = lines_of(&[
            ("sys/block/md0/md/raid_disks", "2\n"),
            ("sys/block/md0/md/degraded", "1\n"),
            ("sys/block/md0/md/dev-sda1/state", "in_sync\n"),
            ("sys/block/md0/md/dev-sdb1/state", "faulty,blocked\n"),
            ("sys/block/md1/md/raid_disks", "4 (3)\n"),
            ("sys/block/md1/md/degraded", "0\n"),
            ("sys/block/md2/md/raid_disks", "2\n"),
            ("sys/block/sda/size", "1\n"),
        ]);
        let expected = [
            "raid_disks{md0} Int(2)",
            "raid_disks{md1} Int(4)",
            "raid_degraded_disks{md0} Int(1)",
            "raid_degraded_disks{md1} Int(0)",
            "raid_failed_disks{md0} Int(1)",
            "raid_failed_disks{md1} Int(0)",
        ];
        assert!(is_ok);
        assert_eq!(found, expected, "md2 has no redundancy to lose");
    }

    proptest! {
        /// Words, lines, members and arrays that no kernel of today has, beside those that it has.
        ///
        /// Promise (Observed workloads): Unknown lines, words and files cost only themselves in every parser of the
        /// kernel's text
        #[test]
        fn malformed_raid_rows_words_and_names_affect_only_themselves(
            word in "new[ -+.-~]{0,9}", line in "[ -~]{0,20}", name in "[a-z0-9_.~-]{1,20}"
        ) {
            let good = [
                ("sys/block/md0/md/raid_disks", "3\n"),
                ("sys/block/md0/md/degraded", "2\n"),
                ("sys/block/md0/md/dev-sda1/state", "in_sync\n"),
                ("sys/block/md0/md/dev-sdb1/state", "faulty,blocked\n"),
                ("sys/block/md0/md/dev-sdc1/state", "blocked,faulty\n"),
            ];
            let expected = lines_of(&good);
            prop_assert_eq!(&expected.0[2], "raid_failed_disks{md0} Int(2)");
            let states = [format!("in_sync,{word}\n{line}\n"), format!("{word},faulty,{word}\n"), format!("faulty\n{line}\n")];
            let member = format!("sys/block/md0/md/new-{name}/state");
            let new_file = format!("sys/block/md0/md/new.{name}");
            let array = format!("sys/block/new-{name}/md/raid_disks");
            let odd = [
                (good[0].0, format!("3 (2) {word}\n{line}\n")),
                (good[1].0, format!("2\n{line}\n")),
                (good[2].0, states[0].clone()),
                (good[3].0, states[1].clone()),
                (good[4].0, states[2].clone()),
                (&*member, "faulty\n".to_owned()),
                (&*new_file, line.clone()),
                (&*array, line.clone()),
            ];
            let odd: Vec<(&str, &str)> = odd.iter().map(|(path, text)| (*path, text.as_str())).collect();
            prop_assert_eq!(lines_of(&odd), expected, "{:?}", odd);
        }
    }

    #[test]
    fn malformed_raid_array_is_an_error_and_affects_no_other() {
        let (found, is_ok) = lines_of(&[
            ("sys/block/md0/md/raid_disks", "two\n"),
            ("sys/block/md0/md/degraded", "1\n"),
            ("sys/block/md1/md/raid_disks", "4\n"),
            ("sys/block/md1/md/degraded", "0\n"),
        ]);
        assert!(!is_ok);
        assert_eq!(found.len(), 3);
    }
}
