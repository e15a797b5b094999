//! Tasks without a record: tasks of allocs without any record are killed, all others are left alone.

use serde_json::json;

use super::restore::found;
use super::*;
use crate::model::id::TaskName;
use crate::model::task::ExitStatus;
use crate::runner::decide::ownership::{Ownership, RecordedAllocs};
use crate::runner::{Fate, Orphan};
use crate::store::Batch;

fn forget(host: &TestHost, accepts: impl Fn(&str) -> bool) {
    let mut batch = Batch::default();
    for (key, _) in host.store.scan("").unwrap() {
        if accepts(&key) && key != crate::runner::persistence::record::VERSION_KEY {
            batch.remove(key);
        }
    }
    host.store.commit(&batch).unwrap();
}

fn forget_all(host: &TestHost) {
    forget(host, |_| true);
}

async fn detach(agent: Handle) {
    agent.shutdown();
    drop(agent);
    tokio::task::yield_now().await;
}

/// A job of one task with this config runs, and then the state is lost.
async fn orphaned(host: &TestHost, config: Value) -> AllocId {
    let agent = host.start().await;
    let id = submit(&agent, job("s", JobKind::Service, &[("main", config)])).await;
    until_state(&agent, &id, TaskState::Running).await;
    std::fs::write(host.data_dir.logs(&id).join("main.stdout.0"), "kept").unwrap();
    detach(agent).await;
    forget_all(host);
    id
}

fn outcomes(agent: &Handle) -> [f64; 2] {
    let (tasks, _) = found(agent);
    ["orphan_killed", "failed"].map(|outcome| tasks[outcome])
}

fn fates(agent: &Handle) -> Vec<Fate> {
    agent.orphans().into_iter().map(|orphan| orphan.fate).collect()
}

/// Nor is an alloc that is being removed or whose record was unreadable; its running tasks are reported.
///
/// Promise (Durability and recovery): A recorded, copied, containerized or foreign process is no orphan: it is not
/// touched
#[test]
fn alloc_ownership_follows_from_the_records_that_name_it() {
    let ids: Vec<AllocId> = (0..6).map(|_| AllocId::random()).collect();
    let [recorded, buried, alloc_aside, task_aside, both, unknown] = ids.as_slice() else { unreachable!() };
    let keys = [
        format!("alloc/{alloc_aside}"),
        format!("task/{task_aside}/web"),
        // Its task's record was damaged once, and the alloc lives.
        format!("task/{both}/web"),
        "job/some/1".to_owned(),
        "damaged-1".to_owned(),
        "alloc/no-id".to_owned(),
    ];
    let known = [recorded.clone(), both.clone()].into_iter();
    let records = RecordedAllocs::new(known, std::slice::from_ref(buried), keys.iter().map(String::as_str));
    for (id, ownership) in [
        (recorded, Ownership::Recorded),
        (buried, Ownership::Recorded),
        (both, Ownership::Recorded),
        (alloc_aside, Ownership::Quarantined),
        (task_aside, Ownership::Quarantined),
        (unknown, Ownership::Unrecorded),
    ] {
        assert_eq!(records.ownership(id), ownership, "{id}");
    }
}

#[tokio::test(start_paused = true)]
async fn orphan_of_a_lost_state_is_ended_counted_and_listed_and_its_logs_remain() {
    let host = TestHost::new();
    let id = orphaned(&host, json!({ "stop_ms": 100 })).await;
    assert_eq!(host.world.living(), 1);
    let agent = host.start().await;
    assert!(agent.board().get(&id).is_none());
    until("ended", || host.world.living() == 0).await;
    until("counted", || outcomes(&agent) == [1.0, 0.0]).await;
    until("removed", || !host.data_dir.run(&id).exists()).await;
    let process = host.world.last();
    assert_eq!(
        (&*process.signals.lock().unwrap(), *process.destroyed.lock().unwrap()),
        (&vec!["SIGINT".to_owned()], 1)
    );
    let killed = Orphan {
        alloc_id: id.clone(),
        task: TaskName::from("main"),
        attempt: 0,
        pid: Some(process.handle.main.unwrap().pid),
        fate: Fate::Killed,
    };
    assert_eq!(agent.orphans(), [killed]);
    assert!(host.data_dir.logs(&id).join("main.stdout.0").exists());
    // The next start reports it no more.
    let agent = host.restart(agent).await;
    assert_eq!((outcomes(&agent), fates(&agent)), ([0.0, 0.0], vec![]));
}

#[tokio::test(start_paused = true)]
async fn orphan_that_ignores_signals_is_killed_after_its_grace() {
    let host = TestHost::new();
    orphaned(&host, json!({ "deaf": 1 })).await;
    let agent = host.start().await;
    let began = tokio::time::Instant::now();
    until("ended", || host.world.living() == 0).await;
    assert!((5..6).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    assert_eq!(*host.world.last().signals.lock().unwrap(), ["SIGINT", "force"]);
    until("counted", || outcomes(&agent) == [1.0, 0.0]).await;
}

#[tokio::test(start_paused = true)]
async fn unkillable_orphan_blocks_nothing_is_reported_and_retried_by_each_agent() {
    let host = TestHost::new();
    let id = orphaned(&host, json!({ "deaf": 1, "unkillable": 1 })).await;
    let mut agent = host.start().await;
    for again in 0..2 {
        until("reported", || matches!(fates(&agent).as_slice(), [Fate::MayRun(why)] if why.contains("by force"))).await;
        assert_eq!(outcomes(&agent), [0.0, 1.0]);
        let forced = || host.world.last().signals.lock().unwrap().iter().filter(|s| *s == "force").count();
        let before = forced();
        until("tried again", || forced() > before).await;
        assert_eq!(outcomes(&agent), [0.0, 1.0], "reported once");
        assert!(host.data_dir.run(&id).exists(), "its handle is kept");
        if again == 0 {
            agent = host.restart(agent).await;
        }
    }
    let other = submit(&agent, batch("b", 5, 0)).await;
    assert_eq!(until_over(&agent, &other).await, AllocState::Complete);
    host.world
        .processes
        .lock()
        .unwrap()
        .values()
        .find(|p| p.handle.run_dir.starts_with(host.data_dir.run(&id)))
        .unwrap()
        .end(ExitStatus::Signal(9));
    until("counted again", || outcomes(&agent) == [1.0, 0.0]).await;
    until("removed", || !host.data_dir.run(&id).exists()).await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_leaves_in_the_middle_leaves_the_rest_to_the_next() {
    let host = TestHost::new();
    let id = orphaned(&host, json!({ "deaf": 1 })).await;
    let agent = host.start().await;
    until("signalled", || !host.world.last().signals.lock().unwrap().is_empty()).await;
    detach(agent).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(host.world.living(), 1, "nothing goes on when the agent has left");
    let agent = host.start().await;
    until("ended", || host.world.living() == 0).await;
    until("removed", || !host.data_dir.run(&id).exists()).await;
    until("counted", || outcomes(&agent) == [1.0, 0.0]).await;
}

#[tokio::test(start_paused = true)]
async fn orphan_that_has_ended_is_cleared_away_and_not_counted() {
    let host = TestHost::new();
    let id = orphaned(&host, json!({})).await;
    host.world.last().end(ExitStatus::Code(0));
    let agent = host.start().await;
    until("removed", || !host.data_dir.run(&id).exists()).await;
    assert_eq!((outcomes(&agent), fates(&agent)), ([0.0, 0.0], vec![]));
    assert_eq!((host.world.last().signals.lock().unwrap().len(), host.world.undestroyed()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn orphan_without_run_directory_is_found_by_its_supervisor() {
    let host = TestHost::new();
    let id = orphaned(&host, json!({})).await;
    crate::host::tree::remove(&host.data_dir.run(&id)).unwrap();
    let agent = host.start().await;
    until("ended", || host.world.living() == 0).await;
    until("counted", || outcomes(&agent) == [1.0, 0.0]).await;
}

/// Half of a record is left.
fn spoil(host: &TestHost, key: &str) {
    let mut batch = Batch::default();
    batch.put(key, b"{\"half".to_vec());
    host.store.commit(&batch).unwrap();
}

#[tokio::test(start_paused = true)]
async fn task_with_unreadable_record_is_left_alone_and_reported_at_each_start() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, service("s")).await;
    until_state(&agent, &id, TaskState::Running).await;
    detach(agent).await;
    spoil(&host, &format!("alloc/{id}"));
    for _ in 0..2 {
        let agent = host.start().await;
        until(
            "reported",
            || matches!(fates(&agent).as_slice(), [Fate::MayRun(why)] if why.contains("could not be read")),
        )
        .await;
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(outcomes(&agent), [0.0, 1.0]);
        assert_eq!((host.world.living(), host.world.last().signals.lock().unwrap().len()), (1, 0));
        assert!(host.data_dir.run(&id).exists());
        detach(agent).await;
    }
    host.world.last().end(ExitStatus::Code(0));
    let agent = host.start().await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!((outcomes(&agent), fates(&agent)), ([0.0, 0.0], vec![]));
    assert!(host.data_dir.run(&id).exists(), "how it ended is there for people");
}

#[tokio::test(start_paused = true)]
async fn recorded_or_newly_submitted_tasks_are_never_orphans() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, service("s")).await;
    until_state(&agent, &id, TaskState::Running).await;
    let agent = host.restart(agent).await;
    let later = submit(&agent, service("later")).await;
    until_state(&agent, &later, TaskState::Running).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!((host.world.living(), outcomes(&agent), fates(&agent)), (2, [0.0, 0.0], vec![]));
}

#[tokio::test(start_paused = true)]
async fn orphan_without_proof_is_left_alone_until_there_is_one() {
    let host = TestHost::new();
    let id = orphaned(&host, json!({})).await;
    *host.world.left_error.lock().unwrap() = Some("nothing proves that it is ours".to_owned());
    let agent = host.start().await;
    until("reported", || matches!(fates(&agent).as_slice(), [Fate::MayRun(why)] if why.contains("proves"))).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!((host.world.living(), host.world.last().signals.lock().unwrap().len()), (1, 0));
    *host.world.left_error.lock().unwrap() = None;
    until("removed", || !host.data_dir.run(&id).exists()).await;
    until("counted", || outcomes(&agent) == [1.0, 0.0]).await;
}

#[tokio::test(start_paused = true)]
async fn run_directory_unknown_to_every_driver_remains_and_an_empty_one_is_removed() {
    let host = TestHost::new();
    let ids = [AllocId::random(), AllocId::random()];
    for id in &ids {
        std::fs::create_dir_all(host.data_dir.run_task(id, &TaskName::from("t")).join("0")).unwrap();
    }
    let foreign = host.data_dir.run_task(&ids[0], &TaskName::from("t")).join("0/somebodys");
    std::fs::write(&foreign, "data").unwrap();
    let odd = host.data_dir.run_top().join("not-an-alloc/t/0");
    std::fs::create_dir_all(&odd).unwrap();
    let agent = host.start().await;
    until("removed", || !host.data_dir.run(&ids[1]).exists()).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(foreign.exists() && odd.exists());
    assert_eq!(outcomes(&agent), [0.0, 0.0]);
}

#[tokio::test(start_paused = true)]
async fn orphan_reported_as_possibly_running_is_unlisted_once_it_has_ended() {
    let host = TestHost::new();
    let id = orphaned(&host, json!({})).await;
    host.world.last().end(ExitStatus::Code(0));
    *host.world.recover_error.lock().unwrap() = Some("no descriptor is left".to_owned());
    let agent = host.start().await;
    until("reported", || matches!(fates(&agent).as_slice(), [Fate::MayRun(_)])).await;
    assert_eq!(outcomes(&agent), [0.0, 1.0]);
    *host.world.recover_error.lock().unwrap() = None;
    until("removed", || !host.data_dir.run(&id).exists()).await;
    until("taken back", || outcomes(&agent) == [0.0, 0.0] && fates(&agent).is_empty()).await;
}

/// The record of one task is lost or damaged; its alloc is recorded. It continues as the same attempt. If its state is
/// unknown it is not started again, also if the agent dies right then, and is reported as possibly running.
#[tokio::test(start_paused = true)]
async fn task_without_record_is_recovered_by_its_run_directory_and_supervisor() {
    for (damaged, removed) in [(false, false), (true, false), (true, true)] {
        let host = TestHost::new();
        let agent = host.start().await;
        let id = submit(&agent, service("s")).await;
        until_state(&agent, &id, TaskState::Running).await;
        agent.restart(&id, crate::runner::RestartTarget::Task("main")).await.unwrap();
        until("a second attempt", || host.world.started() == 2 && main_task(&agent, &id).state == TaskState::Running)
            .await;
        detach(agent).await;
        if damaged {
            spoil(&host, &format!("task/{id}/main"));
        } else {
            forget(&host, |key| key.starts_with("task/"));
        }
        if removed {
            crate::host::tree::remove(&host.data_dir.run(&id)).unwrap();
        }
        let agent = host.start().await;
        let task = main_task(&agent, &id);
        assert_eq!((task.state, task.attempt), (TaskState::Running, 1), "damaged: {damaged}");
        assert_eq!((host.world.living(), host.world.started()), (1, 2), "the same process");
        assert_eq!((found(&agent).0["reattached"], outcomes(&agent)), (1.0, [0.0, 0.0]));
        // Recorded again, and managed: the next attempt is a new one.
        let agent = host.restart(agent).await;
        host.world.last().end(ExitStatus::Code(1));
        until("a third attempt", || host.world.started() == 3).await;
        agent.stop(&id, crate::runner::Wait::UntilEnded).await.unwrap();
        assert_eq!(host.world.living(), 0);
    }
}

/// It may run: it is not started beside itself, and it is not reported as gone.
///
/// Promise (Durability and recovery): A task whose record is lost is recovered from `run/`, or not started a second
/// time
#[tokio::test(start_paused = true)]
async fn task_without_record_and_with_unknown_state_retains_its_handle() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, service("s")).await;
    until_state(&agent, &id, TaskState::Running).await;
    detach(agent).await;
    spoil(&host, &format!("task/{id}/main"));
    *host.world.recover_error.lock().unwrap() = Some("no descriptor is left".to_owned());
    let agent = host.start().await;
    assert_eq!(until_over(&agent, &id).await, AllocState::Failed);
    until("said", || status_of(&agent, &id).may_run == [TaskName::from("main")]).await;
    assert_eq!((host.world.living(), host.world.started()), (1, 1));
    *host.world.recover_error.lock().unwrap() = None;
    until("ended", || host.world.living() == 0).await;
    until("said", || status_of(&agent, &id).may_run.is_empty()).await;
}
