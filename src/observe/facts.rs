//! Helpers shared by sources: JSON of runtimes, timestamps, process environments.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use crate::host::roots::Roots;
use crate::host::untrusted::{self, RuntimeDirectory};

pub use crate::model::bounded_json::{parse, parse_all};
pub use crate::model::moment::moment;

/// Larger responses and files of a runtime are not read.
pub const LARGEST: usize = 4 << 20;

/// Reads a JSON file beneath a runtime's directory.
pub fn json(directory: &Path, components: &[&str]) -> Option<serde_json::Value> {
    let text = RuntimeDirectory::open(directory).and_then(|directory| directory.read(components, LARGEST));
    match text {
        Ok(text) => parse(&text),
        Err(error) => {
            tracing::debug!(directory = %directory.display(), %error, "cannot read runtime file");
            None
        }
    }
}

/// The string fields of an object.
pub fn texts(object: &serde_json::Value) -> BTreeMap<String, String> {
    let entries = object.as_object().into_iter().flatten();
    entries.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
}

/// Reads the wanted variables from the environment of a process in this cgroup or below; others may hold secrets and
/// are ignored. Empty: no readable process has any of them. `cgroups`: the cgroup's directory in each hierarchy.
pub fn environment(roots: &Roots, cgroups: &[PathBuf], names: &'static [&'static str]) -> BTreeMap<String, String> {
    /// Maximum number of processes, and of cgroups, to check.
    const MAX_CHECKED: usize = 8;
    const MAX_CGROUPS: usize = 64;
    /// Bytes to read from a list of processes; more than are checked.
    const LIST: usize = 4 << 10;
    let (mut left, mut checked) = (VecDeque::from(cgroups.to_vec()), BTreeSet::new());
    let mut cgroups_checked = 0;
    while let Some(cgroup) = left.pop_front() {
        cgroups_checked += 1;
        let list = untrusted::read_start(&cgroup.join("cgroup.procs"), LIST).unwrap_or_default();
        let pids = list.split(|b| *b == b'\n').filter_map(|pid| std::str::from_utf8(pid).ok()?.parse::<u32>().ok());
        for pid in pids {
            if checked.len() == MAX_CHECKED {
                return BTreeMap::new();
            }
            if !checked.insert(pid) {
                continue;
            }
            match untrusted::environment(&roots.proc(pid.to_string()), names) {
                Ok(values) if values.is_empty() => {}
                Ok(values) => return values,
                // The other processes of the cgroup belong to the same user and would time out as well.
                Err(error) if error.kind() == std::io::ErrorKind::TimedOut => return BTreeMap::new(),
                // It ended or cannot be read.
                Err(_) => {}
            }
        }
        let room = MAX_CGROUPS.saturating_sub(cgroups_checked + left.len());
        left.extend(directories(&cgroup).into_iter().take(room));
    }
    BTreeMap::new()
}

/// Subdirectories, sorted.
pub fn directories(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut directories: Vec<PathBuf> = directories.map(|entry| entry.path()).collect();
    directories.sort_unstable();
    directories
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::units::Timestamp;
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
    fn process_environment_is_read_for_the_requested_variables_only() {
        let dir = tempfile::tempdir().unwrap();
        let (roots, step) = (Roots::below(dir.path()), dir.path().join("step"));
        std::fs::create_dir_all(roots.proc("7")).unwrap();
        std::fs::write(roots.proc("7/environ"), b"SECRET=x\0JOB=web\0EMPTY=\0\xff=1\0").unwrap();
        std::fs::create_dir_all(step.join("user/task_0")).unwrap();
        let values = |list: &str, pids: &str| {
            std::fs::write(step.join(list), pids).unwrap();
            environment(&roots, &[dir.path().join("nowhere"), step.clone()], &["JOB", "EMPTY", "GROUP"])
        };
        let job = BTreeMap::from([("JOB".to_owned(), "web".to_owned())]);
        assert_eq!(values("cgroup.procs", "6\n7\n"), job);
        assert_eq!(values("cgroup.procs", "1\n2\n3\n4\n5\n6\n8\n9\n7\n"), BTreeMap::new(), "not thousands are asked");
        assert_eq!(values("cgroup.procs", ""), BTreeMap::new());
        assert_eq!(values("user/task_0/cgroup.procs", "7\n"), job, "where those above hold none");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9:.TZ+-]{0,36}|.{0,20}") {
            let _ = moment(&text);
        }
    }
}
