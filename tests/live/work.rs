//! Jobs of one workload task, and waiting for what becomes of them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::common::{Agent, Exposition, mounted_v1, mounted_v2, patience, unmount_secrets, wait_for, workload};

/// A job of one alloc with one task, both named after the job.
#[derive(Debug, Clone)]
pub struct Work {
    pub id: String,
    pub args: Vec<String>,
    /// `service` or `batch`.
    pub kind: &'static str,
    /// Lines of `resources { ... }`.
    pub resources: String,
    /// More lines of `config { ... }`.
    pub config: String,
    /// Lines of `restart { ... }`.
    pub restart: String,
    /// More lines of the task.
    pub task: String,
    /// Lines of the group.
    pub group: String,
}

impl Work {
    pub fn batch(id: &str, args: &[&str]) -> Work {
        Work {
            id: id.into(),
            args: args.iter().map(|a| (*a).to_owned()).collect(),
            kind: "batch",
            resources: String::new(),
            config: String::new(),
            restart: "attempts = 0\n mode = \"fail\"".into(),
            task: String::new(),
            group: String::new(),
        }
    }
    /// Ends and is started again for as long as anybody looks.
    pub fn looping(id: &str, args: &[&str]) -> Work {
        let again = "attempts = 1000\n interval = \"24h\"\n delay = \"100ms\"\n mode = \"delay\"";
        Work { restart: again.into(), kind: "service", ..Work::batch(id, args) }
    }
    pub fn resources(mut self, lines: &str) -> Work {
        self.resources = lines.into();
        self
    }
    pub fn config(mut self, lines: &str) -> Work {
        self.config = lines.into();
        self
    }
    pub fn hcl(&self) -> String {
        let args: Vec<String> = self.args.iter().map(|a| format!("{a:?}")).collect();
        format!(
            "job \"{id}\" {{\n type = \"{kind}\"\n group \"{id}\" {{\n {group}\n reschedule {{\n attempts=0\n unlimited=false\n }}\n restart {{\n {restart}\n }}\n task \"{id}\" {{\n \
             driver = \"raw_exec\"\n config {{\n command = {command:?}\n args = [{args}]\n {config}\n }}\n \
             resources {{\n {resources}\n }}\n {task}\n }}\n }}\n}}\n",
            id = self.id,
            group = self.group,
            kind = self.kind,
            restart = self.restart,
            command = workload().display().to_string(),
            args = args.join(", "),
            config = self.config,
            resources = self.resources,
            task = self.task,
        )
    }
    /// Submits it and gives the alloc.
    #[track_caller]
    pub fn run<'a>(&self, agent: &'a Agent) -> Alloc<'a> {
        self.run_as(agent, &self.hcl())
    }
    /// The same, of a job that was changed.
    #[track_caller]
    pub fn run_as<'a>(&self, agent: &'a Agent, hcl: &str) -> Alloc<'a> {
        agent.run(hcl);
        let id = agent.json("/v1/allocs")["allocs"]
            .as_array()
            .expect("a list")
            .iter()
            .filter(|a| a["job"] == self.id.as_str())
            .map(|a| a["id"].as_str().expect("an id").to_owned())
            .next_back()
            .expect("a job that was accepted must have an alloc");
        Alloc { agent, id, task: self.id.clone() }
    }
}

#[derive(Debug)]
pub struct Alloc<'a> {
    pub agent: &'a Agent,
    pub id: String,
    pub task: String,
}

impl Alloc<'_> {
    pub fn labels(&self) -> [(&str, &str); 2] {
        [("alloc_id", &self.id), ("task", &self.task)]
    }
    /// Waits for the task's `ready {...}` line and gives its object.
    #[track_caller]
    pub fn ready(&self) -> serde_json::Value {
        wait_for("the task's ready line", Duration::from_secs(30) * patience(), || {
            let log = self.log("stdout");
            let line = log.lines().find_map(|l| l.strip_prefix("ready "))?;
            serde_json::from_str(line).ok()
        })
    }
    #[track_caller]
    pub fn log(&self, stream: &str) -> String {
        let path = format!("/v1/allocs/{}/logs/{}?stream={stream}", self.id, self.task);
        let response = self.agent.request("GET", &path, "");
        if response.status == 200 { response.text().to_owned() } else { String::new() }
    }
    #[track_caller]
    pub fn wait_dead(&self) {
        wait_for("the task to be dead", Duration::from_secs(60) * patience(), || {
            let labels = [("alloc_id", self.id.as_str()), ("task", self.task.as_str()), ("state", "dead")];
            (self.agent.metrics().one("allostat_task_state", &labels)?.u64() == 1).then_some(())
        });
    }
    /// An exposition in which everything of this task that moved before the call was read after it.
    #[track_caller]
    pub fn fresh_metrics(&self) -> Exposition {
        fresh_metrics(self.agent)
    }
    #[track_caller]
    pub fn wait_exits(&self, outcome: &str, at_least: u64) {
        wait_for(&format!("{at_least} exits of {}", self.task), Duration::from_secs(30) * patience(), || {
            (self.exits(outcome) >= at_least).then_some(())
        });
    }
    pub fn exits(&self, outcome: &str) -> u64 {
        self.agent.metrics().u64(
            "allostat_workload_exits_total",
            &[("workload", &self.task), ("task", &self.task), ("outcome", outcome)],
        )
    }
    /// A kernel file of the task's own cgroup, past the code under test: the v1 name or the v2 name.
    pub fn kernel(&self, controller: &str, v1: &str, v2: &str) -> Option<String> {
        let name = if mounted_v1(controller).is_some() { v1 } else { v2 };
        self.agent.cgroups.read(controller, format!("{}/{}", self.id, self.task), name)
    }
    #[track_caller]
    pub fn kernel_u64(&self, controller: &str, v1: &str, v2: &str) -> u64 {
        let text = self.kernel(controller, v1, v2).unwrap_or_else(|| panic!("no {v1} or {v2}"));
        text.trim().parse().unwrap_or_else(|_| panic!("{v1} or {v2} says {text:?}"))
    }
}

/// The agent may be making directories in it meanwhile.
pub fn remove_under_use(path: &std::path::Path) {
    use std::io::ErrorKind::{DirectoryNotEmpty, NotFound, ResourceBusy};
    wait_for("a removal that no other one crossed", Duration::from_secs(10) * patience(), || {
        // The kernel removes no mount point.
        unmount_secrets(path);
        let removed = std::fs::remove_dir_all(path).map_err(|e| e.kind());
        assert!(matches!(removed, Ok(()) | Err(NotFound | DirectoryNotEmpty | ResourceBusy)), "{removed:?}");
        (!matches!(removed, Err(DirectoryNotEmpty | ResourceBusy))).then_some(())
    });
}

/// The number after `key` in a flat keyed kernel file.
pub fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Why this machine cannot run a test that needs this controller; `None` where it can.
pub fn lacks(controller: &str) -> Option<&'static str> {
    if !crate::common::is_root() {
        Some("not-root")
    } else if mounted_v1(controller).is_none() && mounted_v2(controller).is_none() {
        Some("no-cgroup-controller")
    } else {
        None
    }
}

/// An exposition after two passes that began after the call: the first one reads what moved, and the second one the
/// rest of that.
#[track_caller]
pub fn fresh_metrics(agent: &Agent) -> Exposition {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64();
    let mut first = None;
    wait_for("two passes over all tasks", Duration::from_secs(20) * patience(), || {
        std::thread::sleep(Duration::from_millis(100));
        let metrics = agent.metrics();
        let pass = metrics.one("allostat_collector_last_sample_timestamp_seconds", &[("collector", "task")])?.f64();
        let first = *first.get_or_insert(Some(pass).filter(|pass| *pass > now)?);
        (pass > first).then_some(metrics)
    })
}

pub const MIB: u64 = 1 << 20;

/// `a` and `b` are at most `tolerance` apart.
#[track_caller]
pub fn assert_near(what: &str, a: u64, b: u64, tolerance: u64) {
    assert!(a.abs_diff(b) <= tolerance, "{what}: {a} and {b} are {} apart, more than {tolerance}", a.abs_diff(b));
}
