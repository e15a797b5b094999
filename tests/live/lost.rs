//! Ends that no agent saw: what was shown of an attempt stays in every counter.

use std::time::Duration;

use crate::common::{Agent, AgentOptions, counters, is_root, none_fell, patience, wait_for, workload};
use crate::live::survive::{main_pid, parent};
use crate::live::work::{Alloc, Work};

/// A task that has burnt CPU and does nothing any more; what it used is shown.
fn burnt(agent: &Agent, task: &'static str) -> String {
    let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo 'ready {}'; exec sleep 600";
    let hcl = Work::batch(task, &["-c", script]).hcl();
    agent.run(&hcl.replace(&format!("{:?}", workload().display().to_string()), "\"/bin/sh\""));
    let list = agent.json("/v1/allocs");
    let listed = list["allocs"].as_array().and_then(|list| list.iter().find(|a| a["job"] == task));
    let id = listed.and_then(|alloc| alloc["id"].as_str()).expect("it was accepted").to_owned();
    let alloc = Alloc { agent, id, task: task.into() };
    alloc.ready();
    wait_for("its CPU time to be shown", Duration::from_secs(20) * patience(), || {
        let used = agent.metrics().one("allostat_workload_cpu_usage_seconds_total", &[("workload", task)])?.f64();
        (used > 0.05).then_some(())
    });
    alloc.id
}

fn kill_supervisor(main: u64) {
    let supervisor = parent(main).expect("it runs");
    let killed = std::process::Command::new("kill").args(["-9", &supervisor.to_string()]).status();
    assert!(killed.is_ok_and(|status| status.success()));
    wait_for("the supervisor to be gone", Duration::from_secs(5) * patience(), || {
        parent(supervisor).is_none().then_some(())
    });
}

/// SIGKILL to supervisors, under a living agent and while none is there: of a cgroup the kernel knows what it used,
/// without one the last sample stands.
fn no_counter_falls_when_supervisors_are_killed(options: AgentOptions) {
    let mut agent = Agent::with(options);
    let ids = ["here", "away"].map(|task| (task, burnt(&agent, task)));
    let of = |agent: &Agent, at: usize| {
        let (task, id) = &ids[at];
        main_pid(&Alloc { agent, id: id.clone(), task: (*task).into() })
    };
    let (here, away) = (of(&agent, 0), of(&agent, 1));
    let before = counters(&agent.metrics());
    let ended = |agent: &Agent, at: usize, main: u64| {
        let alloc = Alloc { agent, id: ids[at].1.clone(), task: ids[at].0.into() };
        alloc.wait_dead();
        assert_eq!(alloc.exits("unknown"), 1, "its outcome is unknown");
        none_fell(&before, &counters(&agent.metrics()), ids[at].0);
        wait_for("nothing of it to be left", Duration::from_secs(10) * patience(), || {
            parent(main).is_none().then_some(())
        });
    };
    kill_supervisor(here);
    ended(&agent, 0, here);
    agent.kill();
    kill_supervisor(away);
    agent.start_again();
    none_fell(&before, &counters(&agent.metrics()), "the first answer of the next agent");
    ended(&agent, 1, away);
    agent.stop();
}

#[test]
fn task_usage_is_still_counted_after_a_kill_of_its_supervisor() {
    no_counter_falls_when_supervisors_are_killed(AgentOptions::default());
}

#[test]
fn task_usage_without_cgroups_is_still_counted_after_a_kill_of_its_supervisor() {
    if !is_root() {
        skip_test!("not-root");
    }
    no_counter_falls_when_supervisors_are_killed(AgentOptions { as_nobody: true, ..AgentOptions::default() });
}

/// An agent that does not have its driver any more cannot find it; its cgroup shows what it used all the same.
#[test]
fn usage_of_an_unrecoverable_task_is_read_from_its_cgroup() {
    let mut agent = Agent::start();
    let id = burnt(&agent, "lost");
    let main = main_pid(&Alloc { agent: &agent, id: id.clone(), task: "lost".into() });
    let before = counters(&agent.metrics());
    agent.kill();
    agent.set_env(vec![("ALLOSTAT_DRIVERS".into(), "mock".into())]);
    agent.start_again();
    let alloc = Alloc { agent: &agent, id, task: "lost".into() };
    alloc.wait_dead();
    assert_eq!(agent.metrics().u64("allostat_restore_tasks", &[("outcome", "failed")]), 1);
    none_fell(&before, &counters(&agent.metrics()), "of what was abandoned");
    // With its driver it is ended, and counts no second time.
    agent.terminate();
    agent.set_env(Vec::new());
    agent.start_again();
    let limit = Duration::from_secs(30) * patience();
    wait_for("it to be ended", limit, || parent(main).is_none().then_some(()));
    agent.wait_without_cgroups(limit);
    none_fell(&before, &counters(&agent.metrics()), "when it was ended");
    let exits = [("workload", "lost"), ("outcome", "unknown")];
    assert_eq!(agent.metrics().u64("allostat_workload_exits_total", &exits), 1);
    agent.stop();
}

/// A record that was overwritten under a living supervisor: what it would show is on record with the agent as well.
/// If that record is the only one of its task, the task is abandoned at once, and ended.
#[test]
fn damaged_record_of_a_living_task_costs_it_nothing_and_delays_no_other() {
    use std::os::unix::fs::FileExt;
    let mut agent = Agent::start();
    let id = burnt(&agent, "kept");
    let main = main_pid(&Alloc { agent: &agent, id: id.clone(), task: "kept".into() });
    let before = counters(&agent.metrics());
    agent.kill();
    let record = agent.data_dir().join("run").join(&id).join("kept/0/record");
    let record = std::fs::OpenOptions::new().write(true).open(record).expect("it is there");
    record.write_all_at(&[0xff; 4096], 0).expect("our own disk");
    // Ready within 10 s.
    agent.start_again();
    let alloc = Alloc { agent: &agent, id, task: "kept".into() };
    assert_eq!(
        (main_pid(&alloc), agent.metrics().u64("allostat_restore_tasks", &[("outcome", "reattached")])),
        (main, 1)
    );
    assert!(agent.log().contains("record of a live task is damaged"), "{}", agent.log());
    none_fell(&before, &counters(&agent.metrics()), "over a restart");
    agent.cli(&["stop", &alloc.id]).ok();
    alloc.wait_dead();
    assert_eq!(alloc.exits("killed"), 1);
    agent.stop();
}
