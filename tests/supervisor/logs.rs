//! Output through a real pipe into rotated files.

use allostat::host::process::signal_pid;
use allostat::model::job::LogConfig;
use allostat::model::task::ExitStatus;

use crate::common::workload;
use crate::supervisor::world::{World, ended, lives, shell, until, work};

#[tokio::test]
async fn every_line_is_there_once_and_in_order_and_none_is_split() {
    let world = World::new();
    let mut task = work(&["lines", "20000"]);
    task.logs = LogConfig { max_files: 100, max_file_bytes: 10_000, disabled: false };
    let (attempt, end) = world.run(task).await;
    assert_eq!(end.status, ExitStatus::Code(0));
    assert_eq!(end.problems, Vec::<String>::new());
    let mut all = String::new();
    for n in 0.. {
        let part = world.log(&format!("t.stdout.{n}"));
        if part.is_empty() {
            break;
        }
        assert!(part.len() <= 10_000 && part.ends_with('\n'), "file {n}");
        all += &part;
    }
    let expected: String = (0..20_000).map(|n| format!("line {n:08}\n")).collect();
    assert!(all == expected, "{} of {} bytes", all.len(), expected.len());
    attempt.destroy().await.unwrap();
}

#[tokio::test]
async fn old_log_files_are_removed_and_the_streams_are_separate() {
    let world = World::new();
    let mut task = shell("i=0; while [ $i -lt 500 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done");
    task.logs = LogConfig { max_files: 2, max_file_bytes: 500, disabled: false };
    let (attempt, _) = world.run(task).await;
    let mut names: Vec<_> = std::fs::read_dir(world.dir.path().join("logs"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.contains(".order."))
        .collect();
    names.sort();
    assert_eq!(names.len(), 4, "{names:?}");
    for stream in ["stdout", "stderr"] {
        let files: Vec<_> = names.iter().filter(|name| name.contains(stream)).map(|name| world.log(name)).collect();
        let words = &stream[3..];
        assert!(files.iter().all(|text| text.len() <= 500 && text.lines().all(|line| line.starts_with(words))));
        assert!(files.last().unwrap().ends_with(&format!("{words} 499\n")));
    }
    attempt.destroy().await.unwrap();
}

#[tokio::test]
async fn output_written_just_before_the_end_is_logged() {
    let world = World::new();
    let (attempt, _) = world.run(shell("printf 'last words'; kill -9 $$")).await;
    assert_eq!(world.stdout(), "last words");
    attempt.destroy().await.unwrap();
}

/// The pipe holds more than one read takes when no process of the task is left.
#[tokio::test]
async fn full_pipe_of_an_ended_task_is_written_to_its_last_byte() {
    const SIGCONT: u8 = 18;
    const SIGSTOP: u8 = 19;
    let world = World::new();
    let (go, program) = (world.dir.path().join("go"), workload());
    let wait = format!("echo ready; until [ -e {} ]; do sleep 0.1; done", go.display());
    let attempt = world.start(shell(&format!("{wait}; exec {} lines 4000", program.display()))).await.unwrap();
    world.ready().await;
    let handle = attempt.handle();
    let (supervisor, main) = (handle.supervisor.unwrap().pid, handle.main.unwrap().pid);
    assert!(signal_pid(supervisor, SIGSTOP).unwrap());
    std::fs::write(&go, "").unwrap();
    until("the task to end", || (!lives(main)).then_some(())).await;
    assert!(signal_pid(supervisor, SIGCONT).unwrap());
    assert_eq!(ended(&attempt).await.status, ExitStatus::Code(0));
    let expected: String = (0..4_000).map(|n| format!("line {n:08}\n")).collect();
    assert!(world.stdout() == format!("ready\n{expected}"), "{} bytes", world.stdout().len());
    attempt.destroy().await.unwrap();
}

#[tokio::test]
async fn output_of_a_task_without_logs_is_discarded() {
    let world = World::new();
    let mut task = shell("echo x; echo y >&2; exit 2");
    task.logs.disabled = true;
    let attempt = world.start(task).await.unwrap();
    assert_eq!(ended(&attempt).await.status, ExitStatus::Code(2));
    assert_eq!(std::fs::read_dir(world.dir.path().join("logs")).unwrap().count(), 0);
    attempt.destroy().await.unwrap();
}

#[tokio::test]
async fn a_descriptor_in_foreign_hands_does_not_hold_up_the_end() {
    let world = World::new();
    let attempt = world.start(shell("echo ready; sleep 600")).await.unwrap();
    world.ready().await;
    let main = attempt.handle().main.unwrap();
    // We keep the writing end of its output open beyond its life.
    let held = std::fs::File::options().write(true).open(format!("/proc/{}/fd/1", main.pid)).unwrap();
    attempt.kill().await.unwrap();
    assert_eq!(ended(&attempt).await.status, ExitStatus::Signal(9));
    drop(held);
    attempt.destroy().await.unwrap();
}

#[tokio::test]
async fn a_task_that_reads_its_own_output_does_not_hold_up_its_end() {
    let world = World::new();
    // Both wait for the same bytes: the second one finds none.
    let script = "cat /dev/stdout >/dev/null & i=0; while [ $i -lt 3000 ]; do echo $i; i=$((i+1)); done; exit 3";
    let (attempt, end) = world.run(shell(script)).await;
    assert_eq!(end.status, ExitStatus::Code(3));
    attempt.destroy().await.unwrap();
}
