//! Accepted and refused submissions, and replacements.
//!
//! Promise (Task groups and lifecycle order): P-13.1 The alloc's runner is a type per state: only an ended alloc can be
//! forgotten and removed

use serde_json::json;

use super::*;
use crate::runner::{RunnerError, SubmitReply, Wait};

fn nothing_was_made(host: &TestHost, agent: &Handle) {
    assert!(agent.board().view().allocs.is_empty());
    assert!(host.store.scan("alloc/").unwrap().is_empty());
    assert!(host.store.scan("job/").unwrap().is_empty());
    assert_eq!(std::fs::read_dir(host.data_dir.root().join("alloc")).unwrap().count(), 0);
    assert_eq!(host.world.started(), 0);
}

#[tokio::test(start_paused = true)]
async fn refused_job_leaves_nothing_behind_and_has_its_wrong_place_in_the_error() {
    let host = TestHost::new();
    let agent = host.start().await;
    let mut unknown = service("s");
    unknown.groups[0].tasks[0].driver = "exec".to_owned();
    let error = agent.submit(unknown).await.unwrap_err();
    assert_eq!(error.to_string(), r#"task "main": there is no driver "exec"; this agent has fake, mock"#);
    let wrong = job("s", JobKind::Service, &[("main", json!({})), ("second", json!({ "comand": 1 }))]);
    let error = agent.submit(wrong.clone()).await.unwrap_err();
    assert_eq!(error.to_string(), r#"task "second": comand: is not known"#);
    assert_eq!(agent.check(&wrong).unwrap_err(), error);
    for name in ["", "..", "a/b", "alloc", "memory.stat", "cgroup.procs"] {
        let job = job("s", JobKind::Service, &[(name, json!({}))]);
        assert!(matches!(agent.submit(job).await, Err(RunnerError::Name { .. })), "{name:?}");
    }
    nothing_was_made(&host, &agent);
}

#[tokio::test(start_paused = true)]
async fn failing_database_refuses_new_jobs_and_leaves_running_ones_alone() {
    let host = TestHost::new();
    let agent = host.start().await;
    host.faults.fail_writes(true);
    let error = agent.submit(service("s")).await.unwrap_err();
    assert!(matches!(error, RunnerError::StateDb(_)), "{error:?}");
    nothing_was_made(&host, &agent);
    host.faults.fail_writes(false);
    let id = submit(&agent, service("s")).await;
    until_state(&agent, &id, TaskState::Running).await;
    host.faults.fail_writes(true);
    let mut changed = service("s");
    changed.groups[0].count = 2;
    agent.submit(changed).await.unwrap_err();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(main_task(&agent, &id).state, TaskState::Running, "a refused change stops nothing");
}

#[tokio::test(start_paused = true)]
async fn unchanged_job_with_live_allocs_is_refused_and_starts_again_after_its_end() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, service("s")).await;
    let error = agent.submit(service("s")).await.unwrap_err();
    assert_eq!(error, RunnerError::Unchanged { job: "s".into(), ids: vec![id.clone()] });
    assert!(error.to_string().contains(id.short()), "{error}");
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
    let reply = agent.submit(service("s")).await.unwrap();
    assert_eq!((reply.allocs.len(), reply.replaced.len()), (1, 0));
    assert_ne!(reply.allocs[0], id);
}

#[tokio::test(start_paused = true)]
async fn a_changed_job_stops_the_old_allocs_and_starts_when_they_have_ended() {
    let host = TestHost::new();
    let agent = host.start().await;
    let old = submit(&agent, job("s", JobKind::Service, &[("main", json!({ "deaf": 1 }))])).await;
    until_state(&agent, &old, TaskState::Running).await;
    let SubmitReply { allocs, replaced } = agent.submit(service("s")).await.unwrap();
    assert_eq!(replaced, std::slice::from_ref(&old));
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(main_task(&agent, &old).state, TaskState::Killing);
    assert_eq!(main_task(&agent, &allocs[0]).state, TaskState::Pending);
    until_state(&agent, &allocs[0], TaskState::Running).await;
    assert_eq!(main_task(&agent, &old).state, TaskState::Dead);
    assert_eq!(host.world.living(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_replacement_that_is_stopped_while_it_waits_never_starts() {
    let host = TestHost::new();
    let agent = host.start().await;
    let old = submit(&agent, job("s", JobKind::Service, &[("main", json!({ "deaf": 1 }))])).await;
    until_state(&agent, &old, TaskState::Running).await;
    let new = submit(&agent, service("s")).await;
    agent.stop(&new, Wait::UntilEnded).await.unwrap();
    assert_eq!(main_task(&agent, &old).state, TaskState::Killing, "it did not have to wait");
    until_over(&agent, &old).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(host.world.started(), 1);
}

#[tokio::test(start_paused = true)]
async fn two_submissions_of_one_job_at_the_same_time_start_it_once() {
    let host = TestHost::new();
    let agent = host.start().await;
    let (one, two) = tokio::join!(agent.submit(service("s")), agent.submit(service("s")));
    assert_eq!(u8::from(one.is_ok()) + u8::from(two.is_ok()), 1);
}

#[tokio::test(start_paused = true)]
async fn each_task_of_a_job_has_its_totals_at_0_from_the_submission_on() {
    let host = TestHost::new();
    let agent = host.start().await;
    let mut two = job("j", JobKind::Service, &[("main", json!({})), ("side", json!({}))]);
    two.groups[0].count = 3;
    let reply = agent.submit(two).await.unwrap();
    assert_eq!(reply.allocs.len(), 3);
    let view = agent.board().view();
    assert_eq!(view.totals.workloads.len(), 2);
    assert_eq!(view.totals.node.allocs, 3);
    assert_eq!(
        view.allocs.iter().map(|a| a.identity.name.as_str()).collect::<Vec<_>>(),
        ["j.g[0]", "j.g[1]", "j.g[2]"]
    );
}

#[tokio::test(start_paused = true)]
async fn two_hundred_allocs_all_run_and_all_stop() {
    let host = TestHost::new();
    let agent = host.start().await;
    let mut many = service("many");
    many.groups[0].count = 200;
    let reply = agent.submit(many).await.unwrap();
    until("200 running", || {
        agent.board().view().allocs.iter().filter(|a| lifecycle(a).state == AllocState::Running).count() == 200
    })
    .await;
    assert_eq!((reply.allocs.len(), host.world.started()), (200, 200));
    assert_eq!(agent.stop_all(Wait::UntilEnded).await.len(), 200);
    assert_eq!(totals(&agent, "many").exits, [0, 0, 0, 0, 200, 0]);
    assert_eq!(host.world.undestroyed(), 0);
}

/// Size of the futures that live as long as a task: a thousand idle tasks must not cost megabytes.
#[tokio::test(start_paused = true)]
async fn the_owner_of_a_running_task_is_small() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, service("s")).await;
    let alloc = agent.0.alloc(&id).unwrap();
    let owner = crate::runner::task::own(alloc, 0, crate::runner::task::Beginning::Recorded.known());
    assert!(std::mem::size_of_val(&owner) <= 1024, "{}", std::mem::size_of_val(&owner));
}
