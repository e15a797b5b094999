//! A real containerd with the systemd cgroup driver, on cgroup v2.

use std::fs;
use std::path::Path;
use std::process::Output;

use crate::common::{Sample, wait_for};
use crate::observed::docker::{MIB, find, long};
use crate::observed::situations::FILLS;
use crate::systemd::docker::rootfs;
use crate::systemd::machine::{Agent, Unit, Who, here};
use crate::systemd::root::service;

/// Not the usual one: a Docker that finds a containerd there uses it.
const SOCKET: &str = "/run/containerd-of-tests.sock";
const CONFIG: &str = "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n";

/// Dropped, it takes its containers with it.
struct Containerd {
    _unit: Unit,
}

impl Containerd {
    fn start() -> Containerd {
        let config = "/data/containerd.toml";
        fs::write(config, CONFIG).expect("/data must be writable");
        let unit = ["--property=Delegate=yes", "--property=TasksMax=infinity", "--", "containerd"];
        let words = ["--config", config, "--address", SOCKET];
        let containerd = Containerd { _unit: Unit::run("containerd", &[&unit[..], &words].concat()) };
        wait_for("containerd to answer", long(), || ctr(&["version"]).status.success().then_some(()));
        containerd
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        Who::Root.clear(&["nerdctl-*.scope"]);
    }
}

fn ctr(args: &[&str]) -> Output {
    Who::Root.command("ctr").args(["--address", SOCKET]).args(args).output().expect("it is there")
}

/// In the cgroup that nerdctl would choose.
#[track_caller]
fn run(id: &str, options: &[&str], script: &str) {
    let cgroup = format!("system.slice:nerdctl:{id}");
    let begin = ["run", "--detach", "--runc-systemd-cgroup", "--cgroup", &cgroup, "--rootfs"];
    let what = [rootfs().to_str().expect("UTF-8"), id, "/bin/sh", "-c", script];
    let started = ctr(&[&begin[..], options, &what].concat());
    assert!(started.status.success(), "{started:?}");
}

#[track_caller]
fn assert_failed(agent: &Agent, id: &str, outcome: &str, code: u8) {
    let over = wait_for("its end", long(), || find(agent, id).filter(|alloc| !alloc["finished_at"].is_null()));
    let task = over["tasks"].as_object().and_then(|tasks| tasks.values().next()).expect("a task");
    let exit = &task["last_exit"];
    let shown = (&over["status"], &exit["outcome"], &exit["status"]["code"]);
    assert_eq!(shown, (&"failed".into(), &outcome.into(), &code.into()), "{over}");
}

/// systemd removes the cgroup with its last process, and containerd retains the task: the end is the kernel's report,
/// as docs/observed.md has it for a deleted task.
#[test]
fn container_of_containerd_in_a_systemd_scope_has_its_name_and_the_kernels_end() {
    if !here() {
        skip_test!("no-systemd");
    }
    if !Path::new("/usr/bin/ctr").exists() {
        skip_test!("no-docker");
    }
    let _containerd = Containerd::start();
    let agent = service("UnsetEnvironment=ALLOSTAT_OBSERVE");
    let [web, fails, oom] = ["5c", "7d", "9e"].map(|digits| digits.repeat(32));
    let options = ["--memory-limit", "67108864", "--annotation", "nerdctl/name=web-1"];
    run(&web, &options, "exec sleep 1000");
    let alloc = wait_for("the container under its name", long(), || {
        let all = agent.json("/v1/allocs");
        all["allocs"].as_array()?.iter().find(|alloc| alloc["name"] == "web-1").cloned()
    });
    assert_eq!((&alloc["job"], &alloc["source"]), (&"web-1".into(), &"containerd".into()), "{alloc}");
    let id = alloc["id"].as_str().expect("an ID");
    let cgroup = format!("/system.slice/nerdctl-{web}.scope");
    let scope = Path::new("/sys/fs/cgroup").join(&cgroup[1..]);
    assert!(scope.exists(), "{cgroup}");
    let labels = [("alloc_id", id), ("cgroup", &*cgroup)];
    wait_for("its cgroup", long(), || agent.metrics().one("allostat_alloc_info", &labels).map(drop));
    let limit = || agent.metrics().one("allostat_task_memory_limit_bytes", &labels[..1]).map(Sample::u64);
    assert_eq!(wait_for("its values", long(), limit), 64 * MIB);

    let killed = ctr(&["task", "kill", "--signal", "KILL", &web]);
    assert!(killed.status.success(), "{killed:?}");
    assert_failed(&agent, id, "error", 137);
    wait_for("containerd to have its end", long(), || {
        let list = String::from_utf8(ctr(&["task", "list"]).stdout).expect("text");
        let mut rows = list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        rows.any(|row| row.first() == Some(&web.as_str()) && row.last() == Some(&"STOPPED")).then_some(())
    });
    assert!(!scope.exists(), "{cgroup} of a task that containerd retains");

    run(&fails, &[], "sleep 1; exit 3");
    assert_failed(&agent, &format!("containerd:{}", &fails[..12]), "error", 3);
    run(&oom, &["--memory-limit", "33554432"], &format!("exec {FILLS}"));
    assert_failed(&agent, &format!("containerd:{}", &oom[..12]), "oom", 137);
    for container in [&web, &fails, &oom] {
        ctr(&["task", "delete", "--force", container]);
        ctr(&["container", "delete", container]);
    }
    Who::Root.systemctl(&["stop", "allostat.service"]);
}
