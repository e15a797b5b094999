//! A failed alloc is replaced as its policy says: once, by one alloc, whatever the agent does meanwhile.

use serde_json::json;

use super::*;
use crate::model::id::JobId;
use crate::model::task::ExitStatus;
use crate::runner::{GcScope, RestartTarget, RunnerError, Wait};

fn policy(attempts: u64, delay: u64, function: DelayFunction, max_delay: u64) -> ReschedulePolicy {
    ReschedulePolicy {
        attempts,
        interval: Duration::from_secs(3_600),
        delay: Duration::from_secs(delay),
        function,
        max_delay: Duration::from_secs(max_delay),
        unlimited: attempts == 0,
    }
}

/// A job of one task that fails after `ms` and is not restarted.
fn failing(policy: ReschedulePolicy, kind: JobKind, ms: u64) -> Job {
    let mut job = job("s", kind, &[("main", json!({ "run_ms": ms, "exit_code": 1 }))]);
    job.groups[0].reschedule = Some(policy);
    job.groups[0].tasks[0].restart.attempts = 0;
    job
}

/// Every known alloc, in the order of creation.
fn known(agent: &Handle) -> Vec<AllocId> {
    let mut all = agent.0.allocs.all();
    all.sort_by_key(|alloc| alloc.serial);
    all.into_iter().map(|alloc| alloc.id.clone()).collect()
}
fn reschedules(agent: &Handle) -> u64 {
    agent.board().view().totals.reschedules.get(&JobId::from("s")).copied().unwrap_or_default()
}
async fn next_of(agent: &Handle, id: &AllocId) -> AllocId {
    until("replaced", || status_of(agent, id).lineage.next.is_some()).await;
    status_of(agent, id).lineage.next.clone().unwrap()
}

#[tokio::test(start_paused = true)]
async fn failed_alloc_is_replaced_by_a_linked_one_after_each_delay() {
    let host = TestHost::new();
    let agent = host.start().await;
    let mut id = submit(&agent, failing(policy(0, 5, DelayFunction::Exponential, 20), JobKind::Service, 1_000)).await;
    let first = id.clone();
    for (attempt, delay) in [(1, 5), (2, 10), (3, 20), (4, 20)] {
        assert_eq!(until_over(&agent, &id).await, AllocState::Failed);
        let failed = status_of(&agent, &id);
        let due = failed.lineage.reschedule_at.expect("it is to be replaced");
        assert_eq!(due.since(failed.finished_at.unwrap()).as_duration(), Duration::from_secs(delay));
        let description = failed.description();
        assert!(description.ends_with(&format!("to be rescheduled (attempt {attempt})")), "{description}");
        until("reported", || main_task(&agent, &id).event_counts.contains("rescheduling")).await;
        let event = main_task(&agent, &id).events.back().unwrap().message.clone();
        assert_eq!(event, format!("rescheduling in {delay}.0s (attempt {attempt})"));
        let next = next_of(&agent, &id).await;
        let (old, new) = (status_of(&agent, &id), status_of(&agent, &next));
        assert_eq!((old.lineage.reschedule_at, old.lineage.next.as_ref()), (None, Some(&next)));
        assert_eq!((new.lineage.previous.as_ref(), new.lineage.reschedules), (Some(&id), attempt));
        assert_eq!((new.group.as_str(), new.index), (old.group.as_str(), old.index));
        let (old, new) = (published(&agent, &id), published(&agent, &next));
        assert_eq!((&old.identity.name, old.identity.id == new.identity.id), (&new.identity.name, false));
        let waited = new.identity.created_at.unwrap().since(due).as_duration();
        assert!(waited < Duration::from_secs(1), "{waited:?} after it was due");
        assert_eq!(reschedules(&agent), attempt);
        let received = main_task(&agent, &next).events.front().unwrap().message.clone();
        assert!(received.contains(&format!("replaces alloc {}", id.short())), "{received}");
        id = next;
    }
    assert_eq!(known(&agent).len(), 5);
    // The links are durable.
    let agent = host.restart(agent).await;
    assert_eq!(next_of(&agent, &first).await, known(&agent)[1]);
    assert_eq!((reschedules(&agent), known(&agent).len()), (4, 5));
}

#[tokio::test(start_paused = true)]
async fn attempts_used_up_leave_it_dead_with_a_reason() {
    let host = TestHost::new();
    let agent = host.start().await;
    let first = submit(&agent, failing(policy(1, 5, DelayFunction::Constant, 0), JobKind::Batch, 10)).await;
    let second = next_of(&agent, &first).await;
    until("reported", || main_task(&agent, &second).event_counts.contains("not_rescheduling")).await;
    let last = status_of(&agent, &second);
    assert!(last.has_failed_for_good() && !status_of(&agent, &first).has_failed_for_good());
    tokio::time::sleep(Duration::from_secs(7_200)).await;
    let agent = host.restart(agent).await;
    tokio::time::sleep(Duration::from_secs(7_200)).await;
    assert_eq!((known(&agent).len(), host.world.started()), (2, 2));
    assert_eq!(main_task(&agent, &second).event_counts["not_rescheduling"], 1, "reported once");
}

#[tokio::test(start_paused = true)]
async fn only_failures_of_jobs_that_are_replaced_are() {
    for kind in [JobKind::System, JobKind::Sysbatch] {
        let host = TestHost::new();
        let agent = host.start().await;
        let id = submit(&agent, failing(policy(0, 5, DelayFunction::Constant, 0), kind, 10)).await;
        assert_eq!(until_over(&agent, &id).await, AllocState::Failed);
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(known(&agent), [id], "{kind:?}");
    }
    let host = TestHost::new();
    let agent = host.start().await;
    let mut done = batch("s", 10, 0);
    done.groups[0].reschedule = Some(policy(0, 5, DelayFunction::Constant, 0));
    let done = submit(&agent, done).await;
    assert_eq!(until_over(&agent, &done).await, AllocState::Complete);
    let stopped = submit(&agent, failing(policy(0, 5, DelayFunction::Constant, 0), JobKind::Service, 100_000)).await;
    until_state(&agent, &stopped, TaskState::Running).await;
    agent.stop(&stopped, Wait::UntilEnded).await.unwrap();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(known(&agent), [done, stopped]);
}

/// Promise (Input validation): A failed alloc is rescheduled once, when due, over a SIGKILL in the delay and a crash at
/// any write
#[tokio::test(start_paused = true)]
async fn agent_that_is_gone_during_the_delay_replaces_once_at_the_same_moment() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, failing(policy(0, 60, DelayFunction::Constant, 0), JobKind::Service, 10)).await;
    until_over(&agent, &id).await;
    let due = status_of(&agent, &id).lineage.reschedule_at;
    let mut agent = agent;
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        agent = host.restart(agent).await;
        assert_eq!(status_of(&agent, &id).lineage.reschedule_at, due, "the agent forgives nothing and adds nothing");
    }
    let next = next_of(&agent, &id).await;
    let created = published(&agent, &next).identity.created_at.unwrap();
    assert!(created.since(due.unwrap()).as_duration() < Duration::from_secs(1));
    assert_eq!(main_task(&agent, &id).event_counts["rescheduling"], 1, "reported once");
    // It becomes due while no agent runs.
    until_over(&agent, &next).await;
    agent.shutdown();
    tokio::time::sleep(Duration::from_secs(600)).await;
    let agent = host.start().await;
    let third = next_of(&agent, &next).await;
    assert_eq!(known(&agent), [id, next, third]);
}

/// Whichever commit is the last one: after the restart there is one alloc for each failure, linked with the one before.
#[tokio::test(start_paused = true)]
async fn crash_after_any_write_reschedules_nothing_twice_and_loses_none() {
    for writes in 0..14 {
        let host = TestHost::new();
        let agent = host.start().await;
        let id = submit(&agent, failing(policy(2, 5, DelayFunction::Constant, 0), JobKind::Batch, 50)).await;
        host.faults.fail_after(writes);
        tokio::time::sleep(Duration::from_secs(7)).await;
        agent.shutdown();
        drop(agent);
        host.faults.fail_writes(false);
        let agent = host.start().await;
        let all = |agent: &Handle| known(agent).iter().map(|id| status_of(agent, id)).collect::<Vec<_>>();
        until("used up", || {
            let all = all(&agent);
            all.len() == 3 && all.iter().all(|status| status.is_terminal())
        })
        .await;
        tokio::time::sleep(Duration::from_secs(100)).await;
        let chain = all(&agent);
        let ids = known(&agent);
        assert_eq!((ids.len(), &ids[0]), (3, &id), "after {writes} writes");
        for (at, status) in chain.iter().enumerate() {
            assert_eq!(status.lineage.next.as_ref(), ids.get(at + 1), "after {writes} writes");
            assert_eq!(status.lineage.previous.as_ref(), at.checked_sub(1).map(|before| &ids[before]));
            assert_eq!(status.lineage.reschedules, at as u64);
        }
        assert_eq!((reschedules(&agent), host.world.started()), (2, 3), "after {writes} writes");
    }
}

#[tokio::test(start_paused = true)]
async fn refused_record_is_retried_and_replaces_once() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, failing(policy(1, 5, DelayFunction::Constant, 0), JobKind::Batch, 10)).await;
    until("reported", || main_task(&agent, &id).event_counts.contains("rescheduling")).await;
    host.faults.fail_writes(true);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((known(&agent).len(), status_of(&agent, &id).lineage.next.clone()), (1, None));
    host.faults.fail_writes(false);
    let next = next_of(&agent, &id).await;
    until_over(&agent, &next).await;
    assert_eq!((known(&agent).len(), host.world.started(), reschedules(&agent)), (2, 2, 1));
}

/// Promise (Input validation): A stop, a submission or a restart in the delay cancels a reschedule for good
#[tokio::test(start_paused = true)]
async fn stop_during_the_delay_cancels_it_for_good() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, failing(policy(0, 60, DelayFunction::Constant, 0), JobKind::Service, 10)).await;
    until_over(&agent, &id).await;
    assert_eq!(agent.stop(&id, Wait::UntilEnded).await.unwrap(), None);
    assert_eq!(status_of(&agent, &id).lineage.reschedule_at, None);
    tokio::time::sleep(Duration::from_secs(600)).await;
    let agent = host.restart(agent).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(known(&agent), std::slice::from_ref(&id));
    // All of them.
    let again = submit(&agent, failing(policy(0, 60, DelayFunction::Constant, 0), JobKind::Service, 10)).await;
    until_over(&agent, &again).await;
    assert_eq!(agent.stop_all(Wait::UntilEnded).await, std::slice::from_ref(&again));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(known(&agent), [id, again]);
}

#[tokio::test(start_paused = true)]
async fn submission_during_the_delay_takes_its_place() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, failing(policy(0, 60, DelayFunction::Constant, 0), JobKind::Service, 10)).await;
    until_over(&agent, &id).await;
    let reply = agent.submit(service("s")).await.unwrap();
    assert!(reply.replaced.is_empty(), "nothing of it ran");
    tokio::time::sleep(Duration::from_secs(600)).await;
    // Even if the later one is removed.
    agent.stop(&reply.allocs[0], Wait::UntilEnded).await.unwrap();
    agent.collectable(reply.allocs.clone());
    agent.collect(GcScope::One(reply.allocs[0].clone())).await.unwrap();
    let agent = host.restart(agent).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!((known(&agent), host.world.started()), (vec![id], 2));
}

#[tokio::test(start_paused = true)]
async fn refused_submission_during_the_delay_cancels_nothing() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, failing(policy(0, 60, DelayFunction::Constant, 0), JobKind::Service, 10)).await;
    until_over(&agent, &id).await;
    host.faults.fail_writes(true);
    agent.submit(service("s")).await.unwrap_err();
    host.faults.fail_writes(false);
    next_of(&agent, &id).await;
}

#[tokio::test(start_paused = true)]
async fn restart_during_the_delay_makes_it_live_and_a_replaced_one_is_not_restarted() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, failing(policy(0, 60, DelayFunction::Constant, 0), JobKind::Service, 10_000)).await;
    until_over(&agent, &id).await;
    agent.restart(&id, RestartTarget::All).await.unwrap();
    until_state(&agent, &id, TaskState::Running).await;
    assert_eq!(status_of(&agent, &id).lineage.reschedule_at, None);
    let next = next_of(&agent, &id).await;
    assert_eq!((known(&agent).len(), main_task(&agent, &id).event_counts["rescheduling"]), (2, 2));
    let refused = agent.restart(&id, RestartTarget::All).await.unwrap_err();
    assert!(matches!(&refused, RunnerError::Final { why, .. } if why.contains("replaced")), "{refused:?}");
    until_state(&agent, &next, TaskState::Running).await;
}

#[tokio::test(start_paused = true)]
async fn abandoned_task_prevents_replacement_of_its_alloc() {
    let host = TestHost::new();
    let agent = host.start().await;
    let mut job = failing(policy(0, 5, DelayFunction::Constant, 0), JobKind::Service, 10);
    let clings = json!({ "deaf": 1, "unkillable": 1 });
    let clings =
        Task { name: "clings".into(), config: clings.as_object().unwrap().clone(), ..job.groups[0].tasks[0].clone() };
    job.groups[0].tasks.push(clings);
    let id = submit(&agent, job).await;
    until("abandoned", || !status_of(&agent, &id).may_run.is_empty()).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(known(&agent), std::slice::from_ref(&id), "a second one beside it would be one too many");
    host.world.of(&"clings".into()).end(ExitStatus::Code(0));
    next_of(&agent, &id).await;
}

/// Weeks of a crash loop: records do not accumulate, and no counter falls.
///
/// Promise (Input validation): An endless reschedule loop keeps store and allocs bounded, and no counter falls
#[tokio::test(start_paused = true)]
async fn endless_rescheduling_leaves_the_store_bounded() {
    const LOOPS: usize = 120;
    let mut host = TestHost::new();
    host.config.gc.max_terminal = 5;
    let agent = host.start().await;
    submit(&agent, failing(policy(0, 5, DelayFunction::Fibonacci, 60), JobKind::Service, 10)).await;
    let size = |host: &TestHost| -> (usize, usize) {
        let all = ["job/", "alloc/", "task/", "totals/", "tombstone/"].map(|prefix| host.store.scan(prefix).unwrap());
        (all.iter().map(Vec::len).sum(), all.iter().flatten().map(|(key, value)| key.len() + value.len()).sum())
    };
    let (mut most, mut counted, mut sizes) = (0, 0, Vec::new());
    for round in 1..=LOOPS {
        until("one more", || reschedules(&agent) >= round as u64).await;
        agent.collectable(known(&agent));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(reschedules(&agent) >= counted, "a counter fell");
        (counted, most) = (reschedules(&agent), most.max(known(&agent).len()));
        sizes.push(size(&host));
    }
    assert!(most <= 8, "{most} allocs are known");
    let (early, late) = (sizes[LOOPS / 3], sizes[LOOPS - 1]);
    assert!(late.0 <= early.0 + 4 && late.1 < early.1 * 2, "{early:?} grew to {late:?}");
    let agent = host.restart(agent).await;
    assert!(reschedules(&agent) >= counted);
}

#[tokio::test(start_paused = true)]
async fn alloc_that_is_to_be_replaced_is_not_collected() {
    let mut host = TestHost::new();
    host.config.gc.max_terminal = 0;
    let agent = host.start().await;
    let id = submit(&agent, failing(policy(0, 600, DelayFunction::Constant, 0), JobKind::Service, 10)).await;
    until_over(&agent, &id).await;
    agent.collectable([id.clone()]);
    let collected = agent.collect(GcScope::One(id.clone())).await.unwrap();
    assert!(collected.removed.is_empty() && collected.retained[0].1.contains("to be rescheduled"), "{collected:?}");
    agent.collect(GcScope::All).await.unwrap();
    agent.collect(GcScope::Limits).await.unwrap();
    until("replaced, then collected", || matches!(known(&agent).as_slice(), [next] if *next != id)).await;
    assert_eq!(reschedules(&agent), 1);
}

/// An earlier agent without rescheduling: allocs that it left dead stay dead, and running ones are replaced when they
/// fail.
#[tokio::test(start_paused = true)]
async fn records_of_agents_that_replaced_none_are_taken_as_they_were_meant() {
    let host = TestHost::new();
    let agent = host.start().await;
    let dead = submit(&agent, failing(policy(0, 60, DelayFunction::Constant, 0), JobKind::Service, 10)).await;
    until_over(&agent, &dead).await;
    let mut other = failing(policy(0, 60, DelayFunction::Constant, 0), JobKind::Service, 50_000);
    other.id = "other".into();
    let live = submit(&agent, other).await;
    until_state(&agent, &live, TaskState::Running).await;
    agent.shutdown();
    for id in [&dead, &live] {
        let key = format!("alloc/{id}");
        let mut record: Value = serde_json::from_slice(&host.store.get(&key).unwrap().unwrap()).unwrap();
        assert!(record.as_object_mut().unwrap().remove("reschedule").is_some());
        let mut batch = crate::store::Batch::default();
        batch.put(key, record.to_string().into_bytes());
        host.store.commit(&batch).unwrap();
    }
    let agent = host.start().await;
    assert_eq!(status_of(&agent, &dead).lineage.reschedule_at, None);
    next_of(&agent, &live).await;
    assert_eq!(known(&agent).len(), 3);
}
