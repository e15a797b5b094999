//! The agent as the first process of a container: what loses its parent is its child.

use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use crate::common::{Agent, AgentOptions, patience, wait_for};
use crate::live::work::{Work, lacks};

/// The parent's pid and the state of a process. Source: `/proc/PID/stat`.
fn stat(pid: u32) -> Option<(u32, String)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut words = text.rsplit_once(')')?.1.split_whitespace();
    let state = words.next()?.to_owned();
    Some((words.next()?.parse().ok()?, state))
}

fn children(of: u32) -> Vec<(u32, String)> {
    let pids = std::fs::read_dir("/proc").expect("/proc is there").flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| stat(pid).filter(|(parent, _)| *parent == of).map(|(_, state)| (pid, state))).collect()
}

/// As the first process of a container, or a subreaper, the agent reaps what lost its supervisor, and takes the exit of
/// no child that has a waiting parent.
///
/// Promise (Durability and recovery): As a container's first process, or a subreaper, the agent reaps orphans of
/// supervisors and nothing else
#[test]
fn first_process_of_a_container_reaps_orphaned_tasks_and_loses_no_exit() {
    let unshare = ["--pid", "--fork", "--kill-child", "--mount-proc", "true"];
    if !Command::new("unshare").args(unshare).output().is_ok_and(|tried| tried.status.success()) {
        skip_test!("cannot-unshare");
    }
    let mut agent = Agent::with(AgentOptions { first_process: true, ..AgentOptions::default() });
    let [(first, _)] = children(agent.pid())[..] else { panic!("unshare has one child") };
    // Ends by itself, again and again: each end is for its supervisor.
    let looping = Work::looping("looping", &["burn", "20"]).run(&agent);
    let held: Vec<_> = ["one", "two"].map(|name| Work::looping(name, &["hold", "600000"]).run(&agent)).into();
    held.iter().for_each(|alloc| drop(alloc.ready()));
    for alloc in &held {
        let supervisor =
            agent.processes().into_iter().find(|line| line.contains("supervise") && line.contains(&alloc.id));
        let pid = supervisor.expect("it lives").split(' ').next().and_then(|pid| pid.parse().ok()).expect("a pid");
        let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("our own");
    }
    wait_for("each to be started again", Duration::from_secs(20) * patience(), || {
        held.iter().all(|alloc| alloc.exits("unknown") == 1).then_some(())
    });
    wait_for("no zombie to be left", Duration::from_secs(20) * patience(), || {
        // Those of tasks that end at that moment are reaped at once, by their supervisors.
        let zombies = || children(first).into_iter().filter(|(_, state)| state == "Z").map(|(pid, _)| pid);
        let before: Vec<u32> = zombies().collect();
        std::thread::sleep(Duration::from_millis(300));
        (!zombies().any(|pid| before.contains(&pid))).then_some(())
    });
    let ended = looping.exits("success");
    wait_for("more ends", Duration::from_secs(20) * patience(), || {
        (looping.exits("success") > ended + 5).then_some(())
    });
    assert_eq!((looping.exits("unknown"), looping.exits("error")), (0, 0));
    agent.cli(&["stop", "--all"]).ok();
    // A stop is over with the tasks' ends; an alloc's own cgroup goes behind it.
    agent.wait_without_cgroups(Duration::from_secs(10) * patience());
    agent.kill();
    // The kernel ends the agent when unshare is gone: a moment later.
    wait_for("the container to be gone", Duration::from_secs(10) * patience(), || {
        agent.processes().is_empty().then_some(())
    });
    agent.assert_nothing_left();
}

/// An agent without drivers makes no cgroup, and `allostat node` has the reason.
#[test]
fn an_agent_that_runs_nothing_makes_no_cgroup() {
    let env = vec![("ALLOSTAT_DRIVERS".to_owned(), "none".to_owned())];
    let agent = Agent::with(AgentOptions { env, ..AgentOptions::default() });
    assert!(!agent.cgroups.exists());
    let node = agent.cli(&["node"]).ok();
    assert!(node.contains("this agent runs nothing"), "{node}");
    assert_eq!(agent.metrics().u64("allostat_capability", &[("feature", "cgroup")]), 0);
    agent.stop();
}

/// Nor does it make one, or write a file, below a parent that another agent has left. inotify reports both.
#[test]
fn an_agent_without_drivers_changes_nothing_below_an_existing_parent() {
    if let Some(reason) = lacks("memory") {
        skip_test!(reason);
    }
    let env = vec![("ALLOSTAT_DRIVERS".to_owned(), "none".to_owned())];
    let mut agent = Agent::to_start(AgentOptions { env, ..AgentOptions::default() });
    agent.cgroups.make("");
    let kernel = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).expect("a descriptor must be left");
    let changes = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::CLOSE_WRITE;
    for directory in agent.cgroups.directories("") {
        inotify::add_watch(&kernel, &directory, changes).expect("it was made");
    }
    let changed = || {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&kernel, &mut buffer);
        let mut names = Vec::new();
        while let Ok(event) = reader.next() {
            names.extend(event.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
        names
    };
    agent.start_again();
    assert_eq!(changed(), Vec::<String>::new());
    // One of another process is reported, so one of the agent would have been.
    agent.cgroups.make("probe");
    assert!(changed().contains(&"probe".to_owned()));
    agent.cgroups.remove("probe");
    agent.terminate();
    assert!(agent.cgroups.exists(), "the parent is not the agent's");
}

/// As `docs/security.md` states: the parent of its tasks is there from the start, and is removed with the agent.
#[test]
fn an_agent_with_drivers_and_no_job_has_its_parent_cgroup_alone() {
    if let Some(reason) = lacks("memory") {
        skip_test!(reason);
    }
    let mut agent = Agent::start();
    assert!(agent.cgroups.exists());
    assert_eq!(agent.cgroups_left(), Vec::<PathBuf>::new(), "below it is none");
    assert_eq!(agent.metrics().u64("allostat_capability", &[("feature", "cgroup")]), 1);
    agent.terminate();
    assert!(!agent.cgroups.exists(), "it goes with the agent that made it");
}
