//! From start to end: success, restarts, disk failures.

use serde_json::json;

use super::*;
use crate::model::event::EventKind;
use crate::model::task::{ExitStatus, Failure, Outcome};
use crate::telemetry::durations::StartPhase;

#[tokio::test(start_paused = true)]
async fn a_batch_task_runs_once_and_completes_with_four_durable_writes() {
    let host = TestHost::new();
    let agent = host.start().await;
    let before = host.faults.commits();
    let id = submit(&agent, batch("b", 20, 0)).await;
    assert_eq!(until_over(&agent, &id).await, AllocState::Complete);
    assert_eq!(host.faults.commits() - before, 4, "job and alloc; prepared handle; start; exit and end");
    let task = main_task(&agent, &id);
    assert_eq!(events(&task), ["Received", "Task Setup", "Started", "Terminated"]);
    assert_eq!((task.failed, task.restarts_total()), (false, 0));
    let exit = task.last_exit().unwrap();
    assert_eq!((exit.outcome, &exit.status), (Outcome::Success, &ExitStatus::Code(0)));
    assert_eq!(exit.finished_at.since(exit.started_at.unwrap()).as_duration(), Duration::from_millis(20));
    until("cleared", || host.world.undestroyed() == 0).await;
    assert!(!host.data_dir.run(&id).exists());
    assert!(host.data_dir.logs(&id).exists(), "what it wrote stays");
}

#[tokio::test(start_paused = true)]
async fn a_task_of_some_milliseconds_costs_three_durable_writes() {
    let host = TestHost::new();
    let agent = host.start().await;
    let before = host.faults.commits();
    let id = submit(&agent, batch("b", 5, 0)).await;
    assert_eq!(until_over(&agent, &id).await, AllocState::Complete);
    assert_eq!(host.faults.commits() - before, 3, "job and alloc; prepared handle; start, exit and end");
    assert_eq!(events(&main_task(&agent, &id)), ["Received", "Task Setup", "Started", "Terminated"]);
}

#[tokio::test(start_paused = true)]
async fn an_alloc_with_two_tasks_ends_with_the_last_one() {
    let host = TestHost::new();
    let agent = host.start().await;
    let tasks = [("main", json!({ "run_ms": 10 })), ("slow", json!({ "run_ms": 3_000 }))];
    let id = submit(&agent, job("b", JobKind::Batch, &tasks)).await;
    until_state(&agent, &id, TaskState::Dead).await;
    assert_eq!(status_of(&agent, &id).state, AllocState::Running);
    assert_eq!(status_of(&agent, &id).finished_at, None);
    assert_eq!(until_over(&agent, &id).await, AllocState::Complete);
    let (created_at, finished_at) = (published(&agent, &id).identity.created_at, status_of(&agent, &id).finished_at);
    let ran = finished_at.unwrap().since(created_at.unwrap());
    assert!(ran.as_duration() >= Duration::from_secs(3));
    let run = agent.board().view().totals.alloc_run["b"];
    assert_eq!(run[Outcome::Success.index()], ran);
}

#[tokio::test(start_paused = true)]
async fn a_crash_loop_restarts_by_policy_and_then_fails_with_everything_added_up() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, batch("b", 1_000, 3)).await;
    until_state(&agent, &id, TaskState::Backoff).await;
    let task = main_task(&agent, &id);
    let delay = task.next_start_at.unwrap().since(task.state_since).as_duration();
    assert!(delay >= Duration::from_secs(10) && delay <= Duration::from_millis(12_500), "{delay:?}");
    assert_eq!(task.main, None);

    assert_eq!(until_over(&agent, &id).await, AllocState::Failed);
    let task = main_task(&agent, &id);
    assert_eq!(task.failure, Some(Failure::RestartsUsedUp));
    assert_eq!(task.restarts, [2, 0, 0, 0]);
    assert_eq!(task.attempt, 2);
    assert_eq!(task.exit_counts[Outcome::Error.index()], 3);
    assert_eq!(task.base.cpu_usage_ns(), Some(3_000_000_000), "counters add over attempts");
    assert_eq!(task.base.memory_peak_bytes(), Some(102), "the peak is the highest attempt's");
    assert_eq!(events(&task).last(), Some(&"Not Restarting"));
    let backoff = task.time_in_state[TaskState::Backoff.index()].as_duration();
    assert!(backoff >= Duration::from_secs(20) && backoff <= Duration::from_secs(25), "{backoff:?}");
    assert_eq!(task.time_in_state[TaskState::Running.index()].as_duration(), Duration::from_secs(3));

    let totals = totals(&agent, "b");
    assert_eq!(totals.exits[Outcome::Error.index()], 3);
    assert_eq!(totals.exit_codes, BTreeMap::from([(3, 3)]));
    assert_eq!(totals.restarts, [2, 0, 0, 0]);
    assert_eq!(totals.usage.cpu_usage_ns(), Some(3_000_000_000));
    assert_eq!(totals.run_ns[Outcome::Error.index()], 3_000_000_000);
    assert!(totals.events.iter().map(|(kind, count)| (kind.as_str(), count)).eq(task.event_counts.iter()));
    assert_eq!(host.world.started(), 3);
    until("cleared", || host.world.undestroyed() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn service_that_ends_well_is_restarted_and_oom_is_reported() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, job("s", JobKind::Service, &[("main", json!({ "run_ms": 5 }))])).await;
    until("second attempt", || main_task(&agent, &id).attempt == 1).await;
    assert_eq!(main_task(&agent, &id).restarts, [1, 0, 0, 0]);

    let oom = json!({ "run_ms": 5, "signal": 9, "oom_kills": 1 });
    let id = submit(&agent, job("o", JobKind::Service, &[("main", oom)])).await;
    until("second attempt", || main_task(&agent, &id).attempt == 1).await;
    let task = main_task(&agent, &id);
    assert_eq!(task.restarts, [0, 1, 0, 0]);
    assert_eq!(task.last_exit().unwrap().outcome, Outcome::Oom);
    assert_eq!(task.last_exit().unwrap().oom_kills, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_start_failure_is_no_exit_and_is_tried_again_where_that_can_help() {
    let host = TestHost::new();
    let agent = host.start().await;
    let tasks = [("main", json!({ "start_error": 1, "run_ms": 5 }))];
    let id = submit(&agent, job("once", JobKind::Batch, &tasks)).await;
    assert_eq!(until_over(&agent, &id).await, AllocState::Complete);
    let task = main_task(&agent, &id);
    assert_eq!(task.restarts, [0, 0, 1, 0]);
    assert_eq!(task.event_counts[EventKind::DriverFailure.label()], 1);
    assert!(matches!(task.exits[0].status, ExitStatus::NotStarted(ref e) if e.contains("no such program")));
    assert_eq!(task.exits[0].started_at, None);
    assert_eq!(task.exit_counts, [1, 0, 0, 0, 0, 0], "only what ran can exit");
    assert_eq!(totals(&agent, "once").exits, [1, 0, 0, 0, 0, 0]);

    let tasks = [("main", json!({ "start_error": 9, "hopeless": 1 }))];
    let id = submit(&agent, job("never", JobKind::Batch, &tasks)).await;
    assert_eq!(until_over(&agent, &id).await, AllocState::Failed);
    assert_eq!(main_task(&agent, &id).restarts_total(), 0);
}

#[tokio::test(start_paused = true)]
async fn task_is_not_started_before_its_handle_is_durable() {
    let host = TestHost::new();
    let agent = host.start().await;
    host.faults.fail_after(1);
    let id = submit(&agent, batch("b", 5, 0)).await;
    until_state(&agent, &id, TaskState::Starting).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(host.world.started(), 0);
    assert!(events(&main_task(&agent, &id)).contains(&"Setup Failure"));
    host.faults.fail_writes(false);
    assert_eq!(until_over(&agent, &id).await, AllocState::Complete);
    assert_eq!(host.world.started(), 1);
}

#[tokio::test(start_paused = true)]
async fn exit_that_cannot_be_saved_is_shown_retried_and_retained_on_the_host() {
    let host = TestHost::new();
    let agent = host.start().await;
    host.faults.fail_after(2);
    let id = submit(&agent, batch("b", 5, 0)).await;
    assert_eq!(until_over(&agent, &id).await, AllocState::Complete);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(host.world.undestroyed(), 1, "what it left must stay until its exit is durable");
    assert_eq!(totals(&agent, "b").exits, [1, 0, 0, 0, 0, 0]);
    host.faults.fail_writes(false);
    until("cleared", || host.world.undestroyed() == 0).await;
    assert_eq!(totals(&agent, "b").exits, [1, 0, 0, 0, 0, 0], "shown twice, counted once");
}

#[tokio::test(start_paused = true)]
async fn references_are_resolved_and_one_that_cannot_be_fails_the_start_without_a_retry() {
    let host = TestHost::new();
    let agent = host.start().await;
    let mut good = service("good");
    good.groups[0].tasks[0].env.insert("WHO".to_owned(), "${NOMAD_ALLOC_NAME} on ${node.unique.name}".to_owned());
    let id = submit(&agent, good).await;
    until_state(&agent, &id, TaskState::Running).await;
    let process = host.world.last();
    assert_eq!(process.env["WHO"], "good.g[0] on host");
    assert_eq!(process.env["PATH"], "/bin");
    assert_eq!(process.env["NOMAD_ALLOC_DIR"], host.data_dir.alloc(&id).join("alloc").to_string_lossy());

    let mut bad = service("bad");
    bad.groups[0].tasks[0].config.insert("stop_ms".to_owned(), "${attr.memory.totalbytes}".into());
    let id = submit(&agent, bad).await;
    assert_eq!(until_over(&agent, &id).await, AllocState::Failed);
    let task = main_task(&agent, &id);
    assert_eq!((task.restarts_total(), task.event_counts[EventKind::FailedValidation.label()]), (0, 1));
    assert!(task.events.iter().any(|e| e.message.contains("attr.memory.totalbytes")), "{:?}", task.events);
}

#[tokio::test(start_paused = true)]
async fn each_start_is_measured_in_its_phases_and_a_failed_one_is_none() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id =
        submit(&agent, job("s", JobKind::Service, &[("main", json!({ "start_ms": 700, "start_error": 1 }))])).await;
    let durations = || agent.0.ctx.metrics.durations.all().pop().unwrap().1;
    assert_eq!(durations().starts.sum, crate::model::units::Nanos::ZERO, "born with the job");
    until_state(&agent, &id, TaskState::Backoff).await;
    assert!(durations().starts.buckets.iter().all(|b| b.count == 0), "nothing came to run");
    until_state(&agent, &id, TaskState::Running).await;
    let of = durations();
    let counts = |of: &crate::telemetry::durations::Histogram| of.buckets.iter().map(|b| b.count).collect::<Vec<_>>();
    assert_eq!(counts(&of.starts), [0, 0, 0, 0, 0, 1, 0, 0, 0, 0], "700 ms; the backoff before is none of it");
    let timings = agent.0.ctx.metrics.timings();
    let phases = timings.iter().find(|timings| timings.desc.name.contains("start_phase")).unwrap().all();
    let of_driver = phases.iter().find(|(labels, _)| labels[0] == StartPhase::Driver.as_str()).unwrap();
    assert_eq!(counts(&of_driver.1), counts(&of.starts));
    assert_eq!(phases.len(), StartPhase::ALL.len());
    assert!(phases.iter().all(|(_, phase)| counts(phase).iter().sum::<u64>() == 1), "each phase of each start");
    assert_eq!(of.starts.buckets[5].latest.as_ref().unwrap().alloc_id, id);
}

#[tokio::test(start_paused = true)]
async fn the_latest_exit_of_each_kind_names_its_alloc_and_its_event() {
    let host = TestHost::new();
    let agent = host.start().await;
    let first = submit(&agent, batch("b", 5, 0)).await;
    until_over(&agent, &first).await;
    let mut failing = batch("b", 5, 3);
    failing.groups[0].tasks[0].restart.attempts = 0;
    let second = submit(&agent, failing).await;
    until_over(&agent, &second).await;
    let latest = totals_and_latest(&agent, "b").latest.unwrap();
    let [success, error, ..] = latest.exits;
    assert_eq!(success.unwrap().alloc_id, first);
    let error = error.unwrap();
    let event = agent.events().since(error.event_id.unwrap() - 1, 1).events.remove(0);
    assert_eq!((&error.alloc_id, event.kind.label()), (&second, "terminated"));
    assert_eq!((event.alloc_id.as_ref(), error.at), (Some(&second), event.time));
    assert_eq!(latest.exit_codes[&3].as_ref(), Some(&error));
}
