//! Restarts of the agent: no task is killed, lost or started twice, and no crash loop is reset.

use serde_json::json;

use super::*;
use crate::model::event::EventKind;
use crate::model::task::{ExitStatus, Outcome};
use crate::runner::{RestoreError, RunnerError, Wait};

/// Recovered tasks of the last start, by outcome, and the number of quarantined records.
pub(super) fn found(agent: &Handle) -> (BTreeMap<String, f64>, f64) {
    let families = agent.0.ctx.metrics.gather();
    let family = |name: &str| families.iter().find(|f| f.name() == name).unwrap_or_else(|| panic!("no {name}"));
    let tasks = family("allostat_restore_tasks").get_metric().iter();
    let tasks = tasks.map(|m| (m.get_label()[0].value().to_owned(), m.get_gauge().get_value())).collect();
    assert!(family("allostat_restore_duration_seconds").get_metric()[0].get_gauge().get_value() >= 0.0);
    (tasks, family("allostat_state_db_quarantined_records").get_metric()[0].get_gauge().get_value())
}

pub(super) fn only(outcome: &str) -> BTreeMap<String, f64> {
    let all = ["reattached", "ended", "lost", "failed", "restarted", "orphan_killed"];
    all.iter().map(|name| ((*name).to_owned(), if *name == outcome { 1.0 } else { 0.0 })).collect()
}

/// Each start of the agent reports how it recovered every task; all outcomes occur, and unreadable records are counted.
///
/// Promise (Durability and recovery): Each start of the agent reports how it found every task, and counts unreadable
/// records
#[tokio::test(start_paused = true)]
async fn each_start_reports_how_it_recovered_every_task_and_resets_earlier_counts() {
    let host = TestHost::new();
    let agent = host.start().await;
    assert_eq!(found(&agent).0, only("none"), "all outcomes are there");
    let id = submit(&agent, service("s")).await;
    until_state(&agent, &id, TaskState::Running).await;
    let agent = host.restart(agent).await;
    assert_eq!(found(&agent).0, only("reattached"));
    agent.shutdown();
    host.world.last().end(ExitStatus::Code(1));
    let agent = host.start().await;
    assert_eq!(found(&agent).0, only("ended"));
    until_state(&agent, &id, TaskState::Backoff).await;
    let agent = host.restart(agent).await;
    assert_eq!(found(&agent).0, only("restarted"), "in backoff, nothing of it runs");
    until_state(&agent, &id, TaskState::Running).await;
    agent.shutdown();
    host.world.last().end(ExitStatus::Unknown("its supervisor was killed".to_owned()));
    let agent = host.start().await;
    assert_eq!(found(&agent).0, only("lost"));
    until_state(&agent, &id, TaskState::Backoff).await;
    until_state(&agent, &id, TaskState::Running).await;
    *host.world.recover_error.lock().unwrap() = Some("its record is damaged".to_owned());
    let agent = host.restart(agent).await;
    assert_eq!(found(&agent), (only("failed"), 0.0));
    until_over(&agent, &id).await;
    let agent = host.restart(agent).await;
    assert_eq!(found(&agent).0, only("none"), "the dead are nothing to find");
}

#[tokio::test(start_paused = true)]
async fn recovered_running_task_has_one_started_and_one_received_event() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, service("s")).await;
    until_state(&agent, &id, TaskState::Running).await;
    let before = main_task(&agent, &id);
    let agent = host.restart(agent).await;
    let task = main_task(&agent, &id);
    assert_eq!(task.state, TaskState::Running);
    assert_eq!(events(&task), ["Received", "Task Setup", "Started", "Restored"]);
    assert_eq!((task.main, task.started_at), (before.main, before.started_at));
    assert_eq!(task.state_since, before.state_since, "it ran on all the time");
    assert_eq!(host.world.started(), 1);
    // It is managed as before.
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
    assert_eq!(main_task(&agent, &id).last_exit().unwrap().outcome, Outcome::Killed);
}

#[tokio::test(start_paused = true)]
async fn an_end_while_no_agent_was_there_is_processed_as_usual() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, batch("b", 5_000, 0)).await;
    until_state(&agent, &id, TaskState::Running).await;
    agent.shutdown();
    until("ended alone", || host.world.living() == 0).await;
    let ended = tokio::time::Instant::now();
    tokio::time::sleep(Duration::from_secs(100)).await;
    let agent = host.start().await;
    assert_eq!(until_over(&agent, &id).await, AllocState::Complete);
    let task = main_task(&agent, &id);
    assert_eq!(events(&task), ["Received", "Task Setup", "Started", "Terminated"]);
    let exit = task.last_exit().unwrap();
    assert_eq!(exit.finished_at.since(exit.started_at.unwrap()).as_duration(), Duration::from_secs(5));
    assert!(ended.elapsed() >= Duration::from_secs(100));
    assert_eq!(totals(&agent, "b").exits, [1, 0, 0, 0, 0, 0]);
    until("cleared", || host.world.undestroyed() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_prepared_task_that_never_started_is_started() {
    let host = TestHost::new();
    let agent = host.start().await;
    let tasks = [("main", json!({ "start_ms": 1_000, "run_ms": 5 }))];
    let id = submit(&agent, job("b", JobKind::Batch, &tasks)).await;
    // Only the record of the submission exists.
    let prepared = |value: &[u8]| String::from_utf8_lossy(value).contains("run_dir");
    until("prepared", || host.store.scan("task/").unwrap().iter().any(|(_, value)| prepared(value))).await;
    // Kills the driver's start too: it had no effect.
    let started_at = tokio::time::Instant::now();
    let agent = host.restart(agent).await;
    assert!(status_of(&agent, &id).recovering.is_empty(), "it is known that it never started");
    assert!(
        started_at.elapsed() < Duration::from_millis(500),
        "and nothing waits for its start: {:?}",
        started_at.elapsed()
    );
    assert_eq!(until_over(&agent, &id).await, AllocState::Complete);
    assert_eq!(main_task(&agent, &id).event_counts["received"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_submitted_alloc_that_was_never_begun_is_begun() {
    let host = TestHost::new();
    let agent = host.start().await;
    host.faults.fail_after(1);
    let id = submit(&agent, batch("b", 5, 0)).await;
    until_state(&agent, &id, TaskState::Starting).await;
    host.faults.fail_writes(false);
    let agent = host.restart(agent).await;
    assert_eq!(until_over(&agent, &id).await, AllocState::Complete);
    assert_eq!(host.world.started(), 1);
}

/// Promise (Task groups and lifecycle order): P-12.3 Restart trackers with their backoff, and a new version waiting for
/// the previous one, continue too
#[tokio::test(start_paused = true)]
async fn crash_loop_backoff_continues_after_an_agent_restart() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, batch("b", 5, 1)).await;
    until_state(&agent, &id, TaskState::Backoff).await;
    let planned = main_task(&agent, &id).next_start_at;
    let mut agent = host.restart(agent).await;
    assert_eq!(main_task(&agent, &id).next_start_at, planned);
    for attempt in 1..3 {
        until("next attempt", || {
            let task = main_task(&agent, &id);
            task.attempt == attempt && task.state != TaskState::Starting
        })
        .await;
        agent = host.restart(agent).await;
    }
    assert_eq!(until_over(&agent, &id).await, AllocState::Failed);
    let task = main_task(&agent, &id);
    assert_eq!((task.restarts_total(), host.world.started()), (2, 3));
    assert_eq!(task.base.cpu_usage_ns(), Some(3_000_000_000));
    assert_eq!(totals(&agent, "b").exits[Outcome::Error.index()], 3);
}

#[tokio::test(start_paused = true)]
async fn an_ended_alloc_is_shown_as_it_ended_and_nothing_is_counted_twice() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, batch("b", 5, 0)).await;
    until_over(&agent, &id).await;
    let (before, totals_before) = (status_of(&agent, &id).clone(), totals(&agent, "b"));
    let run_before = agent.board().view().totals.alloc_run.clone();
    let agent = host.restart(agent).await;
    let after = status_of(&agent, &id);
    assert_eq!((&after.tasks, after.state, after.finished_at), (&before.tasks, before.state, before.finished_at));
    assert_eq!(totals(&agent, "b"), totals_before);
    assert_eq!(agent.board().view().totals.alloc_run, run_before);
    assert_eq!(agent.board().view().totals.node.allocs, 1);
    assert_eq!(host.world.started(), 1);
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn stop_continues_after_an_agent_restart() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, job("s", JobKind::Service, &[("main", json!({ "deaf": 1 }))])).await;
    until_state(&agent, &id, TaskState::Running).await;
    agent.stop(&id, Wait::No).await.unwrap();
    until_state(&agent, &id, TaskState::Killing).await;
    let agent = host.restart(agent).await;
    until_over(&agent, &id).await;
    assert_eq!(main_task(&agent, &id).last_exit().unwrap().outcome, Outcome::Killed);
    assert_eq!(host.world.living(), 0);
}

#[tokio::test(start_paused = true)]
async fn unrecoverable_task_is_abandoned_with_an_error_and_not_started_twice() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, service("s")).await;
    until_state(&agent, &id, TaskState::Running).await;
    *host.world.recover_error.lock().unwrap() = Some("its record is damaged".to_owned());
    let agent = host.restart(agent).await;
    assert_eq!(until_over(&agent, &id).await, AllocState::Failed);
    let task = main_task(&agent, &id);
    assert_eq!(task.event_counts[EventKind::FailedRestore.label()], 1);
    assert_eq!(task.last_exit().unwrap().outcome, Outcome::Unknown);
    assert!(matches!(&task.last_exit().unwrap().status, ExitStatus::Unknown(e) if e.contains("damaged")));
    assert_eq!((host.world.started(), totals(&agent, "s").abandoned), (1, 1));
    // As soon as it is found it is killed: its record is all that names it.
    assert_eq!(host.world.living(), 1);
    *host.world.recover_error.lock().unwrap() = None;
    until("ended", || host.world.living() == 0).await;
    until("removed", || host.world.undestroyed() == 0).await;
    until("forgotten", || agent.0.alloc(&id).unwrap().handle(0).is_none()).await;
    let agent = host.restart(agent).await;
    assert!(agent.0.alloc(&id).unwrap().handle(0).is_none(), "which is on record");
    assert_eq!((host.world.started(), totals(&agent, "s").abandoned), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_task_that_ended_beside_a_living_one_runs_again_with_its_whole_alloc_alone() {
    let host = TestHost::new();
    let agent = host.start().await;
    let tasks = [("short", json!({ "run_ms": 5 })), ("long", json!({}))];
    let id = submit(&agent, job("b", JobKind::Batch, &tasks)).await;
    let states = |agent: &Handle| status_of(agent, &id).tasks.iter().map(|t| t.state).collect::<Vec<_>>();
    let half = [TaskState::Dead, TaskState::Running];
    until("one to have ended", || states(&agent) == half).await;
    let before = main_task(&agent, &id);
    let agent = host.restart(agent).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!((states(&agent), main_task(&agent, &id), host.world.started()), (half.to_vec(), before, 2));
    agent.restart(&id, crate::runner::RestartTarget::All).await.unwrap();
    until("both to have started again", || host.world.started() == 4).await;
}

fn spoil(host: &TestHost, prefix: &str) -> String {
    let key = host.store.scan(prefix).unwrap()[0].0.clone();
    let mut batch = crate::store::Batch::default();
    batch.put(key.clone(), b"{\"half".to_vec());
    host.store.commit(&batch).unwrap();
    key
}

/// Promise (Task groups and lifecycle order): P-12.4, P-12.5 One bad record is set aside and listed; no counter falls
/// over a restart
#[tokio::test(start_paused = true)]
async fn bad_record_is_quarantined_and_blocks_nothing() {
    for prefix in ["alloc/", "job/bad/"] {
        let host = TestHost::new();
        let agent = host.start().await;
        let bad = submit(&agent, service("bad")).await;
        until_state(&agent, &bad, TaskState::Running).await;
        let key = spoil(&host, prefix);
        let good = submit(&agent, service("good")).await;
        until_state(&agent, &good, TaskState::Running).await;
        let agent = host.restart(agent).await;
        assert_eq!(main_task(&agent, &good).state, TaskState::Running);
        assert!(agent.board().get(&bad).is_none());
        assert_eq!(host.store.get(&key).unwrap(), None);
        assert!(host.store.get(&format!("quarantine/{key}")).unwrap().is_some());
        assert!(host.store.get(&format!("quarantine/task/{bad}/main")).unwrap().is_some());
        let quarantined = agent.quarantined();
        assert!(quarantined.contains(&key) && quarantined.contains(&format!("task/{bad}/main")), "{quarantined:?}");
        assert_eq!(found(&agent).1, if prefix == "alloc/" { 2.0 } else { 3.0 }, "and counted: {quarantined:?}");
        assert_eq!(host.world.living(), 2, "what it reported is left alone");
    }
}

#[tokio::test(start_paused = true)]
async fn task_with_a_bad_record_is_not_started_twice() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, service("s")).await;
    until_state(&agent, &id, TaskState::Running).await;
    agent.shutdown();
    drop(agent);
    spoil(&host, "task/");
    // Nothing of it is left that would show its state: remains are tested in `orphans`.
    let removed = std::mem::take(&mut *host.world.processes.lock().unwrap());
    // Once it is quarantined, after a death of the agent before the consequences were written.
    host.faults.fail_after(2);
    let agent = host.start().await;
    host.faults.fail_writes(false);
    let agent = host.restart(agent).await;
    assert_eq!(until_over(&agent, &id).await, AllocState::Failed);
    assert_eq!((removed.len(), host.world.started()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_newer_schema_is_refused_and_left_as_it_is() {
    let host = TestHost::new();
    let mut batch = crate::store::Batch::default();
    batch.put("meta/version", b"3".to_vec());
    host.store.commit(&batch).unwrap();
    let parts = host.parts();
    let error = Handle::start(parts).await.err().unwrap();
    assert!(matches!(error, RestoreError::Schema { .. }), "{error}");
    assert_eq!(host.store.get("meta/version").unwrap().as_deref(), Some(b"3".as_slice()));
}

#[tokio::test(start_paused = true)]
async fn a_replacement_still_waits_for_its_predecessor_after_a_restart() {
    let host = TestHost::new();
    let agent = host.start().await;
    let old = submit(&agent, job("s", JobKind::Service, &[("main", json!({ "deaf": 1 }))])).await;
    until_state(&agent, &old, TaskState::Running).await;
    let new = submit(&agent, service("s")).await;
    let agent = host.restart(agent).await;
    assert_eq!(main_task(&agent, &new).state, TaskState::Pending);
    assert!(matches!(agent.submit(service("s")).await, Err(RunnerError::Unchanged { .. })));
    until_state(&agent, &new, TaskState::Running).await;
    assert_eq!((main_task(&agent, &old).state, host.world.living()), (TaskState::Dead, 1));
}

#[tokio::test(start_paused = true)]
async fn events_go_on_with_higher_numbers() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, service("s")).await;
    until_state(&agent, &id, TaskState::Running).await;
    let last = agent.events().since(0, 100).newest;
    let agent = host.restart(agent).await;
    let page = agent.events().since(last, 100);
    assert_eq!(page.missed, 0);
    assert!(page.events.iter().any(|e| e.kind == EventKind::Restored));
    assert!(page.events.iter().all(|e| e.seq > last));
}

fn set_finished(host: &TestHost, id: &AllocId, change: impl FnOnce(&mut serde_json::Value)) {
    let key = format!("alloc/{id}");
    let mut record: Value = serde_json::from_slice(&host.store.get(&key).unwrap().unwrap()).unwrap();
    change(&mut record["finished"]);
    let mut batch = crate::store::Batch::default();
    batch.put(key, serde_json::to_vec(&record).unwrap());
    host.store.commit(&batch).unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_end_that_was_lost_is_put_together_from_the_tasks() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, batch("b", 5, 1)).await;
    until_over(&agent, &id).await;
    let before = status_of(&agent, &id).finished_at;
    agent.shutdown();
    set_finished(&host, &id, |finished| *finished = Value::Null);
    let agent = host.start().await;
    assert_eq!(status_of(&agent, &id).finished_at, before);
    assert_eq!(agent.board().view().totals.node.allocs, 1);
}

#[tokio::test(start_paused = true)]
async fn an_end_that_a_task_outlived_is_not_taken() {
    let host = TestHost::new();
    let agent = host.start().await;
    let ended = submit(&agent, batch("b", 5, 0)).await;
    until_over(&agent, &ended).await;
    let id = submit(&agent, service("s")).await;
    until_state(&agent, &id, TaskState::Running).await;
    agent.shutdown();
    let record: Value = serde_json::from_slice(&host.store.get(&format!("alloc/{ended}")).unwrap().unwrap()).unwrap();
    set_finished(&host, &id, |finished| *finished = record["finished"].clone());
    let agent = host.start().await;
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
    let finished = status_of(&agent, &id).finished_at.unwrap();
    assert!(Some(finished) >= main_task(&agent, &id).finished_at, "it ended when its task did");
}

/// A readable record with the directory of another task, for whatever reason: nothing there is touched.
///
/// Promise (Durability and recovery): A record that names a directory of another attempt is not trusted: nothing there
/// is touched
#[tokio::test(start_paused = true)]
async fn record_with_another_tasks_directory_is_refused() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, service("s")).await;
    until_state(&agent, &id, TaskState::Running).await;
    agent.shutdown();
    drop(agent);
    tokio::task::yield_now().await;
    let elsewhere = tempfile::tempdir().unwrap();
    std::fs::write(elsewhere.path().join("precious"), "data").unwrap();
    let (key, value) = host.store.scan("task/").unwrap().into_iter().next().unwrap();
    let mut record: crate::runner::persistence::record::TaskRecord = serde_json::from_slice(&value).unwrap();
    record.handle.as_mut().unwrap().run_dir = elsewhere.path().to_owned();
    let mut batch = crate::store::Batch::default();
    crate::runner::persistence::record::put(&mut batch, key, &record);
    host.store.commit(&batch).unwrap();
    let agent = host.start().await;
    assert_eq!(until_over(&agent, &id).await, AllocState::Failed);
    let task = main_task(&agent, &id);
    let found = task.events.iter().find(|e| e.kind == crate::model::event::EventKind::FailedRestore).unwrap();
    assert!(found.details["error"].contains("not its own"), "{found:?}");
    assert!(elsewhere.path().join("precious").exists());
    assert_eq!((host.world.started(), host.world.last().signals.lock().unwrap().len()), (1, 0));
}

/// All records of the agent before hooks existed, as it left them when it was killed: one alloc had ended, one ran, the
/// one before them was collected.
#[tokio::test(start_paused = true)]
async fn state_records_of_the_agent_before_hooks_are_restored_completely() {
    let host = TestHost::new();
    let mut batch = crate::store::Batch::default();
    for record in include_str!("records/state-before-hooks.txt").lines() {
        let (key, value) = record.split_once(' ').unwrap();
        batch.put(key, value.replace("/var/lib/allostat", host.data_dir.root().to_str().unwrap()).into_bytes());
    }
    host.store.commit(&batch).unwrap();
    let mut parts = host.parts();
    let driver = Arc::clone(&parts.drivers["fake"]);
    parts.drivers.insert("raw_exec", driver);
    let agent = Handle::start(parts).await.unwrap();
    assert!(agent.quarantined().is_empty(), "{:?}", agent.quarantined());
    let allocs: Vec<AllocId> = agent.board().view().allocs.iter().map(|a| a.identity.id.clone()).collect();
    let [retained, runs] = allocs.as_slice() else { panic!("{allocs:?}") };

    let retained = status_of(&agent, retained);
    assert_eq!(retained.state, AllocState::Failed);
    let [crashed, side] = retained.tasks.as_slice() else { panic!("{:?}", retained.tasks) };
    assert_eq!((crashed.failed, crashed.restarts, crashed.exit_counts), (true, [1, 0, 0, 0], [0, 2, 0, 0, 0, 0]));
    assert_eq!((crashed.base.cpu_usage_ns(), crashed.exits.len()), (Some(3_097_372), 2));
    assert_eq!(
        (side.failed, side.exit_counts[Outcome::Killed.index()], side.event_counts["sibling_failed"]),
        (false, 1, 1)
    );
    let removed = Arc::clone(&agent.board().view().totals.workloads[&("gone".into(), "short".into())]);
    assert_eq!((removed.exits[0], removed.usage.cpu_usage_ns()), (1, Some(1_638_339)));

    // It is not found here: its driver never had it.
    until_over(&agent, runs).await;
    let serve = main_task(&agent, runs);
    assert_eq!((serve.exit_counts, serve.event_counts["started"]), ([0, 0, 0, 0, 0, 1], 1));
    assert_eq!(host.world.started(), 0, "nothing starts twice");
}

/// Adds an unknown field to each object with fields; maps with free keys have none.
fn with_unknown_fields(value: &mut serde_json::Value, name: &str) {
    const MAPS: [&str; 10] =
        ["config", "details", "env", "event_counts", "exit_codes", "exit_signals", "hooks", "kinds", "meta", "tasks"];
    match value {
        serde_json::Value::Object(fields) => {
            fields.iter_mut().for_each(|(name, value)| with_unknown_fields(value, name));
            let counts_by_name = name == "events" && fields.values().all(serde_json::Value::is_number);
            // Objects without own fields: a duration, and variants with data.
            let of_serde = fields.contains_key("secs") || (matches!(name, "status" | "cause") && fields.len() == 1);
            if !MAPS.contains(&name) && !counts_by_name && !of_serde {
                fields.insert("no_such_field".to_owned(), serde_json::json!({ "deep": [1, null, "x"] }));
            }
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(|item| with_unknown_fields(item, name)),
        _ => {}
    }
}

/// After a rollback: records of a newer agent have unknown fields, kinds of events and reasons of restarts.
///
/// Promise (Durability and recovery): A record of a newer agent keeps its counters: unknown fields are left out
#[tokio::test(start_paused = true)]
async fn state_records_of_a_newer_agent_are_read_without_loss_of_counters() {
    let host = TestHost::new();
    let mut batch = crate::store::Batch::default();
    let mut changed = 0;
    for record in include_str!("records/state-before-hooks.txt").lines() {
        let (key, value) = record.split_once(' ').unwrap();
        let value = value.replace("/var/lib/allostat", host.data_dir.root().to_str().unwrap());
        let mut value: serde_json::Value = serde_json::from_str(&value).unwrap();
        if value.is_object() {
            with_unknown_fields(&mut value, "");
            changed += value.to_string().matches("no_such_field").count();
        }
        if key.starts_with("task/") {
            let events = value.pointer_mut("/status/events").unwrap().as_array_mut().unwrap();
            let mut unheard_of = events[0].clone();
            unheard_of["kind"] = "Driver Moved".into();
            events.insert(1, unheard_of);
            value.pointer_mut("/status/restarts").unwrap().as_array_mut().unwrap().resize(7, 0.into());
        }
        batch.put(key, value.to_string().into_bytes());
    }
    assert!(changed > 60, "{changed}");
    host.store.commit(&batch).unwrap();
    let mut parts = host.parts();
    let driver = Arc::clone(&parts.drivers["fake"]);
    parts.drivers.insert("raw_exec", driver);
    let agent = Handle::start(parts).await.unwrap();
    assert!(agent.quarantined().is_empty(), "{:?}", agent.quarantined());
    let view = agent.board().view();
    assert_eq!(view.allocs.len(), 2);
    let crashed = Arc::clone(&lifecycle(&view.allocs[0]).tasks[0]);
    assert_eq!((crashed.exit_counts[1], crashed.base.cpu_usage_ns()), (2, Some(3_097_372)));
    assert!(!crashed.events.is_empty() && crashed.events.iter().all(|e| e.kind.text() != "Driver Moved"));
    let removed = &view.totals.workloads[&("gone".into(), "short".into())];
    assert_eq!((removed.exits[0], removed.usage.cpu_usage_ns()), (1, Some(1_638_339)));
}
