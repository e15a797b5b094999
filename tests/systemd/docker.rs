//! A real Docker whose containers are scopes of systemd's, on cgroup v2.

use std::fs;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Exposition, Sample, how_many, patience, wait_for};
use crate::observed::docker::{AgentApi, MIB, find, long};
use crate::observed::situations::{
    Engine, IGNORES, Situation, assert_as_engine, assert_each_as_engine, assert_names, situations, start_times,
};
use crate::systemd::machine::{Agent, Unit, Who, here};
use crate::systemd::root::service;

/// Dropped, it takes its containers with it.
struct Daemon {
    _unit: Unit,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let all = docker(&["ps", "--all", "--quiet"]);
        let all = String::from_utf8_lossy(&all.stdout);
        docker(&[&["rm", "--force"], &*all.split_whitespace().collect::<Vec<_>>()].concat());
        Who::Root.clear(&["docker-*.scope"]);
    }
}

impl Engine for Daemon {
    const SOURCE: &str = "docker";
    fn start(&self, name: &str, options: &[&str], script: &str) -> Output {
        run(&[&["--detach", "--name", name], options, &["bb:1", "sh", "-c", script]].concat())
    }
    fn command(&self, args: &[&str]) -> Output {
        docker(args)
    }
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

fn docker(args: &[&str]) -> Output {
    Who::Root.command("docker").args(args).output().expect("it is there")
}

fn inspect(name: &str, format: &str) -> String {
    let output = docker(&["inspect", name, "--format", format]).stdout;
    String::from_utf8(output).expect("text").trim().to_owned()
}

/// Nothing but busybox.
pub fn rootfs() -> &'static Path {
    let rootfs = Path::new("/data/rootfs");
    fs::create_dir_all(rootfs.join("bin")).expect("root may");
    let busybox = rootfs.join("bin/busybox");
    // A container may run it.
    if !busybox.exists() {
        fs::copy("/bin/busybox", busybox).expect("root may");
    }
    for name in ["sh", "sleep", "dd"] {
        let link = rootfs.join("bin").join(name);
        if !link.exists() {
            std::os::unix::fs::symlink("busybox", link).expect("root may");
        }
    }
    rootfs
}

/// An image of that, in a daemon that leaves cgroups to systemd. The daemon ends if its containerd does not answer
/// within 15 s, which takes longer on a slow machine that reads it for the first time: then systemd starts it again.
fn start() -> Daemon {
    let rootfs = rootfs().display();
    let words = ["--iptables=false", "--ip6tables=false", "--bridge=none", "--storage-driver=vfs"];
    let driver = ["--exec-opt", "native.cgroupdriver=systemd"];
    // Fewer than the five starts in 10 s that systemd allows.
    let again = ["--property=Restart=always", "--property=RestartSec=3"];
    // As Docker's own unit: without the daemon its containerd and its containers run on.
    let unit =
        ["--property=Delegate=yes", "--property=KillMode=process", "--property=TasksMax=infinity", "--", "dockerd"];
    let daemon = Unit::run("docker", &[&again[..], &unit, &words, &driver].concat());
    let (began, limit) = (Instant::now(), Duration::from_secs(60) * patience());
    while !docker(&["version"]).status.success() {
        if began.elapsed() > limit {
            let journal = Who::Root.command("journalctl").args(["--no-pager", "-n", "60", "--unit=docker"]).output();
            let journal = journal.expect("journalctl is there").stdout;
            panic!("waited {limit:?} in vain for Docker to answer:\n{}", String::from_utf8_lossy(&journal));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Who::Root.run("sh", &["-c", &format!("tar -C {rootfs} -c . | docker import - bb:1")]);
    Daemon { _unit: daemon }
}

fn run(args: &[&str]) -> Output {
    // The loader of profiles is not there.
    docker(&[&["run", "--network=none", "--security-opt=apparmor=unconfined"], args].concat())
}

/// Found at its usual socket, with nothing configured.
#[test]
fn containers_in_systemd_scopes_have_the_names_values_and_ends_of_docker() {
    if !here() {
        skip_test!("no-systemd");
    }
    if !Path::new("/usr/bin/dockerd").exists() {
        skip_test!("no-docker");
    }
    let _daemon = start();
    let agent = service("UnsetEnvironment=ALLOSTAT_OBSERVE");
    let limit = Duration::from_secs(60) * patience();
    let held = run(&["--detach", "--name", "web-1", "--memory", "64m", "bb:1", "sleep", "1000"]);
    assert!(held.status.success(), "{held:?}");
    let alloc = wait_for("the container under its name", limit, || find(&agent, "docker:web-1"));
    assert_eq!((&alloc["name"], &alloc["source"]), (&"web-1".into(), &"docker".into()), "{alloc}");
    let value = |family: &str, name: &str| {
        agent.metrics().one(family, &[("alloc_id", &format!("docker:{name}"))]).map(Sample::u64)
    };
    let limit_bytes = wait_for("its values", limit, || value("allostat_task_memory_limit_bytes", "web-1"));
    assert_eq!(limit_bytes, 64 * MIB);
    let id = inspect("web-1", "{{.Id}}");
    assert!(Path::new("/sys/fs/cgroup/system.slice").join(format!("docker-{id}.scope")).exists(), "{id}");

    for (name, memory, code) in [("brief-0", "400m", 0), ("brief-3", "400m", 3), ("brief-99", "64m", 99)] {
        let script =
            format!("sleep 0.5; dd if=/dev/zero of=/dev/null bs=100M count=1 2>/dev/null || exit 99; exit {code}");
        run(&["--name", name, "--memory", memory, "bb:1", "sh", "-c", &script]);
        let id = format!("docker:{name}");
        let over = wait_for("its end", limit, || find(&agent, &id).filter(|alloc| !alloc["finished_at"].is_null()));
        let exit = &over["tasks"][name]["last_exit"];
        let reported = inspect(name, "{{.State.ExitCode}}");
        assert_eq!((exit["status"]["code"].to_string(), reported), (code.to_string(), code.to_string()), "{over}");
        let peak = wait_for("its peak", limit, || value("allostat_task_memory_peak_bytes", name));
        // The kernel ends `dd` where the limit is lower than what it touches; the shell goes on.
        let reached = if memory == "64m" { 60 * MIB..=64 * MIB } else { 100 * MIB..=120 * MIB };
        assert!(reached.contains(&peak), "{name}: {peak}");
    }
    Who::Root.systemctl(&["stop", "allostat.service"]);
}

/// An emulated processor takes so long to send the two signals of `docker restart -t 0` that the first one could be
/// obeyed; and each `sleep` is much of it.
fn in_a_guest(of: Situation) -> Situation {
    let script = if of.name == "restarts" { IGNORES } else { of.script.as_str() };
    let script = script.replace("sleep 0.1", "sleep 1");
    Situation { script, ..of }
}

/// Those of the table in docs/observed.md that need no restart of the engine.
///
/// Promise (Under systemd): A container in a systemd scope is in each situation shown as `docker inspect` has it
#[test]
fn container_in_a_systemd_scope_is_in_each_situation_as_docker_inspect_has_it() {
    if !here() {
        skip_test!("no-systemd");
    }
    if !Path::new("/usr/bin/dockerd").exists() {
        skip_test!("no-docker");
    }
    let daemon = start();
    // Twenty-six containers begin one after another here.
    let retention = "Environment=ALLOSTAT_RETENTION=1h ALLOSTAT_RETENTION_MAX=1h";
    let agent = service(&format!("UnsetEnvironment=ALLOSTAT_OBSERVE\n{retention}"));
    let all: Vec<Situation> = situations().into_iter().map(in_a_guest).collect();
    assert_each_as_engine(&daemon, &agent, &all);
    assert_names(&daemon, &agent, &[("shop-web-1", "shop"), ("search.1.x2", "search")]);
    let limit = || {
        let labels = [("alloc_id", "docker:updates")];
        agent.metrics().one("allostat_task_memory_limit_bytes", &labels).map(Sample::u64)
    };
    wait_for("the new limit", long(), || (limit() == Some(96 * MIB)).then_some(()));

    // A restart of the agent ends none and begins none.
    let runs: Vec<&Situation> = all.iter().filter(|of| of.status == "running").collect();
    let before = wait_for("their start times", long(), || start_times(&daemon, &agent, &runs));
    Who::Root.systemctl(&["restart", "allostat.service"]);
    agent.wait_ready();
    assert_eq!(wait_for("the same start times", long(), || start_times(&daemon, &agent, &runs)), before);
    runs.iter().for_each(|of| assert_as_engine(&daemon, &agent, of));
    Who::Root.systemctl(&["stop", "allostat.service"]);
}

/// A job of one container, which runs this script.
fn managed(name: &str, kind: &str, memory: u64, script: &str) -> String {
    format!(
        r#"job "{name}" {{
  type = "{kind}"
  group "g" {{
    reschedule {{
      attempts=0
      unlimited=false
    }}
    restart {{
      attempts = 0
      mode     = "fail"
    }}
    task "main" {{
      driver = "docker"
      config {{
        image        = "bb:1"
        network_mode = "none"
        security_opt = ["apparmor=unconfined"]
        command      = "sh"
        args         = ["-c", {script:?}]
      }}
      resources {{
        memory = {memory}
      }}
    }}
  }}
}}
"#
    )
}

/// An agent whose docker driver runs jobs in the daemon.
struct Managed {
    agent: Agent,
}

impl Managed {
    fn start() -> Managed {
        let agent = service("");
        wait_for("the driver to be healthy", long(), || {
            let node = agent.json("/v1/node");
            let driver = node["drivers"].as_array()?.iter().find(|driver| driver["name"] == "docker")?.clone();
            (driver["health"] == "healthy").then_some(())
        });
        Managed { agent }
    }
    fn submit(&self, name: &str, job: &str) {
        let file = Path::new("/tmp").join(format!("{name}.hcl"));
        fs::write(&file, job).expect("/tmp must be writable");
        self.agent.cli(&["run", "--detach", file.to_str().expect("UTF-8")]).ok();
    }
    fn alloc(&self, job: &str) -> Option<Value> {
        let all = self.agent.json("/v1/allocs");
        let id = all["allocs"].as_array()?.iter().find(|alloc| alloc["job"] == job)?["id"].as_str()?.to_owned();
        Some(self.agent.json(&format!("/v1/allocs/{id}")))
    }
    #[track_caller]
    fn wait_running(&self, job: &str) -> Value {
        let is_running = |alloc: &Value| alloc["tasks"]["main"]["state"] == "running";
        wait_for("the container to run", long(), || self.alloc(job).filter(is_running))
    }
    #[track_caller]
    fn wait_end(&self, job: &str) -> Value {
        wait_for("its end", long(), || self.alloc(job).filter(|alloc| !alloc["finished_at"].is_null()))
    }
    /// SIGKILL to the agent, which systemd starts again.
    fn kill(&self) {
        let old = Who::Root.property("allostat.service", "MainPID");
        Who::Root.systemctl(&["kill", "--signal=KILL", "allostat.service"]);
        wait_for("another agent", long(), || {
            let now = Who::Root.property("allostat.service", "MainPID");
            (now != "0" && now != old).then_some(())
        });
        self.agent.wait_ready();
    }
}

fn id_of(alloc: &Value) -> &str {
    alloc["id"].as_str().expect("an ID")
}
/// The container of the task of [`managed`].
fn container_of(alloc: &Value) -> String {
    format!("main-{}", id_of(alloc))
}

/// Each time another container is about to run: its job was accepted, its container was made, or its task runs.
fn assert_outlive_kills_of_the_agent(managed_jobs: &Managed) {
    let held = container_of(&managed_jobs.wait_running("held"));
    let started = inspect(&held, "{{.State.StartedAt}}");
    let kills = how_many(3, 10);
    let job = |kill: usize| format!("ends-{kill}");
    for kill in 0..kills {
        let job = job(kill);
        managed_jobs.submit(&job, &managed(&job, "batch", 64, "sleep 3; exit 7"));
        let alloc = managed_jobs.alloc(&job).expect("an accepted job has an alloc");
        let state = || managed_jobs.alloc(&job).expect("it has an alloc")["tasks"]["main"]["state"].clone();
        let is_due = || match kill % 3 {
            0 => true,
            1 => !inspect(&container_of(&alloc), "{{.Id}}").is_empty() || state() == "dead",
            _ => state() != "pending",
        };
        wait_for("the moment of the kill", long(), || is_due().then_some(()));
        managed_jobs.kill();
        managed_jobs.wait_running("held");
    }
    for kill in 0..kills {
        let alloc = managed_jobs.wait_end(&job(kill));
        let task = &alloc["tasks"]["main"];
        let ended = (&task["last_exit"]["status"]["code"], task["exits"].as_array().map(Vec::len));
        assert_eq!(ended, (&7.into(), Some(1)), "{alloc}");
    }
    assert_eq!(inspect(&held, "{{.State.StartedAt}}"), started, "it was never started again");
}

/// They end without an agent: one that runs removes what has ended.
fn assert_ends_are_those_of_inspect(managed_jobs: &Managed) {
    let dd = "dd if=/dev/zero of=/dev/null bs=100M count=1 2>/dev/null";
    // Whether the OOM killer comes: for the main process, and for a child of one that goes on.
    let jobs = [
        ("late-zero", "exit 0".to_owned(), false),
        ("late-code", "exit 42".to_owned(), false),
        ("late-oom", format!("exec {dd}"), true),
        ("late-child", format!("{dd}; exit 5"), true),
    ];
    for (name, script, _) in &jobs {
        let script = format!("until [ -e /local/go ]; do sleep 0.1; done; {script}");
        managed_jobs.submit(name, &managed(name, "batch", 64, &script));
    }
    let allocs = jobs.each_ref().map(|(name, ..)| managed_jobs.wait_running(name));
    Who::Root.systemctl(&["stop", "allostat.service"]);
    for alloc in &allocs {
        let local = managed_jobs.agent.data.join("alloc").join(id_of(alloc)).join("main/local");
        fs::write(local.join("go"), "").expect("root may");
    }
    let inspected = |alloc: &Value| {
        let state = inspect(&container_of(alloc), "{{.State.Status}} {{.State.ExitCode}} {{.State.OOMKilled}}");
        let words: Vec<&str> = state.split(' ').collect();
        (words[0] == "exited").then(|| (words[1].parse::<i64>().expect("a code"), words[2] == "true"))
    };
    let reported = allocs.each_ref().map(|alloc| wait_for("its end", long(), || inspected(alloc)));
    Who::Root.systemctl(&["start", "allostat.service"]);
    managed_jobs.agent.wait_ready();
    for ((name, _, may_be_killed), (code, is_oom_killed)) in jobs.iter().zip(reported) {
        let alloc = managed_jobs.wait_end(name);
        let exit = &alloc["tasks"]["main"]["exits"][0];
        assert_eq!(exit["status"]["code"], code, "{name}: {exit}");
        let kills = exit["oom_kills"].as_u64().unwrap_or(0);
        // Docker may miss an OOM kill; it invents none.
        assert!((kills > 0 || !is_oom_killed) && (kills == 0 || *may_be_killed), "{name}: {is_oom_killed}, {exit}");
        let outcome = match code {
            0 => "success",
            137 if kills > 0 => "oom",
            _ => "error",
        };
        assert_eq!(exit["outcome"], outcome, "{name}: {exit}");
    }
}

/// SIGKILL to the daemon alone, which systemd starts again. Without live restore it ends what ran before; the restart
/// policy starts that again.
fn assert_outlive_a_kill_of_the_engine(managed_jobs: &Managed) {
    let restarted = managed("again", "service", 64, "exec sleep 1000");
    managed_jobs.submit("again", &restarted.replace("attempts = 0", "attempts = 5\n delay = \"1s\""));
    let alloc = managed_jobs.wait_running("again");
    let first = inspect(&container_of(&alloc), "{{.Id}}");
    let pid = || Who::Root.property("docker.service", "MainPID");
    let old = pid();
    Who::Root.run("kill", &["-KILL", &old]);
    wait_for("another engine", long(), || {
        let now = pid();
        (now != "0" && now != old && docker(&["version"]).status.success()).then_some(())
    });
    let again = wait_for("its second attempt", long(), || {
        managed_jobs.alloc("again").filter(|alloc| {
            let task = &alloc["tasks"]["main"];
            task["state"] == "running" && task["exits"].as_array().map(Vec::len) == Some(1)
        })
    });
    let second = inspect(&container_of(&again), "{{.Id}} {{.State.Status}}");
    assert!(!second.starts_with(&first) && second.ends_with(" running"), "{first}, {second}");
    let filter = format!("name={}", container_of(&again));
    let all = docker(&["ps", "--all", "--quiet", "--filter", &filter]).stdout;
    assert_eq!(String::from_utf8_lossy(&all).lines().count(), 1, "nothing is left of the first attempt");
}

/// What the docker driver runs: in slices of its own, with the values of the kernel and the ends of `docker inspect`.
/// No kill of agent or engine loses a container or starts one twice.
#[test]
fn containers_of_the_docker_driver_have_own_slices_and_outlive_agents_and_engine() {
    if !here() {
        skip_test!("no-systemd");
    }
    if !Path::new("/usr/bin/dockerd").exists() {
        skip_test!("no-docker");
    }
    let _daemon = start();
    let managed_jobs = Managed::start();
    let agent = &managed_jobs.agent;
    let slice_of = |id: &str| format!("allostat-{}_main.slice", id.replace('-', ""));
    let below = |id: &str| Path::new("/sys/fs/cgroup/allostat.slice").join(slice_of(id));

    let script = "dd if=/dev/zero of=/dev/null bs=30M count=1 2>/dev/null; exec sleep 1000";
    managed_jobs.submit("held", &managed("held", "service", 64, script));
    let alloc = managed_jobs.wait_running("held");
    let (id, name) = (id_of(&alloc), container_of(&alloc));
    assert_eq!(inspect(&name, "{{.HostConfig.CgroupParent}}"), slice_of(id));
    let scope = below(id).join(format!("docker-{}.scope", inspect(&name, "{{.Id}}")));
    let file = |name: &str| fs::read_to_string(scope.join(name)).unwrap_or_default().trim().to_owned();
    assert_eq!(file("memory.max"), (64 * MIB).to_string());
    let value = |family: &str| agent.metrics().one(family, &[("alloc_id", id)]).map(Sample::u64);
    assert_eq!(wait_for("its limit", long(), || value("allostat_task_memory_limit_bytes")), 64 * MIB);
    wait_for("its peak to be that of its cgroup", long(), || {
        let kernel = file("memory.peak").parse::<u64>().ok().filter(|peak| *peak >= 30 * MIB)?;
        (value("allostat_task_memory_peak_bytes")? == kernel).then_some(())
    });
    assert_outlive_kills_of_the_agent(&managed_jobs);
    assert!(scope.exists());

    let dd = "dd if=/dev/zero of=/dev/null bs=100M count=1 2>/dev/null";
    for (job, memory, script, outcome, code) in [
        ("code", 400, format!("{dd}; exit 3"), "error", 3),
        ("oom", 64, format!("exec {dd}"), "oom", 137),
        ("child", 64, format!("{dd}; exit 0"), "success", 0),
    ] {
        managed_jobs.submit(job, &managed(job, "batch", memory, &script));
        let over = managed_jobs.wait_end(job);
        let exit = over["tasks"]["main"]["exits"].as_array().and_then(|exits| exits.last()).expect("an exit");
        assert_eq!((&exit["outcome"], &exit["status"]["code"]), (&outcome.into(), &code.into()), "{over}");
        let kills = exit["oom_kills"].as_u64().unwrap_or(0);
        assert_eq!(kills > 0, memory == 64, "{over}");
        let peak = exit["usage"]["memory_peak_bytes"].as_u64().unwrap_or_else(|| panic!("{job} has no peak: {over}"));
        // The slice also counts what the runtime needs beside the container.
        let reached = if memory == 64 { 60 * MIB..=65 * MIB } else { 100 * MIB..=120 * MIB };
        assert!(reached.contains(&peak), "{job}: {peak}");
        wait_for("its slice to go", long(), || (!below(id_of(&over)).exists()).then_some(()));
    }
    assert_ends_are_those_of_inspect(&managed_jobs);
    assert_outlive_a_kill_of_the_engine(&managed_jobs);
    agent.cli(&["stop", "--all"]).ok();
    wait_for("the slice to go", long(), || (!below(id).exists()).then_some(()));
    let left = || String::from_utf8_lossy(&docker(&["ps", "-aq"]).stdout).trim().is_empty().then_some(());
    wait_for("the containers to go", long(), left);
    Who::Root.systemctl(&["stop", "allostat.service"]);
}
