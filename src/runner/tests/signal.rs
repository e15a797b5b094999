//! Signals in every state of a task: which processes get them, and why not.
//!
//! Promise (Durability and recovery): A signal reaches one task or all, and is refused by name in every state without a
//! process

use serde_json::json;

use super::coordinate::{POSTSTOP, ends, forever, group, running};
use super::*;
use crate::runner::{RunnerError, Wait};

fn sent(host: &TestHost) -> Vec<String> {
    let processes = host.world.processes.lock().unwrap();
    processes.values().flat_map(|p| p.signals.lock().unwrap().clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn signal_reaches_one_or_all_running_tasks_with_an_event_that_has_the_reason() {
    let host = TestHost::new();
    let agent = host.start().await;
    let tasks = [("a", None, forever()), ("b", None, forever()), ("after", POSTSTOP, ends(1, 0))];
    let id = submit(&agent, group(JobKind::Service, &tasks)).await;
    running(&agent, &id, &["a", "b"]).await;
    assert_eq!(agent.signal(&id, Some("b"), "hup").await.unwrap(), ["b".into()], "as people write it");
    let event = Arc::clone(status_of(&agent, &id).tasks[1].events.back().unwrap());
    assert_eq!(event.kind.text(), "Signaling");
    assert_eq!((event.details["signal"].as_str(), event.details["reason"].as_str()), ("SIGHUP", "requested"));
    assert_eq!(sent(&host), ["SIGHUP"]);
    assert_eq!(agent.signal(&id, None, "1").await.unwrap(), ["a".into(), "b".into()], "after waits for its turn");
    assert_eq!(sent(&host), ["SIGHUP"; 3]);
}

#[tokio::test(start_paused = true)]
async fn unknown_signal_is_refused_with_the_nearest_and_sent_to_no_task() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, service("s")).await;
    until_state(&agent, &id, TaskState::Running).await;
    let refused = agent.signal(&id, None, "SIGHUPP").await.unwrap_err();
    assert_eq!(refused, RunnerError::UnknownSignal { name: "SIGHUPP".to_owned(), near: Some("SIGHUP") });
    assert_eq!(refused.to_string(), "there is no signal \"SIGHUPP\"; did you mean SIGHUP?");
    for odd in ["", "SIG", "99", "0", "no such thing"] {
        assert!(matches!(agent.signal(&id, None, odd).await, Err(RunnerError::UnknownSignal { .. })), "{odd:?}");
    }
    assert_eq!(sent(&host), Vec::<String>::new());
    assert!(matches!(agent.signal(&id, Some("x"), "SIGHUP").await, Err(RunnerError::UnknownTask { .. })));
    assert!(matches!(agent.signal(&"x".into(), None, "SIGHUP").await, Err(RunnerError::UnknownAlloc(_))));
}

#[tokio::test(start_paused = true)]
async fn in_every_state_without_a_process_a_signal_is_refused_by_the_states_name() {
    let not_running = |state| RunnerError::NotRunning { task: "main".into(), state };
    let host = TestHost::new();
    let agent = host.start().await;
    // Each brings its task into a state: its config, and the steps to get there.
    for (state, config) in [
        (TaskState::Starting, json!({ "start_ms": 60_000 })),
        (TaskState::Backoff, json!({ "run_ms": 1, "exit_code": 1 })),
        (TaskState::Running, json!({})),
        (TaskState::Killing, json!({ "deaf": 1 })),
        (TaskState::Dead, json!({})),
    ] {
        let id = submit(&agent, job(state.as_str(), JobKind::Service, &[("main", config)])).await;
        if matches!(state, TaskState::Killing | TaskState::Dead) {
            until_state(&agent, &id, TaskState::Running).await;
            agent.stop(&id, if state == TaskState::Dead { Wait::UntilEnded } else { Wait::No }).await.unwrap();
        }
        until_state(&agent, &id, state).await;
        let (one, all) = (agent.signal(&id, Some("main"), "SIGHUP").await, agent.signal(&id, None, "SIGHUP").await);
        match state {
            // A task that is being killed has a process, and may be asked for a dump of its threads.
            TaskState::Running | TaskState::Killing => {
                assert_eq!((one.is_ok(), all.is_ok()), (true, true), "{state:?}")
            }
            TaskState::Pending | TaskState::Starting | TaskState::Backoff | TaskState::Dead => {
                assert_eq!(one, Err(not_running(state)));
                assert_eq!(all, Err(RunnerError::NothingRunning(id.clone())));
            }
        }
    }
    let waiting = [("main", POSTSTOP, forever()), ("work", None, forever())];
    let id = submit(&agent, group(JobKind::Service, &waiting)).await;
    running(&agent, &id, &["work"]).await;
    assert_eq!(agent.signal(&id, Some("main"), "SIGHUP").await, Err(not_running(TaskState::Pending)));
}
