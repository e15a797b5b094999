//! The wall clock is set by a day, forward and back, under a running agent and between two.

use serde_json::json;

use super::shown::{all_events, none_fell, seen_at};
use super::*;
use crate::host::clock::Clock;
use crate::runner::Wait;

const DAY: i64 = 86_400;

/// One runs, one waits to be started again (10 s and some jitter), one does not hear that it is to end (5 s).
#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_makes_no_wait_shorter_or_longer_and_no_counter_falls() {
    for day in [DAY, -DAY] {
        let host = Host::new();
        let agent = host.start().await;
        let seen = |agent: &Handle| seen_at(agent, host.clock.now());
        let runs = submit(&agent, service("runs")).await;
        let deaf = submit(&agent, job("deaf", JobKind::Service, &[("main", json!({ "deaf": 1 }))])).await;
        let fails = submit(&agent, batch("fails", 5, 1)).await;
        until_state(&agent, &runs, TaskState::Running).await;
        until_state(&agent, &deaf, TaskState::Running).await;
        until_state(&agent, &fails, TaskState::Backoff).await;
        agent.stop(&deaf, Wait::No).await.unwrap();
        until_state(&agent, &deaf, TaskState::Killing).await;
        let (began, before) = (tokio::time::Instant::now(), seen(&agent));

        host.clock.jump(day);
        until_over(&agent, &deaf).await;
        let grace = began.elapsed();
        assert!((4..7).contains(&grace.as_secs()), "{day}: its grace was {grace:?}");
        until("the next attempt", || main_task(&agent, &fails).attempt == 1).await;
        let backoff = began.elapsed();
        assert!((9..14).contains(&backoff.as_secs()), "{day}: its backoff was {backoff:?}");
        none_fell(&before, &seen(&agent), "after a jump");

        // Between two agents: what is left of a backoff is not known, but never more than all of it.
        until_state(&agent, &fails, TaskState::Backoff).await;
        let before = seen(&agent);
        agent.shutdown();
        host.clock.jump(day);
        let (agent, began) = (host.start().await, tokio::time::Instant::now());
        none_fell(&before, &seen(&agent), "after a jump between two agents");
        until("the last attempt", || main_task(&agent, &fails).attempt == 2).await;
        assert!(began.elapsed() < Duration::from_secs(14), "{day}: its backoff was {:?}", began.elapsed());
        until_over(&agent, &fails).await;
        let task = main_task(&agent, &runs);
        assert_eq!((task.state, task.attempt), (TaskState::Running, 0), "{day}");
        // The interval of its policy is one of the wall clock: what lies a day back counts no more. Its delays hold all the same.
        let restarts = main_task(&agent, &fails).restarts_total();
        assert!((2..=4).contains(&restarts), "{day}: {restarts} restarts");
        let numbers: Vec<u64> = all_events(&agent).iter().map(|event| event.seq).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
        none_fell(&before, &seen(&agent), "at the end");
        agent.stop(&runs, Wait::UntilEnded).await.unwrap();
    }
}
