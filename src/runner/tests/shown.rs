//! Shown values survive any death of the agent: counters, times in states, events with their numbers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::*;
use crate::host::clock::Clock;
use crate::model::event::{Event, EventKind};
use crate::model::units::{Nanos, Timestamp};
use crate::runner::Wait;
use crate::store::{Batch, StoreError};

/// All counters as a scraper and a reader of events see them, by name.
fn seen(agent: &Handle) -> BTreeMap<String, u64> {
    seen_at(agent, TokioClock.now())
}
pub(super) fn seen_at(agent: &Handle, now: Timestamp) -> BTreeMap<String, u64> {
    // In the order of the sampler: first the time, then the marks, then the dwells.
    let now = now.max(agent.board().marked());
    let view = agent.board().view();
    agent.board().mark(now);
    let mut seen = BTreeMap::new();
    for alloc in &view.allocs {
        for (task, until) in lifecycle(alloc).tasks.iter().zip(&alloc.until) {
            for state in TaskState::ALL {
                let present = if task.state == state { now.min(until.get()).since(task.state_since) } else { Nanos(0) };
                let whole = task.time_in_state[state.index()].saturating_add(present).0;
                seen.insert(format!("{} {} {}", alloc.identity.id, task.name, state.as_str()), whole);
            }
        }
    }
    for ((job, task), totals) in &view.totals.workloads {
        let mut put = |what: String, n: u64| seen.insert(format!("{job} {task} {what}"), n);
        totals.events.iter().for_each(|(event, n)| _ = put(event.clone(), *n));
        totals.exits.iter().enumerate().for_each(|(at, n)| _ = put(format!("exits {at}"), *n));
        totals.restarts.iter().enumerate().for_each(|(at, n)| _ = put(format!("restarts {at}"), *n));
    }
    seen
}

pub(super) fn none_fell(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>, when: &str) {
    for (name, was) in before {
        let is = after.get(name).copied().unwrap_or(0);
        assert!(is >= *was, "{when}: {name} fell from {was} to {is}");
    }
}

pub(super) fn all_events(agent: &Handle) -> Vec<Arc<Event>> {
    agent.events().since(0, usize::MAX).events
}

/// Runs for a while, repeatedly.
fn looping(ms: u64) -> Job {
    let mut job = batch("loop", ms, 1);
    job.groups[0].tasks[0].restart = RestartPolicy {
        attempts: 1_000_000,
        interval: Duration::from_secs(86_400),
        delay: Duration::from_millis(20),
        mode: RestartMode::Delay,
    };
    job
}

/// The agent dies at once, with all owners.
async fn killed(host: &TestHost, agent: Handle) -> Handle {
    host.restart(agent).await
}

#[tokio::test(start_paused = true)]
async fn no_counter_falls_and_no_event_changes_whenever_the_agent_is_killed() {
    for seed in 0..16_u64 {
        let host = TestHost::new();
        let mut agent = host.start().await;
        let quiet = submit(&agent, service("quiet")).await;
        submit(&agent, looping(17 + seed)).await;
        let tasks = [("main", json!({ "start_ms": 20, "deaf": 1 }))];
        let slow = submit(&agent, job("slow", JobKind::Service, &tasks)).await;
        let mut known: BTreeMap<u64, Arc<Event>> = BTreeMap::new();
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for round in 0..8 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let gap = if round % 2 == 0 { random % 25 } else { random % 250 };
            let mut before = BTreeMap::new();
            // Every value that was shown at any moment counts, not only the last one.
            for ms in 0..gap {
                tokio::time::sleep(Duration::from_millis(1)).await;
                let now = seen(&agent);
                none_fell(&before, &now, &format!("seed {seed}, round {round}, {ms} ms"));
                before = now;
            }
            if random % 3 == 0 {
                let _ = agent.signal(&quiet, None, "SIGHUP").await;
            }
            if round == 5 {
                agent.stop(&slow, Wait::No).await.unwrap();
            }
            let events = all_events(&agent);
            agent = killed(&host, agent).await;
            let when = format!("seed {seed}, round {round}");
            none_fell(&before, &seen(&agent), &when);
            for event in events {
                known.insert(event.seq, event);
            }
            for event in all_events(&agent) {
                if let Some(before) = known.insert(event.seq, Arc::clone(&event)) {
                    assert_eq!(before, event, "{when}: the same number, another event");
                }
            }
            tokio::time::sleep(Duration::from_millis(random % 7)).await;
            none_fell(&before, &seen(&agent), &when);
        }
        let of = |alloc: &AllocId, kind| {
            known.values().filter(|e| e.alloc_id.as_ref() == Some(alloc) && e.kind == kind).count()
        };
        assert_eq!((of(&quiet, EventKind::Received), of(&quiet, EventKind::Started)), (1, 1), "seed {seed}");
        for task in agent.board().view().allocs.iter().flat_map(|a| lifecycle(a).tasks.clone()) {
            let seqs: Vec<_> = task.events.iter().map(|e| (e.seq, e.task_seq)).collect();
            assert!(seqs.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1), "seed {seed}: {seqs:?}");
            assert!(task.events.iter().is_sorted_by_key(|e| e.time), "seed {seed}: {:?}", task.events);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_ran_on_without_the_agent_was_running_all_the_time() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, service("s")).await;
    until_state(&agent, &id, TaskState::Running).await;
    let since = main_task(&agent, &id).state_since;
    let events_before = main_task(&agent, &id).events.clone();
    agent.shutdown();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let agent = host.start().await;
    let task = main_task(&agent, &id);
    assert_eq!((task.state, task.state_since), (TaskState::Running, since));
    assert_eq!(
        task.events.iter().take(events_before.len()).collect::<Vec<_>>(),
        events_before.iter().collect::<Vec<_>>()
    );
    assert_eq!(events(&task), ["Received", "Task Setup", "Started", "Restored"]);
}

#[tokio::test(start_paused = true)]
async fn unobserved_end_counts_from_the_recovery_on() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, batch("b", 5_000, 0)).await;
    until_state(&agent, &id, TaskState::Running).await;
    agent.shutdown();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let agent = host.start().await;
    assert_eq!(main_task(&agent, &id).base.cpu_usage_ns(), Some(1_000_000_000), "it was shown while it ran");
    assert_eq!(totals(&agent, "b").exits, [1, 0, 0, 0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn unobserved_end_ends_the_running_time_at_its_own_time() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, batch("b", 5_000, 0)).await;
    until_state(&agent, &id, TaskState::Running).await;
    agent.shutdown();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let agent = host.start().await;
    until_over(&agent, &id).await;
    let running = main_task(&agent, &id).time_in_state[TaskState::Running.index()].as_duration();
    assert!(running <= Duration::from_millis(5_001), "{running:?}");
}

/// Blocks each commit while `closed`.
struct GatedStore {
    inner: MemoryStore,
    closed: AtomicBool,
}
impl Store for GatedStore {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.get(key)
    }
    fn scan(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.inner.scan(prefix)
    }
    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        while self.closed.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.inner.commit(batch)
    }
    fn size_bytes(&self) -> Option<u64> {
        None
    }
}

/// On real time: the journal's thread has no other.
///
/// Promise (Durability and recovery): Nothing of a task is exposed before its record is durable; a bad disk hides no
/// task
#[tokio::test]
async fn unwritten_change_is_not_shown_and_a_hanging_disk_delays_nothing() {
    let host = TestHost::new();
    let store = Arc::new(GatedStore { inner: MemoryStore::default(), closed: AtomicBool::new(false) });
    let mut parts = host.parts();
    parts.journal = Journal::start(store.clone(), Arc::clone(&parts.metrics)).unwrap();
    let agent = Handle::start(parts).await.unwrap();
    let id = submit(&agent, service("s")).await;
    until_state(&agent, &id, TaskState::Running).await;
    let started = |agent: &Handle| totals(agent, "s").events.get("signaling").copied().unwrap_or(0);
    store.closed.store(true, Ordering::SeqCst);
    let signal = async { agent.signal(&id, None, "SIGHUP").await.unwrap() };
    let check = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let early = (started(&agent), all_events(&agent).len());
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        let late = (started(&agent), all_events(&agent).len());
        store.closed.store(false, Ordering::SeqCst);
        assert_eq!((early, late), ((0, 3), (1, 4)));
    };
    tokio::join!(signal, check);
    agent.shutdown();
}

/// Promise (Durability and recovery): A clock that is set back takes nothing from the times in states
/// Promise (Durability and recovery): A wall clock set by a day changes no limit, delay or grace, collects nothing
/// early, and moves no event
#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_back_takes_nothing_from_what_was_shown() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, service("s")).await;
    until_state(&agent, &id, TaskState::Running).await;
    // Snapshots had counted up to an hour ahead when the clock was set back.
    let shown = TokioClock.now().plus(Nanos::from_duration(Duration::from_secs(3600)));
    agent.board().mark(shown);
    let before = seen(&agent);
    let agent = killed(&host, agent).await;
    assert_eq!(agent.board().marked(), shown);
    none_fell(&before, &seen(&agent), "after the restart");
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
    none_fell(&before, &seen(&agent), "after its end");
}

#[tokio::test(start_paused = true)]
async fn a_number_that_was_seen_is_never_given_again_even_if_its_alloc_was_forgotten() {
    let mut host = TestHost::new();
    host.config.gc.max_terminal = 0;
    let agent = host.start().await;
    let id = submit(&agent, batch("b", 5, 0)).await;
    until_over(&agent, &id).await;
    let last = agent.events().since(0, 100).newest;
    until("tidy", || {
        agent.collectable([id.clone()]);
        agent.board().get(&id).is_none()
    })
    .await;
    let agent = killed(&host, agent).await;
    let page = agent.events().since(1, 100);
    assert_eq!((page.events.len(), page.missed, page.newest), (0, last - 1, last));
    submit(&agent, service("s")).await;
    assert_eq!(agent.events().since(last, 100).events[0].seq, last + 1);
}

/// Promise (Durability and recovery): A refused submit that reached the disk does not become active, and stops nothing
#[tokio::test(start_paused = true)]
async fn a_refused_submit_that_reached_the_disk_does_not_come_alive() {
    let host = TestHost::new();
    let agent = host.start().await;
    let old = submit(&agent, service("s")).await;
    until_state(&agent, &old, TaskState::Running).await;
    host.faults.write_and_fail(true);
    host.faults.fail_writes(true);
    let mut changed = service("s");
    changed.groups[0].count = 3;
    agent.submit(changed).await.unwrap_err();
    agent.submit(service("other")).await.unwrap_err();
    assert!(host.store.scan("alloc/").unwrap().len() > 1, "the disk has them");
    host.faults.fail_writes(false);
    agent.signal(&old, None, "SIGHUP").await.unwrap();
    let agent = killed(&host, agent).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let view = agent.board().view();
    assert_eq!(view.allocs.iter().map(|a| &a.identity.id).collect::<Vec<_>>(), [&old]);
    assert_eq!(main_task(&agent, &old).state, TaskState::Running, "nor is the one stopped that it would have replaced");
    assert_eq!(host.world.started(), 1);
    assert_eq!(host.store.scan("job/").unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn run_directory_of_an_abandoned_task_is_not_cleared_away() {
    let host = TestHost::new();
    let agent = host.start().await;
    let tasks = [("main", json!({ "unkillable": 1, "deaf": 1 })), ("second", json!({}))];
    let id = submit(&agent, job("s", JobKind::Service, &tasks)).await;
    until_state(&agent, &id, TaskState::Running).await;
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
    let dirs: Vec<_> = std::fs::read_dir(host.data_dir.run(&id)).unwrap().map(|d| d.unwrap().file_name()).collect();
    assert_eq!(dirs, ["main"], "the other one's is gone");
}

#[tokio::test(start_paused = true)]
async fn a_start_that_cannot_help_to_be_repeated_is_not() {
    for (recoverable, restarts) in [(true, 2), (false, 0)] {
        let host = TestHost::new();
        let agent = host.start().await;
        let tasks = [("main", json!({ "run_ms": 5, "not_started": u64::from(recoverable) + 1 }))];
        let id = submit(&agent, job("b", JobKind::Batch, &tasks)).await;
        assert_eq!(until_over(&agent, &id).await, AllocState::Failed);
        let task = main_task(&agent, &id);
        assert_eq!((task.restarts_total(), task.exit_counts), (restarts, [0; 6]));
        assert!(task.finished_at > Some(Timestamp(0)));
    }
}
