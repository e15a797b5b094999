//! Measures: what is exposed of a thing (a task, a device, the host), each declared once. What has it, whether it
//! counts, what stays after the end and how it is summed follow from its nature.

use std::fmt::Debug;

use super::metric::{Kind, Life, Otlp, Value};
use super::profile::{Profile, Profiles};
use super::units::Unit;

/// How a value behaves over time: it decides how attempts add up and what stays after the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nature {
    /// Used now: gone with the end.
    Live,
    /// Only grows: attempts are added. An alloc's is its own cgroup's, and at least the sum over its tasks.
    Counter,
    /// A counter of time in which one or another waited. Several wait at once, so an alloc's is at least the highest of
    /// its tasks', and no sum.
    Stall,
    /// A counter of time in which all waited: where one task waits and another runs, their alloc does not.
    FullStall,
    /// A counter that the kernel does not hand up, or not on every version, or not when a child cgroup goes, or that it
    /// estimates for each cgroup by itself: an alloc's is the sum over its tasks, not what the alloc's own cgroup says.
    TaskCounter,
    /// Used now, and counted task by task: an alloc's is the sum over its tasks too.
    TaskLive,
    /// The highest value of the whole life: the maximum over attempts.
    Peak,
    /// The highest value that one of its processes had: an alloc has none.
    TaskPeak,
    /// The highest value of the last minute: like one that is used now, but nothing is the sum of it.
    Recent,
    /// What was allowed: the last attempt's stays after the end.
    Limit,
}

impl Nature {
    /// It only grows, and attempts are added.
    pub const fn counts(self) -> bool {
        matches!(self, Nature::Counter | Nature::TaskCounter | Nature::Stall | Nature::FullStall)
    }
    /// It never falls in the life of a task.
    pub const fn never_falls(self) -> bool {
        self.counts() || matches!(self, Nature::Peak | Nature::TaskPeak)
    }
    /// Of what runs only.
    pub const fn goes_with_the_end(self) -> bool {
        matches!(self, Nature::Live | Nature::TaskLive | Nature::Recent)
    }
    /// Of an alloc it is the sum over its tasks, not what the alloc's own cgroup says.
    pub const fn is_summed(self) -> bool {
        matches!(self, Nature::TaskCounter | Nature::TaskLive)
    }
    pub const fn is_of_allocs(self) -> bool {
        !matches!(self, Nature::TaskPeak)
    }
    /// Of an alloc: its own cgroup's, and at least the sum over its tasks.
    pub(super) const fn adds_up(self) -> bool {
        matches!(self, Nature::Live | Nature::Counter)
    }
    /// A whole has at least as much of it as each of its parts. `only`: as its only part.
    pub(super) const fn holds_its_parts(self, only: bool) -> bool {
        match self {
            Nature::Live | Nature::Counter | Nature::Stall | Nature::Peak | Nature::Recent => true,
            Nature::FullStall => only,
            // Of these an alloc's is the sum, or nothing is said of use.
            Nature::TaskCounter | Nature::TaskLive | Nature::TaskPeak | Nature::Limit => false,
        }
    }

    /// What it is, for people.
    pub const fn text(self) -> &'static str {
        match self {
            Nature::Live | Nature::TaskLive => "in use now; absent after the end",
            Nature::Counter | Nature::TaskCounter => "total over all attempts",
            Nature::Stall => "total time in which one or more threads waited",
            Nature::FullStall => "total time in which all threads waited",
            Nature::Peak => "highest value over all attempts",
            Nature::TaskPeak => "highest value of one process over all attempts",
            Nature::Recent => "highest value of the last minute; absent after the end",
            Nature::Limit => "limit of the last attempt",
        }
    }

    pub const fn kind(self) -> Kind {
        if self.counts() { Kind::Counter } else { Kind::Gauge }
    }
    pub const fn life(self) -> Life {
        if self.goes_with_the_end() { Life::Live } else { Life::Final }
    }
}

/// What measures are of: something with fields.
pub trait HasFields: 'static {
    type Field: Debug + Copy + PartialEq + 'static;
}

/// One series of a measure: fixed label values and how to get the number.
#[derive(Debug)]
pub struct Cell<S: 'static> {
    pub labels: &'static [(&'static str, &'static str)],
    pub nature: Nature,
    pub unit: Unit,
    pub get: fn(&S) -> Option<Value>,
}

/// When a value can have changed: what is read at a tick follows from it. In this order descriptors are kept open when
/// there are not enough for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeTrigger {
    /// The probes: at every tick.
    Tick,
    /// Even while all its tasks sleep: reclaim, writeback, I/O that completes, a task that waits. Each 9 s, and
    /// whenever something moved.
    Asleep,
    /// Only if memory or CPU time moved.
    Stirred,
    /// Only if CPU time moved: a process has to run for it.
    Ran,
    /// If it is set: each 9 s if something moved meanwhile, else each 60 s; where the kernel pass reports that it was
    /// set, then.
    Set,
}

/// Where a value comes from on one version of cgroups.
#[derive(Debug, Clone, Copy)]
pub enum ValueSource {
    /// In words, `-` where there is none: a file that has other values too, or several together.
    Described(&'static str),
    /// A file of this controller that holds this number and nothing else, or `max` in place of a limit.
    Number { controller: &'static str, file: &'static str, when: ChangeTrigger },
}

impl ValueSource {
    pub const fn text(self) -> &'static str {
        match self {
            ValueSource::Described(text) | ValueSource::Number { file: text, .. } => text,
        }
    }
}

/// A measure, declared once.
#[derive(Debug)]
pub struct Measure<S: HasFields> {
    /// The name without `allostat_task_` or whose it is.
    pub stem: &'static str,
    pub help: &'static str,
    /// At least one. All have the same labels, and natures that differ in no more than how the values of tasks become
    /// an alloc's.
    pub cells: &'static [Cell<S>],
    /// The field that it shows as it is; `None`: it shows several, or what follows from some.
    pub field: Option<S::Field>,
    pub v1: ValueSource,
    pub v2: ValueSource,
    pub absent: &'static str,
    pub otlp: Option<Otlp>,
    /// Of its workload family: see [`super::metric::MetricDesc::created`].
    pub created: bool,
    /// The smallest profiles that have its families.
    pub profiles: Profiles,
}

impl<S: HasFields> Measure<S> {
    pub const fn new(stem: &'static str, help: &'static str, cells: &'static [Cell<S>]) -> Measure<S> {
        let (v1, v2) = (ValueSource::Described("-"), ValueSource::Described("-"));
        Measure {
            stem,
            help,
            cells,
            field: None,
            v1,
            v2,
            absent: "never",
            otlp: None,
            created: false,
            profiles: Profiles::all(Profile::Standard),
        }
    }
    pub const fn nature(&self) -> Nature {
        self.cells[0].nature
    }
    pub const fn unit(&self) -> Unit {
        self.cells[0].unit
    }

    #[must_use]
    pub const fn called(mut self, stem: &'static str) -> Measure<S> {
        self.stem = stem;
        self
    }
    /// In words, on cgroup v1 and v2.
    #[must_use]
    pub const fn sources(self, v1: &'static str, v2: &'static str) -> Measure<S> {
        self.on_v1(ValueSource::Described(v1)).on_v2(ValueSource::Described(v2))
    }
    #[must_use]
    pub const fn on_v1(mut self, source: ValueSource) -> Measure<S> {
        self.v1 = source;
        self
    }
    #[must_use]
    pub const fn on_v2(mut self, source: ValueSource) -> Measure<S> {
        self.v2 = source;
        self
    }
    #[must_use]
    pub const fn absent_when(mut self, absent: &'static str) -> Measure<S> {
        self.absent = absent;
        self
    }
    #[must_use]
    pub const fn with_created(mut self) -> Measure<S> {
        self.created = true;
        self
    }
    /// See [`Measure::profiles`]: of whose it is, of its alloc, of its workload.
    #[must_use]
    pub const fn in_profiles(mut self, own: Profile, alloc: Profile, workload: Profile) -> Measure<S> {
        self.profiles = Profiles { own, alloc, workload };
        self
    }
    #[must_use]
    pub const fn otlp(mut self, name: &'static str, unit: &'static str) -> Measure<S> {
        self.otlp = Some(Otlp { name, unit });
        self
    }
}
