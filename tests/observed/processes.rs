//! Processes in no cgroup of their own, where a real agent is asked to look at them.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::common::{Agent, AgentOptions, Cgroups, Sample, is_root, mounted_v1, patience, wait_for};

fn long() -> Duration {
    Duration::from_secs(60) * patience()
}

/// An agent that shows those of this command alone.
fn agent(command: &str, processes: bool) -> Agent {
    let env = [
        ("ALLOSTAT_OBSERVE", "true".to_owned()),
        ("ALLOSTAT_OBSERVE_PROCESSES", processes.to_string()),
        ("ALLOSTAT_OBSERVE_INCLUDE", format!("process:{command}/*")),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value)).to_vec();
    Agent::with(AgentOptions { env, ..AgentOptions::default() })
}

fn allocs(agent: &Agent) -> Vec<Value> {
    agent.json("/v1/allocs")["allocs"].as_array().unwrap().clone()
}

/// Promise (Observed workloads): A process group without a cgroup is an alloc if configured; its counters keep the
/// usage of ended processes
#[test]
fn process_group_without_a_cgroup_is_an_alloc_and_usage_of_ended_processes_remains() {
    if !is_root() {
        skip_test!("not-root");
    }
    if mounted_v1("memory").is_none() {
        // On v2 a cgroup that has others below it takes no process.
        skip_test!("cgroup-v1-not-mounted");
    }
    // In a cgroup with another one below, which makes it no task; under a name that no other test has.
    let (observed, dir) = (Cgroups::new(), crate::common::test_dir());
    observed.make("above/below");
    let command = format!("as{}", std::process::id());
    let program = dir.path().join(&command);
    std::fs::copy("/bin/sh", &program).unwrap();
    let works = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; read go";
    let script = format!("read go; ({works}) <&0; exec {} -c 'read go'", program.display());
    let mut leader = Command::new(&program);
    std::os::unix::process::CommandExt::process_group(&mut leader, 0);
    let mut leader = leader.args(["-c", &script]).stdin(Stdio::piped()).spawn().unwrap();
    observed.place("above", leader.id());
    let go = |leader: &mut std::process::Child| {
        use std::io::Write;
        leader.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    };

    let agent = agent(&command, true);
    let id = format!("process:{command}/{}", leader.id());
    let alloc = wait_for("the group", long(), || allocs(&agent).into_iter().find(|alloc| alloc["id"] == *id));
    assert_eq!((&alloc["source"], &alloc["status"]), (&"process".into(), &"running".into()), "{alloc}");
    assert_eq!((&alloc["job"], alloc["created_at"].is_u64()), (&command.as_str().into(), true), "{alloc}");
    let value = |family: &str| agent.metrics().one(family, &[("alloc_id", &id)]).map(Sample::f64);
    wait_for("its leader alone", long(), || value("allostat_task_processes").filter(|n| *n == 1.0));
    assert_eq!(value("allostat_task_memory_usage_bytes"), None, "values of cgroups are absent");
    let info = agent.metrics();
    assert_eq!(
        info.all("allostat_alloc_info", &[("alloc_id", &id), ("measured", "process"), ("aggregation", "sum")]).len(),
        1
    );

    go(&mut leader);
    let used = wait_for("the work of another process of it", long(), || {
        let busy = value("allostat_task_processes") == Some(2.0);
        value("allostat_task_cpu_usage_seconds_total").filter(|cpu| busy && *cpu > 0.05)
    });
    go(&mut leader);
    wait_for("its end", long(), || value("allostat_task_processes").filter(|n| *n == 1.0));
    let then = value("allostat_task_cpu_usage_seconds_total").unwrap();
    assert!(then >= used, "counters never fall: {then} {used}");

    go(&mut leader);
    leader.wait().unwrap();
    let over = wait_for("the end of all", long(), || {
        allocs(&agent).into_iter().find(|alloc| alloc["id"] == *id && alloc["status"] == "complete")
    });
    assert_eq!(over["tasks"][&command]["last_exit"]["outcome"], "unknown", "its exit status is unknown: {over}");
    assert!(value("allostat_task_cpu_usage_seconds_total").unwrap() >= then);
    assert_eq!(value("allostat_task_memory_rss_bytes"), None, "what was used is used no more");
    observed.remove("above/below");
    agent.stop();
}

/// Promise (Observed workloads): Processes are read only where that is configured
#[test]
fn processes_are_read_only_where_configured() {
    let agent = agent("*", false);
    assert_eq!(allocs(&agent), [Value::Null; 0]);
    // What is observed at all was looked at before the first snapshot, and again since.
    wait_for("some ticks", long(), || {
        let seen = agent.metrics().one("allostat_observed_allocs", &[("source", "process")]).map(Sample::f64);
        (seen == Some(0.0)).then_some(())
    });
    agent.stop();
}
