//! Drivers that misbehave: each call in the life of a task with each fault, as a product of two lists.
//! [`FaultCase::check`] has the invariants, and [`expected`] the end of each case.

use std::sync::OnceLock;

use serde_json::json;

use super::*;
use crate::collectors::{FdBudget, SamplingContext};
use crate::host::hierarchy::Layout;
use crate::host::roots::Roots;
use crate::model::event::EventKind;
use crate::model::task::Outcome;
use crate::runner::Wait;
use crate::runner::drivers::mock::{Call, Fault};
use crate::runner::drivers::{Driver, DriverContext, MockDriver, SupervisorPool, call};

/// The constructor of a driver for each agent.
pub(super) fn mock() -> Arc<dyn Driver> {
    mock_with_script("healthy")
}

/// The same, with these fingerprints.
pub(super) fn mock_with_script(script: &str) -> Arc<dyn Driver> {
    static SAMPLING: OnceLock<Arc<SamplingContext>> = OnceLock::new();
    let sampling = SAMPLING.get_or_init(|| {
        let roots = Roots::default();
        let layout = Layout::detect(&roots).unwrap();
        SamplingContext::new(roots, layout, FdBudget::from_limit())
    });
    Arc::new(MockDriver::new(&DriverContext {
        sampling: Arc::clone(sampling),
        clock: Arc::new(TokioClock::new()),
        boot_id: BootId("boot".to_owned()),
        supervisors: SupervisorPool::new("/nowhere".into(), None, 10_000),
        descriptors: None,
        no_cgroups: None,
        settings: [((MockDriver::NAME, "fingerprint"), script.to_owned())].into(),
        metrics: Arc::default(),
    }))
}

fn pretending(id: &str, kind: JobKind, tasks: &[(&str, Value)]) -> Job {
    let mut job = job(id, kind, tasks);
    job.groups[0].tasks.iter_mut().for_each(|t| t.driver = MockDriver::NAME.to_owned());
    job
}

/// The end of the task with the fault.
#[derive(Debug, PartialEq, Eq)]
struct FaultEnd {
    outcome: Outcome,
    failed: bool,
    /// Its last event.
    last: EventKind,
    /// Whether it may still run, as far as is known: then no other attempt starts.
    may_run: bool,
    /// Whether SIGKILL was needed.
    force: bool,
}

const KILLED: FaultEnd =
    FaultEnd { outcome: Outcome::Killed, failed: false, last: EventKind::Killed, may_run: false, force: false };
const BY_FORCE: FaultEnd = FaultEnd { force: true, ..KILLED };
const GIVEN_UP: FaultEnd = FaultEnd { failed: true, may_run: true, ..BY_FORCE };
const LOST: FaultEnd =
    FaultEnd { outcome: Outcome::Unknown, failed: true, last: EventKind::FailedRestore, may_run: true, force: false };
const NOT_STARTED: FaultEnd =
    FaultEnd { outcome: Outcome::Error, failed: true, last: EventKind::NotRestarting, may_run: false, force: false };

/// Exhaustive: a new call or fault fails the build here.
fn expected(call: Call, fault: Fault) -> FaultEnd {
    use Call::{Destroy, Kill, Recover, Signal, Start, Stats, Wait};
    use Fault::{Die, DieOnce, Garbage, Hang, Lie, Refuse, Repeat};
    match (call, fault) {
        // Without a stop: abandoned when its budget is over, and earlier after a stop.
        (Start, Hang) => GIVEN_UP,
        // In recovery, and running.
        (Start, Die | DieOnce | Repeat) => KILLED,
        (Start, Refuse | Lie) => NOT_STARTED,
        (Start, Garbage) => FaultEnd { may_run: true, ..NOT_STARTED },
        (Recover, Hang | Die | Refuse | Lie | Garbage) => LOST,
        // Retried.
        (Recover, DieOnce | Repeat) => KILLED,
        (Wait, Hang) => GIVEN_UP,
        // Retries are limited; an abandoned task is killed, which succeeds.
        (Wait, Die) => FaultEnd { may_run: false, ..LOST },
        (Wait, DieOnce | Garbage | Repeat) => KILLED,
        (Wait, Refuse) => FaultEnd { outcome: Outcome::Unknown, ..NOT_STARTED },
        (Wait, Lie) => FaultEnd { outcome: Outcome::Success, last: EventKind::Terminated, ..KILLED },
        (Signal, Hang | Die | DieOnce | Refuse | Lie | Garbage) => BY_FORCE,
        (Signal, Repeat) => KILLED,
        (Kill, Hang | Die | Refuse | Lie | Garbage) => GIVEN_UP,
        // Retried.
        (Kill, DieOnce | Repeat) => BY_FORCE,
        (Destroy | Stats, Hang | Die | DieOnce | Refuse | Lie | Garbage | Repeat) => KILLED,
    }
}

struct FaultCase {
    name: String,
    host: TestHost,
    agent: Handle,
    /// `main` has the fault, `beside` in the same alloc has none.
    odd: AllocId,
    /// Unaffected.
    good: AllocId,
}

impl FaultCase {
    async fn new(call: Call, fault: Fault) -> FaultCase {
        let name = format!("{} {}", call.word(), fault.word());
        let host = TestHost::new();
        let agent = host.start().await;
        let config = json!({
            "faults": { call.word(): fault.word() },
            "ignore_signals": call == Call::Kill,
            "memory_samples": [10, 20],
            "cpu_percent": 50,
        });
        let odd = pretending("odd", JobKind::Batch, &[("main", config), ("beside", json!({}))]);
        let odd = submit(&agent, odd).await;
        let good = submit(&agent, pretending("good", JobKind::Service, &[("main", json!({}))])).await;
        FaultCase { name, host, agent, odd, good }
    }

    /// The agent works: requests for other allocs are served at once.
    async fn assert_other_requests_served(&self, when: &str) {
        let id = submit(&self.agent, pretending(when, JobKind::Service, &[("main", json!({}))])).await;
        let served = async {
            while main_task(&self.agent, &id).state != TaskState::Running {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            self.agent.stop(&id, Wait::UntilEnded).await.unwrap();
        };
        let served = tokio::time::timeout(Duration::from_secs(1), served).await;
        assert!(served.is_ok(), "{}: {when}: others wait for it", self.name);
        assert_eq!(main_task(&self.agent, &self.good).state, TaskState::Running, "{}", self.name);
    }

    async fn run(&mut self, call: Call) {
        tokio::time::sleep(Duration::from_secs(3)).await;
        self.assert_other_requests_served("in the first seconds").await;
        if call == Call::Recover {
            let started_at = tokio::time::Instant::now();
            self.agent = self.host.restart(self.agent.clone()).await;
            let took = started_at.elapsed();
            assert!(took <= call::RECOVER + Duration::from_secs(1), "{}: the start took {took:?}", self.name);
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        self.assert_other_requests_served("after a minute").await;
        let requested_at = tokio::time::Instant::now();
        let stops = (0..3).map(|_| self.agent.stop(&self.odd, Wait::UntilEnded));
        for stop in stops {
            stop.await.unwrap();
        }
        let took = requested_at.elapsed();
        // Kill timeout, kill budget, and the limits of removal, for two ranks of tasks.
        let most = Duration::from_secs(5) + self.host.config.kill_budget + call::DESTROY * 2;
        assert!(took <= most, "{}: the stop took {took:?}", self.name);
        self.assert_other_requests_served("after its end").await;
    }

    /// Invariants for every driver.
    async fn check(&self, end: &FaultEnd) {
        let name = &self.name;
        let alloc = status_of(&self.agent, &self.odd);
        assert!(alloc.is_terminal(), "{name}");
        let [main, sibling] = alloc.tasks.as_slice() else { panic!("two tasks") };
        // Abandoned tasks are cleaned up in the background: that may take longer.
        let retained = || self.agent.0.alloc(&self.odd).unwrap().handle(0).is_some();
        tokio::time::sleep(Duration::from_secs(120)).await;
        let exit = main.last_exit().unwrap_or_else(|| panic!("{name}: no exit"));
        let of = totals(&self.agent, "odd");
        let found = FaultEnd {
            outcome: exit.outcome,
            failed: main.failed,
            last: main.events.back().unwrap().kind,
            may_run: retained(),
            force: of.kill_escalations > 0,
        };
        assert_eq!(found, *end, "{name}: {:?}", main.events);

        let abandoned = main.events.iter().filter(|e| e.message.starts_with("abandoned")).count() as u64;
        assert_eq!((of.abandoned, of.kill_escalations <= 1), (abandoned, true), "{name}: {:?}", main.events);

        for task in [main, sibling] {
            let count = |kind: EventKind| task.event_counts.get(kind.label()).copied().unwrap_or(0);
            assert_eq!(task.exits.len() as u64, u64::from(task.attempt) + 1, "{name}: one exit for each attempt");
            let ran = task.exits.iter().filter(|e| !e.status.never_ran()).count() as u64;
            assert_eq!(task.exit_counts.iter().sum::<u64>(), ran, "{name}");
            assert!(count(EventKind::Killing) <= 1 && count(EventKind::Killed) <= 1, "{name}: {:?}", task.events);
            assert!(count(EventKind::Started) <= u64::from(task.attempt) + 1, "{name}: {:?}", task.events);
            for event in &task.events {
                let texts = event.details.values().chain([&event.message]);
                for text in texts {
                    let tame = text.len() < 20_000 && !text.contains(|c: char| c.is_control());
                    assert!(tame, "{name}: {} bytes: {:.60}", text.len(), text);
                }
            }
            // Nothing ran for longer than this test.
            for ran in task.time_in_state.iter().chain(&alloc_run(&self.agent)) {
                assert!(*ran < crate::model::units::Nanos::from_secs(2_000), "{name}: {ran:?}");
            }
        }
        assert_eq!(sibling.exits.len(), 1, "{name}");
        assert_eq!(sibling.last_exit().unwrap().outcome, Outcome::Killed, "{name}: {:?}", sibling.events);
        assert!(!sibling.failed, "{name}");
        let notes = self.host.data_dir.run_task(&self.odd, &main.name);
        assert!(retained() || !notes.exists(), "{name}: what has ended leaves nothing");
    }

    /// Nothing runs after the agent has stopped.
    async fn leave(self, before: usize) {
        let started_at = std::time::Instant::now();
        self.agent.shutdown();
        // Owners of ended allocs get two seconds for cleanup.
        assert!(started_at.elapsed() < Duration::from_secs(60), "{}: the agent's end waits for it", self.name);
        drop(self.agent);
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(alive(), before, "{}: tasks of the runtime are left", self.name);
    }
}

fn alive() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

fn alloc_run(agent: &Handle) -> Vec<crate::model::units::Nanos> {
    agent.board().view().totals.alloc_run.values().flatten().copied().collect()
}

/// Calls: start, recover, wait, signal, kill, destroy, stats. Faults: hang, panic, panic once, refuse, lie, garbage,
/// repeat. Each attempt has one exit, each kill one event; nothing runs after the agent has stopped.
///
/// Promise (Durability and recovery): T-9.1 Each driver call with each fault ends in time and as declared, and affects
/// no other task
/// Promise (Task groups and lifecycle order): B.7 Whatever state a task was in when the agent died, it continues as
/// that table says
#[tokio::test(start_paused = true)]
async fn each_call_with_each_fault_ends_in_time_as_declared_and_affects_no_other_alloc() {
    let before = alive();
    for call in Call::ALL {
        for fault in Fault::ALL {
            let mut case = FaultCase::new(*call, *fault).await;
            // A hang fails this test instead of blocking it.
            let done = tokio::time::timeout(Duration::from_secs(1_800), case.run(*call)).await;
            assert!(done.is_ok(), "{}: it goes on for ever", case.name);
            case.check(&expected(*call, *fault)).await;
            case.leave(before).await;
        }
    }
}

/// Each counter of each task of each workload as a snapshot shows it, ended and running attempts. Tasks in recovery
/// have none.
fn counters(agent: &Handle) -> BTreeMap<String, u64> {
    let view = agent.board().view();
    let mut all = BTreeMap::new();
    let mut recovering = Vec::new();
    let name = |job: &str, task: &str, field: &str| format!("{job} {task} {field}");
    for ((job, task), totals) in &view.totals.workloads {
        for (field, value) in totals.usage.counters().iter() {
            all.insert(name(job.as_str(), task.as_str(), field), value);
        }
    }
    for alloc in &view.allocs {
        let status = lifecycle(alloc);
        let job = status.job.id.as_str();
        for (task, reader) in status.tasks.iter().zip(&alloc.readers) {
            let reading = reader.as_ref().and_then(|reader| reader.latest());
            for (field, value) in reading.iter().flat_map(|r| r.usage.counters().iter().collect::<Vec<_>>()) {
                *all.entry(name(job, task.name.as_str(), field)).or_default() += value;
            }
        }
        recovering.extend(status.recovering.iter().map(|task| name(job, task.as_str(), "")));
    }
    all.retain(|name, _| !recovering.iter().any(|task| name.starts_with(task)));
    all
}

/// Whatever its driver does, and whenever the agent is killed: no shown counter falls.
///
/// Promise (Durability and recovery): Exposed usage of an attempt stays counted, once, where its end was not seen
#[tokio::test(start_paused = true)]
async fn no_counter_falls_over_any_fault_and_any_restart_of_the_agent() {
    let mut measured = 0;
    for call in Call::ALL {
        for fault in Fault::ALL {
            let mut case = FaultCase::new(*call, *fault).await;
            let mut known = BTreeMap::new();
            for step in 0..60 {
                tokio::time::sleep(Duration::from_millis(700)).await;
                match step {
                    10 | 20 | 59 => case.agent = case.host.restart(case.agent.clone()).await,
                    30 => drop(case.agent.stop(&case.odd, Wait::No).await.unwrap()),
                    _ => {}
                }
                let now = counters(&case.agent);
                let recovering = &status_of(&case.agent, &case.odd).recovering;
                for (name, before) in &known {
                    let when = format!("{}: step {step}: {name}: {before}", case.name);
                    match now.get(name) {
                        Some(now) => assert!(now >= before, "{when}, then {now}"),
                        None => assert!(!recovering.is_empty(), "{when}, then nothing"),
                    }
                }
                known.extend(now);
            }
            measured += u32::from(known.get("odd main cpu_usage_ns").is_some_and(|used| *used > 2_000_000_000));
            case.agent.shutdown();
        }
    }
    // Except for tasks that were never started, and drivers without samples.
    assert!(measured >= 40, "{measured}");
}

/// A task that cannot be killed gets no second attempt.
///
/// Promise (Durability and recovery): A task reported as ended that still runs is killed before another attempt begins
#[tokio::test(start_paused = true)]
async fn task_running_after_its_reported_end_is_killed_before_another_attempt() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, job("b", JobKind::Batch, &[("main", json!({ "lies": 1 }))])).await;
    assert_eq!(until_over(&agent, &id).await, AllocState::Failed);
    assert_eq!((host.world.started(), host.world.living()), (3, 0));
    until("removed", || host.world.undestroyed() == 0).await;
    for process in host.world.processes.lock().unwrap().values() {
        assert_eq!(*process.signals.lock().unwrap(), ["force"]);
    }
    assert_eq!(totals(&agent, "b").exits[Outcome::Error.index()], 3);
}

#[tokio::test(start_paused = true)]
async fn task_that_outlives_its_kill_gets_no_second_attempt() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, job("b", JobKind::Batch, &[("main", json!({ "lies": 1, "unkillable": 1 }))])).await;
    assert_eq!(until_over(&agent, &id).await, AllocState::Failed);
    let task = main_task(&agent, &id);
    assert_eq!(events(&task).last(), Some(&"Killed"), "{:?}", task.events);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!((host.world.started(), main_task(&agent, &id).exits.len()), (1, 1));
    assert!(agent.0.alloc(&id).unwrap().handle(0).is_some());
    // It is killed repeatedly until it ends.
    host.world.last().end(crate::model::task::ExitStatus::Signal(9));
    until("cleared", || host.world.undestroyed() == 0).await;
}

/// Samples of a task whose driver misbehaves in reporting them: nothing waits for them.
///
/// Promise (Durability and recovery): P-9.1, P-9.2 The mock driver's fields are checked at their place; its readings
/// follow a script
/// Promise (Durability and recovery): An impossible reading of a driver does not become a value of the node: the last
/// possible one stays
#[tokio::test(start_paused = true)]
async fn readings_that_hang_fall_or_are_garbage_cost_their_own_task_alone() {
    for fault in Fault::ALL {
        let case = FaultCase::new(Call::Stats, *fault).await;
        until_state(&case.agent, &case.odd, TaskState::Running).await;
        let reader = published(&case.agent, &case.odd).readers[0].clone().expect("it is measured");
        let (mut cpu, mut times) = (0, std::collections::BTreeSet::new());
        for _ in 0..50 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let at = case.host.parts().clock.now();
            let Ok(reading) = reader.read(std::time::Instant::now(), at, false) else { panic!("{}", case.name) };
            if *fault == Fault::Refuse {
                assert_eq!(*reading.usage, crate::model::usage::Usage::default(), "absent is not 0");
                continue;
            }
            times.insert(reading.at);
            let Some(now) = reading.usage.cpu_usage_ns() else {
                assert!(*fault == Fault::Garbage && cpu == 0, "{}: gone again", case.name);
                continue;
            };
            assert!(now < u64::MAX / 2, "{}: {now} would hide whatever else the node used", case.name);
            assert!(now >= cpu, "{}: {now} after {cpu}", case.name);
            cpu = now;
        }
        let stuck = matches!(fault, Fault::Hang | Fault::Die | Fault::DieOnce);
        match fault {
            Fault::Refuse => {}
            Fault::Hang | Fault::Die | Fault::DieOnce => {
                assert_eq!(times.len(), 1, "{}: its time stands still", case.name)
            }
            Fault::Lie | Fault::Garbage | Fault::Repeat => assert!(times.len() >= 4, "{}", case.name),
        }
        assert_eq!(stuck, times.len() == 1);
        case.agent.stop(&case.odd, Wait::UntilEnded).await.unwrap();
    }
}

fn all_hang(but: &[Call]) -> Value {
    let calls = Call::ALL.iter().filter(|call| !but.contains(call));
    let faults: serde_json::Map<String, Value> = calls.map(|c| (c.word().to_owned(), json!("hang"))).collect();
    json!({ "faults": faults, "ignore_signals": true, "cpu_percent": 1 })
}

/// With 1,000 stops of one task: each returns, the task is abandoned with an error, recovered never and not started
/// twice.
///
/// Promise (Durability and recovery): P-10.1, T-10.1, T-10.2 A driver that hangs in every call affects only its tasks,
/// over a restart of the agent too
/// Promise (Task groups and lifecycle order): P-18.4 Blocking work runs in a few bounded places; kills and removals do
/// not wait for each other
#[tokio::test(start_paused = true)]
async fn a_driver_that_hangs_in_every_call_costs_its_tasks_alone() {
    // A hang fails this test instead of blocking it.
    tokio::time::timeout(Duration::from_secs(3_600), hangs_in_every_call()).await.expect("it goes on for ever");
}

async fn hangs_in_every_call() {
    let host = TestHost::new();
    let mut agent = host.start().await;
    let never = submit(&agent, pretending("never", JobKind::Service, &[("main", all_hang(&[]))])).await;
    let killed = submit(&agent, pretending("killed", JobKind::Service, &[("main", all_hang(&[Call::Start]))])).await;
    let found = submit(&agent, pretending("found", JobKind::Service, &[("main", all_hang(&[Call::Start]))])).await;
    let good = submit(&agent, pretending("good", JobKind::Service, &[("main", json!({}))])).await;
    until_state(&agent, &found, TaskState::Running).await;
    assert_eq!(main_task(&agent, &never).state, TaskState::Starting);

    let stops: Vec<_> = (0..1_000)
        .map(|_| {
            let (agent, killed) = (agent.clone(), killed.clone());
            tokio::spawn(async move { agent.stop(&killed, Wait::UntilEnded).await })
        })
        .collect();
    let requested_at = tokio::time::Instant::now();
    for stop in stops {
        stop.await.unwrap().unwrap();
    }
    assert!(requested_at.elapsed() <= Duration::from_secs(36), "{:?}", requested_at.elapsed());
    let task = main_task(&agent, &killed);
    assert_eq!((task.event_counts["killing"], task.event_counts["killed"]), (1, 1));
    assert!(task.events.back().unwrap().message.starts_with("abandoned: still there"), "{:?}", task.events.back());

    // A task that is not found costs the next agent a minute, and is not started twice. A task recorded as abandoned
    // costs nothing.
    agent = host.restart(agent).await;
    until_over(&agent, &found).await;
    assert_eq!(main_task(&agent, &found).event_counts["failed_restore"], 1);
    assert_eq!(main_task(&agent, &killed).event_counts["killed"], 1);
    // As far as its record says, the task was never started: it is started again, and hangs again.
    assert_eq!(main_task(&agent, &never).state, TaskState::Starting);
    assert_eq!(main_task(&agent, &good).state, TaskState::Running);
    let started_at = tokio::time::Instant::now();
    until_over(&agent, &never).await;
    assert!(started_at.elapsed() <= host.config.start_budget, "{:?}", started_at.elapsed());
    assert_eq!(main_task(&agent, &never).events.back().unwrap().kind, EventKind::DriverFailure);
    agent.stop(&good, Wait::UntilEnded).await.unwrap();
    agent.shutdown();
}
