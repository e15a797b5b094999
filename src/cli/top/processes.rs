//! The processes of one task, read on this host: `/proc` says of them what the agent's samples add up.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::param::clock_ticks_per_second;

use crate::cli::output::printable;
use crate::host::hierarchy::Layout;
use crate::host::process;
use crate::host::roots::Roots;
use crate::host::untrusted;
use crate::kernel::cgroup::procs;
use crate::kernel::proc::{pid_stat, pid_status};

/// So many are looked at, in so many cgroups.
const MOST_PROCESSES: usize = 2_000;
const MOST_CGROUPS: usize = 500;
/// Of a list of processes, of a file of one process, and of a command line.
const LONGEST_LIST: usize = 1 << 20;
const LONGEST_FILE: usize = 64 << 10;
const LONGEST_COMMAND: usize = 4 << 10;

/// One process.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessLine {
    pub pid: u32,
    /// A name, or the UID of a user without one.
    pub user: String,
    /// Fit for a terminal.
    pub command: String,
    pub rss: Option<u64>,
    pub peak: Option<u64>,
    /// Since the look before; absent at the first.
    pub cpu_cores: Option<f64>,
    pub threads: Option<u64>,
}

/// Reads them again and again.
pub struct ProcessReader {
    roots: Roots,
    /// `None`: this host shows no cgroups.
    layout: Option<Layout>,
    /// CPU time of each, by PID and start, in ticks.
    before: BTreeMap<(u32, u64), (Instant, u64)>,
    users: BTreeMap<u32, String>,
}

impl ProcessReader {
    pub fn new(roots: Roots) -> ProcessReader {
        let layout = Layout::detect(&roots).ok();
        ProcessReader { roots, layout, before: BTreeMap::new(), users: BTreeMap::new() }
    }

    /// The processes in a cgroup and below it, the largest first.
    ///
    /// Errors: why there are none to be shown.
    pub fn read(&mut self, cgroup: &str, now: Instant) -> Result<Vec<ProcessLine>, String> {
        let directory = self.directory(cgroup).ok_or("its cgroup is not on this host")?;
        let mut pids = Vec::new();
        collect(&directory, &mut pids, &mut 0);
        pids.truncate(MOST_PROCESSES);
        let before = std::mem::take(&mut self.before);
        let mut all: Vec<ProcessLine> = pids.iter().filter_map(|pid| self.process(*pid, now, &before)).collect();
        all.sort_by_key(|line| (std::cmp::Reverse(line.rss), line.pid));
        Ok(all)
    }

    /// A path that an agent named leads to nowhere else.
    fn directory(&self, cgroup: &str) -> Option<PathBuf> {
        let is_plain = cgroup.starts_with('/') && cgroup.split('/').all(|part| part != ".." && part != ".");
        let hierarchies = self.layout.iter().filter(|_| is_plain).flat_map(Layout::placements);
        hierarchies.map(|hierarchy| hierarchy.directory(cgroup)).find(|directory| directory.is_dir())
    }

    /// `None`: it has ended.
    fn process(
        &mut self,
        pid: u32,
        now: Instant,
        before: &BTreeMap<(u32, u64), (Instant, u64)>,
    ) -> Option<ProcessLine> {
        let directory = self.roots.proc(pid.to_string());
        let read = |file: &str| untrusted::read_start(&directory.join(file), LONGEST_FILE).ok();
        let stat_text = read("stat")?;
        let stat = pid_stat::parse(&stat_text).ok()?;
        let (status, _) = pid_status::parse(&read("status")?);
        let ticks = stat.user_ticks.saturating_add(stat.system_ticks);
        let id = (pid, stat.start_ticks);
        self.before.insert(id, (now, ticks));
        let earlier = before.get(&id).filter(|(at, _)| now > *at);
        let cpu_cores = earlier.and_then(|(at, earlier)| cores(ticks.checked_sub(*earlier)?, *at, now));
        Some(ProcessLine {
            pid,
            user: status.uid.map_or_else(|| "-".to_owned(), |uid| self.user(uid)),
            command: command(&directory, &stat_text),
            rss: status.rss_bytes,
            peak: status.peak_rss_bytes,
            cpu_cores,
            threads: status.threads,
        })
    }

    fn user(&mut self, uid: u32) -> String {
        let name = || process::account(&uid.to_string()).map_or_else(|_| uid.to_string(), |account| account.name);
        self.users.entry(uid).or_insert_with(|| printable(&name())).clone()
    }
}

#[allow(clippy::cast_precision_loss, reason = "for the eye")]
fn cores(ticks: u64, from: Instant, to: Instant) -> Option<f64> {
    let seconds = to.duration_since(from).as_secs_f64();
    (seconds > 0.0).then(|| ticks as f64 / clock_ticks_per_second() as f64 / seconds)
}

/// Its command line; of one without, its name in brackets, as ps(1) shows it.
fn command(directory: &Path, stat: &[u8]) -> String {
    let line = untrusted::memory(directory, "cmdline", LONGEST_COMMAND).unwrap_or_default();
    let text = String::from_utf8_lossy(&line);
    let words: Vec<&str> = text.split('\0').filter(|word| !word.is_empty()).collect();
    if words.is_empty() {
        return format!("[{}]", printable(&pid_stat::command(stat).unwrap_or_default()));
    }
    printable(&words.join(" "))
}

/// The processes of a cgroup and of those below it.
fn collect(directory: &Path, pids: &mut Vec<u32>, visited: &mut usize) {
    *visited += 1;
    if *visited > MOST_CGROUPS || pids.len() >= MOST_PROCESSES {
        return;
    }
    let list = untrusted::read_start(&directory.join("cgroup.procs"), LONGEST_LIST).unwrap_or_default();
    let _ = procs::pids("cgroup.procs", &list, pids);
    let below = std::fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        collect(&entry.path(), pids, visited);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MOUNTS: &str = "22 21 0:5 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";

    fn stat(pid: u32, ticks: u64) -> String {
        format!("{pid} (a b) S 1 1 1 0 -1 0 1 0 2 0 {ticks} 0 0 0 20 0 3 0 77 1 5 0\n")
    }

    fn host(files: &[(&str, String)]) -> (tempfile::TempDir, ProcessReader) {
        let dir = tempfile::tempdir().unwrap();
        let all =
            [("proc/self/mountinfo", MOUNTS.to_owned()), ("sys/fs/cgroup/cgroup.controllers", "cpu\n".to_owned())];
        for (path, text) in all.iter().chain(files) {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let reader = ProcessReader::new(Roots::below(dir.path()));
        (dir, reader)
    }

    #[test]
    fn processes_of_a_cgroup_and_below_it_are_listed_with_clean_commands_and_rates() {
        let status =
            |kib: u64| format!("Uid:\t0\t4000000\t0\t0\nVmHWM:\t{} kB\nVmRSS:\t{kib} kB\nThreads:\t2\n", kib * 2);
        let (dir, mut reader) = host(&[
            ("sys/fs/cgroup/a/cgroup.procs", "7\n99\n".to_owned()),
            ("sys/fs/cgroup/a/below/cgroup.procs", "8\n".to_owned()),
            ("proc/7/stat", stat(7, 0)),
            ("proc/7/status", status(10)),
            ("proc/7/cmdline", "sh\0-c\0\u{1b}[2Jx\0".to_owned()),
            ("proc/8/stat", stat(8, 0)),
            ("proc/8/status", status(20)),
            ("proc/8/cmdline", String::new()),
        ]);
        let now = Instant::now();
        let first = reader.read("/a", now).unwrap();
        assert_eq!(first.iter().map(|line| line.pid).collect::<Vec<_>>(), [8, 7], "99 has ended: {first:?}");
        assert_eq!((first[0].command.as_str(), first[0].user.as_str()), ("[a b]", "4000000"));
        assert_eq!((first[1].rss, first[1].peak, first[1].threads), (Some(10 << 10), Some(20 << 10), Some(2)));
        assert!(first[1].command.starts_with("sh -c ") && !first[1].command.contains('\u{1b}'), "{first:?}");
        assert_eq!(first[1].cpu_cores, None, "there was no look before");
        std::fs::write(dir.path().join("proc/7/stat"), stat(7, clock_ticks_per_second())).unwrap();
        let second = reader.read("/a", now + Duration::from_secs(2)).unwrap();
        assert_eq!((second[0].cpu_cores, second[1].cpu_cores), (Some(0.0), Some(0.5)));
    }

    #[test]
    fn a_path_out_of_the_hierarchy_is_no_cgroup() {
        let (_dir, mut reader) = host(&[("sys/fs/cgroup/a/cgroup.procs", "7\n".to_owned())]);
        for path in ["/../a", "a", "/a/../a", "/nowhere"] {
            assert!(reader.read(path, Instant::now()).is_err(), "{path}");
        }
        assert_eq!(reader.read("/a", Instant::now()), Ok(Vec::new()));
    }
}
