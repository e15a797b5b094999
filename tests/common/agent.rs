//! A real agent: the binary under test on a free port, in its own data directory and below its own cgroup parent.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use super::cgroups::Cgroups;
use super::exposition::Exposition;
use super::http::{self, Response};
use super::{environment, free_address, patience, programs, wait_for};

const NOBODY_UID: u32 = 65534;
/// With two hundred tasks to find again, on a machine that runs all other tests beside it; times [`patience`].
const READY: Duration = Duration::from_secs(60);

/// What differs from a plain agent.
#[derive(Debug, Clone, Default)]
pub struct AgentOptions {
    /// Text of a configuration file (HCL), besides `cgroup.parent`.
    pub config: String,
    /// More arguments after `agent`.
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    /// Run by nobody (65534), who may make no cgroups; needs root.
    pub as_nobody: bool,
    /// The hard limit on its descriptors.
    pub descriptors: Option<u64>,
    /// As the first process of a pid namespace, as in a container; needs root. It is ended by [`Agent::kill`] alone.
    pub first_process: bool,
    /// Elsewhere than in the agent's own directory: on a disk of the test's.
    pub data_dir: Option<PathBuf>,
    /// Another file than the binary under test.
    pub binary: Option<PathBuf>,
}

/// How a command of the binary ended.
#[derive(Debug, Clone)]
pub struct Cli {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Cli {
    /// Standard output of a command that must have succeeded.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self.stdout
    }
}

/// Each of these words is in the text.
#[track_caller]
pub fn assert_contains(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
}

impl From<Output> for Cli {
    fn from(output: Output) -> Cli {
        Cli {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Dropped without [`Agent::stop`] (a test failed), it kills its processes and removes its cgroups and files.
#[derive(Debug)]
pub struct Agent {
    child: Option<Child>,
    pub address: SocketAddr,
    pub cgroups: Cgroups,
    options: AgentOptions,
    /// Instead of the log file, at the next start alone.
    outputs: Option<(Stdio, Stdio)>,
    // Last: its files go after everything that uses them.
    dir: tempfile::TempDir,
}

impl Agent {
    #[track_caller]
    pub fn start() -> Agent {
        Agent::with(AgentOptions::default())
    }

    #[track_caller]
    pub fn with(options: AgentOptions) -> Agent {
        let mut agent = Agent::to_start(options);
        agent.start_again();
        agent
    }

    /// One that does not run yet.
    pub fn to_start(options: AgentOptions) -> Agent {
        let dir = programs::test_dir();
        let agent =
            Agent { child: None, address: free_address(), cgroups: Cgroups::new(), options, outputs: None, dir };
        agent.configure(&agent.options.config);
        if agent.options.as_nobody {
            agent.open_to_unprivileged();
        }
        agent
    }

    /// Starts the process on the same data directory: after [`Agent::kill`] or [`Agent::terminate`].
    #[track_caller]
    pub fn start_again(&mut self) {
        self.begin();
        wait_for("the agent to be ready", READY * patience(), || {
            let child = self.child.as_mut().expect("just started");
            if let Some(status) = child.try_wait().expect("our own child") {
                panic!("the agent ended with {status} before it was ready:\n{}", self.log());
            }
            let ready = http::tcp(self.address, "GET", "/readyz", &[], b"").ok()?;
            (ready.status == 200).then_some(())
        });
    }

    /// From now on this file is the agent.
    pub fn upgrade(&mut self, binary: PathBuf) {
        self.options.binary = Some(binary);
    }

    /// The same, without waiting for anything.
    #[track_caller]
    pub fn begin(&mut self) {
        assert!(self.child.is_none(), "the agent runs already");
        let log = File::options().create(true).append(true).open(self.log_file()).expect("the log must be writable");
        let mut command = if self.options.as_nobody {
            let mut command = Command::new(self.scratch().join("allostat"));
            command.uid(NOBODY_UID).gid(NOBODY_UID).current_dir("/");
            command
        } else if self.options.first_process {
            let mut command = Command::new("unshare");
            command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "--"]).arg(programs::allostat());
            command
        } else if let Some(limit) = self.options.descriptors {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("ulimit -n {limit}; exec \"$0\" \"$@\"")]).arg(programs::allostat());
            command
        } else {
            Command::new(self.options.binary.clone().unwrap_or_else(programs::allostat))
        };
        command.arg("agent").arg("--config").arg(self.config_file());
        command.arg("--data-dir").arg(self.data_dir()).arg("--listen").arg(self.address.to_string());
        // Everything that it knows is looked at, unless a test says otherwise.
        command.env("ALLOSTAT_PROFILE", "full");
        // What else runs on this host is no matter of most tests.
        command.env("ALLOSTAT_OBSERVE", "false");
        command.args(&self.options.args).envs(self.options.env.iter().cloned());
        let file = || log.try_clone().expect("a descriptor must be left").into();
        let (stdout, stderr) = self.outputs.take().unwrap_or_else(|| (file(), file()));
        command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
        // A copy that another test's child has inherited half written, until that executes its own program, is busy.
        let child =
            wait_for("the binary not to be busy", Duration::from_secs(10) * patience(), || match command.spawn() {
                Err(e) if e.kind() == io::ErrorKind::ExecutableFileBusy => None,
                started => Some(started.expect("the binary under test must start")),
            });
        self.child = Some(child);
    }

    /// That user cannot write our directory, and execute a copy of the binary: the way to it may be closed to it.
    fn open_to_unprivileged(&self) {
        use std::os::unix::fs::PermissionsExt;
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(self.scratch(), open).expect("our own directory");
        std::fs::copy(programs::allostat(), self.scratch().join("allostat")).expect("the binary can be copied");
    }

    /// Starts it and waits on its socket, where TCP is not for everybody.
    #[track_caller]
    pub fn start_behind_its_socket(&mut self) {
        self.begin();
        wait_for("the agent to be ready", READY * patience(), || {
            let ready = self.try_get("/readyz").is_some_and(|ready| ready.status == 200);
            (ready || self.has_ended()).then_some(())
        });
        assert!(self.child.is_some(), "the agent ended before it was ready:\n{}", self.log());
    }

    /// Where standard output and error go at the next start.
    pub fn log_to(&mut self, stdout: Stdio, stderr: Stdio) {
        self.outputs = Some((stdout, stderr));
    }

    /// The hard limit on its descriptors, from its next start on.
    pub fn set_descriptors(&mut self, limit: Option<u64>) {
        self.options.descriptors = limit;
    }

    /// Where its data directory is, from its next start on.
    pub fn set_data_dir(&mut self, data_dir: PathBuf) {
        self.options.data_dir = Some(data_dir);
    }

    /// Waits until the process has ended by itself; then it can be started again.
    #[track_caller]
    pub fn ends(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("the agent must run");
        wait_for("the agent to end", Duration::from_secs(20) * patience(), || child.try_wait().expect("our own child"))
    }

    /// From its next start on.
    pub fn set_env(&mut self, env: Vec<(String, String)>) {
        self.options.env = env;
    }

    /// Whether the process has ended by itself; then it can be started again.
    pub fn has_ended(&mut self) -> bool {
        let ended = self.child.as_mut().is_none_or(|child| child.try_wait().expect("our own child").is_some());
        if ended {
            self.child = None;
        }
        ended
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the agent must run").id()
    }
    pub fn data_dir(&self) -> PathBuf {
        self.options.data_dir.clone().unwrap_or_else(|| self.dir.path().join("data"))
    }
    pub fn socket(&self) -> PathBuf {
        self.data_dir().join("allostat.sock")
    }
    /// A directory for files of the test itself; goes with the agent.
    pub fn scratch(&self) -> &Path {
        self.dir.path()
    }
    /// What the agent wrote to its standard output and error so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }
    fn log_file(&self) -> PathBuf {
        self.dir.path().join("agent.log")
    }
    /// What its file says at its next start.
    pub fn configure(&self, config: &str) {
        let config = format!("cgroup {{\n  parent = \"{}\"\n}}\n{config}", self.cgroups.parent);
        std::fs::write(self.config_file(), config).expect("the configuration file must be writable");
    }
    fn config_file(&self) -> PathBuf {
        self.dir.path().join("agent.hcl")
    }

    /// GET over TCP.
    #[track_caller]
    pub fn get(&self, path: &str) -> Response {
        http::tcp(self.address, "GET", path, &[], b"").unwrap_or_else(|e| panic!("GET {path}: {e}\n{}", self.log()))
    }
    /// Any request over the Unix socket, where acting is allowed.
    #[track_caller]
    pub fn request(&self, method: &str, path: &str, body: &str) -> Response {
        // A job file is HCL unless it begins as JSON does.
        let kind = if body.starts_with('{') { "application/json" } else { "text/plain" };
        http::unix(&self.socket(), method, path, &[("Content-Type", kind)], body.as_bytes())
            .unwrap_or_else(|e| panic!("{method} {path}: {e}\n{}", self.log()))
    }
    /// GET over the Unix socket of an agent that may not answer yet.
    pub fn try_get(&self, path: &str) -> Option<Response> {
        http::unix(&self.socket(), "GET", path, &[], b"").ok()
    }
    /// JSON of a GET that must be answered with 200.
    #[track_caller]
    pub fn json(&self, path: &str) -> serde_json::Value {
        let response = self.request("GET", path, "");
        assert_eq!(response.status, 200, "GET {path}: {}", response.text());
        response.json()
    }
    /// `/metrics` in text 0.0.4, now, as a curl gets it (it acknowledges nothing).
    #[track_caller]
    pub fn metrics(&self) -> Exposition {
        let response = self.get("/metrics");
        assert_eq!(response.status, 200, "{}", response.text());
        Exposition::parse(response.text())
    }

    /// A command of the binary against this agent.
    #[track_caller]
    pub fn cli(&self, args: &[&str]) -> Cli {
        let mut command = Command::new(programs::allostat());
        command.args(args).env("ALLOSTAT_ADDR", format!("unix:{}", self.socket().display())).env("NO_COLOR", "1");
        command.stdin(Stdio::null()).output().expect("the binary under test must start").into()
    }

    /// Submits a job file through `allostat run --detach`.
    #[track_caller]
    pub fn run(&self, job: &str) -> String {
        let file = self.dir.path().join("job.hcl");
        std::fs::write(&file, job).expect("the job file must be writable");
        self.cli(&["run", "--detach", file.to_str().expect("a path of ours is UTF-8")]).ok()
    }

    /// The full ids of all allocs, in the order of the API.
    #[track_caller]
    pub fn alloc_ids(&self) -> Vec<String> {
        let allocs = self.json("/v1/allocs");
        let allocs = allocs["allocs"].as_array().expect("`allocs` must be a list");
        allocs.iter().map(|alloc| alloc["id"].as_str().expect("an id").to_owned()).collect()
    }

    /// SIGKILL to the agent alone: its tasks go on.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// SIGTERM to the agent alone, and waits for its end: its tasks go on.
    #[track_caller]
    pub fn terminate(&mut self) {
        let ended = self.terminate_with_status();
        assert!(ended.is_none_or(|status| status.success()), "the agent ended with {ended:?}:\n{}", self.log());
    }

    /// The same, however it ends; `None`: it does not run.
    #[track_caller]
    pub fn terminate_with_status(&mut self) -> Option<ExitStatus> {
        let mut child = self.child.take()?;
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("our own child");
        let began = std::time::Instant::now();
        loop {
            match child.try_wait().expect("our own child") {
                Some(status) => return Some(status),
                None if began.elapsed() > Duration::from_secs(20) * patience() => {
                    let _ = child.kill();
                    let _ = child.wait();
                    panic!("the agent did not end in time after SIGTERM:\n{}", self.log());
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Stops every alloc, then the agent, and checks that nothing of them is left: no cgroup, no process.
    #[track_caller]
    pub fn stop(mut self) {
        self.cli(&["stop", "--all"]).ok();
        self.terminate();
        self.assert_nothing_left();
    }

    /// Cgroups below our parent.
    pub fn cgroups_left(&self) -> Vec<PathBuf> {
        self.cgroups.left()
    }

    /// Waits until the agent has removed its cgroups. Panics with those that are left.
    #[track_caller]
    pub fn wait_without_cgroups(&self, limit: Duration) {
        let until = Instant::now() + limit;
        loop {
            let left = self.cgroups_left();
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < until, "after {limit:?} cgroups are left: {left:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// No cgroup below our parent, and no process that knows our data directory.
    #[track_caller]
    pub fn assert_nothing_left(&self) {
        assert_eq!(self.cgroups_left(), Vec::<PathBuf>::new(), "cgroups are left:\n{}", self.log());
        assert_eq!(self.processes(), Vec::<String>::new(), "processes are left:\n{}", self.log());
    }

    /// `pid command` of every other process that names our directory in its arguments or environment: supervisors,
    /// tasks.
    pub fn processes(&self) -> Vec<String> {
        let marker = |path: &Path| path.to_str().expect("a path of ours is UTF-8").as_bytes().to_vec();
        let markers = [marker(self.dir.path()), marker(&self.data_dir())];
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").expect("/proc must be there").flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            let arguments = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let environment = environment(pid).unwrap_or_default();
            let is_own = |text: &[u8]| markers.iter().any(|marker| text.windows(marker.len()).any(|w| w == marker));
            if pid != std::process::id() && (is_own(&arguments) || is_own(&environment)) {
                found.push(format!("{pid} {}", String::from_utf8_lossy(&arguments).replace('\0', " ")));
            }
        }
        found
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the agent's log ---\n{}", self.log());
        }
        self.kill();
        self.kill_processes();
        unmount_secrets(self.dir.path());
        // `cgroups` and `dir` clean up after themselves.
    }
}

impl Agent {
    /// SIGKILL to supervisors and tasks.
    pub fn kill_processes(&self) {
        for process in self.processes() {
            let pid = process.split(' ').next().and_then(|pid| pid.parse().ok());
            if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

/// Of tasks of an agent that did not see their end.
pub fn unmount_secrets(below: &Path) {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let places = mounts.lines().filter_map(|line| line.strip_prefix("allostat-secrets ")?.split(' ').next());
    for place in places.filter(|place| Path::new(place).starts_with(below)) {
        let _ = rustix::mount::unmount(place, rustix::mount::UnmountFlags::DETACH);
    }
}

/// A command without an agent: its own home, and nothing of the environment that could name one.
#[track_caller]
pub fn alone(home: &Path, args: &[&str]) -> Cli {
    let mut command = Command::new(programs::allostat());
    command.args(args).env_remove("ALLOSTAT_ADDR").env("HOME", home).env("XDG_STATE_HOME", home.join("state"));
    command.stdin(Stdio::null()).output().expect("the binary under test must start").into()
}

/// Whether something listens there.
pub fn listens(address: SocketAddr) -> io::Result<()> {
    std::net::TcpStream::connect_timeout(&address, Duration::from_secs(1)).map(drop)
}
