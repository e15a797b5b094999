//! Ended lives of cgroups, as the kernel reports them: exit facts of observed tasks, and lives too short to be seen
//! otherwise. Pure: the caller passes the removed cgroups and their owners.
//!
//! ```text
//! removed ──► cgroup of an observed task ──► recorded until its end is reported
//!    └── unknown cgroup ──► gathered, hierarchy by hierarchy ──► no record for 20 ms ──► a complete life
//! ```
//! On a host with v1 hierarchies a cgroup is removed from each hierarchy: one life. A second removal of the same path
//! from the same hierarchy is another life. Late records of an ended life are ignored.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::identity::{EndBy, Recognised, is_number};
use super::table::ExitFacts;
use super::tree::LifeOwner;
use crate::kernel::bpf::exits::{EndNotes, ProcessEnd};
use crate::model::id::CgroupPath;
use crate::model::task::ExitStatus;
use crate::model::units::Timestamp;

const SIGKILL: u8 = 9;
/// How long an ended life is remembered.
const REMEMBERED: Duration = Duration::from_secs(10);

/// What the kernel has reported about one life so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LifeNotes {
    /// Bit set of the hierarchies that reported the removal.
    homes: u64,
    /// Number of processes that ended in it.
    count: u64,
    last: Option<(u64, ProcessEnd)>,
    /// Exit of the first process in the outermost PID namespace.
    init: Option<(u64, ProcessEnd)>,
    /// Exit of the ranks that a launcher started, each in its own cgroup: the first failure, else the last exit.
    ranks: Option<(u64, ProcessEnd)>,
    /// Nanoseconds since boot.
    first_start: Option<u64>,
    /// CPU time is complete.
    pub(super) is_whole: bool,
}

impl LifeNotes {
    pub(super) fn has(&self, home: usize) -> bool {
        self.homes & bit(home) != 0
    }
    fn record(&mut self, home: usize, notes: &EndNotes) {
        self.homes |= bit(home);
        self.count = self.count.max(notes.count);
        self.record_processes(notes);
    }
    /// Records the removal of a cgroup below the task's.
    fn record_below(&mut self, ends_by: EndBy, path: &str, notes: &EndNotes) {
        let name = path.rsplit('/').next().unwrap_or_default();
        let is_ranks = matches!(ends_by, EndBy::Ranks(called) if name.strip_prefix(called).is_some_and(is_number));
        // Processes that a rank left behind are killed at the end of the step. Their exit is not that of the rank.
        let is_left = |last: &ProcessEnd| last.signal() == Some(SIGKILL) && !last.oom_victim;
        if let Some(last) = notes.last.filter(|last| is_ranks && !is_left(last)) {
            // The first failure is the reason why the others were stopped.
            let failed =
                self.ranks.filter(|(at, end)| end.has_failed() && (!last.has_failed() || *at <= notes.last_at));
            let known = failed.map(|(at, end)| if at == notes.last_at { (at, end.beside(last)) } else { (at, end) });
            self.ranks = known.or(Some((notes.last_at, last)));
        }
        self.record_processes(notes);
    }
    fn record_processes(&mut self, notes: &EndNotes) {
        if let Some(last) = notes.last
            && self.last.is_none_or(|(at, _)| at <= notes.last_at)
        {
            let same = self.last.filter(|(at, _)| *at == notes.last_at);
            self.last = Some((notes.last_at, same.map_or(last, |(_, known)| last.beside(known))));
        }
        if let Some((level, end)) = notes.init
            && self.init.is_none_or(|(known, _)| level <= known)
        {
            let same = self.init.filter(|(known, _)| *known == level);
            self.init = Some((level, same.map_or(end, |(_, known)| end.beside(known))));
        }
        if notes.count > 0 {
            self.first_start = Some(self.first_start.map_or(notes.first_start, |first| first.min(notes.first_start)));
        }
    }

    /// Whether a process ended in it or below.
    pub(super) fn has_run(&self) -> bool {
        self.last.is_some()
    }
    /// Whether a process ended in this very cgroup, not below.
    pub(super) fn has_run_itself(&self) -> bool {
        self.count > 0
    }
    pub(super) fn first_start(&self) -> Option<u64> {
        self.first_start
    }
    /// End of its last process.
    pub(super) fn last_at(&self) -> Option<u64> {
        self.last.map(|(at, _)| at)
    }

    /// `wall`: converts nanoseconds since boot. `None`: the exit is unknown.
    pub(super) fn facts(&self, by: EndBy, wall: impl Fn(u64) -> Timestamp) -> Option<ExitFacts> {
        let (at, last) = self.last?;
        let end = match by {
            EndBy::FirstProcess => self.init.map_or(last, |(_, init)| init),
            EndBy::LastProcess => last,
            EndBy::Ignored => return None,
            EndBy::Ranks(_) => self.ranks.map(|(_, rank)| rank).or(Some(last).filter(|last| last.oom_victim))?,
        };
        let status = match end.signal() {
            // Runtimes report a signal as 128 + n, so the exit code does not depend on who reports it.
            Some(signal) if matches!(by, EndBy::FirstProcess) => ExitStatus::Code(128_u8.saturating_add(signal)),
            Some(signal) => ExitStatus::Signal(signal),
            None => ExitStatus::Code(end.code()),
        };
        Some(ExitFacts {
            oom: end.oom_victim && end.signal().is_some(),
            on_request: false,
            status,
            finished_at: Some(wall(at)),
        })
    }
}

fn bit(home: usize) -> u64 {
    1 << home.min(63)
}

/// A life that was not observed while it lasted. `T`: the record of one hierarchy.
#[derive(Debug)]
pub(super) struct BriefLife<T> {
    /// `None`: a plain cgroup.
    pub(super) found: Option<Recognised>,
    pub(super) notes: LifeNotes,
    pub(super) records: Vec<T>,
    /// Records of cgroups below it.
    pub(super) records_below: Vec<T>,
    /// Waits until `settles` for further records, and until `until` at most.
    settles: Instant,
    until: Instant,
}

/// A cgroup removed from one hierarchy.
#[derive(Debug)]
pub(super) struct Removed<'a> {
    pub(super) path: &'a str,
    pub(super) whose: LifeOwner,
    pub(super) home: usize,
    pub(super) notes: &'a EndNotes,
    /// The record has the complete CPU time.
    pub(super) is_whole: bool,
}

/// Concurrency: single owner.
#[derive(Debug)]
pub(super) struct EndedLives<T> {
    /// Notes on observed tasks, and on tasks that will be observed.
    notes: HashMap<String, LifeNotes>,
    brief: HashMap<String, BriefLife<T>>,
    over: HashMap<String, (u64, Instant)>,
    /// Cgroups that were ancestors of a task.
    above: HashMap<String, Instant>,
}

impl<T> Default for EndedLives<T> {
    fn default() -> EndedLives<T> {
        EndedLives { notes: HashMap::new(), brief: HashMap::new(), over: HashMap::new(), above: HashMap::new() }
    }
}

impl<T> EndedLives<T> {
    /// The cgroup of an observed task was removed from this hierarchy.
    pub(super) fn note(&mut self, path: &str, home: usize, notes: &EndNotes, is_whole: bool, now: Instant) {
        let of = self.notes.entry(path.to_owned()).or_default();
        of.record(home, notes);
        of.is_whole |= is_whole;
        self.stood_above(path, now);
    }
    /// A cgroup below an observed task was removed.
    pub(super) fn note_below(&mut self, task: &str, ends_by: EndBy, path: &str, notes: &EndNotes) {
        self.notes.entry(task.to_owned()).or_default().record_below(ends_by, path, notes);
    }
    pub(super) fn noted(&self, path: &str) -> Option<&LifeNotes> {
        self.notes.get(path)
    }

    /// An unobserved cgroup was removed. `said`: the record, if it is of the task's own cgroup.
    pub(super) fn gather(&mut self, removed: Removed<'_>, said: T, now: Wait) {
        let Removed { path, whose, home, notes, is_whole } = removed;
        let (task, found) = match whose {
            LifeOwner::None => return,
            LifeOwner::Plain => (path.to_owned(), None),
            LifeOwner::Task(task, found) => (task, Some(*found)),
        };
        if self.over.get(&task).is_some_and(|(homes, _)| homes & bit(home) == 0) {
            if task == path {
                self.over.entry(task).and_modify(|(homes, _)| *homes |= bit(home));
            }
            return;
        }
        if task == path {
            self.over.remove(&task);
            self.stood_above(path, now.now);
        }
        let life = self.brief.entry(task.clone()).or_insert_with(|| BriefLife {
            found,
            notes: LifeNotes::default(),
            records: Vec::new(),
            records_below: Vec::new(),
            settles: now.now + now.settled,
            until: now.now + now.most,
        });
        life.settles = now.now + now.settled;
        if task == path {
            life.notes.record(home, notes);
            life.notes.is_whole |= is_whole;
            life.records.push(said);
        } else {
            let ends_by = life.found.as_ref().map_or(EndBy::LastProcess, |found| found.ends_by);
            life.notes.record_below(ends_by, path, notes);
            life.records_below.push(said);
        }
    }
    /// Whether a life is being gathered whose removal from this hierarchy is already recorded: the new record belongs
    /// to another life.
    pub(super) fn is_another(&self, path: &str, home: usize) -> bool {
        self.brief.get(path).is_some_and(|life| life.notes.has(home))
    }
    /// Whether a life ended after the observed life at this path: one of its hierarchies had already reported the
    /// removal of the observed one. `home`: the hierarchy of a record.
    pub(super) fn is_after(&self, path: &str, life: &BriefLife<T>, home: impl Fn(&T) -> usize) -> bool {
        self.noted(path).is_some_and(|shown| life.records.iter().any(|said| shown.has(home(said))))
    }
    /// Records of the life that is being gathered. `None`: none is.
    pub(super) fn records_of(&self, path: &str) -> Option<impl Iterator<Item = &T>> {
        self.brief.get(path).map(|life| life.records.iter())
    }
    /// Ends the gathering early.
    pub(super) fn finish(&mut self, path: &str) -> Option<BriefLife<T>> {
        self.brief.remove(path)
    }
    /// The lives for which no further record is expected. `is_there`: the cgroup still exists in some hierarchy, whose
    /// record is still to come.
    pub(super) fn settled(&mut self, wait: Wait, is_there: impl Fn(&str) -> bool) -> Vec<(String, BriefLife<T>)> {
        let Wait { now, settled, .. } = wait;
        let mut over = Vec::new();
        for (path, life) in &mut self.brief {
            if life.until <= now || (life.settles <= now && !is_there(path)) {
                over.push(path.clone());
            } else if life.settles <= now {
                life.settles = now + settled;
            }
        }
        over.into_iter().filter_map(|path| self.brief.remove(&path).map(|life| (path, life))).collect()
    }
    /// Whether the cgroup was above others, so that its counters may include theirs.
    pub(super) fn was_above(&self, path: &str) -> bool {
        self.above.contains_key(path)
    }
    /// When to check again.
    pub(super) fn next(&self) -> Option<Instant> {
        self.brief.values().map(|life| life.settles).min()
    }

    /// A gathered life becomes an observed task that ends at once.
    pub(super) fn begin(&mut self, path: &str, notes: LifeNotes) {
        self.notes.insert(path.to_owned(), notes);
    }
    /// The end was reported. Returns the notes.
    pub(super) fn over(&mut self, path: &str, now: Instant) -> Option<LifeNotes> {
        let notes = self.notes.remove(path)?;
        self.over.insert(path.to_owned(), (notes.homes, now));
        Some(notes)
    }

    /// Forgets what ended long ago. `is_there`: it is an observed task.
    pub(super) fn forget(&mut self, now: Instant, is_there: impl Fn(&str) -> bool) {
        let is_young = |at: Instant| now.saturating_duration_since(at) < REMEMBERED;
        self.notes.retain(|path, _| is_there(path));
        self.over.retain(|_, (_, at)| is_young(*at));
        self.above.retain(|_, at| is_young(*at));
    }

    fn stood_above(&mut self, path: &str, now: Instant) {
        for above in CgroupPath::above(path) {
            self.above.insert(above.to_owned(), now);
        }
    }
}

/// Waiting times for further records.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    pub(super) now: Instant,
    pub(super) settled: Duration,
    pub(super) most: Duration,
}

#[cfg(test)]
mod tests {
    use super::super::tree::CgroupTree;
    use super::*;

    const CODE_3: ProcessEnd = ProcessEnd { status: 3 << 8, oom_victim: false };
    const KILLED: ProcessEnd = ProcessEnd { status: 9, oom_victim: true };
    const NONE: EndNotes = EndNotes { count: 0, last: None, init: None, last_at: 0, first_start: 0 };

    fn ended(last: ProcessEnd, at: u64) -> EndNotes {
        EndNotes { count: 1, last: Some(last), last_at: at, first_start: at - 5, ..NONE }
    }
    fn wait(now: Instant) -> Wait {
        Wait { now, settled: Duration::from_millis(20), most: Duration::from_secs(2) }
    }
    fn whose(path: &str) -> LifeOwner {
        CgroupTree::new("/allostat").whose(path)
    }
    fn of<'a>(path: &'a str, home: usize, notes: &'a EndNotes, is_whole: bool) -> Removed<'a> {
        Removed { path, whose: whose(path), home, notes, is_whole }
    }
    fn container() -> String {
        format!("/docker/{}", "0123456789abcdef".repeat(4))
    }

    #[test]
    fn one_that_is_removed_from_each_hierarchy_is_one_life_and_removed_again_another() {
        let (mut ends, now) = (EndedLives::default(), Instant::now());
        for home in [3, 7, 9] {
            assert!(!ends.is_another("/a/b", home));
            ends.gather(of("/a/b", home, &ended(CODE_3, 50), home == 9), home, wait(now));
        }
        assert!(ends.is_another("/a/b", 3) && ends.was_above("/a") && !ends.was_above("/a/b"));
        let later = now + Duration::from_millis(30);
        assert!(ends.settled(wait(now), |_| false).is_empty(), "more may come");
        assert!(ends.settled(wait(later), |_| true).is_empty(), "another hierarchy has it yet");
        assert_eq!(ends.next(), Some(later + Duration::from_millis(20)), "checked again then, not at once");
        let later = later + Duration::from_millis(20);
        let all = ends.settled(wait(later), |_| false);
        let [(path, life)] = &all[..] else { panic!("{all:?}") };
        assert_eq!((path.as_str(), &life.records[..], life.notes.is_whole), ("/a/b", &[3, 7, 9][..], true));
        assert!(life.notes.has_run_itself() && life.notes.first_start() == Some(45));

        // A late record is no life of its own; a second removal is.
        ends.begin("/a/b", life.notes.clone());
        assert!(ends.over("/a/b", now).is_some() && ends.over("/a/b", now).is_none(), "once");
        ends.gather(of("/a/b", 1, &ended(CODE_3, 50), false), 1, wait(now));
        assert!(ends.next().is_none());
        ends.gather(of("/a/b", 3, &ended(CODE_3, 90), false), 3, wait(now));
        assert!(ends.next().is_some());
        ends.forget(now + REMEMBERED, |_| false);
        assert!(ends.over.is_empty() && ends.above.is_empty());
    }

    #[test]
    fn what_a_hierarchy_tells_of_after_it_told_of_what_is_shown_is_a_later_life() {
        let (mut ends, now) = (EndedLives::default(), Instant::now());
        ends.gather(of("/a", 3, &ended(CODE_3, 50), false), 3, wait(now));
        let life = ends.finish("/a").expect("it was gathered");
        let home = |said: &usize| *said;
        assert!(!ends.is_after("/a", &life, home), "the observed life has no record");
        ends.note_below("/a", EndBy::LastProcess, "/a/b", &ended(CODE_3, 40));
        ends.note("/a", 7, &ended(CODE_3, 40), false, now);
        assert!(!ends.is_after("/a", &life, home), "it may be the record of another hierarchy");
        ends.note("/a", 3, &ended(CODE_3, 40), false, now);
        assert!(ends.is_after("/a", &life, home));
        assert_eq!(ends.noted("/a").and_then(LifeNotes::last_at), Some(40));
    }

    #[test]
    fn a_container_ends_as_its_first_process_and_everything_else_as_its_last() {
        let mut notes = LifeNotes::default();
        let init = |level, end| EndNotes { init: Some((level, end)), ..ended(end, 70) };
        notes.record_below(EndBy::FirstProcess, "/a/b", &init(2, KILLED));
        notes.record(3, &EndNotes { last_at: 60, ..init(1, CODE_3) });
        notes.record(7, &NONE);
        let facts = |by| notes.facts(by, Timestamp).unwrap();
        let expected = |status, oom| ExitFacts { status, oom, on_request: false, finished_at: Some(Timestamp(70)) };
        assert_eq!(facts(EndBy::FirstProcess), expected(ExitStatus::Code(3), false), "the outermost namespace's");
        assert_eq!(facts(EndBy::LastProcess), expected(ExitStatus::Signal(9), true));
        let mut killed = LifeNotes::default();
        killed.record(3, &init(1, KILLED));
        assert_eq!(
            killed.facts(EndBy::FirstProcess, Timestamp),
            Some(expected(ExitStatus::Code(137), true)),
            "as runtimes say it"
        );
        assert_eq!(LifeNotes::default().facts(EndBy::FirstProcess, Timestamp), None, "nothing has ended in it");
    }

    #[test]
    fn whom_the_oom_killer_chose_is_told_by_the_one_hierarchy_that_counts_it() {
        let (chosen, killed) = (KILLED, ProcessEnd { oom_victim: false, ..KILLED });
        for order in [[chosen, killed], [killed, chosen]] {
            let mut notes = LifeNotes::default();
            order.iter().zip([3, 7]).for_each(|(end, home)| {
                notes.record(home, &EndNotes { init: Some((1, *end)), ..ended(*end, 70) });
            });
            assert!(
                [EndBy::FirstProcess, EndBy::LastProcess].iter().all(|by| notes.facts(*by, Timestamp).unwrap().oom)
            );
            // Another time means another process.
            notes.record(9, &ended(killed, 90));
            assert!(!notes.facts(EndBy::LastProcess, Timestamp).unwrap().oom);
        }
    }

    #[test]
    fn what_ends_inside_of_a_container_is_the_containers() {
        let (mut ends, now, task) = (EndedLives::default(), Instant::now(), container());
        ends.gather(of(&format!("{task}/inner"), 9, &ended(KILLED, 50), true), "inner", wait(now));
        ends.gather(of(&task, 9, &NONE, false), "task", wait(now));
        let life = ends.finish(&task).unwrap();
        assert!(life.notes.has_run() && !life.notes.has_run_itself() && life.found.is_some());
        assert_eq!((&life.records[..], life.notes.is_whole), (&["task"][..], false), "only its own row counts");
    }

    #[test]
    fn slices_and_helpers_are_nobodys_lives() {
        assert_eq!(whose("/system.slice"), LifeOwner::None);
        assert_eq!(whose("/batch/1"), LifeOwner::Plain);
        let id = "0123456789abcdef".repeat(4);
        assert_eq!(whose(&format!("/machine.slice/libpod-conmon-{id}.scope")), LifeOwner::None);
        let LifeOwner::Task(path, _) = whose(&format!("{}/a/b.service", container())) else { panic!("a container") };
        assert_eq!(path, container());
        let LifeOwner::Task(path, _) = whose("/system.slice/x.service/worker") else { panic!("a unit") };
        assert_eq!(path, "/system.slice/x.service");
    }
}
