//! Start times of observed tasks: what began before the agent, and what it saw begin.
//!
//! Promise (Observed workloads): Running tasks have a start time, also those that ran before the agent; the next agent
//! finds the same

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::{Cgroups, is_root, wait_for};
use crate::observed::live::{Scene, agent, long};

const STARTED: &str = "allostat_task_start_time_seconds";

/// When a process started, as `ps` computes it: the boot time has whole seconds.
fn started_at(pid: u32) -> f64 {
    let read = |path: &str| fs::read_to_string(path).unwrap();
    let stat = read("/proc/stat");
    let booted: f64 = stat.lines().find_map(|line| line.strip_prefix("btime ")).unwrap().parse().unwrap();
    let own = read(&format!("/proc/{pid}/stat"));
    let ticks: f64 = own.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap().parse().unwrap();
    booted + ticks / 100.0
}

#[test]
fn task_start_time_is_exposed_for_tasks_older_and_newer_than_the_agent() {
    if !is_root() {
        skip_test!("not-root");
    }
    let observed_cgroups = Cgroups::new();
    let mut before = observed_cgroups.sleeper("before");
    // It is older than the agent by more than the boot time is rounded by.
    wait_for("two seconds", long(), || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        (now - started_at(before.id()) > 2.0).then_some(())
    });
    let mut scene = Scene { agent: agent(&observed_cgroups, &[]), observed: observed_cgroups };
    scene.wait("before", "the cgroup that was there", |_| true);
    let after = scene.run("after", "exec sleep 1000");
    scene.wait("after", "the new cgroup", |alloc| alloc["status"] == "running");
    let found = ["before", "after"].map(|name| scene.value(STARTED, name).expect(name));
    for (pid, found) in [before.id(), after.id()].into_iter().zip(found) {
        // Processes of the second one enter its cgroup a moment after their start.
        assert!((-1.0..2.0).contains(&(found - started_at(pid))), "{found}, {}", started_at(pid));
    }
    assert!(found[0] + 1.0 < found[1], "{found:?}");
    let task = scene.wait("before", "its row", |_| true)["tasks"]["before"].clone();
    assert!(task["state_since"].is_null() && task["started_at"].is_u64(), "{task}");

    // The next agent finds the same start, so that `changes()` counts no restart.
    scene.agent.terminate();
    scene.agent.start_again();
    for (name, found) in ["before", "after"].into_iter().zip(found) {
        let again = wait_for("its start time again", long(), || scene.value(STARTED, name));
        assert_eq!(again, found, "{name}");
    }
    scene.end("after", after);
    wait_for("the end", long(), || scene.value(STARTED, "after").is_none().then_some(()));
    before.kill().unwrap();
    before.wait().unwrap();
}
