//! Snapshots from board and readings: nothing falls, nothing counts twice, what did not move is shared, what has ended
//! stays as long as it must. And the thread that makes them.

use crate::common::patience;
use crate::synthetic;
use std::collections::BTreeMap;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use allostat::board::{Board, BoardView, PublishedAlloc};
use allostat::collectors::{CollectError, Collector, FdBudget, Reading, SamplingContext, TaskReader, measures};
use allostat::exporters::json;
use allostat::exporters::prometheus::{Bodies, Encoding, Format};
use allostat::host::clock::SystemClock;
use allostat::host::hierarchy::Layout;
use allostat::host::roots::Roots;
use allostat::model::alloc::AllocStatus;
use allostat::model::answer::Detail;
use allostat::model::job::Job;
use allostat::model::metric::{MetricDesc, Samples, Value};
use allostat::model::task::{ExitStatus, Outcome, TaskState, TaskStatus};
use allostat::model::totals::Totals;
use allostat::model::units::{Nanos, Timestamp, Unit};
use allostat::model::usage::{Field, Usage};
use allostat::snapshot::assemble::{self, AllocToRead, Assembler, ClockReading, ReadingProvider, TickInputs};
use allostat::snapshot::{Aggregation, Config, Parts, Sampler, SharedScrapers, Snapshot, Snapshots};
use allostat::telemetry::Metrics;
use proptest::prelude::*;
use synthetic::{NOW, TaskReadings};

const SECOND: Duration = Duration::from_secs(1);

/// An assembler with a clock that the test moves.
struct Stage {
    assembler: Assembler,
    start: Instant,
    elapsed: Duration,
    wall: Timestamp,
    acknowledged: Option<u64>,
    readings: TaskReadings,
    allocs: Vec<Arc<PublishedAlloc>>,
    totals: Totals,
}

impl Stage {
    fn new() -> Stage {
        Stage {
            assembler: synthetic::assembler(synthetic::info("v2", vec![])),
            start: Instant::now(),
            elapsed: Duration::ZERO,
            wall: NOW,
            acknowledged: None,
            readings: TaskReadings::default(),
            allocs: Vec::new(),
            totals: Totals::default(),
        }
    }
    fn with(allocs: Vec<PublishedAlloc>) -> Stage {
        Stage { allocs: allocs.into_iter().map(Arc::new).collect(), ..Stage::new() }
    }
    fn board(&self) -> BoardView {
        BoardView {
            version: 1,
            allocs: self.allocs.clone(),
            totals: Arc::new(self.totals.clone()),
            ..BoardView::default()
        }
    }
    fn moment(&self) -> ClockReading {
        ClockReading { now: self.start + self.elapsed, at: self.wall }
    }
    fn tick(&mut self) -> Arc<Snapshot> {
        let tick = TickInputs { acknowledged: self.acknowledged, ..TickInputs::default() };
        self.assembler.tick(&self.board(), &mut self.readings.clone(), tick, self.moment()).0
    }
    fn change(&mut self) -> Arc<Snapshot> {
        self.assembler.change(&self.board(), &mut self.readings.clone(), self.moment())
    }
    fn pass(&mut self, time: Duration) {
        self.elapsed += time;
        self.wall = self.wall.plus(Nanos::from_duration(time));
    }
    fn publish(&mut self, n: usize, change: impl FnOnce(&mut AllocStatus)) {
        let mut alloc = PublishedAlloc::clone(&self.allocs[n]);
        change(Arc::make_mut(alloc.status.as_mut().expect("it is managed")));
        self.allocs[n] = Arc::new(alloc);
    }
}

fn one_running(id: &str, job: &Arc<Job>) -> PublishedAlloc {
    synthetic::alloc(id, job, vec![synthetic::task("web", TaskState::Running, NOW)])
}

/// The attempt ends: what it used goes to the base and the totals in one step, as the runner does it.
fn end(stage: &mut Stage, n: usize, last: &Usage) {
    let job = Arc::clone(&stage.allocs[n].status.as_ref().expect("it is managed").job);
    let exit = synthetic::exit(Outcome::Success, ExitStatus::Code(0), last.clone());
    stage.totals.task_mut(&job.id, &job.groups[0].tasks[0].name).add_exit(&exit);
    stage.readings.0.retain(|(id, _), _| *id != stage.allocs[n].identity.id);
    let wall = stage.wall;
    stage.publish(n, |status| {
        let mut task: TaskStatus = (*status.tasks[0]).clone();
        task.state = TaskState::Dead;
        task.state_since = wall;
        task.base = Arc::new(last.on_top_of(&task.base).without_live());
        status.tasks = vec![Arc::new(task)];
    });
    let base = Arc::new(last.without_live());
    stage.allocs[n] = Arc::new(PublishedAlloc { alloc_base: base, ..(*stage.allocs[n]).clone() });
}

fn used(cpu_ns: u64, peak: u64, now: u64) -> Usage {
    Usage::from([
        (Field::cpu_usage_ns, cpu_ns),
        (Field::memory_peak_bytes, peak),
        (Field::memory_usage_bytes, now),
        (Field::memory_limit_bytes, 1_000),
    ])
}

/// As it goes to clients.
fn shown(answer: impl serde::Serialize) -> serde_json::Value {
    serde_json::to_value(answer).expect("answers hold plain values")
}

/// Those that the agent found at its start have series of their own, and so has the first new one; what the others used
/// is one row that stays when they are collected. The totals of the workload have all.
///
/// Promise (Short tasks): A workload with endless allocs costs a bounded number of series an hour; its totals have all
/// of them
#[test]
fn allocs_above_the_churn_limit_are_one_row_with_counters_that_never_fall() {
    let job = synthetic::job("cron", &["web"]);
    let mut stage = Stage::with(vec![one_running("found", &job)]);
    let config = Config { churn_limit: 1, ..Config::default() };
    stage.assembler = Assembler::new(Snapshot::empty(synthetic::info("v2", vec![]), NOW), &config);
    stage.tick();
    for n in 1..=4 {
        let id = format!("new-{n}");
        stage.allocs.push(Arc::new(one_running(&id, &job)));
        stage.readings.task(&id, 0, used(n * 1_000, 100, 50));
    }
    let withdrawn = |stage: &mut Stage| {
        stage.assembler.tick(&stage.board(), &mut stage.readings.clone(), TickInputs::default(), stage.moment()).1
    };
    assert!(withdrawn(&mut stage).unshown >= 3);
    assert_eq!(withdrawn(&mut stage).unshown, 0, "each is counted once");
    let row = |snapshot: &Snapshot| {
        let [row] = &snapshot.overflow[..] else { panic!("{:?}", snapshot.overflow) };
        assert_eq!((row.usage.memory_usage_bytes(), row.tasks[0].usage.memory_usage_bytes()), (None, None));
        row.tasks[0].usage.cpu_usage_ns()
    };
    let snapshot = stage.tick();
    let own = |snapshot: &Snapshot| snapshot.allocs.iter().filter(|alloc| !alloc.retired).count();
    assert_eq!((own(&snapshot), row(&snapshot)), (2, Some(9_000)));
    assert_eq!(snapshot.workloads[0].usage.cpu_usage_ns(), Some(10_000));

    let bodies = Bodies::new(Arc::new(Metrics::new()), Arc::default());
    let body = String::from_utf8(bodies.get(&snapshot, Format::Text, Encoding::Identity).to_vec()).unwrap();
    let of_it =
        |name: &str| body.lines().find(|line| line.starts_with(name) && line.contains("alloc_id=\"_overflow\""));
    let line = of_it("allostat_task_cpu_usage_seconds_total").unwrap_or_else(|| panic!("{body}"));
    assert!(line.contains("workload=\"cron\"") && line.ends_with(" 0.000009"), "{line}");
    assert!(body.contains("alloc_id=\"new-1\"") && !body.contains("new-2"), "{body}");

    // One has ended, one was collected.
    end(&mut stage, 4, &used(4_500, 100, 50));
    assert_eq!(row(&stage.tick()), Some(9_500));
    stage.allocs.pop();
    assert_eq!(row(&stage.tick()), Some(9_500));
    stage.allocs.truncate(2);
    assert_eq!(row(&stage.tick()), Some(9_500), "when none is left");
    stage.pass(SECOND * 3600);
    stage.allocs.push(Arc::new(one_running("later", &job)));
    assert_eq!(own(&stage.tick()), 3, "its share of the hour has come");
}

/// While a task is in recovery, what it, its alloc and the node use is absent, not smaller; its siblings are measured.
///
/// Promise (Durability and recovery): While a task is recovering, its usage and that of its alloc and node is absent,
/// not smaller
#[test]
fn task_in_recovery_has_no_values_and_sums_that_lack_it_are_absent() {
    let (shop, bank) = (synthetic::job("shop", &["web"]), synthetic::job("bank", &["web"]));
    let mut stage = Stage::with(vec![one_running("a", &shop), one_running("b", &shop), one_running("c", &bank)]);
    // An earlier attempt of `a` used 40.
    let exit = synthetic::exit(Outcome::Error, ExitStatus::Code(1), used(40, 10, 0));
    stage.totals.task_mut(&shop.id, &"web".into()).add_exit(&exit);
    stage.publish(0, |status| {
        let task = TaskStatus { base: Arc::new(used(40, 10, 0).without_live()), ..(*status.tasks[0]).clone() };
        status.tasks = vec![Arc::new(task)];
        status.recovering = vec!["web".into()];
    });
    stage.readings.task("b", 0, used(100, 10, 7));
    stage.readings.task("c", 0, used(7, 10, 7));
    let usage_of = |snapshot: &Snapshot, job: &str| {
        snapshot.workloads.iter().find(|w| w.workload.as_str() == job).unwrap().usage.clone()
    };
    for snapshot in [stage.tick(), stage.tick(), stage.change()] {
        let a = &snapshot.allocs[0];
        for usage in [&a.usage, &a.tasks[0].usage] {
            assert_eq!(**usage, Usage::default());
        }
        assert_eq!(a.status.as_ref().unwrap().tasks[0].state, TaskState::Running, "as it is recorded");
        assert_eq!(usage_of(&snapshot, "shop"), Usage::default());
        assert_eq!(usage_of(&snapshot, "bank").cpu_usage_ns(), Some(7));
        assert_eq!((snapshot.node.cpu_usage_ns, snapshot.node.oom_kills), (None, None));
        assert_eq!(snapshot.node.exits, [0, 1, 0, 0, 0, 0], "of what needs no reading all is known");
        let answer = shown(json::node::node(&snapshot));
        assert_eq!((answer["totals"].get("cpu_usage_ns"), &answer["totals"]["allocs"]), (None, &serde_json::json!(0)));
    }
    // Found: with the very record that it had, and what it used meanwhile.
    stage.readings.task("a", 0, used(60, 10, 7));
    stage.publish(0, |status| status.recovering.clear());
    let found = stage.change();
    assert_eq!(found.allocs[0].tasks[0].usage.cpu_usage_ns(), Some(100));
    assert_eq!(found.allocs[0].usage.cpu_usage_ns(), Some(100));
    assert_eq!(usage_of(&found, "shop").cpu_usage_ns(), Some(200));
    assert_eq!(found.node.cpu_usage_ns, Some(207));
}

#[test]
fn siblings_of_a_task_in_recovery_are_measured() {
    let job = synthetic::job("shop", &["web", "db"]);
    let tasks = ["web", "db"].map(|name| synthetic::task(name, TaskState::Running, NOW)).to_vec();
    let mut stage = Stage::with(vec![synthetic::alloc("a", &job, tasks)]);
    stage.publish(0, |status| status.recovering = vec!["db".into()]);
    stage.readings.task("a", 0, used(100, 10, 7));
    stage.readings.task("a", 1, used(50, 10, 7));
    let cpu_of = |snapshot: &Snapshot, task: &str| {
        snapshot.workloads.iter().find(|w| w.task.as_str() == task).unwrap().usage.cpu_usage_ns()
    };
    let cpu = |snapshot: &Snapshot| [0, 1].map(|at| snapshot.allocs[0].tasks[at].usage.cpu_usage_ns());
    for snapshot in [stage.tick(), stage.tick(), stage.change()] {
        assert_eq!(cpu(&snapshot), [Some(100), None]);
        assert_eq!((cpu_of(&snapshot, "web"), cpu_of(&snapshot, "db")), (Some(100), None));
        assert_eq!(snapshot.allocs[0].usage.cpu_usage_ns(), None);
        assert_eq!(snapshot.node.cpu_usage_ns, None, "a sum that lacks a part");
    }
    stage.publish(0, |status| status.recovering.clear());
    let found = stage.change();
    assert_eq!((cpu(&found), found.allocs[0].usage.cpu_usage_ns()), ([Some(100), Some(50)], Some(150)));
    assert_eq!((cpu_of(&found, "web"), cpu_of(&found, "db")), (Some(100), Some(50)));
}

#[test]
fn an_observed_alloc_is_measured_like_any_other_and_nothing_of_its_life_is_invented() {
    let job = synthetic::job("shop", &["web"]);
    let mut stage = Stage::with(vec![synthetic::observed("nginx", &["main"]), one_running("a", &job)]);
    stage.readings.task("nginx", 0, used(100, 50, 40));
    stage.readings.alloc("nginx", used(110, 55, 45));
    stage.tick();
    // Its cgroup is read no more, and then another task is in it.
    stage.readings.0.clear();
    let quiet = stage.tick();
    assert_eq!(quiet.allocs[0].tasks[0].usage.cpu_usage_ns(), Some(100), "no counter falls");
    assert_eq!(quiet.allocs[0].usage.memory_usage_bytes(), None, "what was used now is gone");
    let mut other = PublishedAlloc::clone(&stage.allocs[0]);
    Arc::make_mut(&mut other.identity).tasks[0].name = "other".into();
    stage.allocs[0] = Arc::new(other);
    stage.readings.task("nginx", 0, used(7, 3, 2));
    let snapshot = stage.tick();
    let nginx = &snapshot.allocs[0];
    assert_eq!(nginx.tasks[0].usage.cpu_usage_ns(), Some(7), "another task begins at 0");
    assert!(nginx.tasks[0].managed.is_none() && !nginx.ended);
    assert_eq!(snapshot.workloads.iter().map(|w| w.workload.as_str()).collect::<Vec<_>>(), ["shop"]);
    assert_eq!((snapshot.counts.allocs, snapshot.counts.tasks), ([0, 1, 0, 0], [0, 0, 1, 0, 0, 0]), "the other one");
    assert_eq!(snapshot.node.cpu_usage_ns, Some(0), "not what the agent ran");

    let (all, stats) = (
        shown(json::allocs::alloc(nginx, Detail::Full)),
        shown(json::stats::stats(&snapshot, nginx, Detail::Full, NOW)),
    );
    for (answer, unknown) in [
        (&all, &["status", "desired", "description", "job", "group", "index", "created_at", "definition"][..]),
        (&all["tasks"]["other"], &["state", "failed", "restarts", "driver", "exits"]),
        (&stats["tasks"]["other"], &["state", "attempt", "time_in_state_ns"]),
    ] {
        assert_eq!(unknown.iter().find(|field| answer.get(field).is_some()), None, "{answer}");
    }
    assert_eq!((&all["id"], &all["source"]), (&"nginx".into(), &"cgroup".into()));
    assert_eq!(stats["tasks"]["other"]["usage"]["cpu_usage_ns"], 7);
    assert_eq!(json::allocs::allocs(&snapshot, Detail::Public).allocs.len(), 2);
    stage.allocs.remove(0);
    assert_eq!(stage.change().allocs.len(), 1, "gone with who observed it");
}

#[test]
fn observed_workload_has_its_own_sum_and_adds_nothing_to_the_node() {
    let job = synthetic::job("shop", &["web"]);
    let mut nginx = synthetic::observed("nginx", &["main"]);
    Arc::make_mut(&mut nginx.identity).workload = Some("proxy".into());
    nginx.observed = Some(Arc::default());
    let mut stage = Stage::with(vec![nginx, one_running("a", &job)]);
    stage.readings.task("nginx", 0, used(100, 50, 40).with(Field::oom_kills, 3));
    stage.readings.task("a", 0, used(7, 5, 4).with(Field::oom_kills, 1));
    let snapshot = stage.tick();
    let of = |name: &str| snapshot.workloads.iter().find(|w| w.workload.as_str() == name).expect("it is exposed");
    assert_eq!((of("proxy").observed, of("proxy").usage.cpu_usage_ns()), (true, Some(100)));
    assert_eq!((of("shop").observed, of("shop").usage.cpu_usage_ns()), (false, Some(7)));
    assert_eq!((snapshot.node.cpu_usage_ns, snapshot.node.oom_kills), (Some(7), Some(1)), "managed tasks only");
}

#[test]
fn unchanged_values_are_shared_with_the_previous_snapshot() {
    let job = synthetic::job("shop", &["web"]);
    let mut stage = Stage::with(vec![one_running("a", &job), one_running("b", &job)]);
    for id in ["a", "b"] {
        stage.readings.task(id, 0, used(5, 10, 7));
    }
    let first = stage.tick();
    let second = stage.tick();
    assert!(Arc::ptr_eq(&first.allocs[0], &second.allocs[0]) && Arc::ptr_eq(&first.allocs[1], &second.allocs[1]));
    assert!(Arc::ptr_eq(&first.workloads[0], &second.workloads[0]));
    assert_eq!((first.epoch, second.epoch, second.version), (1, 2, 2));

    stage.readings.task("b", 0, used(6, 10, 7));
    let third = stage.tick();
    assert!(Arc::ptr_eq(&second.allocs[0], &third.allocs[0]) && !Arc::ptr_eq(&second.allocs[1], &third.allocs[1]));
    assert_eq!(third.workloads[0].usage.cpu_usage_ns(), Some(11));

    stage.publish(0, |status| status.generation += 1);
    let fourth = stage.change();
    assert!(!Arc::ptr_eq(&third.allocs[0], &fourth.allocs[0]) && Arc::ptr_eq(&third.allocs[1], &fourth.allocs[1]));
    assert_eq!((fourth.epoch, fourth.version), (3, 4), "a change is no tick");
}

/// The same values as before, read at another time.
struct At(TaskReadings, Timestamp);

impl ReadingProvider for At {
    fn read(&mut self, allocs: &[AllocToRead<'_>]) -> Vec<Option<assemble::AllocReadings>> {
        let mut readings = self.0.read(allocs);
        for reading in readings.iter_mut().flatten().flat_map(|s| s.tasks.iter_mut().flatten()) {
            reading.at = self.1;
        }
        readings
    }
}

#[test]
fn resampled_task_without_changes_has_the_time_of_its_last_sample() {
    let job = synthetic::job("shop", &["web"]);
    let mut stage = Stage::with(vec![one_running("a", &job)]);
    stage.readings.task("a", 0, used(5, 10, 7));
    let first = stage.tick();
    let later = NOW.plus(Nanos::from_secs(10));
    let mut again = At(stage.readings.clone(), later);
    let (second, _) = stage.assembler.tick(&stage.board(), &mut again, TickInputs::default(), stage.moment());
    let times = |s: &Snapshot| (s.allocs[0].sampled_at, s.allocs[0].tasks[0].sampled_at);
    assert_eq!((times(&first), times(&second)), ((Some(NOW), Some(NOW)), (Some(later), Some(later))));
    assert!(Arc::ptr_eq(&first.allocs[0].tasks[0].usage, &second.allocs[0].tasks[0].usage), "nothing moved");
    assert!(Arc::ptr_eq(&first.workloads[0], &second.workloads[0]), "nothing is added up again");
}

/// The clock was set back: what is read by it is not shown as read in the future.
#[test]
fn an_alloc_was_read_when_it_was_read_also_after_the_clock_went_back() {
    let job = synthetic::job("shop", &["web"]);
    let mut stage = Stage::with(vec![one_running("a", &job)]);
    stage.readings.task("a", 0, used(5, 10, 7));
    stage.tick();
    let earlier = Timestamp(NOW.0 - Nanos::from_secs(3_600).0);
    let mut again = At(stage.readings.clone(), earlier);
    let (second, _) = stage.assembler.tick(&stage.board(), &mut again, TickInputs::default(), stage.moment());
    let alloc = &second.allocs[0];
    assert_eq!((alloc.tasks[0].sampled_at, alloc.sampled_at), (Some(earlier), Some(earlier)));
}

/// Promise (Absent values and sums): No counter of a task, alloc or workload ever falls, not even from live to ended
#[test]
fn at_the_hand_over_nothing_falls_and_nothing_counts_twice() {
    let job = synthetic::job("shop", &["web"]);
    let mut stage = Stage::with(vec![one_running("a", &job)]);
    stage.readings.task("a", 0, used(100, 50, 40));
    stage.readings.alloc("a", used(110, 55, 45));
    stage.tick();
    end(&mut stage, 0, &used(130, 60, 0));
    let ended = stage.change();
    assert_eq!(ended.workloads[0].usage.cpu_usage_ns(), Some(130), "ended once, and not live any more");
    assert_eq!(ended.node.cpu_usage_ns, Some(130));
    assert_eq!(ended.node.exits, [1, 0, 0, 0, 0, 0]);
    let alloc = &ended.allocs[0];
    assert!(alloc.ended && !alloc.retired);
    assert_eq!(alloc.tasks[0].usage.cpu_usage_ns(), Some(130));
    assert_eq!(alloc.tasks[0].usage.memory_peak_bytes(), Some(60));
    assert_eq!(alloc.tasks[0].usage.memory_limit_bytes(), Some(1_000), "a limit stays");
    assert_eq!(alloc.tasks[0].usage.memory_usage_bytes(), None, "what was used now is gone");
    assert_eq!((alloc.usage.cpu_usage_ns(), alloc.usage.memory_usage_bytes()), (Some(130), None));
    assert_eq!(stage.tick().workloads[0].usage.cpu_usage_ns(), Some(130));
}

#[test]
fn a_last_reading_that_lacks_what_was_seen_takes_nothing_back() {
    let job = synthetic::job("shop", &["web"]);
    let mut stage = Stage::with(vec![one_running("a", &job)]);
    stage.readings.task("a", 0, used(100, 50, 40));
    stage.tick();
    // The cgroup was gone before it could be read.
    end(&mut stage, 0, &Usage::default());
    let ended = stage.change();
    assert_eq!(ended.allocs[0].tasks[0].usage.cpu_usage_ns(), Some(100));
    assert_eq!(ended.allocs[0].tasks[0].usage.memory_peak_bytes(), Some(50));
    assert_eq!(ended.workloads[0].usage.cpu_usage_ns(), Some(100));
    assert_eq!(ended.node.cpu_usage_ns, Some(100));
}

#[test]
fn attempts_add_up_and_gauges_are_absent_between_them() {
    let job = synthetic::job("shop", &["web"]);
    let mut stage = Stage::with(vec![one_running("a", &job)]);
    stage.publish(0, |status| {
        let base = Arc::new(used(1_000, 500, 0).without_live());
        status.tasks = vec![Arc::new(TaskStatus { base, state: TaskState::Backoff, ..(*status.tasks[0]).clone() })];
    });
    let waiting = stage.tick();
    let task = &waiting.allocs[0].tasks[0];
    assert!(task.attempt.is_none());
    assert_eq!((task.usage.cpu_usage_ns(), task.usage.memory_usage_bytes()), (Some(1_000), None));
    stage.readings.task("a", 0, used(7, 30, 20));
    let running = stage.tick();
    let task = &running.allocs[0].tasks[0];
    assert_eq!(task.usage.cpu_usage_ns(), Some(1_007));
    assert_eq!(task.usage.memory_peak_bytes(), Some(500), "the highest of all attempts");
    assert_eq!(task.usage.memory_usage_bytes(), Some(20));
    assert_eq!(task.attempt.as_ref().unwrap().cpu_usage_ns(), Some(7));
}

fn two_tasks(cgroup: bool) -> Stage {
    let job = synthetic::job("shop", &["web", "db"]);
    let running = |name| synthetic::task(name, TaskState::Running, NOW);
    let mut alloc = synthetic::alloc("a", &job, vec![running("web"), running("db")]);
    if !cgroup {
        Arc::make_mut(&mut alloc.identity).cgroup = None;
    }
    Stage::with(vec![alloc])
}

#[test]
fn an_alloc_without_a_cgroup_is_the_sum_of_its_tasks_but_never_of_peaks_or_limits() {
    let mut stage = two_tasks(false);
    stage.readings.task("a", 0, used(10, 100, 30));
    stage.readings.task("a", 1, used(5, 50, 20));
    let snapshot = stage.tick();
    let alloc = &snapshot.allocs[0];
    assert_eq!(alloc.aggregation, Aggregation::Sum);
    assert_eq!((alloc.usage.cpu_usage_ns(), alloc.usage.memory_usage_bytes()), (Some(15), Some(50)));
    assert_eq!((alloc.usage.memory_peak_bytes(), alloc.usage.memory_limit_bytes()), (None, None));
    let stats = shown(json::stats::stats(&snapshot, alloc, Detail::Full, NOW));
    assert_eq!(stats["sum_of_task_peaks_bytes"], 150, "in the API, under its own name");
}

#[test]
fn a_sum_that_lacks_the_gauge_of_a_running_task_is_absent() {
    let mut stage = two_tasks(false);
    stage.readings.task("a", 0, used(10, 100, 30));
    stage.readings.task("a", 1, Usage::from([(Field::cpu_usage_ns, 5)]));
    let alloc = Arc::clone(&stage.tick().allocs[0]);
    assert_eq!(alloc.usage.memory_usage_bytes(), None);
    assert_eq!(alloc.usage.cpu_usage_ns(), Some(15));
}

/// The first task of each alloc has ended, and its end is not shown yet.
struct FirstHasEnded(TaskReadings);

impl ReadingProvider for FirstHasEnded {
    fn read(&mut self, allocs: &[AllocToRead<'_>]) -> Vec<Option<assemble::AllocReadings>> {
        let mut all = self.0.read(allocs);
        for reading in all.iter_mut().flatten().filter_map(|readings| readings.tasks.first_mut()?.as_mut()) {
            *reading = Reading { usage: Arc::new(reading.usage.without_live()), is_end: true, ..reading.clone() };
        }
        all
    }
}

/// Its counters are in all sums; what its alloc uses now is what the others use, and nothing if there are none.
#[test]
fn ended_task_not_yet_published_is_in_the_sums_without_current_usage() {
    let job = synthetic::job("shop", &["web"]);
    let alone = Stage::with(vec![one_running("a", &job)]);
    for (mut stage, now) in [(alone, None), (two_tasks(true), Some(45)), (two_tasks(false), Some(20))] {
        stage.readings.task("a", 0, used(100, 50, 25));
        if now.is_some() {
            stage.readings.task("a", 1, used(10, 50, 20));
        }
        stage.readings.alloc("a", used(120, 50, 45));
        let (board, moment) = (stage.board(), stage.moment());
        let mut reported = FirstHasEnded(stage.readings.clone());
        let snapshot = stage.assembler.tick(&board, &mut reported, TickInputs::default(), moment).0;
        let alloc = &snapshot.allocs[0];
        let first = &alloc.tasks[0].usage;
        assert_eq!((first.cpu_usage_ns(), first.memory_usage_bytes()), (Some(100), None));
        assert!(alloc.usage.cpu_usage_ns() >= Some(100), "{:?}", alloc.usage);
        assert_eq!(alloc.usage.memory_usage_bytes(), now, "{:?}", alloc.aggregation);
        let web = snapshot.workloads.iter().find(|workload| workload.task.as_str() == "web").expect("a workload");
        assert_eq!(web.usage.cpu_usage_ns(), Some(100));
    }
}

#[test]
fn alloc_with_a_cgroup_has_the_values_of_the_cgroup() {
    let mut stage = two_tasks(true);
    stage.readings.task("a", 0, used(10, 100, 30));
    stage.readings.task("a", 1, used(5, 50, 20));
    stage.readings.alloc("a", used(17, 120, 55));
    let alloc = Arc::clone(&stage.tick().allocs[0]);
    assert_eq!(alloc.aggregation, Aggregation::Cgroup);
    assert_eq!((alloc.usage.cpu_usage_ns(), alloc.usage.memory_peak_bytes()), (Some(17), Some(120)));
}

/// `/metrics`, the API and `stats` all take an alloc's values from its one usage, which holds the sums as well.
///
/// Promise (Measured values): Metrics, the API and `stats` report the same sums over the tasks of an alloc
#[test]
fn api_and_metrics_expose_the_same_task_sums_of_an_alloc() {
    let everything = all_used(7);
    let mut stage = two_tasks(true);
    stage.readings.task("a", 0, everything.clone());
    stage.readings.task("a", 1, everything);
    stage.readings.alloc("a", used(17, 120, 55));
    let snapshot = stage.tick();
    let alloc = &snapshot.allocs[0];
    let summed = measures().filter(|measure| measure.nature().is_summed());
    let mut seen = 0;
    for cell in summed.flat_map(|measure| measure.cells) {
        assert_eq!((cell.get)(&alloc.usage), (cell.get)(&all_used(14)));
        seen += 1;
    }
    assert!(seen > 10, "{seen}");
    let stats = shown(json::stats::stats(&snapshot, alloc, Detail::Full, NOW));
    assert_eq!((stats["usage"]["processes"].as_u64(), stats["usage"]["open_fds"].as_u64()), (Some(14), Some(14)));
}

#[test]
fn time_in_a_state_never_falls_whatever_the_wall_clock_does() {
    let job = synthetic::job("shop", &["web"]);
    let mut stage = Stage::with(vec![one_running("a", &job)]);
    let mut last = [Nanos::ZERO; 6];
    let states = [TaskState::Running, TaskState::Backoff, TaskState::Starting, TaskState::Running, TaskState::Dead];
    for (step, state) in states.into_iter().enumerate() {
        stage.pass(SECOND * 10);
        if step % 2 == 1 {
            stage.wall = Timestamp(stage.wall.0 - 25_000_000_000);
        }
        let wall = stage.wall;
        stage.publish(0, |status| {
            let mut task = (*status.tasks[0]).clone();
            let dwell = wall.since(task.state_since);
            let place = task.state.index();
            task.time_in_state[place] = task.time_in_state[place].saturating_add(dwell);
            task.state = state;
            task.state_since = wall;
            status.tasks = vec![Arc::new(task)];
        });
        for snapshot in [stage.change(), stage.tick()] {
            let task = &snapshot.allocs[0].tasks[0];
            let now = TaskState::ALL.map(|s| task.managed.as_ref().unwrap().time_in(s, snapshot.steady_at));
            assert!(now.iter().zip(last).all(|(now, before)| *now >= before), "step {step}: {last:?} then {now:?}");
            last = now;
        }
    }
}

fn retired_after(stage: &mut Stage, limit: u64) -> Option<u64> {
    (0..=limit).find(|_| {
        let snapshot = stage.tick();
        stage.pass(SECOND);
        snapshot.allocs[0].retired
    })
}

#[test]
fn final_series_are_exposed_five_minutes_or_until_the_scraper_has_them() {
    let job = synthetic::job("shop", &["web"]);
    let ended = || {
        let mut stage = Stage::with(vec![one_running("a", &job)]);
        stage.readings.task("a", 0, used(1, 1, 1));
        stage.tick();
        end(&mut stage, 0, &used(2, 2, 0));
        stage
    };
    assert_eq!(retired_after(&mut ended(), 700), Some(300), "no scraper");
    let mut stage = ended();
    stage.acknowledged = Some(1);
    assert_eq!(retired_after(&mut stage, 450), None, "the scraper has an older body only");
    stage.acknowledged = Some(2);
    assert_eq!(retired_after(&mut stage, 10), Some(0));
    let snapshot = stage.tick();
    assert_eq!(snapshot.allocs.len(), 1, "the API still knows it");
    assert_eq!(snapshot.workloads[0].usage.cpu_usage_ns(), Some(2), "its workload has not lost it");
}

#[test]
fn an_alloc_that_ended_long_before_the_agent_started_is_not_shown_as_new() {
    let job = synthetic::job("shop", &["web"]);
    let dead = |id: &str, seconds: u64| {
        let since = Timestamp(NOW.0 - seconds * 1_000_000_000);
        synthetic::alloc(id, &job, vec![synthetic::task("web", TaskState::Dead, since)])
    };
    let snapshot = Stage::with(vec![dead("old", 3_600), dead("fresh", 30)]).tick();
    assert_eq!(snapshot.allocs.iter().map(|a| a.retired).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn retired_workload_is_added_to_the_node_and_nothing_falls() {
    let (shop, batch) = (synthetic::job("shop", &["web"]), synthetic::job("batch", &["web"]));
    let mut stage = Stage::with(vec![one_running("a", &batch), one_running("b", &shop)]);
    stage.readings.task("a", 0, used(100, 1, 1));
    stage.readings.task("b", 0, used(7, 1, 1));
    stage.tick();
    end(&mut stage, 0, &used(120, 1, 0));
    assert_eq!(stage.tick().node.cpu_usage_ns, Some(127));
    stage.allocs.remove(0);
    let retained = stage.tick();
    assert_eq!(retained.workloads.len(), 2, "a workload outlives its allocs");
    assert_eq!(retained.node.cpu_usage_ns, Some(127));
    // 24 hours later.
    let key = (batch.id.clone(), batch.groups[0].tasks[0].name.clone());
    let totals = stage.totals.workloads.remove(&key).expect("it was there");
    let mut node = (*stage.totals.node).clone();
    node.totals.merge(&totals);
    stage.totals.node = Arc::new(node);
    stage.readings.task("b", 0, used(9, 1, 1));
    let retired = stage.tick();
    assert_eq!(retired.workloads.iter().map(|w| w.workload.as_str()).collect::<Vec<_>>(), ["shop"]);
    assert_eq!(retired.workloads[0].usage.cpu_usage_ns(), Some(9), "the others kept their places");
    assert_eq!((retired.node.cpu_usage_ns, retired.node.exits[0]), (Some(129), 1));
}

#[test]
fn oom_kills_of_a_workload_begin_with_its_first_reading_and_are_its_own() {
    let (shop, batch) = (synthetic::job("shop", &["web"]), synthetic::job("batch", &["web"]));
    let mut stage = Stage::with(vec![one_running("a", &shop), one_running("b", &batch)]);
    stage.readings.task("a", 0, used(1, 1, 1));
    let kills = |s: &Snapshot| s.workloads.iter().map(|w| w.usage.oom_kills()).collect::<Vec<_>>();
    assert_eq!(kills(&stage.tick()), [None, None]);
    stage.readings.task("a", 0, used(2, 1, 1).with(Field::oom_kills, 3));
    let snapshot = stage.tick();
    assert_eq!(kills(&snapshot), [Some(3), None], "of a task that was never read nothing is known");
    assert_eq!(snapshot.workloads[1].usage.cpu_usage_ns(), None, "nothing else is made up");
    assert_eq!(snapshot.workloads[0].usage.cpu_usage_ns(), Some(2));
    stage.readings.task("b", 0, used(1, 1, 1).with(Field::oom_kills, 0));
    assert_eq!(kills(&stage.tick()), [Some(3), Some(0)]);
}

/// One step of a life: what can happen to allocs between two snapshots.
#[derive(Debug, Clone)]
enum Step {
    Admit,
    Use {
        alloc: usize,
        cpu: u64,
    },
    /// The last reading adds to the last one seen, or lacks everything.
    End {
        alloc: usize,
        more: Option<u64>,
    },
    Forget {
        alloc: usize,
    },
    Tick,
    Change,
}

/// Every field says this much, what is used now and what is allowed too.
fn all_used(so_far: u64) -> Usage {
    Field::ALL.into_iter().fold(Usage::default(), |usage, field| usage.with(field, so_far))
}

/// The series of a body that may never fall, and how they stand: all counters and peaks of all tasks, allocs and
/// workloads.
fn rising(snapshot: &Snapshot) -> Vec<(String, u64)> {
    let mut now: Vec<(String, u64)> = Vec::new();
    let mut note = |owner: &str, usage: &Usage| {
        let never_fall = Field::ALL.into_iter().filter(|field| field.nature().never_falls());
        now.extend(never_fall.filter_map(|field| Some((format!("{owner} {}", field.name()), usage.get(field)?))));
    };
    for alloc in &snapshot.allocs {
        note(alloc.identity.id.as_str(), &alloc.tasks[0].usage);
        note(&format!("{} alloc", alloc.identity.id), &alloc.usage);
    }
    for workload in &snapshot.workloads {
        note("workload", &workload.usage);
    }
    now.push(("node".into(), snapshot.node.cpu_usage_ns.expect("nothing is in recovery")));
    now
}

#[test]
fn monotonicity_check_covers_every_counter_and_peak() {
    let job = synthetic::job("shop", &["web"]);
    let mut stage = Stage::with(vec![one_running("a", &job)]);
    stage.readings.task("a", 0, all_used(5));
    stage.readings.alloc("a", all_used(7));
    let counters: Vec<&str> = Field::ALL.into_iter().filter(|field| field.nature().counts()).map(Field::name).collect();
    assert_eq!(counters.len(), 37, "{counters:?}");
    let snapshot = stage.tick();
    for owner in ["a", "a alloc", "workload"] {
        let seen = rising(&snapshot);
        let seen = |field: &&&str| seen.iter().any(|(series, _)| *series == format!("{owner} {field}"));
        assert_eq!(counters.iter().filter(|field| !seen(field)).collect::<Vec<_>>(), Vec::<&&str>::new(), "of {owner}");
    }
    let all = Field::ALL.into_iter().filter(|field| field.nature().never_falls()).count();
    assert_eq!(rising(&snapshot).len(), all * 2 + 37 + 1, "of the task, its alloc, the workload and the node");
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        1 => Just(Step::Admit),
        4 => (0..6_usize, 0..1_000_u64).prop_map(|(alloc, cpu)| Step::Use { alloc, cpu }),
        2 => (0..6_usize, prop::option::weighted(0.9, 0..500_u64)).prop_map(|(alloc, more)| Step::End { alloc, more }),
        1 => (0..6_usize).prop_map(|alloc| Step::Forget { alloc }),
        3 => Just(Step::Tick),
        2 => Just(Step::Change),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_counter_or_peak_ever_falls_and_workloads_are_the_sum_of_everything(steps in steps()) {
        let job = synthetic::job("shop", &["web"]);
        let mut stage = Stage::new();
        // By alloc: what was used so far, and whether it runs.
        let mut lives: Vec<(u64, bool)> = Vec::new();
        let mut removed = 0;
        let mut complete = true;
        let mut seen: BTreeMap<String, u64> = BTreeMap::new();
        for step in steps {
            let snapshot = match step {
                Step::Admit => {
                    let id = format!("alloc-{}", lives.len() + removed);
                    stage.allocs.push(Arc::new(one_running(&id, &job)));
                    lives.push((0, true));
                    continue;
                }
                Step::Use { alloc, cpu } => {
                    let Some((so_far, true)) = lives.get_mut(alloc) else { continue };
                    *so_far += cpu;
                    let id = stage.allocs[alloc].identity.id.to_string();
                    stage.readings.task(&id, 0, all_used(*so_far));
                    // Its own cgroup is a little ahead, or behind, or says nothing.
                    match cpu % 3 {
                        0 => _ = stage.readings.0.remove(&(id.as_str().into(), None)),
                        ahead => stage.readings.alloc(&id, all_used((*so_far + ahead * 7).saturating_sub(7))),
                    }
                    continue;
                }
                Step::End { alloc, more } => {
                    let Some((so_far, running @ true)) = lives.get_mut(alloc) else { continue };
                    *running = false;
                    let last = match more {
                        Some(more) => {
                            *so_far += more;
                            all_used(*so_far)
                        }
                        None => {
                            // It was not read: from here on the sum is only bounded.
                            complete = false;
                            Usage::default()
                        }
                    };
                    end(&mut stage, alloc, &last);
                    continue;
                }
                Step::Forget { alloc } => {
                    if lives.get(alloc).is_none_or(|(_, running)| *running) {
                        continue;
                    }
                    stage.allocs.remove(alloc);
                    let (so_far, _) = lives.remove(alloc);
                    removed += 1;
                    // Kept as one that is over: its part of the sum stays.
                    seen.insert("forgotten".into(), seen.get("forgotten").unwrap_or(&0) + so_far);
                    continue;
                }
                Step::Tick => stage.tick(),
                Step::Change => stage.change(),
            };
            for (series, value) in rising(&snapshot) {
                let before = seen.insert(series.clone(), value);
                prop_assert!(before.is_none_or(|b| b <= value), "{} fell from {:?} to {}", series, before, value);
            }
            // After a tick everybody was read.
            if complete && matches!(step, Step::Tick) {
                let forgotten = seen.get("forgotten").copied().unwrap_or(0);
                let expected: u64 = lives.iter().map(|(so_far, _)| so_far).sum::<u64>() + forgotten;
                prop_assert_eq!(snapshot.node.cpu_usage_ns, Some(expected));
            }
        }
    }
}

// The thread.

static GAUGE: MetricDesc = MetricDesc::gauge("allostat_host_test_bytes", Unit::Bytes, "Of a test.", &[]);

struct Good(Arc<AtomicU64>);

impl Collector for Good {
    fn name(&self) -> &'static str {
        "good"
    }
    fn metrics(&self) -> &'static [&'static MetricDesc] {
        &[]
    }
    fn collect(&mut self, _: &Roots, out: &mut Samples) -> Result<(), CollectError> {
        out.push_int(&GAUGE, &[], self.0.fetch_add(1, Ordering::Relaxed));
        Ok(())
    }
}

struct Bad;

impl Collector for Bad {
    fn name(&self) -> &'static str {
        "bad"
    }
    fn metrics(&self) -> &'static [&'static MetricDesc] {
        &[]
    }
    fn collect(&mut self, _: &Roots, _: &mut Samples) -> Result<(), CollectError> {
        Err(CollectError::Timeout("it never answers".into()))
    }
}

fn parts(board: &Arc<Board>, tick: Duration) -> Parts {
    let layout = Layout::detect(&Roots::default()).expect("this host has a mountinfo");
    let sampling = SamplingContext::new(Roots::default(), layout, FdBudget::of(10));
    Parts {
        config: allostat::snapshot::Config { tick, ..Default::default() },
        board: Arc::clone(board),
        devices: None,
        sampling,
        collectors: vec![Box::new(Bad), Box::new(Good(Arc::default()))],
        info: synthetic::info("v2", vec![]),
        metrics: Arc::new(Metrics::new()),
        scrapers: Arc::new(SharedScrapers::default()),
        clock: Arc::new(SystemClock),
    }
}

fn wait(sampler: &Sampler, what: impl Fn(&Snapshot) -> bool) -> Arc<Snapshot> {
    let began = Instant::now();
    loop {
        let snapshot = Arc::clone(&sampler.snapshots.borrow());
        if what(&snapshot) {
            return snapshot;
        }
        assert!(began.elapsed() < SECOND * 30 * patience(), "it never came");
        std::thread::yield_now();
    }
}

fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < SECOND * 30 * patience(), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn named(samples: &Samples, name: &str, labels: &[&str]) -> Option<Value> {
    let is_it = |s: &&allostat::model::metric::Sample| s.desc.name == name && s.labels.iter().eq(labels.iter());
    samples.0.iter().find(is_it).map(|s| s.value)
}

#[test]
fn a_failing_collector_is_counted_and_costs_no_other_its_values() {
    let board = Arc::new(Board::default());
    let sampler = Sampler::start(parts(&board, Duration::from_millis(5))).unwrap();
    let snapshot = wait(&sampler, |s| s.epoch >= 3);
    assert_eq!(named(&snapshot.host, "allostat_host_test_bytes", &[]), Some(Value::Int(snapshot.epoch - 1)));
    let errors = |collector, reason| named(&snapshot.agent, "allostat_collector_errors_total", &[collector, reason]);
    assert_eq!(errors("bad", "timeout"), Some(Value::Int(snapshot.epoch)));
    assert_eq!(errors("good", "timeout"), Some(Value::Int(0)));
    let last = |collector| named(&snapshot.agent, "allostat_collector_last_sample_timestamp_seconds", &[collector]);
    assert!(last("good").is_some() && last("bad").is_none(), "who never had values has no last sample");
    assert!(sampler.heartbeat.alive());
}

/// Records at the beginning of each tick which epoch is published.
struct Witness {
    snapshots: Arc<OnceLock<Snapshots>>,
    published: Arc<Mutex<Vec<u64>>>,
}

impl Collector for Witness {
    fn name(&self) -> &'static str {
        "witness"
    }
    fn metrics(&self) -> &'static [&'static MetricDesc] {
        &[]
    }
    fn collect(&mut self, _: &Roots, _: &mut Samples) -> Result<(), CollectError> {
        let epoch = self.snapshots.get().map_or(0, |snapshots| snapshots.borrow().epoch);
        self.published.lock().expect("not poisoned").push(epoch);
        Ok(())
    }
}

/// Promise (Absent values and sums): Each tick reads the managed tasks; a client gets the newest readings, and no
/// unread snapshot is assembled
#[test]
fn unread_ticks_are_sampled_and_assembled_on_demand() {
    let board = Arc::new(Board::default());
    let mut parts = parts(&board, Duration::from_millis(10));
    let (snapshots, published) = (Arc::<OnceLock<Snapshots>>::default(), Arc::<Mutex<Vec<u64>>>::default());
    parts.collectors.push(Box::new(Witness { snapshots: Arc::clone(&snapshots), published: Arc::clone(&published) }));
    let sampler = Sampler::start(parts).unwrap();
    snapshots.set(sampler.snapshots.clone()).unwrap();
    let first = wait(&sampler, |s| s.epoch == 1);
    // It sees what is published, and asks for nothing.
    let unasked = wait(&sampler, |s| s.epoch > 60);
    let most = 2 + unasked.epoch / 8;
    assert!(unasked.version - first.version <= most, "{} snapshots of {} ticks", unasked.version, unasked.epoch);
    let read = |s: &Snapshot| named(&s.host, "allostat_host_test_bytes", &[]);
    assert_eq!(read(&unasked), Some(Value::Int(unasked.epoch - 1)), "what its own tick read");

    let ticks = || u64::try_from(published.lock().unwrap().len()).unwrap();
    let wait_tick = |tick: u64| eventually("the tick", || ticks() >= tick);
    // One of them has ended since, and is in no snapshot yet unless it is the tenth.
    wait_tick(ticks() + 2);
    let seen = sampler.snapshots.borrow().epoch;
    let newest = sampler.snapshots.newest();
    assert_eq!(read(&newest), Some(Value::Int(newest.epoch - 1)), "each tick reads, with any client");
    assert!(newest.epoch > unasked.epoch && newest.epoch >= seen, "{} after {seen}", newest.epoch);
    assert!(newest.version > unasked.version && newest.steady_at >= unasked.steady_at);
    // The tick after a look is put together at once: who looked may look again.
    for _ in 0..20 {
        // The second look is after that tick and before the next one.
        let mut checked = 0;
        eventually("a look between two ticks", || {
            checked = ticks();
            sampler.snapshots.newest();
            sampler.snapshots.newest().epoch == checked && ticks() == checked
        });
        wait_tick(checked + 2);
        let shown = published.lock().unwrap()[usize::try_from(checked + 1).unwrap()];
        assert!(shown > checked, "after a look at {checked}, {shown} is shown when tick {} begins", checked + 2);
    }
}

/// Promise (Absent values and sums): A change at a tick without a client is in the next snapshot
#[test]
fn change_at_an_unread_tick_is_in_the_next_snapshot() {
    let board = Arc::new(Board::default());
    let parts = parts(&board, Duration::from_millis(10));
    let reader = Arc::new(TaskReader::reported(&parts.sampling));
    let sampler = Sampler::start(parts).unwrap();
    let alloc = one_running("a", &synthetic::job("shop", &["web"]));
    board.publish([PublishedAlloc { readers: vec![Some(Arc::clone(&reader))], ..alloc }], |_| ());
    for n in 1..6 {
        let before = wait(&sampler, |s| s.allocs.len() == 1 && s.epoch > 1).epoch;
        // Ticks that are in no snapshot of their own have seen it by then.
        reader.report(used(n, 7, 7), Timestamp(n));
        let after = wait(&sampler, |s| s.epoch > before + 12);
        assert_eq!(after.allocs[0].usage.cpu_usage_ns(), Some(n), "at tick {}", after.epoch);
    }
}

#[test]
fn a_change_on_the_board_is_published_at_once_and_a_burst_is_one_publication() {
    let board = Arc::new(Board::default());
    // Ticks are far apart: whatever comes soon comes from a change.
    let sampler = Sampler::start(parts(&board, SECOND * 3_600)).unwrap();
    wait(&sampler, |s| s.epoch == 1);
    let job = synthetic::job("shop", &["web"]);
    let publish = |n: usize| board.publish([one_running(&n.to_string(), &job)], |_| ());
    let mut best = SECOND;
    for n in 0..30 {
        std::thread::sleep(Duration::from_millis(3));
        let began = Instant::now();
        publish(n);
        wait(&sampler, |s| s.allocs.len() == n + 1);
        best = best.min(began.elapsed());
    }
    // With ticks an hour apart each came by its change alone; a pause before it would be in the fastest one too.
    assert!(best < Duration::from_millis(20) * patience(), "the fastest of thirty took {best:?}");

    let before = sampler.snapshots.borrow().version;
    let began = Instant::now();
    (30..1_030).for_each(publish);
    let last = wait(&sampler, |s| s.allocs.len() == 1_030);
    let most = 2 + u64::try_from(began.elapsed().as_millis() / 2).unwrap();
    assert!(last.version - before <= most, "{} publications in {:?}", last.version - before, began.elapsed());
    assert_eq!(last.epoch, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn body_is_streamed_for_one_reader_and_cached_for_a_second_one() {
    let (board, readings) = synthetic::many(50);
    let mut assembler = synthetic::assembler(synthetic::info("v2", vec![]));
    let [first, second] =
        [(); 2].map(|()| Arc::new(synthetic::tick(&mut assembler, &board, &readings, Samples::default())));
    let bodies = Arc::new(Bodies::new(Arc::new(Metrics::new()), Arc::default()));
    let get = |snapshot: &Snapshot, encoding| bodies.get(snapshot, Format::Text, encoding);
    let ready = |snapshot: &Snapshot, encoding| bodies.ready(snapshot, Format::Text, encoding);
    let streamed = async |snapshot: &Arc<Snapshot>| {
        let mut stream = bodies.stream_first(snapshot, Format::Text, Duration::ZERO)?;
        let (mut all, mut pieces) = (Vec::new(), 0);
        while let Some(piece) = stream.next().await.unwrap() {
            all.extend_from_slice(&piece);
            pieces += 1;
        }
        assert!(pieces > 1, "{pieces} pieces of {} bytes", all.len());
        Some(all)
    };
    let alone = streamed(&first).await.expect("the first");
    assert!(ready(&first, Encoding::Identity).is_none(), "nothing is kept for one");
    assert!(streamed(&first).await.is_none(), "the second has it kept");
    let body = get(&first, Encoding::Identity);
    // But for what counts scrapes: the first was one.
    let lines = |body: &[u8]| -> Vec<String> {
        let text = std::str::from_utf8(body).unwrap();
        text.lines().filter(|line| !line.contains("allostat_scrape")).map(str::to_owned).collect()
    };
    assert!(lines(&body) == lines(&alone));
    assert_eq!(get(&first, Encoding::Identity).as_ptr(), body.as_ptr(), "encoded once");
    assert_eq!(ready(&first, Encoding::Identity).unwrap().as_ptr(), body.as_ptr());
    assert!(ready(&first, Encoding::Gzip).is_none(), "no client requested it");

    // Compressed from what is kept, and from nothing but the snapshot.
    for snapshot in [&first, &second] {
        let packed = get(snapshot, Encoding::Gzip);
        assert_eq!(get(snapshot, Encoding::Gzip).as_ptr(), packed.as_ptr(), "compressed once");
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut unpacked).unwrap();
        let zstd = get(snapshot, Encoding::Zstd);
        assert_eq!(get(snapshot, Encoding::Zstd).as_ptr(), zstd.as_ptr(), "compressed once");
        assert!(zstd::stream::decode_all(&zstd[..]).unwrap() == unpacked);
        assert!(unpacked.ends_with(b"\n") && lines(&unpacked).len() == lines(&alone).len());
    }
    assert!(ready(&second, Encoding::Identity).is_none(), "compressing keeps nothing else");
    assert!(streamed(&second).await.is_none(), "one is kept already: a request now is not alone");
    assert!(get(&first, Encoding::Zstd) == get(&second, Encoding::Zstd), "a late request gets the newer one");
}
