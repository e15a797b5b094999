//! What somebody does to supervisors and their records while their tasks run.

use std::path::PathBuf;
use std::time::Duration;

use crate::common::{Agent, patience, wait_for, workload};
use crate::survive::{main_pid, parent};
use crate::work::{Alloc, MIB, Work, lacks, remove_under_use};

/// A task that does what it is there for when it is told to.
struct Armed {
    id: String,
    task: &'static str,
    pids: [u64; 2],
    go: PathBuf,
}

impl Armed {
    fn new(agent: &Agent, task: &'static str, then: &str, resources: &str) -> Armed {
        let script = format!("echo 'ready {{}}'; until [ -e go ]; do sleep 0.02; done; {then}");
        let hcl = Work::batch(task, &["-c", &script]).resources(resources).hcl();
        let hcl = hcl.replace(&format!("{:?}", workload().display().to_string()), "\"/bin/sh\"");
        agent.run(&hcl);
        let list = agent.json("/v1/allocs");
        let listed = list["allocs"].as_array().and_then(|list| list.iter().find(|a| a["job"] == task));
        let id = listed.and_then(|alloc| alloc["id"].as_str()).expect("it was accepted").to_owned();
        let go = agent.data_dir().join("alloc").join(&id).join(task).join("go");
        let mut armed = Armed { id, task, pids: [0; 2], go };
        let alloc = armed.alloc(agent);
        alloc.ready();
        let main = main_pid(&alloc);
        armed.pids = [main, parent(main).expect("it runs")];
        armed
    }
    fn alloc<'a>(&self, agent: &'a Agent) -> Alloc<'a> {
        Alloc { agent, id: self.id.clone(), task: self.task.into() }
    }
    fn go(&self) {
        std::fs::write(&self.go, "").expect("it waits there");
    }
}

/// The record of a living task goes, by itself or with all others: how the attempt ended, and what it used, is known all the
/// same, whether the agent is there when it ends or not.
#[test]
fn a_record_removed_under_a_living_agent_costs_nothing_of_how_its_attempt_ended() {
    let memory = lacks("memory").is_none();
    let mut agent = Agent::start();
    let ends = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done";
    let touch = format!("exec {} touch", workload().display());
    let tasks = [
        Armed::new(&agent, "code", &format!("{ends}; exit 7"), ""),
        Armed::new(&agent, "hog", &format!("{touch} 200 60000"), "memory = 64"),
        Armed::new(&agent, "code-away", &format!("{ends}; exit 8"), ""),
        Armed::new(&agent, "hog-away", &format!("{touch} 200 60000"), "memory = 64"),
    ];
    // Where nothing limits it, it would not end.
    let runs = |armed: &&Armed| memory || !armed.task.starts_with("hog");
    let (here, away) = tasks.split_at(2);
    let run = agent.data_dir().join("run");
    std::fs::remove_file(run.join(&here[0].id).join("code/0/record")).expect("it is there");
    remove_under_use(&run.join(&here[1].id));
    for armed in here.iter().filter(runs) {
        armed.go();
        armed.alloc(&agent).wait_dead();
    }
    agent.kill();
    remove_under_use(&run);
    for armed in away.iter().filter(runs) {
        armed.go();
        wait_for("it to end under no agent", Duration::from_secs(30) * patience(), || {
            armed.pids.iter().all(|pid| parent(*pid).is_none()).then_some(())
        });
    }
    agent.start_again();
    for (armed, code) in tasks.iter().filter(runs).zip([7, 0, 8, 0]) {
        let alloc = armed.alloc(&agent);
        alloc.wait_dead();
        let metrics = agent.metrics();
        let told = agent.json(&format!("/v1/allocs/{}", armed.id));
        let exit = &told["tasks"][armed.task]["last_exit"];
        let cpu = metrics.f64("allostat_task_cpu_usage_seconds_total", &alloc.labels());
        assert!(cpu > 0.001, "{}: {cpu} s", armed.task);
        let peak = || metrics.u64("allostat_task_memory_peak_bytes", &alloc.labels());
        let is_hog = armed.task.starts_with("hog");
        assert_eq!(alloc.exits("unknown"), 0, "{}: {exit}", armed.task);
        assert_eq!(alloc.exits(if is_hog { "oom" } else { "error" }), 1, "{}: {exit}", armed.task);
        if is_hog {
            assert_eq!(metrics.u64("allostat_task_oom_kills_total", &alloc.labels()), 1, "{}", armed.task);
            assert!((60 * MIB..=64 * MIB).contains(&peak()), "{}: {}", armed.task, peak());
            assert_eq!(exit["status"]["signal"], 9, "{exit}");
        } else {
            assert_eq!(exit["status"]["code"], code, "{exit}");
        }
    }
    let outcomes = [("ended", if memory { 2 } else { 1 }), ("lost", 0), ("failed", 0), ("restarted", 0)];
    for (outcome, n) in outcomes {
        assert_eq!(agent.metrics().u64("allostat_restore_tasks", &[("outcome", outcome)]), n, "{outcome}");
    }
    agent.stop();
}

/// SIGSTOP of supervisors, by somebody who meant the tasks: they end as told, within their time.
#[test]
fn a_stopped_supervisor_makes_no_stop_slow_and_no_task_that_may_still_run() {
    let agent = Agent::start();
    let run = |id, work, timeout: &str| {
        Work { task: format!("kill_timeout = {timeout:?}"), ..Work::batch(id, &[work, "600000"]) }.run(&agent)
    };
    // Of one that obeys it is not needed.
    let (obeys, deaf) = (run("obeys", "hold", "30s"), run("deaf", "stubborn", "1s"));
    for alloc in [&obeys, &deaf] {
        alloc.ready();
        let supervisor = parent(main_pid(alloc)).expect("it runs");
        let stopped = std::process::Command::new("kill").args(["-STOP", &supervisor.to_string()]).status();
        assert!(stopped.is_ok_and(|status| status.success()));
    }
    for (alloc, signal) in [(&obeys, 2), (&deaf, 9)] {
        agent.cli(&["stop", &alloc.id]).ok();
        alloc.wait_dead();
        let told = agent.json(&format!("/v1/allocs/{}", alloc.id));
        assert!(told.get("may_run").is_none(), "{told}");
        assert_eq!(told["tasks"][alloc.task.as_str()]["last_exit"]["status"]["signal"], signal, "{told}");
        assert_eq!(alloc.exits("killed"), 1, "{told}");
    }
    agent.stop();
}
