//! Stops by signal, by SIGKILL, and abandonment, at any moment of a task's life.

use serde_json::json;

use super::*;
use crate::model::event::EventKind;
use crate::model::task::{ExitStatus, Outcome};
use crate::runner::Wait;

async fn started(agent: &Handle, config: Value) -> AllocId {
    let id = submit(agent, job("s", JobKind::Service, &[("main", config)])).await;
    until_state(agent, &id, TaskState::Running).await;
    id
}

#[tokio::test(start_paused = true)]
async fn a_task_that_follows_its_signal_is_stopped_killed_and_not_failed() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = started(&agent, json!({})).await;
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
    let task = main_task(&agent, &id);
    assert_eq!(task.last_exit().unwrap().outcome, Outcome::Killed);
    assert_eq!((task.failed, task.restarts_total()), (false, 0));
    assert_eq!(events(&task), ["Received", "Task Setup", "Started", "Killing", "Terminated", "Killed"]);
    assert_eq!(*host.world.last().signals.lock().unwrap(), ["SIGINT"]);
    assert_eq!(status_of(&agent, &id).state, AllocState::Complete);
    assert_eq!(host.world.undestroyed(), 0, "stop waits until nothing is left");
}

#[tokio::test(start_paused = true)]
async fn lost_output_is_reported_with_the_end_and_counted_across_restarts() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id =
        submit(&agent, job("l", JobKind::Batch, &[("main", json!({ "run_ms": 10, "lost_bytes": 4_977_152 }))])).await;
    until_over(&agent, &id).await;
    let task = main_task(&agent, &id);
    let end = task.events.iter().find(|event| event.kind == EventKind::Terminated).unwrap();
    assert_eq!(end.message, "exit 0; 4977152 bytes of its stdout could not be written and are lost");
    assert!(end.details.contains("stdout_lost_bytes") && !end.details.contains("stderr_lost_bytes"));
    assert_eq!(totals(&agent, "l").lost_output.by_stream(), [4_977_152, 0]);
    let agent = host.restart(agent).await;
    assert_eq!(totals(&agent, "l").lost_output.by_stream(), [4_977_152, 0]);
}

/// Escalation ends in a declared state, counted, with the handle kept; all concurrent requests return and it happens
/// once; the shutdown of the agent waits for no task.
///
/// Promise (Task groups and lifecycle order): P-10.3, P-10.4, P-10.5 Escalation ends in a declared state, happens once,
/// and the agent's exit waits for none
#[tokio::test(start_paused = true)]
async fn a_deaf_task_is_killed_by_force_after_its_kill_timeout() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = started(&agent, json!({ "deaf": 1 })).await;
    let requested_at = tokio::time::Instant::now();
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
    let took = requested_at.elapsed();
    assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(6), "{took:?}");
    assert_eq!(*host.world.last().signals.lock().unwrap(), ["SIGINT", "force"]);
    assert_eq!(main_task(&agent, &id).last_exit().unwrap().outcome, Outcome::Killed);
    let of = totals_and_latest(&agent, "s");
    assert_eq!((of.kill_escalations, of.abandoned), (1, 0));
    assert_eq!(of.latest.unwrap().escalation.unwrap().alloc_id, id);
    let (_, durations) = agent.0.ctx.metrics.durations.all().pop().unwrap();
    let slow: Vec<u64> = durations.kills.buckets.iter().map(|b| b.count).collect();
    assert_eq!(slow, [0, 0, 0, 0, 1, 0, 0, 0, 0, 0], "its kill timeout, to the millisecond");
    let agent = host.restart(agent).await;
    assert_eq!(totals(&agent, "s").kill_escalations, 1, "as durable as the exit beside it");
}

/// Promise (Durability and recovery): Forced kills and abandoned tasks are counted over any death of the agent
#[tokio::test(start_paused = true)]
async fn an_escalation_that_was_shown_is_there_after_a_death_of_the_agent_at_that_moment() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = started(&agent, json!({ "deaf": 1, "unkillable": 1 })).await;
    agent.stop(&id, Wait::No).await.unwrap();
    until("escalated", || totals(&agent, "s").kill_escalations == 1).await;
    assert_eq!(main_task(&agent, &id).state, TaskState::Killing);
    let agent = host.restart(agent).await;
    assert!(totals(&agent, "s").kill_escalations >= 1, "and perhaps the next agent's is there already");
    until_over(&agent, &id).await;
    let of = totals(&agent, "s");
    assert_eq!((of.kill_escalations, of.abandoned), (2, 1), "the next agent used force again");
}

/// Promise (Task groups and lifecycle order): P-10.2 The longest time that a stop can take is reported with it, and
/// kept
#[tokio::test(start_paused = true)]
async fn unkillable_task_is_abandoned_in_bounded_time_and_cleared_when_it_ends() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = started(&agent, json!({ "deaf": 1, "unkillable": 1 })).await;
    let requested_at = tokio::time::Instant::now();
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
    let took = requested_at.elapsed();
    assert!(took >= Duration::from_secs(35) && took < Duration::from_secs(36), "{took:?}");
    let task = main_task(&agent, &id);
    assert!(task.failed);
    // P-10.2: it took at most the announced time.
    let killing =
        task.events.iter().find(|e| e.kind == crate::model::event::EventKind::Killing).expect("it must be reported");
    assert_eq!(killing.details["at_most_ns"], Duration::from_secs(35).as_nanos().to_string());
    assert_eq!(task.last_exit().unwrap().outcome, Outcome::Killed);
    assert!(matches!(task.last_exit().unwrap().status, crate::model::task::ExitStatus::Unknown(_)));
    assert_eq!(host.world.undestroyed(), 1);
    host.world.last().end(crate::model::task::ExitStatus::Signal(9));
    until("cleared", || host.world.undestroyed() == 0).await;
    let of = totals(&agent, "s");
    assert_eq!(of.exits.iter().sum::<u64>(), 1, "its late end is not a second exit");
    assert_eq!((of.kill_escalations, of.abandoned), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_stop_during_the_start_ends_the_process_as_soon_as_there_is_one() {
    let host = TestHost::new();
    let agent = host.start().await;
    let tasks = [("main", json!({ "start_ms": 2_000 }))];
    let id = submit(&agent, job("s", JobKind::Service, &tasks)).await;
    until_state(&agent, &id, TaskState::Starting).await;
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
    assert_eq!(host.world.started(), 1);
    assert_eq!(host.world.living(), 0);
    assert_eq!(main_task(&agent, &id).last_exit().unwrap().outcome, Outcome::Killed);
}

#[tokio::test(start_paused = true)]
async fn a_stop_during_the_start_leaves_the_task_its_shutdown_delay() {
    let host = TestHost::new();
    let agent = host.start().await;
    let mut job = job("s", JobKind::Service, &[("main", json!({ "start_ms": 2_000 }))]);
    job.groups[0].tasks[0].shutdown_delay = Duration::from_secs(60);
    let id = submit(&agent, job).await;
    until_state(&agent, &id, TaskState::Starting).await;
    let requested_at = tokio::time::Instant::now();
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
    let took = requested_at.elapsed();
    assert!(took >= Duration::from_secs(60) && took < Duration::from_secs(61), "{took:?}");
    let expected = [
        "Received",
        "Task Setup",
        "Killing",
        "Started",
        "Waiting for Shutdown Delay",
        "Signaling",
        "Terminated",
        "Killed",
    ];
    assert_eq!(events(&main_task(&agent, &id)), expected);
    assert_eq!(*host.world.last().signals.lock().unwrap(), ["SIGINT"]);
}

/// A stop meanwhile keeps the task's `shutdown_delay`.
///
/// Promise (Durability and recovery): A start that hangs is abandoned, not repeated beside itself, and its late result
/// is ended
#[tokio::test(start_paused = true)]
async fn hanging_start_is_abandoned_without_a_stop_and_not_retried() {
    let host = TestHost::new();
    let agent = host.start().await;
    let tasks = [("main", json!({ "start_ms": 600_000 })), ("beside", json!({}))];
    let id = submit(&agent, job("s", JobKind::Service, &tasks)).await;
    let started_at = tokio::time::Instant::now();
    assert_eq!(until_over(&agent, &id).await, AllocState::Failed);
    let took = started_at.elapsed();
    assert!(took >= host.config.start_budget && took < host.config.start_budget + Duration::from_secs(2), "{took:?}");
    let task = main_task(&agent, &id);
    assert_eq!(events(&task), ["Received", "Task Setup", "Driver Failure"]);
    assert!(task.events.back().unwrap().message.contains("has not started it within 300s"), "{:?}", task.events.back());
    // It may still start: its alloc is not restarted beside it.
    let restarted = agent.restart(&id, crate::runner::RestartTarget::All).await;
    assert!(matches!(restarted, Err(crate::runner::RunnerError::MayStillRun { .. })), "{restarted:?}");
    until("late start", || host.world.started() == 2).await;
    until("killed", || host.world.living() == 0 && host.world.undestroyed() == 0).await;
    until("forgotten", || agent.0.alloc(&id).unwrap().handle(0).is_none()).await;
    agent.restart(&id, crate::runner::RestartTarget::All).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn hanging_start_is_abandoned_and_its_late_process_is_killed() {
    let host = TestHost::new();
    let agent = host.start().await;
    let tasks = [("main", json!({ "start_ms": 600_000 }))];
    let id = submit(&agent, job("s", JobKind::Service, &tasks)).await;
    until_state(&agent, &id, TaskState::Starting).await;
    let requested_at = tokio::time::Instant::now();
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
    assert!(requested_at.elapsed() < Duration::from_secs(36), "{:?}", requested_at.elapsed());
    until("late start", || host.world.started() == 1).await;
    until("killed", || host.world.living() == 0 && host.world.undestroyed() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_during_backoff_does_not_start_again() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, batch("b", 5, 1)).await;
    until_state(&agent, &id, TaskState::Backoff).await;
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(host.world.started(), 1);
    let task = main_task(&agent, &id);
    assert_eq!((task.state, task.failed, task.next_start_at), (TaskState::Dead, false, None));
    assert_eq!(events(&task).last(), Some(&"Killed"));
    assert_eq!((task.restarts_total(), totals(&agent, "b").restarts), (0, [0; 4]), "it was never started again");
    assert_eq!(status_of(&agent, &id).description(), "it was requested to stop, and its tasks have ended");
    let agent = host.restart(agent).await;
    assert_eq!((main_task(&agent, &id).restarts_total(), totals(&agent, "b").restarts), (0, [0; 4]));
}

/// An announced restart is no restart yet; SIGKILL of the agent before and after it begins.
///
/// Promise (Durability and recovery): A restart counts once, when it begins; one that a stop overtakes in its backoff
/// does not count
#[tokio::test(start_paused = true)]
async fn a_restart_counts_once_when_it_begins() {
    let host = TestHost::new();
    let mut agent = host.start().await;
    let id = submit(&agent, batch("b", 60_000, 1)).await;
    for n in 0..2 {
        until_state(&agent, &id, TaskState::Backoff).await;
        assert_eq!(
            (main_task(&agent, &id).restarts, main_task(&agent, &id).event_counts["restarting"]),
            ([n, 0, 0, 0], n + 1)
        );
        agent = host.restart(agent).await;
        assert_eq!(main_task(&agent, &id).restarts, [n, 0, 0, 0]);
        until("it is started again", || main_task(&agent, &id).attempt == u32::try_from(n).unwrap() + 1).await;
        assert_eq!(main_task(&agent, &id).restarts, [n + 1, 0, 0, 0]);
        agent = host.restart(agent).await;
        assert_eq!(
            (main_task(&agent, &id).restarts, totals(&agent, "b").restarts),
            ([n + 1, 0, 0, 0], [n + 1, 0, 0, 0])
        );
    }
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
    assert_eq!((host.world.started(), main_task(&agent, &id).restarts), (3, [2, 0, 0, 0]));
}

/// Its stop is recorded, but not the signal: the disk was full. Then the agent dies, and the task dies of its signal.
///
/// Promise (Durability and recovery): An exit is judged by the desired state and the policy of its alloc at that time
#[tokio::test(start_paused = true)]
async fn exit_outcome_follows_the_requested_stop_and_then_the_policy() {
    for (status, outcome) in [
        (ExitStatus::Signal(2), Outcome::Killed),
        (ExitStatus::Signal(9), Outcome::Killed),
        // By another signal, which was not requested.
        (ExitStatus::Signal(11), Outcome::Signal),
        (ExitStatus::Code(1), Outcome::Error),
    ] {
        let host = TestHost::new();
        let agent = host.start().await;
        let id = started(&agent, json!({ "deaf": 1 })).await;
        host.faults.fail_after(1);
        agent.stop(&id, Wait::No).await.unwrap();
        until("its signal", || !host.world.last().signals.lock().unwrap().is_empty()).await;
        agent.shutdown();
        host.faults.fail_writes(false);
        host.world.last().end(status.clone());
        let agent = host.start().await;
        assert_eq!(until_over(&agent, &id).await, AllocState::Complete, "{status:?}");
        let task = main_task(&agent, &id);
        assert_eq!((task.last_exit().unwrap().outcome, task.restarts_total(), task.failed), (outcome, 0, false));
        let last = if outcome == Outcome::Killed { "Killed" } else { "Not Restarting" };
        assert_eq!(events(&task), ["Received", "Task Setup", "Started", "Terminated", last], "{status:?}");
        assert_eq!(host.world.started(), 1);
    }
}

/// Its leader is still ending, and its own rank has not been reached.
#[tokio::test(start_paused = true)]
async fn task_that_crashes_while_its_alloc_ends_is_not_restarted() {
    let host = TestHost::new();
    let agent = host.start().await;
    let tasks = [("leader", json!({ "stop_ms": 4_000 })), ("other", json!({ "deaf": 1 }))];
    let mut job = job("s", JobKind::Service, &tasks);
    job.groups[0].tasks[0].leader = true;
    job.groups[0].tasks[1].restart.delay = Duration::from_millis(100);
    let id = submit(&agent, job).await;
    let other = || Arc::clone(&status_of(&agent, &id).tasks[1]);
    until("both", || host.world.living() == 2 && other().state == TaskState::Running).await;
    agent.stop(&id, Wait::No).await.unwrap();
    until("the leader's signal", || main_task(&agent, &id).state == TaskState::Killing).await;
    host.world.of(&"other".into()).end(ExitStatus::Code(3));
    assert_eq!(until_over(&agent, &id).await, AllocState::Complete);
    let seen = events(&other());
    assert_eq!(seen, ["Received", "Task Setup", "Started", "Terminated", "Not Restarting"]);
    assert_eq!((other().last_exit().unwrap().outcome, host.world.started()), (Outcome::Error, 2));
}

#[tokio::test(start_paused = true)]
async fn a_stop_works_with_a_full_disk() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = started(&agent, json!({})).await;
    host.faults.fail_writes(true);
    agent.stop(&id, Wait::No).await.unwrap();
    until_over(&agent, &id).await;
    assert_eq!(host.world.living(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_a_task_that_waits_for_the_disk_without_starting_it() {
    let host = TestHost::new();
    let agent = host.start().await;
    host.faults.fail_after(1);
    let id = submit(&agent, service("s")).await;
    until_state(&agent, &id, TaskState::Starting).await;
    agent.stop(&id, Wait::No).await.unwrap();
    until_over(&agent, &id).await;
    host.faults.fail_writes(false);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(host.world.started(), 0);
}

/// 1,000 stops of one task, and as many restarts and signals beside them: one Killing, one Killed, one sequence of
/// signals, and each request returns.
///
/// Promise (Durability and recovery): T-10.3 1,000 stops of one task with as many restarts and signals: one kill, and
/// each has its answer
#[tokio::test(start_paused = true)]
async fn thousand_concurrent_stops_restarts_and_signals_are_one_kill_and_all_return() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = started(&agent, json!({ "deaf": 1 })).await;
    let mut stops = tokio::task::JoinSet::new();
    let mut rest = tokio::task::JoinSet::new();
    for n in 0..1_000 {
        let (agent, id) = (agent.clone(), id.clone());
        let wait = if n % 2 == 0 { Wait::UntilEnded } else { Wait::No };
        stops.spawn({
            let (agent, id) = (agent.clone(), id.clone());
            async move { agent.stop(&id, wait).await }
        });
        // Too late or overruled: a refusal is a response.
        rest.spawn(async move {
            match n % 2 {
                0 => agent.restart(&id, crate::runner::RestartTarget::Running).await.is_ok(),
                _ => agent.signal(&id, None, "SIGHUP").await.is_ok(),
            }
        });
    }
    while let Some(stop) = stops.join_next().await {
        stop.unwrap().unwrap();
    }
    assert_eq!(rest.join_all().await.len(), 1_000, "each has an answer");
    let counts = &main_task(&agent, &id).event_counts;
    assert_eq!((counts["killing"], counts["killed"], counts["terminated"]), (1, 1, 1));
    let mut signals = host.world.last().signals.lock().unwrap().clone();
    signals.retain(|s| s != "SIGHUP");
    assert_eq!(signals, ["SIGINT", "force"], "one sequence for all requests");
    assert_eq!(host.world.started(), 1, "nothing is begun beside a kill");
}

#[tokio::test(start_paused = true)]
async fn all_tasks_of_an_alloc_are_stopped_at_the_same_time() {
    let host = TestHost::new();
    let agent = host.start().await;
    let deaf = json!({ "deaf": 1 });
    let id =
        submit(&agent, job("s", JobKind::Service, &[("main", deaf.clone()), ("b", deaf.clone()), ("c", deaf)])).await;
    until("all", || host.world.living() == 3).await;
    until_state(&agent, &id, TaskState::Running).await;
    let requested_at = tokio::time::Instant::now();
    assert_eq!(agent.stop_all(Wait::UntilEnded).await, [id]);
    assert!(requested_at.elapsed() < Duration::from_secs(6), "{:?}", requested_at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn stop_ends_a_task_in_backoff_while_its_exit_waits_for_the_disk() {
    let host = TestHost::new();
    let agent = host.start().await;
    host.faults.fail_after(2);
    let id = submit(&agent, batch("b", 5, 1)).await;
    until_state(&agent, &id, TaskState::Backoff).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(main_task(&agent, &id).state, TaskState::Backoff, "it must not start again before its exit is saved");
    agent.stop(&id, Wait::No).await.unwrap();
    until_over(&agent, &id).await;
    assert_eq!(host.world.undestroyed(), 1);
    host.faults.fail_writes(false);
    until("cleared", || host.world.undestroyed() == 0).await;
    assert_eq!(host.world.started(), 1);
}

#[tokio::test(start_paused = true)]
async fn task_kill_in_progress_is_recovered_after_a_restart() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = started(&agent, json!({ "deaf": 1 })).await;
    agent.stop(&id, Wait::No).await.unwrap();
    until_state(&agent, &id, TaskState::Killing).await;
    let agent = host.restart(agent).await;
    until_over(&agent, &id).await;
    let counts = &main_task(&agent, &id).event_counts;
    assert_eq!((counts["killing"], counts["started"]), (1, 1), "reported once, however many agents kill it");
}
