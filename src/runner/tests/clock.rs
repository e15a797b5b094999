//! The wall clock is set by a day, forward and back, under a running agent and between two agents.

use serde_json::json;

use super::shown::{all_events, none_fell, seen_at};
use super::*;
use crate::host::clock::Clock;
use crate::model::units::{Nanos, Steady, Timestamp};
use crate::runner::{GcScope, Wait};

const DAY: i64 = 86_400;

/// One task runs, one is in backoff (10 s and jitter), one ignores its kill signal (5 s).
#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_makes_no_wait_shorter_or_longer_and_no_counter_falls() {
    for day in [DAY, -DAY] {
        let host = TestHost::new();
        let agent = host.start().await;
        let seen = |agent: &Handle| seen_at(agent, host.clock.now());
        let runs = submit(&agent, service("runs")).await;
        let deaf = submit(&agent, job("deaf", JobKind::Service, &[("main", json!({ "deaf": 1 }))])).await;
        let fails = submit(&agent, batch("fails", 5, 1)).await;
        until_state(&agent, &runs, TaskState::Running).await;
        until_state(&agent, &deaf, TaskState::Running).await;
        until_state(&agent, &fails, TaskState::Backoff).await;
        agent.stop(&deaf, Wait::No).await.unwrap();
        until_state(&agent, &deaf, TaskState::Killing).await;
        let (began, before) = (tokio::time::Instant::now(), seen(&agent));

        host.clock.jump(day);
        until_over(&agent, &deaf).await;
        let grace = began.elapsed();
        assert!((4..7).contains(&grace.as_secs()), "{day}: its grace was {grace:?}");
        until("the next attempt", || main_task(&agent, &fails).attempt == 1).await;
        let backoff = began.elapsed();
        assert!((9..14).contains(&backoff.as_secs()), "{day}: its backoff was {backoff:?}");
        none_fell(&before, &seen(&agent), "after a jump");

        // Between two agents.
        until_state(&agent, &fails, TaskState::Backoff).await;
        let (began, before) = (tokio::time::Instant::now(), seen(&agent));
        agent.shutdown();
        host.clock.jump(day);
        tokio::time::sleep(Duration::from_secs(3)).await;
        let agent = host.start().await;
        none_fell(&before, &seen(&agent), "after a jump between two agents");
        until("the last attempt", || main_task(&agent, &fails).attempt == 2).await;
        let backoff = began.elapsed();
        assert!((9..14).contains(&backoff.as_secs()), "{day}: its backoff was {backoff:?}");
        assert_eq!(until_over(&agent, &fails).await, AllocState::Failed);
        let task = main_task(&agent, &runs);
        assert_eq!((task.state, task.attempt), (TaskState::Running, 0), "{day}");
        assert_eq!(main_task(&agent, &fails).restarts_total(), 2, "{day}: the interval of its policy forgets nothing");
        let numbers: Vec<u64> = all_events(&agent).iter().map(|event| event.seq).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
        none_fell(&before, &seen(&agent), "at the end");
        agent.stop(&runs, Wait::UntilEnded).await.unwrap();
    }
}

/// Set within the alloc's first half minute, and while no agent runs.
#[tokio::test(start_paused = true)]
async fn alloc_time_limit_ignores_wall_clock_steps() {
    for day in [DAY, -DAY] {
        let host = TestHost::new();
        let agent = host.start().await;
        let began = tokio::time::Instant::now();
        let mut limited = service("limited");
        limited.groups[0].max_run_duration = Some(Duration::from_secs(120));
        let id = submit(&agent, limited).await;
        until_state(&agent, &id, TaskState::Running).await;
        host.clock.jump(day);
        tokio::time::sleep(Duration::from_secs(40)).await;
        assert_eq!(main_task(&agent, &id).state, TaskState::Running, "{day}");
        agent.shutdown();
        host.clock.jump(day);
        let agent = host.start().await;
        assert_eq!(until_over(&agent, &id).await, AllocState::Complete);
        let lived = began.elapsed().as_secs();
        assert!((119..125).contains(&lived), "{day}: it lived for {lived} s");
        let ran: Vec<Nanos> = agent.board().view().totals.alloc_run.values().flatten().copied().collect();
        let ran = ran.iter().map(|ran| ran.0 / 1_000_000_000).sum::<u64>();
        assert!((119..125).contains(&ran), "{day}: it is said to have run for {ran} s");
    }
}

/// If nothing else kept running, the wall clock determines how long the host was down.
///
/// Promise (Durability and recovery): Between boots the wall clock counts; a stop does not wait for a clock that was
/// set back
#[tokio::test(start_paused = true)]
async fn from_one_boot_to_the_next_the_wall_clock_counts() {
    for set in [0, DAY, -DAY] {
        let host = TestHost::new();
        let agent = host.start().await;
        let mut limited = service("limited");
        limited.groups[0].max_run_duration = Some(Duration::from_secs(2 * 3600));
        limited.groups[0].tasks[0].config = json!({ "start_ms": 10_000_000 }).as_object().unwrap().clone();
        let id = submit(&agent, limited).await;
        // Noticed and recorded within a minute.
        host.clock.jump(set);
        tokio::time::sleep(Duration::from_secs(90)).await;
        agent.shutdown();
        host.clock.boot();
        host.clock.jump(3600);
        let next = |boot: &str| {
            let mut parts = host.parts();
            parts.node.boot_id = BootId(boot.to_owned());
            Handle::start(parts)
        };
        let agent = next("next").await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!status_of(&agent, &id).is_terminal(), "{set}: an hour of two is over");
        agent.shutdown();
        host.clock.boot();
        host.clock.jump(3600);
        let agent = next("the one after").await.unwrap();
        assert_eq!(until_over(&agent, &id).await, AllocState::Complete, "{set}");
    }
}

/// Collected by age, and retired a day after the last end: days that did not pass do not count.
#[tokio::test(start_paused = true)]
async fn wall_clock_step_collects_and_retires_nothing() {
    let mut host = TestHost::new();
    host.config.gc.max_age = Some(Duration::from_secs(3600));
    let agent = host.start().await;
    let (id, job) = (submit(&agent, batch("done", 5, 0)).await, ("done".into(), "main".into()));
    until_over(&agent, &id).await;
    agent.collectable([id.clone()]);
    host.clock.jump(2 * DAY);
    agent.collect(GcScope::Limits).await.unwrap();
    assert!(agent.board().get(&id).is_some(), "no hour has gone by");
    tokio::time::sleep(Duration::from_secs(3700)).await;
    agent.collect(GcScope::Limits).await.unwrap();
    assert!(agent.board().get(&id).is_none());
    assert!(agent.board().view().totals.workloads.contains_key(&job), "no day has gone by");
    tokio::time::sleep(Duration::from_secs(25 * 3600)).await;
    agent.collect(GcScope::Limits).await.unwrap();
    assert!(!agent.board().view().totals.workloads.contains_key(&job));
}

/// All records of the first agent with a boot clock, as it left them when it was killed: a day ahead, with one alloc
/// with a time limit, one in backoff, one being stopped, one being restarted, one ended.
///
/// Promise (Durability and recovery): Recorded times are read by the next version, and so is the wall clock that
/// earlier ones recorded
#[tokio::test(start_paused = true)]
async fn state_records_of_the_first_boot_clock_agent_are_read_and_rewritten_equal() {
    use crate::runner::persistence::record::{AllocRecord, TaskRecord};
    use crate::runner::persistence::steady_clock::SteadyClockRecord;

    let host = TestHost::new();
    let mut batch = crate::store::Batch::default();
    let (mut allocs, mut tasks) = (BTreeMap::new(), BTreeMap::new());
    for record in include_str!("records/state-with-line.txt").lines() {
        let (key, value) = record.split_once(' ').unwrap();
        let json: Value = serde_json::from_str(value).unwrap();
        match key.split('/').next().unwrap() {
            "clock" => {
                let line: SteadyClockRecord = serde_json::from_str(value).unwrap();
                assert_eq!(line.ahead_ns, DAY * 1_000_000_000);
                assert_eq!(serde_json::to_value(&line).unwrap(), json);
            }
            "alloc" => {
                let alloc: AllocRecord = serde_json::from_str(value).unwrap();
                assert_eq!(serde_json::to_value(&alloc).unwrap(), json);
                allocs.insert(alloc.job.to_string(), alloc);
            }
            "task" => {
                let task: TaskRecord = serde_json::from_str(value).unwrap();
                assert_eq!(serde_json::to_value(&task).unwrap(), json);
                tasks.insert(key.to_owned(), task);
            }
            _ => {}
        }
        batch.put(key, value.replace("/var/lib/allostat", host.data_dir.root().to_str().unwrap()).into_bytes());
    }
    let of = |job: &str| &tasks[&format!("task/{}/main", allocs[job].id)];
    let days = |line: Steady, wall: Timestamp| (wall.0 - line.0) / 1_000_000_000 / DAY.unsigned_abs();
    for alloc in allocs.values() {
        assert_eq!(days(alloc.began.unwrap(), alloc.created_at), 1, "{alloc:?}");
    }
    let finished = allocs["done"].finished.as_ref().unwrap();
    assert_eq!(days(finished.ended.unwrap(), finished.at), 1);
    assert!(allocs["stopping"].stop_requested_at.is_some() && of("stopping").kill.unwrap().signalled_at.is_some());
    assert!(of("restarting").restart.unwrap().signalled_at.is_some());
    let (backoff, over) = (of("fails").backoff.unwrap(), of("fails").status.next_start_at.unwrap());
    assert_eq!(days(backoff.since.plus(backoff.delay), over), 1);

    host.store.commit(&batch).unwrap();
    let agent = host.start().await;
    assert!(agent.quarantined().is_empty(), "{:?}", agent.quarantined());
    let (fails, began) = (allocs["fails"].id.clone(), tokio::time::Instant::now());
    until("its next attempt", || main_task(&agent, &fails).attempt == 1).await;
    assert!(began.elapsed() < Duration::from_secs(14), "{:?}", began.elapsed());
}
