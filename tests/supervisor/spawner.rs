//! Who forks supervisors: one process beside the agent, which may vanish at any time.
//!
//! Promise (Durability and recovery): A killed or hung spawner of supervisors touches no running task; the next start
//! has another

use allostat::host::process;
use allostat::model::task::ExitStatus;
use allostat::runner::drivers::{ALL, Attempt};
use allostat::runner::drivers::{DriverContext, SupervisorPool};
use std::path::PathBuf;
use std::sync::Arc;

use crate::common::driver_context;
use crate::supervisor::world::{World, ended, lives, runs, shell, until};

fn supervisor(attempt: &Arc<dyn Attempt>) -> u32 {
    attempt.handle().supervisor.expect("it runs").pid
}

/// Of a supervisor: the process that forked it.
fn spawner(attempt: &Arc<dyn Attempt>) -> u32 {
    let pid = supervisor(attempt);
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().parse().unwrap()
}

/// Another place for a task of the same driver.
fn second_world(world: &World) -> World {
    let mut sibling = World::new();
    sibling.driver = Arc::clone(&world.driver);
    sibling
}

/// A task that ends on request, with 3.
fn waiting() -> allostat::model::job::Task {
    shell("echo ready; until [ -e go ]; do sleep 0.01; done; exit 3")
}

#[tokio::test]
async fn supervisor_is_named_by_its_run_directory_and_inherits_nothing_of_the_spawner() {
    let world = World::new();
    let attempt = world.start(waiting()).await.unwrap();
    let pid = supervisor(&attempt);
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    let line = String::from_utf8(line).unwrap();
    let run_dir = attempt.handle().run_dir;
    assert_eq!(line.trim_end_matches('\0'), format!("allostat\0supervise\0{}", run_dir.display()));
    assert_eq!(std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap(), "allostat\n");
    // The record, the output of the task and the signals: no socket of the agent's.
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let open: Vec<PathBuf> = open.map(|entry| std::fs::read_link(entry.unwrap().path()).unwrap()).collect();
    assert!(!open.iter().any(|link| link.to_string_lossy().starts_with("socket:")), "{open:?}");
    std::fs::write(world.dir.path().join("task/go"), "").unwrap();
    assert_eq!(ended(&attempt).await.status, ExitStatus::Code(3));
    until("its parent to reap it", || (!PathBuf::from(format!("/proc/{pid}")).exists()).then_some(())).await;
}

/// By anybody, or by systemd, which ends a scope with SIGTERM.
#[tokio::test]
async fn killed_spawner_is_replaced_and_its_tasks_continue() {
    for signal in [9, 15] {
        let world = World::new();
        let attempt = world.start(waiting()).await.unwrap();
        world.ready().await;
        let first = spawner(&attempt);
        process::signal_pid(first, signal).unwrap();
        until("it to be dead", || (!lives(first)).then_some(())).await;

        let sibling = second_world(&world);
        let second = sibling.start(shell("exit 4")).await.unwrap();
        assert_eq!(ended(&second).await.status, ExitStatus::Code(4));

        std::fs::write(world.dir.path().join("task/go"), "").unwrap();
        assert_eq!(ended(&attempt).await.status, ExitStatus::Code(3));
    }
}

/// A stopped one does not answer: the start fails in time, and the next one has another.
#[tokio::test]
async fn unresponsive_spawner_fails_one_start_only() {
    let world = World::new();
    let attempt = world.start(waiting()).await.unwrap();
    world.ready().await;
    let first = spawner(&attempt);
    process::signal_pid(first, 19).unwrap();
    let second = second_world(&world);
    let error = second.start(shell("exit 4")).await.err().expect("the spawner is stopped").to_string();
    assert!(error.contains("it did not answer within 10 s"), "{error}");
    assert!(!lives(first), "it is of no use any more");
    assert_eq!(ended(&second.start(shell("exit 4")).await.unwrap()).await.status, ExitStatus::Code(4));
    std::fs::write(world.dir.path().join("task/go"), "").unwrap();
    assert_eq!(ended(&attempt).await.status, ExitStatus::Code(3));
}

#[tokio::test]
async fn a_program_that_is_no_supervisor_is_named() {
    let mut world = World::new();
    let build = ALL.iter().find(|driver| driver.name == "raw_exec").unwrap().build;
    for (program, text) in [("/no/such", "No such file"), ("/bin/true", "it has ended before it answered")] {
        let context = driver_context(Arc::clone(&world.sampling));
        world.driver =
            build(&DriverContext { supervisors: SupervisorPool::new(program.into(), None, 10_000), ..context });
        let error = world.start(shell("true")).await.err().expect("it must not start").to_string();
        assert!(error.contains(program) && error.contains(text), "{error}");
        assert!(world.task_cgroups().is_empty());
    }
}

/// It is not known then whether there is a supervisor: none is left, nor what it had started, before the start has
/// failed.
#[tokio::test]
async fn spawner_that_dies_before_its_answer_leaves_no_supervisor_and_no_task() {
    for world in [World::new(), World::without_cgroups()] {
        let world = world.with_supervisors("ALLOSTAT_TEST_DIE_AT=spawned");
        let main =
            || -> Option<u32> { std::fs::read_to_string(world.dir.path().join("task/main")).ok()?.trim().parse().ok() };
        for _ in 0..20 {
            let request = world.request(shell("echo $$ >main; exec sleep 600"));
            let run_dir = world.driver.prepare(&request).unwrap().run_dir;
            let error = world.start(shell("echo $$ >main; exec sleep 600")).await.err().expect("the spawner died");
            assert!(error.to_string().contains("it has ended before it answered"), "{error}");
            assert!(allostat::supervisor::find(&run_dir).unwrap().is_none(), "a supervisor is left");
            assert!(main().is_none_or(|main| !runs(main)), "what it had started is left");
            assert!(world.task_cgroups().is_empty());
        }
    }
}
