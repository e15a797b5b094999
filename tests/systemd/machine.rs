//! The machine and its systemd, and an agent that is a unit of it. Tests run one after another here, and each finds no
//! unit that one before it made, whatever became of that.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Cli, Exposition, allostat, patience, place, unix, wait_for, workload};

pub const TREE: &str = "/sys/fs/cgroup";
pub const USER: u32 = 1000;

/// Whether this is the machine that these tests may change.
pub fn here() -> bool {
    place() == "v2-systemd"
}

/// Who runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    Root,
    /// uid 1000, whose systemd runs.
    User,
}

impl Who {
    pub fn command(self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).current_dir("/");
        if self == Who::User {
            command.uid(USER).gid(USER).env("HOME", home()).env("XDG_RUNTIME_DIR", format!("/run/user/{USER}"));
        }
        command
    }

    /// Runs it; panics with what it said unless it succeeds.
    #[track_caller]
    pub fn run(self, program: &str, args: &[&str]) -> String {
        let output = self.command(program).args(args).output().unwrap_or_else(|e| panic!("{program}: {e}"));
        Cli::from(output).ok()
    }

    #[track_caller]
    pub fn systemctl(self, args: &[&str]) -> String {
        let user = if self == Who::User { &["--user"][..] } else { &[] };
        self.run("systemctl", &[user, args].concat())
    }

    /// Stops units, by names or patterns, kills what does not stop in time, and waits until none is left. Gives what is
    /// left nevertheless.
    pub fn clear(self, units: &[&str]) -> String {
        let user = if self == Who::User { &["--user"][..] } else { &[] };
        // Errors: there is no such unit, or systemd did not answer in time.
        let systemctl = |words: &[&str]| {
            let output = self.command("systemctl").args(user).args(words).arg("--").args(units).output();
            let output = output.unwrap_or_else(|e| panic!("systemctl: {e}"));
            let printed = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
            if output.status.success() { Ok(printed(&output.stdout)) } else { Err(printed(&output.stderr)) }
        };
        let states = "--state=active,activating,deactivating,reloading,failed";
        let (began, limit) = (Instant::now(), Duration::from_secs(30) * patience());
        loop {
            let left = systemctl(&["list-units", "--plain", "--no-legend", states]).unwrap_or_else(|error| error);
            if left.is_empty() || began.elapsed() > limit {
                return left;
            }
            let _ = systemctl(&["stop", "--no-block"]);
            if began.elapsed() > limit / 3 {
                let _ = systemctl(&["kill", "--signal=KILL"]);
            }
            let _ = systemctl(&["reset-failed"]);
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// One property of a unit.
    #[track_caller]
    pub fn property(self, unit: &str, name: &str) -> String {
        self.systemctl(&["show", "--value", &format!("--property={name}"), "--", unit]).trim().to_owned()
    }
}

/// Of [`USER`].
pub fn home() -> PathBuf {
    "/data/tester".into()
}

/// Starts the systemd of [`USER`], with a home that is its own.
#[track_caller]
pub fn user_manager() {
    fs::create_dir_all(home().join(".local/bin")).expect("/data must be writable");
    let link = home().join(".local/bin/allostat");
    if !link.exists() {
        std::os::unix::fs::symlink(allostat(), link).expect("our own directory");
    }
    Who::Root.run("chown", &["-R", &format!("{USER}:{USER}"), home().to_str().expect("UTF-8")]);
    Who::Root.run("loginctl", &["enable-linger", "tester"]);
    Who::Root.systemctl(&["start", &format!("user@{USER}.service")]);
}

/// Agents of the test that runs.
static AGENTS: AtomicUsize = AtomicUsize::new(0);

/// All units of an agent, and what it makes.
const UNITS: [&str; 3] = ["allostat.service", "allostat-observe.service", "allostat-*.scope"];

/// A started agent, by its data directory. Dropped, it leaves nothing behind.
pub struct Agent {
    pub who: Who,
    pub data: PathBuf,
    /// `allostat-….scope`
    pub scope: String,
}

impl Agent {
    /// Of one that does not run yet. A test's first one finds nothing of a test before.
    #[track_caller]
    pub fn new(who: Who, data: &str) -> Agent {
        if AGENTS.load(Ordering::Relaxed) == 0 {
            let left = who.clear(&UNITS);
            assert!(left.is_empty(), "a test before this one has left units that do not end: {left}");
            let _ = fs::remove_dir_all(data);
        }
        Agent::at(who, data)
    }

    /// Of one that may run.
    pub fn at(who: Who, data: &str) -> Agent {
        AGENTS.fetch_add(1, Ordering::Relaxed);
        let scope = format!("allostat-{}.scope", data.trim_start_matches('/').replace('/', "-"));
        Agent { who, data: data.into(), scope }
    }

    fn socket(&self) -> PathBuf {
        self.data.join("allostat.sock")
    }

    #[track_caller]
    pub fn wait_ready(&self) {
        wait_for("the agent to be ready", Duration::from_secs(30) * patience(), || {
            (unix(&self.socket(), "GET", "/readyz", &[], b"").ok()?.status == 200).then_some(())
        });
    }

    #[track_caller]
    pub fn json(&self, path: &str) -> serde_json::Value {
        let answer = unix(&self.socket(), "GET", path, &[], b"").unwrap_or_else(|e| panic!("GET {path}: {e}"));
        assert_eq!(answer.status, 200, "GET {path}: {}", answer.text());
        answer.json()
    }

    #[track_caller]
    pub fn metrics(&self) -> Exposition {
        let answer = unix(&self.socket(), "GET", "/metrics", &[], b"").unwrap_or_else(|e| panic!("/metrics: {e}"));
        Exposition::parse(answer.text())
    }

    pub fn cli(&self, args: &[&str]) -> Cli {
        let address = format!("unix:{}", self.socket().display());
        let mut command = self.who.command(allostat().to_str().expect("UTF-8"));
        command.args(args).env("ALLOSTAT_ADDR", address).env("NO_COLOR", "1");
        command.output().expect("the binary under test must start").into()
    }

    /// Submits a service of one task of `workload`, both called `name`, and gives its alloc and what was said.
    #[track_caller]
    pub fn submit(&self, name: &str, args: &[&str], config: &str, resources: &str) -> (Alloc<'_>, Cli) {
        let args: Vec<String> = args.iter().map(|a| format!("{a:?}")).collect();
        let job = format!(
            "job \"{name}\" {{\n group \"g\" {{\n reschedule {{\n attempts=0\n unlimited=false\n }}\n restart {{\n attempts = 0\n mode = \"fail\"\n }}\n task \"{name}\" {{\n \
             driver = \"raw_exec\"\n config {{\n command = {:?}\n args = [{}]\n {config}\n }}\n \
             resources {{\n {resources}\n }}\n }}\n }}\n}}\n",
            workload().display().to_string(),
            args.join(", "),
        );
        let file = Path::new("/tmp").join(format!("{name}.hcl"));
        fs::write(&file, job).expect("/tmp must be writable");
        let output = self.cli(&["run", "--detach", file.to_str().expect("UTF-8")]);
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        let allocs = self.json("/v1/allocs");
        let own = allocs["allocs"].as_array().into_iter().flatten().rfind(|a| a["job"] == name);
        let id = own.and_then(|a| a["id"].as_str()).expect("an accepted job must have an alloc").to_owned();
        (Alloc { agent: self, id, task: name.to_owned() }, output)
    }

    /// Where the scope is, below [`TREE`].
    #[track_caller]
    pub fn scope_path(&self) -> String {
        let path = self.who.property(&self.scope, "ControlGroup");
        assert!(path.ends_with(&format!("/{}", self.scope)), "{path:?}");
        path
    }

    /// Stops every alloc, and waits until their cgroups are gone from the scope. An agent that ended earlier would
    /// leave them there, and a scope with cgroups of allocs stays for the next agent.
    #[track_caller]
    pub fn stop_all(&self) {
        self.cli(&["stop", "--all"]).ok();
        let allocs = self.json("/v1/allocs");
        let allocs = allocs["allocs"].as_array().into_iter().flatten();
        let ids: Vec<&str> = allocs.filter_map(|alloc| alloc["id"].as_str()).collect();
        let path = self.who.property(&self.scope, "ControlGroup");
        if path.is_empty() {
            return;
        }
        let tasks = Path::new(TREE).join(path.trim_start_matches('/')).join("tasks");
        wait_for("the cgroups of the allocs to be gone", Duration::from_secs(30) * patience(), || {
            (!directories(&tasks).iter().any(|name| ids.contains(&&**name))).then_some(())
        });
    }

    /// Waits until systemd has let go of the scope, and nothing of it is left.
    #[track_caller]
    pub fn wait_scope_removed(&self, path: &str) {
        let directory = Path::new(TREE).join(path.trim_start_matches('/'));
        let (began, limit) = (Instant::now(), Duration::from_secs(30) * patience());
        loop {
            let state = self.who.property(&self.scope, "ActiveState");
            if state == "inactive" && !directory.exists() {
                return;
            }
            let in_leaf = fs::read_to_string(directory.join("supervisors/cgroup.procs")).unwrap_or_default();
            let left = directories(&directory.join("tasks"));
            assert!(
                began.elapsed() < limit,
                "waited {limit:?} in vain for the scope to be gone: it is {state}, with {left:?}, processes {in_leaf:?}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let of_own = ["--no-pager", "-n", "80", "--unit=allostat*", "--user-unit=allostat*"];
            let journal = Who::Root.command("journalctl").args(of_own).output();
            eprintln!("{}", String::from_utf8_lossy(&journal.expect("journalctl is there").stdout));
        }
        let left = self.who.clear(&["allostat.service", "allostat-observe.service", &self.scope]);
        if !left.is_empty() {
            eprintln!("units are left: {left}");
        }
        let _ = fs::remove_dir_all(&self.data);
        AGENTS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The names of the directories in one.
fn directories(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// A unit that a test starts with `systemd-run`. Dropped, it is stopped, however the test ended.
pub struct Unit(String);

impl Unit {
    /// `words`: more options, `--`, and what it runs.
    #[track_caller]
    pub fn run(name: &str, words: &[&str]) -> Unit {
        let unit = Unit(format!("{name}.service"));
        let left = Who::Root.clear(&[&unit.0]);
        assert!(left.is_empty(), "a test before this one has left it: {left}");
        Who::Root.run("systemd-run", &[&[&*format!("--unit={name}")], words].concat());
        unit
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        let left = Who::Root.clear(&[&self.0]);
        if !left.is_empty() {
            eprintln!("a unit is left: {left}");
        }
    }
}

/// One task of its own alloc.
pub struct Alloc<'a> {
    pub agent: &'a Agent,
    pub id: String,
    pub task: String,
}

impl Alloc<'_> {
    pub fn labels(&self) -> [(&str, &str); 2] {
        [("alloc_id", &self.id), ("task", &self.task)]
    }

    /// The pid of the main process, once it runs.
    #[track_caller]
    pub fn pid(&self) -> u64 {
        wait_for("the task's pid", Duration::from_secs(10) * patience(), || {
            find_pid(&self.agent.json(&format!("/v1/allocs/{}", self.id)))
        })
    }

    /// What it printed when it had reached what it promised.
    #[track_caller]
    pub fn ready(&self) {
        wait_for("the task's ready line", Duration::from_secs(30) * patience(), || {
            let path = format!("/v1/allocs/{}/logs/{}?stream=stdout", self.id, self.task);
            let log = unix(&self.agent.socket(), "GET", &path, &[], b"").ok()?;
            log.text().contains("ready ").then_some(())
        });
    }

    #[track_caller]
    pub fn wait_dead(&self) {
        wait_for("the task to be dead", Duration::from_secs(30) * patience(), || {
            let labels = [("alloc_id", self.id.as_str()), ("task", &self.task), ("state", "dead")];
            (self.agent.metrics().one("allostat_task_state", &labels)?.u64() == 1).then_some(())
        });
    }

    pub fn exits(&self, outcome: &str) -> u64 {
        let labels = [("workload", self.task.as_str()), ("task", &self.task), ("outcome", outcome)];
        self.agent.metrics().u64("allostat_workload_exits_total", &labels)
    }

    /// A file of its cgroup in a scope, past the code under test.
    #[track_caller]
    pub fn file(&self, scope: &str, name: &str) -> String {
        let path = format!("{TREE}{scope}/tasks/{}/{}/{name}", self.id, self.task);
        fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}")).trim().to_owned()
    }
}

fn find_pid(value: &serde_json::Value) -> Option<u64> {
    match value {
        serde_json::Value::Object(map) => {
            map.get("pid").map_or_else(|| map.values().find_map(find_pid), |pid| pid.as_u64())
        }
        serde_json::Value::Array(list) => list.iter().find_map(find_pid),
        _ => None,
    }
}

/// Where a process is.
#[track_caller]
pub fn cgroup_of(pid: u64) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_else(|e| panic!("process {pid}: {e}"));
    text.trim().strip_prefix("0::").expect("cgroup v2 alone").to_owned()
}

/// `comm` and pid of each process in a cgroup.
#[track_caller]
pub fn inside(path: &str) -> Vec<(String, u64)> {
    let file = format!("{TREE}{path}/cgroup.procs");
    let pids = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{file}: {e}"));
    let pids = pids.lines().map(|pid| pid.parse::<u64>().expect("a pid"));
    let mut all: Vec<_> = pids
        .filter_map(|pid| Some((fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim().to_owned(), pid)))
        .collect();
    all.sort();
    all
}

pub fn names(processes: &[(String, u64)]) -> Vec<&str> {
    processes.iter().map(|(name, _)| name.as_str()).collect()
}

/// Those in the leaf of a scope, but for who forks supervisors: at most one, which comes with the first start of an
/// agent and leaves with that.
#[track_caller]
pub fn in_leaf(scope: &str) -> Vec<String> {
    let leaf = inside(&format!("{scope}/supervisors"));
    let (spawners, rest): (Vec<&str>, Vec<&str>) = names(&leaf).into_iter().partition(|name| *name == "allostat-spawn");
    assert!(spawners.len() <= 1, "{leaf:?}");
    rest.into_iter().map(str::to_owned).collect()
}
