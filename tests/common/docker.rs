//! A Docker of the test's own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use super::{AgentOptions, Cgroups, part, patience, test_dir, wait_for};

const LONG: Duration = Duration::from_secs(120);

/// A daemon of the test's own, with one image of nothing but busybox.
pub struct Docker {
    daemon: Child,
    pub socket: PathBuf,
    /// Removed last.
    cgroups: Cgroups,
    pub dir: tempfile::TempDir,
}

impl Docker {
    /// `None`: this machine has no Docker, or nothing to make an image of.
    pub fn start() -> Option<Docker> {
        program("dockerd")?;
        let (dir, cgroups) = (test_dir(), Cgroups::new());
        make_rootfs(&dir.path().join("rootfs"))?;
        let socket = dir.path().join("d.sock");
        let docker = Docker { daemon: daemon(dir.path(), &cgroups), socket, cgroups, dir };
        docker.wait_until_it_answers();
        docker.import(&docker.dir.path().join("rootfs"), "bb:1");
        Some(docker)
    }
    fn wait_until_it_answers(&self) {
        wait_for("Docker to answer", LONG * patience(), || self.docker(&["version"]).status.success().then_some(()));
    }

    /// SIGKILL to the daemon alone.
    pub fn kill(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
    /// After [`Docker::kill`].
    pub fn start_again(&mut self) {
        self.daemon = daemon(self.dir.path(), &self.cgroups);
        wait_for("Docker to answer again", LONG * patience(), || {
            // On a busy machine its containerd is not there in time, and it ends.
            if self.daemon.try_wait().expect("our own child").is_some() {
                self.daemon = daemon(self.dir.path(), &self.cgroups);
            }
            self.docker(&["version"]).status.success().then_some(())
        });
    }
    /// Stops or continues it, as a daemon that hangs does.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.daemon);
        rustix::process::kill_process(pid, signal).expect("our own child");
    }

    /// An agent that runs containers in this daemon, and observes what else runs in it.
    pub fn driver(&self) -> AgentOptions {
        let mut options = self.observed("docker");
        let own = [("ALLOSTAT_DOCKER_ENDPOINT", format!("unix:{}", self.socket.display()))];
        options.env.extend(own.map(|(name, value)| (name.to_owned(), value)));
        options
    }
    /// The IDs of its containers, running or not.
    pub fn containers(&self) -> Vec<String> {
        let all = self.docker(&["ps", "-aq", "--no-trunc"]);
        String::from_utf8_lossy(&all.stdout).split_whitespace().map(str::to_owned).collect()
    }

    /// Names of the containers whose OOM kill the engine has reported.
    pub fn ooms(&self) -> Vec<String> {
        let format = "{{.Actor.Attributes.name}}";
        // Of a time without a fraction the client makes a whole second: it would leave out the last events.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        let until = format!("{}.{:09}", now.as_secs(), now.subsec_nanos());
        let filter = ["events", "--since", "1h", "--until", &until, "--filter", "event=oom", "--format", format];
        let output = self.docker(&filter);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect()
    }

    /// An agent that asks this daemon for names. `sources`: whose it shows.
    pub fn observed(&self, sources: &str) -> AgentOptions {
        let env = [
            ("ALLOSTAT_OBSERVE", "true".to_owned()),
            ("ALLOSTAT_OBSERVE_SOURCES", sources.to_owned()),
            ("ALLOSTAT_OBSERVE_DOCKER_SOCKET", self.socket.display().to_string()),
        ];
        AgentOptions { env: env.map(|(name, value)| (name.to_owned(), value)).into(), ..AgentOptions::default() }
    }
    /// An image of what is in a directory.
    pub fn import(&self, directory: &Path, image: &str) {
        let docker = program("docker").expect("it comes with its daemon");
        let script = format!("tar -C {} -c . | {} import - {image}", directory.display(), docker.display());
        let imported = self.command(Path::new("sh")).args(["-c", &script]).output().expect("a shell");
        assert!(imported.status.success(), "{imported:?}");
    }
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("DOCKER_HOST", format!("unix://{}", self.socket.display()));
        command
    }
    pub fn docker(&self, args: &[&str]) -> Output {
        self.command(&program("docker").expect("it comes with its daemon")).args(args).output().expect("it must start")
    }
    pub fn run(&self, args: &[&str]) -> Output {
        self.docker(&[&["run", "--network=none"], args].concat())
    }
    pub fn inspect(&self, name: &str, what: &str) -> String {
        let output = self.docker(&["inspect", name, "--format", what]);
        String::from_utf8(output.stdout).expect("it says text").trim().to_owned()
    }
}

fn daemon(dir: &Path, cgroups: &Cgroups) -> Child {
    let at = |name: &str| dir.join(name);
    let mut command = Command::new(program("dockerd").expect("it was there before"));
    command.args(["--iptables=false", "--ip6tables=false", "--bridge=none", "--storage-driver=vfs"]);
    command.args(["--exec-opt", "native.cgroupdriver=cgroupfs"]);
    command.arg(format!("--cgroup-parent={}/docker", cgroups.parent));
    for (flag, place) in [("--data-root", "data"), ("--exec-root", "exec"), ("--pidfile", "pid")] {
        command.arg(flag).arg(at(place));
    }
    command.arg("-H").arg(format!("unix://{}", at("d.sock").display()));
    let log = std::fs::File::options().create(true).append(true).open(at("log")).expect("our own directory");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("it must start")
}

impl Drop for Docker {
    fn drop(&mut self) {
        // A test that failed may have left it stopped: no request would ever be answered.
        if let Some(pid) = i32::try_from(self.daemon.id()).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::CONT);
        }
        let all = self.docker(&["ps", "-aq"]);
        for id in String::from_utf8_lossy(&all.stdout).split_whitespace() {
            self.docker(&["rm", "-f", id]);
        }
        // Those that a test made: each is a bridge of the host.
        self.docker(&["network", "prune", "-f"]);
        if let Some(pid) = i32::try_from(self.daemon.id()).ok().and_then(rustix::process::Pid::from_raw) {
            // Asked, it takes its shims and mounts with it.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.daemon.wait();
        // A daemon that was killed leaves its mounts, each time one more.
        for place in ["exec/netns/default", "data", "data"] {
            let _ = Command::new("umount").arg(self.dir.path().join(place)).output();
        }
    }
}

/// One that `cargo xtask test` got, or that this machine has.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = part(name).unwrap_or_else(|| name.into());
    Command::new(&path).arg("--version").output().ok().filter(|output| output.status.success())?;
    Some(path)
}

/// Nothing but busybox. `None`: this machine has none.
pub fn make_rootfs(at: &Path) -> Option<()> {
    let installed = ["/bin/busybox", "/usr/bin/busybox"].map(PathBuf::from);
    let busybox = part("busybox").into_iter().chain(installed).find(|path| path.exists())?;
    let bin = at.join("bin");
    std::fs::create_dir_all(&bin).expect("our own directory");
    // One that needs libraries would not start in there.
    std::fs::copy(busybox, bin.join("busybox")).expect("our own directory");
    for name in ["sh", "sleep", "dd"] {
        std::os::unix::fs::symlink("busybox", bin.join(name)).expect("our own directory");
    }
    Some(())
}
