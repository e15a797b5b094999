//! What is shown of a container of containerd in each situation, compared with its `ctr task ls` and `ctr events`: the
//! table of docs/observed.md.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use allostat::model::moment::moment;
use serde_json::{Value, json};

use super::Containerd;
use crate::common::{Agent, AgentOptions, Cgroups, Sample, is_root, program, wait_for};
use crate::observed::docker::{find, long};
use crate::observed::situations::{
    Engine, FILLS, IGNORES, Inspected, OBEYS, Situation, assert_as_engine, assert_documented, assert_each_as_engine,
    documented, ended, running,
};

const HEADING: &str = "### A container of containerd in each situation";
/// No other containerd has one of this name.
const SPACE: &str = "allostat-test-situations";
/// A parent of cgroups, which has the name of no namespace.
const PARENT: &str = "allostat-test-parent";
/// Of a container with the ID below that parent.
const ID: &str = "5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e";
const PLACE: &str = "/allostat-test-parent/5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e";
const IMAGE: &str = "registry.example/team/box:1";
const RESTARTED: &str = "containerd.io/restart.status=running";

/// A containerd, and its events since the start.
struct Ctr {
    containerd: Containerd,
    runc: PathBuf,
    events: Child,
}

impl Ctr {
    fn start() -> Option<Ctr> {
        let (runc, containerd) = (program("runc")?, Containerd::start(&[SPACE, PARENT])?);
        let events = follow(&containerd);
        let ctr = Ctr { containerd, runc, events };
        ctr.ctr(&["namespaces", "create", SPACE]);
        ctr.wait_for_events();
        Some(ctr)
    }
    fn ctr(&self, args: &[&str]) -> Output {
        self.containerd.ctr(&[&["--namespace", SPACE], args].concat())
    }
    /// Labels of a namespace are events too.
    fn wait_for_events(&self) {
        let mut n = 0;
        let before = self.events("/namespaces/update").len();
        wait_for("its events", long(), || {
            n += 1;
            self.ctr(&["namespaces", "label", SPACE, &format!("n={n}")]);
            (self.events("/namespaces/update").len() > before).then_some(())
        });
    }
    fn kill_and_start_again(&mut self) {
        self.containerd.kill_and_start_again();
        let _ = self.events.kill();
        let _ = self.events.wait();
        self.events = follow(&self.containerd);
        self.wait_for_events();
    }

    /// With this topic, in their order.
    fn events(&self, topic: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(events_file(&self.containerd)).unwrap();
        // Date, time, zone and its name, namespace, topic, content.
        let words = text.lines().map(|line| line.splitn(7, ' ').collect::<Vec<_>>());
        let its = words.filter(|words| words.len() == 7 && words[4] == SPACE && words[5] == topic);
        its.map(|words| {
            let mut event: Value = serde_json::from_str(words[6]).unwrap();
            event["at"] = format!("{}T{}Z", words[0], words[1]).into();
            event
        })
        .collect()
    }
    fn of(&self, topic: &str, name: &str) -> Vec<Value> {
        self.events(topic).into_iter().filter(|event| event["container_id"] == name).collect()
    }
    /// Code and time of each end of its first process.
    fn exits(&self, name: &str) -> Vec<(u64, u64)> {
        let exits = self.of("/tasks/exit", name).into_iter().filter(|exit| exit["id"] == name);
        // The code 0 is left out.
        exits.map(|exit| (exit["exit_status"].as_u64().unwrap_or(0), time(&exit["exited_at"]))).collect()
    }
    /// `None`: it has no task.
    fn status(&self, name: &str) -> Option<String> {
        self.listed(name, 2)
    }
    /// A column of the list of tasks: name, process, status.
    fn listed(&self, name: &str, column: usize) -> Option<String> {
        let list = String::from_utf8(self.ctr(&["task", "list"]).stdout).unwrap();
        let mut rows = list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        rows.find(|row| row[0] == name).map(|row| row[column].to_owned())
    }
    fn kill_shim(&self, name: &str) -> Output {
        let words = ["-namespace", SPACE, "-id", name].join("\0");
        let is_shim =
            |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains(&words));
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let mut pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let pid = pids.find(is_shim).expect("its shim runs");
        Command::new("kill").args(["-KILL", &pid.to_string()]).output().unwrap()
    }
    /// As the shim does for `nerdctl update`.
    fn update(&self, args: &[&str]) -> Output {
        let mut command = self.containerd.inside.command(&self.runc);
        command.args(["--root", &format!("/run/containerd/runc/{SPACE}"), "update"]).args(args).output().unwrap()
    }
}

impl Drop for Ctr {
    fn drop(&mut self) {
        let _ = self.events.kill();
        let _ = self.events.wait();
    }
}

fn agent(containerd: &Containerd) -> Agent {
    let env = [("ALLOSTAT_OBSERVE", "true"), ("ALLOSTAT_OBSERVE_SOURCES", "containerd,kubernetes")];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    Agent::with(AgentOptions { env, binary: Some(containerd.inside.agent()), ..AgentOptions::default() })
}

fn events_file(containerd: &Containerd) -> PathBuf {
    containerd.inside.dir.path().join("events")
}

fn follow(containerd: &Containerd) -> Child {
    let file = std::fs::File::options().create(true).append(true).open(events_file(containerd)).unwrap();
    let mut command = containerd.inside.command(&containerd.ctr);
    command.args(["--address", super::SOCKET, "events"]).stdin(Stdio::null()).stdout(file);
    command.stderr(Stdio::null()).spawn().unwrap()
}

/// An ID is cut.
fn task(name: &str) -> &str {
    if name == ID { &ID[..12] } else { name }
}

/// In nanoseconds since 1970.
fn time(text: &Value) -> u64 {
    moment(text.as_str().unwrap()).unwrap().0
}

impl Engine for Ctr {
    const SOURCE: &str = "containerd";
    fn id(&self, name: &str) -> String {
        format!("containerd:{SPACE}/{}", task(name))
    }
    fn start(&self, name: &str, options: &[&str], script: &str) -> Output {
        let rootfs = self.containerd.inside.rootfs();
        let place = [rootfs.to_str().unwrap(), name, "/bin/sh", "-c", script];
        self.ctr(&[&["run", "--detach", "--rootfs"], options, &place].concat())
    }
    fn command(&self, args: &[&str]) -> Output {
        match args {
            ["update", rest @ ..] => self.update(rest),
            ["kill shim", name] => self.kill_shim(name),
            ["task", "delete", name] => {
                wait_for("it to be stopped", long(), || (self.status(name)? == "STOPPED").then(|| self.ctr(args)))
            }
            _ => self.ctr(args),
        }
    }
    fn inspected(&self, name: &str) -> Option<Inspected> {
        let code = self.exits(name).last().map_or(0, |exit| exit.0);
        let state = match self.status(name).as_deref() {
            Some("RUNNING") => "running",
            Some("PAUSED") => "paused",
            Some("STOPPED") | None => "dead",
            Some(other) => panic!("{name} is {other}"),
        };
        let started = self.of("/tasks/start", name);
        let last = time(&started.last()?["at"]);
        let oom = self.of("/tasks/oom", name).iter().any(|event| time(&event["at"]) > last);
        Some(Inspected { state, code, oom, restarts: started.len() - 1 })
    }
}

fn situations() -> Vec<Situation> {
    const KILL: &[&str] = &["task", "kill", "--signal", "KILL", "%"];
    let killed = |is, name, then| Situation { then, ..ended(is, name, IGNORES, ("error", 137)) };
    vec![
        running("runs", "runs", &[]),
        Situation { state: "paused", ..running("`ctr task pause`", "paused", &[&["task", "pause", "%"]]) },
        running("`ctr task pause`, `resume`", "resumed", &[&["task", "pause", "%"], &["task", "resume", "%"]]),
        running("`ctr task exec`", "executes", &[&["task", "exec", "--exec-id", "e", "%", "/bin/sh", "-c", ":"]]),
        Situation { options: &["--memory-limit=67108864"], ..running("`nerdctl update`", "updates", &[UPDATE]) },
        running("`ctr task kill --signal HUP`, handled", "reloads", &[&["task", "kill", "--signal", "HUP", "%"]]),
        Situation {
            script: IGNORES.into(),
            ..running("`ctr task kill`, ignored", "ignores", &[&["task", "kill", "%"]])
        },
        ended("ends with 0", "well", "sleep 0.3", ("success", 0)),
        ended("ends with 3", "fails", "sleep 0.3; exit 3", ("error", 3)),
        ended("ends with 3 at once", "brief", "exit 3", ("error", 3)),
        Situation { status: "complete", ..ended("ends with 143", "terminated", "sleep 0.3; exit 143", ("error", 143)) },
        ended("crashes with SIGSEGV", "crashes", "sh -c 'kill -SEGV $$'; exit $?", ("error", 139)),
        Situation {
            then: &[&["task", "delete", "%"]],
            ..ended("ends with 4, `ctr task delete`", "deleted", "sleep 0.5; exit 4", ("error", 4))
        },
        Situation {
            options: &["--cgroup", PLACE],
            ..ended(
                "below a parent (`nerdctl run --cgroup-parent`), ends with 6",
                ID,
                "sleep 0.5; exit 6",
                ("error", 6),
            )
        },
        Situation { then: &[&["task", "kill", "%"]], ..ended("`ctr task kill`, obeyed", "obeys", OBEYS, ("error", 7)) },
        killed("`ctr task kill --signal KILL`", "killed", &[KILL]),
        killed("`ctr task delete --force`", "removed", &[&["task", "delete", "--force", "%"]]),
        killed("its shim is killed", "orphaned", &[&["kill shim", "%"]]),
        Situation {
            options: &["--memory-limit=33554432"],
            ..ended("OOM kill of its first process", "oom", &format!("exec {FILLS}"), ("oom", 137))
        },
        Situation {
            options: &["--memory-limit=33554432"],
            ..ended("OOM kill of a child, ends with 0", "child", &format!("{FILLS}; sleep 1; exit 0"), ("success", 0))
        },
        Situation {
            then: &[KILL, &["task", "delete", "%"], &["task", "start", "--detach", "%"]],
            end: Some(("error", 137)),
            lives: 1,
            ..running("killed, `ctr task delete`, `ctr task start`", "again", &[])
        },
    ]
}

const UPDATE: &[&str] = &["update", "--memory", "100663296", "%"];

/// Each end by its code and, where the shim reports it, its time.
fn assert_ends_are_the_events(ctr: &Ctr, agent: &Agent, name: &str) {
    let id = ctr.id(name).replace('/', "%2F");
    let alloc: Value = agent.json(&format!("/v1/allocs/{id}"));
    let exits = alloc["tasks"][task(name)]["exits"].as_array().cloned().unwrap_or_default();
    let events = ctr.exits(name);
    let shown = |exit: &Value| (exit["status"]["code"].as_u64().unwrap(), exit["finished_at"].as_u64().unwrap());
    let shown: Vec<_> = exits.iter().map(shown).collect();
    let codes = |of: &[(u64, u64)]| of.iter().map(|(code, _)| *code).collect::<Vec<_>>();
    assert_eq!(codes(&shown), codes(&events), "{name}");
    if ctr.status(name).as_deref() == Some("STOPPED") {
        assert_eq!(shown.last(), events.last(), "{name}: the exit of a task that is kept is that of its shim");
    }
}

/// containerd's own restart monitor, which `nerdctl run --restart` uses.
fn assert_crash_loop(ctr: &Ctr, agent: &Agent) {
    let is = "`nerdctl run --restart always`, ends with 4";
    let row = documented(HEADING, is);
    assert!(row.contains("| `failed`") && row.contains("| `error`, 4"), "{row}");
    let started = ctr.start("loops", &["--label", RESTARTED], "sleep 1; exit 4");
    assert!(started.status.success(), "{started:?}");
    wait_for("three lives", long(), || (ctr.exits("loops").len() >= 3).then_some(()));
    let stopped = ctr.ctr(&["container", "label", "loops", "containerd.io/restart.status="]);
    assert!(stopped.status.success(), "{stopped:?}");
    let id = ctr.id("loops");
    let until = Instant::now() + long();
    loop {
        let alloc: Value = agent.json(&format!("/v1/allocs/{}", id.replace('/', "%2F")));
        let exits = alloc["tasks"]["loops"]["exits"].as_array().cloned().unwrap_or_default();
        let codes: Vec<_> = exits.iter().map(|exit| exit["status"]["code"].as_u64().unwrap()).collect();
        let reported: Vec<_> = ctr.exits("loops").into_iter().map(|(code, _)| code).collect();
        let restarts = [("alloc_id", &*id), ("reason", "failure")];
        let restarts = agent.metrics().one("allostat_task_restarts_total", &restarts).map(Sample::f64);
        let starts = ctr.of("/tasks/start", "loops").len();
        if alloc["status"] == "failed" && codes == reported && restarts == Some((starts - 1) as f64) {
            return;
        }
        assert!(Instant::now() < until, "{is}: {restarts:?} of {starts} starts, {reported:?}: {alloc:#}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// It has no task that `ctr task ls` could list.
fn assert_removed_with_its_end(ctr: &Ctr, agent: &Agent) {
    let row = documented(HEADING, "`ctr run --rm`, ends with 5");
    assert!(row.contains("| `failed` | `error`, 5"), "{row}");
    let rootfs = ctr.containerd.inside.rootfs();
    let ran =
        ctr.ctr(&["run", "--rm", "--rootfs", rootfs.to_str().unwrap(), "leaves", "/bin/sh", "-c", "sleep 1; exit 5"]);
    assert_eq!(ran.status.code(), Some(5), "{ran:?}");
    wait_for("its end", long(), || find(agent, &ctr.id("leaves")).filter(|alloc| alloc["status"] == "failed"));
    assert_ends_are_the_events(ctr, agent, "leaves");
}

/// The kernel reports the end of what is left: killed by the shim.
fn assert_in_pid_namespace_of_the_host(ctr: &Ctr, agent: &Agent) {
    let is = "`--pid host`, ends with 3, its child is killed";
    let row = documented(HEADING, is);
    assert!(row.contains("| `failed` | `error`, 3"), "{row}");
    let info = ctr.ctr(&["container", "info", "--spec", "runs"]);
    let mut spec: Value = serde_json::from_slice(&info.stdout).unwrap();
    let namespaces = spec["linux"]["namespaces"].as_array_mut().unwrap();
    namespaces.retain(|namespace| namespace["type"] != "pid");
    spec["linux"]["cgroupsPath"] = format!("/{SPACE}/leftover").into();
    spec["process"]["args"] = json!(["/bin/sh", "-c", "sleep 1000 & sleep 0.5; exit 3"]);
    let file = ctr.containerd.inside.dir.path().join("spec.json");
    std::fs::write(&file, spec.to_string()).unwrap();
    let ran = ctr.ctr(&["run", "--detach", "--config", file.to_str().unwrap(), "leftover"]);
    assert!(ran.status.success(), "{ran:?}");
    wait_for(is, long(), || find(agent, &ctr.id("leftover")).filter(|alloc| alloc["status"] == "failed"));
    assert_ends_are_the_events(ctr, agent, "leftover");
}

/// Made of the files of a container.
fn import_image(ctr: &Ctr) {
    let dir = ctr.containerd.inside.dir.path();
    let run = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).current_dir(dir).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    run("tar", &["-C", "rootfs", "-cf", "layer.tar", "."]);
    let digest = run("sha256sum", &["layer.tar"]);
    let diff = format!("sha256:{}", digest.split_whitespace().next().unwrap());
    let architecture = if std::env::consts::ARCH == "aarch64" { "arm64" } else { "amd64" };
    let config = json!({"architecture": architecture, "os": "linux", "config": {"Labels": {"team": "core"}}, "rootfs": {"type": "layers", "diff_ids": [diff]}});
    std::fs::write(dir.join("image.json"), config.to_string()).unwrap();
    let manifest = json!([{"Config": "image.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]);
    std::fs::write(dir.join("manifest.json"), manifest.to_string()).unwrap();
    run("tar", &["-cf", "image.tar", "manifest.json", "image.json", "layer.tar"]);
    let file = dir.join("image.tar");
    let imported = ctr.ctr(&["image", "import", "--snapshotter", "native", file.to_str().unwrap()]);
    assert!(imported.status.success(), "{imported:?}");
}

/// containerd keeps the image and labels of a container in its database, not in the bundle.
fn assert_of_an_image(ctr: &Ctr, agent: &Agent) {
    let row = documented(HEADING, "of an image, with labels");
    assert!(row.contains("without its image and labels"), "{row}");
    import_image(ctr);
    let ran = ctr.ctr(&["run", "--detach", "--snapshotter", "native", IMAGE, "imaged", "/bin/sleep", "1000"]);
    assert!(ran.status.success(), "{ran:?}");
    let info: Value = serde_json::from_slice(&ctr.ctr(&["container", "info", "imaged"]).stdout).unwrap();
    assert_eq!((&info["Image"], &info["Labels"]["team"]), (&IMAGE.into(), &"core".into()), "{info}");
    let id = ctr.id("imaged");
    let alloc = wait_for("its name", long(), || find(agent, &id).filter(|alloc| alloc["status"] == "running"));
    assert_eq!(alloc["job"], format!("{SPACE}/imaged"), "{alloc}");
    let image =
        agent.metrics().one("allostat_task_info", &[("alloc_id", &id)]).map(|info| info.labels.get("image").cloned());
    assert_eq!(image, Some(None));
}

fn started_at(agent: &Agent, id: &str) -> Option<f64> {
    agent.metrics().one("allostat_task_start_time_seconds", &[("alloc_id", id)]).map(Sample::f64)
}

/// Promise (Observed workloads): A container of a real containerd in each documented situation is shown as its tasks
/// and events are
#[test]
fn container_of_containerd_in_each_documented_situation_is_as_its_events_are() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(mut ctr) = Ctr::start() else { skip_test!("no-docker") };
    let mut agent = agent(&ctr.containerd);
    let can = agent.metrics().one("allostat_capability", &[("feature", "kernel_ends")]).map(Sample::f64);
    if can != Some(1.0) {
        skip_test!("no-kernel-pass");
    }
    let all = situations();
    all.iter().for_each(|of| assert_documented(HEADING, of));
    assert_each_as_engine(&ctr, &agent, &all);
    for Situation { name, state, .. } in &all {
        assert_ends_are_the_events(&ctr, &agent, name);
        if *state != "dead" {
            let started = time(&ctr.of("/tasks/start", name).last().unwrap()["at"]) as f64 / 1e9;
            let shown = wait_for("its start", long(), || started_at(&agent, &ctr.id(name)));
            assert!((-1.0..2.0).contains(&(shown - started)), "{name}: {shown}, {started}");
        }
    }
    let limit = || {
        let labels = [("alloc_id", &*ctr.id("updates"))];
        agent.metrics().one("allostat_task_memory_limit_bytes", &labels).map(Sample::f64)
    };
    wait_for("the new limit", long(), || (limit() == Some(100_663_296.0)).then_some(()));
    assert_removed_with_its_end(&ctr, &agent);
    assert_in_pid_namespace_of_the_host(&ctr, &agent);
    assert_of_an_image(&ctr, &agent);
    assert_crash_loop(&ctr, &agent);

    // No program of `ctr task exec` is a workload.
    let more = ["leaves", "leftover", "imaged", "loops"];
    let mut ids: Vec<String> = all.iter().map(|of| of.name).chain(more).map(|name| ctr.id(name)).collect();
    ids.sort();
    let mut shown: Vec<String> = agent.alloc_ids().into_iter().filter(|id| id.contains(SPACE)).collect();
    shown.sort();
    assert_eq!(shown, ids);
    assert_over_restarts(&mut ctr, &mut agent, &all);
    assert_without_a_shim(&mut ctr, &agent);
    agent.stop();
}

/// Of the agent, of containerd, and of both.
fn assert_over_restarts(ctr: &mut Ctr, agent: &mut Agent, all: &[Situation]) {
    let runs: Vec<&Situation> = all.iter().filter(|of| of.state == "running" && of.name != "runs").collect();
    let starts = |ctr: &Ctr, agent: &Agent| {
        let all = || runs.iter().map(|of| started_at(agent, &ctr.id(of.name))).collect::<Option<Vec<f64>>>();
        wait_for("the start times", long(), all)
    };
    let before = starts(ctr, agent);
    let exits_of = |agent: &Agent, ctr: &Ctr, name: &str| {
        let body = agent.metrics();
        let labels = [("workload", &*format!("{SPACE}/{}", task(name))), ("source", "containerd")];
        let exits: f64 = body.all("allostat_workload_exits_total", &labels).into_iter().map(Sample::f64).sum();
        (exits, find(agent, &ctr.id(name)).is_some())
    };
    for is in [
        "restart of the agent, of what runs",
        "kill and start of containerd",
        "restart of the agent, of what was stopped before",
        "ends with 137 while the agent is stopped, its task kept",
    ] {
        documented(HEADING, is);
    }
    ctr.kill_and_start_again();
    runs.iter().for_each(|of| assert_as_engine(ctr, agent, of));
    assert_eq!(starts(ctr, agent), before, "after a restart of containerd");

    ["fails", ID].iter().for_each(|name| assert_eq!(exits_of(agent, ctr, name), (1.0, true), "{name}"));
    agent.terminate();
    let killed = ctr.ctr(&["task", "kill", "--signal", "KILL", "runs"]);
    assert!(killed.status.success(), "{killed:?}");
    wait_for("its end", long(), || (ctr.exits("runs").len() == 1).then_some(()));
    ctr.kill_and_start_again();
    agent.start_again();
    assert_eq!(starts(ctr, agent), before, "after a restart of both");
    runs.iter().for_each(|of| assert_as_engine(ctr, agent, of));
    wait_for("what ended without an agent", long(), || find(agent, &ctr.id("runs")));
    let of = &ended("", "runs", "", ("error", 137));
    assert_as_engine(ctr, agent, of);
    assert_ends_are_the_events(ctr, agent, "runs");
    for name in ["fails", ID] {
        assert_eq!(exits_of(agent, ctr, name), (1.0, false), "{name} has ended once");
    }
    let resumed = ctr.ctr(&["task", "resume", "paused"]);
    assert!(resumed.status.success(), "{resumed:?}");
    assert_as_engine(ctr, agent, &running("", "paused", &[]));
}

/// Neither containerd nor the shim is left to report the exit of its task or to remove the cgroup.
fn assert_without_a_shim(ctr: &mut Ctr, agent: &Agent) {
    let (is, name) = ("containerd and its shim are killed, then its process", "unreported");
    let row = documented(HEADING, is);
    assert!(row.contains("| `complete` | `unknown`"), "{row}");
    let started = ctr.start(name, &[], "sleep 1000");
    assert!(started.status.success(), "{started:?}");
    let id = ctr.id(name);
    let with_status = |status: &str| find(agent, &id).filter(|alloc| alloc["status"] == status);
    wait_for(is, long(), || with_status("running"));
    let pid = ctr.listed(name, 1).unwrap();
    ctr.containerd.kill();
    for killed in [ctr.kill_shim(name), Command::new("kill").args(["-KILL", &pid]).output().unwrap()] {
        assert!(killed.status.success(), "{killed:?}");
    }
    let alloc = wait_for(is, long(), || with_status("complete"));
    let exit = &alloc["tasks"][name]["last_exit"];
    assert!(exit["outcome"] == "unknown" && exit["status"]["code"].is_null(), "{alloc:#}");
    ctr.kill_and_start_again();
}

/// The annotations of a pod, as containerd's CRI writes them. A user who may start a container can choose them.
///
/// Promise (Observed workloads): A container of containerd is a pod's only in the place where the kubelet puts cgroups
#[test]
fn container_with_annotations_of_a_pod_is_one_only_where_the_kubelet_puts_it() {
    const PODS: &str = "allostat-test-pods";
    const POD: &str = "k8s:shop/web-7d4b9c6f5-x2x7z";
    if !is_root() {
        skip_test!("not-root");
    }
    let cgroups = Cgroups::new();
    let Some(containerd) = Containerd::start(&[PODS, "k8s.io"]) else { skip_test!("no-docker") };
    let agent = agent(&containerd);
    let annotations = [
        "io.kubernetes.cri.container-type=container",
        "io.kubernetes.cri.container-name=app",
        "io.kubernetes.cri.sandbox-name=web-7d4b9c6f5-x2x7z",
        "io.kubernetes.cri.sandbox-namespace=shop",
    ];
    let mut options = vec!["--detach"];
    options.extend(annotations.iter().flat_map(|annotation| ["--annotation", annotation]));
    let run = |namespace: &str, more: &[&str], name: &str| {
        let started = containerd.run_in(namespace, &[&options, more].concat(), name, &["/bin/sleep", "1000"]);
        assert!(started.status.success(), "{started:?}");
    };
    let joined = |id: &str| {
        let body = agent.metrics();
        let labels = body.one("allostat_task_info", &[("alloc_id", id)]).unwrap().labels.clone();
        ["namespace", "pod", "container"].map(|name| labels.get(name).cloned())
    };
    run(PODS, &[], "claims");
    let id = format!("containerd:{PODS}/claims");
    let alloc = wait_for("the container", long(), || find(&agent, &id));
    assert_eq!((&alloc["source"], &alloc["job"]), (&"containerd".into(), &format!("{PODS}/claims").into()), "{alloc}");
    assert_eq!(joined(&id), [None, None, None]);

    let container = "5e".repeat(32);
    let place = format!("{}/kubepods/burstable/pod0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9/{container}", cgroups.parent);
    run("k8s.io", &["--cgroup", &place], &container);
    let alloc = wait_for("the pod", long(), || find(&agent, POD));
    assert_eq!((&alloc["source"], &alloc["job"]), (&"kubernetes".into(), &"shop/web".into()), "{alloc}");
    assert_eq!(joined(POD), ["shop", "web-7d4b9c6f5-x2x7z", "app"].map(|value| Some(value.to_owned())));
    let shown: Vec<String> = agent.alloc_ids().into_iter().filter(|shown| *shown != id).collect();
    assert_eq!(shown, [POD]);
    agent.stop();
    drop(containerd);
}
