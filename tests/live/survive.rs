//! SIGKILL of the agent: every task and its log run on, and are there again, with exits that no agent was there to see.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use crate::common::{Agent, AgentOptions, allostat, counters, none_fell, patience, wait_for};
use crate::live::work::{Alloc, Work, remove_under_use};

pub fn main_pid(alloc: &Alloc<'_>) -> u64 {
    // "Accepted" is not "running": the pid is there once the task was started.
    wait_for("the task's pid in the API", Duration::from_secs(10) * patience(), || {
        find_pid(&alloc.agent.json(&format!("/v1/allocs/{}", alloc.id)))
    })
}

fn find_pid(value: &serde_json::Value) -> Option<u64> {
    match value {
        serde_json::Value::Object(map) => {
            map.get("pid").and_then(serde_json::Value::as_u64).or_else(|| map.values().find_map(find_pid))
        }
        serde_json::Value::Array(list) => list.iter().find_map(find_pid),
        _ => None,
    }
}

/// A task that runs until a test wants it to end.
pub struct Ending {
    file: PathBuf,
    supervisor: u64,
}

/// Started, and at work.
#[track_caller]
pub fn ending<'a>(agent: &'a Agent, name: &str) -> (Alloc<'a>, Ending) {
    let file = agent.scratch().join(format!("end-{name}"));
    let alloc = Work::batch(name, &["until", file.to_str().expect("a path of ours is UTF-8")]).run(agent);
    alloc.ready();
    let supervisor = parent(main_pid(&alloc)).expect("a task that runs has a supervisor");
    (alloc, Ending { file, supervisor })
}

impl Ending {
    /// Ends it, with 0, and waits until its supervisor has recorded that and is gone.
    #[track_caller]
    pub fn now(self) {
        std::fs::write(&self.file, "").expect("a file can be made");
        wait_for("the task and its supervisor to end", Duration::from_secs(20) * patience(), || {
            parent(self.supervisor).is_none().then_some(())
        });
    }
}

/// Promise (Durability and recovery): SIGKILL of the agent: tasks and logs continue, exits meanwhile are counted once,
/// nothing starts twice
#[test]
fn tasks_survive_the_death_of_the_agent_and_their_exits_are_not_lost() {
    let mut agent = Agent::start();
    let (long_id, long_pid, short_id, short_ends);
    {
        let long = Work::batch("long", &["hold", "120000"]).run(&agent);
        let (short, end) = ending(&agent, "short");
        long.ready();
        (long_id, long_pid, short_id, short_ends) = (long.id.clone(), main_pid(&long), short.id.clone(), end);
    }
    let before = wait_for("the first reading", Duration::from_secs(5) * patience(), || {
        Some(agent.metrics().one("allostat_workload_cpu_usage_seconds_total", &[("workload", "short")])?.f64())
    });
    agent.kill();
    let alive = |pid: u64| std::path::Path::new(&format!("/proc/{pid}")).exists();
    assert!(alive(long_pid), "the task runs on without the agent");
    short_ends.now();
    agent.start_again();
    assert!(alive(long_pid), "nothing was killed by the start");

    let long = Alloc { agent: &agent, id: long_id, task: "long".into() };
    let short = Alloc { agent: &agent, id: short_id, task: "short".into() };
    short.wait_dead();
    assert_eq!(short.exits("success"), 1, "its exit is there, though no agent was there to see it");
    assert_eq!(main_pid(&long), long_pid, "the same process, not a second one");
    let list = agent.json("/v1/allocs");
    assert_eq!(list["allocs"].as_array().expect("a list").len(), 2, "nothing was started twice");
    let after = agent.metrics().f64("allostat_workload_cpu_usage_seconds_total", &[("workload", "short")]);
    assert!(after > before, "a counter never falls: {before}, then {after}");
    let started = agent
        .metrics()
        .u64("allostat_workload_events_total", &[("workload", "long"), ("task", "long"), ("event", "started")]);
    assert_eq!(started, 1, "no second Started");
    for (outcome, n) in [("reattached", 1), ("ended", 1), ("lost", 0), ("failed", 0), ("restarted", 0)] {
        assert_eq!(agent.metrics().u64("allostat_restore_tasks", &[("outcome", outcome)]), n, "{outcome}");
    }
    let took = agent.metrics().f64("allostat_restore_duration_seconds", &[]);
    assert!(took > 0.0 && took < 30.0 * f64::from(patience()), "{took}");
    agent.stop();
}

/// Promise (Durability and recovery): SIGTERM leaves tasks running
#[test]
fn sigterm_leaves_tasks_running_with_their_logs_written() {
    let mut agent = Agent::start();
    let (id, pid);
    {
        let alloc = Work::batch("lasting", &["hold", "120000"]).run(&agent);
        alloc.ready();
        (id, pid) = (alloc.id.clone(), main_pid(&alloc));
    }
    agent.terminate();
    assert!(std::path::Path::new(&format!("/proc/{pid}")).exists());
    agent.start_again();
    let alloc = Alloc { agent: &agent, id, task: "lasting".into() };
    assert_eq!(main_pid(&alloc), pid);
    assert!(alloc.log("stdout").starts_with("ready"), "the log is there");
    agent.cli(&["stop", &alloc.id]).ok();
    alloc.wait_dead();
    assert_eq!(alloc.exits("killed"), 1);
    wait_for("the process to be gone", Duration::from_secs(5) * patience(), || {
        (!std::path::Path::new(&format!("/proc/{pid}")).exists()).then_some(())
    });
    agent.stop();
}

/// What a package manager does: the old binary is gone from the disk, and the new one is another file in its place.
/// `ALLOSTAT_OLD_BINARY`: an agent of an earlier version, to begin with.
/// The old binary is killed and gone from the disk, another is in its place: with `ALLOSTAT_OLD_BINARY` from an earlier
/// version.
///
/// Promise (Durability and recovery): An upgrade of the binary under running tasks keeps every task, log and counter
#[test]
fn agent_upgrade_retains_every_task_log_and_counter() {
    let bin = tempfile::tempdir().expect("a directory for binaries");
    let binary = bin.path().join("allostat");
    let old = std::env::var_os("ALLOSTAT_OLD_BINARY").map_or_else(allostat, Into::into);
    std::fs::copy(old, &binary).expect("the old binary can be copied");
    let mut agent = Agent::with(AgentOptions { binary: Some(binary.clone()), ..AgentOptions::default() });
    let (held, held_pid, looping, meanwhile, meanwhile_ends);
    {
        let ended = Work::batch("ended", &["burn", "50"]).run(&agent);
        let hold = Work::batch("held", &["hold", "600000"]).run(&agent);
        let lives = Work::looping("looping", &["burn", "60"]);
        let (ends, end) = ending(&agent, "meanwhile");
        looping = lives.run(&agent).id.clone();
        ended.wait_dead();
        hold.ready();
        (held, held_pid, meanwhile, meanwhile_ends) = (hold.id.clone(), main_pid(&hold), ends.id.clone(), end);
    }
    wait_for("a restart", Duration::from_secs(10) * patience(), || {
        let labels = [("workload", "looping"), ("task", "looping"), ("outcome", "success")];
        (agent.metrics().one("allostat_workload_exits_total", &labels)?.u64() > 1).then_some(())
    });
    let before = counters(&agent.metrics());
    agent.kill();
    std::fs::remove_file(&binary).expect("our own file");
    meanwhile_ends.now();
    let new = bin.path().join("new");
    std::fs::copy(allostat(), &new).expect("the new binary can be copied");
    std::fs::rename(&new, &binary).expect("our own files");
    agent.upgrade(binary);
    agent.start_again();

    let hold = Alloc { agent: &agent, id: held, task: "held".into() };
    let ends = Alloc { agent: &agent, id: meanwhile, task: "meanwhile".into() };
    let lives = Alloc { agent: &agent, id: looping, task: "looping".into() };
    assert_eq!(main_pid(&hold), held_pid, "the same process");
    ends.wait_dead();
    assert_eq!(ends.exits("success"), 1, "ended under no agent at all, and its exit was read by a new one");
    assert!(hold.log("stdout").starts_with("ready") && ends.log("stdout").starts_with("ready"), "the logs are there");
    none_fell(&before, &counters(&agent.metrics()), "over an upgrade");
    let more = lives.exits("success");
    wait_for("one more restart", Duration::from_secs(10) * patience(), || {
        (lives.exits("success") > more).then_some(())
    });
    for alloc in [&hold, &lives] {
        agent.cli(&["stop", &alloc.id]).ok();
        alloc.wait_dead();
    }
    assert_eq!(hold.exits("killed"), 1, "a supervisor of the old binary obeys the new agent");
    let allocs = agent.json("/v1/allocs");
    assert_eq!(allocs["allocs"].as_array().expect("a list").len(), 4, "nothing was started twice or forgotten");
    agent.stop();
}

/// A cleaning job runs in the wrong place. What is lost with a directory is said, and nothing else is.
///
/// Promise (Durability and recovery): A removed directory loses its content and nothing else: the next start creates it
/// again
#[test]
fn directories_removed_underneath_cost_what_was_in_them_and_nothing_else() {
    let agent = Agent::start();
    let lives = Work::looping("looping", &["burn", "60"]).run(&agent);
    let hold = Work::batch("held", &["hold", "600000"]).run(&agent);
    let sibling = Work::batch("beside", &["hold", "600000"]).run(&agent);
    hold.ready();
    sibling.ready();
    let data = agent.data_dir();
    remove_under_use(&data.join("alloc").join(&lives.id));
    for of in [&hold.id, &lives.id] {
        remove_under_use(&data.join("run").join(of));
    }
    // In directories made again.
    let starts_again = || lives.wait_exits("success", lives.exits("success") + 2);
    starts_again();
    agent.cli(&["stop", &hold.id]).ok();
    hold.wait_dead();
    assert_eq!(hold.exits("killed"), 1, "it was asked for; what its supervisor wrote went with the record");
    for (name, mode) in [("alloc", 0o711), ("run", 0o700)] {
        remove_under_use(&data.join(name));
        starts_again();
        let made = std::fs::metadata(data.join(name)).expect("made again").permissions();
        assert_eq!(made.mode() & 0o7777, mode, "{name}");
    }
    agent.cli(&["stop", &lives.id]).ok();
    lives.wait_dead();
    let state = agent
        .metrics()
        .u64("allostat_task_state", &[("alloc_id", &sibling.id), ("task", "beside"), ("state", "running")]);
    assert_eq!(state, 1, "the other task goes on");
    agent.stop();
}

/// The process of this pid, and who it is a child of, where it is none that waits to be reaped.
pub fn parent(pid: u64) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    (words.next()? != "Z").then(|| words.next()?.parse().ok())?
}

/// A cleaning job runs in the wrong place while no agent is there. A supervisor that lives still has the record; what
/// one left that was killed as well is ended, and nothing is started beside anything.
#[test]
fn records_removed_while_no_agent_was_there_cost_no_living_task_and_leave_no_orphan() {
    let mut agent = Agent::start();
    let (retained, orphaned) = ("kept", "orphaned");
    let (ids, pids): (Vec<String>, Vec<u64>) = [retained, orphaned]
        .map(|name| {
            let alloc = Work::batch(name, &["hold", "600000"]).run(&agent);
            alloc.ready();
            (alloc.id.clone(), main_pid(&alloc))
        })
        .into_iter()
        .unzip();
    agent.kill();
    let supervisor = parent(pids[1]).expect("it runs");
    let killed = std::process::Command::new("kill").args(["-9", &supervisor.to_string()]).status();
    assert!(killed.is_ok_and(|status| status.success()));
    wait_for("the supervisor to be gone", Duration::from_secs(5) * patience(), || {
        parent(supervisor).is_none().then_some(())
    });
    for id in &ids {
        std::fs::remove_dir_all(agent.data_dir().join("run").join(id)).expect("it is there, and we may");
    }
    assert!(pids.iter().all(|pid| parent(*pid).is_some()), "both run on");
    agent.start_again();

    let [retained, orphaned] = [(retained, &ids[0]), (orphaned, &ids[1])].map(|(name, id)| Alloc {
        agent: &agent,
        id: id.clone(),
        task: name.into(),
    });
    orphaned.wait_dead();
    assert_eq!(orphaned.exits("unknown"), 1);
    wait_for("the orphan to be ended", Duration::from_secs(5) * patience(), || parent(pids[1]).is_none().then_some(()));
    assert_eq!(main_pid(&retained), pids[0], "the same process");
    for (outcome, n) in [("reattached", 1), ("lost", 1), ("ended", 0), ("failed", 0), ("restarted", 0)] {
        assert_eq!(agent.metrics().u64("allostat_restore_tasks", &[("outcome", outcome)]), n, "{outcome}");
    }
    agent.cli(&["stop", &retained.id]).ok();
    retained.wait_dead();
    assert_eq!(retained.exits("killed"), 1, "its exit is read from the record that its supervisor had open");
    agent.stop();
}
