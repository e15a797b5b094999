//! A data directory that is moved while its tasks run, with a link in its old place or without, and one that is copied.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::common::{Agent, AgentOptions, patience, wait_for};
use crate::live::survive::{Ending, ending, main_pid};
use crate::live::work::{Alloc, Work};

/// What ran when the agent was killed.
struct Ran {
    agent: Agent,
    ids: Vec<String>,
    pids: Vec<u64>,
    /// Ends while no agent runs.
    ending: String,
    end: Option<Ending>,
    /// Its supervisor is killed while no agent is there.
    orphaned: String,
}

const NAMES: [&str; 2] = ["one", "two"];

fn lives(pid: u64) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn state(agent: &Agent, id: &str) -> String {
    let alloc = agent.json(&format!("/v1/allocs/{id}"));
    alloc["status"].as_str().expect("a state").to_owned()
}

fn outcome(agent: &Agent, outcome: &str) -> u64 {
    agent.metrics().u64("allostat_restore_tasks", &[("outcome", outcome)])
}

#[track_caller]
fn wait_for_word(agent: &Agent, word: &str) {
    wait_for(word, Duration::from_secs(20) * patience(), || agent.log().contains(word).then_some(()));
}

/// With the directory in which its data directory is.
fn begin() -> (PathBuf, PathBuf, Ran) {
    let mut agent = Agent::to_start(AgentOptions::default());
    let top = agent.scratch().to_owned();
    let place = top.join("d");
    agent.set_data_dir(place.clone());
    agent.start_again();
    let run = |work: Work| {
        let alloc = work.run(&agent);
        alloc.ready();
        (alloc.id.clone(), main_pid(&alloc))
    };
    let (ids, pids) = NAMES.iter().map(|name| run(Work::looping(name, &["hold", "600000"]))).unzip();
    let (ending, end) = {
        let (alloc, end) = ending(&agent, "ending");
        (alloc.id, Some(end))
    };
    let (orphaned, _) = run(Work::batch("orphaned", &["hold", "600000"]));
    (top, place, Ran { agent, ids, pids, ending, end, orphaned })
}

/// By the record of its attempt.
fn supervisor(place: &Path, id: &str, task: &str) -> u32 {
    use allostat::supervisor::record::{RecordSlot, SupervisorRecord};
    let record = SupervisorRecord::open(&place.join("run").join(id).join(task).join("0"));
    match record.expect("it can be read").expect("it is there").read_start().expect("it can be read") {
        RecordSlot::Written(start) => start.supervisor.pid,
        other => panic!("{other:?}"),
    }
}

impl Ran {
    /// Found with another path, by which it is its own as before.
    fn assert_task_survives(&mut self, data_dir: PathBuf) {
        self.agent.set_data_dir(data_dir);
        self.agent.start_again();
        let agent = &self.agent;
        for ((id, pid), name) in self.ids.iter().zip(&self.pids).zip(NAMES) {
            let alloc = Alloc { agent, id: id.clone(), task: name.to_owned() };
            assert_eq!((state(agent, id).as_str(), main_pid(&alloc)), ("running", *pid), "{}", agent.log());
        }
        for never in ["failed", "orphan_killed", "restarted"] {
            assert_eq!(outcome(agent, never), 0, "{never}: {}", agent.log());
        }
    }

    /// What happened without an agent is known as well.
    fn knows_what_ended(&self) {
        let alloc = Alloc { agent: &self.agent, id: self.ending.clone(), task: "ending".to_owned() };
        alloc.wait_dead();
        assert_eq!(alloc.exits("success"), 1, "its exit was read");
        let killed = Alloc { agent: &self.agent, id: self.orphaned.clone(), task: "orphaned".to_owned() };
        killed.wait_dead();
        let running = self.agent.cgroups.left();
        assert!(!running.iter().any(|cgroup| cgroup.ends_with(format!("{}/orphaned", self.orphaned))), "{running:?}");
    }

    /// Ends the task that is to end while no agent is there.
    fn ends(&mut self) {
        self.end.take().expect("it ends once").now();
    }

    fn away(&mut self, place: &Path) {
        let supervisor = supervisor(place, &self.orphaned, "orphaned");
        self.agent.kill();
        let pid = rustix::process::Pid::from_raw(i32::try_from(supervisor).expect("a pid")).expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("our own");
    }
}

/// Promise (Durability and recovery): A moved data directory keeps all its tasks and exits; nothing is written at the
/// old place
#[test]
fn data_directory_moved_and_linked_retains_its_tasks() {
    let (top, place, mut ran) = begin();
    ran.away(&place);
    let big = top.join("big");
    std::fs::rename(&place, &big).expect("our own directory");
    std::os::unix::fs::symlink(&big, &place).expect("our own directory");
    ran.ends();
    ran.assert_task_survives(place.clone());
    ran.knows_what_ended();
    // By its other name, and with another again.
    ran.agent.kill();
    ran.assert_task_survives(big.clone());
    ran.agent.kill();
    std::fs::remove_file(&place).expect("our own link");
    std::fs::rename(&big, &place).expect("our own directory");
    ran.assert_task_survives(place);
    ran.agent.stop();
}

/// An agent that begins in the old place touches nothing of it.
#[test]
fn data_directory_moved_without_a_link_retains_its_tasks_and_leaves_nothing_behind() {
    let (top, place, mut ran) = begin();
    ran.away(&place);
    let big = top.join("big");
    std::fs::rename(&place, &big).expect("our own directory");
    // Another process begins there.
    std::fs::create_dir(&place).expect("our own directory");
    ran.ends();
    ran.assert_task_survives(big);
    ran.knows_what_ended();
    let put_back = std::fs::read_dir(&place).expect("our own directory").count();
    assert_eq!(put_back, 0, "a supervisor that ended wrote where its directory was");
    // An agent there has nothing to do with what runs.
    let mut other = Agent::with(AgentOptions { data_dir: Some(place), ..AgentOptions::default() });
    let own = Work::batch("own", &["burn", "1"]).run(&other);
    own.wait_dead();
    assert_eq!(other.alloc_ids(), [own.id.as_str()], "nothing but its own");
    assert!(ran.pids.iter().all(|pid| lives(*pid)), "{}", other.log());
    other.terminate();
    ran.agent.stop();
}

/// Without the state database, which would name them: by its supervisors alone.
#[test]
fn moved_data_directory_without_its_database_still_owns_its_running_tasks() {
    let (top, place, mut ran) = begin();
    ran.agent.kill();
    let big = top.join("big");
    std::fs::rename(&place, &big).expect("our own directory");
    std::fs::remove_dir_all(big.join("state")).expect("our own directory");
    ran.agent.set_data_dir(big);
    ran.agent.start_again();
    wait_for("what is in no record to be ended", Duration::from_secs(30) * patience(), || {
        (!ran.pids.iter().any(|pid| lives(*pid))).then_some(())
    });
    wait_for("each to be counted", Duration::from_secs(10) * patience(), || {
        (outcome(&ran.agent, "orphan_killed") >= 3).then_some(())
    });
    // The one that was being stopped may end by itself or be killed, and then its cgroup goes.
    ran.agent.wait_without_cgroups(Duration::from_secs(30) * patience());
    ran.agent.stop();
}

/// Promise (Durability and recovery): A copy of a data directory, beside the original or in its place, owns and ends no
/// running task
#[test]
fn a_copy_of_a_data_directory_owns_nothing_of_what_runs() {
    let (top, place, mut ran) = begin();
    ran.agent.kill();
    let copy = top.join("copy");
    let copied = Command::new("cp").arg("-a").arg(&place).arg(&copy).status().expect("cp is there");
    assert!(copied.success());
    // It sees the same cgroups, as a second agent of this host does.
    let config = format!("cgroup {{\n parent = \"{}\"\n}}\n", ran.agent.cgroups.parent);
    let file = top.join("copy.hcl");
    std::fs::write(&file, config).expect("our own file");
    let mut other = Agent::to_start(AgentOptions { data_dir: Some(copy), ..AgentOptions::default() });
    for round in 0..2 {
        other.start_again();
        wait_for_word(&other, "the data directory is a copy");
        Work::batch(&format!("own-{round}"), &["burn", "1"]).run(&other).wait_dead();
        assert!(ran.pids.iter().all(|pid| lives(*pid)), "{}", other.log());
        assert_eq!(outcome(&other, "reattached"), 0);
        other.kill();
    }
    ran.assert_task_survives(place);
    ran.agent.stop();
    // What it holds for its own is gone with the original's.
    drop(other);
}

/// In the place of the original, where all paths are as they were.
#[test]
fn a_copy_in_the_place_of_the_original_kills_nothing_of_it() {
    let (top, place, mut ran) = begin();
    ran.agent.kill();
    let (copy, original) = (top.join("copy"), top.join("original"));
    let copied = Command::new("cp").arg("-a").arg(&place).arg(&copy).status().expect("cp is there");
    assert!(copied.success());
    std::fs::rename(&place, &original).expect("our own directory");
    std::fs::rename(&copy, &place).expect("our own directory");
    ran.agent.set_data_dir(place);
    ran.agent.start_again();
    wait_for_word(&ran.agent, "its record is a copy of the one in");
    Work::batch("own", &["burn", "1"]).run(&ran.agent).wait_dead();
    assert!(ran.pids.iter().all(|pid| lives(*pid)), "{}", ran.agent.log());
    assert_eq!(outcome(&ran.agent, "reattached"), 0);
    ran.agent.kill();
    ran.assert_task_survives(original);
    ran.agent.stop();
}
