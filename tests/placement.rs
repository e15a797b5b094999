//! Allocs that wait for their place: constraints, cores, and what gives them their place after all.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use crate::common::{Agent, AgentOptions, Cli, is_root, mounted_v1, mounted_v2, patience, wait_for};

/// A service of one task that sleeps; `in_job` and `resources` are lines.
fn sleeper(name: &str, in_job: &str, resources: &str) -> String {
    format!(
        "job \"{name}\" {{\n{in_job}\n  group \"g\" {{\n    task \"t\" {{\n      driver = \"raw_exec\"\n      config {{\n        command = \
         \"/bin/sleep\"\n        args = [\"600\"]\n      }}\n      resources {{\n{resources}\n      }}\n    }}\n  }}\n}}\n"
    )
}

fn constraint(attribute: &str, value: &str) -> String {
    format!("constraint {{\n  attribute = \"{attribute}\"\n  value = \"{value}\"\n}}")
}

/// `plan` or `run --detach` of a job file.
fn run_cli(agent: &Agent, words: &[&str], job: &str) -> Cli {
    let file = agent.scratch().join("asked.hcl");
    std::fs::write(&file, job).expect("the job file must be writable");
    agent.cli(&[words, &[file.to_str().expect("a path of ours is UTF-8")]].concat())
}

#[track_caller]
fn wait_until(agent: &Agent, id: &str, status: &str) -> Value {
    wait_for(&format!("{id} to be {status}"), Duration::from_secs(30) * patience(), || {
        let alloc = agent.json(&format!("/v1/allocs/{id}"));
        (alloc["status"] == status).then_some(alloc)
    })
}

#[track_caller]
fn wait_for_reason(agent: &Agent, id: &str, reason: &str) {
    wait_for(&format!("{id} to wait for {reason}"), Duration::from_secs(30) * patience(), || {
        let alloc = agent.json(&format!("/v1/allocs/{id}"));
        (alloc["status"] == "pending" && alloc["not_placed"][0]["reason"] == reason).then_some(())
    });
}

/// Promise (Input validation): An alloc whose constraint fails waits; `run` and `plan` name it and the node's value,
/// and exit with 1
/// Promise (Input validation): A changed attribute or changed metadata of the node places a waiting alloc
#[test]
fn unmet_constraint_waits_and_changed_metadata_places_it() {
    let mut agent = Agent::start();
    let job = sleeper("labelled", &constraint("${meta.rack}", "r7"), "");
    let reason = "constraint of job not met: ${meta.rack} = r7: this node has no ${meta.rack}";
    let planned = run_cli(&agent, &["plan"], &job);
    assert_eq!(planned.code, Some(1), "{}", planned.stderr);
    assert!(planned.stderr.contains(reason), "{}", planned.stderr);
    let waits = |text: &str, words: &str| text.contains(words) && !text.contains("error:");
    assert!(waits(&planned.stderr, "warning: job labelled would wait"), "nothing failed: {}", planned.stderr);
    assert_eq!(agent.alloc_ids(), Vec::<String>::new(), "a plan stores nothing");

    let submitted = run_cli(&agent, &["run"], &job);
    assert_eq!(submitted.code, Some(1), "{}", submitted.stderr);
    assert!(submitted.stderr.contains(reason), "{}", submitted.stderr);
    assert!(waits(&submitted.stderr, "warning: job labelled is submitted and waits"), "{}", submitted.stderr);
    assert!(submitted.stderr.contains("`allostat stop labelled` ends it"), "{}", submitted.stderr);
    let [id] = agent.alloc_ids().try_into().expect("one alloc");
    let waits = wait_for("its reason", Duration::from_secs(20) * patience(), || {
        let alloc = agent.json(&format!("/v1/allocs/{id}"));
        (alloc["not_placed"][0]["message"] == reason).then_some(alloc)
    });
    assert_eq!((&waits["status"], &waits["description"]), (&"pending".into(), &"not placed: constraint".into()));
    let metrics = agent.metrics();
    assert_eq!(metrics.u64("allostat_allocs_waiting", &[("reason", "constraint")]), 1);
    assert_eq!(metrics.u64("allostat_allocs_waiting", &[("reason", "port")]), 0);
    let events = agent.cli(&["events", &id]).ok();
    assert!(events.contains("Not Placed") && events.contains(reason), "{events}");
    assert!(agent.cli(&["status", &id]).ok().contains(reason));
    // Metadata of the node is for its owner: TCP is for everybody.
    let public = agent.get(&format!("/v1/allocs/{id}"));
    assert!(public.text().contains("not_placed") && !public.text().contains("meta.rack"), "{}", public.text());

    agent.terminate();
    agent.configure("node {\n  meta = [\"rack=r6\"]\n}\n");
    agent.start_again();
    let other = "constraint of job not met: ${meta.rack} = r7: ${meta.rack} is r6";
    wait_for("the node's value", Duration::from_secs(20) * patience(), || {
        (agent.json(&format!("/v1/allocs/{id}"))["not_placed"][0]["message"] == other).then_some(())
    });
    agent.terminate();
    agent.configure("node {\n  meta = [\"rack=r7\", \"ssd=true\"]\n}\n");
    agent.start_again();
    let placed = wait_until(&agent, &id, "running");
    assert_eq!(placed["not_placed"], Value::Null);
    assert_eq!(agent.metrics().u64("allostat_allocs_waiting", &[("reason", "constraint")]), 0);
    // What has begun keeps its place.
    agent.terminate();
    agent.configure("");
    agent.start_again();
    wait_until(&agent, &id, "running");
    agent.stop();
}

#[test]
fn attribute_that_appears_places_an_alloc() {
    // Longer than the start of the agent and a submission take: the attribute appears after the job.
    let script = format!("undetected {}s, healthy", 10 * patience());
    let config =
        format!("drivers {{\n  enabled = [\"raw_exec\", \"mock\"]\n}}\nmock {{\n  fingerprint = \"{script}\"\n}}\n");
    let agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    let job = sleeper("needs-mock", &constraint("${attr.driver.mock}", "1"), "");
    let submitted = run_cli(&agent, &["run", "--detach"], &job);
    assert_eq!(submitted.code, Some(1), "{}", submitted.stderr);
    assert!(submitted.stderr.contains("this node has no ${attr.driver.mock}"), "{}", submitted.stderr);
    let id = submitted.stdout.trim().to_owned();
    wait_for_reason(&agent, &id, "constraint");
    wait_until(&agent, &id, "running");
    agent.stop();
}

#[test]
fn datacenter_of_the_node_decides_where_the_agent_names_one() {
    let config = "node {\n  datacenter = \"eu-west\"\n  class = \"small\"\n}\n";
    let agent = Agent::with(AgentOptions { config: config.to_owned(), ..AgentOptions::default() });
    let elsewhere = run_cli(&agent, &["plan"], &sleeper("us", "datacenters = [\"us-*\"]", ""));
    assert_eq!(elsewhere.code, Some(1), "{}", elsewhere.stderr);
    assert!(elsewhere.stderr.contains("do not include this node's, eu-west"), "{}", elsewhere.stderr);
    let here = format!("datacenters = [\"eu-*\"]\n{}", constraint("${node.class}", "small"));
    let id = agent.run(&sleeper("eu", &here, "")).trim().to_owned();
    wait_until(&agent, &id, "running");
    agent.stop();
}

#[test]
fn distinct_hosts_leaves_the_surplus_unplaced() {
    let agent = Agent::start();
    let job = sleeper("alone", "constraint {\n  distinct_hosts = true\n}", "")
        .replace("group \"g\" {", "group \"g\" {\n    count = 2");
    let submitted = run_cli(&agent, &["run", "--detach"], &job);
    assert_eq!(submitted.code, Some(1), "{}", submitted.stderr);
    assert!(submitted.stderr.contains("1 alloc of group g not placed"), "{}", submitted.stderr);
    let ids: Vec<&str> = submitted.stdout.lines().collect();
    wait_until(&agent, ids[0], "running");
    wait_for_reason(&agent, ids[1], "distinct_hosts");
    agent.stop();
}

/// Promise (Input validation): `system` and `sysbatch` jobs run one alloc
#[test]
fn system_job_runs_one_alloc_and_is_shown_as_one() {
    let agent = Agent::start();
    let id = agent.run(&sleeper("everywhere", "type = \"system\"", "")).trim().to_owned();
    let alloc = wait_until(&agent, &id, "running");
    assert_eq!(alloc["type"], "system");
    let planned = run_cli(&agent, &["plan"], &sleeper("everywhere", "type = \"system\"", ""));
    assert!(planned.stdout.contains("job everywhere (system)"), "{}", planned.stdout);
    agent.stop();
}

/// The directory in which the cores of a task stand.
fn cpuset_of(agent: &Agent, id: &str) -> std::path::PathBuf {
    let root = mounted_v1("cpuset").or_else(|| mounted_v2("cpuset")).expect("probed");
    root.join(agent.cgroups.parent.trim_start_matches('/')).join(id).join("t")
}

fn cores(agent: &Agent, id: &str) -> BTreeSet<u32> {
    let file = cpuset_of(agent, id).join("cpuset.cpus");
    let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let mut cores = BTreeSet::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cores.extend(first.parse::<u32>().expect("a core")..=last.parse::<u32>().expect("a core"));
    }
    cores
}

/// Promise (Input validation): Reserved cores are disjoint, over restarts of the agent too, and given back with the
/// alloc
#[test]
fn reserved_cores_are_disjoint_also_after_a_restart_of_the_agent() {
    if !is_root() {
        skip_test!("not-root");
    }
    if mounted_v1("cpuset").or_else(|| mounted_v2("cpuset")).is_none() {
        skip_test!("no-cgroup-controller");
    }
    let there = std::thread::available_parallelism().expect("a number").get();
    if there < 2 {
        skip_test!("one-core");
    }
    let mut agent = Agent::start();
    let job = |name: &str, cores: usize| sleeper(name, "", &format!("cores = {cores}"));
    let first = agent.run(&job("first", 1)).trim().to_owned();
    wait_until(&agent, &first, "running");
    let second = agent.run(&job("second", there - 1)).trim().to_owned();
    let alloc = wait_until(&agent, &second, "running");
    let (one, rest) = (cores(&agent, &first), cores(&agent, &second));
    assert_eq!((one.len(), rest.len()), (1, there - 1));
    assert!(one.is_disjoint(&rest), "{one:?} {rest:?}");
    // Its processes are there, and it knows its cores.
    let processes = std::fs::read_to_string(cpuset_of(&agent, &second).join("cgroup.procs")).expect("its cgroup");
    let pid = processes.lines().next().unwrap_or_else(|| panic!("nothing is in its cpuset: {alloc}"));
    let environment = std::fs::read(format!("/proc/{pid}/environ")).expect("its environment");
    let own = rest.iter().map(u32::to_string).collect::<Vec<_>>();
    let granted = String::from_utf8_lossy(&environment)
        .split('\0')
        .find_map(|v| v.strip_prefix("NOMAD_CPU_CORES=").map(str::to_owned));
    assert!(granted.is_some_and(|granted| granted.starts_with(&own[0])), "{own:?}");

    let third = run_cli(&agent, &["run", "--detach"], &job("third", 1));
    assert_eq!(third.code, Some(1), "{}", third.stderr);
    assert!(third.stderr.contains(&format!("reserves 1 core: 0 of {there} are free")), "{}", third.stderr);
    let third = third.stdout.trim().to_owned();
    let never = run_cli(&agent, &["plan"], &job("never", there + 1));
    assert_eq!(never.code, Some(1), "{}", never.stderr);
    assert!(never.stderr.contains(&format!("this node has {there}")), "{}", never.stderr);

    agent.kill();
    agent.start_again();
    wait_until(&agent, &first, "running");
    wait_until(&agent, &second, "running");
    wait_for_reason(&agent, &third, "cores");
    assert_eq!((cores(&agent, &first), cores(&agent, &second)), (one.clone(), rest));
    // Given back, they place the alloc that waits for them.
    agent.cli(&["stop", &first]).ok();
    wait_until(&agent, &third, "running");
    assert_eq!(cores(&agent, &third), one);
    agent.stop();
}
