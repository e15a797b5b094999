//! Peaks of the last minute, and an agent that may keep few files open.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{Agent, AgentOptions, mounted_v1, patience, place, wait_for, workload};
use crate::live::work::{Alloc, MIB, Work, assert_near, lacks};

/// Touches so much in the task's cgroup, and gives it back at once.
fn spike(alloc: &Alloc<'_>, mib: &str) {
    let place = format!("{}/{}", alloc.id, alloc.task);
    let places: Vec<_> = alloc.agent.cgroups.left().into_iter().filter(|dir| dir.ends_with(&place)).collect();
    assert!(!places.is_empty(), "a task that runs has a cgroup");
    let join: String = places.iter().map(|dir| format!("echo $$ > {}/cgroup.procs; ", dir.display())).collect();
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{join} exec \"$0\" spike {mib} 1")).arg(workload()).stdout(Stdio::null());
    assert!(command.status().expect("there is a shell").success());
}

/// The window peak is gone 60 s after its 5 s; absent with its reason on kernel 6.1, on v1 without
/// `cgroup.peak_window_v1`, and of a task that was found running until a minute of it is known.
#[test]
fn spike_is_in_the_window_peak_and_lifetime_peak_survives_resets_and_agent_deaths() {
    if let Some(reason) = lacks("memory") {
        skip_test!(reason);
    }
    let env = vec![("ALLOSTAT_CGROUP_PEAK_WINDOW_V1".to_owned(), "true".to_owned())];
    let mut agent = Agent::with(AgentOptions { env, ..AgentOptions::default() });
    let feature = "memory_window_peak";
    let can = agent.metrics().u64("allostat_capability", &[("feature", feature)]) == 1;
    let (id, shown, main);
    {
        let alloc = Work::batch("spiky", &["hold", "600000"]).run(&agent);
        alloc.ready();
        let window = |level: &str| {
            let labels = [("alloc_id", alloc.id.as_str())];
            agent.metrics().one(&format!("allostat_{level}_memory_window_peak_bytes"), &labels).map(|s| s.u64())
        };
        if !can {
            assert_eq!(place(), "v2-6.1", "elsewhere the kernel's peak can be reset");
            spike(&alloc, "150");
            alloc.fresh_metrics();
            std::thread::sleep(Duration::from_secs(6));
            assert_eq!((window("task"), window("alloc")), (None, None), "absent, not 0 and not the lifetime peak");
            let node = agent.json("/v1/node");
            let window = node["capabilities"].as_array().expect("a list").iter().find(|c| c["feature"] == feature);
            let reason = window.expect("it is listed")["reason"].as_str().expect("with a reason");
            assert!(reason.contains("it needs kernel 6.12"), "{reason}");
            agent.stop();
            return;
        }
        let limit = Duration::from_secs(15) * patience();
        let quiet = wait_for("the first reading", limit, || window("task"));
        assert!(quiet < 20 * MIB, "{quiet}");
        spike(&alloc, "150");
        shown = wait_for("the spike in the task's window peak", limit, || window("task").filter(|n| *n >= 150 * MIB));
        assert!(shown < 180 * MIB, "{shown}");
        wait_for("the same in the alloc's", limit, || window("alloc").filter(|n| *n >= shown));
        let usage = agent.metrics().u64("allostat_task_memory_usage_bytes", &alloc.labels());
        assert!(usage < 20 * MIB, "it was over before anybody looked: {usage}");
        if mounted_v1("memory").is_some() {
            let file = alloc.kernel_u64("memory", "memory.max_usage_in_bytes", "");
            assert!(file < 20 * MIB, "it was reset: {file}");
        }
        let processes = alloc.kernel("memory", "cgroup.procs", "cgroup.procs").expect("it runs");
        main = processes.trim().parse::<i32>().expect("one process");
        id = alloc.id.clone();
    }
    let peaks = |agent: &Agent| {
        let metrics = agent.metrics();
        let peak = |name: &str| Some(metrics.one(name, &[("alloc_id", id.as_str())])?.u64());
        Some((peak("allostat_task_memory_peak_bytes")?, peak("allostat_alloc_memory_peak_bytes")?))
    };
    agent.kill();
    agent.start_again();
    let (task, alloc) =
        wait_for("the task to be measured again", Duration::from_secs(10) * patience(), || peaks(&agent));
    assert!(task >= shown && alloc >= shown, "{task}, {alloc}, and {shown} was shown before");
    let metrics = agent.metrics();
    for level in ["task", "alloc"] {
        let window = metrics.one(&format!("allostat_{level}_memory_window_peak_bytes"), &[("alloc_id", id.as_str())]);
        assert!(window.is_none(), "{level}: what rose in this minute before the agent came is not known to it");
    }

    // It ends without an agent: all that is left is what the kernel and the cgroup say.
    agent.kill();
    let main = rustix::process::Pid::from_raw(main).expect("a pid is positive");
    rustix::process::kill_process(main, rustix::process::Signal::KILL).expect("it runs");
    agent.start_again();
    Alloc { agent: &agent, id: id.clone(), task: "spiky".into() }.wait_dead();
    let (task, alloc) = peaks(&agent).expect("peaks stay after the end");
    assert!(task >= shown && alloc >= shown, "{task}, {alloc}, and {shown} was shown before");
    agent.stop();
}

/// Settings lose their descriptors first, the probes last; metrics, node and log say so.
///
/// Promise (Measured values): With few descriptors every value is right except v2's window peak, which is absent and
/// reported as such
#[test]
fn few_descriptors_leave_values_right_and_the_agent_reports_the_cost() {
    if let Some(reason) = lacks("memory") {
        skip_test!(reason);
    }
    const TASKS: usize = 10;
    let agent = Agent::with(AgentOptions { descriptors: Some(700), ..AgentOptions::default() });
    let job = Work::batch("few", &["touch", "8", "600000"]).hcl();
    agent.run(&job.replacen("group \"few\" {", &format!("group \"few\" {{\n count = {TASKS}"), 1));
    let allocs: Vec<_> =
        agent.alloc_ids().into_iter().map(|id| Alloc { agent: &agent, id, task: "few".into() }).collect();
    assert_eq!(allocs.len(), TASKS);
    for alloc in &allocs {
        alloc.ready();
    }
    let metrics = allocs[0].fresh_metrics();
    for alloc in &allocs {
        let task = |name: &str| metrics.u64(&format!("allostat_task_{name}"), &alloc.labels());
        let usage = alloc.kernel_u64("memory", "memory.usage_in_bytes", "memory.current");
        assert_near("usage and the kernel's file", task("memory_usage_bytes"), usage, MIB);
        assert!(task("memory_rss_bytes") >= 8 * MIB && task("pids_current") == 1);
    }
    let [retained, limit, expected] = ["kept_files", "kept_files_limit", "wanted_files"]
        .map(|name| metrics.u64(&format!("allostat_collector_{name}"), &[]));
    assert!(retained <= limit && limit < 20, "{retained} of {limit}");
    assert!(expected > limit, "{expected}");
    assert!(metrics.u64("allostat_collector_reopened_files_total", &[]) > 0);
    let errors = metrics.all("allostat_collector_errors_total", &[("collector", "task")]);
    assert!(errors.iter().all(|sample| sample.u64() == 0), "{errors:?}");
    assert!(agent.log().contains("too few file descriptors to keep all kernel files open"), "{}", agent.log());
    let node = agent.cli(&["node"]).ok();
    assert!(node.contains(&format!("of {expected}: no more than {limit} may be kept open")), "{node}");
    agent.stop();
}
