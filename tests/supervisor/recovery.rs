//! The agent goes and comes back: attempts are found by their handles, whatever happened meanwhile.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use allostat::host::process;
use allostat::model::id::BootId;
use allostat::model::task::{ExitStatus, TaskHandle};
use allostat::runner::drivers::{Attempt, DriverError, EventSink, RecoveryOutcome};
use allostat::supervisor::record::{SupervisedStart, SupervisorRecord};

use crate::supervisor::world::{World, ended, lives, program, shell, until, work};

pub async fn found(world: &World, handle: TaskHandle) -> Arc<dyn Attempt> {
    match world.driver.recover(handle, EventSink::default()).await.unwrap() {
        RecoveryOutcome::Attempt(attempt) => attempt,
        RecoveryOutcome::NeverStarted => panic!("it was started"),
    }
}

/// The same, with how long the driver waited between its looks. That is paused time: it passes at once, and not while a
/// look goes on.
async fn found_after(world: &World, handle: TaskHandle) -> (Arc<dyn Attempt>, std::time::Duration) {
    tokio::time::pause();
    let started_at = tokio::time::Instant::now();
    let attempt = found(world, handle).await;
    let waited = started_at.elapsed();
    tokio::time::resume();
    (attempt, waited)
}

/// What a store would have: the handle from before the start.
fn persisted(world: &World, attempt: &Arc<dyn Attempt>) -> TaskHandle {
    let handle = attempt.handle();
    assert_eq!(handle.run_dir, world.dir.path().join("run/t/0"));
    TaskHandle { supervisor: None, main: None, started_at: None, ..handle }
}

#[tokio::test]
async fn running_attempt_is_recovered_and_its_end_reported() {
    let world = World::new();
    let attempt = world.start(program("sleep", &["600"])).await.unwrap();
    let (handle, before) = (persisted(&world, &attempt), attempt.handle());
    drop(attempt);
    let again = found(&world, handle).await;
    assert_eq!(again.handle(), before, "the record knows who it is");
    assert!(again.reader().is_some());
    again.signal("SIGTERM").await.unwrap();
    assert_eq!(ended(&again).await.status, ExitStatus::Signal(15));
    again.destroy().await.unwrap();
    assert!(world.task_cgroups().is_empty());
}

#[tokio::test]
async fn an_attempt_that_ended_meanwhile_is_found_with_its_last_reading() {
    let world = World::new();
    let attempt = world.start(work(&["exit", "5"])).await.unwrap();
    let handle = persisted(&world, &attempt);
    let first = ended(&attempt).await;
    drop(attempt);
    for _ in 0..2 {
        let end = ended(&found(&world, handle.clone()).await).await;
        assert_eq!((end.status, end.finished_at), (ExitStatus::Code(5), first.finished_at));
        assert_eq!(end.usage, first.usage);
    }
    found(&world, handle.clone()).await.destroy().await.unwrap();
    let removed = ended(&found(&world, handle).await).await.status;
    assert!(
        matches!(removed, ExitStatus::Unknown(_)),
        "nothing is left of it, least of all a reason to start it: {removed:?}"
    );
}

/// Promise (Durability and recovery): A killed supervisor leaves nothing running, and an `unknown` end
#[tokio::test]
async fn a_killed_supervisor_leaves_nothing_running_and_an_unknown_end() {
    for world in [World::new(), World::without_cgroups()] {
        let attempt = world.start(shell("sleep 600 & echo ready; wait")).await.unwrap();
        world.ready().await;
        let handle = attempt.handle();
        let main = handle.main.unwrap().pid;
        process::signal_pid(handle.supervisor.unwrap().pid, 9).unwrap();
        let end = ended(&attempt).await;
        let ExitStatus::Unknown(why) = &end.status else { panic!("{:?}", end.status) };
        assert!(why.contains("supervisor was killed"), "{why}");
        until("the main process to be gone", || (!lives(main)).then_some(())).await;
        if world.has_cgroups() {
            assert!(end.usage.cpu_usage_ns().unwrap() > 0, "the cgroup still knew: {:?}", end.usage);
        }
        let again = found(&world, handle).await;
        assert!(matches!(ended(&again).await.status, ExitStatus::Unknown(_)));
        attempt.destroy().await.unwrap();
        assert!(world.task_cgroups().is_empty());
    }
}

/// As an attacker does it: a session of its own, then SIGKILL to who watches. In a cgroup it is found all the same.
///
/// Promise (Input validation): A task that killed its supervisor is ended in a cgroup; without one the end reports that
/// it may still run
#[tokio::test]
async fn process_outside_its_session_is_ended_by_cgroup_or_reported_as_possibly_running() {
    for world in [World::new(), World::without_cgroups()] {
        let script = "setsid sh -c 'echo escaped $$; exec sleep 600' & echo ready; wait";
        let attempt = world.start(shell(script)).await.unwrap();
        world.ready().await;
        let handle = attempt.handle();
        let escaped = until("it to have left", || {
            world.stdout().lines().find_map(|line| line.strip_prefix("escaped ")?.parse::<u32>().ok())
        })
        .await;
        process::signal_pid(handle.supervisor.unwrap().pid, 9).unwrap();
        let end = ended(&attempt).await;
        let ExitStatus::Unknown(why) = &end.status else { panic!("{:?}", end.status) };
        assert_eq!(lives(escaped), !world.has_cgroups(), "{why}");
        assert_eq!(why.contains("left its session is not found, and may still run"), !world.has_cgroups(), "{why}");
        if lives(escaped) {
            process::signal_pid(escaped, 9).unwrap();
            until("it to be gone", || (!lives(escaped)).then_some(())).await;
        }
        attempt.destroy().await.unwrap();
    }
}

#[tokio::test]
async fn a_supervisor_killed_while_the_agent_was_away_is_found_out_by_the_free_lock() {
    let world = World::new();
    let attempt = world.start(program("sleep", &["600"])).await.unwrap();
    let (handle, ids) = (persisted(&world, &attempt), attempt.handle());
    drop(attempt);
    process::signal_pid(ids.supervisor.unwrap().pid, 9).unwrap();
    until("the supervisor to be gone", || (!lives(ids.supervisor.unwrap().pid)).then_some(())).await;
    let again = found(&world, handle).await;
    assert!(matches!(ended(&again).await.status, ExitStatus::Unknown(_)));
    assert_eq!(again.handle().main, ids.main);
    until("the main process to be gone", || (!lives(ids.main.unwrap().pid)).then_some(())).await;
    again.destroy().await.unwrap();
}

#[tokio::test]
async fn a_record_that_nothing_was_written_to_means_never_started() {
    let world = World::new();
    let request = world.request(work(&["exit", "0"]));
    let handle = world.driver.prepare(&request).unwrap();
    std::fs::create_dir_all(&handle.run_dir).unwrap();
    drop(SupervisorRecord::create(&handle.run_dir).unwrap());
    assert!(matches!(
        world.driver.recover(handle.clone(), EventSink::default()).await.unwrap(),
        RecoveryOutcome::NeverStarted
    ));
    // And so it may be started, in the same place.
    let attempt = world.driver.start(request, handle).await.unwrap();
    assert_eq!(ended(&attempt).await.status, ExitStatus::Code(0));
    attempt.destroy().await.unwrap();
}

#[tokio::test]
async fn a_record_of_another_boot_is_an_unknown_end_and_no_process_is_touched() {
    let world = World::new();
    let request = world.request(work(&["exit", "0"]));
    let other = BootId("another".into());
    let handle = TaskHandle { boot_id: other.clone(), ..world.driver.prepare(&request).unwrap() };
    std::fs::create_dir_all(&handle.run_dir).unwrap();
    let record = SupervisorRecord::create(&handle.run_dir).unwrap();
    // In that boot our own pid was the task's.
    let me = process::identity(std::process::id()).unwrap();
    let start = SupervisedStart { boot_id: other, supervisor: me.unwrap(), main: me, started_at: None };
    record.write_start(&start).unwrap();
    // Held for a moment, as by a process that is just being forked and has a copy of the descriptor: that is no
    // supervisor. Paused time goes on only while the driver waits for its next look, so it has met the lock by then.
    tokio::time::pause();
    let (again, ()) = tokio::join!(found(&world, handle), async {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        record.unlock().unwrap();
    });
    tokio::time::resume();
    let end = ended(&again).await;
    assert!(matches!(&end.status, ExitStatus::Unknown(why) if why.contains("restarted")), "{:?}", end.status);
    again.destroy().await.unwrap();
}

/// Promise (Durability and recovery): T-12.3 A torn exit record is unknown; a record of another boot touches no process
#[tokio::test]
async fn a_torn_exit_is_unknown_and_not_an_exit() {
    let world = World::new();
    let (attempt, end) = world.run(work(&["exit", "0"])).await;
    assert_eq!(end.status, ExitStatus::Code(0));
    let path = attempt.handle().run_dir.join("record");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4096 + 200] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let again = found(&world, attempt.handle()).await;
    assert!(matches!(&ended(&again).await.status, ExitStatus::Unknown(why) if why.contains("torn")));
    attempt.destroy().await.unwrap();
}

/// The record is overwritten or cut short in its place, while its supervisor lives, who goes on to write its exit into
/// it.
///
/// Promise (Durability and recovery): A damaged record under a living supervisor loses no living task and no exit, and
/// delays nothing
#[tokio::test]
async fn a_damaged_record_loses_no_living_task_and_no_exit() {
    for damaged in [vec![0xff; 4096], vec![0xff; 32_768], Vec::new()] {
        let world = World::new();
        let attempt = world.start(program("sleep", &["600"])).await.unwrap();
        let handle = attempt.handle();
        drop(attempt);
        let name = handle.run_dir.join("record");
        let (file, size) = (std::fs::OpenOptions::new().write(true).open(&name).unwrap(), damaged.len());
        if size == 0 {
            file.set_len(0).unwrap()
        } else {
            file.write_all_at(&damaged, 0).unwrap()
        }
        let (again, waited) = found_after(&world, handle.clone()).await;
        assert!(waited < std::time::Duration::from_secs(20), "{size}: {waited:?}");
        assert_eq!(again.handle(), handle, "{size}");
        assert!(lives(handle.main.unwrap().pid), "{size}");
        again.signal("SIGTERM").await.unwrap();
        assert_eq!(ended(&again).await.status, ExitStatus::Signal(15), "{size}");
        again.destroy().await.unwrap();
    }
}

/// Damaged before the agent knew of it: its identity is not known, now or later.
#[tokio::test]
async fn damaged_only_record_of_a_task_is_no_reason_to_wait() {
    let world = World::new();
    let attempt = world.start(program("sleep", &["600"])).await.unwrap();
    let (handle, main) = (persisted(&world, &attempt), attempt.handle().main.unwrap());
    drop(attempt);
    let file = std::fs::OpenOptions::new().write(true).open(handle.run_dir.join("record")).unwrap();
    file.write_all_at(&[0xff; 4096], 0).unwrap();
    let (again, waited) = found_after(&world, handle).await;
    assert!(waited < std::time::Duration::from_secs(20), "{waited:?}");
    assert!(matches!(&ended(&again).await.status, ExitStatus::Unknown(why) if why.contains("not of a supervisor")));
    until("it to be gone", || (!lives(main.pid)).then_some(())).await;
    again.destroy().await.unwrap();
}

/// No process can open the record, until `back` puts it there again.
fn hide_record(handle: &TaskHandle) -> impl FnOnce() + use<> {
    let (record, aside) = (handle.run_dir.join("record"), handle.run_dir.join("aside"));
    std::fs::rename(&record, &aside).unwrap();
    std::fs::create_dir(&record).unwrap();
    move || {
        std::fs::remove_dir(&record).unwrap();
        std::fs::rename(aside, record).unwrap();
    }
}

#[tokio::test]
async fn an_error_that_passes_loses_no_living_task() {
    let world = World::new();
    let attempt = world.start(program("sleep", &["600"])).await.unwrap();
    let (handle, before) = (persisted(&world, &attempt), attempt.handle());
    drop(attempt);
    let back = hide_record(&handle);
    // Paused time goes on only while the driver waits for its next look, so it has met the error by then.
    tokio::time::pause();
    let ((), again) = tokio::join!(
        async {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            back();
        },
        found(&world, handle)
    );
    tokio::time::resume();
    assert_eq!(again.handle(), before);
    assert!(lives(before.main.unwrap().pid));
    again.kill().await.unwrap();
    assert_eq!(ended(&again).await.status, ExitStatus::Signal(9));
    again.destroy().await.unwrap();
}

#[tokio::test]
async fn task_abandoned_as_lost_does_not_run_on() {
    for world in [World::new(), World::without_cgroups()] {
        let attempt = world.start(shell("sleep 600 & echo ready; wait")).await.unwrap();
        world.ready().await;
        let handle = attempt.handle();
        drop(attempt);
        let _back = hide_record(&handle);
        // The patience of the driver passes at once.
        tokio::time::pause();
        let again = found(&world, handle.clone()).await;
        tokio::time::resume();
        let ExitStatus::Unknown(why) = ended(&again).await.status else { panic!("it was not seen to end") };
        assert!(why.contains("cannot read the record"), "{why}");
        until("it to be gone", || (!lives(handle.main.unwrap().pid)).then_some(())).await;
        assert!(!lives(handle.supervisor.unwrap().pid));
        again.destroy().await.unwrap();
    }
}

/// A supervisor's record is still there when its name is gone, as long as the supervisor lives.
///
/// Promise (Durability and recovery): A record removed without an agent loses no living task and no exit as long as its
/// supervisor lives
#[tokio::test]
async fn a_removed_record_loses_no_living_task_and_no_exit() {
    for world in [World::new(), World::without_cgroups()] {
        for settled in [true, false] {
            let attempt = world.start(program("sleep", &["600"])).await.unwrap();
            let before = attempt.handle();
            let handle = if settled { attempt.handle() } else { persisted(&world, &attempt) };
            drop(attempt);
            std::fs::remove_file(handle.run_dir.join("record")).unwrap();
            if !settled {
                std::fs::remove_file(handle.run_dir.join("orders.json")).unwrap();
                std::fs::remove_file(handle.run_dir.join("supervisor.err")).unwrap();
                std::fs::remove_dir(&handle.run_dir).unwrap();
            }
            let again = found(&world, handle).await;
            assert_eq!(again.handle(), before, "as its supervisor's record says");
            assert!(lives(before.main.unwrap().pid));
            again.signal("SIGTERM").await.unwrap();
            let end = ended(&again).await;
            assert_eq!(end.status, ExitStatus::Signal(15), "read by the descriptor that was kept");
            assert_eq!(end.started_at, before.started_at);
            again.destroy().await.unwrap();
            assert!(world.task_cgroups().is_empty());
        }
    }
}

#[tokio::test]
async fn attempt_with_removed_record_and_killed_supervisor_is_ended_and_not_restarted() {
    for world in [World::new(), World::without_cgroups()] {
        for settled in [true, false] {
            if !settled && !world.has_cgroups() {
                // Nothing names its process: no handle, no record, no supervisor, no cgroup.
                continue;
            }
            let attempt = world.start(shell("sleep 600 & echo ready; wait")).await.unwrap();
            world.ready().await;
            let (ids, handle) =
                (attempt.handle(), if settled { attempt.handle() } else { persisted(&world, &attempt) });
            drop(attempt);
            process::signal_pid(ids.supervisor.unwrap().pid, 9).unwrap();
            until("the supervisor to be gone", || (!lives(ids.supervisor.unwrap().pid)).then_some(())).await;
            for name in ["record", "orders.json", "supervisor.err"] {
                std::fs::remove_file(handle.run_dir.join(name)).unwrap();
            }
            assert!(lives(ids.main.unwrap().pid));
            let again = found(&world, handle).await;
            let end = ended(&again).await;
            assert!(matches!(&end.status, ExitStatus::Unknown(why) if why.contains("removed")), "{:?}", end.status);
            until("the main process to be gone", || (!lives(ids.main.unwrap().pid)).then_some(())).await;
            again.destroy().await.unwrap();
            assert!(world.task_cgroups().is_empty());
            std::fs::remove_file(world.dir.path().join("logs/t.stdout.0")).unwrap();
        }
    }
}

/// What ran and has ended before its start was recorded, too: it left its directory, and its cgroup.
/// What lives on in a cgroup is not called gone.
///
/// Promise (Durability and recovery): An attempt without a recorded start is started only if nothing shows that it was
#[tokio::test]
async fn attempt_is_started_only_without_any_trace_of_an_earlier_start() {
    for world in [World::new(), World::without_cgroups()] {
        let request = world.request(work(&["exit", "0"]));
        let handle = world.driver.prepare(&request).unwrap();
        let what = async || match world.driver.recover(handle.clone(), EventSink::default()).await.unwrap() {
            RecoveryOutcome::Attempt(attempt) => ended(&attempt).await.status,
            RecoveryOutcome::NeverStarted => ExitStatus::NotStarted(String::new()),
        };
        let never = ExitStatus::NotStarted(String::new());
        assert_ne!(what().await, never, "its directory was made, and is gone");
        std::fs::create_dir_all(&handle.run_dir).unwrap();
        assert_eq!(what().await, never);
        std::fs::write(handle.run_dir.join("orders.json"), "{}").unwrap();
        assert_ne!(what().await, never, "orders are written right before the supervisor");
        std::fs::remove_file(handle.run_dir.join("orders.json")).unwrap();
        assert_eq!(what().await, never);

        let attempt = world.driver.start(request, handle.clone()).await.unwrap();
        ended(&attempt).await;
        for entry in std::fs::read_dir(&handle.run_dir).unwrap() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
        if world.has_cgroups() {
            assert_ne!(what().await, never, "its cgroup ran");
        }
        attempt.destroy().await.unwrap();
    }
}

/// As a process that is stuck in the kernel after its supervisor was killed.
#[tokio::test]
async fn attempt_with_a_live_process_in_its_cgroup_is_not_reported_as_ended() {
    let world = World::new();
    if !world.has_cgroups() {
        skip_test!("no-cgroup");
    }
    let (attempt, _) = world.run(work(&["exit", "0"])).await;
    let mut late = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    for place in world.task_cgroups() {
        std::fs::write(place.join("cgroup.procs"), late.id().to_string()).unwrap();
    }
    assert!(matches!(attempt.destroy().await, Err(DriverError::StillRunning)));
    assert!(attempt.handle().run_dir.join("record").exists(), "nothing is removed before");
    attempt.kill().await.unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&late.wait().unwrap()), Some(9));
    attempt.destroy().await.unwrap();
    assert!(world.task_cgroups().is_empty());
}
