//! A real Docker whose containers are scopes of systemd's, on cgroup v2.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Exposition, Sample, patience, wait_for};
use crate::observed::docker::{AgentApi, MIB, find};
use crate::systemd::machine::{Agent, Unit, Who, here};
use crate::systemd::root::service;

/// Dropped, it takes its containers with it.
struct Daemon {
    _unit: Unit,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        Who::Root.clear(&["docker-*.scope"]);
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

fn docker(args: &[&str]) -> std::process::Output {
    Who::Root.command("docker").args(args).output().expect("it is there")
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
    let unit = ["--property=Delegate=yes", "--property=TasksMax=infinity", "--", "dockerd"];
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

fn run(args: &[&str]) -> std::process::Output {
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
    let id = String::from_utf8(docker(&["inspect", "web-1", "--format", "{{.Id}}"]).stdout).expect("an id");
    assert!(Path::new("/sys/fs/cgroup/system.slice").join(format!("docker-{}.scope", id.trim())).exists(), "{id}");

    for (name, memory, code) in [("brief-0", "400m", 0), ("brief-3", "400m", 3), ("brief-99", "64m", 99)] {
        let script =
            format!("sleep 0.5; dd if=/dev/zero of=/dev/null bs=100M count=1 2>/dev/null || exit 99; exit {code}");
        run(&["--name", name, "--memory", memory, "bb:1", "sh", "-c", &script]);
        let id = format!("docker:{name}");
        let over = wait_for("its end", limit, || find(&agent, &id).filter(|alloc| !alloc["finished_at"].is_null()));
        let exit = &over["tasks"][name]["last_exit"];
        let output = docker(&["inspect", name, "--format", "{{.State.ExitCode}}"]).stdout;
        let text = String::from_utf8(output).expect("a number");
        assert_eq!((exit["status"]["code"].to_string(), text.trim()), (code.to_string(), &*code.to_string()), "{over}");
        let peak = wait_for("its peak", limit, || value("allostat_task_memory_peak_bytes", name));
        // The kernel ends `dd` where the limit is lower than what it touches; the shell goes on.
        let reached = if memory == "64m" { 60 * MIB..=64 * MIB } else { 100 * MIB..=120 * MIB };
        assert!(reached.contains(&peak), "{name}: {peak}");
    }
    docker(&["rm", "--force", "web-1", "brief-0", "brief-3", "brief-99"]);
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

/// What the docker driver runs: in slices of its own, with the values of the kernel and the ends of `docker inspect`.
#[test]
fn containers_of_the_docker_driver_are_in_slices_of_their_own_and_outlive_the_agent() {
    if !here() {
        skip_test!("no-systemd");
    }
    if !Path::new("/usr/bin/dockerd").exists() {
        skip_test!("no-docker");
    }
    let _daemon = start();
    let agent = service("");
    let limit = Duration::from_secs(60) * patience();
    wait_for("the driver to be healthy", limit, || {
        let node = agent.json("/v1/node");
        let driver = node["drivers"].as_array()?.iter().find(|driver| driver["name"] == "docker")?.clone();
        (driver["health"] == "healthy").then_some(())
    });
    let submit = |name: &str, kind: &str, memory: u64, script: &str| {
        let file = Path::new("/tmp").join(format!("{name}.hcl"));
        fs::write(&file, managed(name, kind, memory, script)).expect("/tmp must be writable");
        agent.cli(&["run", "--detach", file.to_str().expect("UTF-8")]).ok();
    };
    let alloc_of = |job: &str| {
        let all = agent.json("/v1/allocs");
        let id = all["allocs"].as_array()?.iter().find(|alloc| alloc["job"] == job)?["id"].as_str()?.to_owned();
        Some(agent.json(&format!("/v1/allocs/{id}")))
    };
    let inspect = |name: &str, what: &str| {
        let output = docker(&["inspect", name, "--format", what]).stdout;
        String::from_utf8(output).expect("text").trim().to_owned()
    };
    let slice_of = |id: &str| format!("allostat-{}_main.slice", id.replace('-', ""));
    let below = |id: &str| Path::new("/sys/fs/cgroup/allostat.slice").join(slice_of(id));

    submit("held", "service", 64, "dd if=/dev/zero of=/dev/null bs=30M count=1 2>/dev/null; exec sleep 1000");
    let alloc = wait_for("the container to run", limit, || {
        alloc_of("held").filter(|alloc| alloc["tasks"]["main"]["state"] == "running")
    });
    let id = alloc["id"].as_str().expect("an ID").to_owned();
    let name = format!("main-{id}");
    assert_eq!(inspect(&name, "{{.HostConfig.CgroupParent}}"), slice_of(&id));
    let scope = below(&id).join(format!("docker-{}.scope", inspect(&name, "{{.Id}}")));
    let file = |name: &str| fs::read_to_string(scope.join(name)).unwrap_or_default().trim().to_owned();
    assert_eq!(file("memory.max"), (64 * MIB).to_string());
    let value = |family: &str| agent.metrics().one(family, &[("alloc_id", &id)]).map(Sample::u64);
    assert_eq!(wait_for("its limit", limit, || value("allostat_task_memory_limit_bytes")), 64 * MIB);
    wait_for("its peak to be that of its cgroup", limit, || {
        let kernel = file("memory.peak").parse::<u64>().ok().filter(|peak| *peak >= 30 * MIB)?;
        (value("allostat_task_memory_peak_bytes")? == kernel).then_some(())
    });

    let started = inspect(&name, "{{.State.StartedAt}}");
    let old = Who::Root.property("allostat.service", "MainPID");
    Who::Root.systemctl(&["kill", "--signal=KILL", "allostat.service"]);
    wait_for("another agent", limit, || {
        let now = Who::Root.property("allostat.service", "MainPID");
        (now != "0" && now != old).then_some(())
    });
    agent.wait_ready();
    wait_for("the container to be found", limit, || {
        alloc_of("held").filter(|alloc| alloc["tasks"]["main"]["state"] == "running")
    });
    assert_eq!(inspect(&name, "{{.State.StartedAt}}"), started, "it was never started again");
    assert!(scope.exists());

    let dd = "dd if=/dev/zero of=/dev/null bs=100M count=1 2>/dev/null";
    for (job, memory, script, outcome, code) in [
        ("code", 400, format!("{dd}; exit 3"), "error", 3),
        ("oom", 64, format!("exec {dd}"), "oom", 137),
        ("child", 64, format!("{dd}; exit 0"), "success", 0),
    ] {
        submit(job, "batch", memory, &script);
        let over = wait_for("its end", limit, || alloc_of(job).filter(|alloc| !alloc["finished_at"].is_null()));
        let exit = over["tasks"]["main"]["exits"].as_array().and_then(|exits| exits.last()).expect("an exit");
        assert_eq!((&exit["outcome"], &exit["status"]["code"]), (&outcome.into(), &code.into()), "{over}");
        let kills = exit["oom_kills"].as_u64().unwrap_or(0);
        assert_eq!(kills > 0, memory == 64, "{over}");
        let peak = exit["usage"]["memory_peak_bytes"].as_u64().unwrap_or_else(|| panic!("{job} has no peak: {over}"));
        // The slice also counts what the runtime needs beside the container.
        let reached = if memory == 64 { 60 * MIB..=65 * MIB } else { 100 * MIB..=120 * MIB };
        assert!(reached.contains(&peak), "{job}: {peak}");
        let of = over["id"].as_str().expect("an ID").to_owned();
        wait_for("its slice to go", limit, || (!below(&of).exists()).then_some(()));
    }
    agent.cli(&["stop", "--all"]).ok();
    wait_for("the slice to go", limit, || (!below(&id).exists()).then_some(()));
    assert_eq!(String::from_utf8_lossy(&docker(&["ps", "-aq"]).stdout).trim(), "", "containers are left");
    Who::Root.systemctl(&["stop", "allostat.service"]);
}
