//! A real containerd, and a real runc with nothing above it, beside a real agent.
//!
//! Promise (Observed workloads): Containers of a real Podman, containerd and runc have the names, limits, peaks and
//! ends that these report

mod situations;

use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};

use serde_json::{Value, json};

use crate::common::{Agent, AgentOptions, Sample, is_root, program, wait_for};
use crate::observed::docker::{MIB, find, long};
use crate::observed::inside::Inside;
use crate::observed::live::Scene;

struct Containerd {
    daemon: Child,
    inside: Inside,
    containerd: PathBuf,
    ctr: PathBuf,
    /// In which it has containers.
    namespaces: &'static [&'static str],
    /// The cgroups of its namespaces, where they were not there before.
    made: Vec<PathBuf>,
}

/// Where containers of these namespaces are, in each hierarchy.
fn namespace_cgroups(namespaces: &[&str]) -> Vec<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let cgroups = mounts.lines().filter(|line| line.split(' ').nth(2).is_some_and(|kind| kind.starts_with("cgroup")));
    let roots = cgroups.filter_map(|line| line.split(' ').nth(1).map(PathBuf::from));
    roots.flat_map(|root| namespaces.iter().map(move |namespace| root.join(namespace))).collect()
}

impl Containerd {
    fn start(namespaces: &'static [&'static str]) -> Option<Containerd> {
        let (containerd, ctr) = (program("containerd")?, program("ctr")?);
        let inside = Inside::begin(std::iter::empty())?;
        let made = namespace_cgroups(namespaces).into_iter().filter(|path| !path.exists()).collect();
        std::fs::write(inside.dir.path().join("config.toml"), CONFIG).unwrap();
        let daemon = daemon(&inside, &containerd);
        let containerd = Containerd { daemon, inside, containerd, ctr, namespaces, made };
        containerd.wait_until_it_answers();
        Some(containerd)
    }
    fn wait_until_it_answers(&self) {
        wait_for("containerd to answer", long(), || self.ctr(&["version"]).status.success().then_some(()));
    }
    /// SIGKILL to the daemon alone, and a new one.
    fn kill_and_start_again(&mut self) {
        self.kill();
        self.daemon = daemon(&self.inside, &self.containerd);
        self.wait_until_it_answers();
    }
    fn kill(&mut self) {
        // `nsenter` has become the daemon itself.
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
    fn ctr(&self, args: &[&str]) -> Output {
        self.inside.command(&self.ctr).args(["--address", SOCKET]).args(args).output().unwrap()
    }
    fn run(&self, args: &[&str], name: &str, what: &[&str]) -> Output {
        self.run_in("default", args, name, what)
    }
    fn run_in(&self, namespace: &str, args: &[&str], name: &str, what: &[&str]) -> Output {
        let rootfs = self.inside.rootfs();
        let run = ["--namespace", namespace, "run", "--rootfs"];
        self.ctr(&[&run, args, &[rootfs.to_str().unwrap(), name], what].concat())
    }
}

fn daemon(inside: &Inside, containerd: &Path) -> Child {
    let log = inside.dir.path().join("log");
    let log = std::fs::File::options().create(true).append(true).open(log).unwrap();
    let mut command = inside.command(containerd);
    command.arg("--config").arg(inside.dir.path().join("config.toml"));
    command.args(["--root", "/var/lib/containerd", "--state", "/run/containerd", "--address", SOCKET]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap()
}

/// Not that of the host.
const CONFIG: &str = "version = 2
disabled_plugins = [\"io.containerd.grpc.v1.cri\"]
[plugins.\"io.containerd.internal.v1.restart\"]
interval = \"3s\"
";
/// Another namespace of this test's containerd.
const BUILD: &str = "allostat-test-build";
const SOCKET: &str = "/run/containerd/containerd.sock";

impl Drop for Containerd {
    fn drop(&mut self) {
        for namespace in self.namespaces {
            // Otherwise containerd starts some of them again.
            let containers = self.ctr(&["--namespace", namespace, "container", "list", "--quiet"]);
            let containers = String::from_utf8_lossy(&containers.stdout).into_owned();
            for container in containers.lines() {
                self.ctr(&["--namespace", namespace, "container", "label", container, "containerd.io/restart.status="]);
                self.ctr(&["--namespace", namespace, "task", "delete", "--force", container]);
            }
        }
        self.kill();
        self.made.iter().for_each(|path| drop(std::fs::remove_dir(path)));
    }
}

#[test]
fn containers_of_containerd_have_its_names_their_values_and_their_ends() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(containerd) = Containerd::start(&["default", BUILD]) else { skip_test!("no-docker") };
    let env = [("ALLOSTAT_OBSERVE", "true".to_owned()), ("ALLOSTAT_OBSERVE_SOURCES", "containerd".to_owned())];
    let env = env.map(|(name, value)| (name.to_owned(), value)).to_vec();
    let agent = Agent::with(AgentOptions { env, binary: Some(containerd.inside.agent()), ..AgentOptions::default() });
    let more = ["--detach", "--memory-limit", "67108864", "--annotation", "nerdctl/name=web-1"];
    let started = containerd.run(&more, "held", &["/bin/sleep", "1000"]);
    assert!(started.status.success(), "{started:?}");
    let called = |name: &'static str| {
        let allocs = agent.json("/v1/allocs");
        allocs["allocs"].as_array().unwrap().iter().find(|alloc| alloc["name"] == name).cloned()
    };
    let alloc = wait_for("the container under its name", long(), || called("web-1"));
    assert_eq!((&alloc["job"], &alloc["source"]), (&"web-1".into(), &"containerd".into()), "{alloc}");
    let id = alloc["id"].as_str().unwrap().to_owned();
    let value = |family: &str, id: &str| agent.metrics().one(family, &[("alloc_id", id)]).map(Sample::f64);
    let limit = wait_for("its values", long(), || value("allostat_task_memory_limit_bytes", &id));
    assert_eq!(limit, 67_108_864.0);

    // One of the same name in another namespace is another one.
    let started =
        containerd.run_in(BUILD, &["--detach", "--memory-limit", "33554432"], "held", &["/bin/sleep", "1000"]);
    assert!(started.status.success(), "{started:?}");
    let of_build = format!("{BUILD}/held");
    let alloc = wait_for("the container of the other namespace", long(), || called("held"));
    assert_eq!(alloc["id"], format!("containerd:{of_build}"), "{alloc}");
    assert_eq!((&alloc["job"], &alloc["source"]), (&of_build.into(), &"containerd".into()), "{alloc}");
    let build = alloc["id"].as_str().unwrap();
    let limit = wait_for("its values", long(), || value("allostat_task_memory_limit_bytes", build));
    assert_eq!(limit, 33_554_432.0);
    assert_eq!(value("allostat_task_memory_limit_bytes", &id), Some(67_108_864.0));

    let can = value_of(&agent, "kernel_ends") == Some(1.0);
    for (name, code) in [("brief-0", 0), ("brief-3", 3)] {
        let script =
            format!("dd if=/dev/zero of=/dev/null bs=200M count=1 2>/dev/null || exit 99; sleep 0.3; exit {code}");
        let ran = containerd.run(&["--rm"], name, &["/bin/sh", "-c", &script]);
        assert_eq!(ran.status.code(), Some(code), "{ran:?}");
        if can {
            let id = format!("containerd:{name}");
            let over =
                wait_for("its end", long(), || find(&agent, &id).filter(|alloc| !alloc["finished_at"].is_null()));
            assert_eq!(over["tasks"][name]["last_exit"]["status"]["code"], code, "{over}");
            let peak = agent.metrics().u64("allostat_task_memory_peak_bytes", &[("alloc_id", &id)]);
            assert!((200 * MIB..=230 * MIB).contains(&peak), "{name}: {peak}");
        }
    }
    drop(containerd);
    agent.stop();
}

fn value_of(agent: &Agent, feature: &str) -> Option<f64> {
    agent.metrics().one("allostat_capability", &[("feature", feature)]).map(Sample::f64)
}

/// No runtime manages it: it is a cgroup, and its end is the kernel's.
#[test]
fn a_container_that_runc_runs_alone_is_its_cgroup() {
    if !is_root() {
        skip_test!("not-root");
    }
    let (Some(runc), Some(inside)) = (program("runc"), Inside::begin(std::iter::empty())) else {
        skip_test!("no-docker")
    };
    let scene = Scene::new(&[]);
    let bundle = inside.dir.path();
    let made = inside.command(&runc).args(["spec", "--bundle"]).arg(bundle).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let mut spec: Value = serde_json::from_slice(&std::fs::read(bundle.join("config.json")).unwrap()).unwrap();
    spec["process"]["terminal"] = false.into();
    let script = "dd if=/dev/zero of=/dev/null bs=200M count=1 2>/dev/null || exit 99; sleep 2; exit 5";
    spec["process"]["args"] = json!(["sh", "-c", script]);
    spec["process"]["rlimits"] = json!([]);
    spec["linux"]["cgroupsPath"] = format!("{}/box", scene.observed.parent).into();
    std::fs::write(bundle.join("config.json"), spec.to_string()).unwrap();
    let mut command = inside.command(&runc);
    command.arg("--root").arg(bundle.join("state")).args(["run", "--bundle"]).arg(bundle).arg("box");
    let ran = command.stdin(Stdio::null()).output().unwrap();
    assert_eq!(ran.status.code(), Some(5), "{ran:?}");
    let over = scene.wait("box", "its end", |alloc| !alloc["finished_at"].is_null());
    assert_eq!(over["source"], "cgroup", "{over}");
    if value_of(&scene.agent, "kernel_ends") == Some(1.0) {
        assert_eq!(over["tasks"]["box"]["last_exit"]["status"]["code"], 5, "{over}");
        let peak = wait_for("its peak", long(), || scene.value("allostat_task_memory_peak_bytes", "box"));
        assert!((200.0..=230.0).contains(&(peak / MIB as f64)), "{peak}");
    }
}
