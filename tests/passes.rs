//! What is shown of an alloc beside what is shown of its tasks, with the readers and the pass of the agent over a tree
//! of kernel files that changes between any two of their reads: each snapshot agrees with itself, in whatever order
//! tasks begin and end.

use crate::synthetic;
use std::fs;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allostat::board::{BoardView, PublishedAlloc};
use allostat::collectors::{FdBudget, SamplingContext, TaskReader, read_final};
use allostat::host::hierarchy::Layout;
use allostat::host::roots::Roots;
use allostat::model::alloc::{AllocIdentity, AllocSource};
use allostat::model::id::CgroupPath;
use allostat::model::measure::Nature;
use allostat::model::metric::{Sample, Value};
use allostat::model::task::{TaskState, TaskStatus};
use allostat::model::totals::Totals;
use allostat::model::units::{Nanos, Timestamp};
use allostat::model::usage::{Field, Usage};
use allostat::snapshot::assemble::{Assembler, ClockReading, TickInputs};
use allostat::snapshot::pass::SamplingPass;
use allostat::snapshot::{AllocView, Snapshot};
use proptest::prelude::*;
use synthetic::NOW;

const TASKS: [&str; 2] = ["web", "db"];
const ALLOC: &str = "a";
const WRITABLE: &str = "our own directory";

/// What the kernel would say of one cgroup.
#[derive(Debug, Clone, Copy, Default)]
struct Kernel {
    memory: u64,
    peak: u64,
    cpu_us: u64,
    faults: u64,
    waited_us: u64,
    pids: u64,
}

impl Kernel {
    fn plus(self, other: Kernel) -> Kernel {
        Kernel {
            memory: self.memory + other.memory,
            peak: self.peak.max(other.peak),
            cpu_us: self.cpu_us + other.cpu_us,
            faults: self.faults + other.faults,
            waited_us: self.waited_us.max(other.waited_us),
            pids: self.pids + other.pids,
        }
    }
    /// What is left of it when its processes are gone.
    fn over(self) -> Kernel {
        Kernel { memory: 0, pids: 0, ..self }
    }
    fn files(self) -> [(&'static str, String); 8] {
        let Kernel { memory, peak, cpu_us, faults, waited_us, pids } = self;
        let anon = memory / 2;
        let waited = format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={waited_us}\n");
        [
            ("memory.current", format!("{memory}\n")),
            ("memory.peak", format!("{peak}\n")),
            ("memory.stat", format!("anon {anon}\nfile {anon}\ninactive_file 0\npgfault {faults}\npgmajfault 0\n")),
            ("memory.events", format!("low 0\nhigh 0\nmax {faults}\noom 0\noom_kill 0\n")),
            ("cpu.stat", format!("usage_usec {cpu_us}\nuser_usec {cpu_us}\nsystem_usec 0\n")),
            ("cpu.pressure", waited),
            ("pids.current", format!("{pids}\n")),
            ("cgroup.procs", "1\n".repeat(usize::try_from(pids).unwrap_or_default())),
        ]
    }
}

/// A task: what its cgroup says, and the reader of its attempt as it is on the board.
#[derive(Default)]
struct Task {
    kernel: Kernel,
    /// Its cgroup is there.
    there: bool,
    reader: Option<Arc<TaskReader>>,
    attempts: u32,
}

/// One alloc of two tasks on a host whose unified tree is a directory.
struct World {
    root: PathBuf,
    sampling: Arc<SamplingContext>,
    tasks: Vec<Task>,
    /// Of the alloc's cgroup, beside what its living tasks have: ended attempts, and what they left charged.
    left: Kernel,
    alloc_reader: Arc<TaskReader>,
    published: Arc<PublishedAlloc>,
    assembler: Assembler,
    start: Instant,
    elapsed: Duration,
    _dir: tempfile::TempDir,
}

impl World {
    fn of(tasks: usize) -> World {
        let dir = tempfile::tempdir().expect("room for a directory");
        let roots = Roots::below(dir.path());
        let root = roots.sys.join("fs/cgroup");
        fs::create_dir_all(root.join(ALLOC)).expect(WRITABLE);
        fs::write(root.join("cgroup.controllers"), "cpu memory pids io").expect(WRITABLE);
        fs::create_dir_all(roots.proc("self")).expect(WRITABLE);
        fs::write(roots.proc("self/mountinfo"), "1 1 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n").expect(WRITABLE);
        let layout = Layout::detect(&roots).expect("it has a mountinfo");
        // No descriptor is kept: what was removed is gone, as in a real tree.
        let sampling = SamplingContext::new(roots, layout, FdBudget::of(0));
        let job = synthetic::job("shop", &TASKS[..tasks]);
        let names = TASKS[..tasks].iter();
        let pending = names.map(|name| synthetic::task(name, TaskState::Pending, NOW)).collect();
        let path = CgroupPath::new(format!("/{ALLOC}"));
        let mut world = World {
            root,
            alloc_reader: Arc::new(TaskReader::for_alloc_cgroup(&sampling, path)),
            sampling,
            published: Arc::new(synthetic::alloc(ALLOC, &job, pending)),
            tasks: (0..tasks).map(|_| Task::default()).collect(),
            left: Kernel::default(),
            assembler: synthetic::assembler(synthetic::info("v2", vec![])),
            start: Instant::now(),
            elapsed: Duration::ZERO,
            _dir: dir,
        };
        world.write_alloc(0);
        world.publish();
        world
    }

    fn path(&self, task: usize) -> CgroupPath {
        CgroupPath::new(format!("/{ALLOC}/{}", TASKS[task]))
    }
    fn write(&self, below: &str, kernel: Kernel) {
        for (name, text) in kernel.files() {
            fs::write(self.root.join(below).join(name), text).expect(WRITABLE);
        }
    }
    fn write_task(&self, task: usize) {
        if self.tasks[task].there {
            self.write(&format!("{ALLOC}/{}", TASKS[task]), self.tasks[task].kernel);
        }
    }
    /// `less`: so much was given back, or is not added up yet, when this is read right after the tasks.
    fn write_alloc(&self, less: u64) {
        let living = self.tasks.iter().filter(|t| t.there).map(|t| t.kernel);
        let mut whole = living.fold(self.left, Kernel::plus);
        whole.memory = whole.memory.saturating_sub(less);
        whole.pids = whole.pids.saturating_sub(less % 3);
        whole.faults = whole.faults.saturating_sub(less % 70);
        whole.waited_us = whole.waited_us.saturating_sub(less % 5);
        self.write(ALLOC, whole);
    }
    fn publish(&mut self) {
        let now = (*self.published).clone();
        let readers = self.tasks.iter().map(|t| t.reader.clone()).collect();
        self.published =
            Arc::new(PublishedAlloc { readers, alloc_reader: Some(Arc::clone(&self.alloc_reader)), ..now });
    }
    fn change(&mut self, task: usize, change: impl FnOnce(&mut TaskStatus)) {
        let mut status = self.published.status.as_deref().expect("it is managed").clone();
        change(Arc::make_mut(&mut status.tasks[task]));
        status.generation += 1;
        self.published = Arc::new(PublishedAlloc { status: Some(Arc::new(status)), ..(*self.published).clone() });
        self.publish();
    }

    fn begin(&mut self, task: usize) {
        if self.tasks[task].there || self.tasks[task].reader.is_some() {
            return;
        }
        fs::create_dir(self.root.join(ALLOC).join(TASKS[task])).expect(WRITABLE);
        let fresh = Kernel { memory: 4_096, peak: 4_096, pids: 1, faults: 1, ..Kernel::default() };
        (self.tasks[task].kernel, self.tasks[task].there) = (fresh, true);
        self.write_task(task);
        self.write_alloc(0);
        let attempt = self.tasks[task].attempts;
        self.tasks[task].attempts += 1;
        self.tasks[task].reader = Some(Arc::new(TaskReader::for_cgroup(&self.sampling, self.path(task))));
        self.change(task, |status| (status.state, status.attempt) = (TaskState::Running, attempt));
    }
    /// `memory` is what it has now.
    fn work(&mut self, task: usize, memory: u64, cpu_us: u64) {
        let Task { kernel, there: true, .. } = &mut self.tasks[task] else { return };
        kernel.memory = memory;
        kernel.peak = kernel.peak.max(memory);
        kernel.pids = 1 + memory % 7;
        kernel.cpu_us += cpu_us;
        kernel.faults += cpu_us / 3;
        kernel.waited_us += cpu_us / 5;
        self.write_task(task);
        self.write_alloc(0);
    }
    /// Its processes are gone, and the agent does not know it yet.
    fn die(&mut self, task: usize) {
        if !std::mem::take(&mut self.tasks[task].there) {
            return;
        }
        let last = self.tasks[task].kernel.over();
        self.left = self.left.plus(last);
        // What its supervisor reads before anybody removes the cgroup.
        self.write(&format!("{ALLOC}/{}", TASKS[task]), last);
        self.write_alloc(0);
    }
    /// Its end is shown: one step for reader, base and state.
    fn show_end(&mut self, task: usize) {
        if self.tasks[task].there {
            return;
        }
        let Some(reader) = self.tasks[task].reader.take() else { return };
        let (mut usage, _) = read_final(&self.sampling.layout, &self.path(task));
        if let Some(last) = reader.close() {
            usage.not_below(&last.usage);
        }
        fs::remove_dir_all(self.root.join(ALLOC).join(TASKS[task])).expect(WRITABLE);
        self.change(task, |status| {
            status.state = TaskState::Backoff;
            status.base = Arc::new(usage.on_top_of(&status.base).without_live());
        });
    }

    fn board(&self) -> BoardView {
        BoardView {
            version: 1,
            allocs: vec![Arc::clone(&self.published)],
            totals: Arc::new(Totals::default()),
            ..BoardView::default()
        }
    }
    fn moment(&self) -> ClockReading {
        ClockReading { now: self.start + self.elapsed, at: self.at() }
    }
    fn at(&self) -> Timestamp {
        NOW.plus(Nanos::from_duration(self.elapsed))
    }
    fn snapshot_of_tick(&mut self) -> Arc<Snapshot> {
        self.elapsed += Duration::from_secs(1);
        let (board, moment) = (self.board(), self.moment());
        self.assembler.tick(&board, &mut SamplingPass::over_all(moment), TickInputs::default(), moment).0
    }
    fn snapshot_of_change(&mut self) -> Arc<Snapshot> {
        self.elapsed += Duration::from_millis(3);
        let (board, moment) = (self.board(), self.moment());
        self.assembler.change(&board, &mut SamplingPass::over_new(moment), moment)
    }
}

/// What in an alloc's view contradicts the rest of it.
fn contradictions(alloc: &AllocView) -> Vec<String> {
    let runs = alloc.tasks.iter().any(|t| t.attempt.is_some());
    let mut found = Vec::new();
    for field in Field::ALL {
        let nature = field.nature();
        let own = alloc.usage.get(field);
        let parts: Vec<u64> = alloc.tasks.iter().filter_map(|t| t.usage.get(field)).collect();
        let (highest, sum) = (parts.iter().copied().max(), parts.iter().sum::<u64>());
        let wrong = match nature {
            Nature::Live | Nature::Counter => own.is_some() != highest.is_some() && runs || own < highest,
            Nature::TaskCounter | Nature::TaskLive => own != highest.map(|_| sum),
            Nature::Peak | Nature::Recent | Nature::Stall => own.is_some() && own < highest,
            Nature::FullStall => own.is_some() && alloc.tasks.len() == 1 && own < highest,
            Nature::TaskPeak | Nature::Limit => false,
        };
        let together = matches!(nature, Nature::Live | Nature::Counter) && own.is_some_and(|own| own < sum);
        let without = !runs && nature.goes_with_the_end() && own.is_some();
        if wrong || together || without {
            found.push(format!("{field:?} ({nature:?}): the alloc {own:?}, its tasks {parts:?}, one runs: {runs}"));
        }
    }
    found
}

#[derive(Debug, Clone)]
enum Step {
    Begin(usize),
    Work(usize, u64, u64),
    Die(usize),
    ShowEnd(usize),
    /// The alloc alone says so much less by the time it is read.
    Less(u64),
    Tick,
    Change,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..2_usize).prop_map(Step::Begin),
        4 => (0..2_usize, 0..90_000_000_u64, 0..9_000_u64)
            .prop_map(|(task, memory, cpu)| Step::Work(task, memory, cpu)),
        2 => (0..2_usize).prop_map(Step::Die),
        3 => (0..2_usize).prop_map(Step::ShowEnd),
        2 => (0..90_000_000_u64).prop_map(Step::Less),
        4 => Just(Step::Tick),
        3 => Just(Step::Change),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn snapshots_agree_with_themselves_for_any_order_of_task_starts_and_ends(tasks in 1..3_usize, steps in steps()) {
        let mut world = World::of(tasks);
        let mut earlier: Option<Arc<Snapshot>> = None;
        for step in steps {
            let snapshot = match step {
                Step::Begin(task) if task < tasks => { world.begin(task); continue }
                Step::Work(task, memory, cpu) if task < tasks => { world.work(task, memory, cpu); continue }
                Step::Die(task) if task < tasks => { world.die(task); continue }
                Step::ShowEnd(task) if task < tasks => { world.show_end(task); continue }
                Step::Less(less) => { world.write_alloc(less); continue }
                Step::Tick => world.snapshot_of_tick(),
                Step::Change => world.snapshot_of_change(),
                Step::Begin(_) | Step::Work(..) | Step::Die(_) | Step::ShowEnd(_) => continue,
            };
            let found = contradictions(&snapshot.allocs[0]);
            prop_assert!(found.is_empty(), "{}", found.join("\n"));
            if let Some(earlier) = earlier {
                prop_assert!(!snapshot.allocs[0].usage.falls_below(&earlier.allocs[0].usage), "the alloc's counters fell");
            }
            earlier = Some(snapshot);
        }
    }
}

#[test]
fn alloc_is_read_at_the_start_of_its_task_and_has_no_current_usage_after_its_end() {
    let mut world = World::of(1);
    let usage = |snapshot: &Snapshot| snapshot.allocs[0].usage.clone();
    assert_eq!(usage(&world.snapshot_of_tick()).memory_usage_bytes(), None, "nothing has run: there is no 0");
    for attempt in 1..4_u64 {
        world.begin(0);
        // Of the alloc and of no task, as an attempt leaves it behind: so it was read itself. Before there was one, the
        // task speaks for its alloc.
        world.left.memory = 904;
        let left = if attempt == 1 { 0 } else { 904 };
        world.work(0, 33_284_096, 5_000);
        let started = usage(&world.snapshot_of_change());
        let now = (started.memory_usage_bytes(), started.cpu_usage_ns());
        assert_eq!(now, (Some(33_284_096 + left), Some(attempt * 5_000_000)));
        world.die(0);
        // Its end is being recorded, and the alloc is read: its last reading holds for both.
        world.work(0, 0, 0);
        assert!(contradictions(&world.snapshot_of_tick().allocs[0]).is_empty());
        world.show_end(0);
        let ended = usage(&world.snapshot_of_change());
        assert_eq!((ended.memory_usage_bytes(), ended.pids_current()), (None, None));
        assert_eq!(ended.cpu_usage_ns(), Some(attempt * 5_000_000));
        assert_eq!(usage(&world.snapshot_of_tick()), ended, "a tick brings nothing of it back");
    }
}

#[test]
fn alloc_usage_is_at_least_the_sum_of_its_tasks() {
    let mut world = World::of(2);
    world.begin(0);
    world.begin(1);
    world.work(0, 10_000, 100);
    world.work(1, 7_000, 100);
    // Freed by the time at which the alloc is read.
    world.write_alloc(9_000);
    let usage = world.snapshot_of_tick().allocs[0].usage.clone();
    assert_eq!(usage.memory_usage_bytes(), Some(17_000));
    // What no task has: page cache of an attempt that has ended.
    world.left.memory = 5_000;
    world.work(0, 10_000, 100);
    assert_eq!(world.snapshot_of_tick().allocs[0].usage.memory_usage_bytes(), Some(22_000));
}

/// Promise (Measured values): The age of the oldest exposed value is a series, for tasks and each host collector, and
/// an alert uses it
#[test]
fn age_of_the_oldest_shown_value_is_exposed_and_is_not_the_last_sample() {
    let mut world = World::of(2);
    let oldest = |snapshot: &Snapshot| {
        let is_it =
            |s: &&Sample| s.desc.name == "allostat_collector_oldest_sample_timestamp_seconds" && s.labels == ["task"];
        snapshot.agent.0.iter().find(is_it).map(|s| s.value)
    };
    assert_eq!(oldest(&world.snapshot_of_tick()), None, "nothing is shown of what runs");
    world.begin(0);
    world.begin(1);
    let mut highest = 0;
    for second in 0..40 {
        // One works, the other sleeps.
        world.work(1, 5_000_000 + second, 1_000);
        let snapshot = world.snapshot_of_tick();
        let read = snapshot.allocs[0].tasks.iter().map(|t| t.sampled_at.expect("both are read"));
        let first = read.min().expect("two tasks");
        assert_eq!(oldest(&snapshot), Some(Value::Nanos(first.0)), "after {second} s");
        highest = highest.max(world.at().since(first).0 / 1_000_000_000);
        assert_eq!(snapshot.allocs[0].sampled_at, Some(world.at()), "what the API shows of the alloc is its newest");
    }
    assert!((4..10).contains(&highest), "the oldest was {highest} s old");
    for task in 0..2 {
        world.die(task);
        world.show_end(task);
    }
    world.snapshot_of_change();
    assert_eq!(oldest(&world.snapshot_of_tick()), None, "what has ended grows no older");
}

/// Promise (Absent values and sums): Observed usage is read on demand, not at every tick without a client
#[test]
fn idle_observed_tasks_retain_their_values_and_are_read_for_a_client() {
    for (source, waits) in [(AllocSource::Docker, true), (AllocSource::Managed, false), (AllocSource::Process, false)] {
        let mut world = World::of(1);
        world.begin(0);
        let identity = Arc::new(AllocIdentity { source, ..(*world.published.identity).clone() });
        world.published = Arc::new(PublishedAlloc { identity, ..(*world.published).clone() });
        world.snapshot_of_tick();
        let reader = world.tasks[0].reader.clone().expect("it runs");
        let used = || reader.latest().and_then(|reading| reading.usage.cpu_usage_ns());
        let before = used();
        assert!(before.is_some());
        world.work(0, 8_192, 500);
        world.elapsed += Duration::from_secs(1);
        let (board, moment) = (world.board(), world.moment());
        assert!(world.assembler.shows(&board));
        world.assembler.only_read(&board, &mut SamplingPass::over_all(moment).without_observed().silent());
        assert_eq!(used() == before, waits, "{source:?}");
        world.elapsed += Duration::from_millis(300);
        let moment = world.moment();
        let mut pass = SamplingPass::over_new(moment).returning_all().with_observed();
        let (shown, _) = world.assembler.tick(&board, &mut pass, TickInputs::default(), moment);
        let now = before.map(|before| before + 500_000);
        assert_eq!(shown.allocs[0].tasks[0].usage.cpu_usage_ns(), now, "{source:?}: all that was used");
    }
}

/// Right after a restart of the agent a task may end before its first reading; its end is on the board a moment later.
/// By then its alloc and its workload must not have used less.
///
/// Promise (Absent values and sums): A task that ends unread right after a restart of the agent lowers no sum until its
/// end is shown
#[test]
fn task_that_ended_before_its_first_sample_has_the_values_of_its_end() {
    let World { sampling, .. } = World::of(1);
    let end = Usage::from([(Field::cpu_usage_ns, 7), (Field::memory_usage_bytes, 5)]);
    let never_read = TaskReader::reported(&sampling);
    assert_eq!(never_read.close_with(&end, NOW), None, "nothing was read");
    let seen = never_read.latest().expect("its end");
    assert_eq!((seen.usage.cpu_usage_ns(), seen.usage.memory_usage_bytes(), seen.at), (Some(7), None, NOW));
    let read = TaskReader::reported(&sampling);
    read.report(Usage::from([(Field::cpu_usage_ns, 3)]), NOW);
    assert_eq!(read.close_with(&end, NOW).and_then(|last| last.usage.cpu_usage_ns()), Some(3));
    assert_eq!(read.latest().and_then(|seen| seen.usage.cpu_usage_ns()), Some(3), "its last reading holds");
    let never_ran = TaskReader::reported(&sampling);
    never_ran.close_with(&Usage::default(), NOW);
    assert_eq!(never_ran.latest(), None, "no value is known");
}

/// Promise (Measured values): With any number of reading threads, each alloc is shown with the values of its own tasks
#[test]
fn alloc_samples_match_their_tasks_with_any_number_of_reader_threads() {
    let World { sampling, mut assembler, .. } = World::of(1);
    let job = synthetic::job("shop", &TASKS[..1]);
    let readers: Vec<_> = (0..1_000).map(|_| Arc::new(TaskReader::reported(&sampling))).collect();
    let published = |(n, reader): (usize, &Arc<TaskReader>)| {
        let tasks = vec![synthetic::task(TASKS[0], TaskState::Running, NOW)];
        let alloc = synthetic::alloc(&format!("a{n}"), &job, tasks);
        Arc::new(PublishedAlloc { readers: vec![Some(Arc::clone(reader))], ..alloc })
    };
    let allocs = readers.iter().enumerate().map(published).collect();
    let board = BoardView { version: 1, allocs, totals: Arc::new(Totals::default()), ..BoardView::default() };
    for (round, threads) in (1..).zip([1, 2, 7]) {
        // Not all have something new to say.
        let has_changed = |n: u64| n.is_multiple_of(round);
        for (n, reader) in (0..).zip(&readers).filter(|(n, _)| has_changed(*n)) {
            reader.report([(Field::cpu_usage_ns, round * 10_000 + n)].into(), NOW);
        }
        let moment = ClockReading { now: Instant::now(), at: NOW };
        let mut pass = SamplingPass::over_all(moment).on(NonZero::new(threads).expect("some"));
        let (snapshot, _) = assembler.tick(&board, &mut pass, TickInputs::default(), moment);
        for (n, alloc) in (0_u64..).zip(&snapshot.allocs) {
            assert_eq!(alloc.identity.id.as_str(), format!("a{n}"));
            let last = (1..=round).rfind(|round| n.is_multiple_of(*round)).expect("all said something at first");
            assert_eq!(alloc.tasks[0].usage.cpu_usage_ns(), Some(last * 10_000 + n), "{threads} threads");
        }
    }
}
