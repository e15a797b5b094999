//! A host as it was written down, in a directory of a test's own: its cgroups with the kernel's files, and the files of
//! who made them. Composed after what those programs document, with numbers that no two cgroups share: no machine was
//! copied.
//!
//! ```text
//! # a remark                                          what the tools of this host show
//! mounts v2                                           or the controllers of each hierarchy: mounts memory cpu,cpuacct pids
//! cgroup <memory> <peak> <limit> <OOM kills> <CPU time> <pids> <limit> <path> <pid>...
//!                                                     as the kernel's files have them: CPU time in µs, with v1 in ns; `.`: not in that hierarchy
//! process <pid>                                       its environment, a line each
//! file <path>                                         of a runtime; its text
//! last <path>                                         the same, with what the runtime reports of ends
//! shown <alloc> <task>                                what is to be seen of it, and
//!   in <cgroup>                                       whose numbers it has
//!   own <cgroup>                                      the alloc's, if that is another one; `sum`: it has none
//!   ended <outcome>                                   else its outcome is unknown
//!   <label> <value>                                   on allostat_alloc_info, or allostat_task_info
//! ```
//! What is indented belongs to the line above it. `{a1}` is the id of a container: 64 digits.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// One cgroup, in the words of its files; `None`: it is not in that hierarchy.
#[derive(Debug, Clone, Default)]
pub struct Numbers {
    pub memory: Option<u64>,
    pub peak: Option<u64>,
    /// In it and below it.
    pub oom_kills: Option<u64>,
    pub cpu: Option<u64>,
    pub pids: Option<u64>,
    /// `max`, or a number.
    memory_limit: String,
    pids_limit: String,
    processes: Vec<u32>,
}

#[derive(Debug, Default)]
pub struct Shown {
    pub alloc: String,
    pub task: String,
    pub cgroup: String,
    pub own: Option<String>,
    pub outcome: String,
    pub labels: Vec<(String, String)>,
}

#[derive(Debug, Default)]
pub struct Recorded {
    mounts: Vec<String>,
    pub cgroups: BTreeMap<String, Numbers>,
    processes: BTreeMap<u32, String>,
    files: Vec<(String, String)>,
    last: Vec<(String, String)>,
    pub shown: Vec<Shown>,
}

impl Recorded {
    #[track_caller]
    pub fn parse(text: &str) -> Recorded {
        let mut host = Recorded::default();
        let mut lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).peekable();
        while let Some(line) = lines.next() {
            let line = with_ids(line);
            let (what, rest) = line.split_once(' ').unwrap_or_else(|| panic!("{line}"));
            let mut below = Vec::new();
            while let Some(line) = lines.next_if(|line| line.starts_with("  ")) {
                below.push(with_ids(&line[2..]));
            }
            match what {
                "mounts" => host.mounts = rest.split(' ').map(str::to_owned).collect(),
                "cgroup" => host.add_cgroup(rest),
                "process" => _ = host.processes.insert(rest.parse().unwrap(), below.join("\0")),
                "file" => host.files.push((rest.to_owned(), below.join("\n"))),
                "last" => host.last.push((rest.to_owned(), below.join("\n"))),
                "shown" => host.shown.push(shown(rest, &below)),
                _ => panic!("{line}"),
            }
        }
        host
    }

    fn add_cgroup(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| (words[at] != ".").then(|| words[at].parse().unwrap_or_else(|_| panic!("{line}")));
        let numbers = Numbers {
            memory: number(0),
            peak: number(1),
            memory_limit: words[2].to_owned(),
            oom_kills: number(3),
            cpu: number(4),
            pids: number(5),
            pids_limit: words[6].to_owned(),
            processes: words[8..].iter().map(|pid| pid.parse().unwrap()).collect(),
        };
        self.cgroups.insert(words[7].to_owned(), numbers);
    }

    pub fn is_v2(&self) -> bool {
        self.mounts == ["v2"]
    }
    /// The lowest from a cgroup up to the root.
    pub fn memory_limit(&self, cgroup: &str) -> Option<u64> {
        let above = std::iter::successors(Some(cgroup), |path| path.rsplit_once('/').map(|(above, _)| above));
        above.filter_map(|path| self.cgroups.get(path)?.memory_limit.parse().ok()).min()
    }
    /// Its own: one of a pod is the pod's.
    pub fn pids_limit(&self, cgroup: &str) -> Option<u64> {
        self.cgroups[cgroup].pids_limit.parse().ok()
    }
    /// CPU time in nanoseconds.
    pub fn cpu_ns(&self, cgroup: &str) -> Option<u64> {
        self.cgroups[cgroup].cpu.map(|cpu| if self.is_v2() { cpu * 1_000 } else { cpu })
    }
    /// Something runs in it, or below it.
    pub fn has_processes(&self, cgroup: &str) -> bool {
        let below = format!("{cgroup}/");
        let inside = self.cgroups.iter().filter(|(path, _)| *path == cgroup || path.starts_with(&below));
        inside.into_iter().any(|(_, numbers)| !numbers.processes.is_empty())
    }

    /// Writes all of it, but what reports ends.
    pub fn make(&self, root: &Path) {
        let mut mountinfo = String::new();
        for mount in &self.mounts {
            let (at, kind) = match self.is_v2() {
                true => (String::new(), "cgroup2 cgroup2 rw".to_owned()),
                false => (format!("/{mount}"), format!("cgroup cgroup rw,{mount}")),
            };
            mountinfo += &format!("30 20 0:30 / /sys/fs/cgroup{at} rw - {kind}\n");
            fs::create_dir_all(root.join(format!("sys/fs/cgroup{at}"))).unwrap();
        }
        write(root, "/proc/self/mountinfo", &mountinfo);
        if self.is_v2() {
            write(root, "/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n");
        }
        for (path, numbers) in &self.cgroups {
            for (hierarchy, name, text) in self.kernel_files(path, numbers) {
                write(root, &format!("/sys/fs/cgroup/{hierarchy}{path}/{name}"), &text);
            }
        }
        self.processes.iter().for_each(|(pid, environment)| write(root, &format!("/proc/{pid}/environ"), environment));
        self.files.iter().for_each(|(path, text)| write(root, path, text));
    }
    pub fn write_ends(&self, root: &Path) {
        self.last.iter().for_each(|(path, text)| write(root, path, text));
    }
    /// Where a cgroup is, in each hierarchy.
    pub fn directories(&self, root: &Path, cgroup: &str) -> Vec<PathBuf> {
        let mounts = self.mounts.iter().map(|mount| if self.is_v2() { "" } else { mount });
        let all = mounts.map(|mount| root.join("sys/fs/cgroup").join(mount).join(cgroup.trim_start_matches('/')));
        all.filter(|path| path.is_dir()).collect()
    }

    fn kernel_files(&self, path: &str, of: &Numbers) -> Vec<(&'static str, &'static str, String)> {
        let procs: String = of.processes.iter().map(|pid| format!("{pid}\n")).collect();
        let lowest = self.memory_limit(path);
        let mut files = Vec::new();
        if self.is_v2() {
            let kills = of.oom_kills.unwrap();
            let cpu = of.cpu.unwrap();
            let events =
                format!("low 0\nhigh 0\nmax {}\noom {}\noom_kill {kills}\noom_group_kill 0\n", kills * 7, kills * 2);
            files.extend([
                ("", "cgroup.procs", procs),
                ("", "cgroup.events", format!("populated {}\nfrozen 0\n", u8::from(self.has_processes(path)))),
                ("", "memory.current", format!("{}\n", of.memory.unwrap())),
                ("", "memory.peak", format!("{}\n", of.peak.unwrap())),
                ("", "memory.max", format!("{}\n", of.memory_limit)),
                ("", "memory.events", events),
                ("", "cpu.stat", format!("usage_usec {cpu}\nuser_usec {}\nsystem_usec {}\n", cpu - cpu / 3, cpu / 3)),
                ("", "pids.current", format!("{}\n", of.pids.unwrap())),
                ("", "pids.max", format!("{}\n", of.pids_limit)),
            ]);
            return files;
        }
        // None is a number there.
        let limit = |limit: Option<u64>| limit.unwrap_or(9_223_372_036_854_771_712);
        if let Some(memory) = of.memory {
            // Each cgroup counts its own there, and those below it theirs.
            let is_child = |other: &str| other.rsplit_once('/').is_some_and(|(above, _)| above == path);
            let below = self.cgroups.iter().filter(|(other, _)| is_child(other)).filter_map(|(_, of)| of.oom_kills);
            let kills = of.oom_kills.unwrap() - below.sum::<u64>();
            let stat = format!(
                "cache 0\nrss {memory}\nhierarchical_memory_limit {}\ntotal_cache 0\ntotal_rss {memory}\n",
                limit(lowest)
            );
            files.extend([
                ("memory", "cgroup.procs", procs.clone()),
                ("memory", "memory.usage_in_bytes", format!("{memory}\n")),
                ("memory", "memory.max_usage_in_bytes", format!("{}\n", of.peak.unwrap())),
                ("memory", "memory.limit_in_bytes", format!("{}\n", limit(of.memory_limit.parse().ok()))),
                ("memory", "memory.oom_control", format!("oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n")),
                ("memory", "memory.stat", stat),
            ]);
        }
        if let Some(cpu) = of.cpu {
            files.push(("cpu,cpuacct", "cgroup.procs", procs.clone()));
            files.push(("cpu,cpuacct", "cpuacct.usage", format!("{cpu}\n")));
        }
        if let Some(pids) = of.pids {
            files.push(("pids", "cgroup.procs", procs));
            files.push(("pids", "pids.current", format!("{pids}\n")));
            files.push(("pids", "pids.max", format!("{}\n", of.pids_limit)));
        }
        files
    }
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path.trim_start_matches('/'));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn shown(what: &str, below: &[String]) -> Shown {
    let (alloc, task) = what.split_once(' ').unwrap();
    let mut shown =
        Shown { alloc: alloc.to_owned(), task: task.to_owned(), outcome: "unknown".to_owned(), ..Shown::default() };
    for line in below {
        let (key, value) = line.split_once(' ').unwrap();
        match key {
            "in" => shown.cgroup = value.to_owned(),
            "own" => shown.own = Some(value.to_owned()),
            "ended" => shown.outcome = value.to_owned(),
            label => shown.labels.push((label.to_owned(), value.to_owned())),
        }
    }
    shown
}

/// `{a1}` as 64 digits.
fn with_ids(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some(at) = rest.find('{') {
        let id = rest
            .get(at + 1..at + 3)
            .filter(|id| id.bytes().all(|b| b.is_ascii_hexdigit()) && rest[at + 3..].starts_with('}'));
        text += &rest[..at];
        match id {
            Some(id) => {
                text += &id.repeat(32);
                rest = &rest[at + 4..];
            }
            None => {
                text.push('{');
                rest = &rest[at + 1..];
            }
        }
    }
    text + rest
}
