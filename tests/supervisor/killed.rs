//! A supervisor that is killed, in each moment of its life.
//!
//! Promise (Durability and recovery): A supervisor killed at any moment leaves nothing running and claims no more than
//! is known

use std::sync::Arc;

use allostat::model::task::{ExitStatus, TaskHandle};
use allostat::runner::drivers::{Attempt, DriverError};

use crate::common::is_root;
use crate::supervisor::recovery::found;
use crate::supervisor::world::{World, ended, lives, shell, until};

/// What is known of the attempt then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    /// That it never ran: it may be started again.
    NotStarted,
    /// That its end was not seen.
    Unknown,
    Code,
}

/// The moment, whether its task has run by then (`None`: it may have), and what is known.
const MOMENTS: [(&str, Option<bool>, Then); 8] = [
    ("born", Some(false), Then::NotStarted),
    ("started", Some(false), Then::NotStarted),
    ("forked", Some(false), Then::NotStarted),
    ("recorded", Some(false), Then::Unknown),
    ("opened", None, Then::Unknown),
    ("reported", None, Then::Unknown),
    ("ended", Some(true), Then::Unknown),
    ("left", Some(true), Then::Code),
];

/// Whose supervisors are killed at that moment.
fn world(with_cgroups: bool, moment: &str) -> World {
    World::of("raw_exec", with_cgroups).with_supervisors(&format!("ALLOSTAT_TEST_DIE_AT={moment}"))
}

async fn what(attempt: &Arc<dyn Attempt>) -> Then {
    match ended(attempt).await.status {
        ExitStatus::Code(3) => Then::Code,
        ExitStatus::Unknown(_) => Then::Unknown,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn supervisor_killed_at_any_moment_leaves_no_process_and_a_truthful_exit() {
    for with_cgroups in [is_root(), false] {
        for (moment, ran, then) in MOMENTS {
            let world = world(with_cgroups, moment);
            // Killed while its task runs, and at its end.
            let stays = matches!(moment, "opened" | "reported");
            let rest = if stays { "exec sleep 600" } else { "until [ -e go ]; do sleep 0.01; done; exit 3" };
            let started = world.start(shell(&format!("echo ran >> ran; echo ready; {rest}"))).await;
            let runs = || std::fs::read_to_string(world.dir.path().join("task/ran")).unwrap_or_default();
            let attempt = match started {
                Ok(attempt) => attempt,
                Err(DriverError::Start { message, recoverable }) => {
                    assert_eq!((Then::NotStarted, true), (then, recoverable), "{moment}: {message}");
                    let left = std::fs::read_dir(world.dir.path().join("run/t/0")).map_or(0, Iterator::count);
                    assert_eq!((left, runs().as_str()), (0, ""), "{moment}");
                    assert!(world.task_cgroups().is_empty(), "{moment}");
                    continue;
                }
                Err(other) => panic!("{moment}: {other:?}"),
            };
            let handle = attempt.handle();
            if ran == Some(true) {
                world.ready().await;
                std::fs::write(world.dir.path().join("task/go"), "").unwrap();
            }
            assert_eq!(what(&attempt).await, then, "{moment}");
            for id in [handle.main.unwrap(), handle.supervisor.unwrap()] {
                until("it to be gone", || (!lives(id.pid)).then_some(())).await;
            }
            assert!(runs().lines().count() <= 1, "{moment}: {}", runs());
            if let Some(ran) = ran {
                assert_eq!(!runs().is_empty(), ran, "{moment}");
            }
            // For the next agent it is the same, also if the start was not on record.
            let persisted = TaskHandle { supervisor: None, main: None, started_at: None, ..handle };
            assert_eq!(what(&found(&world, persisted).await).await, then, "{moment}: found");
            attempt.destroy().await.unwrap();
            assert!(world.task_cgroups().is_empty(), "{moment}");
        }
    }
}
