//! Periodic and parameterized jobs, across restarts and failing disks: nothing is launched twice.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::host::clock::Clock;
use crate::model::launching::{
    DispatchParameters, DispatchPayload, DispatchRefusal, JobLaunching, Parameterized, PayloadRule, Periodic,
};
use crate::runner::{GcScope, LaunchedChild, RunnerError, Wait};
use crate::telemetry::launches::LaunchOutcome;

fn periodic(id: &str, cron: &str, ms: u64) -> Job {
    let clock =
        Periodic { enabled: true, crons: vec![cron.to_owned()], prohibit_overlap: false, time_zone: "UTC".to_owned() };
    Job { launching: JobLaunching { periodic: Some(Box::new(clock)), ..JobLaunching::default() }, ..batch(id, ms, 0) }
}
fn parameterized(id: &str) -> Job {
    let parameters = Parameterized {
        payload: PayloadRule::Optional,
        meta_required: vec!["to".to_owned()],
        meta_optional: vec!["why".to_owned()],
    };
    let launching = JobLaunching { parameterized: Some(Box::new(parameters)), ..JobLaunching::default() };
    Job { launching, ..batch(id, 60_000, 0) }
}
fn given(token: Option<&str>) -> DispatchParameters {
    DispatchParameters {
        payload: Some(DispatchPayload { base64: "aGVsbG8=".to_owned(), bytes: 5 }),
        meta: BTreeMap::from([("to".to_owned(), "you".to_owned())]),
        token: token.map(str::to_owned),
    }
}

/// The job of each alloc, sorted.
fn jobs(agent: &Handle) -> Vec<String> {
    let view = agent.board().view();
    let mut jobs: Vec<String> = view.allocs.iter().map(|a| lifecycle(a).job.id.to_string()).collect();
    jobs.sort();
    jobs
}
fn launched_at(agent: &Handle) -> Vec<u64> {
    jobs(agent).iter().map(|id| id.rsplit_once("periodic-").unwrap().1.parse().unwrap()).collect()
}
fn count(agent: &Handle, job: &str, outcome: LaunchOutcome) -> u64 {
    agent.0.ctx.metrics.launches.count(job, outcome)
}
fn seconds(host: &TestHost) -> u64 {
    host.clock.now().0 / 1_000_000_000
}

#[tokio::test(start_paused = true)]
async fn periodic_job_is_launched_each_due_second_and_its_children_are_one_workload() {
    let host = TestHost::new();
    let agent = host.start().await;
    let began = seconds(&host);
    let reply = agent.submit(periodic("tick", "* * * * * * *", 5)).await.unwrap();
    assert!(reply.allocs.is_empty(), "the job itself has no allocs");
    until("five launches", || jobs(&agent).len() >= 5).await;
    let at = launched_at(&agent);
    assert!(at.windows(2).all(|two| two[1] == two[0] + 1), "{at:?}");
    assert!(at[0] > began && at[0] <= began + 2, "{began} {at:?}");
    let alloc = agent.board().view().allocs[0].clone();
    assert_eq!(alloc.identity.workload.as_ref().unwrap().as_str(), "tick");
    assert_eq!(alloc.identity.name, format!("tick/periodic-{}.g[0]", at[0]));
    until("exits", || totals(&agent, "tick").exits.iter().sum::<u64>() >= 4).await;
    let view = agent.board().view();
    assert!(view.totals.workloads.keys().all(|(workload, _)| workload.as_str() == "tick"), "no workload of a child");
    assert!(count(&agent, "tick", LaunchOutcome::Launched) >= 5);
    assert_eq!(count(&agent, "tick", LaunchOutcome::Missed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_launch_that_was_missed_while_the_agent_was_down_is_made_once() {
    let host = TestHost::new();
    let agent = host.start().await;
    agent.submit(periodic("hourly", "0 * * * *", 5)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(jobs(&agent).is_empty());
    agent.shutdown();
    drop(agent);
    host.clock.jump(10 * 3_600 + 7);
    let agent = host.start().await;
    until("a launch", || jobs(&agent).len() == 1).await;
    let now = seconds(&host);
    assert!(now - launched_at(&agent)[0] <= 1, "it is named after the moment at which it was made");
    assert_eq!(count(&agent, "hourly", LaunchOutcome::Missed), 1);
    let agent = host.restart(agent).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(jobs(&agent).len(), 1, "the next agent makes it no second time");
}

/// Promise (Input validation): A clock that is set back launches nothing twice; of many missed launches one is made
#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_back_launches_nothing_twice() {
    let host = TestHost::new();
    let agent = host.start().await;
    agent.submit(periodic("tick", "*/10 * * * * * *", 5)).await.unwrap();
    until("three launches", || jobs(&agent).len() == 3).await;
    let before = launched_at(&agent);
    host.clock.jump(-25);
    let agent = host.restart(agent).await;
    host.clock.jump(-3);
    until("the next launch", || jobs(&agent).len() == 4).await;
    let after = launched_at(&agent);
    assert_eq!(after[..3], before);
    assert_eq!(after[3], before[2] + 10);
}

/// However many writes reach the disk before the agent dies: each due time has one child with one alloc.
#[tokio::test(start_paused = true)]
async fn a_crash_after_any_write_launches_no_due_time_twice_and_leaves_none_out() {
    for writes in 0..8 {
        let host = TestHost::new();
        let agent = host.start().await;
        agent.submit(periodic("tick", "*/10 * * * * * *", 5)).await.unwrap();
        host.faults.fail_after(writes);
        tokio::time::sleep(Duration::from_secs(25)).await;
        agent.shutdown();
        drop(agent);
        host.faults.fail_writes(false);
        let agent = host.start().await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        let at = launched_at(&agent);
        let distinct: BTreeSet<u64> = at.iter().copied().collect();
        assert_eq!(distinct.len(), at.len(), "{writes}: {at:?}");
        assert!(at.len() >= 3, "{writes}: {at:?}");
        until("all are over", || agent.board().view().allocs.iter().all(|a| lifecycle(a).is_terminal())).await;
        assert_eq!(host.world.started(), at.len(), "{writes}: each has started once");
    }
}

#[tokio::test(start_paused = true)]
async fn prohibit_overlap_skips_while_a_child_runs_also_after_a_restart() {
    let host = TestHost::new();
    let agent = host.start().await;
    let mut job = periodic("slow", "*/10 * * * * * *", 45_000);
    job.launching.periodic.as_mut().unwrap().prohibit_overlap = true;
    agent.submit(job).await.unwrap();
    until("a launch", || jobs(&agent).len() == 1).await;
    tokio::time::sleep(Duration::from_secs(21)).await;
    assert_eq!(count(&agent, "slow", LaunchOutcome::Skipped), 2);
    let agent = host.restart(agent).await;
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(jobs(&agent).len(), 1);
    assert_eq!(count(&agent, "slow", LaunchOutcome::Skipped), 1);
    until("the second launch", || jobs(&agent).len() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_stopped_parent_launches_nothing_and_its_children_run_on() {
    let host = TestHost::new();
    let agent = host.start().await;
    agent.submit(periodic("tick", "*/10 * * * * * *", 600_000)).await.unwrap();
    until("two launches", || jobs(&agent).len() == 2).await;
    let stopped = agent.stop_job("tick").await.unwrap();
    assert!(stopped.was_parent && stopped.running.len() == 2, "{stopped:?}");
    let agent = host.restart(agent).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(jobs(&agent).len(), 2, "nor does the next agent");
    assert!(agent.parents().is_empty());
    let child = &stopped.running[0];
    let of_child = agent.stop_job(child.as_str()).await.unwrap();
    assert_eq!((of_child.was_parent, of_child.allocs.len()), (false, 1));
    until_over(&agent, &of_child.allocs[0]).await;
    assert!(matches!(agent.stop_job("tik").await, Err(RunnerError::UnknownJob { .. })));
    agent.stop_all(Wait::UntilEnded).await;
}

#[tokio::test(start_paused = true)]
async fn a_forced_launch_comes_at_once_and_once_a_second_and_not_where_it_is_not_enabled() {
    let host = TestHost::new();
    let agent = host.start().await;
    agent.submit(periodic("yearly", "@yearly", 5)).await.unwrap();
    let first = agent.force("yearly").await.unwrap();
    assert!(!first.existed && first.allocs.len() == 1, "{first:?}");
    let again = agent.force("yearly").await.unwrap();
    assert_eq!(again, LaunchedChild { existed: true, ..first }, "within the same second it is the same child");
    assert_eq!(agent.parents()[0].record.last_launch, Some(seconds(&host)));
    let mut off = periodic("off", "@yearly", 5);
    off.launching.periodic.as_mut().unwrap().enabled = false;
    agent.submit(off).await.unwrap();
    let mut plain = periodic("plain", "@yearly", 5);
    plain.launching.periodic = None;
    agent.submit(plain).await.unwrap();
    for (job, why) in [
        ("off", "not enabled"),
        ("nothing", "no job"),
        ("yearl", "did you mean yearly"),
        ("plain", "is neither periodic nor parameterized"),
    ] {
        let refused = agent.force(job).await.unwrap_err().to_string();
        assert!(refused.contains(why), "{job}: {refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dispatched_child_has_its_payload_and_its_metadata_until_it_is_collected() {
    let host = TestHost::new();
    let agent = host.start().await;
    let mut job = parameterized("mail");
    job.groups[0].tasks[0].dispatch_payload = Some("in/letter".to_owned());
    agent.submit(job).await.unwrap();
    let launched = agent.dispatch("mail", given(None)).await.unwrap();
    let id = &launched.allocs[0];
    until_state(&agent, id, TaskState::Running).await;
    let file = host.data_dir.alloc(id).join("main/local/in/letter");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "hello");
    let env = host.world.processes.lock().unwrap().values().next().unwrap().env.clone();
    let variable = |name: &str| env.get(name).cloned();
    assert_eq!(variable("NOMAD_JOB_PARENT_ID").as_deref(), Some("mail"));
    assert_eq!(variable("NOMAD_JOB_ID").as_deref(), Some(launched.id.as_str()));
    assert_eq!(variable("NOMAD_META_to").as_deref(), Some("you"));
    assert_eq!(variable("NOMAD_META_why").as_deref(), Some(""));
    // The agent is gone, and so is the file: the next start of the task creates it again.
    let agent = host.restart(agent).await;
    std::fs::remove_file(&file).unwrap();
    agent.restart(id, crate::runner::RestartTarget::Running).await.unwrap();
    until("another attempt", || main_task(&agent, id).attempt == 1 && file.exists()).await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "hello");
    agent.stop(id, Wait::UntilEnded).await.unwrap();
    agent.collectable([id.clone()]);
    agent.collect(GcScope::All).await.unwrap();
    assert!(host.store.scan("job/").unwrap().is_empty(), "its payload went with it");
    assert_eq!(host.store.scan("parent/").unwrap().len(), 1);
}

/// The user of a task may plant links anywhere below its directory.
#[tokio::test(start_paused = true)]
async fn a_payload_is_written_through_no_link_that_a_task_planted() {
    let host = TestHost::new();
    let outside = tempfile::tempdir().unwrap();
    let agent = host.start().await;
    let mut job = parameterized("mail");
    job.groups[0].tasks[0].dispatch_payload = Some("in/letter".to_owned());
    agent.submit(job).await.unwrap();
    let launched = agent.dispatch("mail", given(None)).await.unwrap();
    let id = &launched.allocs[0];
    until_state(&agent, id, TaskState::Running).await;
    let local = host.data_dir.alloc(id).join("main/local");
    std::fs::remove_dir_all(local.join("in")).unwrap();
    std::os::unix::fs::symlink(outside.path(), local.join("in")).unwrap();
    agent.restart(id, crate::runner::RestartTarget::Running).await.unwrap();
    let failed = |agent: &Handle| events(&main_task(agent, id)).contains(&"Setup Failure");
    until("the hook fails", || failed(&agent)).await;
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    agent.stop_all(Wait::UntilEnded).await;
}

#[tokio::test(start_paused = true)]
async fn an_idempotency_token_launches_one_child_while_it_is_on_record() {
    let host = TestHost::new();
    let agent = host.start().await;
    agent.submit(parameterized("mail")).await.unwrap();
    let first = agent.dispatch("mail", given(Some("t"))).await.unwrap();
    let agent = host.restart(agent).await;
    let again = agent.dispatch("mail", given(Some("t"))).await.unwrap();
    assert_eq!(again, LaunchedChild { existed: true, ..first.clone() });
    assert_ne!(agent.dispatch("mail", given(Some("u"))).await.unwrap().id, first.id);
    agent.stop(&first.allocs[0], Wait::UntilEnded).await.unwrap();
    let again = agent.dispatch("mail", given(Some("t"))).await.unwrap();
    assert_eq!(again, LaunchedChild { existed: true, ..first.clone() }, "it has ended, and is on record");
    let lacks = DispatchParameters::default();
    let refused = agent.dispatch("mail", lacks).await.unwrap_err();
    let refusal = DispatchRefusal::MetaMissing(vec!["to".to_owned()]);
    assert_eq!(refused, RunnerError::Dispatch { job: "mail".into(), refusal });
}

#[tokio::test(start_paused = true)]
async fn a_job_neither_becomes_a_parent_nor_stops_being_one_while_it_is_there() {
    let host = TestHost::new();
    let agent = host.start().await;
    let plain = submit(&agent, batch("b", 60_000, 0)).await;
    let refused = agent.submit(periodic("b", "@daily", 5)).await.unwrap_err();
    assert!(matches!(refused, RunnerError::JobKind { .. }), "{refused}");
    agent.stop(&plain, Wait::UntilEnded).await.unwrap();
    agent.submit(periodic("b", "@daily", 5)).await.unwrap();
    agent.submit(periodic("b", "@daily", 5)).await.expect("the same again changes nothing");
    agent.submit(periodic("b", "@hourly", 5)).await.expect("another schedule");
    let refused = agent.submit(batch("b", 5, 0)).await.unwrap_err();
    assert!(matches!(refused, RunnerError::JobKind { .. }), "{refused}");
    agent.stop_job("b").await.unwrap();
    submit(&agent, batch("b", 5, 0)).await;
}

#[tokio::test(start_paused = true)]
async fn with_a_failing_database_no_parent_is_registered_or_stopped() {
    let host = TestHost::new();
    let agent = host.start().await;
    host.faults.fail_writes(true);
    let refused = agent.submit(periodic("b", "@daily", 5)).await.unwrap_err();
    assert!(matches!(refused, RunnerError::StateDb(_)), "{refused}");
    assert!(agent.parents().is_empty());
    host.faults.fail_writes(false);
    agent.submit(periodic("b", "@daily", 5)).await.unwrap();
    host.faults.fail_writes(true);
    assert!(matches!(agent.stop_job("b").await, Err(RunnerError::StateDb(_))));
    assert!(matches!(agent.force("b").await, Err(RunnerError::StateDb(_))));
    host.faults.fail_writes(false);
    let agent = host.restart(agent).await;
    assert_eq!(agent.parents().len(), 1, "it stays");
    assert!(jobs(&agent).is_empty());
}

/// Ten minutes of a cron of each second: allocs and records do not accumulate.
///
/// Promise (Input validation): Children of a job are one workload, and the newest 100 are retained
#[tokio::test(start_paused = true)]
async fn a_job_of_each_second_does_not_grow_the_store_without_end() {
    let host = TestHost::new();
    let agent = host.start().await;
    agent.submit(periodic("tick", "* * * * * * *", 5)).await.unwrap();
    let mut most = 0;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_secs(30)).await;
        let ids: Vec<AllocId> = agent.board().view().allocs.iter().map(|a| a.identity.id.clone()).collect();
        most = most.max(ids.len());
        agent.collectable(ids);
    }
    assert!(count(&agent, "tick", LaunchOutcome::Launched) > 570);
    assert!(most < 250, "{most} allocs were known at once");
    assert!(host.store.scan("job/").unwrap().len() < 250);
    assert!(host.store.scan("task/").unwrap().len() < 250);
    let exits: u64 = totals(&agent, "tick").exits.iter().sum();
    assert!(exits > 560, "{exits}: the totals are of all of them");
}

/// A day after its last child the totals of a workload move to the node's, unless the job still exists.
#[tokio::test(start_paused = true)]
async fn totals_of_a_registered_parent_outlast_a_day_without_launches() {
    let host = TestHost::new();
    let agent = host.start().await;
    agent.submit(periodic("yearly", "@yearly", 5)).await.unwrap();
    let launched = agent.force("yearly").await.unwrap();
    until_over(&agent, &launched.allocs[0]).await;
    agent.collectable(launched.allocs.clone());
    agent.collect(GcScope::All).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2 * 86_400)).await;
    assert_eq!(totals(&agent, "yearly").exits.iter().sum::<u64>(), 1);
}
