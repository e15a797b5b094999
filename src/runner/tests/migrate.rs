//! A replacement waits for the alloc before it and takes over its data, as a whole or not at all.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::json;

use super::*;
use crate::model::job::EphemeralDisk;
use crate::runner::Wait;

const STICKY: EphemeralDisk = EphemeralDisk { sticky: true, migrate: false };

fn sticky(job: Job, disk: EphemeralDisk) -> Job {
    let mut job = job;
    job.groups[0].ephemeral_disk = disk;
    job
}
/// The same job with a change, so that it is another version.
fn changed(job: &Job, n: usize) -> Job {
    let mut job = job.clone();
    job.meta.insert("n".to_owned(), n.to_string());
    job
}

fn place(host: &TestHost, id: &AllocId, path: &str) -> PathBuf {
    host.data_dir.alloc(id).join(path)
}
pub(super) fn write(host: &TestHost, id: &AllocId, path: &str, text: &str) {
    std::fs::write(place(host, id, path), text).unwrap();
}
pub(super) fn read(host: &TestHost, id: &AllocId, path: &str) -> Option<String> {
    std::fs::read_to_string(place(host, id, path)).ok()
}
fn migrations(agent: &Handle, outcome: &str) -> f64 {
    let families = agent.0.ctx.metrics.gather();
    let family = families.iter().find(|f| f.name() == "allostat_migrations_total").unwrap();
    let of = family.get_metric().iter().find(|m| m.get_label()[0].value() == outcome).unwrap();
    of.get_counter().get_value()
}
fn messages(agent: &Handle, id: &AllocId) -> Vec<String> {
    let task = main_task(agent, id);
    task.events.iter().filter(|e| e.kind.text() == "Migration").map(|e| e.message.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn update_of_a_sticky_group_takes_over_shared_data_and_local() {
    for (disk, expected) in [
        (STICKY, Some("kept")),
        (EphemeralDisk { sticky: false, migrate: true }, Some("kept")),
        (EphemeralDisk::default(), None),
    ] {
        let host = TestHost::new();
        let agent = host.start().await;
        let tasks = [("main", json!({})), ("side", json!({}))];
        let first = sticky(job("s", JobKind::Service, &tasks), disk);
        let old = submit(&agent, first.clone()).await;
        until("running", || host.world.living() == 2).await;
        for path in ["alloc/data/file", "main/local/file", "side/local/file", "main/tmp/file"] {
            write(&host, &old, path, "kept");
        }
        let new = submit(&agent, changed(&first, 1)).await;
        until_state(&agent, &new, TaskState::Running).await;
        for path in ["alloc/data/file", "main/local/file", "side/local/file"] {
            assert_eq!(read(&host, &new, path).as_deref(), expected, "{disk:?} {path}");
            assert_eq!(read(&host, &old, path).is_some(), expected.is_none(), "{disk:?} {path}");
        }
        assert_eq!(read(&host, &new, "main/tmp/file"), None, "only what is to be kept");
        assert_eq!(status_of(&agent, &new).lineage.previous.as_ref(), Some(&old));
        assert_eq!(migrations(&agent, "moved"), if expected.is_some() { 1.0 } else { 0.0 });
        if expected.is_some() {
            let all = format!("took over the data of alloc {}: 3 directories", old.short());
            assert_eq!(messages(&agent, &new), [all]);
        }
        // Once: a restart of the agent does not move it again.
        write(&host, &new, "main/local/file", "newer");
        std::fs::create_dir_all(place(&host, &old, "main/local")).unwrap();
        write(&host, &old, "main/local/file", "stale");
        let agent = host.restart(agent).await;
        until_state(&agent, &new, TaskState::Running).await;
        assert_eq!(read(&host, &new, "main/local/file").as_deref(), Some("newer"));
    }
}

#[tokio::test(start_paused = true)]
async fn rescheduled_alloc_takes_over_the_data_of_the_failed_one() {
    let host = TestHost::new();
    let agent = host.start().await;
    let mut fails = sticky(job("s", JobKind::Service, &[("main", json!({ "run_ms": 1_000, "exit_code": 1 }))]), STICKY);
    fails.groups[0].tasks[0].restart.attempts = 0;
    fails.groups[0].reschedule = Some(ReschedulePolicy { delay: Duration::from_secs(5), unlimited: true, ..NEVER });
    let mut id = submit(&agent, fails).await;
    until_state(&agent, &id, TaskState::Running).await;
    write(&host, &id, "main/local/file", "kept");
    for _ in 0..3 {
        until("replaced", || status_of(&agent, &id).lineage.next.is_some()).await;
        id = status_of(&agent, &id).lineage.next.clone().unwrap();
        until_state(&agent, &id, TaskState::Running).await;
        assert_eq!(read(&host, &id, "main/local/file").as_deref(), Some("kept"));
    }
    assert_eq!(migrations(&agent, "moved"), 3.0);
}

/// The allocs between never started: none of them breaks the chain from the first to the last.
#[tokio::test(start_paused = true)]
async fn data_passes_allocs_that_were_replaced_before_they_began() {
    let host = TestHost::new();
    let agent = host.start().await;
    let first = sticky(job("s", JobKind::Service, &[("main", json!({ "stop_ms": 3_000 }))]), STICKY);
    let old = submit(&agent, first.clone()).await;
    until_state(&agent, &old, TaskState::Running).await;
    write(&host, &old, "alloc/data/file", "kept");
    let mut last = old.clone();
    for n in 1..4 {
        last = submit(&agent, changed(&first, n)).await;
    }
    let agent = host.restart(agent).await;
    until_state(&agent, &last, TaskState::Running).await;
    assert_eq!(read(&host, &last, "alloc/data/file").as_deref(), Some("kept"));
}

/// P-14.2: while it waits none of its tasks starts, across a restart of the agent too; a stop ends the wait at once.
///
/// Promise (Input validation): P-14.2 A replacement waits for the alloc before it, over a restart of the agent; a stop
/// ends the wait within 100 ms
#[tokio::test(start_paused = true)]
async fn replacement_waits_for_the_previous_alloc_across_restarts_and_stops_at_once() {
    let host = TestHost::new();
    let agent = host.start().await;
    let first = sticky(job("s", JobKind::Service, &[("main", json!({ "stop_ms": 4_000 }))]), STICKY);
    let old = submit(&agent, first.clone()).await;
    until_state(&agent, &old, TaskState::Running).await;
    write(&host, &old, "main/local/file", "kept");
    let new = submit(&agent, changed(&first, 1)).await;
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(main_task(&agent, &new).state, TaskState::Pending);
    }
    let agent = host.restart(agent).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(main_task(&agent, &new).state, TaskState::Pending, "it is known for whom it waits");
    let requested_at = tokio::time::Instant::now();
    agent.stop(&new, Wait::UntilEnded).await.unwrap();
    assert!(requested_at.elapsed() < Duration::from_millis(100), "{:?}", requested_at.elapsed());
    assert!(!status_of(&agent, &old).is_terminal(), "it did not wait for that one");
    assert_eq!(read(&host, &old, "main/local/file").as_deref(), Some("kept"), "nor take anything of it");
}

/// Promise (Input validation): P-14.4 What cannot be moved begins empty, with an event and a counter; no link is
/// followed
#[tokio::test(start_paused = true)]
async fn data_that_cannot_be_migrated_starts_empty_with_an_event_and_a_counter() {
    let host = TestHost::new();
    let agent = host.start().await;
    let first = sticky(service("s"), STICKY);
    let old = submit(&agent, first.clone()).await;
    until_state(&agent, &old, TaskState::Running).await;
    write(&host, &old, "alloc/data/file", "kept");
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), "secret").unwrap();
    std::fs::remove_dir(place(&host, &old, "main/local")).unwrap();
    symlink(outside.path(), place(&host, &old, "main/local")).unwrap();
    let new = submit(&agent, changed(&first, 1)).await;
    until_state(&agent, &new, TaskState::Running).await;
    assert_eq!(read(&host, &new, "alloc/data/file").as_deref(), Some("kept"), "the others are moved");
    assert_eq!(read(&host, &new, "main/local/secret"), None);
    assert!(place(&host, &new, "main/local").symlink_metadata().unwrap().is_dir());
    assert_eq!(migrations(&agent, "failed"), 1.0);
    let texts = messages(&agent, &new);
    assert!(texts.len() == 1 && texts[0].starts_with("migration failed: main/local of alloc"), "{texts:?}");
    assert_eq!(std::fs::read_to_string(outside.path().join("secret")).unwrap(), "secret");
}

/// Whichever commit is the last one: the data is complete in the old alloc or in the new one, and ends in the new one.
///
/// Promise (Input validation): P-14.3 Sticky data moves whole: renamed, or copied, synced, renamed; a crash leaves the
/// old or the new
#[tokio::test(start_paused = true)]
async fn crash_after_any_write_of_an_update_loses_no_data() {
    for writes in 0..16 {
        let host = TestHost::new();
        let agent = host.start().await;
        let first = sticky(service("s"), STICKY);
        let old = submit(&agent, first.clone()).await;
        until_state(&agent, &old, TaskState::Running).await;
        write(&host, &old, "main/local/file", "kept");
        host.faults.fail_after(writes);
        let submitted = agent.submit(changed(&first, 1)).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        agent.shutdown();
        drop(agent);
        host.faults.fail_writes(false);
        let agent = host.start().await;
        let Ok(reply) = submitted else {
            assert_eq!(read(&host, &old, "main/local/file").as_deref(), Some("kept"), "after {writes} writes");
            continue;
        };
        let new = reply.allocs[0].clone();
        until_state(&agent, &new, TaskState::Running).await;
        assert_eq!(read(&host, &new, "main/local/file").as_deref(), Some("kept"), "after {writes} writes");
        assert_eq!(read(&host, &old, "main/local/file"), None, "after {writes} writes");
    }
}

/// Garbage collection does not remove a directory that a replacement is about to take over.
#[tokio::test(start_paused = true)]
async fn alloc_with_data_awaited_by_a_replacement_is_not_collected() {
    let mut host = TestHost::new();
    host.config.gc.max_terminal = 0;
    let agent = host.start().await;
    let mut first = sticky(service("s"), STICKY);
    first.groups[0].count = 2;
    first.groups[0].tasks[0].config.insert("stop_ms".to_owned(), json!(1));
    let old = agent.submit(first.clone()).await.unwrap().allocs;
    for id in &old {
        until_state(&agent, id, TaskState::Running).await;
        write(&host, id, "main/local/file", id.as_str());
    }
    let new = agent.submit(changed(&first, 1)).await.unwrap().allocs;
    agent.collectable(old.clone());
    agent.collect(crate::runner::GcScope::All).await.unwrap();
    for (old, new) in old.iter().zip(&new) {
        until_state(&agent, new, TaskState::Running).await;
        assert_eq!(read(&host, new, "main/local/file").as_deref(), Some(old.as_str()), "each from its own place");
    }
    agent.collectable(old);
    agent.collect(crate::runner::GcScope::All).await.unwrap();
    until("collected", || agent.0.allocs.count() == 2).await;
}
