//! A real Podman beside a real agent: names, values and ends are those that Podman reports.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::common::{Agent, AgentOptions, Cgroups, Sample, is_root, part_file, program, wait_for};
use crate::observed::docker::{MIB, find, long};
use crate::observed::inside::Inside;
use crate::observed::situations::{
    Engine, Situation, assert_as_engine, assert_names, begin_each, documented, ended, situations,
};

struct Podman {
    inside: Inside,
    podman: PathBuf,
    runc: PathBuf,
    cgroups: Cgroups,
}

impl Podman {
    /// `None`: this machine has no Podman with runc (crun takes no cgroup v1 beside a cgroup2 tree), or nothing to put
    /// into a container.
    fn start() -> Option<Podman> {
        let (podman, runc) = (program("podman")?, program("runc")?);
        // The clean-up process of a container is started by conmon, which hands no `LD_LIBRARY_PATH` on.
        let libraries = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"].map(|at| part_file("podman", at));
        let inside = Inside::begin(libraries.into_iter().flatten())?;
        Some(Podman { inside, podman, runc, cgroups: Cgroups::new() })
    }

    fn podman(&self, args: &[&str]) -> Output {
        let mut command = self.inside.command(&self.podman);
        self.global(&mut command);
        command.args(args).output().unwrap()
    }
    fn global(&self, command: &mut Command) {
        command.arg("--runtime").arg(&self.runc).args(["--cgroup-manager", "cgroupfs", "--storage-driver", "vfs"]);
        command.args(["--events-backend", "file"]);
    }
    fn run(&self, args: &[&str], what: &[&str]) -> Output {
        // No process here may raise limits as Podman does by itself.
        let limits = ["run", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000", "--network", "none"];
        let (parent, rootfs) = (format!("--cgroup-parent={}", self.cgroups.parent), self.inside.rootfs());
        let place = [parent.as_str(), "--rootfs", rootfs.to_str().unwrap()];
        self.podman(&[&limits[..], args, &place[..], what].concat())
    }
}

impl Podman {
    fn agent(&self) -> Agent {
        let env = [("ALLOSTAT_OBSERVE", "true".to_owned()), ("ALLOSTAT_OBSERVE_SOURCES", "podman".to_owned())];
        let env = env.map(|(name, value)| (name.to_owned(), value)).to_vec();
        Agent::with(AgentOptions { env, binary: Some(self.inside.agent()), ..AgentOptions::default() })
    }
    /// Its API, which knows who asked for an end.
    fn serve(&self) -> Service {
        let made = self.inside.command(Path::new("mkdir")).args(["-p", "/run/podman"]).status();
        assert!(made.unwrap().success());
        let mut command = self.inside.command(&self.podman);
        self.global(&mut command);
        command.args(["system", "service", "--time", "0", SOCKET]).stdin(Stdio::null()).stdout(Stdio::null());
        let service = Service(command.spawn().unwrap());
        wait_for("the API of Podman", long(), || {
            let there = self.inside.command(Path::new("test")).args(["-S", "/run/podman/podman.sock"]).status();
            there.unwrap().success().then_some(())
        });
        service
    }
}

const SOCKET: &str = "unix:///run/podman/podman.sock";

struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        // `nsenter` has become the service itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Engine for Podman {
    const SOURCE: &str = "podman";
    fn start(&self, name: &str, options: &[&str], script: &str) -> Output {
        self.run(&[&["--detach", "--name", name], options].concat(), &["sh", "-c", script])
    }
    fn command(&self, args: &[&str]) -> Output {
        self.podman(args)
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        self.podman(&["rm", "--all", "--force", "--time", "0"]);
    }
}

#[test]
fn containers_have_the_names_values_and_ends_that_podman_reports() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(podman) = Podman::start() else { skip_test!("no-podman") };
    let agent = podman.agent();
    let started = podman.run(&["--detach", "--name", "web-1", "--memory", "64m"], &["sleep", "1000"]);
    if !started.status.success() {
        // Rights that a container needs and this machine does not give.
        eprintln!("{started:?}");
        skip_test!("no-podman");
    }
    let alloc = wait_for("the container under its name", long(), || find(&agent, "podman:web-1"));
    assert_eq!((&alloc["name"], &alloc["job"], &alloc["source"]), (&"web-1".into(), &"web-1".into(), &"podman".into()));
    let value = |family: &str, id: &str| agent.metrics().one(family, &[("alloc_id", id)]).map(Sample::f64);
    let limit = wait_for("its values", long(), || value("allostat_task_memory_limit_bytes", "podman:web-1"));
    assert_eq!(limit, 67_108_864.0);
    let refused = agent.cli(&["stop", "web-1"]);
    assert!(refused.code != Some(0) && refused.stderr.contains("podman stop web-1"), "{refused:?}");

    for n in 0..5 {
        let (name, limit) = (format!("brief-{n}"), if n == 4 { "64m" } else { "400m" });
        let dd = "dd if=/dev/zero of=/dev/null bs=200M count=1 2>/dev/null";
        let script = format!("sleep 0.2; {dd} || exit 99; exit {n}");
        podman.run(&["--name", &name, "--memory", limit], &["sh", "-c", &script]);
    }
    let can = value_of_capability(&agent, "kernel_ends");
    for n in 0..5 {
        let name = format!("brief-{n}");
        let id = format!("podman:{name}");
        let over = wait_for("its end", long(), || find(&agent, &id).filter(|alloc| !alloc["finished_at"].is_null()));
        let exit = &over["tasks"][name.as_str()]["last_exit"];
        let output = podman.podman(&["inspect", &name, "--format", "{{.State.ExitCode}}"]);
        let output = String::from_utf8(output.stdout).unwrap();
        assert_eq!(exit["status"]["code"].to_string(), output.trim(), "{name}: {over}");
        // The kernel ends `dd` where the limit is lower than what it touches; the shell goes on.
        if can == Some(1.0) {
            let peak = agent.metrics().u64("allostat_task_memory_peak_bytes", &[("alloc_id", &id)]);
            let reached = if n == 4 { 60 * MIB..=64 * MIB } else { 200 * MIB..=230 * MIB };
            assert!(reached.contains(&peak), "{name}: {peak}");
        }
    }
    agent.stop();
}

fn value_of_capability(agent: &Agent, feature: &str) -> Option<f64> {
    agent.metrics().one("allostat_capability", &[("feature", feature)]).map(Sample::f64)
}

/// Of Docker alone, or with limits that Podman 4.3 cannot change on cgroup v1.
const OF_DOCKER_ALONE: [&str; 2] = ["updates", "search.1.x2"];
/// Podman 4.3 reports a stop as an event only if its clean-up of the container has not run first, and nowhere else; a
/// kill may be reported long after the end. Without the event an end has the outcome of its exit code: both are right.
const REQUESTED: [&str; 9] =
    ["obeys", "interrupted", "stubborn", "always", "again", "killed", "asked", "removed", "restarts"];

/// The page has each of these.
fn assert_page() {
    const HEADING: &str = "### A container of Podman in each situation";
    for (is, status, end) in [
        ("runs, `podman exec`, `podman kill --signal HUP`", "`running`", ""),
        ("`podman pause`", "`running`, the task `paused`", ""),
        ("`podman rename`", "`name` follows", ""),
        ("ends with a code, or by a signal", "`complete` for 0,", "`success` or `error`"),
        ("`podman run --rm`", "the same", "the same"),
        (
            "`podman stop`, `kill`, `restart`, `rm --force`",
            "`complete` if Podman",
            "`killed`, otherwise `error`; its own",
        ),
        ("OOM kill of its first process", "`failed`", "`oom`, 137"),
        ("OOM kill of a child", "by the code", "with the OOM kill"),
        ("`--restart`, ends with 4", "`failed`", "`error`, 4; each life"),
    ] {
        let row = documented(HEADING, is);
        assert!(row.contains(status) && row.contains(end), "{row}");
    }
}

/// With the outcome that its end has: by the request, or by the exit code.
fn as_reported(agent: &Agent, of: &Situation) -> Situation {
    let (killed, code) = of.end.unwrap();
    assert_eq!(killed, "killed");
    let outcome = wait_for(of.is, long(), || {
        // The list has no more than the last exit.
        let alloc = agent.json(&format!("/v1/allocs/podman:{}", of.name));
        let task = alloc["tasks"].as_object()?.values().next()?.clone();
        let exits = task["exits"].as_array().filter(|exits| exits.len() == of.lives)?;
        exits.last()?["outcome"].as_str().map(str::to_owned)
    });
    if outcome == killed {
        return of.clone();
    }
    // Of what runs again, the alloc has the state of its task.
    let status = if of.state == "dead" { "failed" } else { of.status };
    Situation { end: Some(("error", code)), status, ..of.clone() }
}

/// Podman has recorded this request before the container ends, which ends only when the test makes a file in its root.
fn assert_recorded_request_is_reported(podman: &Podman, agent: &Agent) {
    const SCRIPT: &str = "trap 'while ! [ -e /end ]; do sleep 0.1; done; exit 7' TERM; while true; do sleep 0.1; done";
    let of = ended("`podman kill`, ends later", "later", SCRIPT, ("killed", 7));
    let started = podman.start(of.name, of.options, &of.script);
    assert!(started.status.success(), "{started:?}");
    wait_for(of.is, long(), || find(agent, &podman.id(of.name)));
    let killed = podman.podman(&["kill", "--signal", "TERM", of.name]);
    assert!(killed.status.success(), "{killed:?}");
    assert_eq!(podman.inspect(of.name, "{{.State.Status}}"), "running");
    std::fs::write(podman.inside.rootfs().join("end"), "").unwrap();
    assert_as_engine(podman, agent, &of);
}

/// Promise (Observed workloads): A container of a real Podman in each documented situation is shown as its `inspect`
/// has it
#[test]
fn container_of_podman_in_each_documented_situation_is_as_its_inspect_has_it() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(podman) = Podman::start() else { skip_test!("no-podman") };
    let _service = podman.serve();
    let agent = podman.agent();
    if value_of_capability(&agent, "kernel_ends") != Some(1.0) {
        skip_test!("no-kernel-pass");
    }
    let tried = podman.start("tried", &["--rm"], "exit 0");
    if !tried.status.success() {
        // Rights that a container needs and this machine does not give.
        eprintln!("{tried:?}");
        skip_test!("no-podman");
    }
    assert_page();
    let all: Vec<Situation> = situations().into_iter().filter(|of| !OF_DOCKER_ALONE.contains(&of.name)).collect();
    begin_each(&podman, &agent, &all);
    for of in &all {
        let is_requested = REQUESTED.contains(&of.name);
        assert_as_engine(&podman, &agent, &if is_requested { as_reported(&agent, of) } else { of.clone() });
    }
    assert_names(&podman, &agent, &[("shop-web-1", "shop")]);
    assert_recorded_request_is_reported(&podman, &agent);
    agent.stop();
}
