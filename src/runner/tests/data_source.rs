//! When the data of an alloc can be read for another agent; what its migration shares with others.

use std::net::TcpListener;
use std::sync::Barrier;
use std::sync::mpsc::channel;

use super::*;
use crate::model::job::EphemeralDisk;
use crate::model::migration::{MigrationFailure, MigrationSource};
use crate::runner::manager::RestartTarget;
use crate::runner::settings::MigrationPeer;
use crate::runner::{DataRefusal, GcScope, Wait};

fn sticky(mut job: Job) -> Job {
    job.groups[0].ephemeral_disk = EphemeralDisk { sticky: true, migrate: true };
    job
}

#[tokio::test(start_paused = true)]
async fn data_is_readable_from_an_end_until_the_next_life_or_removal() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, sticky(batch("s", 5_000, 0))).await;
    let runs = Err(DataRefusal::Runs(id.clone()));
    assert_eq!(agent.ended_data(&id), runs);
    until_over(&agent, &id).await;
    let first = agent.ended_data(&id).unwrap();
    assert_eq!(agent.ended_data(&id), Ok(first.clone()));
    // The whole alloc runs again, and ends again.
    agent.restart(&id, RestartTarget::All).await.unwrap();
    assert_eq!(agent.ended_data(&id), runs);
    until_over(&agent, &id).await;
    assert_ne!(agent.ended_data(&id), Ok(first), "the archive of the life before gets no seal");
    agent.collectable([id.clone()]);
    agent.collect(GcScope::All).await.unwrap();
    assert_eq!(agent.ended_data(&id), Err(DataRefusal::Unknown(id.clone())));
}

#[tokio::test(start_paused = true)]
async fn data_that_a_replacement_takes_is_not_readable_before_it_is_gone() {
    let host = TestHost::new();
    let agent = host.start().await;
    let first = sticky(job("s", JobKind::Service, &[("main", json!({ "stop_ms": 3_000 }))]));
    let old = submit(&agent, first.clone()).await;
    until_state(&agent, &old, TaskState::Running).await;
    let file = host.data_dir.alloc(&old).join("main/local/file");
    std::fs::write(&file, "kept").unwrap();
    let mut second = first;
    second.meta.insert("n".to_owned(), "2".to_owned());
    let new = submit(&agent, second).await;
    until("it took the data", || {
        let readable = agent.ended_data(&old).is_ok();
        assert!(!readable || !file.exists(), "a reader would race with the replacement");
        main_task(&agent, &new).state == TaskState::Running
    })
    .await;
    assert!(host.data_dir.alloc(&new).join("main/local/file").exists());
    assert_eq!(agent.successor(&old), Some(new));
}

#[tokio::test(start_paused = true)]
async fn data_of_an_alloc_that_is_to_be_rescheduled_is_not_readable() {
    let host = TestHost::new();
    let agent = host.start().await;
    let mut fails = sticky(batch("s", 10, 1));
    fails.groups[0].tasks[0].restart.attempts = 0;
    let policy = ReschedulePolicy { delay: Duration::from_secs(60), unlimited: true, ..NEVER };
    fails.groups[0].reschedule = Some(policy);
    let id = submit(&agent, fails).await;
    until("it failed", || status_of(&agent, &id).lineage.reschedule_at.is_some()).await;
    assert_eq!(agent.ended_data(&id), Err(DataRefusal::Rescheduled(id.clone())));
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
    assert!(agent.ended_data(&id).is_ok());
}

fn source() -> MigrationSource {
    MigrationSource::parse("old/5f0dc4f8", MigrationFailure::Fail).unwrap()
}

/// A host whose peer takes connections and never answers; each connection is reported.
fn host_of_a_silent_peer() -> (TestHost, std::sync::mpsc::Receiver<std::net::TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut host = TestHost::new();
    let peer = format!("old=http://{}", listener.local_addr().unwrap());
    host.config.migration.peers = vec![MigrationPeer::parse(&peer).unwrap()];
    let (sender, connections) = channel();
    std::thread::spawn(move || listener.incoming().flatten().try_for_each(|stream| sender.send(stream)));
    (host, connections)
}

#[tokio::test]
async fn replacements_of_an_alloc_share_the_deadline_of_its_migration() {
    let (mut host, _connections) = host_of_a_silent_peer();
    host.config.migration.deadline = Duration::ZERO;
    let agent = host.start().await;
    let mut service = sticky(service("s"));
    service.groups[0].reschedule = Some(ReschedulePolicy { unlimited: true, ..NEVER });
    let first = agent.submit_migrating(service, source()).await.unwrap().allocs[0].clone();
    until("replaced", || status_of(&agent, &first).lineage.next.is_some()).await;
    let next = status_of(&agent, &first).lineage.next.clone().unwrap();
    let submitted = |id| agent.0.allocs.get(id).unwrap().subject().migrate_from.unwrap().submitted;
    assert!(submitted(&first).is_some());
    assert_eq!(submitted(&next), submitted(&first));
    agent.shutdown();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfers_from_silent_peers_leave_artifacts_their_places() {
    const MIGRATIONS: usize = 4;
    const ARTIFACTS: usize = 16;
    let (host, connections) = host_of_a_silent_peer();
    let agent = host.start().await;
    for n in 0..ARTIFACTS {
        agent.submit_migrating(sticky(service(&format!("s{n}"))), source()).await.unwrap();
    }
    let held = tokio::task::spawn_blocking(move || -> Vec<_> {
        (0..MIGRATIONS).map(|_| connections.recv_timeout(Duration::from_secs(120)).unwrap()).collect()
    });
    let _held = held.await.unwrap();
    // All of the places at the same time.
    let barrier = Arc::new(Barrier::new(ARTIFACTS));
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..ARTIFACTS {
        let (ctx, barrier) = (Arc::clone(&agent.0.ctx), Arc::clone(&barrier));
        all.spawn(async move { ctx.artifacts.block(move || barrier.wait().is_leader()).await });
    }
    let all = tokio::time::timeout(Duration::from_secs(300), all.join_all()).await;
    assert!(all.is_ok_and(|all| all.iter().all(Result::is_ok)), "migrations hold places of artifacts");
    agent.shutdown();
}
