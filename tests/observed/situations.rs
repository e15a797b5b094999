//! What is shown of a container in each situation, compared with `docker inspect`: the table of docs/observed.md.

use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::docker::{AgentApi, find, long};
use crate::common::{Agent, Docker, Sample, is_root, wait_for};

const DOCS: &str = include_str!("../../docs/observed.md");
const HEADING: &str = "### A container in each situation";
/// It ends at once when it is asked to, with a code of its own.
pub const OBEYS: &str = "trap 'exit 7' TERM INT; trap : HUP; while true; do sleep 0.1; done";
pub const IGNORES: &str = "trap '' TERM; while true; do sleep 0.1; done";
/// More than its limit of memory.
pub const FILLS: &str = "dd if=/dev/zero of=/dev/null bs=100M count=1 2>/dev/null";

/// A runtime and its command.
pub trait Engine {
    /// The source of its allocs.
    const SOURCE: &str;
    fn start(&self, name: &str, options: &[&str], script: &str) -> Output;
    fn command(&self, args: &[&str]) -> Output;
    /// The ID of its alloc.
    fn id(&self, name: &str) -> String {
        format!("{}:{name}", Self::SOURCE)
    }
    fn inspect(&self, name: &str, format: &str) -> String {
        let output = self.command(&["inspect", name, "--format", format]);
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
    /// What it reports of a container. `None`: it is removed.
    fn inspected(&self, name: &str) -> Option<Inspected> {
        let output = self.inspect(name, "{{.State.Status}} {{.State.ExitCode}} {{.State.OOMKilled}} {{.RestartCount}}");
        let mut words = output.split(' ');
        let mut word = || words.next().unwrap_or_default();
        let state = state_of(word())?;
        Some(Inspected { state, code: word().parse().ok()?, oom: word().parse().ok()?, restarts: word().parse().ok()? })
    }
}

/// What a runtime reports of a container.
pub struct Inspected {
    /// As the state of a task is called.
    pub state: &'static str,
    /// Of its last end.
    pub code: u64,
    /// Of its last life: a process in it was OOM-killed.
    pub oom: bool,
    /// By its restart policy.
    pub restarts: usize,
}

impl Engine for Docker {
    const SOURCE: &str = "docker";
    fn start(&self, name: &str, options: &[&str], script: &str) -> Output {
        self.run(&[&["-d", "--name", name], options, &["bb:1", "sh", "-c", script]].concat())
    }
    fn command(&self, args: &[&str]) -> Output {
        self.docker(args)
    }
}

#[derive(Clone)]
pub struct Situation {
    /// As the table of the docs has it.
    pub is: &'static str,
    pub name: &'static str,
    pub options: &'static [&'static str],
    pub script: String,
    /// Commands of its runtime when it is shown. `%` is its name.
    pub then: &'static [&'static [&'static str]],
    pub status: &'static str,
    /// Of its task.
    pub state: &'static str,
    /// Its last end: outcome and exit code.
    pub end: Option<(&'static str, u64)>,
    pub lives: usize,
}

pub fn running(is: &'static str, name: &'static str, then: &'static [&'static [&'static str]]) -> Situation {
    let (status, state) = ("running", "running");
    Situation { is, name, options: &[], script: OBEYS.into(), then, status, state, end: None, lives: 0 }
}

pub fn ended(is: &'static str, name: &'static str, script: &str, end: (&'static str, u64)) -> Situation {
    let status = if matches!(end.0, "success" | "killed") { "complete" } else { "failed" };
    let (state, end) = ("dead", Some(end));
    Situation { is, name, options: &[], script: script.into(), then: &[], status, state, end, lives: 1 }
}

pub fn situations() -> Vec<Situation> {
    vec![
        running("runs", "runs", &[]),
        Situation { state: "paused", ..running("`docker pause`", "paused", &[&["pause", "%"]]) },
        running("`docker pause`, `docker unpause`", "pauses", &[&["pause", "%"], &["unpause", "%"]]),
        running("`docker exec`", "executes", &[&["exec", "%", "sh", "-c", ":"]]),
        running("`docker update`", "updates", &[&["update", "--memory", "96m", "--memory-swap", "96m", "%"]]),
        running("`docker kill --signal HUP`, handled", "reloads", &[&["kill", "--signal", "HUP", "%"]]),
        running("`docker rename`", "renamed", &[&["rename", "%", "renamed-now"]]),
        Situation {
            options: &["--label=com.docker.compose.project=shop", "--label=com.docker.compose.service=web"],
            ..running("of Compose", "shop-web-1", &[])
        },
        Situation {
            options: &["--label=com.docker.swarm.service.name=search", "--label=com.docker.swarm.task.name=search.1"],
            ..running("of Swarm", "search.1.x2", &[])
        },
        ended("ends with 0", "well", "sleep 0.3", ("success", 0)),
        ended("ends with 3", "fails", "sleep 0.3; exit 3", ("error", 3)),
        ended("ends with 3 at once", "brief", "exit 3", ("error", 3)),
        ended("crashes with SIGSEGV", "crashes", "sh -c 'kill -SEGV $$'; exit $?", ("error", 139)),
        Situation {
            options: &["--rm"],
            ..ended("`docker run --rm`, ends with 5", "leaves", "sleep 0.3; exit 5", ("error", 5))
        },
        Situation {
            then: &[&["stop", "-t", "60", "%"]],
            ..ended("`docker stop`, obeyed", "obeys", OBEYS, ("killed", 7))
        },
        Situation {
            options: &["--stop-signal=INT"],
            then: &[&["stop", "-t", "60", "%"]],
            ..ended("`--stop-signal INT`, `docker stop`, obeyed", "interrupted", OBEYS, ("killed", 7))
        },
        Situation {
            then: &[&["stop", "-t", "1", "%"]],
            ..ended("`docker stop`, ignored", "stubborn", IGNORES, ("killed", 137))
        },
        Situation { then: &[&["kill", "%"]], ..ended("`docker kill`", "killed", IGNORES, ("killed", 137)) },
        Situation {
            then: &[&["kill", "--signal", "TERM", "%"]],
            ..ended("`docker kill --signal TERM`, obeyed", "asked", OBEYS, ("killed", 7))
        },
        Situation { then: &[&["rm", "-f", "%"]], ..ended("`docker rm -f`", "removed", IGNORES, ("killed", 137)) },
        Situation {
            options: &["-m=32m"],
            ..ended("OOM kill of its first process", "oom", &format!("exec {FILLS}"), ("oom", 137))
        },
        Situation {
            options: &["-m=32m"],
            ..ended("OOM kill of a child, ends with 0", "child", &format!("{FILLS}; sleep 1; exit 0"), ("success", 0))
        },
        Situation {
            options: &["--restart=on-failure:2"],
            lives: 3,
            ..ended("`--restart on-failure:2`, ends with 4", "loops", "sleep 0.3; exit 4", ("error", 4))
        },
        Situation {
            options: &["--restart=always"],
            then: &[&["stop", "-t", "60", "%"]],
            ..ended("`--restart always`, `docker stop`", "always", OBEYS, ("killed", 7))
        },
        Situation {
            then: &[&["restart", "-t", "0", "%"]],
            end: Some(("killed", 137)),
            lives: 1,
            ..running("`docker restart -t 0`", "restarts", &[])
        },
        Situation {
            then: &[&["stop", "-t", "60", "%"], &["start", "%"]],
            end: Some(("killed", 7)),
            lives: 1,
            ..running("`docker stop`, `docker start`", "again", &[])
        },
    ]
}

/// The state of a task for Docker's.
fn state_of(status: &str) -> Option<&'static str> {
    let all = [("running", "running"), ("paused", "paused"), ("restarting", "backoff"), ("exited", "dead")];
    all.into_iter().find(|(dockers, _)| *dockers == status).map(|(_, state)| state)
}

/// As its `inspect` has it.
pub fn assert_as_engine<E: Engine>(engine: &E, agent: &impl AgentApi, of: &Situation) {
    let Situation { is, name, status, state, end, lives, .. } = of;
    let id = engine.id(name).replace('/', "%2F");
    let task = |alloc: &Value| alloc["tasks"].as_object().and_then(|tasks| tasks.values().next().cloned());
    let until = Instant::now() + long();
    let last = loop {
        let last = agent.json(&format!("/v1/allocs/{id}"));
        let seen = task(&last).and_then(|task| Some(task["exits"].as_array()?.len()));
        let is_in_state = task(&last).is_some_and(|task| task["state"] == *state);
        if last["status"] == *status && is_in_state && seen == Some(*lives) {
            break last;
        }
        assert!(Instant::now() < until, "{is}: {last:#}");
        std::thread::sleep(Duration::from_millis(50));
    };
    let task = task(&last).unwrap();
    let exit = task["exits"].as_array().and_then(|exits| exits.last().cloned()).unwrap_or_default();
    let shown = end.is_some().then(|| (exit["outcome"].as_str().unwrap(), exit["status"]["code"].as_u64().unwrap()));
    assert_eq!(shown, *end, "{is}: {last:#}");
    let rename = of.then.iter().find(|command| command[0] == "rename");
    let Some(reported) = engine.inspected(rename.map_or(*name, |command| command[2])) else {
        assert!(of.options.contains(&"--rm") || *is == "`docker rm -f`", "{is}: its engine has lost it");
        return;
    };
    assert_eq!(reported.state, *state, "{is}");
    if reported.state == "dead" {
        assert_eq!(Some(reported.code), end.map(|(_, code)| code), "{is}");
    }
    // On cgroup v1 Docker misses an OOM kill now and then; it invents none.
    assert!(!reported.oom || exit["oom_kills"].as_u64() > Some(0), "{is}: {exit}");
    if of.options.iter().any(|option| option.starts_with("--restart=on-failure")) {
        assert_eq!(reported.restarts + 1, *lives, "{is}");
    }
}

/// Brings all of them about at once.
pub fn assert_each_as_engine<E: Engine>(engine: &E, agent: &impl AgentApi, all: &[Situation]) {
    begin_each(engine, agent, all);
    all.iter().for_each(|of| assert_as_engine(engine, agent, of));
}

pub fn begin_each<E: Engine>(engine: &E, agent: &impl AgentApi, all: &[Situation]) {
    for Situation { is, name, options, script, .. } in all {
        let started = engine.start(name, options, script);
        assert!(started.status.success(), "{is}: {started:?}");
    }
    for Situation { is, name, then, .. } in all {
        if !then.is_empty() {
            wait_for(is, long(), || find(agent, &engine.id(name)));
        }
        for command in *then {
            let command: Vec<&str> = command.iter().map(|word| if *word == "%" { name } else { *word }).collect();
            let done = engine.command(&command);
            assert!(done.status.success(), "{is}: {done:?}");
        }
    }
}

/// `workloads`: containers with the workload of each. A new name is followed, and the workload stays.
pub fn assert_names<E: Engine>(engine: &E, agent: &impl AgentApi, workloads: &[(&str, &str)]) {
    for (name, workload) in workloads {
        let alloc = find(agent, &engine.id(name)).expect("it is shown");
        assert_eq!(alloc["job"], *workload, "{alloc:#}");
    }
    let is_renamed = || find(agent, &engine.id("renamed")).filter(|alloc| alloc["name"] == "renamed-now");
    let renamed = wait_for("its new name", long(), is_renamed);
    assert_eq!(renamed["job"], "renamed", "it is counted in the workload in which it began");
}

/// When each of these began. `None`: one of them is not shown.
pub fn start_times<E: Engine>(engine: &E, agent: &impl AgentApi, all: &[&Situation]) -> Option<Vec<f64>> {
    let body = agent.metrics();
    let start = |of: &&Situation| {
        let labels = [("alloc_id", &*engine.id(of.name))];
        body.one("allostat_task_start_time_seconds", &labels).map(Sample::f64)
    };
    all.iter().map(start).collect()
}

/// The row of a situation in the table below this heading.
pub fn documented(heading: &str, is: &str) -> &'static str {
    let begin = format!("| {is} |");
    let below = DOCS.lines().skip_while(|line| *line != heading).skip(1).take_while(|line| !line.starts_with('#'));
    below.into_iter().find(|line| line.starts_with(&begin)).unwrap_or_else(|| panic!("{heading}: {is} is missing"))
}

/// With its status, outcome and code.
pub fn assert_documented(heading: &str, of: &Situation) {
    let row = documented(heading, of.is);
    let code = |code: u64| if code == 7 { "its own code".to_owned() } else { code.to_string() };
    let end = of.end.map_or_else(String::new, |(outcome, of)| format!("| `{outcome}`, {}", code(of)));
    let status = match of.state {
        "paused" | "backoff" => format!("| `{}`, the task `{}`", of.status, of.state),
        _ => format!("| `{}`", of.status),
    };
    assert!(row.contains(&status) && row.contains(&end), "{row}");
}

/// Docker doubles the pause before each restart, up to a minute: both are seen to wait in one of them.
fn assert_waits_for_its_restart(docker: &Docker, agent: &Agent) {
    let of = Situation {
        options: &["--restart=always"],
        status: "pending",
        state: "backoff",
        ..ended("`--restart always`, between two lives", "flaps", "exit 5", ("error", 5))
    };
    assert_documented(HEADING, &of);
    let started = docker.start(of.name, of.options, &of.script);
    assert!(started.status.success(), "{started:?}");
    let state = |alloc: &Value| alloc["tasks"][of.name]["state"].clone();
    let waits = wait_for("both to wait", long(), || {
        let is_waiting = || docker.inspected(of.name).is_some_and(|reported| reported.state == of.state);
        let begin = is_waiting();
        let alloc = find(agent, "docker:flaps").filter(|alloc| alloc["status"] == of.status)?;
        (begin && state(&alloc) == of.state && is_waiting()).then_some(alloc)
    });
    assert!(waits.get("finished_at").is_none(), "{waits:#}");
    let labels = |state| [("alloc_id", "docker:flaps"), ("state", state)];
    let series = |state| agent.metrics().one("allostat_task_state", &labels(state)).map(Sample::f64);
    wait_for("its series", long(), || (series("backoff") == Some(1.0) && series("running") == Some(0.0)).then_some(()));
    // Nothing of it runs that could end. An attempt that begins in this moment is stopped as well.
    let stopped = docker.docker(&["stop", of.name]);
    assert!(stopped.status.success(), "{stopped:?}");
    let is_over = || {
        let alloc = find(agent, "docker:flaps")?;
        let state = state(&alloc);
        (state == "dead" && alloc.get("finished_at").is_some()).then_some(())
    };
    wait_for("the end of the wait", long(), is_over);
    assert_eq!(docker.inspected(of.name).map(|reported| reported.state), Some("dead"));
    wait_for("the end of its series", long(), || series("backoff").is_none().then_some(()));
    docker.docker(&["rm", "-f", of.name]);
}

/// Of the agent and the engine at once. An engine without live restore stops what runs when it starts, which an agent
/// that is there first sees.
fn assert_over_both(docker: &mut Docker, agent: &mut Agent) {
    let of = |is, name| ended(is, name, OBEYS, ("killed", 7));
    let first = of("restart of both, the agent first", "agent-first");
    let second = "restart of both, the engine first";
    assert_documented(HEADING, &first);
    let row = documented(HEADING, second);
    assert!(row.contains("not shown") && row.contains("`unknown`"), "{row}");
    for name in [first.name, "engine-first"] {
        let started = docker.start(name, &[], OBEYS);
        assert!(started.status.success(), "{started:?}");
        let id = format!("docker:{name}");
        let began = |agent: &Agent| {
            let body = agent.metrics();
            body.one("allostat_task_start_time_seconds", &[("alloc_id", &*id)]).map(Sample::f64)
        };
        let before = wait_for("it to be shown", long(), || began(agent));
        agent.terminate();
        docker.kill();
        if name == first.name {
            agent.start_again();
            assert_eq!(wait_for("it to be shown again", long(), || began(agent)), before);
            docker.start_again();
            assert_as_engine(docker, agent, &first);
            continue;
        }
        docker.start_again();
        wait_for("its end", long(), || docker.inspected(name).filter(|reported| reported.state == "dead"));
        agent.start_again();
        let exits = |outcome| {
            let labels = [("workload", name), ("source", "docker"), ("outcome", outcome)];
            agent.metrics().one("allostat_workload_exits_total", &labels).map(Sample::f64)
        };
        wait_for("its end to be counted", long(), || (exits("unknown") == Some(1.0)).then_some(()));
        assert!(find(agent, &id).is_none() && exits("killed").is_none_or(|exits| exits == 0.0));
    }
}

/// It has no cgroup that an agent could find at its start. The pauses grow, so that one of them is long enough.
fn assert_is_found_waiting(docker: &Docker, agent: &mut Agent) {
    let started = docker.start("waits", &["--restart=always"], "exit 5");
    assert!(started.status.success(), "{started:?}");
    let is_found = (0..8).any(|_| {
        wait_for("it to wait", long(), || {
            docker.inspected("waits").is_some_and(|reported| reported.state == "backoff").then_some(())
        });
        agent.terminate();
        agent.start_again();
        let alloc = wait_for("it to be shown", long(), || find(agent, "docker:waits"));
        let task = &alloc["tasks"]["waits"];
        let has_no_exit = task["exits"].as_array().is_none_or(Vec::is_empty);
        has_no_exit && task["state"] == "backoff" && alloc["status"] == "pending"
    });
    assert!(is_found, "each agent has seen a life of it first");
    docker.docker(&["rm", "-f", "waits"]);
}

#[test]
fn container_in_each_documented_situation_is_shown_as_docker_inspect_has_it() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(mut docker) = Docker::start() else { skip_test!("no-docker") };
    let mut agent = Agent::with(docker.observed("docker"));
    let can = agent.metrics().one("allostat_capability", &[("feature", "kernel_ends")]).map(Sample::f64);
    if can != Some(1.0) {
        skip_test!("no-kernel-pass");
    }
    let all = situations();
    all.iter().for_each(|of| assert_documented(HEADING, of));
    assert_each_as_engine(&docker, &agent, &all);

    assert_waits_for_its_restart(&docker, &agent);

    assert_names(&docker, &agent, &[("shop-web-1", "shop"), ("search.1.x2", "search")]);
    let limit = || {
        let labels = [("alloc_id", "docker:updates")];
        agent.metrics().one("allostat_task_memory_limit_bytes", &labels).map(Sample::f64)
    };
    wait_for("the new limit", long(), || (limit() == Some(100_663_296.0)).then_some(()));
    // Neither a program of `docker exec` nor a container that never began is a workload.
    docker.docker(&["create", "--name", "created", "bb:1", "true"]);
    let names = all.iter().map(|of| of.name).chain(["flaps"]);
    let mut ids: Vec<String> = names.map(|name| format!("docker:{name}")).collect();
    ids.sort();
    let shown = agent.json("/v1/allocs");
    let shown = shown["allocs"].as_array().unwrap().iter().map(|alloc| alloc["id"].as_str().unwrap());
    // Those in a user's subtree are of another user on this host.
    let mut shown: Vec<_> = shown.filter(|id| !id.contains('/')).collect();
    shown.sort_unstable();
    assert_eq!(shown, ids);

    // A restart of the agent ends none and begins none. An engine without live restore stops all of them as it starts.
    let runs: Vec<&Situation> = all.iter().filter(|of| of.status == "running").collect();
    for is in ["restart of the agent, of what runs", "kill and start of the engine, without live restore"] {
        documented(HEADING, is);
    }
    let before = wait_for("their start times", long(), || start_times(&docker, &agent, &runs));
    agent.terminate();
    agent.start_again();
    assert_eq!(wait_for("the same start times", long(), || start_times(&docker, &agent, &runs)), before);
    runs.iter().for_each(|of| assert_as_engine(&docker, &agent, of));
    assert_is_found_waiting(&docker, &mut agent);
    let resumed = docker.docker(&["unpause", "paused"]);
    assert!(resumed.status.success(), "{resumed:?}");
    let (paused, runs): (Vec<_>, Vec<_>) = runs.into_iter().partition(|of| of.state == "paused");
    for of in paused {
        assert_as_engine(&docker, &agent, &Situation { state: "running", ..of.clone() });
        docker.docker(&["rm", "-f", of.name]);
    }
    docker.kill();
    docker.start_again();
    for of in &runs {
        let end = Some(("killed", 7));
        let stopped = Situation { status: "complete", state: "dead", end, lives: of.lives + 1, ..(*of).clone() };
        assert_as_engine(&docker, &agent, &stopped);
    }
    assert_over_both(&mut docker, &mut agent);
    agent.stop();
}
