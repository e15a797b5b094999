//! How containers end: exit codes, the OOM killer, their last reading.

use std::time::Duration;

use super::{MIB, alloc_of, job, long, over};
use crate::common::{Agent, Docker, Sample, is_root, wait_for};

/// Promise (Durability and recovery): A container's exit codes and OOM kills are `docker inspect`'s, its peak the
/// kernel's
#[test]
fn ends_are_those_of_docker_inspect_and_peaks_those_of_the_kernel() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let agent = Agent::with(docker.driver());
    let memory = |mib: u64| format!("resources {{ memory = {mib} }}");
    let dd = "dd if=/dev/zero of=/dev/null bs=100M count=1 2>/dev/null";
    // Code 42; a main process that the OOM killer takes; a child of one that goes on; a peak.
    let jobs = [
        ("code", "exit 42".to_owned(), memory(64)),
        ("oom", format!("exec {dd}"), memory(32)),
        ("child", format!("{dd}; exit 0"), memory(32)),
        ("peak", format!("{dd}; exit 7"), memory(400)),
    ];
    for (name, script, more) in &jobs {
        agent.run(&job(name, "batch", script, more));
    }
    let id = |name: &str| alloc_of(&agent, name).expect("it has run")["id"].as_str().expect("an ID").to_owned();
    let end = |name: &str| {
        let alloc = wait_for("its end", long(), || over(&agent, name));
        alloc["tasks"]["main"]["exits"][0].clone()
    };
    for (name, outcome, code, oom) in [
        ("code", "error", 42, false),
        ("oom", "oom", 137, true),
        ("child", "success", 0, true),
        ("peak", "error", 7, false),
    ] {
        let exit = end(name);
        let kills = exit["oom_kills"].as_u64().unwrap_or(0);
        // On cgroup v1 a late engine finds the cgroup removed and loses the OOM kill; the exit code alone is left.
        let is_lost = || oom && kills == 0 && !docker.ooms().iter().any(|container| container.contains(&id(name)));
        assert!((kills > 0) == oom || is_lost(), "{name}: {exit}");
        let outcome = if kills == 0 && outcome == "oom" { "error" } else { outcome };
        assert_eq!((&exit["outcome"], &exit["status"]["code"]), (&outcome.into(), &code.into()), "{name}: {exit}");
    }
    let peak = end("peak")["usage"]["memory_peak_bytes"].as_u64().unwrap();
    assert!((100 * MIB..130 * MIB).contains(&peak), "{peak}");
    assert!(end("peak")["usage"]["cpu_usage_ns"].as_u64() > Some(1_000_000));
    assert_eq!(docker.containers(), Vec::<String>::new());
    agent.stop();
}

/// The engine keeps what has ended until the next agent has read it: both are asked about the same containers.
#[test]
fn exit_codes_and_oom_kills_that_the_next_agent_finds_are_those_of_docker_inspect() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let mut agent = Agent::with(docker.driver());
    let dd = "dd if=/dev/zero of=/dev/null bs=100M count=1 2>/dev/null";
    // Whether the OOM killer comes: for the main process, and for a child of one that goes on.
    let jobs = [
        ("zero", "exit 0".to_owned(), 64, false),
        ("code", "exit 42".to_owned(), 64, false),
        ("most", "exit 255".to_owned(), 64, false),
        ("ended", "sh -c 'kill -TERM $$'; exit $?".to_owned(), 64, false),
        ("oom", format!("exec {dd}"), 32, true),
        ("child", format!("{dd}; exit 5"), 32, true),
    ];
    for (name, script, mib, _) in &jobs {
        let script = format!("until [ -e /local/go ]; do busybox usleep 10000; done; {script}");
        agent.run(&job(name, "batch", &script, &format!("resources {{ memory = {mib} }}")));
    }
    let ids = jobs.each_ref().map(|(name, ..)| {
        let alloc = wait_for("it to run", long(), || {
            alloc_of(&agent, name).filter(|alloc| alloc["tasks"]["main"]["state"] == "running")
        });
        alloc["id"].as_str().expect("an ID").to_owned()
    });
    agent.kill();
    let inspected = |id: &str| {
        let state = docker.inspect(&format!("main-{id}"), "{{.State.Status}} {{.State.ExitCode}} {{.State.OOMKilled}}");
        let words: Vec<String> = state.split(' ').map(str::to_owned).collect();
        (words[0] == "exited").then(|| (words[1].parse::<i64>().expect("a code"), words[2] == "true"))
    };
    for id in &ids {
        std::fs::write(agent.data_dir().join("alloc").join(id).join("main/local/go"), "").expect("our own directory");
    }
    let expected = std::array::from_fn::<_, 6, _>(|at| {
        let mut state = wait_for("its end", long(), || inspected(&ids[at]));
        // Docker learns of an OOM kill by an event of its own, which may come after the exit, or never on cgroup v1.
        for _ in 0..200 {
            if jobs[at].3 && !state.1 {
                std::thread::sleep(Duration::from_millis(10));
                state = inspected(&ids[at]).expect("it has ended");
            }
        }
        state
    });
    agent.start_again();
    for ((name, ..), (code, is_oom)) in jobs.iter().zip(expected) {
        let alloc = wait_for("its end", long(), || over(&agent, name));
        let exit = &alloc["tasks"]["main"]["exits"][0];
        assert_eq!(exit["status"]["code"], code, "{name}: {exit}");
        let kills = exit["oom_kills"].as_u64().unwrap_or(0);
        // The kernel counts a kill that the engine may have missed.
        let is_missed = || {
            kills > 0
                && !docker
                    .ooms()
                    .iter()
                    .any(|ended| ended.starts_with(&format!("main-{}", alloc["id"].as_str().unwrap_or_default())))
        };
        assert!((kills > 0) == is_oom || is_missed(), "{name}: Docker: {is_oom}, {exit}");
        let outcome = match code {
            0 => "success",
            137 if kills > 0 => "oom",
            _ => "error",
        };
        assert_eq!(exit["outcome"], outcome, "{name}: {exit}");
    }
    assert_eq!(docker.containers(), Vec::<String>::new());
    agent.stop();
}

#[test]
fn container_peak_is_that_of_its_cgroup_while_it_runs_and_no_less_at_its_end() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let agent = Agent::with(docker.driver());
    let script = "dd if=/dev/zero of=/dev/null bs=50M count=1 2>/dev/null; echo ready; \
                  until [ -e /local/go ]; do busybox usleep 10000; done";
    agent.run(&job("live", "batch", script, "resources { memory = 200 }"));
    let alloc = wait_for("the container", long(), || {
        alloc_of(&agent, "live").filter(|alloc| super::logs(&agent, alloc).contains("ready"))
    });
    let id = alloc["id"].as_str().unwrap();
    let name = format!("main-{id}");
    let container = docker.inspect(&name, "{{.Id}}");
    let below = format!("{id}/main/{container}");
    let file = |controller: &str, file: &str| agent.cgroups.read(controller, &below, file);
    let peak = || file("memory", "memory.max_usage_in_bytes").or_else(|| file("memory", "memory.peak"));
    wait_for("its peak to be that of its cgroup", long(), || {
        let kernels: f64 = peak()?.trim().parse().ok()?;
        let shown = agent.metrics().one("allostat_task_memory_peak_bytes", &[("alloc_id", id)]).map(Sample::f64)?;
        (shown == kernels && shown >= 50.0 * 1_048_576.0).then_some(())
    });
    // The memory is free again: only a peak that is read at the end is as high as the one before it.
    let before: u64 = peak().and_then(|text| text.trim().parse().ok()).expect("it runs");
    std::fs::write(agent.data_dir().join("alloc").join(id).join("main/local/go"), "").expect("our own directory");
    let ended = wait_for("its end", long(), || over(&agent, "live"));
    let last = ended["tasks"]["main"]["exits"][0]["usage"]["memory_peak_bytes"].as_u64();
    assert!(last >= Some(before), "{last:?}, before its end {before}: {ended}");
    agent.stop();
    assert_eq!(docker.containers(), Vec::<String>::new());
}
