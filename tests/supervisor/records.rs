//! Somebody removes the record of a task that runs: its supervisor, who has it open, puts it back before it leaves.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use allostat::host::process;
use allostat::model::task::{ExitStatus, TaskHandle};
use allostat::runner::drivers::Attempt;
use allostat::supervisor::record::{Record, Slot};

use crate::common::is_root;
use crate::recovery::found;
use crate::world::{World, ended, lives, shell, until};

/// Ends by `kill -9`, having used a little of everything.
const SCRIPT: &str = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo ready; exec sleep 600";

async fn started(world: &World, run_dir: &Path) -> Arc<dyn Attempt> {
    let mut request = world.request(shell(SCRIPT));
    request.dirs.run = run_dir.to_owned();
    let handle = world.driver.prepare(&request).unwrap();
    let attempt = world.driver.start(request, handle).await.unwrap_or_else(|e| panic!("it did not start: {e}"));
    world.ready().await;
    attempt
}

async fn gone(handle: &TaskHandle) {
    for id in [handle.main.unwrap(), handle.supervisor.unwrap()] {
        until("it to be gone", || (!lives(id.pid)).then_some(())).await;
    }
}

async fn end(attempt: &dyn Attempt) {
    process::signal_pid(attempt.handle().main.unwrap().pid, 9).unwrap();
}

/// In a data directory: `run/<alloc>/<task>/<attempt>`.
fn run_dir(world: &World) -> PathBuf {
    world.dir.path().join("data/run/alloc/t/0")
}

type Removal = fn(&Path);

const REMOVALS: [Removal; 3] = [
    |run| std::fs::remove_file(run.join("record")).unwrap(),
    |run| std::fs::remove_dir_all(run).unwrap(),
    |run| std::fs::remove_dir_all(run.ancestors().nth(3).unwrap()).unwrap(),
];

#[tokio::test]
async fn a_record_that_was_removed_is_put_back_whole_with_the_end() {
    for with_cgroups in [true, false] {
        for remove in REMOVALS {
            for agent_is_there in [true, false] {
                let world = World::of("raw_exec", with_cgroups);
                let run = run_dir(&world);
                let attempt = started(&world, &run).await;
                let (handle, before) = (persisted_as(&attempt), attempt.handle());
                remove(&run);
                end(attempt.as_ref()).await;
                let attempt = if agent_is_there {
                    attempt
                } else {
                    drop(attempt);
                    gone(&before).await;
                    found(&world, handle.clone()).await
                };
                let end = ended(&attempt).await;
                assert_eq!(end.status, ExitStatus::Signal(9), "{:?}", end.problems);
                assert_eq!((end.started_at, attempt.handle()), (before.started_at, before.clone()));
                assert!(end.usage.cpu_usage_ns().unwrap() > 1_000_000, "{:?}", end.usage);
                assert!(end.usage.max_rss_bytes().unwrap() > 0, "{:?}", end.usage);

                let names: Vec<_> = std::fs::read_dir(&run).unwrap().map(|e| e.unwrap().file_name()).collect();
                assert!(!names.iter().any(|name| name == "record.anew"), "{names:?}");
                let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
                assert_eq!((mode(&run), mode(run.parent().unwrap())), (0o700, 0o700));
                assert_eq!((mode(&world.dir.path().join("data/run")), mode(&run.join("record"))), (0o700, 0o600));
                let record = Record::open(&run).unwrap().unwrap();
                assert!(record.try_lock().unwrap(), "its supervisor is gone");
                assert!(matches!(record.read_start().unwrap(), Slot::Written(start) if start.main == before.main));
                drop(record);
                // The next agent, and the one after it.
                for _ in 0..2 {
                    let again = ended(&found(&world, handle.clone()).await).await;
                    assert_eq!((again.status, again.usage), (end.status.clone(), end.usage.clone()));
                }
                attempt.destroy().await.unwrap();
                assert!(world.task_cgroups().is_empty() && !run.exists());
            }
        }
    }
}

/// What stands in the way is somebody's: it stays as it is, and how the attempt ended is lost, as before.
#[tokio::test]
async fn a_record_is_put_back_through_no_link_over_nobodys_file_and_into_no_directory_that_is_gone() {
    let world = World::new();
    let elsewhere = world.dir.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let obstacles: [&dyn Fn(&Path); 5] = [
        &|run| symlink(elsewhere.join("record"), run.join("record")).unwrap(),
        &|run| std::fs::write(run.join("record"), "somebody's").unwrap(),
        &|run| std::fs::create_dir(run.join("record")).unwrap(),
        &|run| {
            let top = run.ancestors().nth(3).unwrap();
            std::fs::remove_dir_all(top).unwrap();
            symlink(&elsewhere, top).unwrap();
        },
        &|run| std::fs::remove_dir_all(run.ancestors().nth(4).unwrap()).unwrap(),
    ];
    for (n, obstruct) in obstacles.iter().enumerate() {
        let run = run_dir(&world);
        let attempt = started(&world, &run).await;
        std::fs::remove_file(run.join("record")).unwrap();
        obstruct(&run);
        let before = tree(&world.dir.path().join("data"));
        end(attempt.as_ref()).await;
        let ExitStatus::Unknown(why) = ended(&attempt).await.status else { panic!("{n}: nobody can know") };
        assert!(why.contains("its supervisor could not record its end"), "{n}: {why}");
        let after = tree(&world.dir.path().join("data"));
        let unfinished = run.join("record.anew");
        let anew: Vec<_> = after.into_iter().filter(|path| !before.contains(path) && *path != unfinished).collect();
        assert_eq!(anew, Vec::<PathBuf>::new(), "{n}");
        assert_eq!(tree(&elsewhere), Vec::<PathBuf>::new(), "{n}: through a link");
        if n == 1 {
            assert_eq!(std::fs::read_to_string(run.join("record")).unwrap(), "somebody's");
            assert!(why.contains("cannot be put back: File exists"), "{why}");
        }
        attempt.kill().await.unwrap();
        clear(&world);
    }
}

/// As an agent that is asked to would not: what it finds there is not its own.
fn clear(world: &World) {
    let data = world.dir.path().join("data");
    let top = data.join("run");
    if top.is_symlink() {
        std::fs::remove_file(&top).unwrap();
    }
    if data.exists() {
        std::fs::remove_dir_all(&data).unwrap();
    }
    for place in world.task_cgroups() {
        std::fs::remove_dir(place).unwrap();
    }
    std::fs::remove_file(world.dir.path().join("logs/t.stdout.0")).unwrap();
}

/// All that is below, links as such.
fn tree(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path());
    let below = |path: PathBuf| if path.is_symlink() { vec![path] } else { [tree(&path), vec![path]].concat() };
    entries.flat_map(below).collect()
}

#[tokio::test]
async fn on_a_full_disk_a_record_cannot_be_put_back_and_its_task_is_not_started_again() {
    if !is_root() {
        skip_test!("not-root");
    }
    for world in [World::new(), World::without_cgroups()] {
        let disk = world.dir.path().join("data");
        std::fs::create_dir(&disk).unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"]).arg(&disk);
        if !mount.status().is_ok_and(|status| status.success()) {
            skip_test!("no-mount");
        }
        let attempt = started(&world, &run_dir(&world)).await;
        let handle = persisted_as(&attempt);
        std::fs::remove_dir_all(disk.join("run")).unwrap();
        let filled = std::fs::write(disk.join("filler"), vec![1; 1 << 20]);
        end(attempt.as_ref()).await;
        let status = ended(&attempt).await.status;
        let again = ended(&found(&world, handle).await).await.status;
        attempt.destroy().await.unwrap();
        std::process::Command::new("umount").arg(&disk).status().unwrap();
        assert!(filled.is_err(), "the disk was to be full");
        let ExitStatus::Unknown(why) = status else { panic!("there was no room for it: {status:?}") };
        assert!(why.contains("its record was removed; its supervisor could not record its end"), "{why}");
        assert!(matches!(again, ExitStatus::Unknown(_)), "least of all was it never started: {again:?}");
    }
}

/// As it is in the store before the start is on record.
fn persisted_as(attempt: &Arc<dyn Attempt>) -> TaskHandle {
    TaskHandle { supervisor: None, main: None, started_at: None, ..attempt.handle() }
}
