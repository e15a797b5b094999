//! Ways out of the sandbox of `exec`, as its default user and as root. `examples/workload/escape.rs` has them.

use std::path::Path;

use allostat::model::job::Task;
use allostat::model::task::ExitStatus;
use allostat::runner::drivers::StartRequest;

use crate::common::workload;
use crate::supervisor::confined::{inside, script};
use crate::supervisor::world::{World, ended, lives, program, shell};

/// `MAJOR:MINOR` of a disk of this host. Source: `/sys/dev/block`.
fn disk() -> String {
    let all = std::fs::read_dir("/sys/dev/block").unwrap().flatten();
    all.map(|entry| entry.file_name().into_string().unwrap()).next().expect("this host has a disk")
}

/// Of each way whether it led out.
async fn ways(world: &World, task: Task) -> Vec<(String, bool)> {
    let before = world.stdout().len();
    let (attempt, end) = world.run(task).await;
    let output = world.stdout()[before..].to_owned();
    assert_eq!(end.status, ExitStatus::Code(0), "{output}{}", world.log("t.stderr.0"));
    attempt.destroy().await.unwrap();
    output
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(way, how)| (way.to_owned(), how == "escaped"))
        .collect()
}

/// What a task of this script says of its own supervisor, whose PID it finds in that file, which is at `path` for it.
async fn traced(world: &World, path: &str, program: &str, task: impl Fn(&str) -> Task) -> String {
    let file = world.dir.path().join("task/local/supervisor");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let _ = std::fs::remove_file(&file);
    let before = world.stdout().len();
    let text =
        format!("until [ -s {path} ]; do sleep 0.01; done; exec {program} escape /none $(cat {path}) 0:0 ptrace");
    let attempt = world.start(task(&text)).await.unwrap();
    let supervisor = attempt.handle().supervisor.unwrap().pid;
    let next = file.with_extension("next");
    std::fs::write(&next, supervisor.to_string()).unwrap();
    std::fs::rename(&next, &file).unwrap();
    let end = ended(&attempt).await;
    assert_eq!(end.status, ExitStatus::Code(0), "{}", world.log("t.stderr.0"));
    attempt.destroy().await.unwrap();
    world.stdout()[before..].to_owned()
}

/// Promise (Short tasks): `exec`: a task cannot trace its supervisor, in a PID namespace of its own and in the host's
#[tokio::test]
async fn a_task_cannot_trace_its_supervisor() {
    let Some(world) = World::confined() else { skip_test!("no-cgroup") };
    for mode in ["private", "host"] {
        for user in [None, Some("root")] {
            let task = |text: &str| {
                let mut task = script(text);
                task.user = user.map(str::to_owned);
                task.config.insert("pid_mode".to_owned(), mode.into());
                task
            };
            let message = traced(&world, "/local/supervisor", "/local/workload", task).await;
            assert_eq!(message, "ptrace held\n", "{mode} {user:?}");
        }
    }
    // Without a sandbox root can, so the test above can fail.
    let open = World::new();
    let path = open.dir.path().join("task/local/supervisor");
    let message = traced(&open, path.to_str().unwrap(), workload().to_str().unwrap(), shell).await;
    assert_eq!(message, "ptrace escaped\n");
}

/// A file of the host that everybody could read who gets there.
fn marker(world: &World) -> String {
    let path = world.dir.path().join("logs/marker");
    std::fs::write(&path, "of the host").unwrap();
    path.to_str().unwrap().to_owned()
}

/// Promise (Short tasks): `exec`: no listed way leads a task out of its sandbox, neither as an ordinary user nor as
/// root
#[tokio::test]
async fn no_way_leads_out_of_the_sandbox() {
    let Some(world) = World::confined() else { skip_test!("no-cgroup") };
    let (file, process, disk) = (marker(&world), std::process::id().to_string(), disk());
    for user in [None, Some("root")] {
        let mut task = inside("workload", &["escape", &file, &process, &disk]);
        task.user = user.map(str::to_owned);
        let ways = ways(&world, task).await;
        let out: Vec<&str> = ways.iter().filter(|(_, out)| *out).map(|(way, _)| way.as_str()).collect();
        assert_eq!(out, [""; 0], "as {user:?}");
        assert!(ways.len() > 40, "{ways:?}");
    }
}

/// The same program outside of a sandbox: each of these does lead there, so the test above can fail.
#[tokio::test]
async fn the_same_ways_are_open_without_it() {
    if !crate::common::is_root() {
        skip_test!("not-root");
    }
    let world = World::new();
    let (file, process) = (marker(&world), std::process::id().to_string());
    let mut open = vec!["file", "chroot", "proc-root", "process", "others", "privileges", "cgroup"];
    // A guest has no password hashes.
    open.extend(Path::new("/etc/shadow").exists().then_some("shadow"));
    let args = [["escape", &file, &process, "0:0"].as_slice(), open.as_slice()].concat();
    let ways = ways(&world, program(workload().to_str().unwrap(), &args)).await;
    let held: Vec<&str> = ways.iter().filter(|(_, out)| !out).map(|(way, _)| way.as_str()).collect();
    assert_eq!((held, ways.len()), (Vec::new(), open.len()));
}

/// Promise (Short tasks): `exec`: a task cannot reach the record, the requests or the directory of another task
#[tokio::test]
async fn the_record_of_its_supervisor_and_other_tasks_are_out_of_reach() {
    let Some(world) = World::confined() else { skip_test!("no-cgroup") };
    let other = World::confined().unwrap();
    std::fs::write(other.dir.path().join("task/secrets/key"), "secret").unwrap();
    for user in [None, Some("root")] {
        let paths = [
            world.dir.path().join("run/t/0/record"),
            world.dir.path().join("run/t/0/orders.json"),
            world.dir.path().join("logs"),
            other.dir.path().join("task/secrets/key"),
            other.dir.path().to_owned(),
        ];
        let text: String = paths.iter().map(|path| format!("[ -e {} ] && echo reached; ", path.display())).collect();
        let text = format!(
            "{text} cat /proc/1/cmdline | tr '\\0' ' '; cat /proc/*/environ 2>/dev/null | grep -c allostat; true"
        );
        let mut task = script(&text);
        task.user = user.map(str::to_owned);
        let request = world.request(task);
        let handle = world.driver.prepare(&request).unwrap();
        let attempt = world.driver.start(StartRequest { ..request }, handle).await.unwrap();
        assert!(paths[..3].iter().all(|path| Path::exists(path)), "they are there while it runs or after");
        ended(&attempt).await;
        let output = world.stdout();
        assert!(!output.contains("reached"), "{output}");
        assert!(!output.contains(world.dir.path().to_str().unwrap()), "{output}");
        attempt.destroy().await.unwrap();
    }
}

/// Promise (Short tasks): `exec`: signals of a task reach its own processes alone
#[tokio::test]
async fn a_signal_to_all_reaches_its_own_processes_alone() {
    let (Some(world), Some(other)) = (World::confined(), World::confined()) else { skip_test!("no-cgroup") };
    let canary = other.start(inside("sleep", &["600"])).await.unwrap();
    for user in [None, Some("root")] {
        let mut task =
            script("sleep 600 & child=$!; kill -9 -1; wait $child; echo ended $?; kill -0 1 && kill -9 1; echo here");
        task.user = user.map(str::to_owned);
        let before = world.stdout().len();
        let (attempt, end) = world.run(task).await;
        assert_eq!(end.status, ExitStatus::Code(0), "{}", world.log("t.stderr.0"));
        assert_eq!(world.stdout()[before..], *"ended 137\nhere\n");
        attempt.destroy().await.unwrap();
    }
    assert!(lives(canary.handle().main.unwrap().pid) && lives(canary.handle().supervisor.unwrap().pid));
    canary.kill().await.unwrap();
    ended(&canary).await;
    canary.destroy().await.unwrap();
}

/// What a task leaves in its root for the next attempt leads nowhere: no link in it is followed on the host.
///
/// Promise (Short tasks): `exec`: links that a task left in its root lead the next attempt nowhere
#[tokio::test]
async fn links_that_a_task_left_in_its_root_do_not_lead_the_next_attempt_out() {
    let Some(world) = World::confined() else { skip_test!("no-cgroup") };
    let outside = world.dir.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    let root = world.dir.path().join("task");
    for name in ["usr", "run", "proc", "alloc"] {
        std::os::unix::fs::symlink(&outside, root.join(name)).unwrap();
    }
    // Whether it can be started like that is not the point.
    if let Ok(attempt) = world.start(inside("workload", &["exit", "0"])).await {
        ended(&attempt).await;
        attempt.destroy().await.unwrap();
    }
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0, "something was made on the host");
    assert!(!std::fs::read_to_string("/proc/self/mountinfo").unwrap().contains(outside.to_str().unwrap()));
}
