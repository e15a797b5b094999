//! Dependencies between tasks: start order, causes of ends, and stop order.

use serde_json::json;

use super::*;
use crate::model::job::{Lifecycle, LifecycleHook, RestartMode, RestartPolicy};
use crate::model::task::Outcome;
use crate::model::units::Timestamp;
use crate::runner::Wait;

pub(super) const PRESTART: Option<Lifecycle> = Some(Lifecycle { hook: LifecycleHook::Prestart, sidecar: false });
pub(super) const SIDECAR: Option<Lifecycle> = Some(Lifecycle { hook: LifecycleHook::Prestart, sidecar: true });
pub(super) const POSTSTART: Option<Lifecycle> = Some(Lifecycle { hook: LifecycleHook::Poststart, sidecar: false });
pub(super) const POSTSTOP: Option<Lifecycle> = Some(Lifecycle { hook: LifecycleHook::Poststop, sidecar: false });

/// A task of the fake driver: its name, its lifecycle, its behaviour.
pub(super) fn group(kind: JobKind, tasks: &[(&str, Option<Lifecycle>, Value)]) -> Job {
    let plain: Vec<(&str, Value)> = tasks.iter().map(|(name, _, config)| (*name, config.clone())).collect();
    let mut job = job("g", kind, &plain);
    for (task, (_, lifecycle, _)) in job.groups[0].tasks.iter_mut().zip(tasks) {
        task.lifecycle = *lifecycle;
        task.restart.attempts = 0;
    }
    job
}

pub(super) fn leading(mut job: Job, name: &str) -> Job {
    job.groups[0].tasks.iter_mut().filter(|t| t.name.as_str() == name).for_each(|t| t.leader = true);
    job
}

pub(super) fn forever() -> Value {
    json!({})
}
pub(super) fn ends(ms: u64, code: u8) -> Value {
    json!({ "run_ms": ms, "exit_code": code })
}

pub(super) fn task(agent: &Handle, id: &AllocId, name: &str) -> Arc<TaskStatus> {
    let status = status_of(agent, id);
    Arc::clone(status.tasks.iter().find(|t| t.name.as_str() == name).unwrap())
}

pub(super) async fn over(agent: &Handle, id: &AllocId) -> AllocState {
    until("the alloc to be over", || status_of(agent, id).is_terminal()).await;
    status_of(agent, id).state
}

pub(super) async fn running(agent: &Handle, id: &AllocId, names: &[&str]) {
    until("them to run", || names.iter().all(|n| task(agent, id, n).state == TaskState::Running)).await;
}

/// Time of an event of a task, which has it exactly once.
fn time_of(agent: &Handle, id: &AllocId, name: &str, event: &str) -> Timestamp {
    let task = task(agent, id, name);
    let mut times = task.events.iter().filter(|e| e.kind.text() == event).map(|e| e.time);
    let first = times.next().unwrap_or_else(|| panic!("{name} has no event {event}: {:?}", events(&task)));
    assert_eq!(times.next(), None, "{name} has event {event} twice");
    first
}

fn culprit(agent: &Handle, id: &AllocId, name: &str, event: &str) -> String {
    let task = task(agent, id, name);
    let event = task.events.iter().find(|e| e.kind.text() == event).unwrap();
    event.details.get("culprit").cloned().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn prestart_runs_before_main_and_poststart_after_it_began() {
    let host = TestHost::new();
    let agent = host.start().await;
    let tasks = [
        ("announce", POSTSTART, ends(10, 0)),
        ("main", None, ends(5_000, 0)),
        ("init", PRESTART, ends(1_000, 0)),
        ("proxy", SIDECAR, forever()),
    ];
    let id = submit(&agent, group(JobKind::Batch, &tasks)).await;
    running(&agent, &id, &["init", "proxy"]).await;
    assert_eq!(task(&agent, &id, "main").state, TaskState::Pending, "it waits for the success of init");
    assert_eq!(over(&agent, &id).await, AllocState::Complete);
    let at = |name: &str, event: &str| time_of(&agent, &id, name, event);
    assert!(at("init", "Terminated") <= at("main", "Started"));
    assert!(at("proxy", "Started") <= at("main", "Started"));
    assert!(at("main", "Started") <= at("announce", "Started"));
    assert!(at("main", "Terminated") <= at("proxy", "Main Tasks Dead"));
    assert_eq!(totals(&agent, "g").exits[Outcome::Killed.index()], 0, "of main");
    let finished = status_of(&agent, &id).finished_at;
    assert!(finished.is_some());
}

#[tokio::test(start_paused = true)]
async fn failed_prestart_prevents_main_from_starting_and_is_named() {
    let host = TestHost::new();
    let agent = host.start().await;
    let tasks = [("main", None, forever()), ("init", PRESTART, ends(10, 3)), ("after", POSTSTOP, ends(10, 0))];
    let id = submit(&agent, group(JobKind::Service, &tasks)).await;
    assert_eq!(over(&agent, &id).await, AllocState::Failed);
    assert_eq!(events(&task(&agent, &id, "main")), ["Received", "Sibling Task Failed", "Killed"]);
    assert_eq!(culprit(&agent, &id, "main", "Sibling Task Failed"), "init");
    assert!(!task(&agent, &id, "main").failed, "it did not fail itself");
    assert!(
        time_of(&agent, &id, "init", "Terminated") <= time_of(&agent, &id, "after", "Started"),
        "poststop runs all the same"
    );
}

/// Each affected task has one cause event that names the culprit; dead tasks have none (Nomad asserts the opposite).
///
/// Promise (Task groups and lifecycle order): P-11.2, P-11.3 Each victim has one cause event that names the culprit;
/// tasks that had ended get none
#[tokio::test(start_paused = true)]
async fn failed_task_ends_its_siblings_and_each_reports_the_culprit_once() {
    let host = TestHost::new();
    let agent = host.start().await;
    let tasks =
        [("a", None, forever()), ("bad", None, ends(50, 7)), ("c", None, forever()), ("done", None, ends(1, 0))];
    let id = submit(&agent, group(JobKind::Batch, &tasks)).await;
    assert_eq!(over(&agent, &id).await, AllocState::Failed);
    for name in ["a", "c"] {
        time_of(&agent, &id, name, "Sibling Task Failed");
        time_of(&agent, &id, name, "Killing");
        assert_eq!(culprit(&agent, &id, name, "Sibling Task Failed"), "bad");
    }
    assert!(!events(&task(&agent, &id, "done")).contains(&"Killing"), "the dead are not killed");
    assert!(!events(&task(&agent, &id, "bad")).contains(&"Sibling Task Failed"));
}

/// It cannot be killed, and the replacement of its alloc waits for it.
///
/// Promise (Task groups and lifecycle order): A poststop task that keeps failing ends, whatever its `mode`: no command
/// could stop it
#[tokio::test(start_paused = true)]
async fn a_poststop_task_that_fails_again_and_again_comes_to_an_end_whatever_its_mode() {
    let host = TestHost::new();
    let agent = host.start().await;
    let mut job = group(JobKind::Service, &[("main", None, forever()), ("after", POSTSTOP, ends(10, 4))]);
    let delay = Duration::from_secs(1);
    job.groups[0].tasks[1].restart =
        RestartPolicy { attempts: 2, interval: Duration::from_secs(60), delay, mode: RestartMode::Delay };
    let id = submit(&agent, job).await;
    running(&agent, &id, &["main"]).await;
    agent.stop(&id, Wait::No).await.unwrap();
    assert_eq!(over(&agent, &id).await, AllocState::Failed);
    let after = task(&agent, &id, "after");
    assert_eq!((after.restarts_total(), after.failed), (2, true));
    time_of(&agent, &id, "after", "Not Restarting");
}

/// The leader is ended first, because of that failure: its end is not the cause of the others.
#[tokio::test(start_paused = true)]
async fn failure_beside_a_leader_is_the_cause_for_all() {
    let host = TestHost::new();
    let agent = host.start().await;
    for (bad, lifecycle) in [("bad", None), ("init", PRESTART)] {
        let tasks = [("proxy", SIDECAR, forever()), (bad, lifecycle, ends(500, 7)), ("leader", None, forever())];
        let id = submit(&agent, leading(group(JobKind::Batch, &tasks), "leader")).await;
        assert_eq!(over(&agent, &id).await, AllocState::Failed);
        for name in ["proxy", "leader"] {
            assert_eq!(culprit(&agent, &id, name, "Sibling Task Failed"), bad, "{name}");
            assert!(!events(&task(&agent, &id, name)).contains(&"Leader Task Dead"), "{name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn end_of_the_leader_ends_its_followers() {
    let host = TestHost::new();
    let agent = host.start().await;
    let tasks = [("follower", None, forever()), ("leader", None, ends(500, 0))];
    let id = submit(&agent, leading(group(JobKind::Batch, &tasks), "leader")).await;
    assert_eq!(over(&agent, &id).await, AllocState::Complete);
    assert!(time_of(&agent, &id, "leader", "Terminated") <= time_of(&agent, &id, "follower", "Leader Task Dead"));
    assert_eq!(culprit(&agent, &id, "follower", "Leader Task Dead"), "leader");
    let run = agent.board().view().totals.alloc_run.clone();
    let by_outcome = run.get("g").copied().unwrap_or_default();
    assert!(by_outcome[Outcome::Success.index()].0 > 0, "its followers' end is not its own: {by_outcome:?}");
}

fn four(agent_stops: &Value) -> Job {
    let tasks = [
        ("sidecar", SIDECAR, agent_stops.clone()),
        ("follower", None, agent_stops.clone()),
        ("leader", None, agent_stops.clone()),
        ("clean", POSTSTOP, ends(100, 0)),
    ];
    leading(group(JobKind::Service, &tasks), "leader")
}

fn assert_order(agent: &Handle, id: &AllocId) {
    let at = |name: &str, event: &str| time_of(agent, id, name, event);
    assert!(at("leader", "Terminated") <= at("follower", "Killing"));
    assert!(at("follower", "Terminated") <= at("sidecar", "Killing"));
    assert!(at("sidecar", "Terminated") <= at("clean", "Started"));
    assert!(!events(&task(agent, id, "clean")).contains(&"Killing"), "poststop is left to run");
}

/// Leader → other tasks → sidecars, then poststop: on a stop, after a failure, and in an alloc that is recovered during
/// its end. (Nomad's own test of this asserts nothing.)
///
/// Promise (Task groups and lifecycle order): P-11.1, P-11.4 Leader, then other tasks, sidecars, poststop; also in an
/// alloc recovered in mid-stop
#[tokio::test(start_paused = true)]
async fn a_stop_ends_leader_then_mains_then_sidecars_and_poststop_runs_after_them() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, four(&json!({ "stop_ms": 300 }))).await;
    running(&agent, &id, &["sidecar", "follower", "leader"]).await;
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
    assert_order(&agent, &id);
    assert_eq!(status_of(&agent, &id).state, AllocState::Complete);
}

/// Nomad's own test of this has no task states and asserts nothing.
#[tokio::test(start_paused = true)]
async fn task_order_holds_in_an_alloc_recovered_during_its_end() {
    for killed_after in [0, 100, 400, 700] {
        let host = TestHost::new();
        let agent = host.start().await;
        let id = submit(&agent, four(&json!({ "stop_ms": 300 }))).await;
        running(&agent, &id, &["sidecar", "follower", "leader"]).await;
        agent.stop(&id, Wait::No).await.unwrap();
        tokio::time::sleep(Duration::from_millis(killed_after)).await;
        let agent = host.restart(agent).await;
        over(&agent, &id).await;
        assert_order(&agent, &id);
        assert_eq!(host.world.started(), 4, "killed after {killed_after} ms");
    }
}

/// Promise (Task groups and lifecycle order): P-12.3 A kill, its delay and its timeout continue after a restart of the
/// agent with what is left of them
#[tokio::test(start_paused = true)]
async fn kill_after_a_restart_continues_with_the_remaining_grace() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, job("s", JobKind::Service, &[("main", json!({ "deaf": 1 }))])).await;
    until_state(&agent, &id, TaskState::Running).await;
    let requested_at = tokio::time::Instant::now();
    agent.stop(&id, Wait::No).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let agent = host.restart(agent).await;
    over(&agent, &id).await;
    let took = requested_at.elapsed();
    assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(6), "{took:?}");
    time_of(&agent, &id, "main", "Killing");
    time_of(&agent, &id, "main", "Killed");
}

/// The agent died between its signal and the task's end: the end counts as requested.
///
/// Promise (Durability and recovery): A task that obeyed its kill signal without an agent counts as killed, and is not
/// started or signalled again
#[tokio::test(start_paused = true)]
async fn task_that_ended_on_our_signal_while_no_agent_ran_is_killed_and_not_resignalled() {
    for stop_ms in [500, 5_000] {
        let host = TestHost::new();
        let agent = host.start().await;
        let tasks = [("leader", None, forever()), ("other", None, json!({ "stop_ms": stop_ms, "exit_code": 3 }))];
        let mut job = leading(group(JobKind::Service, &tasks), "leader");
        job.groups[0].tasks[1].restart.attempts = 3;
        let id = submit(&agent, job).await;
        running(&agent, &id, &["leader", "other"]).await;
        agent.stop(&id, Wait::No).await.unwrap();
        until("the signal", || task(&agent, &id, "other").state == TaskState::Killing).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        agent.shutdown();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let agent = host.restart(agent).await;
        assert_eq!(over(&agent, &id).await, AllocState::Complete, "after {stop_ms} ms");
        let other = task(&agent, &id, "other");
        assert_eq!((other.last_exit().unwrap().outcome, other.restarts_total()), (Outcome::Killed, 0));
        let signals = host.world.of(&other.name).signals.lock().unwrap().clone();
        assert_eq!(signals, ["SIGINT"], "after {stop_ms} ms");
        time_of(&agent, &id, "other", "Killed");
    }
}

/// Promise (Task groups and lifecycle order): A retried start opens no gate
#[tokio::test(start_paused = true)]
async fn a_start_that_is_tried_again_opens_no_gate() {
    let host = TestHost::new();
    let agent = host.start().await;
    let tasks = [
        ("proxy", SIDECAR, json!({ "start_error": 2 })),
        ("main", None, ends(100, 0)),
        ("announce", POSTSTART, ends(1, 0)),
    ];
    let mut job = group(JobKind::Batch, &tasks);
    job.groups[0].tasks[0].restart.attempts = 5;
    job.groups[0].tasks[0].restart.delay = Duration::from_secs(10);
    let id = submit(&agent, job).await;
    until("a failed start", || task(&agent, &id, "proxy").state == TaskState::Backoff).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(task(&agent, &id, "main").state, TaskState::Pending);
    assert_eq!(over(&agent, &id).await, AllocState::Complete);
    assert!(time_of(&agent, &id, "proxy", "Started") <= time_of(&agent, &id, "main", "Started"));
}

#[tokio::test(start_paused = true)]
async fn delays_come_before_the_signal_and_count_over_a_restart() {
    let host = TestHost::new();
    let agent = host.start().await;
    let mut job = job("s", JobKind::Service, &[("main", forever())]);
    job.groups[0].shutdown_delay = Duration::from_secs(2);
    job.groups[0].tasks[0].shutdown_delay = Duration::from_secs(3);
    let id = submit(&agent, job).await;
    until_state(&agent, &id, TaskState::Running).await;
    let requested_at = tokio::time::Instant::now();
    agent.stop(&id, Wait::No).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(task(&agent, &id, "main").state, TaskState::Running, "the group's delay");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(task(&agent, &id, "main").state, TaskState::Killing, "the task's delay");
    let agent = host.restart(agent).await;
    over(&agent, &id).await;
    let took = requested_at.elapsed();
    assert!(took >= Duration::from_secs(5) && took < Duration::from_millis(5_500), "{took:?}");
    time_of(&agent, &id, "main", "Waiting for Shutdown Delay");
}

#[tokio::test(start_paused = true)]
async fn max_run_duration_completes_the_alloc_without_poststop_even_without_agent() {
    for away in [false, true] {
        let host = TestHost::new();
        let agent = host.start().await;
        let mut job = group(JobKind::Batch, &[("main", None, forever()), ("clean", POSTSTOP, ends(10, 0))]);
        job.groups[0].max_run_duration = Some(Duration::from_secs(60));
        let id = submit(&agent, job).await;
        running(&agent, &id, &["main"]).await;
        let agent = if away {
            agent.shutdown();
            tokio::time::sleep(Duration::from_secs(120)).await;
            host.restart(agent).await
        } else {
            agent
        };
        assert_eq!(over(&agent, &id).await, AllocState::Complete);
        assert_eq!(events(&task(&agent, &id, "clean")), ["Received", "Killed"]);
        let killing = task(&agent, &id, "main");
        let killing = killing.events.iter().find(|e| e.kind.text() == "Killing").unwrap();
        assert_eq!(killing.details["reason"], "max_run_duration");
    }
}

#[tokio::test(start_paused = true)]
async fn a_sidecar_that_crashes_is_restarted_and_one_that_ends_well_too() {
    let host = TestHost::new();
    let agent = host.start().await;
    let mut job = group(JobKind::Batch, &[("proxy", SIDECAR, ends(100, 0)), ("main", None, ends(60_000, 0))]);
    job.groups[0].tasks[0].restart.attempts = 10;
    job.groups[0].tasks[0].restart.delay = Duration::from_secs(1);
    let id = submit(&agent, job).await;
    until("a restart", || task(&agent, &id, "proxy").restarts_total() > 2).await;
    assert_eq!(task(&agent, &id, "main").state, TaskState::Running);
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
}
