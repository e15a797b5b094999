//! Each setting of a stop for each way to stop a task: the table of `docs/job-files.md`.

use serde_json::json;

use super::coordinate::{SIDECAR, ends, group, leading};
use super::migrate::{read, write};
use super::*;
use crate::model::job::EphemeralDisk;
use crate::model::update::UpdatePolicy;
use crate::runner::{RestartTarget, Wait};

const GROUP: u64 = 2;
const TASK: u64 = 3;
const TIMEOUT: u64 = 4;
/// When the task beside it ends, or its time is over.
const LATER: u64 = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StopCause {
    Stop,
    Newer,
    /// The alloc that replaces it waits for its end and takes over its data.
    Move(EphemeralDisk),
    Update,
    Running,
    Task,
    All,
    Expired,
    Leader,
    Sibling,
    Sidecar,
}

const MOVE: &str = "`run` of a newer version that [takes over its data](#data-of-a-replaced-alloc)";
const WAYS: [(StopCause, &str); 12] = [
    (StopCause::Stop, "`stop`"),
    (StopCause::Newer, "`run` of a newer version of its job"),
    (StopCause::Move(EphemeralDisk { sticky: true, migrate: false }), MOVE),
    (StopCause::Move(EphemeralDisk { sticky: false, migrate: true }), MOVE),
    (StopCause::Update, "its turn in an [`update`](#update)"),
    (StopCause::Running, "`restart ALLOC`"),
    (StopCause::Task, "`restart ALLOC TASK`"),
    (StopCause::All, "`restart ALLOC --all`"),
    (StopCause::Expired, "`max_run_duration` is over"),
    (StopCause::Leader, "its leader has ended"),
    (StopCause::Sibling, "a task beside it has failed"),
    (StopCause::Sidecar, "only sidecars are left"),
];

fn job_of(way: StopCause) -> Job {
    let later = Duration::from_secs(LATER);
    let ms = LATER * 1_000;
    let deaf = json!({ "deaf": 1 });
    let mut job = match way {
        StopCause::Leader => leading(group(JobKind::Batch, &[("a", None, deaf), ("b", None, ends(ms, 0))]), "b"),
        StopCause::Sibling => group(JobKind::Batch, &[("a", None, deaf), ("b", None, ends(ms, 1))]),
        StopCause::Sidecar => group(JobKind::Batch, &[("a", SIDECAR, deaf), ("b", None, ends(ms, 0))]),
        StopCause::Expired => group(JobKind::Batch, &[("a", None, deaf)]),
        StopCause::Stop
        | StopCause::Newer
        | StopCause::Move(_)
        | StopCause::Update
        | StopCause::Running
        | StopCause::Task
        | StopCause::All => group(JobKind::Service, &[("a", None, deaf)]),
    };
    let group = &mut job.groups[0];
    group.shutdown_delay = Duration::from_secs(GROUP);
    group.update = (way == StopCause::Update).then(UpdatePolicy::default);
    if let StopCause::Move(disk) = way {
        group.ephemeral_disk = disk;
    }
    group.max_run_duration = (way == StopCause::Expired).then_some(later);
    let task = &mut group.tasks[0];
    task.shutdown_delay = Duration::from_secs(TASK);
    task.kill_signal = Some("SIGUSR1".to_owned());
    task.kill_timeout = Duration::from_secs(TIMEOUT);
    job
}

/// From the request to the first signal, and from that to SIGKILL; the agent is restarted in between if `away`.
async fn ended_by(way: StopCause, away: bool) -> (Duration, Duration) {
    let host = TestHost::new();
    let mut agent = host.start().await;
    let id = submit(&agent, job_of(way)).await;
    until_state(&agent, &id, TaskState::Running).await;
    let process = host.world.of(&"a".into());
    write(&host, &id, "alloc/data/file", "data");
    let (mut requested_at, mut next) = (tokio::time::Instant::now(), None);
    match way {
        StopCause::Stop => drop(agent.stop(&id, Wait::No).await.unwrap()),
        StopCause::Newer | StopCause::Move(_) | StopCause::Update => {
            let mut newer = job_of(way);
            newer.meta.insert("version".to_owned(), "2".to_owned());
            next = Some(submit(&agent, newer).await);
        }
        StopCause::Running => drop(agent.restart(&id, RestartTarget::Running).await.unwrap()),
        StopCause::Task => drop(agent.restart(&id, RestartTarget::Task("a")).await.unwrap()),
        StopCause::All => drop(agent.restart(&id, RestartTarget::All).await.unwrap()),
        StopCause::Expired | StopCause::Leader | StopCause::Sibling | StopCause::Sidecar => {
            requested_at += Duration::from_secs(LATER)
        }
    }
    if away {
        tokio::time::sleep(requested_at + Duration::from_secs(1) - tokio::time::Instant::now()).await;
        agent = host.restart(agent).await;
    }
    let has = |signal: &str| process.signals.lock().unwrap().iter().any(|sent| sent == signal);
    until("its signal", || has("SIGUSR1")).await;
    let signalled = tokio::time::Instant::now();
    until("force", || has("force")).await;
    assert_eq!(*process.signals.lock().unwrap(), ["SIGUSR1", "force"], "{way:?}");
    let times = (signalled - requested_at, signalled.elapsed());
    if let (StopCause::Move(_), Some(next)) = (way, next) {
        until("its data to be taken over", || read(&host, &next, "alloc/data/file").is_some()).await;
    }
    drop(agent);
    times
}

fn verb(holds: bool) -> &'static str {
    if holds { "yes" } else { "no" }
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_stop_behaves_as_the_table_in_the_docs() {
    let docs = include_str!("../../../docs/job-files.md");
    for (way, text) in WAYS {
        for away in [false, true] {
            let (delay, timeout) = ended_by(way, away).await;
            // Rounded to seconds: a wait polls every few milliseconds, and a start takes some.
            let whole = |time: Duration| (time + Duration::from_millis(500)).as_secs();
            let with_group = whole(delay) > TASK;
            assert_eq!(whole(delay), TASK + if with_group { GROUP } else { 0 }, "{way:?}, {away}");
            let row = format!("| {text} | {} | yes | yes | {} |", verb(with_group), verb(whole(timeout) == TIMEOUT));
            assert!(docs.contains(&row), "{row}");
        }
    }
}

/// The signal is sent once, when the stop's delay is over.
#[tokio::test(start_paused = true)]
async fn a_stop_during_the_delay_of_a_restart_waits_for_its_own_and_nothing_begins() {
    for what in [RestartTarget::Running, RestartTarget::All] {
        let host = TestHost::new();
        let agent = host.start().await;
        let id = submit(&agent, job_of(StopCause::Stop)).await;
        until_state(&agent, &id, TaskState::Running).await;
        agent.restart(&id, what).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let process = host.world.of(&"a".into());
        assert!(process.signals.lock().unwrap().is_empty(), "{what:?}");
        agent.stop(&id, Wait::UntilEnded).await.unwrap();
        assert_eq!(*process.signals.lock().unwrap(), ["SIGUSR1", "force"]);
        assert_eq!((host.world.started(), host.world.living()), (1, 0));
    }
}
