//! Observed workloads on the boards: a real agent that samples real cgroups, and every expression of the boards that
//! show allocs.

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::boards::files::{boards, list, text};
use crate::boards::live::filled_for;
use crate::boards::promql::names;
use crate::common::{Agent, AgentOptions, Cgroups, Prometheus, counts_io, is_root, patience, wait_for};

const LONG: Duration = Duration::from_secs(60);

/// A cgroup as a runtime would make it, with limits, and a shell in it.
fn run(observed: &Cgroups, name: &str, script: &str) -> Child {
    observed.make(name);
    let limits = [
        ("memory", "memory.limit_in_bytes", "memory.max", "67108864", "67108864"),
        ("cpu", "cpu.cfs_quota_us", "cpu.max", "20000", "20000 100000"),
        ("pids", "pids.max", "pids.max", "50", "50"),
    ];
    for (controller, v1, v2, of_v1, of_v2) in limits {
        let directory = observed.directory(controller, name).expect("a host of tests has this");
        let (file, value) = if directory.join(v1).exists() { (v1, of_v1) } else { (v2, of_v2) };
        std::fs::write(directory.join(file), value).expect("a limit can be set");
    }
    let mut command = Command::new("sh");
    command.args(["-c", &format!("read go; {script}")]).stdin(Stdio::piped());
    let mut child = command.spawn().expect("a shell must start");
    observed.place(name, child.id());
    drop(child.stdin.take());
    child
}

/// Of our own tasks alone, of GPUs, of who has a network of its own, or of a host that counts none for such a cgroup.
fn may_be_absent(family: &str, has_kernel_ends: bool) -> bool {
    let no_io = !counts_io() && family.starts_with("allostat_task_io_");
    let no_codes = !has_kernel_ends && family == "allostat_workload_exit_codes_total";
    // Only directories of managed allocs are measured.
    let is_rare = ["_device", "_task_network_", "_alloc_disk_"].iter().any(|part| family.contains(part));
    no_io || no_codes || is_rare || family == "allostat_task_memory_window_peak_bytes"
}

#[test]
fn boards_show_observed_workloads_as_managed_ones_and_failures_as_restarts() {
    if !is_root() {
        skip_test!("not-root");
    }
    let observed = Cgroups::new();
    let env = [
        ("ALLOSTAT_OBSERVE", "true".to_owned()),
        ("ALLOSTAT_OBSERVE_INCLUDE", format!("cgroup:{}/*", observed.parent)),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value)).to_vec();
    let agent = Agent::with(AgentOptions { env, ..AgentOptions::default() });
    let Some(prometheus) = Prometheus::start(&[agent.address], &[]) else { skip_test!("no-prometheus") };
    let has_kernel_ends =
        prometheus.wait_value("max(allostat_capability{feature=\"kernel_ends\"})", |n| n >= 0.0) > 0.0;
    // One of our own beside it, which no question about the others may bring.
    agent.run(&crate::boards::alertmanager::failing("ours", 0).replace("\"exit\", \"3\"", "\"hold\", \"3600000\""));

    let id = format!("cgroup:{}/web", observed.parent);
    // Those in it share it.
    observed.make("");
    observed.limit("", 4 << 30, 64);
    let is = |state: &str| {
        let expected = format!("allostat_task_state{{alloc_id={id:?},state={state:?}}} == 1");
        wait_for(&expected, LONG * patience(), || (!prometheus.query(&expected).is_empty()).then_some(()));
    };
    for _ in 0..3 {
        // Seen at work by a scrape, then it fails.
        let mut child = run(&observed, "web", "sleep 8; exit 3");
        is("running");
        child.wait().expect("our own child");
        observed.remove("web");
        is("dead");
    }
    let mut child = run(&observed, "web", "while :; do :; done");
    is("running");

    let picked = ("cgroup", observed.parent.as_str());
    let (mut requested, mut marks) = (BTreeSet::new(), BTreeSet::new());
    for board in
        boards().iter().filter(|b| ["allostat-fleet", "allostat-allocs", "allostat-task"].contains(&b.stem.as_str()))
    {
        for panel in board.panels() {
            for target in list(&panel["targets"]) {
                let place = format!("{} / {}", board.stem, text(panel, "title"));
                requested.insert((place, filled_for(text(target, "expr"), &id, picked)));
            }
        }
        for mark in board.annotations().filter(|mark| text(mark, "name") != "OOM kills") {
            // They are there for a moment.
            let marked = filled_for(text(mark, "expr"), &id, picked);
            let place = format!("{} / {}", board.stem, text(mark, "name"));
            marks.insert((place, format!("max_over_time(({marked})[5m:1s])")));
        }
    }
    requested.retain(|(_, expression)| {
        let named = names(expression).expect("the laws have read it").selectors;
        // Nothing alerts here.
        !named.iter().any(|selector| may_be_absent(&selector.name, has_kernel_ends) || selector.name == "ALERTS")
    });
    assert!(requested.len() > 50, "{}", requested.len());
    requested.extend(marks);
    wait_for("every panel", LONG * patience(), || {
        let empty: Vec<_> = requested.iter().filter(|(_, requested)| prometheus.query(requested).is_empty()).collect();
        eprintln!("no data yet: {empty:#?}");
        empty.is_empty().then_some(())
    });

    // What they say is of the others alone.
    let sources = prometheus.query("count by (source) (allostat_alloc_info)");
    assert_eq!(sources.len(), 2, "{sources:?}");
    let tasks = prometheus.query(&filled_for(
        "sum by (workload) (allostat_task_memory_working_set_bytes{workload=~\"$workload\"})",
        &id,
        picked,
    ));
    assert_eq!(tasks.len(), 1, "{tasks:?}");
    let restarts =
        |reason: &str| prometheus.value(&format!("allostat_task_restarts_total{{alloc_id={id:?},reason={reason:?}}}"));
    let (failures, rest) = (restarts("failure"), restarts("other"));
    assert_eq!((failures, rest), if has_kernel_ends { (Some(3.0), Some(0.0)) } else { (None, Some(3.0)) });
    assert_eq!((restarts("policy"), restarts("requested")), (None, None), "their reason is unknown");
    let of_workload = format!("sum(allostat_workload_restarts_total{{workload={:?}}})", observed.parent);
    assert_eq!(prometheus.value(&of_workload), Some(3.0));

    child.kill().expect("our own child");
    child.wait().expect("our own child");
    agent.stop();
}
