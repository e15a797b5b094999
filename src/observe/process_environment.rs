//! The environment of the processes of a cgroup, where a batch system names its job.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;

use crate::host::roots::Roots;
use crate::host::untrusted;

/// Reads the wanted variables from the environment of a process in this cgroup or below; others may hold secrets and
/// are ignored. Empty: no readable process has any of them. `cgroups`: the cgroup's directory in each hierarchy.
pub fn read(roots: &Roots, cgroups: &[PathBuf], names: &'static [&'static str]) -> BTreeMap<String, String> {
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
        left.extend(untrusted::subdirectories(&cgroup).into_iter().take(room));
    }
    BTreeMap::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_environment_is_read_for_the_requested_variables_only() {
        let dir = tempfile::tempdir().unwrap();
        let (roots, step) = (Roots::below(dir.path()), dir.path().join("step"));
        std::fs::create_dir_all(roots.proc("7")).unwrap();
        std::fs::write(roots.proc("7/environ"), b"SECRET=x\0JOB=web\0EMPTY=\0\xff=1\0").unwrap();
        std::fs::create_dir_all(step.join("user/task_0")).unwrap();
        let values = |list: &str, pids: &str| {
            std::fs::write(step.join(list), pids).unwrap();
            read(&roots, &[dir.path().join("nowhere"), step.clone()], &["JOB", "EMPTY", "GROUP"])
        };
        let job = BTreeMap::from([("JOB".to_owned(), "web".to_owned())]);
        assert_eq!(values("cgroup.procs", "6\n7\n"), job);
        assert_eq!(values("cgroup.procs", "1\n2\n3\n4\n5\n6\n8\n9\n7\n"), BTreeMap::new(), "not thousands are read");
        assert_eq!(values("cgroup.procs", ""), BTreeMap::new());
        assert_eq!(values("user/task_0/cgroup.procs", "7\n"), job, "where those above hold none");
    }
}
