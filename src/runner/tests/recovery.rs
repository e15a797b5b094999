//! A driver that does not respond after a restart of the agent: nothing waits for it, and requests for its tasks are
//! done once it responds.

use serde_json::json;

use super::fake::FakeProcess;
use super::restore::{found, only};
use super::*;
use crate::model::event::EventKind;
use crate::model::job::{Lifecycle, LifecycleHook};
use crate::model::task::{ExitStatus, Outcome};
use crate::runner::drivers::call;
use crate::runner::manager::PATIENCE;
use crate::runner::{RestartTarget, RunnerError, Wait};

struct RecoveryScene {
    host: TestHost,
    agent: Handle,
    /// Its task `slow` is not found; `main` is in the same alloc.
    odd: AllocId,
    good: AllocId,
}

/// Both run, and the next agent has started.
async fn stage(config: Value) -> RecoveryScene {
    let host = TestHost::new();
    let agent = host.start().await;
    let odd = submit(&agent, job("odd", JobKind::Service, &[("main", json!({})), ("slow", config)])).await;
    let good = submit(&agent, service("good")).await;
    until("both run", || states(&agent, &odd) == [TaskState::Running; 2]).await;
    until_state(&agent, &good, TaskState::Running).await;
    host.world.hidden.send_replace(vec!["slow"]);
    let started_at = tokio::time::Instant::now();
    let agent = host.restart(agent).await;
    assert!(started_at.elapsed() < PATIENCE + Duration::from_secs(1), "{:?}", started_at.elapsed());
    RecoveryScene { host, agent, odd, good }
}

fn states(agent: &Handle, id: &AllocId) -> Vec<TaskState> {
    status_of(agent, id).tasks.iter().map(|t| t.state).collect()
}
fn recovering(agent: &Handle, id: &AllocId) -> Vec<String> {
    status_of(agent, id).recovering.iter().map(ToString::to_string).collect()
}
fn count(agent: &Handle, id: &AllocId, task: usize, kind: EventKind) -> u64 {
    status_of(agent, id).tasks[task].event_counts.get(kind.label()).copied().unwrap_or(0)
}

impl RecoveryScene {
    /// The newest attempt of a task of the odd alloc.
    fn newest(&self, task: &str) -> Arc<FakeProcess> {
        let dir = self.host.data_dir.run_task(&self.odd, &task.into());
        let processes = self.host.world.processes.lock().unwrap();
        let own = processes.values().filter(|p| p.handle.run_dir.starts_with(&dir));
        Arc::clone(own.max_by_key(|p| p.handle.attempt).unwrap())
    }
    fn show(&self) {
        self.host.world.hidden.send_replace(Vec::new());
    }
    async fn until_found(&self) {
        until("found", || recovering(&self.agent, &self.odd).is_empty()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn requests_beside_a_task_in_recovery_are_served_and_it_is_shown_as_recorded() {
    let RecoveryScene { host, agent, odd, good } = &stage(json!({})).await;
    assert_eq!(states(agent, odd), [TaskState::Running; 2]);
    assert_eq!((recovering(agent, odd), recovering(agent, good)), (vec!["slow".to_owned()], vec![]));
    assert_eq!((found(agent).0["reattached"], found(agent).0["failed"]), (2.0, 0.0), "all but that one, so far");
    let new = submit(agent, service("new")).await;
    until_state(agent, &new, TaskState::Running).await;
    let served = agent.stop(good, Wait::UntilEnded);
    tokio::time::timeout(Duration::from_secs(1), served).await.expect("it does not wait").unwrap();
    assert_eq!(main_task(agent, good).last_exit().unwrap().outcome, Outcome::Killed);
    assert_eq!(host.world.started(), 4);
}

#[tokio::test(start_paused = true)]
async fn task_recovered_late_continues_and_is_counted_once() {
    let stage = stage(json!({})).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(recovering(&stage.agent, &stage.odd), ["slow"]);
    stage.show();
    stage.until_found().await;
    let RecoveryScene { host, agent, odd, .. } = &stage;
    assert_eq!(states(agent, odd), [TaskState::Running; 2]);
    for task in 0..2 {
        assert_eq!(count(agent, odd, task, EventKind::Restored), 1);
        assert_eq!(count(agent, odd, task, EventKind::Started), 1);
    }
    let mut all = only("none");
    all.insert("reattached".to_owned(), 3.0);
    assert_eq!(found(agent).0, all);
    let families = agent.0.ctx.metrics.gather();
    let took = families.iter().find(|f| f.name() == "allostat_restore_duration_seconds").unwrap();
    let took = took.get_metric()[0].get_gauge().get_value();
    assert!((30.0..40.0).contains(&took), "as long as the last one took: {took}");
    agent.stop(odd, Wait::UntilEnded).await.unwrap();
    assert_eq!((host.world.started(), totals(agent, "odd").exits.iter().sum::<u64>()), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn task_that_ended_before_its_late_recovery_is_counted_once() {
    let stage = stage(json!({})).await;
    let RecoveryScene { host, agent, odd, .. } = &stage;
    host.world.of(&"slow".into()).end(ExitStatus::Code(0));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(states(agent, odd), [TaskState::Running; 2], "as recorded");
    stage.show();
    until("processed", || states(agent, odd)[1] == TaskState::Backoff).await;
    assert!(recovering(agent, odd).is_empty());
    let slow = &agent.board().view().totals.workloads[&("odd".into(), "slow".into())].clone();
    assert_eq!((slow.exits, slow.usage.cpu_usage_ns()), ([1, 0, 0, 0, 0, 0], Some(1_000_000_000)));
    assert_eq!(count(agent, odd, 1, EventKind::Restored), 0);
}

#[tokio::test(start_paused = true)]
async fn stop_of_a_task_in_recovery_is_accepted_and_done_when_it_is_recovered() {
    let stage = stage(json!({})).await;
    let RecoveryScene { host, agent, odd, .. } = &stage;
    let requested = tokio::time::timeout(Duration::from_secs(1), agent.stop(odd, Wait::No)).await;
    requested.expect("the request does not wait").unwrap();
    until("its sibling ended", || states(agent, odd)[0] == TaskState::Dead).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!((states(agent, odd)[1], host.world.living()), (TaskState::Running, 2));
    stage.show();
    until_over(agent, odd).await;
    for task in 0..2 {
        assert_eq!((count(agent, odd, task, EventKind::Killing), count(agent, odd, task, EventKind::Killed)), (1, 1));
    }
    assert_eq!((host.world.living(), host.world.started()), (1, 3));
}

#[tokio::test(start_paused = true)]
async fn signal_to_a_task_in_recovery_is_refused_and_reaches_its_siblings() {
    let stage = stage(json!({})).await;
    let RecoveryScene { agent, odd, .. } = &stage;
    let refused = RunnerError::InRecovery { task: "slow".into() };
    for (task, answer) in [
        (Some("slow"), Err(refused.clone())),
        // Either all tasks get it, or none.
        (None, Err(refused)),
        (Some("main"), Ok(vec!["main".into()])),
    ] {
        let requests = tokio::time::timeout(Duration::from_secs(1), agent.signal(odd, task, "SIGHUP")).await;
        assert_eq!(requests.expect("an answer at once"), answer, "{task:?}");
    }
    let signals = |task: &str| stage.newest(task).signals.lock().unwrap().len();
    assert_eq!((signals("main"), signals("slow")), (1, 0));
    stage.show();
    stage.until_found().await;
    assert_eq!(agent.signal(odd, Some("slow"), "SIGHUP").await.unwrap(), ["slow".into()]);
    assert_eq!(signals("slow"), 1);
}

#[tokio::test(start_paused = true)]
async fn siblings_of_a_task_in_recovery_run_as_usual() {
    let stage = stage(json!({})).await;
    let RecoveryScene { host, agent, odd, .. } = &stage;
    for attempt in 1..3 {
        stage.newest("main").end(ExitStatus::Code(1));
        let again = || status_of(agent, odd).tasks[0].attempt == attempt && states(agent, odd)[0] == TaskState::Running;
        until("restarted by its policy", again).await;
    }
    agent.restart(odd, RestartTarget::Task("main")).await.unwrap();
    until("restarted as it was asked", || status_of(agent, odd).tasks[0].attempt == 3).await;
    assert_eq!(recovering(agent, odd), ["slow"], "all that while");
    stage.show();
    stage.until_found().await;
    until("all run", || states(agent, odd) == [TaskState::Running; 2]).await;
    assert_eq!((host.world.started(), host.world.living()), (6, 3));
}

#[tokio::test(start_paused = true)]
async fn tasks_waiting_for_a_task_in_recovery_do_not_start() {
    let host = TestHost::new();
    let agent = host.start().await;
    let mut job = job("ordered", JobKind::Batch, &[("pre", json!({})), ("side", json!({})), ("main", json!({}))]);
    for (at, sidecar) in [(0, false), (1, true)] {
        job.groups[0].tasks[at].lifecycle = Some(Lifecycle { hook: LifecycleHook::Prestart, sidecar });
    }
    let id = submit(&agent, job).await;
    until("main waits", || states(&agent, &id) == [TaskState::Running, TaskState::Running, TaskState::Pending]).await;
    host.world.hidden.send_replace(vec!["side"]);
    let agent = host.restart(agent).await;
    host.world.of(&"pre".into()).end(ExitStatus::Code(0));
    until("pre is over", || states(&agent, &id)[0] == TaskState::Dead).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    // Its sidecar runs as recorded, and that is all that main waits for.
    assert_eq!(states(&agent, &id)[1..], [TaskState::Running, TaskState::Pending]);
    host.world.hidden.send_replace(Vec::new());
    until("main begins", || states(&agent, &id)[2] == TaskState::Running).await;
    assert_eq!(host.world.started(), 3);
}

#[tokio::test(start_paused = true)]
async fn restart_of_a_task_in_recovery_is_accepted_and_done_once() {
    for what in [RestartTarget::Task("slow"), RestartTarget::All] {
        let stage = stage(json!({})).await;
        let RecoveryScene { host, agent, odd, .. } = &stage;
        let requests = tokio::time::timeout(Duration::from_secs(1), agent.restart(odd, what)).await;
        requests.expect("the request does not wait").unwrap();
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(host.world.started(), 3, "{what:?}");
        assert_eq!(host.world.living(), if what == RestartTarget::All { 2 } else { 3 }, "{what:?}: its sibling waits");
        stage.show();
        let second = || status_of(agent, odd).tasks[1].attempt == 1 && states(agent, odd) == [TaskState::Running; 2];
        until("started again", second).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let all = what == RestartTarget::All;
        assert_eq!((host.world.started(), host.world.living()), (if all { 5 } else { 4 }, 3), "{what:?}");
        assert_eq!(count(agent, odd, 1, EventKind::RestartSignaled), 1, "{what:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_never_answers_costs_its_task_and_not_what_runs_beside_it() {
    let stage = stage(json!({})).await;
    let RecoveryScene { host, agent, odd, good } = &stage;
    assert_eq!(until_over(agent, odd).await, AllocState::Failed);
    assert_eq!(count(agent, odd, 1, EventKind::FailedRestore), 1);
    assert_eq!(status_of(agent, odd).tasks[0].last_exit().unwrap().outcome, Outcome::Killed, "by its sibling");
    assert_eq!(main_task(agent, good).state, TaskState::Running);
    assert_eq!((found(agent).0["failed"], found(agent).0["reattached"]), (1.0, 2.0));
    assert_eq!(host.world.started(), 3);
}

/// Promise (Durability and recovery): A shortage of descriptors, memory or processes changes no task's state
#[tokio::test(start_paused = true)]
async fn recovery_without_resources_is_undecided_however_long_it_lasts() {
    use std::sync::atomic::Ordering;
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, service("s")).await;
    until_state(&agent, &id, TaskState::Running).await;
    host.world.out_of_descriptors.store(true, Ordering::Relaxed);
    let agent = host.restart(agent).await;
    tokio::time::sleep(call::RECOVER * 60).await;
    assert_eq!((states(&agent, &id), recovering(&agent, &id).len()), (vec![TaskState::Running], 1));
    host.world.out_of_descriptors.store(false, Ordering::Relaxed);
    until("found", || recovering(&agent, &id).is_empty()).await;
    assert_eq!((found(&agent).0, host.world.started(), host.world.living()), (only("reattached"), 1, 1));
}

#[tokio::test(start_paused = true)]
async fn agent_that_dies_during_recovery_leaves_everything_to_the_next_one() {
    let before = alive();
    let mut stage = stage(json!({})).await;
    stage.agent.stop(&stage.odd, Wait::No).await.unwrap();
    for _ in 0..3 {
        stage.agent = stage.host.restart(stage.agent.clone()).await;
        assert_eq!(recovering(&stage.agent, &stage.odd), ["slow"]);
    }
    stage.show();
    until_over(&stage.agent, &stage.odd).await;
    assert_eq!((stage.host.world.living(), stage.host.world.started()), (1, 3));
    let of = totals(&stage.agent, "odd");
    assert_eq!((of.exits.iter().sum::<u64>(), of.events["received"], of.events["killing"]), (1, 1, 1));
    // The shutdown does not wait either.
    stage.host.world.hidden.send_replace(vec!["main"]);
    let agent = stage.host.restart(stage.agent).await;
    assert_eq!(recovering(&agent, &stage.good), ["main"]);
    let began = std::time::Instant::now();
    agent.shutdown();
    assert!(began.elapsed() < call::RECOVER / 4, "{:?}", began.elapsed());
    drop(agent);
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(alive(), before, "tasks of the runtime are left");
}

fn alive() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}
