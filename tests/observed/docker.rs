//! A real Docker beside a real agent: names, values and ends are those that Docker reports.
//!
//! Promise (Observed workloads): Containers have the names, chosen labels, limits, exit codes and OOM kills of a real
//! Docker, over restarts

use std::time::Duration;

use serde_json::Value;

use super::commands;
use crate::common::{Agent, Cgroups, Docker, Exposition, Sample, is_root, patience, unix, wait_for};
use crate::observed::hostile::peak_kilobytes;
use crate::observed::spoofed::User;

pub fn long() -> Duration {
    Duration::from_secs(120) * patience()
}
pub const MIB: u64 = 1 << 20;

/// What a test reads of an agent: a child of the test, or a unit of systemd.
pub trait AgentApi {
    fn json(&self, path: &str) -> Value;
    fn metrics(&self) -> Exposition;
}

impl AgentApi for Agent {
    #[track_caller]
    fn json(&self, path: &str) -> Value {
        Agent::json(self, path)
    }
    #[track_caller]
    fn metrics(&self) -> Exposition {
        Agent::metrics(self)
    }
}

pub fn find(agent: &impl AgentApi, id: &str) -> Option<Value> {
    agent.json("/v1/allocs")["allocs"].as_array()?.iter().find(|alloc| alloc["id"] == id).cloned()
}

#[test]
fn containers_have_the_names_values_and_ends_that_docker_reports() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let mut options = docker.observed("docker");
    options.env.push(("ALLOSTAT_OBSERVE_LABELS".to_owned(), "com.example.team".to_owned()));
    let agent = Agent::with(options);
    let labels = ["--label", "com.example.team=core", "--label", "password=x"];
    let started =
        docker.run(&[&["-d", "--name", "web-1", "-m", "64m"], &labels[..], &["bb:1", "sleep", "1000"]].concat());
    assert!(started.status.success(), "{started:?}");

    let alloc = wait_for("the container under its name", long(), || find(&agent, "docker:web-1"));
    assert_eq!((&alloc["name"], &alloc["job"], &alloc["source"]), (&"web-1".into(), &"web-1".into(), &"docker".into()));
    assert_eq!(alloc["labels"], serde_json::json!({"label_com_example_team": "core"}), "no other label is exposed");
    let value = |family: &str, id: &str| agent.metrics().one(family, &[("alloc_id", id)]).map(Sample::f64);
    let limit = wait_for("its values", long(), || value("allostat_task_memory_limit_bytes", "docker:web-1"));
    assert_eq!(limit, 67_108_864.0);
    let refused = agent.cli(&["stop", "web-1"]);
    assert!(refused.code != Some(0) && refused.stderr.contains("docker stop web-1"), "{refused:?}");
    assert_eq!(docker.inspect("web-1", "{{.State.Running}}"), "true");

    // Started again, it is the same alloc with one end.
    let cpu = value("allostat_task_cpu_usage_seconds_total", "docker:web-1").unwrap();
    assert!(docker.docker(&["restart", "-t", "0", "web-1"]).status.success());
    let again = wait_for("its end and its new beginning", long(), || {
        let alloc: Value = agent.json("/v1/allocs/docker:web-1");
        (alloc["tasks"]["web-1"]["exits"].as_array()?.len() == 1 && alloc["status"] == "running").then_some(alloc)
    });
    let exit = &again["tasks"]["web-1"]["exits"][0];
    assert_eq!((&exit["status"]["code"], &exit["outcome"]), (&137.into(), &"killed".into()), "{exit}");
    assert!(value("allostat_task_cpu_usage_seconds_total", "docker:web-1").unwrap() >= cpu, "counters never fall");

    // As often as Docker has started one again that fails.
    docker.run(&["-d", "--name", "loop", "--restart", "on-failure:3", "bb:1", "sh", "-c", "sleep 0.3; exit 3"]);
    let restarts = |reason: &str| {
        let subject = [("alloc_id", "docker:loop"), ("reason", reason)];
        agent.metrics().one("allostat_task_restarts_total", &subject).map(Sample::f64)
    };
    wait_for("three restarts", long(), || (restarts("failure") == Some(3.0)).then_some(()));
    wait_for("its last end", long(), || find(&agent, "docker:loop").filter(|alloc| alloc["status"] == "failed"));
    let counts = ["failure", "oom", "other", "policy"].map(restarts);
    assert_eq!(counts, [Some(3.0), Some(0.0), Some(0.0), None]);
    assert_eq!(docker.inspect("loop", "{{.RestartCount}}"), "3");

    // Short ones, one after the other, removed with their end, and one that the kernel kills.
    let script = "dd if=/dev/zero of=/dev/null bs=100M count=1 2>/dev/null; sleep 0.3; exit 3";
    for n in 0..3 {
        let name = format!("short-{n}");
        assert_eq!(docker.run(&["--rm", "--name", &name, "bb:1", "sh", "-c", script]).status.code(), Some(3));
    }
    docker.run(&["--name", "oom", "-m", "32m", "bb:1", "dd", "if=/dev/zero", "of=/dev/null", "bs=100M", "count=1"]);
    for (name, outcome, code) in
        [("short-0", "error", 3), ("short-1", "error", 3), ("short-2", "error", 3), ("oom", "oom", 137)]
    {
        let id = format!("docker:{name}");
        let over = wait_for("its end", long(), || find(&agent, &id).filter(|alloc| alloc["status"] == "failed"));
        let exit = &over["tasks"][name]["last_exit"];
        assert_eq!((&exit["outcome"], &exit["status"]["code"]), (&outcome.into(), &code.into()), "{over}");
    }
    assert_eq!(docker.inspect("oom", "{{.State.OOMKilled}} {{.State.ExitCode}}"), "true 137");
    // The kernel kills a child, and the container goes on and ends well.
    let script = "dd if=/dev/zero of=/dev/null bs=100M count=1; sleep 1; exit 0";
    assert_eq!(docker.run(&["--name", "child", "-m", "32m", "bb:1", "sh", "-c", script]).status.code(), Some(0));
    assert_eq!(docker.inspect("child", "{{.State.OOMKilled}}"), "true");
    let over =
        wait_for("its end", long(), || find(&agent, "docker:child").filter(|alloc| !alloc["finished_at"].is_null()));
    let exit = &over["tasks"]["child"]["last_exit"];
    assert_eq!((&over["status"], &exit["outcome"]), (&"complete".into(), &"success".into()), "{over}");
    assert_eq!(exit["oom_kills"], 1, "{over}");
    let output = agent.cli(&["status", "docker:child"]).ok();
    assert!(output.contains("exit 0; a process in it was OOM killed"), "{output}");
    // A busy machine may remove a cgroup before it is read: that is counted, and no other peak may be wrong.
    let body = agent.metrics();
    let peak = |n: usize| body.u64("allostat_task_memory_peak_bytes", &[("alloc_id", &format!("docker:short-{n}"))]);
    let right = (0..3).fold(0, |right, n| right + u64::from(peak(n) >= 100 * MIB));
    let sampled = body.u64("allostat_observed_ends_total", &[("reading", "sampled")]);
    assert!(right + sampled >= 3, "{right} peaks are right, {sampled} ends were not read");
}

/// An end that was requested from Docker is on request, whatever the exit code; other failures stay failures.
#[test]
fn end_requested_from_docker_is_no_failure() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let agent = Agent::with(docker.observed("docker"));
    let stubborn = ["sh", "-c", "trap '' TERM; while true; do sleep 0.1; done"];
    let obedient = ["sh", "-c", "trap 'exit 7' TERM; while true; do sleep 0.1; done"];
    let fails = ["sh", "-c", "sleep 2; exit 7"];
    let reloads = ["sh", "-c", "trap 'sleep 1; exit 7' HUP; while true; do sleep 0.1; done"];
    // Name, program, Docker's command, the outcome, its code and the state.
    type Row<'a> = (&'a str, &'a [&'a str], &'a [&'a str], &'a str, u64, &'a str);
    let rows: [Row<'_>; 6] = [
        ("stopped", &stubborn, &["stop", "-t", "1"], "killed", 137, "complete"),
        ("obeys", &obedient, &["stop", "-t", "30"], "killed", 7, "complete"),
        ("killed", &stubborn, &["kill"], "killed", 137, "complete"),
        ("removed", &stubborn, &["rm", "-f"], "killed", 137, "complete"),
        ("fails", &fails, &[], "error", 7, "failed"),
        ("reloads", &reloads, &["kill", "--signal", "HUP"], "error", 7, "failed"),
    ];
    for (name, program, ..) in rows {
        let started = docker.run(&[&["-d", "--name", name, "bb:1"], program].concat());
        assert!(started.status.success(), "{started:?}");
    }
    for (name, _, requests, ..) in rows {
        wait_for("the container", long(), || find(&agent, &format!("docker:{name}")));
        if !requests.is_empty() {
            let done = docker.docker(&[requests, &[name]].concat());
            assert!(done.status.success(), "{name}: {done:?}");
        }
    }
    for (name, _, _, outcome, code, state) in rows {
        let over = wait_for("its end", long(), || {
            find(&agent, &format!("docker:{name}")).filter(|alloc| !alloc["finished_at"].is_null())
        });
        let exit = &over["tasks"][name]["last_exit"];
        let shown = (exit["outcome"].as_str(), exit["status"]["code"].as_u64(), over["status"].as_str());
        assert_eq!(shown, (Some(outcome), Some(code), Some(state)), "{name}: {over}");
        if name != "removed" {
            assert_eq!(docker.inspect(name, "{{.State.ExitCode}}"), code.to_string(), "{name}");
        }
    }
    let output = agent.cli(&["status", "docker:stopped"]).ok();
    assert!(output.contains("stopped on request"), "{output}");
}

/// A cgroup that is only called like a container stays a plain one: Docker says that it has no such container.
#[test]
fn container_below_a_custom_parent_is_dockers_if_docker_lists_it() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let cgroups = Cgroups::new();
    let stranger = "5e".repeat(32);
    cgroups.make(&stranger);
    let agent = Agent::with(docker.observed("docker,cgroup"));
    let parent = format!("{}/chosen", cgroups.parent);
    let started =
        docker.run(&["-d", "--name", "elsewhere", "--cgroup-parent", &parent, "-m", "64m", "bb:1", "sleep", "1000"]);
    assert!(started.status.success(), "{started:?}");

    let alloc = wait_for("the container under its name", long(), || find(&agent, "docker:elsewhere"));
    assert_eq!((&alloc["name"], &alloc["source"]), (&"elsewhere".into(), &"docker".into()));
    let at = format!("{parent}/{}", docker.inspect("elsewhere", "{{.Id}}"));
    let labels = [("alloc_id", "docker:elsewhere")];
    let wait_for_cgroup = |id: &str, at: &str| {
        let labels = [("alloc_id", id), ("cgroup", at)];
        wait_for("its cgroup", long(), || agent.metrics().one("allostat_alloc_info", &labels).map(drop));
    };
    wait_for_cgroup("docker:elsewhere", &at);
    let limit = wait_for("its values", long(), || {
        agent.metrics().one("allostat_task_memory_limit_bytes", &labels).map(Sample::f64)
    });
    assert_eq!(limit, 67_108_864.0);
    docker.docker(&["rm", "-f", "elsewhere"]);
    let over = wait_for("its end", long(), || {
        let alloc: Value = agent.json("/v1/allocs/docker:elsewhere");
        Some(alloc).filter(|alloc| !alloc["finished_at"].is_null())
    });
    assert_eq!(over["tasks"]["elsewhere"]["exits"][0]["status"]["code"], 137, "{over}");

    let plain = format!("{}/{stranger}", cgroups.parent);
    let alloc = wait_for("the stranger", long(), || find(&agent, &format!("cgroup:{plain}")));
    assert_eq!((&alloc["source"], &alloc["job"]), (&"cgroup".into(), &cgroups.parent.as_str().into()));
    wait_for_cgroup(&format!("cgroup:{plain}"), &plain);
    assert!(find(&agent, &format!("docker:{}", &stranger[..12])).is_none());
}

#[test]
fn twenty_short_containers_have_their_peak_and_the_end_that_docker_inspect_shows() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let agent = Agent::with(docker.observed("docker"));
    let can = agent.metrics().one("allostat_capability", &[("feature", "kernel_ends")]).map(Sample::f64);
    if can != Some(1.0) {
        skip_test!("no-kernel-pass");
    }
    const MANY: u64 = 20;
    std::thread::scope(|all| {
        for of in 0..2 {
            let docker = &docker;
            all.spawn(move || {
                for n in (of..MANY).step_by(2) {
                    let (name, limit) = (format!("brief-{n}"), if n % 5 == 4 { "64m" } else { "400m" });
                    let dd = "dd if=/dev/zero of=/dev/null bs=200M count=1 2>/dev/null";
                    let script = format!("sleep 0.2; {dd} || exit 99; exit {}", n % 4);
                    docker.run(&["--name", &name, "-m", limit, "bb:1", "sh", "-c", &script]);
                }
            });
        }
    });
    for n in 0..MANY {
        let name = format!("brief-{n}");
        let over = wait_for("its end", long(), || {
            let alloc: Value = agent.json(&format!("/v1/allocs/docker:{name}"));
            Some(alloc).filter(|alloc| !alloc["finished_at"].is_null())
        });
        let task = &over["tasks"][name.as_str()];
        let exit = &task["last_exit"];
        assert_eq!(task["exits"].as_array().map(Vec::len), Some(1), "once: {task}");
        assert_eq!(exit["status"]["code"].to_string(), docker.inspect(&name, "{{.State.ExitCode}}"), "{name}: {over}");
        // Docker misses an OOM kill now and then, where the container's end overtakes the notification; it invents
        // none.
        let is_oom_killed = exit["oom_kills"].as_u64().unwrap() > 0;
        assert_eq!(is_oom_killed, n % 5 == 4, "{name}: {over}");
        assert!(is_oom_killed || docker.inspect(&name, "{{.State.OOMKilled}}") == "false", "{name}: {over}");
        // The OOM killer took a child of the shell, which went on and reported it by its exit code.
        let outcome = if exit["status"]["code"] == 0 { "success" } else { "error" };
        assert_eq!(exit["outcome"], outcome, "{name}: {over}");
        let peak = agent.metrics().u64("allostat_task_memory_peak_bytes", &[("alloc_id", &format!("docker:{name}"))]);
        let reached = if n % 5 == 4 { 60 * MIB..=64 * MIB } else { 200 * MIB..=230 * MIB };
        assert!(reached.contains(&peak), "{name}: {peak}");
    }
}

/// Three that fail at once, started again by Docker: each life some milliseconds, the same cgroup again and again.
#[test]
fn each_life_of_containers_in_a_crash_loop_is_reported_once() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let agent = Agent::with(docker.observed("docker"));
    let can = agent.metrics().one("allostat_capability", &[("feature", "kernel_ends")]).map(Sample::f64);
    if can != Some(1.0) {
        skip_test!("no-kernel-pass");
    }
    let names = ["fails-a", "fails-b", "fails-c"];
    std::thread::scope(|all| {
        for name in names {
            let docker = &docker;
            let work = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; exit 4";
            all.spawn(move || docker.run(&["-d", "--name", name, "--restart=on-failure:5", "bb:1", "sh", "-c", work]));
        }
    });
    for name in names {
        wait_for("Docker to give up", long(), || (docker.inspect(name, "{{.State.Status}}") == "exited").then_some(()));
        // By Docker's own events, which it lists up to the last whole second.
        let filter = format!("container={name}");
        let requests = ["events", "--since=1h", "--until=0s", "--filter=event=die", "--filter", &filter];
        let deaths = || String::from_utf8(docker.docker(&requests).stdout).unwrap().lines().count();
        let restarts: usize = docker.inspect(name, "{{.RestartCount}}").parse().unwrap();
        let deaths = wait_for("its deaths", long(), || Some(deaths()).filter(|deaths| *deaths > restarts));
        assert_eq!(deaths, 6, "{name}");
        let of = |alloc: &Value| alloc["tasks"][name]["exits"].as_array().cloned().unwrap_or_default();
        let id = format!("/v1/allocs/docker:{name}");
        let mut last = Vec::new();
        let until = std::time::Instant::now() + long();
        let exits = std::iter::from_fn(|| (std::time::Instant::now() < until).then_some(())).find_map(|()| {
            last = of(&agent.json(&id));
            std::thread::sleep(Duration::from_millis(100));
            (last.len() == deaths).then(|| last.clone())
        });
        let exits = exits.unwrap_or_else(|| panic!("{} of {deaths} lives of {name}: {last:#?}", last.len()));
        assert!(exits.iter().all(|exit| exit["outcome"] == "error" && exit["status"]["code"] == 4), "{exits:#?}");
        let times: Vec<_> = exits.iter().map(|exit| exit["finished_at"].as_u64().unwrap()).collect();
        assert!(times.is_sorted_by(|a, b| a < b), "each at its own time: {times:?}");
        let body = agent.metrics();
        let sum = |family: &str, more: &[(&str, &str)]| -> f64 {
            body.all(family, &[&[("workload", name)], more].concat()).into_iter().map(Sample::f64).sum()
        };
        assert_eq!(sum("allostat_workload_exits_total", &[("task", name)]), 6.0, "{name}");
        let restarts = [("alloc_id", &*format!("docker:{name}")), ("reason", "failure")];
        assert_eq!(body.f64("allostat_task_restarts_total", &restarts), 5.0, "{name}");
        let used: f64 = exits.iter().map(|exit| exit["usage"]["cpu_usage_ns"].as_f64().unwrap() / 1e9).sum();
        let each = exits.iter().all(|exit| exit["usage"]["cpu_usage_ns"].as_u64() > Some(1_000_000));
        let exposed = sum("allostat_workload_cpu_usage_seconds_total", &[("task", name)]);
        assert!(each && exposed >= used * 0.999, "{name}: {exposed} s of {used} s");
    }
    let allocs = agent.json("/v1/allocs");
    let ids: Vec<_> = allocs["allocs"].as_array().unwrap().iter().map(|alloc| &alloc["id"]).collect();
    assert_eq!(ids.len(), names.len(), "no other one: {ids:?}");
}

/// A runner of CI: each container has a name and an id that come once, and is removed as it ends.
#[test]
fn containers_with_unique_names_are_excluded_or_get_a_workload_by_label_or_image() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let mut options = docker.observed("docker");
    for (name, value) in [
        ("ALLOSTAT_OBSERVE_EXCLUDE", "label:ci.helper=*"),
        ("ALLOSTAT_OBSERVE_WORKLOADS", "label:ci.job=* -> label:ci.project, image:bb:* -> others"),
    ] {
        options.env.push((name.to_owned(), value.to_owned()));
    }
    let agent = Agent::with(options);
    docker.run(&["-d", "--name", "stays", "bb:1", "sleep", "1000"]);
    wait_for("the one that stays", long(), || find(&agent, "docker:stays"));
    let work = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; exit 4";
    for n in 0..4 {
        let job = format!("ci.job={n}");
        let labels = ["--label", &job, "--label", "ci.project=shop/web"];
        docker.run(&[&["--rm"], &labels[..], &["--label", "ci.helper=1", "bb:1", "sh", "-c", work]].concat());
        let ended = docker.run(&[&["--rm"], &labels[..], &["bb:1", "sh", "-c", work]].concat());
        assert_eq!(ended.status.code(), Some(4), "{ended:?}");
    }
    let ends = |workload: &str| -> f64 {
        let body = agent.metrics();
        body.all("allostat_workload_exits_total", &[("workload", workload)]).into_iter().map(Sample::f64).sum()
    };
    wait_for("all ends", long(), || (ends("shop/web") == 4.0).then_some(()));
    let body = agent.metrics();
    let rows = body.all("allostat_workload_cpu_usage_seconds_total", &[]);
    let rows: Vec<_> = rows.iter().map(|row| (&*row.labels["workload"], &*row.labels["task"])).collect();
    assert_eq!(rows, [("others", "others"), ("shop/web", "shop/web")]);
    // What is not wanted was never shown, under its name or its id, while it ran and after its end.
    let allocs = agent.json("/v1/allocs");
    let of = |alloc: &Value| alloc["job"].as_str().unwrap_or("none").to_owned();
    let jobs: Vec<String> = allocs["allocs"].as_array().unwrap().iter().map(of).collect();
    let count = |job: &str| jobs.iter().filter(|other| *other == job).count();
    assert_eq!((count("shop/web"), count("others"), jobs.len()), (4, 1, 5), "{jobs:?}");
}

#[test]
fn each_command_takes_the_name_of_a_container() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let agent = Agent::with(docker.observed("docker"));
    let started = docker.run(&["-d", "--name", "web", "bb:1", "sleep", "1000"]);
    assert!(started.status.success(), "{started:?}");
    wait_for("the container under its name", long(), || find(&agent, "docker:web"));
    for word in ["docker:web", "web"] {
        commands::each_command_takes(&agent, word, ("docker:web", "web"));
    }
}

/// Short cgroups that are named like containers, those of a user and those of root, begin and end while a container
/// starts.
#[test]
fn container_is_named_beside_200_short_cgroups_named_like_containers() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let (agent, user, root) = (Agent::with(docker.observed("docker")), User::of(12_348), Cgroups::new());
    let live = |n: u32| {
        let name = format!("docker-{n:064x}.scope");
        let (mut child, of, path) = match n % 2 {
            0 => (user.run(&name, &[], "exit 3"), &user.observed, format!("given/{name}")),
            _ => (root.sleeper(&name), &root, name),
        };
        if n % 2 == 1 {
            child.kill().unwrap();
        }
        child.wait().unwrap();
        of.remove(path);
    };
    std::thread::scope(|all| {
        for first in 0..4 {
            let live = &live;
            all.spawn(move || (first..200).step_by(4).for_each(live));
        }
        let started = docker.run(&["-d", "--name", "real", "bb:1", "sleep", "1000"]);
        assert!(started.status.success(), "{started:?}");
    });
    let alloc = wait_for("the container under its name", long(), || find(&agent, "docker:real"));
    assert_eq!((&alloc["name"], &alloc["job"], &alloc["status"]), (&"real".into(), &"real".into(), &"running".into()));
    let id = docker.inspect("real", "{{.Id}}");
    assert!(find(&agent, &format!("docker:{}", &id[..12])).is_none(), "it is no longer under its short ID");
}

/// In the directory that he was given, beside the container itself: it works, fails and comes again.
///
/// Promise (Observed workloads): A user's cgroup with the ID of a container that runs adds nothing to that container
#[test]
fn users_cgroup_with_the_id_of_a_running_container_adds_nothing_to_it() {
    const USER: u32 = 12_363;
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let (agent, user) = (Agent::with(docker.observed("docker")), User::of(USER));
    let started = docker.run(&["-d", "--name", "real", "bb:1", "sleep", "1000"]);
    assert!(started.status.success(), "{started:?}");
    wait_for("the container under its name", long(), || find(&agent, "docker:real"));
    let id = docker.inspect("real", "{{.Id}}");
    let sum = |family: &str, labels: &[(&str, &str)]| -> f64 {
        agent.metrics().all(family, labels).into_iter().map(Sample::f64).sum()
    };
    let used = |alloc_id: &str| sum("allostat_task_cpu_usage_seconds_total", &[("alloc_id", alloc_id)]);
    let of_workload = |family: &str| sum(family, &[("workload", "real")]);
    let before = wait_for("its values", long(), || Some(used("docker:real")).filter(|used| *used > 0.0));
    let his = format!("docker:{USER}/{}", &id[..12]);
    for life in 1..=2 {
        let scope = format!("docker-{id}.scope");
        let mut child = user.run(&scope, &[], "while :; do :; done");
        wait_for("a second of CPU time of the user", long(), || (used(&his) > f64::from(life)).then_some(()));
        let shown = find(&agent, &his).unwrap();
        assert!(shown["job"].as_str().is_none_or(|job| job.starts_with(&format!("{USER}/"))), "{shown}");
        child.kill().unwrap();
        child.wait().unwrap();
        user.observed.remove(format!("given/{scope}"));
        wait_for("its end", long(), || find(&agent, &his).filter(|alloc| !alloc["finished_at"].is_null()));
    }
    let real = find(&agent, "docker:real").unwrap();
    assert_eq!((&real["status"], &real["name"], &real["job"]), (&"running".into(), &"real".into(), &"real".into()));
    let exits = agent.json("/v1/allocs/docker:real")["tasks"]["real"]["exits"].clone();
    assert!(exits.as_array().is_none_or(Vec::is_empty), "{exits}");
    let (cpu, ends) = ("allostat_workload_cpu_usage_seconds_total", "allostat_workload_exits_total");
    assert!(used("docker:real") < before + 0.5 && of_workload(cpu) < before + 0.5, "a container that sleeps");
    assert_eq!(of_workload(ends), 0.0);
    let at = agent.metrics().all("allostat_alloc_info", &[("alloc_id", "docker:real")])[0].labels["cgroup"].clone();
    assert!(at.contains("/docker/") && at.ends_with(&id), "its own cgroup: {at}");
}

/// Started through the API of the engine: no command line takes such labels.
fn start_with_labels(docker: &Docker, name: &str, labels: impl Iterator<Item = (String, String)>) {
    let body = serde_json::json!({
        "Image": "bb:1",
        "Cmd": ["sleep", "1000"],
        "Labels": labels.collect::<std::collections::BTreeMap<_, _>>(),
        "HostConfig": { "NetworkMode": "none" },
    });
    let post = |target: &str, body: &str| {
        let answer = unix(&docker.socket, "POST", target, &[("Content-Type", "application/json")], body.as_bytes());
        answer.expect("the engine answers")
    };
    let created = post(&format!("/containers/create?name={name}"), &body.to_string());
    assert_eq!(created.status, 201, "{}", String::from_utf8_lossy(&created.body));
    let started = post(&format!("/containers/{name}/start"), "");
    assert_eq!(started.status, 204, "{}", String::from_utf8_lossy(&started.body));
}

/// 39 MB are more than the agent takes of an answer. What a second container has is less, and more than the labels of
/// an alloc may be.
///
/// Promise (Observed workloads): 300 labels of 131 kB cost a container its own name, and neither memory nor other names
#[test]
fn container_with_300_labels_of_131_kb_costs_its_own_name_alone() {
    const LONG_LABEL: usize = 131_000;
    /// Ten of them are long.
    const FEW: usize = 60;
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let mut options = docker.observed("docker");
    let names: Vec<String> = (0..FEW).map(|n| format!("team.{n}")).collect();
    options.env.push(("ALLOSTAT_OBSERVE_LABELS".to_owned(), names.join(",")));
    let agent = Agent::with(options);
    // A name that comes late has the short ID before it.
    let id_of = |name: &str| {
        wait_for("the container", long(), || {
            let allocs = agent.json("/v1/allocs");
            let named = allocs["allocs"].as_array()?.iter().find(|alloc| alloc["name"] == name)?;
            named["id"].as_str().map(str::to_owned)
        })
    };
    start_with_labels(&docker, "many", (0..300).map(|n| (format!("team.{n}"), "x".repeat(LONG_LABEL))));
    let of_few = |(n, name): (usize, String)| {
        let length = if n < 10 { LONG_LABEL } else { 250 };
        (name, format!("\u{1b}{}", "x".repeat(length - 1)))
    };
    start_with_labels(&docker, "few", names.into_iter().enumerate().map(of_few));
    docker.run(&["-d", "--name", "plain", "bb:1", "sleep", "1000"]);
    let [few, plain] = ["few", "plain"].map(id_of);
    let many = format!("docker:{}", &docker.inspect("many", "{{.Id}}")[..12]);
    wait_for("the container under its ID", long(), || find(&agent, &many));

    let changed = |reason: &str| agent.metrics().u64("allostat_observed_texts_changed_total", &[("reason", reason)]);
    wait_for("the counts of changed texts", long(), || {
        (changed("length") >= FEW as u64 && changed("budget") > 0).then_some(())
    });
    let body = agent.get("/metrics");
    assert!(body.body.len() < 4 << 20, "{} bytes", body.body.len());
    let body = agent.metrics();
    for sample in &body.samples {
        let is_of_docker = sample.labels.get("alloc_id").is_some_and(|id| id.starts_with("docker:"));
        for (name, value) in &sample.labels {
            let most = if is_of_docker && name != "cgroup" { 200 } else { 512 };
            assert!(value.len() <= most && !value.contains('\u{1b}'), "{name}: {} bytes", value.len());
        }
    }
    let labels = |id: &str| -> Vec<usize> {
        let info = body.all("allostat_alloc_info", &[("alloc_id", id)])[0];
        info.labels.iter().filter(|(name, _)| name.starts_with("label_")).map(|(_, value)| value.len()).collect()
    };
    // The digest is part of the 200 bytes.
    let few = labels(&few);
    assert!(few.iter().all(|length| *length == 200) && (30..=40).contains(&few.len()), "8 KiB: {few:?}");
    assert!(labels(&many).is_empty() && labels(&plain).is_empty());
    let peak = peak_kilobytes(&agent);
    assert!(peak < 120 << 10, "{peak} kB");
}
