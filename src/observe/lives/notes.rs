//! What the kernel's end records report of one life. Pure.

use crate::kernel::bpf::exits::{EndNotes, ProcessEnd};
use crate::model::task::ExitStatus;
use crate::model::units::Timestamp;
use crate::observe::exits::{self, ExitFacts};
use crate::observe::identity::{ExitRule, is_number};

const SIGKILL: u8 = 9;

/// What the kernel has reported about one life so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::observe) struct LifeExits {
    /// Bit set of the hierarchies that reported the removal.
    pub(super) hierarchies: u64,
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
    pub(in crate::observe) is_whole: bool,
}

impl LifeExits {
    pub(in crate::observe) fn has(&self, hierarchy: usize) -> bool {
        self.hierarchies & bit(hierarchy) != 0
    }
    /// Records the removal of the cgroup itself.
    pub(super) fn record(&mut self, hierarchy: usize, notes: &EndNotes, is_whole: bool) {
        self.hierarchies |= bit(hierarchy);
        self.is_whole |= is_whole;
        self.count = self.count.max(notes.count);
        self.record_processes(notes);
    }
    /// Records the removal of a cgroup below the task's.
    pub(super) fn record_below(&mut self, ends_by: ExitRule, path: &str, notes: &EndNotes) {
        let name = path.rsplit('/').next().unwrap_or_default();
        let is_ranks = matches!(ends_by, ExitRule::Ranks(called) if name.strip_prefix(called).is_some_and(is_number));
        // Processes that a rank left behind are killed at the end of the step. Their exit is not that of the rank.
        let is_left = |last: &ProcessEnd| last.signal() == Some(SIGKILL) && !last.oom_victim;
        if let Some(last) = notes.last.filter(|last| is_ranks && !is_left(last)) {
            // The first failure is the reason why the others were stopped.
            let failed =
                self.ranks.filter(|(at, end)| end.has_failed() && (!last.has_failed() || *at <= notes.last_at));
            let known = failed.map(|(at, end)| if at == notes.last_at { (at, end.merged(last)) } else { (at, end) });
            self.ranks = known.or(Some((notes.last_at, last)));
        }
        self.record_processes(notes);
    }
    fn record_processes(&mut self, notes: &EndNotes) {
        if let Some(last) = notes.last
            && self.last.is_none_or(|(at, _)| at <= notes.last_at)
        {
            let same = self.last.filter(|(at, _)| *at == notes.last_at);
            self.last = Some((notes.last_at, same.map_or(last, |(_, known)| last.merged(known))));
        }
        if let Some((level, end)) = notes.init
            && self.init.is_none_or(|(known, _)| level <= known)
        {
            let same = self.init.filter(|(known, _)| *known == level);
            self.init = Some((level, same.map_or(end, |(_, known)| end.merged(known))));
        }
        if notes.count > 0 {
            self.first_start = Some(self.first_start.map_or(notes.first_start, |first| first.min(notes.first_start)));
        }
    }

    /// Whether a process ended in it or below.
    pub(in crate::observe) fn has_run(&self) -> bool {
        self.last.is_some()
    }
    /// Whether a process ended in this very cgroup, not below.
    pub(in crate::observe) fn has_run_itself(&self) -> bool {
        self.count > 0
    }
    pub(in crate::observe) fn first_start(&self) -> Option<u64> {
        self.first_start
    }
    /// End of its last process.
    pub(in crate::observe) fn last_at(&self) -> Option<u64> {
        self.last.map(|(at, _)| at)
    }

    /// `wall`: converts nanoseconds since boot. `None`: the exit is unknown.
    pub(in crate::observe) fn facts(&self, by: ExitRule, wall: impl Fn(u64) -> Timestamp) -> Option<ExitFacts> {
        let (at, last) = self.last?;
        let finished_at = Some(wall(at));
        let unknown = |why: &str| Some(exits::unknown(why, finished_at));
        let end = match by {
            ExitRule::FirstProcess => self.init.map_or(last, |(_, init)| init),
            ExitRule::LastProcess => last,
            ExitRule::Ignored => return unknown("its runtime ended its processes, whose exits are not its own"),
            ExitRule::Ranks(_) => match self.ranks {
                Some((_, rank)) => rank,
                None if last.oom_victim => last,
                None => return unknown("its ranks have no cgroups of their own, so their exits are not known"),
            },
        };
        let status = match end.signal() {
            // Runtimes report a signal as 128 + n, so the exit code does not depend on who reports it.
            Some(signal) if matches!(by, ExitRule::FirstProcess) => ExitStatus::Code(128_u8.saturating_add(signal)),
            Some(signal) => ExitStatus::Signal(signal),
            None => ExitStatus::Code(end.code()),
        };
        Some(ExitFacts {
            oom: end.oom_victim && end.signal().is_some(),
            on_request: false,
            will_restart: false,
            result: None,
            status,
            finished_at,
        })
    }
}

pub(super) fn bit(hierarchy: usize) -> u64 {
    1 << hierarchy.min(63)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::task::Outcome;

    const CODE_3: ProcessEnd = ProcessEnd { status: 3 << 8, oom_victim: false };
    const KILLED: ProcessEnd = ProcessEnd { status: 9, oom_victim: true };
    const NONE: EndNotes = EndNotes { count: 0, last: None, init: None, last_at: 0, first_start: 0 };

    fn ended(last: ProcessEnd, at: u64) -> EndNotes {
        EndNotes { count: 1, last: Some(last), last_at: at, first_start: at - 5, ..NONE }
    }

    #[test]
    fn a_container_ends_as_its_first_process_and_everything_else_as_its_last() {
        let mut notes = LifeExits::default();
        let init = |level, end| EndNotes { init: Some((level, end)), ..ended(end, 70) };
        notes.record_below(ExitRule::FirstProcess, "/a/b", &init(2, KILLED));
        notes.record(3, &EndNotes { last_at: 60, ..init(1, CODE_3) }, false);
        notes.record(7, &NONE, false);
        let facts = |by| notes.facts(by, Timestamp).unwrap();
        let expected = |status, oom| ExitFacts {
            status,
            oom,
            on_request: false,
            will_restart: false,
            result: None,
            finished_at: Some(Timestamp(70)),
        };
        assert_eq!(facts(ExitRule::FirstProcess), expected(ExitStatus::Code(3), false), "the outermost namespace's");
        assert_eq!(facts(ExitRule::LastProcess), expected(ExitStatus::Signal(9), true));
        let mut killed = LifeExits::default();
        killed.record(3, &init(1, KILLED), false);
        assert_eq!(
            killed.facts(ExitRule::FirstProcess, Timestamp),
            Some(expected(ExitStatus::Code(137), true)),
            "as runtimes say it"
        );
        assert_eq!(LifeExits::default().facts(ExitRule::FirstProcess, Timestamp), None, "nothing has ended in it");
    }

    #[test]
    fn end_that_no_process_of_a_step_reports_has_its_time_and_the_reason() {
        let ranks = ExitRule::Ranks("task_");
        let mut notes = LifeExits::default();
        notes.record_below(ranks, "/job_1/step_0/user", &ended(ProcessEnd { status: 0, oom_victim: false }, 60));
        notes.record(3, &NONE, false);
        for by in [ranks, ExitRule::Ignored] {
            let facts = notes.facts(by, Timestamp).unwrap();
            assert_eq!((facts.outcome(), facts.finished_at), (Outcome::Unknown, Some(Timestamp(60))), "{by:?}");
            assert!(matches!(facts.status, ExitStatus::Unknown(_)), "{by:?}: {facts:?}");
        }
        notes.record_below(ranks, "/job_1/step_0/user/task_0", &ended(CODE_3, 50));
        assert_eq!(notes.facts(ranks, Timestamp).unwrap().status, ExitStatus::Code(3));
    }

    #[test]
    fn oom_kill_is_reported_by_the_one_hierarchy_that_counts_it() {
        let (chosen, killed) = (KILLED, ProcessEnd { oom_victim: false, ..KILLED });
        for order in [[chosen, killed], [killed, chosen]] {
            let mut notes = LifeExits::default();
            order.iter().zip([3, 7]).for_each(|(end, hierarchy)| {
                notes.record(hierarchy, &EndNotes { init: Some((1, *end)), ..ended(*end, 70) }, false);
            });
            assert!(
                [ExitRule::FirstProcess, ExitRule::LastProcess]
                    .iter()
                    .all(|by| notes.facts(*by, Timestamp).unwrap().oom)
            );
            // Another time means another process.
            notes.record(9, &ended(killed, 90), false);
            assert!(!notes.facts(ExitRule::LastProcess, Timestamp).unwrap().oom);
        }
    }
}
