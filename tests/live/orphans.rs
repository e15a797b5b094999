//! The state is lost while no agent is there: what still runs of it is ended, and no foreign process.

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::Duration;

use allostat::host::process::boot_id;
use allostat::host::roots::Roots;
use allostat::model::id::BootId;
use allostat::supervisor::record::{SupervisedStart, SupervisorRecord};

use crate::common::{Agent, AgentOptions, is_root, patience, wait_for};
use crate::live::stale::Foreign;
use crate::live::survive::{main_pid, parent};
use crate::live::work::{Alloc, Work};

const LIMIT: Duration = Duration::from_secs(20);

/// Runs, and its main process.
struct Task {
    id: String,
    main: u64,
    supervisor: u64,
}

fn run(agent: &Agent, name: &str, args: &[&str]) -> Task {
    let alloc = Work::batch(name, args).run(agent);
    alloc.ready();
    let main = main_pid(&alloc);
    Task { id: alloc.id.clone(), main, supervisor: parent(main).expect("it runs") }
}

fn kill(pid: u64) {
    let killed = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(killed.is_ok_and(|status| status.success()));
    wait_for("it to be gone", LIMIT * patience(), || parent(pid).is_none().then_some(()));
}

/// Only what the test itself made: the agent's own database, below its own directory for this test.
fn lose(agent: &Agent, what: &str) {
    std::fs::remove_dir_all(agent.data_dir().join(what)).expect("no agent is there");
}

fn outcome(agent: &Agent, outcome: &str) -> u64 {
    agent.metrics().u64("allostat_restore_tasks", &[("outcome", outcome)])
}

/// What `/v1/node` says became of an alloc.
fn fate(agent: &Agent, id: &str) -> Option<String> {
    let node = agent.json("/v1/node");
    let orphans = node["orphans"].as_array().expect("a list");
    let of = orphans.iter().find(|o| o["alloc_id"] == id)?;
    Some(of["fate"].as_str().expect("a word").to_owned())
}

#[track_caller]
fn wait_until_exited(agent: &Agent, task: &Task) {
    wait_for("its processes to be gone", LIMIT * patience(), || {
        [task.main, task.supervisor].iter().all(|pid| parent(*pid).is_none()).then_some(())
    });
    let run = agent.data_dir().join("run").join(&task.id);
    wait_for("what its supervisor left to be gone", LIMIT * patience(), || (!run.exists()).then_some(()));
}

fn is_logged(agent: &Agent, task: &Task) {
    let logs = agent.data_dir().join("alloc").join(&task.id).join("alloc/logs");
    let pid = task.main.to_string();
    let log = agent.log();
    let line = log.lines().find(|line| line.contains("orphan found") && line.contains(&task.id)).unwrap_or_default();
    assert!(line.contains(&pid) && line.contains(logs.to_str().expect("ours is UTF-8")), "{line:?} in\n{log}");
    assert!(std::fs::read_dir(logs).expect("they are kept").count() > 0);
}

/// One that obeys; one that lost its supervisor; one that lost its directory as well; one that had ended; one that is
/// deaf, and whose end a second agent has to bring about.
fn lost_state(options: AgentOptions) {
    let mut agent = Agent::with(options);
    let obeys = run(&agent, "obeys", &["hold", "600000"]);
    let alone = run(&agent, "alone", &["hold", "600000"]);
    let removed = run(&agent, "removed", &["hold", "600000"]);
    let over = run(&agent, "over", &["hold", "600000"]);
    let deaf = run(&agent, "deaf", &["stubborn", "600000"]);
    agent.kill();
    kill(alone.supervisor);
    kill(over.main);
    wait_for("its exit", LIMIT * patience(), || parent(over.supervisor).is_none().then_some(()));
    lose(&agent, "state");
    lose(&agent, &format!("run/{}", removed.id));
    assert!([&obeys, &alone, &removed, &deaf].iter().all(|task| parent(task.main).is_some()), "they run on");
    // In the middle of the grace of the one that is deaf.
    agent.begin();
    let found =
        |agent: &Agent| agent.log().lines().any(|line| line.contains("orphan found") && line.contains(&deaf.id));
    wait_for("the orphan to be found", LIMIT * patience(), || found(&agent).then_some(()));
    agent.kill();
    agent.start_again();
    assert_eq!(agent.alloc_ids(), Vec::<String>::new(), "it knows of nothing");
    for task in [&obeys, &alone, &removed, &over, &deaf] {
        wait_until_exited(&agent, task);
    }
    wait_for("it to be counted", LIMIT * patience(), || (fate(&agent, &deaf.id)? == "killed").then_some(()));
    assert!(outcome(&agent, "orphan_killed") >= 1, "by this agent: {}", agent.json("/v1/node"));
    assert_eq!(outcome(&agent, "failed"), 0);
    for task in [&obeys, &alone, &removed, &deaf] {
        is_logged(&agent, task);
    }
    assert!(
        !agent.log().lines().any(|line| line.contains("a task runs that") && line.contains(&over.id)),
        "{}",
        agent.log()
    );
    // The same names again, beside nothing of before.
    let again = run(&agent, "obeys", &["hold", "600000"]);
    assert_ne!(again.id, obeys.id);
    agent.stop();
}

/// With its directory in `run/` or its supervisor gone too: kill signal, grace, force, then its cgroups and records;
/// counted, listed, logged with where its logs are kept. Readiness waits for none of it.
///
/// Promise (Durability and recovery): Tasks of a lost state are ended by the next agent, even over a SIGKILL in
/// between, and reported
#[test]
fn running_tasks_of_a_lost_state_are_ended_over_a_sigkill_in_the_middle() {
    lost_state(AgentOptions::default());
}

#[test]
fn running_tasks_of_a_lost_state_are_ended_without_cgroups() {
    if !is_root() {
        skip_test!("not-root");
    }
    lost_state(AgentOptions { as_nobody: true, ..AgentOptions::default() });
}

/// Records in our own directory that name foreign pids, of another start time or another boot.
#[test]
fn reused_pid_in_a_lost_attempts_record_is_left_alone() {
    let mut agent = Agent::start();
    let tasks: Vec<Task> = ["stale", "booted"].iter().map(|name| run(&agent, name, &["hold", "600000"])).collect();
    agent.kill();
    let mut foreign = [Foreign::new(), Foreign::new()];
    for ((name, task), foreign) in ["stale", "booted"].iter().zip(&tasks).zip(&foreign) {
        kill(task.supervisor);
        kill(task.main);
        let stale = *name == "stale";
        let this = boot_id(&Roots::default()).expect("this boot has an id");
        let boot = if stale { this } else { BootId("another-boot".to_owned()) };
        let run_dir = agent.data_dir().join("run").join(&task.id).join(name).join("0");
        std::fs::remove_file(run_dir.join("record")).expect("it was there");
        let record = SupervisorRecord::create(&run_dir).expect("a new record");
        let ids = foreign.ids(stale);
        let start = SupervisedStart { boot_id: boot, supervisor: ids[1], main: Some(ids[0]), started_at: None };
        record.write_start(&start).expect("the record is ours");
        record.unlock().expect("the record is ours");
    }
    lose(&agent, "state");
    agent.start_again();
    tasks.iter().for_each(|task| wait_until_exited(&agent, task));
    assert!(foreign.iter_mut().all(Foreign::untouched), "a foreign process was ended");
    assert_eq!((outcome(&agent, "orphan_killed"), outcome(&agent, "failed")), (0, 0));
    agent.stop();
    assert!(foreign.iter_mut().all(Foreign::untouched), "by the agent's end");
}

/// A user copies what a living agent has into the directory of another one: the tasks are not that one's.
#[test]
fn run_directory_copied_from_another_agent_is_left_alone() {
    let agent = Agent::start();
    let task = run(&agent, "theirs", &["hold", "600000"]);
    let mut other = Agent::to_start(AgentOptions::default());
    let from = agent.data_dir().join("run").join(&task.id).join("theirs/0");
    let to = other.data_dir().join("run").join(&task.id).join("theirs/0");
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&to).expect("the test's own directory");
    for file in ["record", "orders.json"] {
        std::fs::copy(from.join(file), to.join(file)).expect("they are there");
    }
    other.start_again();
    wait_for("it to be reported", LIMIT * patience(), || (fate(&other, &task.id)? == "may_run").then_some(()));
    assert_eq!((outcome(&other, "failed"), outcome(&other, "orphan_killed")), (1, 0));
    assert!(parent(task.main).is_some() && parent(task.supervisor).is_some(), "it was ended");
    assert!(to.join("record").exists(), "it stays for people to look at");
    other.stop();
    let alloc = Alloc { agent: &agent, id: task.id.clone(), task: "theirs".into() };
    assert_eq!(main_pid(&alloc), task.main);
    assert_ne!(Path::new(&from), to);
    agent.stop();
}

/// Two agents on one host: one is killed, the other one says that its tasks have no agent, until it is back.
#[test]
fn supervisors_of_another_or_no_agent_are_listed_and_exposed() {
    let mut owner = Agent::start();
    let task = run(&owner, "stray", &["hold", "600000"]);
    let mut other = Agent::start();
    let watched_by = |agent: &Agent| {
        let node = agent.json("/v1/node");
        let stray = node["strays"].as_array()?.iter().find(|stray| stray["pid"] == task.supervisor)?.clone();
        assert_eq!((&stray["alloc_id"], &stray["task"]), (&task.id.clone().into(), &"stray".into()), "{node}");
        Some(stray["watched_by"].as_str().expect("a word").to_owned())
    };
    let until = |agent: &Agent, who: &str, words: &str| {
        let limit = Duration::from_secs(60) * patience();
        wait_for(who, limit, || (watched_by(agent).as_deref() == Some(who)).then_some(()));
        assert!(agent.metrics().u64("allostat_supervisors", &[("watched_by", who)]) >= 1);
        let output = agent.cli(&["status"]);
        assert!(output.stderr.contains("does not watch") && output.stderr.contains(words), "{}", output.stderr);
        // Other tests have some of their own on this host; the text lists ten.
        let node = agent.cli(&["node"]).ok();
        assert!(node.contains(&task.supervisor.to_string()) || node.contains(" more (--json"), "{node}");
    };
    until(&other, "another_agent", "by another agent");
    // Its own are none, to the agent that has them.
    let limit = LIMIT * patience();
    wait_for("the owner to have looked", limit, || {
        owner.metrics().one("allostat_supervisors", &[("watched_by", "nobody")]).map(drop)
    });
    assert_eq!(watched_by(&owner), None);
    owner.kill();
    // It looks at its start, and rarely as long as all is well.
    other.terminate();
    other.start_again();
    until(&other, "nobody", "by nobody");
    assert!(other.log().contains("supervisor is watched by no agent"), "{}", other.log());
    owner.start_again();
    until(&other, "another_agent", "by another agent");
    other.stop();
    owner.stop();
}
