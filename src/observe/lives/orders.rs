//! Random orders of events against what the machine promises:
//!
//! - a life that is shown ends once, and none ends that was not shown;
//! - one path shows one life at a time, and the ends come in the order of the lives;
//! - no total falls, and no end record is added to a life that has ended;
//! - a cgroup that exists is shown, hidden by a rule or checked later, even if no event reported it;
//! - what is measured is released, and once all is over nothing of the path is left.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::collectors::{FdBudget, SamplingContext, TaskReader};
use crate::host::hierarchy::Layout;
use crate::host::roots::Roots;
use crate::kernel::bpf::exits::{EndNotes, ProcessEnd};
use crate::model::alloc::AllocSource;
use crate::model::task::ExitStatus;
use crate::model::totals::Totals;
use crate::model::units::Timestamp;
use crate::model::usage::{Field, Usage};
use crate::observe::exits::{EndReport, ExitFacts};
use crate::observe::identity::{RecognisedTask, TaskNaming};
use crate::observe::observed_allocs::{NewTask, ObservedAllocs};

static SAMPLING: LazyLock<Arc<SamplingContext>> = LazyLock::new(|| {
    let roots = Roots::default();
    let layout = Layout::detect(&roots).unwrap();
    SamplingContext::new(roots, layout, FdBudget::of(10))
});

const PATH: &str = "/docker/web";

/// One life, as the driver measures it.
#[derive(Debug)]
struct TestLife {
    number: u32,
    reader: Arc<TaskReader>,
}

/// An end record, numbered like the lives: whether it is of the measured cgroup.
#[derive(Debug, Clone, Copy)]
struct TestRecord {
    number: u32,
    is_of: bool,
}

/// One operation of a random order.
#[derive(Debug, Clone, Copy, PartialEq)]
enum RandomOp {
    Create,
    Destroy,
    Made {
        is_there: bool,
    },
    Removed,
    NoTask,
    Vanished,
    Grew,
    Above,
    RemovedBelow,
    Excluded,
    Empty {
        has_run: bool,
    },
    NoRoom,
    Unreadable,
    Ready,
    Occupied,
    Recovered,
    Record {
        hierarchy: usize,
        is_below: bool,
        is_of: bool,
        has_run: bool,
    },
    Followed,
    Gathered,
    Named(Option<&'static str>),
    Renamed,
    Emptied,
    Exited {
        is_awaited: bool,
    },
    Unreported(bool),
    Wait(u64),
    Sweep,
    Works,
    /// The runtimes take no query.
    Silent(bool),
    Full(bool),
}

fn ops() -> impl Strategy<Value = Vec<RandomOp>> {
    let flag = any::<bool>;
    let host = prop_oneof![
        Just(RandomOp::Create),
        Just(RandomOp::Destroy),
        flag().prop_map(|is_there| RandomOp::Made { is_there }),
        Just(RandomOp::Removed),
        Just(RandomOp::NoTask),
        Just(RandomOp::Vanished),
        Just(RandomOp::Grew),
        Just(RandomOp::Above),
        Just(RandomOp::RemovedBelow),
        Just(RandomOp::Works),
    ];
    let check = prop_oneof![
        4 => Just(RandomOp::Ready),
        1 => Just(RandomOp::Excluded),
        1 => flag().prop_map(|has_run| RandomOp::Empty { has_run }),
        1 => Just(RandomOp::NoRoom),
        1 => Just(RandomOp::Unreadable),
        1 => Just(RandomOp::Occupied),
        1 => Just(RandomOp::Recovered),
    ];
    let record = (0..3_usize, flag(), flag(), flag())
        .prop_map(|(hierarchy, is_below, is_of, has_run)| RandomOp::Record { hierarchy, is_below, is_of, has_run });
    let records = prop_oneof![3 => record, 1 => Just(RandomOp::Followed), 2 => Just(RandomOp::Gathered)];
    let runtime = prop_oneof![
        1 => Just(RandomOp::Renamed),
        2 => Just(RandomOp::Emptied),
        3 => prop::sample::select(vec![None, Some("web"), Some("other"), Some("excluded")]).prop_map(RandomOp::Named),
        2 => flag().prop_map(|is_awaited| RandomOp::Exited { is_awaited }),
        2 => flag().prop_map(RandomOp::Unreported),
        1 => flag().prop_map(RandomOp::Silent),
        1 => flag().prop_map(RandomOp::Full),
    ];
    let time = prop_oneof![
        4 => prop::sample::select(vec![1_u64, 20, 500, 2_000, 10_000]).prop_map(RandomOp::Wait),
        1 => Just(RandomOp::Sweep),
    ];
    prop::collection::vec(prop_oneof![4 => host, 3 => check, 2 => records, 3 => runtime, 3 => time], 0..60)
}

/// The facts of the steps.
struct RandomHost {
    now: Instant,
    inode: Option<u64>,
    is_full: bool,
    is_named_late: bool,
    numbers: Cell<u64>,
    measured: Cell<u32>,
}

impl RandomHost {
    fn next(&self) -> u32 {
        self.measured.set(self.measured.get() + 1);
        self.measured.get()
    }
    fn measure(number: u32) -> Arc<TestLife> {
        let reader = Arc::new(TaskReader::reported(&SAMPLING));
        reader.report(Usage::from([(Field::cpu_usage_ns, 1)]), Timestamp(1));
        Arc::new(TestLife { number, reader })
    }
}

/// Lives are measured by readers of reported values.
#[derive(Debug, Default)]
struct ReaderMeasures;

impl LifeTypes for ReaderMeasures {
    type Task = Arc<TestLife>;
    type Cgroup = ();
    type Record = TestRecord;
}

impl PathFacts<ReaderMeasures> for RandomHost {
    fn now(&self) -> Instant {
        self.now
    }
    fn number(&self) -> u64 {
        self.numbers.set(self.numbers.get() + 1);
        self.numbers.get()
    }
    fn inode(&self) -> Option<u64> {
        self.inode
    }
    fn is_scanned(&self) -> bool {
        self.inode.is_some()
    }
    fn exists(&self) -> bool {
        self.inode.is_some()
    }
    fn is_of(&self, _: &Arc<TestLife>, raw: &TestRecord) -> bool {
        raw.is_of
    }
    fn cgroup(&self, _: &Arc<TestLife>) {}
    fn is_of_cgroup(&self, (): &(), raw: &TestRecord) -> bool {
        raw.is_of
    }
    fn admits(&self, _: &RecognisedTask, naming: &TaskNaming) -> Result<(), HiddenReason> {
        match (naming.native.as_str(), self.is_full) {
            ("excluded", _) => Err(HiddenReason::Excluded),
            (_, true) => Err(HiddenReason::Limit),
            (_, false) => Ok(()),
        }
    }
    fn keeps(&self, _: &RecognisedTask, naming: &TaskNaming) -> bool {
        naming.native != "excluded"
    }
    fn measure(&self, life: &RecordedLife<ReaderMeasures>) -> Result<Arc<TestLife>, HiddenReason> {
        if self.is_full { Err(HiddenReason::Limit) } else { Ok(RandomHost::measure(life.records[0].raw.number)) }
    }
    fn has_room_for_name(&self) -> bool {
        !self.is_full
    }
    fn is_named(&self, found: &RecognisedTask) -> bool {
        found.is_plain()
    }
    fn is_named_late(&self, _: &RecognisedTask) -> bool {
        self.is_named_late
    }
}

/// The machine under a random order, and what its promises are checked against.
struct LifeModel {
    host: RandomHost,
    is_plain: bool,
    /// Of a container.
    source: AllocSource,
    is_silent: bool,
    lives: AllLives<ReaderMeasures>,
    allocs: ObservedAllocs,
    totals: Totals,
    /// What was counted for each workload at the last step.
    counted: BTreeMap<String, u64>,
    /// The life on the board, and whether it is over there.
    shown: Option<(Arc<TestLife>, bool)>,
    /// The last one whose cgroup existed at its end.
    stopped: Weak<TestLife>,
    last_shown: u32,
    last_ended: u32,
    ends: u32,
    covers: u32,
    shows: u32,
    measured: i64,
    awaited: u64,
    inodes: u64,
}

impl LifeModel {
    fn new(is_plain: bool, is_named_late: bool, source: AllocSource) -> LifeModel {
        let (numbers, measured) = (Cell::new(0), Cell::new(0));
        LifeModel {
            host: RandomHost { now: Instant::now(), inode: None, is_full: false, is_named_late, numbers, measured },
            is_plain,
            source,
            is_silent: false,
            lives: AllLives::default(),
            allocs: ObservedAllocs::default(),
            totals: Totals::default(),
            counted: BTreeMap::new(),
            shown: None,
            stopped: Weak::new(),
            last_shown: 0,
            last_ended: 0,
            ends: 0,
            covers: 0,
            shows: 0,
            measured: 0,
            awaited: 0,
            inodes: 0,
        }
    }

    fn found(&self) -> RecognisedTask {
        match self.is_plain {
            true => RecognisedTask::plain(PATH),
            false => RecognisedTask::container(self.source, &"0123456789abcdef".repeat(4)),
        }
    }

    fn apply(&mut self, op: RandomOp) {
        let verdict = match op {
            RandomOp::Create => {
                self.inodes += 1;
                self.host.inode = Some(self.inodes);
                return;
            }
            RandomOp::Destroy => {
                self.host.inode = None;
                return;
            }
            RandomOp::Silent(is_silent) => return self.is_silent = is_silent,
            RandomOp::Full(is_full) => return self.host.is_full = is_full,
            RandomOp::Works => return self.works(),
            RandomOp::Wait(ms) => {
                self.host.now += Duration::from_millis(ms);
                return self.happens(LifeEvent::Due);
            }
            RandomOp::Made { is_there } => return self.happens(LifeEvent::Made(is_there.then_some(Timestamp(7)))),
            RandomOp::Removed => return self.happens(LifeEvent::Removed),
            RandomOp::NoTask => return self.happens(LifeEvent::NoTask),
            RandomOp::Vanished => return self.happens(LifeEvent::Vanished),
            RandomOp::Grew => return self.happens(LifeEvent::Grew),
            RandomOp::Above => return self.happens(LifeEvent::Above(self.host.inode)),
            RandomOp::RemovedBelow => return self.happens(LifeEvent::RemovedBelow),
            RandomOp::Occupied => return self.happens(LifeEvent::Occupied),
            RandomOp::Recovered => {
                let recovered = RecoveredLife { naming: naming("web"), since: None, is_counted: false };
                return self.happens(LifeEvent::Recovered(Box::new(recovered)));
            }
            RandomOp::Followed => return self.happens(LifeEvent::Gathered { is_followed: true }),
            RandomOp::Gathered => return self.happens(LifeEvent::Gathered { is_followed: false }),
            RandomOp::Sweep => return self.happens(LifeEvent::Sweep),
            RandomOp::Renamed => return self.happens(LifeEvent::Renamed),
            RandomOp::Emptied => return self.happens(LifeEvent::Emptied),
            // A plain cgroup is named by its path.
            RandomOp::Named(_) if self.is_plain => return,
            RandomOp::Named(name) => return self.happens(LifeEvent::Named(name.map(|name| Box::new(naming(name))))),
            RandomOp::Exited { is_awaited } => {
                let facts = ExitFacts {
                    status: ExitStatus::Code(0),
                    oom: false,
                    on_request: false,
                    will_restart: false,
                    result: None,
                    finished_at: None,
                };
                let number = if is_awaited { self.awaited } else { 0 };
                return self.happens(LifeEvent::Exited { number, report: EndReport::Exit(facts) });
            }
            RandomOp::Unreported(is_refused) => {
                let report = if is_refused { EndReport::Refused } else { EndReport::Runs };
                return self.happens(LifeEvent::Exited { number: self.awaited, report });
            }
            RandomOp::Record { hierarchy, is_below, is_of, has_run } => {
                return self.record(hierarchy, is_below, is_of, has_run);
            }
            RandomOp::Excluded => CheckOutcome::Excluded,
            RandomOp::Empty { has_run } => CheckOutcome::Empty { has_run },
            RandomOp::NoRoom => CheckOutcome::NoRoom,
            RandomOp::Unreadable => CheckOutcome::Unreadable,
            RandomOp::Ready => {
                // As the driver does: what is there now ends the life whose records are being gathered.
                self.happens(LifeEvent::Gathered { is_followed: true });
                let (found, task, inode) = (self.found(), RandomHost::measure(self.host.next()), self.host.inode);
                CheckOutcome::Ready(Box::new(MeasuredLife { found, task, inode, notes: LifeExits::default() }))
            }
        };
        self.happens(LifeEvent::Checked(verdict));
    }

    fn record(&mut self, hierarchy: usize, is_below: bool, is_of: bool, has_run: bool) {
        let end = ProcessEnd { status: 3 << 8, oom_victim: false };
        let none = EndNotes { count: 0, last: None, init: None, last_at: 0, first_start: 0 };
        let ran = EndNotes { count: 1, last: Some(end), init: Some((0, end)), last_at: 50, first_start: 5 };
        let notes = if has_run { ran } else { none };
        let record =
            RemovalRecord { hierarchy, notes, is_whole: true, raw: TestRecord { number: self.host.next(), is_of } };
        let below = is_below.then(|| format!("{PATH}/below"));
        self.happens(LifeEvent::Record { below, record, found: Box::new(self.found()) });
    }

    /// What is measured uses CPU time.
    fn works(&mut self) {
        let measured = self.lives.get(PATH).and_then(|lives| lives.measured());
        if let Some(reader) = measured.map(|life| Arc::clone(&life.task.reader)) {
            let used = reader.latest().map_or(0, |last| last.usage.cpu_usage_ns().unwrap_or_default());
            reader.report(Usage::from([(Field::cpu_usage_ns, used + 10)]), Timestamp(2));
        }
        self.check_counters();
    }

    fn happens(&mut self, event: LifeEvent<ReaderMeasures>) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let is_due = matches!(event, LifeEvent::Due);
            let (path, lives) = self.lives.take(PATH);
            let (lives, actions) = step(lives, event, &self.host);
            check_order(&lives);
            if is_due {
                let late = lives.removed_unnamed.as_ref().map(|late| late.until);
                let over = lives.ending.as_ref().map(|ending| ending.until).into_iter().chain(late);
                assert!(over.into_iter().all(|at| at > self.host.now), "a deadline is over and nothing followed");
            }
            self.lives.put(path, lives);
            for action in actions {
                events.extend(self.act(action));
            }
        }
        assert!(self.stopped.upgrade().is_none(), "the readers of an ended life are kept");
        let waiting = i64::try_from(self.lives.waiting()).unwrap();
        let on_board = i64::from(self.shown.as_ref().is_some_and(|(_, is_hidden)| !is_hidden));
        assert_eq!(self.measured, waiting + on_board, "what is measured waits or is shown");
        assert_eq!(self.allocs.running(), usize::from(self.shown.is_some()), "what is shown is in the table");
        self.check_counters();
    }

    fn act(&mut self, action: LifeAction<ReaderMeasures>) -> Option<LifeEvent<ReaderMeasures>> {
        match action {
            LifeAction::Listen => return self.is_silent.then_some(LifeEvent::Occupied),
            LifeAction::Watch { .. } | LifeAction::Miss(_) | LifeAction::DropRecovered => {}
            LifeAction::Measure(_) => self.measured += 1,
            LifeAction::Release { .. } => self.measured -= 1,
            LifeAction::QueryName { again, .. } => return self.is_silent.then_some(LifeEvent::NotQueued { again }),
            LifeAction::QueryExit { number, .. } => {
                assert!(number > self.awaited, "each life has its own number");
                self.awaited = number;
                return self.is_silent.then_some(LifeEvent::Exited { number, report: EndReport::Late });
            }
            LifeAction::Show { found, task, naming, .. } => {
                assert!(self.shown.is_none(), "two lives are shown at one path");
                assert!(task.number > self.last_shown, "life {} after {}", task.number, self.last_shown);
                (self.last_shown, self.shows) = (task.number, self.shows + 1);
                let (path, source, alloc_cgroup, since) = (PATH.to_owned(), found.source, found.alloc_cgroup, None);
                let (rule, labels, alloc_reader) = (None, Vec::new(), None);
                let reader = Arc::clone(&task.reader);
                let naming = *naming;
                let new = NewTask {
                    path,
                    source,
                    alloc_cgroup,
                    naming,
                    container: None,
                    rule,
                    labels,
                    reader,
                    alloc_reader,
                    since,
                };
                let (_, changes) = self.allocs.begin(new);
                changes.iter().for_each(|change| change.apply(&mut self.totals));
                self.shown = Some((task, false));
            }
            LifeAction::Rename { naming, .. } => {
                assert!(self.shown.is_some(), "nothing is there to be renamed");
                // The workload stays, so that each counter stays where it is.
                let naming = TaskNaming { workload: Some("web".to_owned()), ..*naming };
                self.allocs.rename(PATH, &naming, None, Vec::new());
            }
            LifeAction::Hide(_) => {
                self.measured -= 1;
                let (_, is_hidden) = self.shown.as_mut().expect("nothing is shown that could be hidden");
                assert!(!std::mem::replace(is_hidden, true), "hidden twice");
            }
            LifeAction::Cover => {
                let (_, is_hidden) = self.shown.take().expect("nothing is shown that could be covered");
                assert!(is_hidden);
                self.covers += 1;
                let change = self.allocs.cover(PATH, Timestamp(9)).and_then(|(_, change)| change);
                change.iter().for_each(|change| change.apply(&mut self.totals));
            }
            LifeAction::Stop { life, facts, .. } => {
                self.stopped = Arc::downgrade(&life.task);
                return self.act(LifeAction::End { life, facts });
            }
            LifeAction::End { life, facts } => {
                let (task, is_hidden) = self.shown.take().expect("nothing is shown that could end");
                assert!(is_hidden && task.number == life.task.number, "another life ends than is shown");
                assert!(task.number > self.last_ended, "the ends are not in the order of the lives");
                (self.last_ended, self.ends) = (task.number, self.ends + 1);
                let change = self.allocs.end(PATH, facts, Timestamp(9)).and_then(|(_, change)| change);
                change.iter().for_each(|change| change.apply(&mut self.totals));
            }
            LifeAction::Add { task, .. } => assert!(task.number > self.last_ended, "added to a life that has ended"),
        }
        None
    }

    /// Of each workload: what its ended lives used, and what the one that is shown uses.
    fn check_counters(&mut self) {
        let mut now: BTreeMap<String, u64> = BTreeMap::new();
        for ((workload, _), of) in &self.totals.workloads {
            *now.entry(workload.to_string()).or_default() += of.usage.cpu_usage_ns().unwrap_or_default();
        }
        if let (Some((task, _)), Some(workload)) = (&self.shown, self.allocs.workload(PATH)) {
            let used = task.reader.latest().and_then(|last| last.usage.cpu_usage_ns()).unwrap_or_default();
            let source = self.allocs.published(self.allocs.id(PATH).unwrap()).unwrap().identity.source;
            let key = crate::model::totals::observed_key(source, &workload);
            *now.entry(key.to_string()).or_default() += used;
        }
        for (workload, before) in &self.counted {
            let after = now.get(workload).copied().unwrap_or_default();
            assert!(after >= *before, "the total of {workload} fell from {before} to {after}");
        }
        self.counted = now;
    }

    /// Two sweeps pass: the cgroup that exists is known, or is checked next.
    fn find(&mut self) {
        let Some(inode) = self.host.inode else { return };
        for _ in 0..2 {
            // As the driver does, whose readers find that a measured cgroup was replaced.
            let shown = self.lives.get(PATH).map(Lives::state);
            if matches!(shown, Some(State::Shown(life)) if life.inode != Some(inode)) {
                self.apply(RandomOp::Vanished);
            }
            self.apply(RandomOp::Wait(10_000));
            self.apply(RandomOp::Sweep);
        }
        let Some(lives) = self.lives.get(PATH) else { return };
        let is_known = match lives.state() {
            State::Shown(life) => life.inode == Some(inode),
            State::Aside(HiddenReason::Stopped) => lives.stopped.as_ref().is_some_and(|of| of.inode == inode),
            State::Empty { .. } | State::Aside(_) => true,
            State::Absent | State::Naming { .. } | State::Covered { .. } => {
                lives.is_open(self.host.now, || true) || lives.next_deadline().is_some()
            }
        };
        assert!(is_known, "cgroup {inode} is hidden for good: {lives:?}");
    }

    /// The host is idle: all deadlines come, and all is forgotten.
    fn drain(&mut self) {
        self.host.inode = None;
        self.is_silent = false;
        for _ in 0..300 {
            self.host.now += Duration::from_secs(11);
            for op in [RandomOp::NoTask, RandomOp::Gathered, RandomOp::Wait(0), RandomOp::Sweep] {
                self.apply(op);
            }
        }
        assert_eq!(self.shows, self.ends + self.covers, "each life that was shown has one end");
        assert!(self.shown.is_none() && self.measured == 0);
        assert_eq!(self.lives.sizes(), [0; 8], "{:?}", self.lives.get(PATH));
    }
}

fn naming(name: &str) -> TaskNaming {
    TaskNaming { workload: Some("web".to_owned()), ..TaskNaming::of(name) }
}

/// Which lives there can be at the same time.
fn check_order(lives: &Lives<ReaderMeasures>) {
    assert!(lives.recorded.is_empty() || lives.removed_unnamed.is_some(), "a life waits behind none: {lives:?}");
    assert!(lives.state.life().is_none() || lives.removed_unnamed.is_none(), "two lives wait for one name: {lives:?}");
    let is_shown = matches!(lives.state, State::Shown(_));
    assert!(!is_shown || lives.ending.is_none(), "an earlier life has not ended: {lives:?}");
}

fn cases() -> u32 {
    if std::env::var("ALLOSTAT_SIZE").is_ok_and(|size| size == "gate") { 400 } else { 10_000 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cgroup_events_in_any_order_give_each_shown_life_one_end_and_leave_no_state(
        ops in ops(),
        is_plain: bool,
        is_named_late: bool,
        may_outlive: bool,
    ) {
        let source = if may_outlive { AllocSource::Containerd } else { AllocSource::Docker };
        let mut world = LifeModel::new(is_plain, is_named_late, source);
        ops.iter().for_each(|op| world.apply(*op));
        world.find();
        world.drain();
    }
}
