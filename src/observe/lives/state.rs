//! States, events and actions of the lives at one path.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use super::notes::{LifeExits, bit};
use crate::kernel::bpf::exits::EndNotes;
use crate::model::units::Timestamp;
use crate::observe::exits::{EndReport, ExitFacts};
use crate::observe::identity::{RecognisedTask, TaskNaming};
use crate::telemetry::observed::EndMissed;

/// How long the removal of a cgroup from all hierarchies may take.
const REMOVAL: Duration = Duration::from_secs(10);

/// What the driver measures with; the machine only passes it on.
pub(in crate::observe) trait LifeTypes: Debug + Default {
    /// The readers of a task.
    type Task: Debug + Clone;
    /// Which cgroup a task has, without its readers.
    type Cgroup: Debug;
    /// An end record of the kernel.
    type Record: Debug;
}

/// A cgroup that is measured as a task.
#[derive(Debug)]
pub(in crate::observe) struct MeasuredLife<M: LifeTypes> {
    pub found: RecognisedTask,
    pub task: M::Task,
    /// `None`: the cgroup was removed before it was measured.
    pub inode: Option<u64>,
    pub notes: LifeExits,
}

/// Why a cgroup is not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::observe) enum HiddenReason {
    /// Too many are shown.
    Limit,
    Excluded,
    /// Excluded by what is known so far; its source may still report more.
    Undecided,
    /// Its life has ended, and its runtime keeps the cgroup.
    Stopped,
}

/// The cgroup at the path.
#[derive(Debug, Default)]
pub(in crate::observe) enum State<M: LifeTypes> {
    /// No cgroup, or none that was checked as a task.
    #[default]
    Absent,
    /// A plain cgroup without processes. `has_run`: the last check saw CPU usage.
    Empty {
        has_run: bool,
    },
    Aside(HiddenReason),
    /// Measured; shown once its name is known.
    Naming {
        life: Box<MeasuredLife<M>>,
        until: Instant,
    },
    Shown(Box<MeasuredLife<M>>),
    /// It was shown and exists, but other tasks live inside of it.
    Covered {
        inode: u64,
    },
}

/// A life whose cgroup was removed; shown once its name is known.
#[derive(Debug)]
pub(super) struct RemovedUnnamedLife<M: LifeTypes> {
    pub(super) life: Box<MeasuredLife<M>>,
    pub(super) until: Instant,
}

/// A life whose cgroup was removed; its runtime is queried for the exit status.
#[derive(Debug)]
pub(super) struct EndingLife<M: LifeTypes> {
    pub(super) life: Box<MeasuredLife<M>>,
    pub(super) number: u64,
    pub(super) until: Instant,
}

/// The last life that ended before its cgroup was removed: the end records of the cgroup are late.
#[derive(Debug)]
pub(super) struct StoppedLife<M: LifeTypes> {
    pub(super) cgroup: M::Cgroup,
    /// Of the cgroup at the path.
    pub(super) inode: u64,
    /// When its cgroup last existed.
    pub(super) at: Instant,
}

/// The shown life has no process, and its cgroup exists.
#[derive(Debug, Clone, Copy)]
pub(super) struct EmptiedLife {
    /// When this was seen first and last.
    pub(super) since: Instant,
    pub(super) last: Instant,
    /// Number of the query whether its runtime has stopped it.
    pub(super) query: Option<u64>,
    /// Since when its runtime does not report it.
    pub(super) refused_since: Option<Instant>,
}

/// A life that was not measured while it lasted, from the kernel's end records.
#[derive(Debug)]
pub(in crate::observe) struct RecordedLife<M: LifeTypes> {
    pub found: RecognisedTask,
    pub notes: LifeExits,
    pub records: Vec<RemovalRecord<M>>,
    /// Of cgroups below it.
    pub records_below: Vec<M::Record>,
    /// Other tasks lived inside of it, so that its counters include their usage.
    pub was_above: bool,
    /// Waits until `settles` for further records, and until `until` at most.
    pub(super) settles: Instant,
    pub(super) until: Instant,
}

/// A cgroup was removed from one hierarchy, as the kernel reports it.
#[derive(Debug)]
pub(in crate::observe) struct RemovalRecord<M: LifeTypes> {
    /// Index of the hierarchy.
    pub hierarchy: usize,
    pub notes: EndNotes,
    /// It has the complete CPU time.
    pub is_whole: bool,
    pub raw: M::Record,
}

/// A task that an earlier agent showed.
#[derive(Debug)]
pub(in crate::observe) struct RecoveredLife {
    pub naming: TaskNaming,
    pub since: Option<Timestamp>,
    /// The totals include its usage up to now.
    pub is_counted: bool,
}

/// The pause before the next query for a name, doubled each time: a source that never replies costs less and less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NameRetry {
    pub(super) next: Instant,
    pub(super) pause: Duration,
}

/// All that is known of the cgroups at one path.
#[derive(Debug, Default)]
pub(in crate::observe) struct Lives<M: LifeTypes> {
    /// The oldest life, before `removed_unnamed`.
    pub(super) ending: Option<EndingLife<M>>,
    pub(super) removed_unnamed: Option<RemovedUnnamedLife<M>>,
    /// Never measured; they wait for the name of `removed_unnamed`, because without it they would be other allocs.
    pub(super) recorded: VecDeque<RecordedLife<M>>,
    /// The newest life.
    pub(super) state: State<M>,
    /// When it is checked next, if it is not measured.
    pub(super) check_at: Option<Instant>,
    /// End records that belong to no measured life, until no further one comes.
    pub(super) gathering: Option<Box<RecordedLife<M>>>,
    /// When it was removed from one of its hierarchies.
    pub(super) leaving: Option<Instant>,
    /// When it was created, if that was seen and it never had children.
    pub(super) made: Option<Timestamp>,
    /// The name of this container and when it last existed. A restarted one may end before its source reports the name
    /// again; a path with a runtime's ID belongs to one container.
    pub(super) name: Option<Box<(TaskNaming, Instant)>>,
    pub(super) retry: Option<NameRetry>,
    /// From an earlier agent, until it begins again.
    pub(super) recovered: Option<Box<RecoveredLife>>,
    /// Inode of a cgroup whose usage under an earlier agent is in the totals already, and when it last existed.
    pub(super) counted: Option<(u64, Instant)>,
    /// Hierarchies that reported the removal of the last ended life, and when it ended: further records are late.
    pub(super) over: Option<(u64, Instant)>,
    /// It is or was above a task, with its inode then.
    pub(super) above: Option<Option<u64>>,
    /// When an end was reported below it, so that its counters may include that usage.
    pub(super) removed_below: Option<Instant>,
    pub(super) emptied: Option<EmptiedLife>,
    pub(super) stopped: Option<StoppedLife<M>>,
}

/// Result of checking a cgroup that the tree calls a task.
#[derive(Debug)]
pub(in crate::observe) enum CheckOutcome<M: LifeTypes> {
    Excluded,
    /// The remains of a cgroup that is being removed; or it is in none of the sampled hierarchies.
    Unreadable,
    /// Plain and without processes. `has_run`: with CPU usage of its own.
    Empty {
        has_run: bool,
    },
    NoRoom,
    Ready(Box<MeasuredLife<M>>),
}

/// What happened to the cgroup at the path, or to a life of it.
#[derive(Debug)]
pub(in crate::observe) enum LifeEvent<M: LifeTypes> {
    /// It was created, or appeared in a further hierarchy. `None`: it was removed again.
    Made(Option<Timestamp>),
    /// It was removed from a hierarchy.
    Removed,
    /// No task is there any more: it was removed, or other tasks live inside of it.
    NoTask,
    /// The readers find that the measured cgroup was removed or replaced, which was not reported.
    Vanished,
    /// A cgroup was created below it.
    Grew,
    /// It is above a task, with this inode.
    Above(Option<u64>),
    /// An end was reported below it.
    RemovedBelow,
    Checked(CheckOutcome<M>),
    /// It has or had a process.
    Occupied,
    /// An earlier agent showed it.
    Recovered(Box<RecoveredLife>),
    /// `below`: of this cgroup below it. `found`: what it is if it is no measured life.
    Record {
        below: Option<String>,
        record: RemovalRecord<M>,
        found: Box<RecognisedTask>,
    },
    /// No further end record came for a while, or another cgroup stands there.
    Gathered {
        is_followed: bool,
    },
    /// Its source reports that it has another name now.
    Renamed,
    /// Its processes have ended, and the cgroup exists.
    Emptied,
    /// The reply of its source: the name, or `None` if it knows none.
    Named(Option<Box<TaskNaming>>),
    /// The query for the name was not queued. `again`: it was a retry.
    NotQueued {
        again: bool,
    },
    /// The runtime's reply about the life of this number.
    Exited {
        number: u64,
        report: EndReport,
    },
    /// A deadline is over.
    Due,
    /// Time to forget what is over.
    Sweep,
}

/// What the driver is to do.
#[derive(Debug)]
pub(in crate::observe) enum LifeAction<M: LifeTypes> {
    /// Watch for the first process. `Occupied`, if it has one already.
    Listen,
    /// It is measured, and counts for the share of its user; `Release` or `Hide` follows.
    Measure(Box<RecognisedTask>),
    /// It is a task that exists: watch for its last process.
    Watch {
        is_plain: bool,
    },
    /// It is not shown.
    Release {
        user: Option<u32>,
    },
    /// `None`: known by its path only. `NotQueued`, if that fails.
    QueryName {
        found: Option<Box<RecognisedTask>>,
        again: bool,
    },
    /// `Exited`, if that fails.
    QueryExit {
        number: u64,
        found: Box<RecognisedTask>,
        began_at: Option<u64>,
        ended_at: Option<u64>,
    },
    /// It begins on the board. `inode`: of a cgroup that exists.
    Show {
        found: Box<RecognisedTask>,
        task: M::Task,
        naming: Box<TaskNaming>,
        inode: Option<u64>,
    },
    Rename {
        found: Box<RecognisedTask>,
        naming: Box<TaskNaming>,
    },
    /// Its cgroup is no task any more; `Cover` or `End` follows.
    Hide(Box<RecognisedTask>),
    Cover,
    /// It has ended, by what its runtime and the kernel report.
    End {
        life: Box<MeasuredLife<M>>,
        facts: Option<ExitFacts>,
    },
    /// It has ended, by what its runtime reports; its cgroup exists. `None`: its runtime does not report it any more.
    Stop {
        life: Box<MeasuredLife<M>>,
        facts: Option<ExitFacts>,
        /// Since when it has no process.
        emptied_at: Instant,
    },
    /// Add an end record to the values of this life, or that of a cgroup below.
    Add {
        task: M::Task,
        raw: M::Record,
        is_below: bool,
    },
    /// An end appears nowhere.
    Miss(EndMissed),
    /// An earlier agent's task does not begin again. What it used stays in the totals, and later usage counts from then
    /// on.
    DropRecovered,
}

/// What a step reads of the host, the configuration and the other paths.
pub(in crate::observe) trait PathFacts<M: LifeTypes> {
    fn now(&self) -> Instant;
    /// A number that no other life has.
    fn number(&self) -> u64;
    /// Of the cgroup at the path.
    fn inode(&self) -> Option<u64>;
    /// Whether a cgroup is at the path in a hierarchy that is scanned for tasks.
    fn is_scanned(&self) -> bool;
    /// Whether a cgroup is at the path in any hierarchy.
    fn exists(&self) -> bool;
    /// Whether the record is not that of another cgroup.
    fn is_of(&self, task: &M::Task, raw: &M::Record) -> bool;
    fn cgroup(&self, task: &M::Task) -> M::Cgroup;
    /// Whether the record is not that of another cgroup.
    fn is_of_cgroup(&self, cgroup: &M::Cgroup, raw: &M::Record) -> bool;
    /// Whether a measured task of this name is shown.
    fn admits(&self, found: &RecognisedTask, naming: &TaskNaming) -> Result<(), HiddenReason>;
    /// Whether a task is still shown under this new name.
    fn keeps(&self, found: &RecognisedTask, naming: &TaskNaming) -> bool;
    /// Readers for a life that is over.
    fn measure(&self, life: &RecordedLife<M>) -> Result<M::Task, HiddenReason>;
    /// Whether one more name can be remembered.
    fn has_room_for_name(&self) -> bool;
    /// Whether the path contains the name, so that no source is queried.
    fn is_named(&self, found: &RecognisedTask) -> bool;
    /// Whether a source reports the name only after a process runs.
    fn is_named_late(&self, found: &RecognisedTask) -> bool;
}

impl<M: LifeTypes> State<M> {
    pub(super) fn life(&self) -> Option<&MeasuredLife<M>> {
        match self {
            State::Naming { life, .. } | State::Shown(life) => Some(life),
            State::Absent | State::Empty { .. } | State::Aside(_) | State::Covered { .. } => None,
        }
    }
    fn life_mut(&mut self) -> Option<&mut Box<MeasuredLife<M>>> {
        match self {
            State::Naming { life, .. } | State::Shown(life) => Some(life),
            State::Absent | State::Empty { .. } | State::Aside(_) | State::Covered { .. } => None,
        }
    }
}

impl<M: LifeTypes> Lives<M> {
    pub(in crate::observe) fn state(&self) -> &State<M> {
        &self.state
    }
    /// Creation time. `None`: it existed before the agent, or had child cgroups, whose usage is part of its own.
    pub(in crate::observe) fn made_at(&self) -> Option<Timestamp> {
        self.made
    }
    /// Its counters include its own usage only.
    pub(in crate::observe) fn is_own(&self) -> bool {
        self.made.is_some() && self.removed_below.is_none()
    }
    pub(in crate::observe) fn is_known_above(&self) -> bool {
        self.above.is_some()
    }
    /// What remains of a cgroup that is being removed is not a new one.
    pub(in crate::observe) fn is_leaving(&self, now: Instant) -> bool {
        self.leaving.is_some_and(|at| now.saturating_duration_since(at) < REMOVAL)
    }
    /// An earlier agent showed it.
    pub(in crate::observe) fn is_recovered(&self) -> bool {
        self.recovered.is_some()
    }
    /// Start time that an earlier agent knew.
    pub(in crate::observe) fn recovered_since(&self) -> Option<Timestamp> {
        self.recovered.as_ref().and_then(|recovered| recovered.since)
    }
    /// Its runtime is queried whether it has stopped it.
    pub(in crate::observe) fn is_emptied(&self) -> bool {
        self.emptied.is_some()
    }
    /// In a place that has to be cleared once the task has ended.
    pub(in crate::observe) fn is_placed(&self) -> bool {
        self.leaving.is_some() || !matches!(self.state, State::Absent | State::Covered { .. })
    }
    /// No further end record is expected for now.
    pub(in crate::observe) fn is_gathered(&self, now: Instant) -> bool {
        self.gathering.as_ref().is_some_and(|life| life.settles <= now)
    }
    /// The hierarchies of the end records that are being gathered. `None`: none of the cgroup itself.
    pub(in crate::observe) fn gathers(&self) -> Option<impl Fn(usize) -> bool + use<M>> {
        let hierarchies =
            self.gathering.as_ref().map(|life| life.notes.hierarchies).filter(|hierarchies| *hierarchies != 0)?;
        Some(move |hierarchy| hierarchies & bit(hierarchy) != 0)
    }
    /// The counters of the cgroup of this inode include usage of other tasks, or of itself that is counted elsewhere.
    pub(in crate::observe) fn includes_other_usage(&self, inode: u64) -> bool {
        let is_counted = self.counted.is_some_and(|(known, _)| known == inode);
        let is_covered = matches!(self.state, State::Covered { inode: known } if known == inode);
        is_counted || is_covered || self.above == Some(Some(inode))
    }
    /// What is in it belongs to a task of this path.
    pub(in crate::observe) fn is_task(&self) -> bool {
        self.state.life().is_some() || matches!(self.state, State::Aside(_)) || self.removed_unnamed.is_some()
    }

    /// The life that end records and readings belong to: the latest one that is measured.
    pub(in crate::observe) fn measured(&self) -> Option<&MeasuredLife<M>> {
        let past =
            || self.removed_unnamed.as_ref().map(|late| &late.life).or(self.ending.as_ref().map(|ending| &ending.life));
        self.state.life().or_else(|| past().map(|life| &**life))
    }
    /// All measured lives, the latest first.
    pub(super) fn all_measured_mut(&mut self) -> impl Iterator<Item = &mut Box<MeasuredLife<M>>> {
        let late = self.removed_unnamed.iter_mut().map(|late| &mut late.life);
        self.state.life_mut().into_iter().chain(late).chain(self.ending.iter_mut().map(|ending| &mut ending.life))
    }

    /// Whether a check of the task at the path could change anything now. `has_room`: for one more.
    pub(in crate::observe) fn is_open(&self, now: Instant, has_room: impl FnOnce() -> bool) -> bool {
        self.removed_unnamed.is_none()
            && match &self.state {
                State::Absent | State::Covered { .. } => self.check_at.is_none_or(|at| at <= now),
                State::Empty { .. } => self.check_at.is_some_and(|at| at <= now),
                State::Aside(why) => *why == HiddenReason::Limit && has_room(),
                State::Naming { .. } | State::Shown(_) => false,
            }
    }
    /// A check is due.
    pub(in crate::observe) fn is_due_for_check(&self, now: Instant) -> bool {
        self.next_check().is_some_and(|at| at <= now)
    }
    fn next_check(&self) -> Option<Instant> {
        match &self.state {
            State::Absent | State::Empty { .. } | State::Covered { .. } => self.check_at,
            State::Aside(_) | State::Naming { .. } | State::Shown(_) => None,
        }
    }
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let naming = if let State::Naming { until, .. } = &self.state { Some(*until) } else { None };
        let (late, ending) =
            (self.removed_unnamed.as_ref().map(|late| late.until), self.ending.as_ref().map(|ending| ending.until));
        let gathered = self.gathering.as_ref().map(|life| life.settles);
        let all = [naming, late, ending, gathered, self.next_check(), self.retry.map(|retry| retry.next)];
        all.into_iter().flatten().min()
    }

    /// Nothing is known.
    pub(super) fn is_blank(&self) -> bool {
        let is_idle = matches!(self.state, State::Absent) && self.next_deadline().is_none();
        is_idle && self.leaving.is_none() && !self.has_to_forget()
    }
    /// A sweep may have something to forget.
    pub(super) fn has_to_forget(&self) -> bool {
        let Lives { state, made, name, recovered, counted, over, above, removed_below, stopped, .. } = self;
        let is_remembered = name.is_some() || recovered.is_some() || over.is_some() || removed_below.is_some();
        is_remembered
            || counted.is_some()
            || stopped.is_some()
            || made.is_some()
            || above.is_some()
            || matches!(state, State::Covered { .. })
    }
}
