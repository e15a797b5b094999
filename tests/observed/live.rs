//! Plain cgroups that a test makes, beside a real agent: found, measured, ended, and never touched.

use std::mem::MaybeUninit;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use serde_json::Value;

use crate::common::{Agent, AgentOptions, Cgroups, Sample, is_root, patience, wait_for};

pub fn long() -> Duration {
    Duration::from_secs(60) * patience()
}

/// Observed cgroups, and an agent that samples these alone.
pub struct Scene {
    pub agent: Agent,
    pub observed: Cgroups,
}

impl Scene {
    pub fn new(more: &[(&str, &str)]) -> Scene {
        let observed_cgroups = Cgroups::new();
        let scene = Scene { agent: agent(&observed_cgroups, more), observed: observed_cgroups };
        scene.wait_for_the_observer();
        scene
    }
    pub fn start_again(&mut self) {
        self.agent.start_again();
        self.wait_for_the_observer();
    }
    /// What begins from now on is seen to begin.
    fn wait_for_the_observer(&self) {
        wait_for("the observer", long(), || {
            self.agent.metrics().one("allostat_observed_allocs", &[("source", "cgroup")]).map(drop)
        });
    }

    pub fn id(&self, name: &str) -> String {
        format!("cgroup:{}/{name}", self.observed.parent)
    }

    /// Runs a shell in a cgroup of its own.
    pub fn run(&self, name: impl AsRef<Path>, script: &str) -> Child {
        self.observed.make(&name);
        // It begins when it is where it belongs.
        let mut command = Command::new("sh");
        command.args(["-c", &format!("read go; {script}")]).stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        self.observed.place(&name, child.id());
        drop(child.stdin.take());
        child
    }

    pub fn end(&self, name: impl AsRef<Path>, mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
        self.observed.remove(name);
    }

    pub fn allocs(&self) -> Vec<Value> {
        self.agent.json("/v1/allocs")["allocs"].as_array().unwrap().clone()
    }

    pub fn wait(&self, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let id = self.id(name);
        wait_for(what, long(), || self.allocs().into_iter().find(|alloc| alloc["id"] == *id && is(alloc)))
    }

    /// The value of a family of that alloc in a body of now.
    pub fn value(&self, family: &str, name: &str) -> Option<f64> {
        self.agent.metrics().one(family, &[("alloc_id", &self.id(name))]).map(Sample::f64)
    }
}

pub fn agent(observed: &Cgroups, more: &[(&str, &str)]) -> Agent {
    let include = format!("cgroup:{}/*", observed.parent);
    let known = [("ALLOSTAT_OBSERVE", "true"), ("ALLOSTAT_OBSERVE_INCLUDE", &include)];
    let env = known.iter().chain(more).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Agent::with(AgentOptions { env, ..AgentOptions::default() })
}

const IDLE: &str = "exec sleep 1000";
pub const SOME_WORK: &str = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exec sleep 1000";

/// Promise (Observed workloads): Running workloads are in the first snapshot, with the values of the kernel's files
#[test]
fn observed_workloads_are_in_the_first_snapshot_with_the_kernels_values() {
    if !is_root() {
        skip_test!("not-root");
    }
    let observed_cgroups = Cgroups::new();
    let mut child = observed_cgroups.sleeper("a");
    let scene = Scene { agent: agent(&observed_cgroups, &[]), observed: observed_cgroups };
    let alloc = scene.wait("a", "the cgroup", |_| true);
    assert_eq!((&alloc["source"], &alloc["status"]), (&"cgroup".into(), &"running".into()), "{alloc}");
    assert_eq!(alloc["tasks"]["a"]["state"], "running");
    assert!(alloc["created_at"].is_null() && alloc["tasks"]["a"]["state_since"].is_null(), "unknown: {alloc}");
    let read = |controller: &str, name: &str| scene.observed.read(controller, "a", name);
    let peak = read("memory", "memory.max_usage_in_bytes").or_else(|| read("memory", "memory.peak"));
    let peak: f64 = peak.expect("a host of tests has this").trim().parse().unwrap();
    assert_eq!(scene.value("allostat_task_memory_peak_bytes", "a"), Some(peak));
    assert_eq!(scene.value("allostat_alloc_memory_peak_bytes", "a"), Some(peak), "its own cgroup is its task's");
    assert_eq!(scene.value("allostat_task_pids_current", "a"), Some(1.0));
    assert_eq!(scene.value("allostat_task_memory_window_peak_bytes", "a"), None, "nothing of others is reset");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Between two scrapes observed cgroups are not read at each tick; a scrape has their usage up to the newest one all
/// the same.
#[test]
fn late_scrape_has_observed_usage_up_to_the_newest_tick() {
    if !is_root() {
        skip_test!("not-root");
    }
    let scene = Scene::new(&[]);
    let child = scene.run("busy", "while :; do :; done");
    scene.wait("busy", "the cgroup", |_| true);
    let used = || -> f64 {
        let v1 = scene.observed.read("cpuacct", "busy", "cpuacct.usage");
        let nanos = v1.and_then(|text| text.trim().parse::<f64>().ok());
        let micros = || -> Option<f64> {
            let text = scene.observed.read("cpu", "busy", "cpu.stat")?;
            text.lines().find_map(|line| line.strip_prefix("usage_usec "))?.parse().ok()
        };
        nanos.map(|ns| ns / 1e9).or_else(|| Some(micros()? / 1e6)).expect("a host of tests has this")
    };
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    // Gives whether there was a tick in this while. Then what was used before it is in what is shown.
    let had_tick = |round: u32, pause: Duration| {
        let until = Instant::now() + pause;
        let mut before: Vec<(f64, f64)> = Vec::new();
        while before.is_empty() || Instant::now() < until {
            let used = used();
            before.push((now(), used));
            std::thread::sleep(Duration::from_millis(20));
        }
        let body = scene.agent.metrics();
        let tick = body.f64("allostat_collector_last_sample_timestamp_seconds", &[("collector", "task")]);
        let shown = body.one("allostat_task_cpu_usage_seconds_total", &[("alloc_id", &scene.id("busy"))]);
        let shown = shown.map(Sample::f64);
        let Some((at, used)) = before.iter().rfind(|(at, _)| at + 1e-6 < tick) else { return false };
        assert!(
            shown >= Some(*used),
            "round {round}: {shown:?} s are shown, {used} were used {} s before the tick",
            tick - at
        );
        true
    };
    for round in 0..8 {
        std::thread::sleep(Duration::from_millis(1_700 + 250 * u64::from(round)));
        // Ticks are a second apart; on a busy machine one may be late.
        let most = 4 * patience();
        let is_fresh = (1..=most).any(|tries| had_tick(round, Duration::from_millis(1_300) * tries));
        assert!(is_fresh, "round {round}: what is shown is older than {:?}", Duration::from_millis(1_300) * most);
    }
    scene.end("busy", child);
}

/// Promise (Observed workloads): New workloads are found; ended ones keep their last series, and continue under their
/// name
#[test]
fn observed_cgroup_is_found_retains_final_series_and_continues_under_its_name() {
    if !is_root() {
        skip_test!("not-root");
    }
    // As on a host where the kernel does not report ends.
    let scene = Scene::new(&[("ALLOSTAT_KERNEL_ENDS", "false")]);
    let child = scene.run("web", SOME_WORK);
    let alloc = scene.wait("web", "the new cgroup", |alloc| alloc["status"] == "running");
    assert!(alloc["created_at"].is_u64(), "it was seen to begin: {alloc}");
    let busy = wait_for("some CPU time", long(), || {
        scene.value("allostat_task_cpu_usage_seconds_total", "web").filter(|cpu| *cpu > 0.005)
    });
    scene.end("web", child);
    let over = scene.wait("web", "its end", |alloc| alloc["status"] == "complete");
    assert_eq!(over["tasks"]["web"]["last_exit"]["outcome"], "unknown", "a plain cgroup has no exit status");
    assert!(over["finished_at"].is_u64());
    let last = scene.value("allostat_task_cpu_usage_seconds_total", "web").unwrap();
    assert!(last >= busy, "{last} {busy}");
    assert_eq!(scene.value("allostat_task_memory_usage_bytes", "web"), None, "what was used is used no more");
    assert!(scene.value("allostat_task_memory_peak_bytes", "web").is_some());

    let child = scene.run("web", IDLE);
    scene.wait("web", "the same again", |alloc| alloc["status"] == "running");
    assert!(scene.value("allostat_task_cpu_usage_seconds_total", "web") >= Some(last), "counters never fall");
    scene.end("web", child);
    scene.wait("web", "its second end", |alloc| alloc["status"] == "complete");
    let body = scene.agent.metrics();
    let labels = [("workload", scene.observed.parent.as_str()), ("task", "web")];
    let exits =
        body.one("allostat_workload_exits_total", &[labels[0], labels[1], ("outcome", "unknown")]).map(Sample::f64);
    assert_eq!(exits, Some(2.0), "one workload with two ends");
    assert!(body.all("allostat_workload_events_total", &labels).is_empty(), "an observed workload has no events");
}

/// Promise (Observed workloads): An empty cgroup is no workload until it has a process; it is not read because another
/// one comes or goes
#[test]
fn empty_cgroup_and_parent_of_a_task_are_no_allocs() {
    if !is_root() {
        skip_test!("not-root");
    }
    let scene = Scene::new(&[]);
    scene.observed.make("empty");
    scene.observed.make("above/below");
    let child = scene.run("above/below", IDLE);
    scene.wait("above/below", "the lower one", |_| true);
    let ids: Vec<String> = scene.allocs().iter().map(|alloc| alloc["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids, [scene.id("above/below")]);
    let late = scene.run("empty", IDLE);
    scene.wait("empty", "what is not empty any more", |_| true);
    scene.end("above/below", child);
    scene.end("empty", late);
}

/// Promise (Observed workloads): Workloads above `observe.max_allocs` are counted
#[test]
fn observed_cgroup_above_the_limit_is_counted_and_admitted_when_there_is_room() {
    if !is_root() {
        skip_test!("not-root");
    }
    let scene = Scene::new(&[("ALLOSTAT_OBSERVE_MAX_ALLOCS", "1"), ("ALLOSTAT_OBSERVE_SOURCES", "cgroup")]);
    // Whatever else runs here takes the one place, or one of these does.
    let a = scene.run("a", IDLE);
    let b = scene.run("b", IDLE);
    let left_out = || scene.agent.metrics().one("allostat_observed_left_out", &[("reason", "limit")]).map(Sample::f64);
    wait_for("one to be left out", long(), || (left_out() >= Some(1.0)).then_some(()));
    let running = || -> Vec<String> {
        let all = scene.allocs().into_iter().filter(|alloc| alloc["status"] == "running");
        all.filter_map(|alloc| alloc["id"].as_str().map(str::to_owned)).collect()
    };
    let has_room = wait_for("the one that is there", long(), || running().pop());
    assert_eq!(running().len(), 1);
    let (first, second) = if has_room == scene.id("a") { (("a", a), ("b", b)) } else { (("b", b), ("a", a)) };
    scene.end(first.0, first.1);
    let other = scene.id(second.0);
    wait_for("the other one in its place", long(), || (running() == [other.as_str()]).then_some(()));
    scene.end(second.0, second.1);
}

/// Promise (Observed workloads): Actions on observed workloads are refused with the command of their runtime; `stop
/// --all` ends managed ones alone
#[test]
fn commands_on_observed_allocs_are_refused_with_the_command_of_their_source() {
    if !is_root() {
        skip_test!("not-root");
    }
    let scene = Scene::new(&[]);
    let child = scene.run("a", IDLE);
    let id = scene.wait("a", "the cgroup", |_| true)["id"].as_str().unwrap().to_owned();
    for command in [&["stop", &id][..], &["restart", &id], &["signal", &id, "HUP"], &["logs", &id, "a"]] {
        let output = scene.agent.cli(command);
        assert!(output.code != Some(0) && output.stderr.contains("only observed here"), "{command:?}: {output:?}");
    }
    scene.agent.cli(&["stop", "--all"]).ok();
    let output = scene.agent.cli(&["status", "--source", "cgroup"]).ok();
    assert!(output.contains(&id) && output.contains("running"), "{output}");
    assert!(scene.agent.cli(&["stats", &id]).ok().contains("pids current"));
    assert!(scene.agent.cli(&["status", &id]).ok().contains("run by"));
    scene.end("a", child);
}

/// inotify reports each file that was open for writing and is closed.
///
/// Promise (Observed workloads): No file of an observed workload is ever written
#[test]
fn no_file_of_an_observed_workload_is_ever_written() {
    if !is_root() {
        skip_test!("not-root");
    }
    let scene = Scene::new(&[]);
    let child = scene.run("a", "while :; do :; done");
    let id = scene.id("a");
    let kernel = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).unwrap();
    for directory in scene.observed.directories("a") {
        inotify::add_watch(&kernel, &directory, WatchFlags::CLOSE_WRITE).unwrap();
    }
    let written = || {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&kernel, &mut buffer);
        let mut files = Vec::new();
        while let Ok(event) = reader.next() {
            files.extend(event.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
        files
    };
    scene.wait("a", "the cgroup", |_| true);
    wait_for("some ticks", long(), || scene.value("allostat_task_cpu_usage_seconds_total", "a").filter(|s| *s > 3.0));
    for command in [&["stop", &id][..], &["restart", &id], &["signal", &id, "HUP"], &["stats", &id]] {
        let _ = scene.agent.cli(command);
    }
    assert_eq!(written(), Vec::<String>::new());
    // A write of another process is reported, so one of the agent would have been.
    scene.observed.place("a", child.id());
    assert!(written().contains(&"cgroup.procs".to_owned()));
    scene.end("a", child);
}

/// The least of all limits is below what any agent takes: everything that can be left out is, and it is reported.
///
/// Promise (Code, boards and alerts): Near its memory limit the agent leaves out observed workloads, then details; it
/// reports that and recovers
#[test]
fn agent_near_its_memory_limit_sheds_observed_workloads_then_details() {
    if !is_root() {
        skip_test!("not-root");
    }
    let observed_cgroups = Cgroups::new();
    let agent = agent(&observed_cgroups, &[("ALLOSTAT_MEMORY_LIMIT_MIB", "4"), ("ALLOSTAT_PROFILE", "full")]);
    let shed = |what: &str| agent.metrics().one("allostat_agent_memory_shed", &[("what", what)]).map(Sample::f64);
    wait_for("all to be shed", long(), || (shed("detail") == Some(1.0)).then_some(()));
    assert_eq!((shed("new_observed"), shed("observed")), (Some(1.0), Some(1.0)));
    let scene = Scene { agent, observed: observed_cgroups };
    let mut child = scene.observed.sleeper("late");
    let left_out = || scene.agent.metrics().one("allostat_observed_left_out", &[("reason", "limit")]).map(Sample::f64);
    wait_for("the cgroup to be left out", long(), || (left_out() >= Some(1.0)).then_some(()));
    scene.agent.run(
        r#"job "kept" {
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["1000"]
      }
    }
  }
}"#,
    );
    let body = wait_for("the managed task", long(), || {
        let body = scene.agent.metrics();
        (!body.all("allostat_task_memory_peak_bytes", &[("workload", "kept")]).is_empty()).then_some(body)
    });
    assert!(body.one("allostat_exposition_info", &[("profile", "lean")]).is_some(), "the body says what it is");
    assert!(body.all("allostat_task_memory_usage_bytes", &[]).is_empty(), "the profile lean has no such family");
    assert_eq!(body.f64("allostat_agent_memory_limit_bytes", &[]), f64::from(4 << 20));
    assert_eq!(body.f64("allostat_agent_memory_sheds_total", &[]), 1.0, "at once, and for as long as it lasts");
    assert!(body.one("allostat_alloc_info", &[("source", "cgroup")]).is_none(), "no observed alloc has a series");
    child.kill().unwrap();
    child.wait().unwrap();
    scene.agent.stop();
}
