//! Lives of cgroups that are over, as the kernel told of them: what is known of how each ended, and those that nobody had looked at. Pure: it
//! is told what was removed, and whose that was.
//!
//! ```text
//! removed ──► of a task that is shown ──► noted, until its end is told
//!    └── nobody's ──► gathered, hierarchy by hierarchy ──► nothing more for 20 ms ──► a whole life
//! ```
//! On a host with v1 hierarchies a cgroup is removed from each: one life. A path that is removed from the same hierarchy once more is another
//! life. What is told late of one that is over changes nothing.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::identity::{EndBy, Recognised, is_number};
use super::table::ExitFacts;
use super::tree::WhoseLife;
use crate::kernel::bpf::exits::{EndNotes, ProcessEnd};
use crate::model::id::CgroupPath;
use crate::model::task::ExitStatus;
use crate::model::units::Timestamp;

const SIGKILL: u8 = 9;
/// What is over is remembered so long.
const REMEMBERED: Duration = Duration::from_secs(10);

/// What the kernel has told of one life so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LifeNotes {
    /// The hierarchies that have told, one bit each.
    homes: u64,
    /// Processes that ended in it.
    count: u64,
    last: Option<(u64, ProcessEnd)>,
    /// Of the outermost namespace.
    init: Option<(u64, ProcessEnd)>,
    /// Of the processes that a launcher counts as its ranks, each in a cgroup of its own: the first that failed, else the last.
    ranks: Option<(u64, ProcessEnd)>,
    /// Nanoseconds since boot.
    first_start: Option<u64>,
    /// The CPU time of its whole life is told.
    pub(super) is_whole: bool,
}

impl LifeNotes {
    pub(super) fn has(&self, home: usize) -> bool {
        self.homes & bit(home) != 0
    }
    fn tell(&mut self, home: usize, notes: &EndNotes) {
        self.homes |= bit(home);
        self.count = self.count.max(notes.count);
        self.tell_processes(notes);
    }
    /// Of a cgroup inside of it.
    fn tell_below(&mut self, ends_by: EndBy, path: &str, notes: &EndNotes) {
        let name = path.rsplit('/').next().unwrap_or_default();
        let is_ranks = matches!(ends_by, EndBy::Ranks(called) if name.strip_prefix(called).is_some_and(is_number));
        // What a rank left running is killed when its step is over, and was the last one of it: that says nothing of the rank.
        let is_left = |last: &ProcessEnd| last.signal() == Some(SIGKILL) && !last.oom_victim;
        if let Some(last) = notes.last.filter(|last| is_ranks && !is_left(last)) {
            // The first that failed is why the others were ended.
            let failed =
                self.ranks.filter(|(at, end)| end.has_failed() && (!last.has_failed() || *at <= notes.last_at));
            let known = failed.map(|(at, end)| if at == notes.last_at { (at, end.beside(last)) } else { (at, end) });
            self.ranks = known.or(Some((notes.last_at, last)));
        }
        self.tell_processes(notes);
    }
    fn tell_processes(&mut self, notes: &EndNotes) {
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

    /// A process has ended in it.
    pub(super) fn has_run(&self) -> bool {
        self.last.is_some()
    }
    /// A process has ended in the very cgroup, not in one below it.
    pub(super) fn has_run_itself(&self) -> bool {
        self.count > 0
    }
    pub(super) fn first_start(&self) -> Option<u64> {
        self.first_start
    }
    /// When its last process ended.
    pub(super) fn last_at(&self) -> Option<u64> {
        self.last.map(|(at, _)| at)
    }

    /// `wall`: of nanoseconds since boot. `None`: nobody can tell.
    pub(super) fn facts(&self, by: EndBy, wall: impl Fn(u64) -> Timestamp) -> Option<ExitFacts> {
        let (at, last) = self.last?;
        let end = match by {
            EndBy::FirstProcess => self.init.map_or(last, |(_, init)| init),
            EndBy::LastProcess => last,
            EndBy::Nobody => return None,
            EndBy::Ranks(_) => self.ranks.map(|(_, rank)| rank).or(Some(last).filter(|last| last.oom_victim))?,
        };
        let status = match end.signal() {
            // As every runtime says it, so that one container ends alike whoever tells it.
            Some(signal) if matches!(by, EndBy::FirstProcess) => ExitStatus::Code(128_u8.saturating_add(signal)),
            Some(signal) => ExitStatus::Signal(signal),
            None => ExitStatus::Code(end.code()),
        };
        Some(ExitFacts { oom: end.oom_victim && end.signal().is_some(), status, finished_at: Some(wall(at)) })
    }
}

fn bit(home: usize) -> u64 {
    1 << home.min(63)
}

/// One that nobody had looked at. `T`: what each hierarchy said.
#[derive(Debug)]
pub(super) struct BriefLife<T> {
    /// `None`: a plain cgroup.
    pub(super) found: Option<Recognised>,
    pub(super) notes: LifeNotes,
    pub(super) told: Vec<T>,
    /// Of cgroups inside of it.
    pub(super) told_below: Vec<T>,
    /// Nothing more is waited for then, and at the latest then.
    settles: Instant,
    until: Instant,
}

/// A cgroup that was removed from one hierarchy.
#[derive(Debug)]
pub(super) struct Removed<'a> {
    pub(super) path: &'a str,
    pub(super) whose: WhoseLife,
    pub(super) home: usize,
    pub(super) notes: &'a EndNotes,
    /// Its row tells the CPU time of its whole life.
    pub(super) is_whole: bool,
}

/// Concurrency: whoever owns it.
#[derive(Debug)]
pub(super) struct Ends<T> {
    /// Of tasks that are shown, or will be.
    notes: HashMap<String, LifeNotes>,
    brief: HashMap<String, BriefLife<T>>,
    over: HashMap<String, (u64, Instant)>,
    /// Somebody's cgroup was below these.
    above: HashMap<String, Instant>,
}

impl<T> Default for Ends<T> {
    fn default() -> Ends<T> {
        Ends { notes: HashMap::new(), brief: HashMap::new(), over: HashMap::new(), above: HashMap::new() }
    }
}

impl<T> Ends<T> {
    /// A task that is shown was removed from this hierarchy.
    pub(super) fn note(&mut self, path: &str, home: usize, notes: &EndNotes, is_whole: bool, now: Instant) {
        let of = self.notes.entry(path.to_owned()).or_default();
        of.tell(home, notes);
        of.is_whole |= is_whole;
        self.stood_above(path, now);
    }
    /// A cgroup inside of a task that is shown was removed.
    pub(super) fn note_below(&mut self, task: &str, ends_by: EndBy, path: &str, notes: &EndNotes) {
        self.notes.entry(task.to_owned()).or_default().tell_below(ends_by, path, notes);
    }
    pub(super) fn noted(&self, path: &str) -> Option<&LifeNotes> {
        self.notes.get(path)
    }

    /// A cgroup that nobody had looked at was removed. `said`: by its row, of the task's own cgroup.
    pub(super) fn gather(&mut self, removed: Removed<'_>, said: T, now: Wait) {
        let Removed { path, whose, home, notes, is_whole } = removed;
        let (task, found) = match whose {
            WhoseLife::Nobody => return,
            WhoseLife::Plain => (path.to_owned(), None),
            WhoseLife::Task(task, found) => (task, Some(*found)),
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
            told: Vec::new(),
            told_below: Vec::new(),
            settles: now.now + now.settled,
            until: now.now + now.most,
        });
        life.settles = now.now + now.settled;
        if task == path {
            life.notes.tell(home, notes);
            life.notes.is_whole |= is_whole;
            life.told.push(said);
        } else {
            let ends_by = life.found.as_ref().map_or(EndBy::LastProcess, |found| found.ends_by);
            life.notes.tell_below(ends_by, path, notes);
            life.told_below.push(said);
        }
    }
    /// One is being gathered there that this hierarchy has told of already: what it tells now is of another one.
    pub(super) fn is_another(&self, path: &str, home: usize) -> bool {
        self.brief.get(path).is_some_and(|life| life.notes.has(home))
    }
    /// A life that one of its hierarchies told of after it had told of the one that is shown there. `home`: which hierarchy said it.
    pub(super) fn is_after(&self, path: &str, life: &BriefLife<T>, home: impl Fn(&T) -> usize) -> bool {
        self.noted(path).is_some_and(|shown| life.told.iter().any(|said| shown.has(home(said))))
    }
    /// What each hierarchy said of one that is being gathered. `None`: none is.
    pub(super) fn told_of(&self, path: &str) -> Option<impl Iterator<Item = &T>> {
        self.brief.get(path).map(|life| life.told.iter())
    }
    /// It is taken as it is.
    pub(super) fn finish(&mut self, path: &str) -> Option<BriefLife<T>> {
        self.brief.remove(path)
    }
    /// Lives that no further record is expected of. `is_there`: the cgroup still exists in some hierarchy, so that its removal
    /// from there, with the values of that hierarchy, is still to come.
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
    /// Whether what it counted may be what others below it used.
    pub(super) fn was_above(&self, path: &str) -> bool {
        self.above.contains_key(path)
    }
    /// When somebody is to look again.
    pub(super) fn next(&self) -> Option<Instant> {
        self.brief.values().map(|life| life.settles).min()
    }

    /// A life becomes a task that is shown, and ends at once.
    pub(super) fn begin(&mut self, path: &str, notes: LifeNotes) {
        self.notes.insert(path.to_owned(), notes);
    }
    /// Its end is told. Gives what is known of it.
    pub(super) fn over(&mut self, path: &str, now: Instant) -> Option<LifeNotes> {
        let notes = self.notes.remove(path)?;
        self.over.insert(path.to_owned(), (notes.homes, now));
        Some(notes)
    }

    /// Forgets what is long over. `is_there`: it is a task that is shown.
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

/// How long is waited.
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
    fn whose(path: &str) -> WhoseLife {
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
        let (mut ends, now) = (Ends::default(), Instant::now());
        for home in [3, 7, 9] {
            assert!(!ends.is_another("/a/b", home));
            ends.gather(of("/a/b", home, &ended(CODE_3, 50), home == 9), home, wait(now));
        }
        assert!(ends.is_another("/a/b", 3) && ends.was_above("/a") && !ends.was_above("/a/b"));
        let later = now + Duration::from_millis(30);
        assert!(ends.settled(wait(now), |_| false).is_empty(), "more may come");
        assert!(ends.settled(wait(later), |_| true).is_empty(), "another hierarchy has it yet");
        assert_eq!(ends.next(), Some(later + Duration::from_millis(20)), "it is looked for again then, not at once");
        let later = later + Duration::from_millis(20);
        let all = ends.settled(wait(later), |_| false);
        let [(path, life)] = &all[..] else { panic!("{all:?}") };
        assert_eq!((path.as_str(), &life.told[..], life.notes.is_whole), ("/a/b", &[3, 7, 9][..], true));
        assert!(life.notes.has_run_itself() && life.notes.first_start() == Some(45));

        // What comes late is no life of its own, and the same again is.
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
        let (mut ends, now) = (Ends::default(), Instant::now());
        ends.gather(of("/a", 3, &ended(CODE_3, 50), false), 3, wait(now));
        let life = ends.finish("/a").expect("it was gathered");
        let home = |said: &usize| *said;
        assert!(!ends.is_after("/a", &life, home), "nothing was told of what is shown");
        ends.note_below("/a", EndBy::LastProcess, "/a/b", &ended(CODE_3, 40));
        ends.note("/a", 7, &ended(CODE_3, 40), false, now);
        assert!(!ends.is_after("/a", &life, home), "it may be what another hierarchy has to tell of it");
        ends.note("/a", 3, &ended(CODE_3, 40), false, now);
        assert!(ends.is_after("/a", &life, home));
        assert_eq!(ends.noted("/a").and_then(LifeNotes::last_at), Some(40));
    }

    #[test]
    fn a_container_ends_as_its_first_process_and_everything_else_as_its_last() {
        let mut notes = LifeNotes::default();
        let init = |level, end| EndNotes { init: Some((level, end)), ..ended(end, 70) };
        notes.tell_below(EndBy::FirstProcess, "/a/b", &init(2, KILLED));
        notes.tell(3, &EndNotes { last_at: 60, ..init(1, CODE_3) });
        notes.tell(7, &NONE);
        let facts = |by| notes.facts(by, Timestamp).unwrap();
        let expected = |status, oom| ExitFacts { status, oom, finished_at: Some(Timestamp(70)) };
        assert_eq!(facts(EndBy::FirstProcess), expected(ExitStatus::Code(3), false), "the outermost namespace's");
        assert_eq!(facts(EndBy::LastProcess), expected(ExitStatus::Signal(9), true));
        let mut killed = LifeNotes::default();
        killed.tell(3, &init(1, KILLED));
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
                notes.tell(home, &EndNotes { init: Some((1, *end)), ..ended(*end, 70) });
            });
            assert!(
                [EndBy::FirstProcess, EndBy::LastProcess].iter().all(|by| notes.facts(*by, Timestamp).unwrap().oom)
            );
            // Of another moment it is another process.
            notes.tell(9, &ended(killed, 90));
            assert!(!notes.facts(EndBy::LastProcess, Timestamp).unwrap().oom);
        }
    }

    #[test]
    fn what_ends_inside_of_a_container_is_the_containers() {
        let (mut ends, now, task) = (Ends::default(), Instant::now(), container());
        ends.gather(of(&format!("{task}/inner"), 9, &ended(KILLED, 50), true), "inner", wait(now));
        ends.gather(of(&task, 9, &NONE, false), "task", wait(now));
        let life = ends.finish(&task).unwrap();
        assert!(life.notes.has_run() && !life.notes.has_run_itself() && life.found.is_some());
        assert_eq!((&life.told[..], life.notes.is_whole), (&["task"][..], false), "only its own row counts");
    }

    #[test]
    fn slices_and_helpers_are_nobodys_lives() {
        assert_eq!(whose("/system.slice"), WhoseLife::Nobody);
        assert_eq!(whose("/batch/1"), WhoseLife::Plain);
        let id = "0123456789abcdef".repeat(4);
        assert_eq!(whose(&format!("/machine.slice/libpod-conmon-{id}.scope")), WhoseLife::Nobody);
        let WhoseLife::Task(path, _) = whose(&format!("{}/a/b.service", container())) else { panic!("a container") };
        assert_eq!(path, container());
        let WhoseLife::Task(path, _) = whose("/system.slice/x.service/worker") else { panic!("a unit") };
        assert_eq!(path, "/system.slice/x.service");
    }
}
