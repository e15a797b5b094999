//! A changed job with an `update` replaces its allocs `max_parallel` at a time, stops at a failure, and reverts;
//! nothing happens twice.

use serde_json::json;

use super::*;
use crate::model::service::{HealthBasis, HealthRule};
use crate::model::update::{JobUpdate, UpdatePolicy, UpdateState};
use crate::runner::{RunnerError, SubmitReply, Wait};

const HEALTHY_AFTER: u64 = 10;

/// A service that is replaced `max_parallel` at a time; `config` of its task.
fn rolling(count: u32, max_parallel: u32, auto_revert: bool, config: &Value) -> Job {
    let mut job = job("s", JobKind::Service, &[("main", config.clone())]);
    let group = &mut job.groups[0];
    group.count = count;
    group.tasks[0].restart.attempts = 0;
    group.health = Some(HealthRule {
        basis: HealthBasis::TaskStates,
        min_healthy_time: Duration::from_secs(HEALTHY_AFTER),
        healthy_deadline: Duration::from_secs(60),
    });
    group.update = Some(UpdatePolicy { max_parallel, auto_revert, progress_deadline: Duration::from_secs(120) });
    job
}
fn version(count: u32, max_parallel: u32, auto_revert: bool, n: u32) -> Job {
    let mut job = rolling(count, max_parallel, auto_revert, &json!({}));
    job.meta.insert("version".to_owned(), n.to_string());
    job
}
/// Each alloc of it fails after a second.
fn broken(count: u32, auto_revert: bool) -> Job {
    rolling(count, 1, auto_revert, &json!({ "run_ms": 1_000, "exit_code": 1 }))
}

fn shown(agent: &Handle) -> JobUpdate {
    agent.updates().into_iter().next().expect("it has an update")
}
async fn until_status(agent: &Handle, status: UpdateState) -> JobUpdate {
    until(status.as_str(), || shown(agent).status == status).await;
    shown(agent)
}
/// For each index, the `meta` of the job of its live alloc.
fn places(agent: &Handle) -> Vec<(u32, String)> {
    let mut all: Vec<(u32, String)> = agent
        .0
        .allocs
        .live(|alloc| alloc.desired() == crate::model::alloc::Desired::Run)
        .iter()
        .map(|alloc| (alloc.index(), alloc.job.meta.get("version").cloned().unwrap_or_default()))
        .collect();
    all.sort();
    all
}
fn versions(agent: &Handle) -> Vec<String> {
    places(agent).into_iter().map(|(_, version)| version).collect()
}
/// The first version, with all its allocs healthy.
async fn healthy(agent: &Handle, count: u32, max_parallel: u32) -> Vec<AllocId> {
    let SubmitReply { allocs, .. } = agent.submit(version(count, max_parallel, true, 1)).await.unwrap();
    assert_eq!(allocs.len(), usize::try_from(count).unwrap(), "nothing is replaced: all begin at once");
    let first = until_status(agent, UpdateState::Successful).await;
    assert_eq!((first.healthy, first.outdated), (count, 0));
    allocs
}

/// Promise (Input validation): An update replaces `max_parallel` allocs at a time, and waits until they are healthy
#[tokio::test(start_paused = true)]
async fn allocs_are_replaced_max_parallel_at_a_time_and_each_is_waited_for() {
    let host = TestHost::new();
    let agent = host.start().await;
    let old = healthy(&agent, 5, 2).await;
    let began = tokio::time::Instant::now();
    let SubmitReply { allocs, replaced } = agent.submit(version(5, 2, true, 2)).await.unwrap();
    assert_eq!((allocs.len(), replaced), (2, old[..2].to_vec()));
    let mut steps = Vec::new();
    until("all are new", || {
        let new = versions(&agent).iter().filter(|version| *version == "2").count();
        assert_eq!(places(&agent).iter().map(|(place, _)| *place).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert!(host.world.living() <= 5, "no place has two");
        if steps.last() != Some(&new) {
            steps.push(new);
        }
        shown(&agent).status == UpdateState::Successful
    })
    .await;
    assert_eq!(steps, [2, 4, 5]);
    assert!(began.elapsed() >= Duration::from_secs(3 * HEALTHY_AFTER), "{:?}", began.elapsed());
    assert_eq!(shown(&agent).description, "update to version 1 is healthy");
    assert_eq!(host.world.started(), 10);
    let same = agent.submit(version(5, 2, true, 2)).await.unwrap_err();
    assert!(matches!(same, RunnerError::Unchanged { ids, .. } if ids.len() == 5));
}

/// Promise (Input validation): A failed update stops, or goes back with `auto_revert`; allocs that still run stay
#[tokio::test(start_paused = true)]
async fn unhealthy_alloc_fails_the_update_and_the_other_allocs_remain() {
    let host = TestHost::new();
    let agent = host.start().await;
    healthy(&agent, 3, 1).await;
    agent.submit(broken(3, false)).await.unwrap();
    let failed = until_status(&agent, UpdateState::Failed).await;
    assert!(failed.description.starts_with("update to version 1 failed: alloc "), "{failed:?}");
    assert_eq!(failed.outdated, 2);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(versions(&agent), ["1", "1"], "what ran runs on, and nothing more is replaced");
    let metrics = &agent.0.ctx.metrics.updates;
    assert_eq!((metrics.count("s", UpdateState::Successful), metrics.count("s", UpdateState::Failed)), (1, 1));
    let ill = agent.0.allocs.all().into_iter().find(|alloc| alloc.version == 1).unwrap();
    let event = main_task(&agent, &ill.id).events.iter().any(|event| event.message == failed.description);
    assert!(event, "{:?}", main_task(&agent, &ill.id).events);
}

#[tokio::test(start_paused = true)]
async fn auto_revert_restores_the_last_healthy_version_and_reuses_its_allocs() {
    let host = TestHost::new();
    let agent = host.start().await;
    let old = healthy(&agent, 3, 1).await;
    agent.submit(broken(3, true)).await.unwrap();
    until("it goes back", || shown(&agent).reverts_version == Some(1)).await;
    let back = until_status(&agent, UpdateState::Successful).await;
    assert!(back.description.starts_with("reverted to version 0, since version 1 failed: alloc "), "{back:?}");
    assert_eq!(versions(&agent), ["1", "1", "1"]);
    let retained: Vec<String> = old[1..].iter().map(AllocId::to_string).collect();
    assert!(retained.iter().all(|id| back.allocs.contains(id)), "{retained:?} {back:?}");
    assert_eq!(host.world.started(), 3 + 1 + 1);
    // A kept alloc can be restarted, although there was a later version.
    agent.restart(&old[1], crate::runner::RestartTarget::All).await.unwrap();
    // The next version is the third.
    agent.submit(version(3, 3, true, 3)).await.unwrap();
    assert_eq!(until_status(&agent, UpdateState::Successful).await.version, 2);
}

#[tokio::test(start_paused = true)]
async fn without_a_healthy_version_there_is_nothing_to_revert_to() {
    let host = TestHost::new();
    let agent = host.start().await;
    agent.submit(broken(2, true)).await.unwrap();
    let failed = until_status(&agent, UpdateState::Failed).await;
    assert_eq!((failed.version, failed.reverts_version), (0, None));
}

/// Promise (Input validation): An update goes on over restarts of the agent and a refusing disk; nothing happens twice
#[tokio::test(start_paused = true)]
async fn update_continues_over_agent_restarts_without_repeating_steps() {
    let host = TestHost::new();
    let mut agent = host.start().await;
    healthy(&agent, 4, 1).await;
    agent.submit(version(4, 1, true, 2)).await.unwrap();
    let mut rounds = 0;
    while shown(&agent).status == UpdateState::Running {
        // The alloc has to stay healthy this long under one agent.
        tokio::time::sleep(Duration::from_secs(2 * HEALTHY_AFTER + 5)).await;
        agent = host.restart(agent).await;
        let taken = places(&agent);
        assert_eq!(taken.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [0, 1, 2, 3], "{taken:?}");
        rounds += 1;
        assert!(rounds < 20, "{:?}", shown(&agent));
    }
    assert_eq!(shown(&agent).status, UpdateState::Successful);
    assert_eq!((versions(&agent), host.world.started()), (vec!["2".to_owned(); 4], 8));
}

#[tokio::test(start_paused = true)]
async fn revert_continues_over_an_agent_restart() {
    let host = TestHost::new();
    let agent = host.start().await;
    healthy(&agent, 2, 1).await;
    agent.submit(broken(2, true)).await.unwrap();
    until("it goes back", || shown(&agent).reverts_version.is_some()).await;
    let agent = host.restart(agent).await;
    until_status(&agent, UpdateState::Successful).await;
    assert_eq!((versions(&agent), host.world.started()), (vec!["1".to_owned(); 2], 4));
}

/// Promise (Input validation): A stop on request cancels the update
#[tokio::test(start_paused = true)]
async fn stop_on_request_cancels_the_update_and_nothing_replaces_what_was_stopped() {
    let host = TestHost::new();
    let agent = host.start().await;
    let old = healthy(&agent, 3, 1).await;
    agent.submit(version(3, 1, true, 2)).await.unwrap();
    agent.stop(&old[2], Wait::UntilEnded).await.unwrap();
    let cancelled = until_status(&agent, UpdateState::Cancelled).await;
    assert!(cancelled.description.ends_with("an alloc of it was stopped on request"), "{cancelled:?}");
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(places(&agent), [(0, "2".to_owned()), (1, "1".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn submission_during_an_update_supersedes_it_and_the_old_version_reuses_its_allocs() {
    let host = TestHost::new();
    let agent = host.start().await;
    let old = healthy(&agent, 3, 1).await;
    agent.submit(version(3, 1, true, 2)).await.unwrap();
    let reply = agent.submit(version(3, 1, true, 1)).await.unwrap();
    assert_eq!((reply.allocs.len(), reply.replaced.len()), (1, 1), "only what was replaced already");
    let back = until_status(&agent, UpdateState::Successful).await;
    assert_eq!((back.version, versions(&agent)), (0, vec!["1".to_owned(); 3]));
    assert!(old[1..].iter().all(|id| back.allocs.contains(&id.to_string())), "{back:?}");
    assert_eq!(agent.0.ctx.metrics.updates.count("s", UpdateState::Cancelled), 1);
}

#[tokio::test(start_paused = true)]
async fn smaller_and_larger_groups_stop_and_start_at_once_and_roll_the_rest() {
    let host = TestHost::new();
    let agent = host.start().await;
    healthy(&agent, 3, 1).await;
    agent.submit(version(2, 1, true, 2)).await.unwrap();
    until_status(&agent, UpdateState::Successful).await;
    assert_eq!(places(&agent), [(0, "2".to_owned()), (1, "2".to_owned())]);
    let SubmitReply { allocs, replaced } = agent.submit(version(4, 1, true, 3)).await.unwrap();
    assert_eq!((allocs.len(), replaced.len()), (2, 0), "the new places first: they are as many as may be undecided");
    until_status(&agent, UpdateState::Successful).await;
    assert_eq!(versions(&agent), ["3"; 4]);
}

#[tokio::test(start_paused = true)]
async fn step_that_the_disk_refuses_is_tried_again_and_made_once() {
    let host = TestHost::new();
    let agent = host.start().await;
    healthy(&agent, 2, 1).await;
    agent.submit(version(2, 1, true, 2)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    host.faults.fail_writes(true);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(versions(&agent), ["2", "1"]);
    host.faults.fail_writes(false);
    until_status(&agent, UpdateState::Successful).await;
    assert_eq!((versions(&agent), host.world.started()), (vec!["2".to_owned(); 2], 4));
}

#[tokio::test(start_paused = true)]
async fn no_healthy_alloc_within_progress_deadline_fails_the_update() {
    let host = TestHost::new();
    let agent = host.start().await;
    healthy(&agent, 2, 1).await;
    let mut slow = version(2, 1, false, 2);
    let group = &mut slow.groups[0];
    group.health = group.health.map(|rule| HealthRule {
        min_healthy_time: Duration::from_secs(500),
        healthy_deadline: Duration::from_secs(1_000),
        ..rule
    });
    agent.submit(slow).await.unwrap();
    let failed = until_status(&agent, UpdateState::Failed).await;
    assert!(failed.description.ends_with("no alloc became healthy within progress_deadline (120 s)"), "{failed:?}");
}

#[tokio::test(start_paused = true)]
async fn update_record_is_removed_with_the_last_alloc_of_its_job() {
    let host = TestHost::new();
    let agent = host.start().await;
    let allocs = healthy(&agent, 1, 1).await;
    assert_eq!(host.store.scan("update/").unwrap().len(), 1);
    agent.stop(&allocs[0], Wait::UntilEnded).await.unwrap();
    agent.collectable(allocs);
    agent.collect(crate::runner::GcScope::All).await.unwrap();
    until("it is gone", || host.store.scan("update/").unwrap().is_empty()).await;
    assert!(agent.updates().is_empty());
}
