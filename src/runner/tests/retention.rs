//! Ended allocs are removed, their counters stay.

use super::*;
use crate::model::task::Outcome;

async fn run_batches(agent: &Handle, n: usize) -> Vec<AllocId> {
    let mut ids = Vec::new();
    for _ in 0..n {
        let id = submit(agent, batch("b", 1, 0)).await;
        until_over(agent, &id).await;
        ids.push(id);
    }
    ids
}

fn known(agent: &Handle) -> Vec<AllocId> {
    agent.board().view().allocs.iter().map(|a| a.identity.id.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn retired_allocs_above_the_limit_are_collected_oldest_first() {
    let mut host = TestHost::new();
    host.config.gc.max_terminal = 2;
    let agent = host.start().await;
    let ids = run_batches(&agent, 5).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(known(&agent), ids, "their series are still exposed");
    agent.collectable([ids[1].clone(), ids[0].clone(), ids[4].clone()]);
    until("collected", || known(&agent).len() == 2).await;
    assert_eq!(known(&agent), ids[2..4], "0, 1 and 4 were free to go");
    assert!(agent.board().get(&ids[0]).is_none());
    until("buried", || !host.data_dir.alloc(&ids[0]).exists() && host.store.scan("tombstone/").unwrap().is_empty())
        .await;
    assert!(host.store.scan(&format!("task/{}", ids[0])).unwrap().is_empty());
    assert_eq!(host.store.scan("job/").unwrap().len(), 2, "a job's record goes with its last alloc");
}

#[tokio::test(start_paused = true)]
async fn collecting_and_restarting_moves_no_counter() {
    let mut host = TestHost::new();
    host.config.gc.max_terminal = 1;
    let agent = host.start().await;
    let ids = run_batches(&agent, 4).await;
    let (before, view) = (totals(&agent, "b"), agent.board().view());
    assert_eq!(before.exits[Outcome::Success.index()], 4);
    assert_eq!(before.created, published(&agent, &ids[0]).identity.created_at, "since the first submission");
    agent.collectable(ids);
    until("collected", || known(&agent).len() == 1).await;
    assert_eq!(totals(&agent, "b"), before);
    let agent = host.restart(agent).await;
    assert_eq!(known(&agent).len(), 1);
    assert_eq!(totals(&agent, "b"), before);
    let after = agent.board().view();
    assert_eq!(after.totals.alloc_run, view.totals.alloc_run);
    assert_eq!(after.totals.node.allocs, 4);
}

#[tokio::test(start_paused = true)]
async fn workload_retires_into_the_node_a_day_after_its_last_alloc() {
    let host = TestHost::new();
    let agent = host.start().await;
    run_batches(&agent, 2).await;
    let before = totals(&agent, "b");
    let living = submit(&agent, service("s")).await;
    tokio::time::sleep(Duration::from_secs(20 * 3600)).await;
    assert_eq!(totals(&agent, "b"), before);
    let is_removed = |agent: &Handle| !agent.board().view().totals.workloads.contains_key(&("b".into(), "main".into()));
    assert!(!is_removed(&agent));
    tokio::time::sleep(Duration::from_secs(5 * 3600)).await;
    let check = |agent: &Handle| {
        let node = Arc::clone(&agent.board().view().totals.node);
        assert_eq!((node.totals.exits, node.totals.usage.cpu_usage_ns()), (before.exits, before.usage.cpu_usage_ns()));
        assert_eq!(node.allocs, 3);
        assert_eq!(known(agent), std::slice::from_ref(&living), "one that lives keeps its workload");
        assert!(is_removed(agent));
    };
    check(&agent);
    let agent = host.restart(agent).await;
    check(&agent);
}

#[tokio::test(start_paused = true)]
async fn a_crash_before_the_directories_are_removed_is_made_good_at_the_next_start() {
    let host = TestHost::new();
    let left = AllocId::from("11111111-2222-4333-8444-555555555555");
    host.data_dir.build(&left, &"main".into(), 0, None).unwrap();
    let mut batch = crate::store::Batch::default();
    batch.put(format!("tombstone/{left}"), Vec::new());
    host.store.commit(&batch).unwrap();
    let _agent = host.start().await;
    until("removed", || !host.data_dir.alloc(&left).exists()).await;
    until("forgotten", || host.store.scan("tombstone/").unwrap().is_empty()).await;
}
