//! An agent in a cgroup with a memory limit: it sheds load, is not killed, reports that, and recovers.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use crate::common::{Agent, AgentOptions, Cgroups, Sample, allostat, is_root, patience, test_dir, wait_for};
use crate::observed::live::long;

/// Of one request: what the agent holds of it until it ends, or 10 s are over.
const BODY: usize = 1 << 20;
const JOB: &str = "job \"kept\" {\n group \"g\" {\n task \"t\" {\n driver = \"raw_exec\"\n config {\n command = \"/bin/sleep\"\n \
                   args = [\"1000\"]\n }\n }\n }\n}\n";

/// A request that lacks its last byte.
fn hold(agent: &Agent) -> UnixStream {
    let mut stream = UnixStream::connect(agent.socket()).unwrap();
    let head = format!("POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: {BODY}\r\n\r\n");
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&vec![b' '; BODY - 1])).unwrap();
    stream
}

fn resident(agent: &Agent) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// A program that joins the cgroup and becomes the agent.
fn joining(cgroups: &Cgroups, path: &str, script: PathBuf) -> PathBuf {
    let joins = cgroups.directories(path).into_iter().map(|directory| {
        // A fresh cpuset of v1 takes no process.
        format!("{{ echo $$ >{}/cgroup.procs; }} 2>/dev/null || :\n", directory.display())
    });
    let text = format!("#!/bin/sh\n{}exec {} \"$@\"\n", joins.collect::<String>(), allostat().display());
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    script
}

/// What takes the memory are requests that do not end: they go, and the memory returns.
///
/// Promise (Code, boards and alerts): In a cgroup with a memory limit the agent sheds load, lives, reports it, and
/// recovers
#[test]
fn agent_in_a_cgroup_with_a_memory_limit_sheds_load_and_takes_it_in_again() {
    if !is_root() {
        skip_test!("not-root");
    }
    let (own, observed, dir) = (Cgroups::new(), Cgroups::new(), test_dir());
    own.make("agent");
    let env = [
        ("ALLOSTAT_OBSERVE", "true".to_owned()),
        ("ALLOSTAT_OBSERVE_INCLUDE", format!("cgroup:{}/*", observed.parent)),
    ];
    let mut agent = Agent::with(AgentOptions {
        binary: Some(joining(&own, "agent", dir.path().join("agent"))),
        env: env.map(|(name, value)| (name.to_owned(), value)).into(),
        ..AgentOptions::default()
    });
    agent.run(JOB);
    let mut early = observed.sleeper("early");
    let has_values = |agent: &Agent, labels: &[(&str, &str)]| {
        !agent.metrics().all("allostat_task_memory_peak_bytes", labels).is_empty()
    };
    let is_shown = |agent: &Agent, name: &str| {
        let id = format!("cgroup:{}/{name}", observed.parent);
        has_values(agent, &[("alloc_id", &id)])
    };
    wait_for("all tasks", long(), || {
        (is_shown(&agent, "early") && has_values(&agent, &[("workload", "kept")])).then_some(())
    });
    // What it needs is half of the limit.
    let limit = 2 * resident(&agent);
    agent.terminate();
    own.limit("agent", limit, 2);
    agent.start_again();
    let pid = agent.pid();
    let of_limit = agent.metrics().f64("allostat_agent_memory_limit_bytes", &[]) / limit as f64;
    assert!((of_limit - 1.0).abs() < 0.01, "the kernel's limit, in whole pages: {of_limit}");
    let shed = |what: &str| agent.metrics().one("allostat_agent_memory_shed", &[("what", what)]).map(Sample::f64);
    wait_for("the observed task", long(), || is_shown(&agent, "early").then_some(()));
    assert_eq!(["new_observed", "observed", "detail"].map(shed), [Some(0.0); 3]);

    let mut held = Vec::new();
    wait_for("load to be shed", long(), || {
        held.extend((0..6).map(|_| hold(&agent)));
        // Memory is compared with the limit each 500 ms.
        std::thread::sleep(Duration::from_millis(600));
        (shed("new_observed") == Some(1.0)).then_some(())
    });
    drop(held);
    let mut late = observed.sleeper("late");
    let left_out = || agent.metrics().one("allostat_observed_left_out", &[("reason", "limit")]).map(Sample::f64);
    wait_for("the new cgroup to be left out", long(), || (left_out() >= Some(1.0)).then_some(()));
    assert!(has_values(&agent, &[("workload", "kept")]), "managed tasks keep their values");
    assert!(agent.metrics().f64("allostat_agent_memory_sheds_total", &[]) >= 1.0);

    // A minute of calm for each of three levels.
    wait_for("load to be taken in again", Duration::from_secs(300) * patience(), || {
        (["new_observed", "observed", "detail"].map(shed) == [Some(0.0); 3]).then_some(())
    });
    wait_for("both cgroups", long(), || (is_shown(&agent, "early") && is_shown(&agent, "late")).then_some(()));
    let kills = ["memory.oom_control", "memory.events"].iter().find_map(|file| own.read("memory", "agent", file));
    let kills = kills.expect("a host of tests has this");
    assert!(kills.lines().any(|line| line == "oom_kill 0"), "{kills}");
    assert_eq!(agent.pid(), pid);
    for child in [&mut early, &mut late] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    agent.stop();
}
