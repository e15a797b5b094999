//! An agent that is started again with too few descriptors for its tasks, one with too few to look at all or too few
//! processes, and one whose start hangs.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{Agent, AgentOptions, allostat, mounted_v1, mounted_v2, patience, place, wait_for};
use crate::live::work::Work;

const TASKS: usize = 112;
/// Enough for some of them.
const FEW: u64 = 128;
/// Fewer than an agent itself needs.
const TOO_FEW: u64 = 64;

/// The main processes of its tasks and what they began, by the kernel's lists.
fn pids(agent: &Agent) -> BTreeSet<u32> {
    let files = agent.cgroups.left().into_iter().map(|cgroup| cgroup.join("cgroup.procs"));
    let text: String = files.filter_map(|file| std::fs::read_to_string(file).ok()).collect();
    text.lines().filter_map(|pid| pid.parse().ok()).collect()
}

fn allocs(agent: &Agent) -> Vec<serde_json::Value> {
    agent.json("/v1/allocs")["allocs"].as_array().expect("a list").clone()
}

fn is_recovering(alloc: &serde_json::Value) -> bool {
    alloc["description"].as_str().expect("in words").contains("in recovery")
}

/// Those that are found, and those that are in recovery.
fn found(agent: &Agent) -> (usize, usize) {
    let all = allocs(agent);
    let recovering = all.iter().filter(|alloc| is_recovering(alloc)).count();
    (all.len() - recovering, recovering)
}

fn outcome(agent: &Agent, outcome: &str) -> u64 {
    agent.metrics().u64("allostat_restore_tasks", &[("outcome", outcome)])
}

/// Started again with too few, an agent shows as many as fit, says so, ends nothing, and finds each of the others when
/// one is free; with far too few it does not start (73).
#[test]
fn descriptor_exhaustion_ends_no_task_and_recovery_continues_when_one_is_free() {
    if place() != "host" {
        skip_test!("emulated-processor");
    }
    let args = vec!["--log-level".to_owned(), "debug".to_owned()];
    let mut agent = Agent::with(AgentOptions { args, ..AgentOptions::default() });
    let work = Work { group: format!("count = {TASKS}"), ..Work::looping("many", &["hold", "600000"]) };
    agent.run(&work.hcl());
    wait_for("all to run", Duration::from_secs(60) * patience(), || {
        (pids(&agent).len() >= TASKS && allocs(&agent).iter().all(|a| a["status"] == "running")).then_some(())
    });
    let running = pids(&agent);
    agent.kill();

    // Too few to look: it says so, and touches nothing.
    agent.set_descriptors(Some(TOO_FEW));
    agent.begin();
    let ended = agent.ends();
    assert_eq!(ended.code(), Some(73), "{}", agent.log());
    assert!(
        agent.log().contains("an agent needs 128 descriptors to observe what runs, and may have 64"),
        "{}",
        agent.log()
    );
    assert_eq!(pids(&agent), running);

    // Enough for some of them.
    agent.set_descriptors(Some(FEW));
    agent.begin();
    wait_for("as many as fit to be found", Duration::from_secs(20) * patience(), || {
        let answers = agent.try_get("/v1/allocs").is_some_and(|response| response.status == 200);
        (answers && found(&agent).0 > 16).then_some(())
    });
    assert!(agent.log().contains("too few descriptors for all tasks"), "{}", agent.log());
    // Each of the others is tried again and again: of one that counted as unknown no retry would be logged. That it
    // stays undecided for an hour is tested with a simulated clock (`runner::tests::recovery`).
    wait_for("three tries of each of the others", Duration::from_secs(60) * patience(), || {
        let log = agent.log();
        let retries: Vec<&str> = log.lines().filter(|line| line.contains("retrying the recovery of a task")).collect();
        let tries = |id: &str| retries.iter().filter(|line| line.contains(id)).count();
        let all = allocs(&agent);
        let mut waiting = all.iter().filter(|alloc| is_recovering(alloc)).peekable();
        let is_waited_for = waiting.peek().is_some();
        let are_tried = waiting.all(|alloc| alloc["id"].as_str().is_some_and(|id| tries(id) >= 3));
        (is_waited_for && are_tried).then_some(())
    });
    let (seen, recovering) = found(&agent);
    assert!((17..TASKS - 17).contains(&seen), "{seen} found, {recovering} in recovery");
    assert_eq!(pids(&agent), running, "nothing was ended, nothing begun");
    for never in ["lost", "failed", "ended", "restarted", "orphan_killed"] {
        assert_eq!(outcome(&agent, never), 0, "{never}");
    }
    assert!(allocs(&agent).iter().all(|a| a["status"] == "running"), "as it is on record");

    // What ends gives its place to another.
    let stopped = allocs(&agent).into_iter().find(|alloc| !is_recovering(alloc));
    let stopped = stopped.expect("some are found")["id"].as_str().expect("an id").to_owned();
    agent.cli(&["stop", &stopped]).ok();
    wait_for("another to be found", Duration::from_secs(20) * patience(), || {
        (found(&agent).1 < recovering).then_some(())
    });
    agent.kill();

    // Room for all.
    agent.set_descriptors(None);
    agent.start_again();
    assert_eq!(outcome(&agent, "reattached"), TASKS as u64 - 1);
    assert_eq!(pids(&agent).len(), running.len() - running.len() / TASKS);
    assert!(pids(&agent).is_subset(&running), "none was started again");
    agent.stop();
}

/// An agent that does not come to run: its exit code, and what it said.
fn refused(command: &mut Command, limit: Duration) -> (Option<i32>, String) {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("sh is there");
    let until = std::time::Instant::now() + limit * patience();
    while child.try_wait().expect("our own child").is_none() {
        if std::time::Instant::now() > until {
            child.kill().expect("our own child");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().expect("it has ended");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A cgroup in which there are so many processes and threads at most; goes with it.
struct Few(PathBuf);

impl Few {
    fn make(most: u32) -> Option<Few> {
        let root = mounted_v1("pids").or_else(|| mounted_v2("pids"))?;
        let directory = root.join(format!("allostat-test-few-{}", std::process::id()));
        std::fs::create_dir(&directory).ok()?;
        let few = Few(directory);
        std::fs::write(few.0.join("pids.max"), most.to_string()).ok()?;
        Some(few)
    }
}

impl Drop for Few {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// A start that cannot have its threads, or has a step that does not end, says which and ends with 73: it does not live
/// on and do nothing.
///
/// Promise (Durability and recovery): A start without enough threads, or with a step that hangs, names it and exits
/// with 73
#[test]
fn agent_with_too_few_processes_exits_with_the_reason_and_does_not_hang() {
    let Some(few) = Few::make(6) else { skip_test!("no-cgroup-controller") };
    let dir = tempfile::tempdir().expect("a directory");
    for most in [2_u32, 4, 5, 6, 9] {
        std::fs::write(few.0.join("pids.max"), most.to_string()).expect("our own cgroup");
        let mut command = Command::new("sh");
        command.args(["-c", "echo 0 > \"$0/cgroup.procs\"; exec \"$@\""]).arg(&few.0).arg(allostat());
        command.args(["agent", "--listen", "none", "--data-dir"]).arg(dir.path().join("data"));
        let (code, error) = refused(&mut command, Duration::from_secs(20));
        assert_eq!(code, Some(73), "{most}: {error}");
        assert!(error.contains("threads, and only") && error.contains("TasksMax="), "{most}: {error}");
    }
}

#[test]
fn a_step_of_the_start_that_does_not_end_is_named_at_its_deadline() {
    if place() != "host" {
        skip_test!("emulated-processor");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (data, fifo) = (dir.path().join("data"), dir.path().join("data/known-as"));
    std::fs::create_dir(&data).expect("our own directory");
    // A reader that opens it waits for a writer.
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).expect("our own directory");
    let mut command = Command::new(allostat());
    command.args(["agent", "--listen", "none", "--data-dir"]).arg(&data);
    let (code, error) = refused(&mut command, Duration::from_secs(60));
    assert_eq!(code, Some(73), "{error}");
    assert!(error.contains("opening the data directory did not end within 30 s"), "{error}");
}
