//! Processes without a cgroup of their own, if enabled: a process group is an alloc with one task, named after the
//! command of its leader.
//!
//! ```text
//! /proc/PID/stat     each second: group, command, usage               ┐ of processes in no task's cgroup, without
//! /proc/PID/cgroup   each ten seconds: does it have its own by now?   ┘ the agent's ──► by group ──► one reader each
//! ```
//! The usage of a group is that of its processes, plus the last known usage of ended ones. Usage in the last second of
//! a process is missed, and so are processes that live for less. "Waited for" counters are ignored, because a shell
//! waits for other groups.
//!
//! Source: proc(5). Units: CPU time in clock ticks of 10 ms. Shared pages count in each process.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::identity::TaskNaming;
use crate::collectors::{SamplingContext, TaskReader, bytes_of_pages, time_of_ticks};
use crate::host::clock::Clock;
use crate::kernel::proc::cgroup;
use crate::kernel::proc::pid_stat::{self, PidStat};
use crate::model::id::ProcessId;
use crate::model::units::Timestamp;
use crate::model::usage::{Field, Usage};

/// The cgroup of each process is read again at every tenth sample.
const CGROUP_READ_EACH: u32 = 10;
/// Maximum length of a chain of parents: PIDs may be reused while it is followed.
const MOST_PARENTS: usize = 64;

/// The process groups without a cgroup of their own, and their readers. Concurrency: single owner.
pub struct ProcessGroups {
    sampling: Arc<SamplingContext>,
    clock: Arc<dyn Clock>,
    /// By process group ID, which is unique while a process has it.
    groups: BTreeMap<u32, ProcessGroup>,
    /// Whether a process is in no task's cgroup.
    outside: HashMap<ProcessId, bool>,
    samples: u32,
    left_out: u64,
}

/// One process group.
#[derive(Debug)]
struct ProcessGroup {
    key: String,
    members: HashMap<ProcessId, ProcessCounters>,
    ended: ProcessCounters,
    /// Set once the group is shown. Groups that exist at one sample only are not shown.
    reader: Option<Arc<TaskReader>>,
}

/// CPU time and page faults of processes. Units: clock ticks, faults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ProcessCounters {
    user: u64,
    system: u64,
    minor: u64,
    major: u64,
}

impl ProcessCounters {
    fn of(stat: &PidStat) -> ProcessCounters {
        let PidStat { user_ticks: user, system_ticks: system, minor_faults: minor, major_faults: major, .. } = *stat;
        ProcessCounters { user, system, minor, major }
    }
    fn add(&mut self, other: ProcessCounters) {
        self.user = self.user.saturating_add(other.user);
        self.system = self.system.saturating_add(other.system);
        self.minor = self.minor.saturating_add(other.minor);
        self.major = self.major.saturating_add(other.major);
    }
}

/// Selects the process groups to show.
pub struct ProcessGroupFilter<'a> {
    /// Whether a cgroup is or belongs to a task.
    pub is_in_a_task: &'a dyn Fn(&str) -> bool,
    /// PID of the agent, which is not shown, nor are its children.
    pub agent: u32,
    /// Main processes of managed tasks: not shown, nor are their supervisors and children.
    pub tasks: &'a BTreeSet<u32>,
    /// Whether a group of that name is shown.
    pub is_shown: &'a dyn Fn(&str) -> bool,
    /// Maximum number of groups.
    pub room: usize,
}

/// A change of the process groups since the last sample.
#[derive(Debug)]
pub enum ProcessGroupChange {
    Started { key: String, naming: Box<TaskNaming>, reader: Arc<TaskReader>, since: Timestamp },
    Ended { key: String },
}

/// A process of a sample.
struct SampledProcess {
    id: ProcessId,
    stat: PidStat,
    command: String,
}

impl ProcessGroups {
    pub fn new(sampling: &Arc<SamplingContext>, clock: &Arc<dyn Clock>) -> ProcessGroups {
        ProcessGroups {
            sampling: Arc::clone(sampling),
            clock: Arc::clone(clock),
            groups: BTreeMap::new(),
            outside: HashMap::new(),
            samples: 0,
            left_out: 0,
        }
    }
    pub fn running(&self) -> usize {
        self.groups.values().filter(|group| group.reader.is_some()).count()
    }
    /// Groups over the limit at the last sample.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    pub fn sample(&mut self, filter: &ProcessGroupFilter<'_>) -> Vec<ProcessGroupChange> {
        let at = self.clock.now();
        let seen = self.outsiders(filter);
        let mut by_group: BTreeMap<u32, Vec<SampledProcess>> = BTreeMap::new();
        for process in seen {
            by_group.entry(process.stat.group).or_default().push(process);
        }
        let mut changes = Vec::new();
        self.groups.retain(|number, group| {
            if by_group.contains_key(number) {
                return true;
            }
            group.ends(&[]);
            if let Some(reader) = &group.reader {
                reader.report(group.usage(&[]), at);
                changes.push(ProcessGroupChange::Ended { key: group.key.clone() });
            }
            false
        });
        self.left_out = 0;
        for (number, seen) in by_group {
            let is_new = !self.groups.contains_key(&number);
            let group = self.groups.entry(number).or_insert_with(|| ProcessGroup::new(number, &seen));
            group.ends(&seen);
            if group.reader.is_none() && !is_new {
                let native = called(number, &seen);
                if !(filter.is_shown)(&native) {
                    continue;
                }
                if self.running() >= filter.room {
                    self.left_out += 1;
                    continue;
                }
                changes.push(self.show(number, &seen, &native));
            }
            if let Some(ProcessGroup { reader: Some(reader), .. }) = self.groups.get(&number) {
                reader.report(self.groups[&number].usage(&seen), at);
            }
        }
        changes
    }

    fn show(&mut self, number: u32, seen: &[SampledProcess], native: &str) -> ProcessGroupChange {
        let reader = Arc::new(TaskReader::reported(&self.sampling));
        let first = first(number, seen);
        let command = first.map_or("", |process| process.command.as_str());
        let started = first.map_or(0, |process| process.stat.start_ticks);
        let since = self.clock.now().0.saturating_sub(self.clock.since_boot().saturating_sub(time_of_ticks(started)).0);
        let naming = TaskNaming {
            name: command.to_owned(),
            task: command.to_owned(),
            workload: Some(command.to_owned()),
            created_at: Some(Timestamp(since)),
            ..TaskNaming::of(native)
        };
        let group = self.groups.get_mut(&number).expect("it was just read, so it must be there");
        group.reader = Some(Arc::clone(&reader));
        ProcessGroupChange::Started {
            key: group.key.clone(),
            naming: Box::new(naming),
            reader,
            since: Timestamp(since),
        }
    }

    /// All processes that are in no task's cgroup.
    fn outsiders(&mut self, filter: &ProcessGroupFilter<'_>) -> Vec<SampledProcess> {
        let roots = &self.sampling.roots;
        let entries = std::fs::read_dir(&roots.proc).into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let mut all: Vec<SampledProcess> = pids
            .filter_map(|pid| {
                // It ended, or its stat file cannot be parsed.
                let bytes = roots.read_proc(format!("{pid}/stat")).ok()?;
                let stat = pid_stat::parse(&bytes).ok()?;
                let command = pid_stat::command(&bytes).unwrap_or_default();
                Some(SampledProcess { id: ProcessId { pid, start_ticks: stat.start_ticks }, stat, command })
            })
            .collect();
        let parents: HashMap<u32, u32> = all.iter().map(|process| (process.id.pid, process.stat.parent)).collect();
        // PID 1 adopts orphans, so it is no parent.
        let is_one = |pid: &u32| *pid > 1;
        let held_by = filter.tasks.iter().filter_map(|task| parents.get(task).copied()).filter(is_one);
        let known: BTreeSet<u32> = filter.tasks.iter().copied().chain(held_by).chain([filter.agent]).collect();
        let is_known = |pid: u32| {
            let ancestors = std::iter::successors(parents.get(&pid).copied().filter(is_one), |pid| {
                parents.get(pid).copied().filter(is_one)
            });
            known.contains(&pid) || ancestors.take(MOST_PARENTS).any(|pid| known.contains(&pid))
        };
        // Kernel threads have group 0.
        all.retain(|process| process.stat.group != 0 && !is_known(process.id.pid));
        let reread_cgroups = self.samples.is_multiple_of(CGROUP_READ_EACH);
        self.samples = self.samples.wrapping_add(1);
        let before = std::mem::take(&mut self.outside);
        for process in &all {
            let known = before.get(&process.id).copied().filter(|_| !reread_cgroups);
            let is_outside = known.or_else(|| {
                let bytes = roots.read_proc(format!("{}/cgroup", process.id.pid)).ok()?;
                Some(cgroup::places(&bytes).all(|path| !(filter.is_in_a_task)(&path)))
            });
            self.outside.insert(process.id, is_outside.unwrap_or(false));
        }
        all.retain(|process| self.outside.get(&process.id) == Some(&true));
        all
    }
}

/// The leader, else the oldest process.
fn first(number: u32, seen: &[SampledProcess]) -> Option<&SampledProcess> {
    seen.iter().min_by_key(|process| (process.id.pid != number, process.stat.start_ticks))
}

/// For example `nginx/42`.
fn called(number: u32, seen: &[SampledProcess]) -> String {
    format!("{}/{number}", first(number, seen).map_or("", |process| process.command.as_str()))
}

impl ProcessGroup {
    fn new(number: u32, seen: &[SampledProcess]) -> ProcessGroup {
        let started = seen.iter().map(|process| process.stat.start_ticks).min().unwrap_or(0);
        let key = format!("process:{number}:{started}");
        ProcessGroup { key, members: HashMap::new(), ended: ProcessCounters::default(), reader: None }
    }

    /// Adds the usage of processes that ended.
    fn ends(&mut self, seen: &[SampledProcess]) {
        let now: HashMap<ProcessId, ProcessCounters> =
            seen.iter().map(|one| (one.id, ProcessCounters::of(&one.stat))).collect();
        let before = std::mem::replace(&mut self.members, now);
        let ended = before.into_iter().filter(|(id, _)| !self.members.contains_key(id));
        let ended: Vec<ProcessCounters> = ended.map(|(_, spent)| spent).collect();
        ended.into_iter().for_each(|spent| self.ended.add(spent));
    }

    fn usage(&self, seen: &[SampledProcess]) -> Usage {
        let mut all = self.ended;
        self.members.values().for_each(|spent| all.add(*spent));
        let live = seen.iter().filter(|process| process.stat.state != b'Z');
        let (processes, pages) =
            live.fold((0, 0_u64), |(n, pages), one| (n + 1, pages.saturating_add(one.stat.rss_pages)));
        Usage::from([
            (Field::cpu_user_ns, time_of_ticks(all.user).0),
            (Field::cpu_system_ns, time_of_ticks(all.system).0),
            (Field::cpu_usage_ns, time_of_ticks(all.user.saturating_add(all.system)).0),
            (Field::page_faults_minor, all.minor),
            (Field::page_faults_major, all.major),
            (Field::memory_rss_bytes, bytes_of_pages(pages)),
            (Field::processes, processes),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::FdBudget;
    use crate::host::clock::SystemClock;
    use crate::host::hierarchy::Layout;
    use crate::host::roots::Roots;

    /// A host whose processes a test defines.
    struct ProcessHost {
        dir: tempfile::TempDir,
        processes: ProcessGroups,
    }

    impl ProcessHost {
        fn new() -> ProcessHost {
            let dir = tempfile::tempdir().unwrap();
            let roots = Roots { proc: dir.path().to_owned(), ..Roots::below(dir.path()) };
            let sampling = SamplingContext::new(roots, Layout::detect(&Roots::default()).unwrap(), FdBudget::of(0));
            let clock: Arc<dyn Clock> = Arc::new(SystemClock);
            ProcessHost { processes: ProcessGroups::new(&sampling, &clock), dir }
        }
        fn run(&self, pid: u32, (parent, group): (u32, u32), command: &str, ticks: u64, cgroup: &str) {
            let at = self.dir.path().join(pid.to_string());
            std::fs::create_dir_all(&at).unwrap();
            let stat = format!(
                "{pid} ({command}) S {parent} {group} 1 0 -1 0 5 90 2 90 {ticks} 3 90 90 20 0 1 0 {pid} 0 10 0\n"
            );
            std::fs::write(at.join("stat"), stat).unwrap();
            std::fs::write(at.join("cgroup"), format!("4:memory:{cgroup}\n0::/\n")).unwrap();
        }
        fn end(&self, pid: u32) {
            std::fs::remove_dir_all(self.dir.path().join(pid.to_string())).unwrap();
        }
        /// IDs that begin, keys that end.
        fn sample(&mut self, room: usize) -> Vec<String> {
            let (is_in_a_task, accepts) =
                (|path: &str| path.starts_with("/task"), |name: &str| !name.starts_with("secret"));
            let filter = ProcessGroupFilter {
                is_in_a_task: &is_in_a_task,
                agent: 3,
                tasks: &[7].into(),
                is_shown: &accepts,
                room,
            };
            let changes = self.processes.sample(&filter);
            changes
                .into_iter()
                .map(|change| match change {
                    ProcessGroupChange::Started { naming, .. } => format!("+{}", naming.native),
                    ProcessGroupChange::Ended { key } => format!("-{key}"),
                })
                .collect()
        }
        fn used(&self, group: u32) -> Usage {
            let reader = self.processes.groups[&group].reader.clone().unwrap();
            Usage::clone(&reader.latest().unwrap().usage)
        }
    }

    const TICK: u64 = 10_000_000;

    #[test]
    fn process_group_is_shown_at_its_second_sample_and_retains_usage_of_ended_processes() {
        let mut host = ProcessHost::new();
        host.run(10, (2, 10), "we (b", 100, "/");
        host.run(11, (10, 10), "worker", 50, "/a");
        assert!(host.sample(9).is_empty(), "it may be gone at once");
        assert_eq!(host.sample(9), ["+we (b/10"]);
        let used = host.used(10);
        assert_eq!(
            (used.cpu_user_ns(), used.cpu_system_ns()),
            (Some(150 * TICK), Some(6 * TICK)),
            "nothing waited for"
        );
        assert_eq!((used.processes(), used.page_faults_major()), (Some(2), Some(4)));
        host.end(11);
        host.run(10, (2, 10), "we (b", 101, "/");
        assert!(host.sample(9).is_empty());
        assert_eq!((host.used(10).cpu_user_ns(), host.used(10).processes()), (Some(151 * TICK), Some(1)));
        // The same PID belongs to another process now.
        host.run(11, (10, 10), "worker", 1, "/a");
        let stat =
            std::fs::read_to_string(host.dir.path().join("11/stat")).unwrap().replace(" 11 0 10 0", " 99 0 10 0");
        std::fs::write(host.dir.path().join("11/stat"), stat).unwrap();
        host.sample(9);
        assert_eq!(host.used(10).cpu_user_ns(), Some(152 * TICK));
        host.end(10);
        host.end(11);
        assert_eq!(host.sample(9), ["-process:10:10"]);
        assert!(host.processes.groups.is_empty() && host.processes.outside.is_empty(), "nothing of it is kept");
    }

    #[test]
    fn processes_with_a_cgroup_known_excluded_or_of_the_kernel_are_left_out() {
        let mut host = ProcessHost::new();
        host.run(10, (2, 10), "in-a-task", 1, "/task/7");
        host.run(3, (2, 3), "agent", 1, "/");
        host.run(20, (3, 20), "ours", 1, "/");
        host.run(21, (20, 21), "of-ours", 1, "/");
        host.run(6, (1, 6), "supervisor", 1, "/");
        host.run(7, (6, 7), "task", 1, "/");
        host.run(8, (7, 8), "of-a-task", 1, "/");
        host.run(30, (2, 0), "kthread", 1, "/");
        host.run(31, (2, 31), "secret", 1, "/");
        std::fs::create_dir(host.dir.path().join("40")).unwrap();
        std::fs::write(host.dir.path().join("40/stat"), "garbage").unwrap();
        host.run(1, (0, 1), "init", 1, "/");
        host.run(50, (1, 50), "orphan", 1, "/");
        host.sample(9);
        assert_eq!(host.sample(9), ["+init/1", "+orphan/50"]);
    }

    #[test]
    fn process_moved_into_its_own_cgroup_ends_as_process_group() {
        let mut host = ProcessHost::new();
        host.run(10, (2, 10), "moves", 1, "/");
        host.sample(9);
        assert_eq!(host.sample(9), ["+moves/10"]);
        host.run(10, (2, 10), "moves", 2, "/task");
        let changes: Vec<String> = (0..CGROUP_READ_EACH).flat_map(|_| host.sample(9)).collect();
        assert_eq!(changes, ["-process:10:10"]);
    }

    #[test]
    fn process_groups_above_the_limit_are_counted_as_left_out() {
        let mut host = ProcessHost::new();
        (10..15).for_each(|pid| host.run(pid, (2, pid), "many", 1, "/"));
        host.sample(3);
        assert_eq!((host.sample(3).len(), host.processes.left_out(), host.processes.running()), (3, 2, 3));
        host.end(10);
        assert_eq!(host.sample(3).len(), 2, "one goes, and another one has its place");
        assert_eq!(host.processes.left_out(), 1);
    }
}
