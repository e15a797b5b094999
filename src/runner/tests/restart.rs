//! Requested restarts: of one task, of all running tasks, of a whole alloc.

use serde_json::json;

use super::coordinate::{POSTSTOP, PRESTART, SIDECAR, ends, forever, group, leading, over, running, task};
use super::*;
use crate::model::task::{Outcome, RestartReason};
use crate::runner::alloc::AllocRestart;
use crate::runner::{RestartTarget, RunnerError, Wait};

const REQUESTED: usize = 3;

fn processes(host: &TestHost, name: &str) -> usize {
    host.world.processes.lock().unwrap().keys().filter(|dir| dir.iter().any(|part| part == name)).count()
}

async fn attempt(agent: &Handle, id: &AllocId, name: &str, attempt: u32) {
    until("the attempt", || {
        let task = task(agent, id, name);
        task.attempt == attempt && task.state == TaskState::Running
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn restart_of_one_task_starts_an_attempt_at_once_and_its_policy_does_not_count_it() {
    assert_eq!(RestartReason::ALL[REQUESTED], RestartReason::Requested);
    let host = TestHost::new();
    let agent = host.start().await;
    let tasks = [("a", None, json!({ "stop_ms": 300 })), ("b", None, forever())];
    let id = submit(&agent, group(JobKind::Service, &tasks)).await;
    running(&agent, &id, &["a", "b"]).await;
    let before = task(&agent, &id, "a");
    let requested_at = tokio::time::Instant::now();
    assert_eq!(agent.restart(&id, RestartTarget::Task("a")).await.unwrap(), ["a".into()]);
    assert_eq!(task(&agent, &id, "a").state, TaskState::Killing, "until it has ended");
    attempt(&agent, &id, "a", 1).await;
    let took = requested_at.elapsed();
    assert!(took >= Duration::from_millis(300) && took < Duration::from_millis(400), "no delay: {took:?}");
    let after = task(&agent, &id, "a");
    assert_ne!(after.main, before.main);
    let requested = [
        "Received",
        "Task Setup",
        "Started",
        "Restart Signaled",
        "Killing",
        "Terminated",
        "Restarting",
        "Task Setup",
        "Started",
    ];
    assert_eq!(events(&after), requested);
    assert_eq!(after.events[3].details["reason"], "requested");
    assert_eq!(after.events[4].details["reason"], "restart");
    assert_eq!(after.events[6].message, "restarting now");
    assert_eq!(after.restarts, [0, 0, 0, 1]);
    assert_eq!(after.last_exit().unwrap().outcome, Outcome::Killed);
    assert_eq!(task(&agent, &id, "b").attempt, 0, "its neighbour is left alone");
    // A policy without restarts allows requested ones, repeatedly.
    for n in 2..6 {
        agent.restart(&id, RestartTarget::Task("a")).await.unwrap();
        attempt(&agent, &id, "a", n).await;
    }
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
    assert_eq!(host.world.living(), 0);
}

#[tokio::test(start_paused = true)]
async fn without_a_name_all_that_runs_is_restarted_in_its_place() {
    let host = TestHost::new();
    let agent = host.start().await;
    let tasks = [("init", PRESTART, ends(5, 0)), ("a", None, forever()), ("side", SIDECAR, forever())];
    let id = submit(&agent, group(JobKind::Service, &tasks)).await;
    running(&agent, &id, &["a", "side"]).await;
    assert_eq!(agent.restart(&id, RestartTarget::Running).await.unwrap(), ["a".into(), "side".into()]);
    attempt(&agent, &id, "a", 1).await;
    attempt(&agent, &id, "side", 1).await;
    assert_eq!((task(&agent, &id, "init").state, task(&agent, &id, "init").attempt), (TaskState::Dead, 0));
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn restart_of_a_task_that_is_not_running_is_refused_with_its_state() {
    let host = TestHost::new();
    let agent = host.start().await;
    for (state, config) in [
        (TaskState::Starting, json!({ "start_ms": 60_000 })),
        (TaskState::Backoff, json!({ "run_ms": 1, "exit_code": 1 })),
        (TaskState::Dead, json!({ "run_ms": 1 })),
    ] {
        let kind = if state == TaskState::Dead { JobKind::Batch } else { JobKind::Service };
        let id = submit(&agent, job(state.as_str(), kind, &[("main", config)])).await;
        until_state(&agent, &id, state).await;
        let refused = RunnerError::NotRunning { task: "main".into(), state };
        assert_eq!(agent.restart(&id, RestartTarget::Task("main")).await, Err(refused));
        assert_eq!(agent.restart(&id, RestartTarget::Running).await, Err(RunnerError::NothingRunning(id.clone())));
        assert_eq!(main_task(&agent, &id).event_counts.get("restart_signaled"), None);
    }
    assert!(matches!(agent.restart(&"x".into(), RestartTarget::All).await, Err(RunnerError::UnknownAlloc(_))));
    let id = submit(&agent, job("deaf", JobKind::Service, &[("main", json!({ "deaf": 1 }))])).await;
    until_state(&agent, &id, TaskState::Running).await;
    assert!(matches!(agent.restart(&id, RestartTarget::Task("x")).await, Err(RunnerError::UnknownTask { .. })));
    agent.stop(&id, Wait::No).await.unwrap();
    for what in [RestartTarget::Task("main"), RestartTarget::Running, RestartTarget::All] {
        assert!(matches!(agent.restart(&id, what).await, Err(RunnerError::Final { .. })), "a stop is final: {what:?}");
    }
}

/// Announced, and never begun.
#[tokio::test(start_paused = true)]
async fn a_restart_by_policy_that_a_restart_of_the_whole_alloc_overtakes_is_none() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, batch("b", 5, 1)).await;
    until_state(&agent, &id, TaskState::Backoff).await;
    agent.restart(&id, RestartTarget::All).await.unwrap();
    until("the next attempt", || main_task(&agent, &id).attempt == 1 && host.world.started() == 2).await;
    assert_eq!(main_task(&agent, &id).restarts, [0, 0, 0, 1]);
    until_state(&agent, &id, TaskState::Backoff).await;
    agent.restart(&id, RestartTarget::All).await.unwrap();
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
    let task = main_task(&agent, &id);
    let started = u64::try_from(host.world.started()).unwrap() - 1;
    assert_eq!((task.restarts_total(), task.restarts[REQUESTED]), (started, started), "one for each that began");
}

#[tokio::test(start_paused = true)]
async fn task_that_ignores_signals_is_restarted_by_force_once_despite_repeated_requests() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, job("s", JobKind::Service, &[("main", json!({ "deaf": 1 }))])).await;
    until_state(&agent, &id, TaskState::Running).await;
    let first = host.world.last();
    let requested_at = tokio::time::Instant::now();
    for _ in 0..50 {
        agent.restart(&id, RestartTarget::Task("main")).await.unwrap();
    }
    attempt(&agent, &id, "main", 1).await;
    assert!(requested_at.elapsed() >= Duration::from_secs(5) && requested_at.elapsed() < Duration::from_secs(6));
    assert_eq!(*first.signals.lock().unwrap(), ["SIGINT", "force"]);
    let task = main_task(&agent, &id);
    assert_eq!((task.event_counts["restart_signaled"], task.restarts[REQUESTED]), (1, 1));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(host.world.started(), 2);
}

#[tokio::test(start_paused = true)]
async fn kill_during_a_restart_takes_precedence_and_repeats_no_delay() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, job("s", JobKind::Service, &[("main", json!({ "deaf": 1 }))])).await;
    until_state(&agent, &id, TaskState::Running).await;
    let requested_at = tokio::time::Instant::now();
    agent.restart(&id, RestartTarget::Task("main")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
    assert!(
        requested_at.elapsed() < Duration::from_secs(6),
        "the grace that had begun goes on: {:?}",
        requested_at.elapsed()
    );
    tokio::time::sleep(Duration::from_secs(100)).await;
    let task = main_task(&agent, &id);
    assert_eq!((host.world.started(), task.restarts_total(), task.failed), (1, 0, false));
    assert_eq!(*host.world.last().signals.lock().unwrap(), ["SIGINT", "force"], "reported once");
    assert_eq!(task.events.iter().filter(|e| e.kind.text() == "Killing").count(), 2, "each request is reported");

    // At the same moment: whichever comes first, nothing is left running.
    let id = submit(&agent, service("both")).await;
    until_state(&agent, &id, TaskState::Running).await;
    let (restarted, stopped) = tokio::join!(agent.restart(&id, RestartTarget::Task("main")), agent.stop(&id, Wait::No));
    assert!(restarted.is_ok() && stopped.is_ok());
    until_over(&agent, &id).await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(host.world.living(), 0);
}

#[tokio::test(start_paused = true)]
async fn task_outliving_its_restart_is_abandoned_and_gets_no_second_process() {
    let host = TestHost::new();
    let agent = host.start().await;
    let tasks = [("main", json!({ "deaf": 1, "unkillable": 1 }))];
    for (name, what) in [("one", RestartTarget::Task("main")), ("whole", RestartTarget::All)] {
        let before = host.world.started();
        let id = submit(&agent, job(name, JobKind::Service, &tasks)).await;
        until_state(&agent, &id, TaskState::Running).await;
        agent.restart(&id, what).await.unwrap();
        assert_eq!(until_over(&agent, &id).await, AllocState::Failed);
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert_eq!(host.world.started(), before + 1);
        let refused = RunnerError::MayStillRun { task: "main".into() };
        assert_eq!(agent.restart(&id, RestartTarget::All).await, Err(refused));
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_in_progress_is_gone_on_with_by_the_next_agent_and_starts_one_attempt() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, job("s", JobKind::Service, &[("main", json!({ "deaf": 1 }))])).await;
    until_state(&agent, &id, TaskState::Running).await;
    let requested_at = tokio::time::Instant::now();
    agent.restart(&id, RestartTarget::Task("main")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let agent = host.restart(agent).await;
    assert_eq!(main_task(&agent, &id).state, TaskState::Killing);
    attempt(&agent, &id, "main", 1).await;
    assert!(
        requested_at.elapsed() < Duration::from_secs(6),
        "what was left of its grace: {:?}",
        requested_at.elapsed()
    );
    let task = main_task(&agent, &id);
    assert_eq!((task.restarts[REQUESTED], task.event_counts["killing"], task.event_counts["started"]), (1, 1, 2));
    assert_eq!((host.world.started(), host.world.living()), (2, 1));

    // It ended while no agent ran.
    agent.restart(&id, RestartTarget::Task("main")).await.unwrap();
    until("reported", || main_task(&agent, &id).event_counts["killing"] == 2).await;
    agent.shutdown();
    drop(agent);
    host.world.last().end(crate::model::task::ExitStatus::Code(0));
    let agent = host.start().await;
    attempt(&agent, &id, "main", 2).await;
    assert_eq!((host.world.started(), host.world.living()), (3, 1));
    assert_eq!(main_task(&agent, &id).exit_counts[Outcome::Killed.index()], 2);
}

/// The agent dies after each of the writes of a restart, for each kind of restart.
#[tokio::test(start_paused = true)]
async fn a_crash_after_any_write_of_a_restart_starts_nothing_twice_and_forgets_no_exit() {
    for whole in [false, true] {
        // Not after none: a request without a record never happened.
        for writes in 1..12 {
            let host = TestHost::new();
            let agent = host.start().await;
            let tasks =
                [("init", PRESTART, ends(5, 0)), ("a", None, json!({ "stop_ms": 40 })), ("side", SIDECAR, forever())];
            let id = submit(&agent, group(JobKind::Service, &tasks)).await;
            running(&agent, &id, &["a", "side"]).await;
            host.faults.fail_after(writes);
            agent.restart(&id, if whole { RestartTarget::All } else { RestartTarget::Task("a") }).await.unwrap();
            tokio::time::sleep(Duration::from_millis(400)).await;
            host.faults.fail_writes(false);
            let agent = host.restart(agent).await;
            running(&agent, &id, &["a", "side"]).await;
            until("quiet", || host.world.living() == 2).await;
            for name in ["a", "side", "init"] {
                let status = task(&agent, &id, name);
                let exits: u64 = status.exit_counts.iter().sum();
                let lives = u64::from(status.state == TaskState::Running);
                let context = format!("{name}, whole {whole}, after {writes}: {:?}", events(&status));
                assert_eq!(u64::try_from(processes(&host, name)).unwrap(), exits + lives, "{context}");
                assert_eq!(status.event_counts["started"], exits + lives, "{context}");
                assert!(status.restarts[REQUESTED] <= 1 && status.restarts_total() <= 1, "{context}");
            }
            assert_eq!(task(&agent, &id, "a").attempt, 1, "what is on record is done: whole {whole}, {writes}");
            agent.stop(&id, Wait::UntilEnded).await.unwrap();
            assert_eq!(host.world.living(), 0);
        }
    }
}

/// A whole alloc restarts in lifecycle order; an ended one lives again, and no total falls or counts twice.
///
/// Promise (Durability and recovery): A whole alloc restarts in the order of its lifecycle; no total falls or counts
/// twice
#[tokio::test(start_paused = true)]
async fn whole_alloc_restarts_in_lifecycle_order() {
    let host = TestHost::new();
    let agent = host.start().await;
    let tasks = [
        ("after", POSTSTOP, ends(10, 0)),
        ("main", None, json!({ "stop_ms": 200 })),
        ("init", PRESTART, ends(1_000, 0)),
        ("side", SIDECAR, json!({ "stop_ms": 100 })),
    ];
    let id = submit(&agent, group(JobKind::Service, &tasks)).await;
    running(&agent, &id, &["main"]).await;
    let all = agent.restart(&id, RestartTarget::All).await.unwrap();
    assert_eq!(all.len(), 4);
    assert_eq!(task(&agent, &id, "init").state, TaskState::Pending, "one that had ended waits again");
    until("the second beginning", || task(&agent, &id, "init").state == TaskState::Running).await;
    assert_eq!(task(&agent, &id, "main").state, TaskState::Pending, "and main waits for it");
    attempt(&agent, &id, "main", 1).await;
    let at = |name: &str, event: &str| {
        let task = task(&agent, &id, name);
        task.events.iter().rev().find(|e| e.kind.text() == event).unwrap().time
    };
    assert!(at("main", "Terminated") <= at("side", "Killing"), "it outlives what it serves");
    assert!(at("side", "Terminated") <= at("init", "Started"), "nothing starts before everything has ended");
    assert!(at("init", "Terminated") <= at("main", "Started"));
    assert_eq!(processes(&host, "after"), 0, "the alloc has not stopped");
    assert_eq!(task(&agent, &id, "after").restarts_total(), 0);
    for name in ["main", "init", "side"] {
        assert_eq!((processes(&host, name), task(&agent, &id, name).restarts), (2, [0, 0, 0, 1]), "{name}");
    }
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
    assert_eq!(processes(&host, "after"), 1, "once, with the stop");
    assert_eq!(status_of(&agent, &id).state, AllocState::Complete);
}

#[tokio::test(start_paused = true)]
async fn restart_requested_at_the_moment_of_the_last_end_is_not_lost() {
    let host = TestHost::new();
    let agent = host.start().await;
    // Alone: a task that had ended before would be pending already, and keep its alloc from ending.
    let id = submit(&agent, group(JobKind::Batch, &[("main", None, forever())])).await;
    running(&agent, &id, &["main"]).await;
    host.world.last().end(crate::model::task::ExitStatus::Code(0));
    // Its owner has not evaluated it yet.
    let alloc = agent.0.alloc(&id).unwrap();
    let AllocRestart::Requested(saves) = alloc.recall("asked") else { panic!("it lives, as far as is known") };
    alloc.shown(saves).await.unwrap();
    attempt(&agent, &id, "main", 1).await;
    assert_eq!(processes(&host, "main"), 2);
    assert_eq!(task(&agent, &id, "main").exit_counts[Outcome::Success.index()], 1, "it ended well all the same");
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn stop_during_a_whole_restart_takes_precedence_and_poststop_runs() {
    let host = TestHost::new();
    let agent = host.start().await;
    let tasks =
        [("after", POSTSTOP, ends(10, 0)), ("main", None, json!({ "stop_ms": 500 })), ("side", SIDECAR, forever())];
    let id = submit(&agent, leading(group(JobKind::Service, &tasks), "main")).await;
    running(&agent, &id, &["main", "side"]).await;
    agent.restart(&id, RestartTarget::All).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
    tokio::time::sleep(Duration::from_secs(100)).await;
    let started = ["main", "side", "after"].map(|name| processes(&host, name));
    assert_eq!(started, [1, 1, 1]);
    assert_eq!(status_of(&agent, &id).state, AllocState::Complete);
}

#[tokio::test(start_paused = true)]
async fn an_alloc_that_has_ended_lives_again_and_no_total_falls_or_counts_twice() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, batch("b", 1_000, 3)).await;
    assert_eq!(until_over(&agent, &id).await, AllocState::Failed);
    tokio::time::sleep(Duration::from_secs(50)).await;
    let first = status_of(&agent, &id).finished_at.unwrap();
    let ran = |agent: &Handle| agent.board().view().totals.alloc_run["b"][Outcome::Error.index()].as_duration();
    let (before, ran_before) = (totals(&agent, "b"), ran(&agent));
    agent.collectable([id.clone()]);

    let requested_at = tokio::time::Instant::now();
    agent.restart(&id, RestartTarget::All).await.unwrap();
    assert_eq!(status_of(&agent, &id).finished_at, None);
    assert!(!main_task(&agent, &id).failed);
    attempt(&agent, &id, "main", 3).await;
    assert!(requested_at.elapsed() < Duration::from_secs(1));
    assert_eq!(ran(&agent), ran_before, "what it ran before stays");
    let agent = host.restart(agent).await;
    assert_eq!(ran(&agent), ran_before, "over a restart of the agent too");
    assert_eq!(until_over(&agent, &id).await, AllocState::Failed, "with all the attempts of its policy");
    let task = main_task(&agent, &id);
    assert_eq!((task.restarts, task.attempt), ([4, 0, 0, 1], 5));
    let last = status_of(&agent, &id).finished_at.unwrap();
    assert!(last > first);
    let now = totals(&agent, "b");
    assert_eq!(now.exits[Outcome::Error.index()], before.exits[Outcome::Error.index()] + 3);
    let more = ran(&agent) - ran_before;
    assert!(more < Duration::from_secs(35), "since its restart, not since its submission: {more:?}");
    assert_eq!(agent.board().view().totals.node.allocs, 1, "it is the same one");
    let all = ran(&agent);
    let agent = host.restart(agent).await;
    assert_eq!((ran(&agent), totals(&agent, "b")), (all, now));
    assert_eq!(host.world.started(), 6);
}

#[tokio::test(start_paused = true)]
async fn an_alloc_that_was_stopped_expired_or_replaced_is_not_brought_back() {
    let host = TestHost::new();
    let agent = host.start().await;
    let why = async |id: &AllocId| match agent.restart(id, RestartTarget::All).await {
        Err(RunnerError::Final { why, .. }) => why,
        other => panic!("{other:?}"),
    };
    let stopped = submit(&agent, service("s")).await;
    until_state(&agent, &stopped, TaskState::Running).await;
    agent.stop(&stopped, Wait::UntilEnded).await.unwrap();
    assert_eq!(why(&stopped).await, "was requested to stop");

    let mut limited = batch("limited", 600_000, 0);
    limited.groups[0].max_run_duration = Some(Duration::from_secs(2));
    let expired = submit(&agent, limited).await;
    until_over(&agent, &expired).await;
    assert_eq!(why(&expired).await, "has had its max_run_duration");

    let old = submit(&agent, batch("b", 5, 0)).await;
    until_over(&agent, &old).await;
    submit(&agent, batch("b", 6, 0)).await;
    assert!(why(&old).await.contains("older version"));
    assert!(!over(&agent, &old).await.as_str().is_empty());

    let waits = submit(&agent, job("never", JobKind::Service, &[("main", json!({ "start_ms": 600_000 }))])).await;
    until_state(&agent, &waits, TaskState::Starting).await;
    agent.restart(&waits, RestartTarget::All).await.unwrap();
}

/// Promise (Durability and recovery): Records of an agent with fewer restart reasons are read
#[test]
fn records_of_agents_without_requested_restarts_are_read() {
    // As an earlier agent wrote them.
    let task = include_str!("records/task-of-schema-2.json");
    let task: crate::runner::persistence::record::TaskRecord = serde_json::from_str(task).unwrap();
    assert_eq!(task.status.restarts, [2, 0, 0, 0]);
    assert_eq!(task.restart, None);
    let alloc = include_str!("records/alloc-of-schema-2.json");
    let alloc: crate::runner::persistence::record::AllocRecord = serde_json::from_str(alloc).unwrap();
    assert!(!alloc.again && alloc.earlier.is_none());
    let workload = include_str!("records/workload-of-schema-2.json");
    let workload: crate::runner::persistence::record::WorkloadRecord = serde_json::from_str(workload).unwrap();
    assert_eq!(workload.tasks.values().next().unwrap().restarts, [2, 0, 0, 0]);
    let newer = r#"{"restarts":[1,2,3,4,5]}"#;
    let newer: TaskTotals = serde_json::from_str(newer).unwrap();
    assert_eq!(newer.restarts, [1, 2, 3, 4], "what a newer agent counts besides has no name here");
}
