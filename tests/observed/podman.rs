//! A real Podman beside a real agent: names, values and ends are those that Podman tells. Both are in a mount namespace of their own, where
//! Podman's directories are empty.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::common::{Agent, AgentOptions, Cgroups, Sample, allostat, is_root, part_file, test_dir, wait_for};
use crate::docker::{LONG, MIB, find, make_rootfs, program};

struct Podman {
    /// Holds the namespace.
    holder: Child,
    podman: PathBuf,
    runc: PathBuf,
    cgroups: Cgroups,
    dir: tempfile::TempDir,
}

impl Podman {
    /// `None`: this machine has no Podman with runc (crun takes no cgroup v1 beside a cgroup2 tree), or nothing to put into a container.
    fn start() -> Option<Podman> {
        let (podman, runc) = (program("podman")?, program("runc")?);
        let dir = test_dir();
        make_rootfs(&dir.path().join("rootfs"))?;
        // Whoever cleans up behind a container is started by conmon, which hands no `LD_LIBRARY_PATH` on.
        let libraries = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"].map(|at| part_file("podman", at));
        let script = "mount -t tmpfs none /var/lib && mount -t tmpfs none /run && cache=$1 && shift && \
                      { test $# = 0 || { ldconfig -C $cache $@ && mount --bind $cache /etc/ld.so.cache; }; } && \
                      echo ready && exec sleep 100000";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "--", "sh", "-c", script, "sh"]);
        command.arg(dir.path().join("ld.so.cache")).args(libraries.into_iter().flatten());
        let mut holder = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().ok()?;
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (line == "ready\n").then_some(Podman { holder, podman, runc, cgroups: Cgroups::new(), dir })
    }

    fn inside(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.holder.id())).arg("--").arg(program);
        command
    }
    fn podman(&self, args: &[&str]) -> Output {
        let mut command = self.inside(&self.podman);
        command.arg("--runtime").arg(&self.runc).args(["--cgroup-manager", "cgroupfs", "--storage-driver", "vfs"]);
        command.args(["--events-backend", "none"]).args(args).output().unwrap()
    }
    fn run(&self, args: &[&str], what: &[&str]) -> Output {
        // Nobody here may raise limits as it does by itself.
        let limits = ["run", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000", "--network", "none"];
        let (parent, rootfs) = (format!("--cgroup-parent={}", self.cgroups.parent), self.dir.path().join("rootfs"));
        let place = [parent.as_str(), "--rootfs", rootfs.to_str().unwrap()];
        self.podman(&[&limits[..], args, &place[..], what].concat())
    }
    /// The agent, started in there.
    fn agent(&self) -> PathBuf {
        let script = self.dir.path().join("agent");
        let enter = format!("nsenter --mount=/proc/{}/ns/mnt -- {}", self.holder.id(), allostat().display());
        std::fs::write(&script, format!("#!/bin/sh\nexec {enter} \"$@\"\n")).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        script
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        self.podman(&["rm", "--all", "--force", "--time", "0"]);
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

#[test]
fn containers_have_the_names_values_and_ends_that_podman_tells() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(podman) = Podman::start() else { skip_test!("no-podman") };
    let env = [("ALLOSTAT_OBSERVE", "true".to_owned()), ("ALLOSTAT_OBSERVE_SOURCES", "podman".to_owned())];
    let env = env.map(|(name, value)| (name.to_owned(), value)).to_vec();
    let agent = Agent::with(AgentOptions { env, binary: Some(podman.agent()), ..AgentOptions::default() });
    let started = podman.run(&["--detach", "--name", "web-1", "--memory", "64m"], &["sleep", "1000"]);
    if !started.status.success() {
        // Rights that a container needs and this machine does not give.
        eprintln!("{started:?}");
        skip_test!("no-podman");
    }
    let alloc = wait_for("the container under its name", LONG, || find(&agent, "podman:web-1"));
    assert_eq!((&alloc["name"], &alloc["job"], &alloc["source"]), (&"web-1".into(), &"web-1".into(), &"podman".into()));
    let value = |family: &str, id: &str| agent.metrics().one(family, &[("alloc_id", id)]).map(Sample::f64);
    let limit = wait_for("its values", LONG, || value("allostat_task_memory_limit_bytes", "podman:web-1"));
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
        let over = wait_for("its end", LONG, || find(&agent, &id).filter(|alloc| !alloc["finished_at"].is_null()));
        let exit = &over["tasks"][name.as_str()]["last_exit"];
        let said = podman.podman(&["inspect", &name, "--format", "{{.State.ExitCode}}"]);
        let said = String::from_utf8(said.stdout).unwrap();
        assert_eq!(exit["status"]["code"].to_string(), said.trim(), "{name}: {over}");
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
