//! Properties that drivers may have, and how the runner uses them.
//!
//! Promise (Durability and recovery): A task ends with its job's signal, else with its driver's; an unobserved end by
//! it counts as obeyed
//! Promise (Durability and recovery): Cgroup and state that a driver learns at the start are recorded, shown and
//! restored; impossible ones are refused
//! Promise (Durability and recovery): Messages of a driver during its work are the task's events at once, limited, and
//! of no other attempt

use super::*;
use crate::collectors::{FdBudget, SamplingContext, TaskReader};
use crate::host::hierarchy::Layout;
use crate::host::roots::Roots;
use crate::model::event::EventKind;
use crate::model::id::CgroupPath;
use crate::model::usage::{Field, Usage};
use crate::runner::Wait;
use crate::runner::drivers::MockDriver;

#[tokio::test(start_paused = true)]
async fn a_task_is_ended_with_its_jobs_signal_else_with_its_drivers() {
    let host = TestHost::new();
    *host.world.kill_signal.lock().unwrap() = Some("SIGTERM");
    let agent = host.start().await;
    let mut named = service("named");
    named.groups[0].tasks[0].kill_signal = Some("SIGUSR1".to_owned());
    for (job, signal) in [(service("plain"), "SIGTERM"), (named, "SIGUSR1")] {
        let id = submit(&agent, job).await;
        until_state(&agent, &id, TaskState::Running).await;
        agent.stop(&id, Wait::UntilEnded).await.unwrap();
        assert_eq!(*host.world.last().signals.lock().unwrap(), [signal]);
        let status = main_task(&agent, &id);
        assert!(status.events.iter().any(|e| e.details.get("signal").is_some_and(|s| s == signal)), "{status:?}");
    }
}

/// The agent died right after the signal: an end by the driver's own signal counts as requested, not as a crash.
#[tokio::test(start_paused = true)]
async fn unseen_end_by_the_kill_signal_of_the_driver_counts_as_requested() {
    for (signal, obeyed) in [(15, true), (2, false)] {
        let host = TestHost::new();
        *host.world.kill_signal.lock().unwrap() = Some("SIGTERM");
        let agent = host.start().await;
        let mut job = job("expires", JobKind::Service, &[("main", json!({}))]);
        job.groups[0].max_run_duration = Some(Duration::from_secs(60));
        let id = submit(&agent, job).await;
        until_state(&agent, &id, TaskState::Running).await;
        agent.shutdown();
        drop(agent);
        tokio::time::sleep(Duration::from_secs(61)).await;
        host.world.last().end(crate::model::task::ExitStatus::Signal(signal));
        let agent = host.start().await;
        until_over(&agent, &id).await;
        let killed = main_task(&agent, &id).last_exit().unwrap().outcome == crate::model::task::Outcome::Killed;
        assert_eq!(killed, obeyed, "{signal}");
    }
}

/// Like a runtime that creates cgroups itself and names its containers.
#[tokio::test(start_paused = true)]
async fn cgroup_and_driver_state_learned_at_the_start_are_recorded_shown_and_recovered() {
    let host = TestHost::new();
    let (cgroup, state) = (CgroupPath::new("/elsewhere/c0ffee"), json!({ "container": "c0ffee" }));
    *host.world.learns.lock().unwrap() = Some((cgroup.clone(), state.clone()));
    let roots = Roots::default();
    let layout = Layout::detect(&roots).unwrap();
    let reader = Arc::new(TaskReader::reported(&SamplingContext::new(roots, layout, FdBudget::from_limit())));
    *host.world.reader.lock().unwrap() = Some(Arc::clone(&reader));
    let agent = host.start().await;
    let id = submit(&agent, service("s")).await;
    until_state(&agent, &id, TaskState::Running).await;
    assert_eq!(main_task(&agent, &id).cgroup.as_ref(), Some(&cgroup));
    let used = Usage::from([(Field::memory_usage_bytes, 5_000)]);
    reader.report(used, agent.0.ctx.clock.now());
    let shown = published(&agent, &id).readers[0].as_ref().and_then(|reader| reader.latest()).unwrap();
    assert_eq!(shown.usage.memory_usage_bytes(), Some(5_000));
    tokio::time::sleep(Duration::from_secs(1)).await;

    let agent = host.restart(agent).await;
    let recovering = host.world.recovering.lock().unwrap().clone();
    assert_eq!(
        recovering.iter().map(|h| (&h.cgroup, &h.driver_state)).collect::<Vec<_>>(),
        [(&Some(cgroup.clone()), &Some(state))]
    );
    let status = main_task(&agent, &id);
    assert_eq!((status.state, status.attempt, status.cgroup.as_ref()), (TaskState::Running, 0, Some(&cgroup)));
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_learns_what_cannot_be_is_not_believed() {
    for (cgroup, state) in [("/", json!(1)), ("/elsewhere", json!("x".repeat(20_000)))] {
        let host = TestHost::new();
        *host.world.learns.lock().unwrap() = Some((CgroupPath::new(cgroup), state));
        let agent = host.start().await;
        let id = submit(&agent, service("s")).await;
        until_over(&agent, &id).await;
        let status = main_task(&agent, &id);
        assert!(status.failed && status.cgroup.is_none(), "{status:?}");
        assert!(events(&status).contains(&EventKind::DriverFailure.text()), "{status:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn driver_messages_during_a_start_become_task_events_at_once() {
    let host = TestHost::new();
    let agent = host.start().await;
    let config = json!({ "events": ["pulling image", "unpacking\u{7}"], "start_block_for": "20s" });
    let mut job = job("slow", JobKind::Service, &[("main", config)]);
    job.groups[0].tasks[0].driver = MockDriver::NAME.to_owned();
    let id = submit(&agent, job).await;
    let text = |agent: &Handle| -> Vec<String> {
        let of_driver = |e: &&Arc<crate::model::event::Event>| e.kind == EventKind::Driver;
        main_task(agent, &id).events.iter().filter(of_driver).map(|e| e.message.clone()).collect()
    };
    until("its events", || text(&agent).len() == 2).await;
    assert_eq!(main_task(&agent, &id).state, TaskState::Starting, "it is still at it");
    assert_eq!(text(&agent), ["pulling image", "unpacking\u{fffd}"]);
    until_state(&agent, &id, TaskState::Running).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    // Across a restart of the agent too, and never of an earlier attempt.
    let agent = host.restart(agent).await;
    until("what it says then", || text(&agent).len() == 3).await;
    assert_eq!(text(&agent)[2], "note found after a restart");
    let alloc = agent.0.alloc(&id).unwrap();
    alloc.driver_message(0, 7, "of another attempt".to_owned());
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
    alloc.driver_message(0, 0, "after its end".to_owned());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((text(&agent).len(), alloc.take_driver_messages(0).len()), (3, 0));
}

/// Promise (Durability and recovery): A task learns its directories where its driver can expose them
#[tokio::test(start_paused = true)]
async fn task_gets_the_directories_as_its_driver_shows_them() {
    for root in [None, Some("/")] {
        let host = TestHost::new();
        *host.world.root.lock().unwrap() = root.map(Into::into);
        let agent = host.start().await;
        let id = submit(&agent, service("s")).await;
        until_state(&agent, &id, TaskState::Running).await;
        let env = host.world.last().env.clone();
        let seen = ["NOMAD_ALLOC_DIR", "NOMAD_TASK_DIR", "NOMAD_SECRETS_DIR"].map(|name| env[name].clone());
        let on_host = host.data_dir.alloc(&id).display().to_string();
        let expected = match root {
            Some(_) => ["/alloc", "/local", "/secrets"].map(str::to_owned),
            None => ["alloc", "main/local", "main/secrets"].map(|dir| format!("{on_host}/{dir}")),
        };
        assert_eq!(seen, expected);
    }
}
