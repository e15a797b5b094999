//! What every driver promises, whatever it runs.

use std::sync::Arc;

use allostat::model::job::Task;
use allostat::model::task::ExitStatus;
use allostat::runner::drivers::{ALL, DriverEntry, DriverError, EventSink, Health, RecoveryOutcome};
use serde_json::json;

use crate::common::workload;
use crate::supervisor::world::{World, ended, task};

/// The same three tasks in each driver's words. A new driver adds its own.
struct Words {
    ends_with_3: Task,
    runs_on: Task,
    cannot_start: Task,
}

fn words(driver: &str) -> Words {
    let workload = workload().display().to_string();
    match driver {
        "raw_exec" => Words {
            ends_with_3: task(driver, json!({"command": workload, "args": ["exit", "3"]})),
            runs_on: task(driver, json!({"command": workload, "args": ["hold", "600000"]})),
            cannot_start: task(driver, json!({"command": "/no/such"})),
        },
        "exec" => Words {
            ends_with_3: task(driver, json!({"command": "workload", "args": ["exit", "3"]})),
            runs_on: task(driver, json!({"command": "workload", "args": ["hold", "600000"]})),
            cannot_start: task(driver, json!({"command": "/no/such"})),
        },
        "mock" => Words {
            ends_with_3: task(driver, json!({"run_for": "5ms", "exit_code": 3})),
            runs_on: task(driver, json!({})),
            cannot_start: task(driver, json!({"start_error": "no"})),
        },
        other => panic!("driver {other} has no words here"),
    }
}

/// Those that there are on this host: `exec` needs root and cgroups; `docker` needs an engine and an image, and
/// tests/containers asks it the same.
fn here() -> impl Iterator<Item = &'static &'static DriverEntry> {
    ALL.iter()
        .filter(|driver| driver.name != "docker")
        .filter(|driver| driver.name != "exec" || World::confined().is_some())
}

fn each() -> impl Iterator<Item = (World, Words)> {
    here().map(|driver| (World::of(driver.name, true), words(driver.name)))
}

#[tokio::test]
async fn the_name_is_the_registered_one_and_handles_carry_it() {
    for ((world, words), name) in each().zip(here().map(|driver| driver.name)) {
        assert_eq!(world.driver.name(), name);
        let request = world.request(words.runs_on);
        let handle = world.driver.prepare(&request).unwrap();
        assert_eq!((handle.driver.as_str(), handle.attempt), (name, 0));
        assert_eq!(handle.run_dir, request.dirs.run);
        assert_eq!(handle.main, None, "nothing runs yet");
        let first = world.driver.fingerprint().next().await.unwrap();
        assert!(first.health == Health::Healthy && !first.description.is_empty());
    }
}

#[tokio::test]
async fn an_unknown_field_is_refused_before_anything_runs() {
    for (world, words) in each() {
        let mut task = words.ends_with_3;
        task.config.insert("no_such_field".into(), 1.into());
        let Err(DriverError::Config(problems)) = world.driver.check(&task) else { panic!("it was accepted") };
        assert_eq!(problems.iter().map(|problem| problem.field.as_str()).collect::<Vec<_>>(), ["no_such_field"]);
        assert!(world.driver.prepare(&world.request(task)).is_err());
    }
}

#[tokio::test]
async fn all_waiters_receive_the_same_end_even_afterwards() {
    for (world, words) in each() {
        let attempt = world.start(words.ends_with_3).await.unwrap();
        let rest: Vec<_> = (0..3)
            .map(|_| {
                let attempt = Arc::clone(&attempt);
                tokio::spawn(async move { attempt.wait().await })
            })
            .collect();
        let end = ended(&attempt).await;
        assert_eq!(end.status, ExitStatus::Code(3));
        for other in rest {
            let other = other.await.unwrap();
            assert_eq!((other.status, other.finished_at), (end.status.clone(), end.finished_at));
        }
        assert_eq!(ended(&attempt).await.finished_at, end.finished_at);
        assert!(end.started_at.unwrap() <= end.finished_at);
        assert!(attempt.signal("SIGTERM").await.is_err());
        attempt.destroy().await.unwrap();
        attempt.destroy().await.unwrap();
    }
}

#[tokio::test]
async fn cancelled_waiter_does_not_affect_other_waiters() {
    for (world, words) in each() {
        let attempt = world.start(words.runs_on).await.unwrap();
        let impatient = tokio::time::timeout(std::time::Duration::from_millis(20), attempt.wait()).await;
        assert!(impatient.is_err(), "it runs on");
        assert!(attempt.destroy().await.is_err(), "what runs is not destroyed");
        attempt.kill().await.unwrap();
        assert_eq!(ended(&attempt).await.status, ExitStatus::Signal(9));
        attempt.kill().await.unwrap();
        attempt.destroy().await.unwrap();
    }
}

#[tokio::test]
async fn signal_that_is_not_caught_ends_it() {
    for (world, words) in each() {
        let attempt = world.start(words.runs_on).await.unwrap();
        attempt.signal("SIGINT").await.unwrap();
        assert_eq!(ended(&attempt).await.status, ExitStatus::Signal(2));
        attempt.destroy().await.unwrap();
    }
}

#[tokio::test]
async fn failed_start_is_an_error_and_no_attempt() {
    for (world, words) in each() {
        let error = world.start(words.cannot_start).await.err().expect("it must not start");
        assert!(matches!(error, DriverError::Start { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn prepared_attempt_is_recovered_as_never_started() {
    for (world, words) in each() {
        let handle = world.driver.prepare(&world.request(words.runs_on)).unwrap();
        // As the runner does, before it records a handle.
        std::fs::create_dir_all(&handle.run_dir).unwrap();
        assert!(matches!(
            world.driver.recover(handle, EventSink::default()).await.unwrap(),
            RecoveryOutcome::NeverStarted
        ));
    }
}
