//! Which ended allocs are removed when, and what is reported of those that stay.
//!
//! Promise (Durability and recovery): Ended allocs are collected by number, age and a full disk, oldest first, none
//! before its final series are delivered

use super::*;
use crate::model::task::ExitStatus;
use crate::runner::{Fill, GcConfig, GcResult, GcScope, RestartTarget, RunnerError, Wait};
use crate::telemetry::metrics::GcReason;

async fn ended(agent: &Handle, n: usize) -> Vec<AllocId> {
    let mut ids = Vec::new();
    for _ in 0..n {
        let id = submit(agent, batch("b", 1, 0)).await;
        until_over(agent, &id).await;
        until("cleared", || agent.board().get(&id).unwrap().alloc_reader.is_none()).await;
        ids.push(id);
    }
    tokio::time::sleep(Duration::from_millis(5)).await;
    ids
}

fn known(agent: &Handle) -> Vec<AllocId> {
    agent.board().view().allocs.iter().map(|a| a.identity.id.clone()).collect()
}
fn counted(agent: &Handle) -> [u64; 5] {
    GcReason::ALL.map(|reason| agent.0.ctx.metrics.allocs_collected(reason))
}

#[tokio::test(start_paused = true)]
async fn old_ended_alloc_is_collected_once_its_series_were_delivered() {
    let mut host = TestHost::new();
    host.config.gc.max_age = Some(Duration::from_secs(600));
    let agent = host.start().await;
    let ids = ended(&agent, 2).await;
    agent.collectable([ids[1].clone()]);
    tokio::time::sleep(Duration::from_secs(540)).await;
    assert_eq!(known(&agent), ids, "not before its time");
    tokio::time::sleep(Duration::from_secs(180)).await;
    assert_eq!(known(&agent), ids[..1], "the first waits for its scraper, however old it is");
    assert!(!host.data_dir.alloc(&ids[1]).exists());
    assert_eq!(counted(&agent), [0, 1, 0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn full_disk_removes_the_oldest_until_there_is_room_and_counts_unread_ones() {
    for fill in [Fill { used_percent: 81, inodes_percent: 0 }, Fill { used_percent: 0, inodes_percent: 71 }] {
        let host = TestHost::new();
        let agent = host.start().await;
        let ids = ended(&agent, 5).await;
        let before = totals(&agent, "b");
        *host.fill.lock().unwrap() = [Fill { used_percent: 80, inodes_percent: 70 }].into();
        tokio::time::sleep(Duration::from_secs(200)).await;
        assert_eq!(known(&agent), ids, "as full as allowed");
        agent.collectable([ids[3].clone()]);
        // There is room again after one round.
        *host.fill.lock().unwrap() = [fill, Fill::default()].into();
        tokio::time::sleep(Duration::from_secs(200)).await;
        assert_eq!(known(&agent), [&ids[1..3], &ids[4..]].concat(), "the delivered one first, then the oldest");
        assert_eq!(counted(&agent), [0, 0, 0, 1, 1]);
        assert_eq!(totals(&agent, "b"), before);
    }
}

#[tokio::test(start_paused = true)]
async fn disk_pressure_by_foreign_files_takes_no_live_alloc_and_ends() {
    let host = TestHost::new();
    let agent = host.start().await;
    ended(&agent, 5).await;
    let live = submit(&agent, service("s")).await;
    until_state(&agent, &live, TaskState::Running).await;
    *host.fill.lock().unwrap() = [Fill { used_percent: 100, inodes_percent: 100 }].into();
    until("all that has ended is gone", || known(&agent).len() == 1).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(known(&agent), std::slice::from_ref(&live));
    assert_eq!(main_task(&agent, &live).state, TaskState::Running);
}

/// Fails if anything to remove is still there; allocs that have not ended are no error with `--all`.
///
/// Promise (Durability and recovery): `gc` reports what it removed and why the rest stayed; directories and cgroups are
/// gone, counters stay
#[tokio::test(start_paused = true)]
async fn requested_collection_returns_removed_and_retained_allocs_with_reasons() {
    let host = TestHost::new();
    let agent = host.start().await;
    let ids = ended(&agent, 3).await;
    let live = submit(&agent, service("s")).await;
    until_state(&agent, &live, TaskState::Running).await;
    agent.collectable([ids[0].clone(), ids[2].clone(), live.clone()]);
    assert_eq!(agent.collect(GcScope::Limits).await.unwrap(), GcResult::default(), "nothing is above its limit");
    let one = agent.collect(GcScope::One(ids[2].clone())).await.unwrap();
    assert_eq!((one.removed, one.retained), (vec![(ids[2].clone(), GcReason::Requested)], Vec::new()));
    assert!(!host.data_dir.alloc(&ids[2]).exists(), "gone when it says so");
    assert!(host.store.scan("tombstone/").unwrap().is_empty());
    let retained = agent.collect(GcScope::One(ids[1].clone())).await.unwrap();
    assert_eq!(
        (retained.removed.len(), retained.retained.len(), retained.shown),
        (0, 0, vec![ids[1].clone()]),
        "its series are exposed"
    );
    let all = agent.collect(GcScope::All).await.unwrap();
    assert_eq!(all.removed, [(ids[0].clone(), GcReason::Requested)]);
    assert_eq!(all.shown, std::slice::from_ref(&ids[1]), "{all:?}");
    assert_eq!(all.live, std::slice::from_ref(&live), "which was not requested");
    let one = agent.collect(GcScope::One(live.clone())).await.unwrap();
    assert_eq!((one.retained, one.live), (vec![(live.clone(), "it has not ended".to_owned())], Vec::new()));
    assert_eq!(known(&agent), [ids[1].clone(), live]);
    assert!(matches!(agent.collect(GcScope::One(ids[0].clone())).await, Err(RunnerError::UnknownAlloc(_))));
}

#[tokio::test(start_paused = true)]
async fn an_alloc_that_lives_again_is_not_collected_for_its_earlier_end() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, batch("b", 1_000, 0)).await;
    until_over(&agent, &id).await;
    until("its end is through", || *agent.0.alloc(&id).unwrap().ended().borrow()).await;
    agent.collectable([id.clone()]);
    agent.restart(&id, RestartTarget::All).await.unwrap();
    until_state(&agent, &id, TaskState::Running).await;
    assert_eq!(agent.collect(GcScope::All).await.unwrap().live, std::slice::from_ref(&id));
    until_over(&agent, &id).await;
    until("its end is through", || *agent.0.alloc(&id).unwrap().ended().borrow()).await;
    assert!(agent.collect(GcScope::All).await.unwrap().removed.is_empty(), "its new series were not delivered");
    agent.collectable([id.clone()]);
    assert_eq!(agent.collect(GcScope::All).await.unwrap().removed.len(), 1);
    assert_eq!(totals(&agent, "b").exits[0], 2);
}

/// Whatever the state of its allocs.
///
/// Promise (Durability and recovery): Allocs that came and went leave the agent no runtime task and no descriptor
#[tokio::test(start_paused = true)]
async fn allocs_that_came_and_went_leave_no_task_of_the_runtime() {
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let host = TestHost::new();
    let agent = host.start().await;
    // Recovery at the start is done before anything else, on this clock.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = alive();
    for n in 0..10 {
        let crashes = submit(&agent, batch(&format!("crashes{n}"), 1, 1)).await;
        let serves = submit(&agent, service(&format!("serves{n}"))).await;
        until_state(&agent, &serves, TaskState::Running).await;
        agent.restart(&serves, RestartTarget::Task("main")).await.unwrap();
        until("again", || main_task(&agent, &serves).attempt == 1).await;
        until_state(&agent, &serves, TaskState::Running).await;
        agent.restart(&serves, RestartTarget::All).await.unwrap();
        until("and again", || main_task(&agent, &serves).attempt == 2).await;
        assert!(alive() > before);
        agent.stop(&serves, Wait::UntilEnded).await.unwrap();
        until_over(&agent, &crashes).await;
        until("its end is through", || *agent.0.alloc(&crashes).unwrap().ended().borrow()).await;
        agent.collectable([serves, crashes]);
        agent.collect(GcScope::All).await.unwrap();
        assert!(known(&agent).is_empty());
    }
    until("its tasks to have left", || alive() == before).await;
}

/// Promise (Durability and recovery): An abandoned task is never forgotten: `gc` keeps its alloc, and it is killed
/// again and again
#[tokio::test(start_paused = true)]
async fn alloc_that_may_still_run_is_not_collected_and_later_agents_end_it_again() {
    let mut host = TestHost::new();
    host.config.gc = GcConfig { max_terminal: 0, max_age: Some(Duration::ZERO), ..GcConfig::default() };
    host.config.retire_after = Duration::from_secs(100);
    *host.fill.lock().unwrap() = [Fill { used_percent: 100, inodes_percent: 100 }].into();
    let mut agent = host.start().await;
    let stuck = json!({ "deaf": 1, "unkillable": 1 });
    let id = submit(&agent, job("s", JobKind::Service, &[("main", stuck), ("beside", json!({}))])).await;
    until_state(&agent, &id, TaskState::Running).await;
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
    let process = host.world.of(&"main".into());
    let forced = || process.signals.lock().unwrap().iter().filter(|s| *s == "force").count();
    for _ in 0..2 {
        until("its end is through", || *agent.0.alloc(&id).unwrap().ended().borrow()).await;
        agent.collectable([id.clone()]);
        let before = forced();
        let found = agent.collect(GcScope::All).await.unwrap();
        assert!(found.removed.is_empty(), "{found:?}");
        assert!(found.retained[0].1.contains("\"main\" was abandoned and may still run"), "{found:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(forced() > before, "a request kills it again");
        tokio::time::sleep(Duration::from_secs(200)).await;
        assert_eq!(
            known(&agent),
            std::slice::from_ref(&id),
            "not even on a full disk, and with its workload long over"
        );
        assert!(forced() > before + 2, "also without a request");
        agent = host.restart(agent).await;
    }
    assert_eq!((host.world.started(), host.world.living()), (2, 1));
    process.end(ExitStatus::Signal(9));
    until("noticed", || agent.0.alloc(&id).unwrap().first_that_may_run().is_none()).await;
    assert_eq!(host.world.undestroyed(), 0);
    agent.collectable([id.clone()]);
    assert_eq!(agent.collect(GcScope::All).await.unwrap().removed.len(), 1);
    for key in ["task/", "alloc/", "tombstone/"] {
        assert!(host.store.scan(key).unwrap().is_empty(), "{key}: nothing is written after it was forgotten");
    }
}
