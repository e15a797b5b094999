//! What cannot be started says why, and leaves nothing behind.
//!
//! Promise (Input validation): Missing program, forbidden directory, unknown user, impossible limit: named; nothing
//! incomplete is left

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use allostat::model::job::Task;
use allostat::model::task::ExitStatus;
use allostat::runner::drivers::DriverError;

use crate::common::is_root;
use crate::supervisor::world::{World, ended, lives, program, shell, until, work};

async fn refused(world: &World, task: Task) -> (String, bool) {
    let error = world.start(task).await.err().expect("it must not start");
    assert_eq!(world.task_cgroups(), Vec::<PathBuf>::new(), "its cgroup is left");
    let left = std::fs::read_dir(world.dir.path().join("run/t/0")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "files in its run directory are left");
    match error {
        DriverError::Start { message, recoverable } => (message, recoverable),
        other => panic!("not a start error: {other:?}"),
    }
}

#[tokio::test]
async fn a_missing_program_is_named() {
    for world in [World::new(), World::without_cgroups()] {
        let error = refused(&world, program("/no/such", &[])).await;
        assert_eq!(error, ("/no/such: No such file or directory".to_owned(), false));
    }
}

#[tokio::test]
async fn command_that_is_not_in_path_reports_the_searched_directories() {
    let (message, _) = refused(&World::new(), program("no-such-program", &[])).await;
    assert_eq!(message, "no-such-program: not found in PATH (/usr/local/bin:/usr/bin:/bin)");
}

#[tokio::test]
async fn a_path_longer_than_the_record_does_not_lose_the_reason() {
    let world = World::new();
    let mut request = world.request(program("no-such-program", &[]));
    request.env.insert("PATH".into(), "/no/such/directory:".repeat(3000));
    let handle = world.driver.prepare(&request).unwrap();
    let error = world.driver.start(request, handle).await.err().expect("it must not start").to_string();
    assert!(error.starts_with("no-such-program: not found in PATH (/no/such"), "{error}");
}

#[tokio::test]
async fn file_that_is_no_program_fails_with_the_reason() {
    let world = World::new();
    let file = world.dir.path().join("task/file");
    let run = |mode: u32, content: &'static str| {
        std::fs::write(&file, content).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        refused(&world, program("./file", &[]))
    };
    assert_eq!(run(0o644, "#!/bin/sh\n").await.0, "./file: Permission denied");
    assert!(run(0o755, "words\n").await.0.contains("neither a binary of this machine nor a script"));
    assert!(run(0o755, "#!/no/interpreter\n").await.0.contains("the interpreter or loader that it names does not"));
}

#[tokio::test]
async fn an_unknown_user_is_named() {
    let mut task = shell("true");
    task.user = Some("no-such-user".to_owned());
    let error = refused(&World::new(), task).await;
    assert_eq!(error, ("there is no user \"no-such-user\" on this host".to_owned(), false));
}

#[tokio::test]
async fn a_directory_that_the_user_may_not_enter_is_named_with_the_user() {
    if !is_root() {
        skip_test!("not-root");
    }
    let world = World::new();
    std::fs::set_permissions(world.dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let directory = world.dir.path().join("task");
    std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o700)).unwrap();
    let mut task = shell("true");
    task.user = Some("nobody".to_owned());
    let (message, recoverable) = refused(&world, task).await;
    let expected = format!("cannot use the directory {} as user nobody: Permission denied", directory.display());
    assert_eq!((message, recoverable), (expected, false));
}

/// Removed after the agent made it, it comes again with the next start; one that the job names does not.
#[tokio::test]
async fn start_with_a_missing_task_directory_is_recoverable() {
    for world in [World::new(), World::without_cgroups()] {
        let directory = world.dir.path().join("task");
        let mut elsewhere = shell("true");
        elsewhere.config.insert("work_dir".into(), "no/such".into());
        let expected =
            format!("cannot use the directory {}: No such file or directory", directory.join("no/such").display());
        assert_eq!(refused(&world, elsewhere).await, (expected, false));

        std::fs::remove_dir(&directory).unwrap();
        let expected = format!("cannot use the directory {}: No such file or directory", directory.display());
        assert_eq!(refused(&world, shell("true")).await, (expected, true));
    }
}

#[tokio::test]
async fn a_limit_that_the_kernel_does_not_take_names_it_and_leaves_no_cgroup() {
    let world = World::new();
    // Above fs.nr_open, whose highest value this is not: refused to root too.
    let mut task = shell("true");
    task.config.insert("ulimit".into(), serde_json::json!({"core": "0", "nofile": "9999999999"}));
    let (message, recoverable) = refused(&world, task).await;
    let expected = "cannot set ulimit.nofile to 9999999999:9999999999: Operation not permitted (it is ";
    assert!(message.starts_with(expected) && !recoverable, "{message}");
}

#[tokio::test]
async fn supervisor_that_cannot_run_is_reported_with_its_output() {
    let world = World::new();
    let mut request = world.request(shell("true"));
    let handle = world.driver.prepare(&request).unwrap();
    // Orders that cannot be read back: the supervisor ends before it has started anything.
    request.env.insert("X".into(), "y".into());
    std::fs::create_dir_all(handle.run_dir.join("orders.json")).unwrap();
    let error = world.driver.start(request, handle).await.err().expect("it must not start").to_string();
    assert!(error.contains("cannot write the orders"), "{error}");
    assert_eq!(world.task_cgroups(), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn start_abandoned_after_the_gate_was_opened_leaves_nothing_running() {
    for world in [World::new(), World::without_cgroups()] {
        // Its supervisor keeps the report open: the agent never hears that the task runs.
        let world = world.with_supervisors("ALLOSTAT_TEST_STOP_AT=opened");
        let main = || std::fs::read_to_string(world.dir.path().join("task/main")).ok()?.trim().parse().ok();
        let (error, main) = tokio::join!(refused(&world, shell("echo $$ >main; sleep 600")), async {
            let main = until("the task to run", main).await;
            // The patience of the agent passes at once.
            tokio::time::pause();
            main
        });
        tokio::time::resume();
        assert_eq!(error, ("no response from its supervisor within 30 s".to_owned(), true));
        until("the task to be gone", || (!lives(main)).then_some(())).await;
    }
}

#[tokio::test]
async fn the_command_of_the_supervisor_is_not_for_people() {
    let output = std::process::Command::new(crate::common::allostat()).args(["supervise", "/tmp"]).output().unwrap();
    assert_eq!(output.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&output.stderr).contains("this command is for the agent"));
}

/// Promise (Durability and recovery): A full disk loses neither the exit nor the state
#[tokio::test]
async fn a_full_disk_loses_output_but_not_the_exit() {
    if !is_root() {
        skip_test!("not-root");
    }
    let world = World::new();
    let disk = world.dir.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let mount = |args: &[&str]| std::process::Command::new("mount").args(args).arg(&disk).status();
    if !mount(&["-t", "tmpfs", "-o", "size=256k", "tmpfs"]).is_ok_and(|status| status.success()) {
        skip_test!("no-mount");
    }
    let mut request = world.request(shell("echo early; read x < go; yes | head -c 300000; exit 3"));
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        world.dir.path().join("task/go"),
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
    )
    .unwrap();
    (request.dirs.run, request.dirs.logs) = (disk.join("run"), disk.join("logs"));
    std::fs::create_dir(disk.join("logs")).unwrap();
    let handle = world.driver.prepare(&request).unwrap();
    let attempt = world.driver.start(request, handle).await.unwrap();
    let filled = std::fs::write(disk.join("filler"), vec![1; 1 << 20]);
    std::fs::write(world.dir.path().join("task/go"), "now\n").unwrap();
    let end = ended(&attempt).await;
    attempt.destroy().await.unwrap();
    std::process::Command::new("umount").arg(&disk).status().unwrap();
    assert!(filled.is_err(), "the disk was to be full");
    assert_eq!(end.status, ExitStatus::Code(3), "{:?}", end.problems);
    assert!(end.problems.iter().any(|p| p.contains("of stdout were lost")), "{:?}", end.problems);
}

#[tokio::test]
async fn a_start_after_a_failed_one_finds_a_clean_place() {
    let world = World::new();
    refused(&world, program("/no/such", &[])).await;
    let (attempt, end) = world.run(work(&["exit", "0"])).await;
    assert_eq!(end.status, ExitStatus::Code(0));
    attempt.destroy().await.unwrap();
}

/// As in a container that was started without a session of its own: the session of everything around us has no number
/// here.
///
/// Promise (Task groups and lifecycle order): A session of another pid namespace is never taken for a task's
#[test]
fn processes_with_a_session_of_another_pid_namespace_are_left_alone() {
    let user: &[&str] = if is_root() { &[] } else { &["--user", "--map-root-user"] };
    let apart = |program: &std::path::Path, args: &[&str]| {
        let mut unshare = std::process::Command::new("unshare");
        unshare.args(user).args(["--pid", "--fork", "--mount-proc", "--"]).arg(program).args(args).output()
    };
    if !apart("true".as_ref(), &[]).is_ok_and(|output| output.status.success()) {
        skip_test!("cannot-unshare");
    }
    let tests = ["supervisor::failures::start_abandoned_after", "supervisor::recovery::task_abandoned_as_lost"];
    let output = apart(&std::env::current_exe().unwrap(), &tests).unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("2 passed"), "{printed}");
}
