//! The observer on a made-up tree of cgroups, turn by turn, on a clock that the test moves.
//!
//! Promise (Observed workloads): A paused task is `paused`, and a container that Docker restarts later `backoff`, until
//! it begins or Docker gives up

use std::sync::Weak;

use super::*;
use crate::collectors::FdBudget;
use crate::host::hierarchy::Layout;
use crate::host::roots::Roots;
use crate::model::id::BootId;
use crate::model::task::{ExitStatus, Outcome, ShownState};
use crate::model::totals::Totals;
use crate::model::units::Nanos;
use crate::observe::identity::RecognisedTask;
use crate::observe::lives::RecoveredLife;

/// A clock that stands still between the steps of a test.
struct ManualClock {
    start: Instant,
    ms: AtomicUsize,
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(1_000_000 * self.ms.load(Ordering::Relaxed) as u64)
    }
    fn instant(&self) -> Instant {
        self.start + Duration::from_millis(self.ms.load(Ordering::Relaxed) as u64)
    }
    fn since_boot(&self) -> Nanos {
        Nanos(self.now().0)
    }
}

/// Its parent exists.
fn make_cgroup(at: &std::path::Path, has_process: bool) {
    std::fs::create_dir(at).unwrap();
    std::fs::write(at.join("cpu.stat"), "usage_usec 5\nuser_usec 3\nsystem_usec 2\n").unwrap();
    std::fs::write(at.join("memory.current"), "4096\n").unwrap();
    std::fs::write(at.join("cgroup.events"), "populated 1\n").unwrap();
    std::fs::write(at.join("cgroup.procs"), if has_process { "1\n" } else { "" }).unwrap();
}

/// An observer on a tree of cgroups in a temporary directory.
struct ObserverScene {
    dir: tempfile::TempDir,
    clock: Arc<ManualClock>,
    work: ObserverThread,
}

impl ObserverScene {
    fn new() -> ObserverScene {
        ObserverScene::start(tempfile::tempdir().unwrap(), Config::default(), false)
    }
    fn start(dir: tempfile::TempDir, config: Config, is_retained: bool) -> ObserverScene {
        let roots = Roots::below(dir.path());
        let tree = roots.sys.join("fs/cgroup");
        std::fs::create_dir_all(tree.join("batch")).unwrap();
        std::fs::create_dir_all(roots.proc("self")).unwrap();
        std::fs::write(tree.join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        let mount = "1 1 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        std::fs::write(roots.proc("self/mountinfo"), mount).unwrap();
        let layout = Layout::detect(&roots).unwrap();
        let clock = Arc::new(ManualClock { start: Instant::now(), ms: AtomicUsize::new(0) });
        let parts = Parts {
            config,
            sampling: SamplingContext::new(roots, layout, FdBudget::of(20_000)),
            ends: None,
            board: Arc::new(Board::new(Totals::default(), Arc::default())),
            managed_parent: CgroupPath::from("/allostat"),
            clock: Arc::<ManualClock>::clone(&clock),
            metrics: Arc::new(Metrics::new()),
            keep: is_retained
                .then(|| RecordLocation { path: dir.path().join("observed"), boot_id: BootId("b".to_owned()) }),
        };
        let places = RuntimePaths::new(parts.sampling.roots.clone(), &parts.config);
        let runtime_queries = RuntimeQueries::new(places, &parts.config).unwrap();
        let mut work = ObserverThread::new(parts, runtime_queries, Arc::default(), Arc::default());
        work.begin();
        ObserverScene { dir, clock, work }
    }
    /// The agent ends, and another one starts.
    fn restart(self, max_allocs: usize) -> ObserverScene {
        let ObserverScene { dir, mut work, .. } = self;
        work.keep_usage();
        drop(work);
        ObserverScene::start(dir, Config { max_allocs, ..Config::default() }, true)
    }
    /// CPU time of all workloads in nanoseconds: of what ended, and of what runs.
    fn total(&self) -> u64 {
        let allocs = &self.work.allocs;
        let runs = allocs.paths().filter_map(|path| allocs.reader(path)?.latest()?.usage.cpu_usage_ns());
        let observed = Arc::clone(&self.work.parts.board.view().observed);
        let ended = observed.workloads.values().filter_map(|totals| totals.usage.cpu_usage_ns());
        runs.chain(ended).sum()
    }
    /// It has used so much CPU time by now.
    fn uses(&self, n: usize, us: u64) {
        let text = format!("usage_usec {us}\nuser_usec {us}\nsystem_usec 0\n");
        std::fs::write(self.cgroup(n).join("cpu.stat"), text).unwrap();
        self.work.read_last(self.work.allocs.reader(&format!("/batch/{n}")));
    }
    fn cgroup(&self, n: usize) -> std::path::PathBuf {
        self.dir.path().join(format!("sys/fs/cgroup/batch/{n}"))
    }
    fn make(&self, n: usize, has_process: bool) {
        make_cgroup(&self.cgroup(n), has_process);
    }
    fn turn(&mut self, ms: usize) {
        self.clock.ms.fetch_add(ms, Ordering::Relaxed);
        // Nothing is waited for.
        self.work.wake.ring();
        self.work.turn();
    }
    fn deliver(&mut self) {
        let ended = self.work.parts.board.view().allocs.iter().map(|alloc| alloc.identity.id.clone()).collect();
        *lock(&self.work.delivered) = ended;
    }
    fn sizes(&self) -> Vec<usize> {
        let ObserverThread { lives, scanner, allocs, .. } = &self.work;
        let shown = [allocs.running(), allocs.path_bytes(), self.work.parts.board.view().allocs.len()];
        lives.sizes().into_iter().chain(scanner.sizes()).chain(shown).collect()
    }
    /// Descriptors that readers hold, and those that they need.
    fn descriptors(&self) -> [u64; 2] {
        let budget = &self.work.parts.sampling.budget;
        [budget.used(), budget.needed()]
    }
    /// The readers of what is shown.
    fn readers(&self) -> impl Iterator<Item = Weak<TaskReader>> {
        let allocs = &self.work.allocs;
        allocs.paths().filter_map(|path| allocs.reader(path)).map(Arc::downgrade)
    }
}

#[test]
fn task_is_paused_while_the_freezer_has_stopped_it_and_from_its_begin_on() {
    let mut scene = ObserverScene::new();
    scene.make(0, true);
    let events = scene.cgroup(0).join("cgroup.events");
    let mut after = |text: &str, ms: usize| {
        std::fs::write(&events, text).unwrap();
        scene.turn(1);
        scene.turn(ms);
        let id = scene.work.allocs.id("/batch/0").cloned().expect("it is shown");
        scene.work.allocs.published(&id).unwrap().observed.unwrap().tasks[0].state()
    };
    assert_eq!(after("populated 1\nfrozen 1\n", 25), ShownState::Paused);
    assert_eq!(after("populated 1\nfrozen 0\n", 1), ShownState::Running);
    assert_eq!(after("populated 1\nfrozen 1\n", 1), ShownState::Paused);
}

#[test]
fn a_cgroup_that_an_earlier_agent_showed_runs_on_without_a_process() {
    let mut scene = ObserverScene::new();
    [0, 1].iter().for_each(|n| scene.make(*n, false));
    let naming = RecognisedTask::plain("/batch/0").naming;
    let recovered = RecoveredLife { naming, since: None, is_counted: false };
    scene.work.happens("/batch/0", LifeEvent::Recovered(Box::new(recovered)));
    scene.turn(1);
    scene.turn(25);
    let shown = [0, 1].map(|n| scene.work.allocs.id(&format!("/batch/{n}")).is_some());
    assert_eq!(shown, [true, false], "of the other one nothing is known");
}

/// The queue of events was full: neither the removal of a cgroup nor the next one at its path was reported.
///
/// Promise (Observed workloads): A process in a cgroup is found after lost events too
#[test]
fn process_of_a_cgroup_that_was_replaced_unreported_is_found() {
    let mut scene = ObserverScene::new();
    scene.make(0, false);
    std::fs::write(scene.cgroup(0).join("cpu.stat"), "usage_usec 0\nuser_usec 0\nsystem_usec 0\n").unwrap();
    [1, 25, 25].iter().for_each(|ms| scene.turn(*ms));
    assert_eq!(scene.work.allocs.id("/batch/0"), None, "it is empty");
    std::fs::remove_dir_all(scene.cgroup(0)).unwrap();
    scene.make(0, true);
    let lost = scene.work.scanner.lose_events();
    assert!(lost > 0);
    let before = scene.work.scanner.sizes();
    [10_001, 1, 25].iter().for_each(|ms| scene.turn(*ms));
    assert!(scene.work.allocs.id("/batch/0").is_some(), "it has a process");
    assert_eq!(scene.work.scanner.sizes()[3..5], before[3..5], "one watch of its file");
}

/// It has no bundle that leads to a shim.
#[test]
fn emptied_container_whose_shim_does_not_answer_ends_with_unknown_outcome() {
    let mut scene = ObserverScene::new();
    let at = scene.dir.path().join("sys/fs/cgroup/default/redis");
    std::fs::create_dir_all(&at).unwrap();
    std::fs::write(at.join("cpu.stat"), "usage_usec 5\nuser_usec 3\nsystem_usec 2\n").unwrap();
    std::fs::write(at.join("cgroup.procs"), "1\n").unwrap();
    [1, 25, 3_000].iter().for_each(|ms| scene.turn(*ms));
    let id = scene.work.allocs.id("/default/redis").cloned().expect("it is shown");
    let state = |scene: &ObserverScene| {
        let alloc = scene.work.allocs.published(&id).unwrap();
        let task = &alloc.observed.unwrap().tasks[0];
        (task.state(), task.exits.back().map(|exit| (exit.outcome, exit.status.clone(), exit.finished_at)))
    };
    std::fs::write(at.join("cgroup.procs"), "").unwrap();
    let until = Instant::now() + Duration::from_secs(300);
    let emptied = scene.clock.now();
    while state(&scene).0 == ShownState::Running {
        assert!(Instant::now() < until, "{:?}", state(&scene));
        scene.turn(10_000);
        scene.work.read_last(scene.work.allocs.reader("/default/redis"));
        // The source has a thread of its own.
        std::thread::sleep(Duration::from_millis(5));
    }
    let (outcome, status, finished_at) = state(&scene).1.expect("it has ended");
    assert!(outcome == Outcome::Unknown && matches!(status, ExitStatus::Unknown(_)), "{status:?}");
    assert!(finished_at > emptied && finished_at < scene.clock.now(), "when it was seen to be empty");
}

/// Regression: what had no room was missing from the totals, and came back when there was room again.
///
/// Promise (Observed workloads): No total falls or counts twice when fewer observed allocs fit after a restart of the
/// agent, or more again
#[test]
fn totals_do_not_fall_when_fewer_fit_after_a_restart_of_the_agent() {
    let mut scene = ObserverScene::start(tempfile::tempdir().unwrap(), Config::default(), true);
    [0, 1, 2].iter().for_each(|n| scene.make(*n, true));
    scene.turn(1);
    scene.turn(25);
    assert_eq!((scene.work.allocs.running(), scene.total()), (3, 15_000));

    let mut scene = scene.restart(1);
    assert_eq!((scene.work.allocs.running(), scene.total()), (1, 15_000), "at the first publication");
    let path = scene.work.allocs.paths().next().expect("one is shown").to_owned();
    let shown: usize = path.rsplit('/').next().unwrap().parse().unwrap();
    [0, 1, 2].iter().for_each(|n| scene.uses(*n, 9));
    scene.turn(11_000);
    assert_eq!(scene.total(), 19_000, "what is not shown is not read");
    // There is room for another one, which counts from then on.
    std::fs::remove_dir_all(scene.cgroup(shown)).unwrap();
    scene.turn(1);
    scene.turn(11_000);
    scene.turn(25);
    assert_eq!((scene.work.allocs.running(), scene.total()), (1, 19_000));
    [0, 1, 2].iter().filter(|n| **n != shown).for_each(|n| scene.uses(*n, 10));
    assert_eq!(scene.total(), 20_000);

    // None of it is counted twice when all fit again.
    let mut scene = scene.restart(10);
    scene.turn(25);
    assert_eq!((scene.work.allocs.running(), scene.total()), (2, 20_000));
    [0, 1, 2].iter().filter(|n| **n != shown).for_each(|n| scene.uses(*n, 11));
    assert_eq!(scene.total(), 22_000);
}

/// Five are allowed, with 2,000 bytes of paths; each path has 761.
///
/// Promise (Observed workloads): Paths of observed cgroups have 400 bytes per allowed task; those left out are counted
#[test]
fn long_paths_exhaust_their_budget_before_the_number_of_tasks_does() {
    let (dir, above) = (tempfile::tempdir().unwrap(), ["x"; 3].map(|name| name.repeat(250)).join("/"));
    let above = dir.path().join("sys/fs/cgroup/batch").join(above);
    std::fs::create_dir_all(&above).unwrap();
    (0..5).for_each(|n| make_cgroup(&above.join(n.to_string()), true));
    let mut scene = ObserverScene::start(dir, Config { max_allocs: 5, ..Config::default() }, false);
    [1, 25].iter().for_each(|ms| scene.turn(*ms));
    let counts = |scene: &ObserverScene| (scene.work.allocs.running(), scene.work.lives.over_limit().count());
    assert_eq!((counts(&scene), scene.work.allocs.path_bytes()), ((3, 2), 3 * 761));
    // One that ends leaves its room to another.
    let shown = scene.work.allocs.paths().next().expect("one is shown").to_owned();
    std::fs::remove_dir_all(above.join(shown.rsplit('/').next().unwrap())).unwrap();
    [1, 11_000, 25].iter().for_each(|ms| scene.turn(*ms));
    assert_eq!((counts(&scene), scene.work.allocs.path_bytes()), ((3, 1), 3 * 761));
}

#[test]
fn a_cgroup_that_is_renamed_again_and_again_leaves_nothing() {
    let mut scene = ObserverScene::new();
    scene.turn(10_000);
    let before = scene.sizes();
    scene.make(0, false);
    for n in 0..50 {
        scene.turn(25);
        std::fs::rename(scene.cgroup(n), scene.cgroup(n + 1)).unwrap();
    }
    scene.turn(25);
    std::fs::remove_dir_all(scene.cgroup(50)).unwrap();
    for _ in 0..3 {
        scene.turn(11_000);
    }
    assert_eq!(scene.sizes(), before);
}

/// Few names, so that totals and history are those of few workloads.
#[test]
fn thousands_of_cgroups_that_come_and_go_leave_no_entry_no_reader_and_no_descriptor() {
    const AT_ONCE: usize = 100;
    let gate = std::env::var("ALLOSTAT_SIZE").is_ok_and(|size| size == "gate");
    let mut scene = ObserverScene::new();
    scene.turn(10_000);
    let before = (scene.sizes(), scene.descriptors());
    let (mut shown, mut readers) = (0, Vec::<Weak<TaskReader>>::new());
    for round in 0..if gate { 5 } else { 50 } {
        for n in 0..AT_ONCE {
            // Each tenth has no process and is not shown.
            scene.make(n, n % 10 > 0);
        }
        scene.turn(1);
        // Some are removed before they are checked.
        let is_brief = |n: usize| n % 7 == round % 7;
        (0..AT_ONCE).filter(|n| is_brief(*n)).for_each(|n| std::fs::remove_dir_all(scene.cgroup(n)).unwrap());
        scene.turn(10);
        scene.turn(25);
        let expected = (0..AT_ONCE).filter(|n| !is_brief(*n) && n % 10 > 0).count();
        assert_eq!(scene.work.allocs.running(), expected, "round {round}");
        shown += expected;
        readers.extend(scene.readers());
        let descriptors = scene.descriptors();
        assert!(descriptors[0] > before.1[0] && descriptors[1] > before.1[1], "round {round}: {descriptors:?}");
        (0..AT_ONCE).filter(|n| !is_brief(*n)).for_each(|n| std::fs::remove_dir_all(scene.cgroup(n)).unwrap());
        scene.turn(10);
        assert_eq!(scene.work.allocs.running(), 0, "round {round}");
        scene.deliver();
        scene.turn(25);
    }
    for _ in 0..3 {
        scene.turn(11_000);
    }
    assert_eq!((scene.sizes(), scene.descriptors()), before, "after {shown} were shown");
    let held = readers.iter().filter(|reader| reader.strong_count() > 0).count();
    assert_eq!((held, readers.len()), (0, shown), "all memory of readers is released");
}
