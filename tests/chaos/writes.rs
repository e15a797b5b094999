//! The agent dies right before and right after each of its writes: in every moment between two of them, from the submit
//! of a group to its removal. Who asked, asks again; what follows must be as if nothing had happened.
//!
//! `ALLOSTAT_CHAOS_STRIDE` says how many moments are between one that is met and the next (default 8, from a place by
//! chance; `cargo xtask chaos` meets each), `ALLOSTAT_SEED` repeats a run.
//!
//! Promise (Durability and recovery): P-12.6 The agent dies right before and after each write: each start has one exit,
//! acknowledged data is there

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use allostat::model::task::Outcome;
use allostat::runner::explore::{Course, CourseEnd, CourseRequest, Demand};
use serde_json::Value;

use crate::chaos::job::{end, ends, hook, job, task, tasks};
use crate::common::{
    Agent, AgentOptions, Exposition, Random, Response, counters, how_many, is_root, none_fell, patience, unix,
};

/// Agents at once: most of their time they wait for tasks and for the disk.
const WORKERS: usize = 4;

/// Writes a task: its name, what its stanza says besides, its command.
type Task<'a> = &'a dyn Fn(&str, &str, &str) -> String;

struct Scenario {
    name: &'static str,
    /// Of one alloc.
    job: fn(Task<'_>) -> String,
    /// What is asked of it before it ends.
    actions: fn(&mut Run),
    /// What it asks, as the model knows it.
    requests: &'static [Demand],
    /// How its tasks go without a request to end them.
    scripts: &'static [Course],
}

use Course::{Ends, Runs};
use Outcome::{Error, Success};

const HOLD: &str = "exec sleep 600";

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "a group with a leader",
        job: |task| {
            let tasks = [
                task("init", &hook("prestart", false), "true"),
                task("proxy", &hook("prestart", true), HOLD),
                task("follower", "", HOLD),
                task("main", "leader = true", "sleep 0.3"),
                task("clean", &hook("poststop", false), "true"),
            ];
            job("group", "batch", 1, 0, &tasks)
        },
        actions: |_| {},
        requests: &[],
        scripts: &[Ends(&[Success]), Runs, Runs, Ends(&[Success]), Ends(&[Success])],
    },
    Scenario {
        name: "a crash loop",
        job: |task| job("loop", "batch", 1, 2, &[task("bad", "", "exit 7"), task("beside", "", HOLD)]),
        actions: |_| {},
        requests: &[],
        scripts: &[Ends(&[Error]), Runs],
    },
    Scenario {
        name: "a stop",
        job: |task| {
            let tasks = [
                task("serve", "", HOLD),
                task("beside", &hook("poststart", true), HOLD),
                task("clean", &hook("poststop", false), "true"),
            ];
            job("stopped", "service", 1, 2, &tasks)
        },
        actions: |run| {
            run.until("its tasks to run", |alloc| {
                state(alloc, "serve", "running") && state(alloc, "beside", "running")
            });
            run.insist("stop");
        },
        requests: &[(CourseRequest::Stop, &[0, 1])],
        scripts: &[Runs, Runs, Ends(&[Success])],
    },
    Scenario {
        name: "restarts",
        job: |task| {
            let tasks = [task("init", &hook("prestart", false), "true"), task("serve", "", HOLD)];
            job("again", "service", 1, 2, &tasks)
        },
        actions: |run| {
            for (action, attempts) in [("restart?task=serve", 1), ("restart?all=true", 2)] {
                run.restart(action);
                run.until("the restart", |alloc| {
                    let serve = &alloc["tasks"]["serve"];
                    serve["state"] == "running" && exits(serve) == attempts
                });
            }
            run.insist("stop");
        },
        requests: &[(CourseRequest::Restart(1), &[1]), (CourseRequest::RestartAll, &[1]), (CourseRequest::Stop, &[1])],
        scripts: &[Ends(&[Success]), Runs],
    },
];

fn state(alloc: &Value, task: &str, state: &str) -> bool {
    alloc["tasks"][task]["state"] == state
}

/// How many attempts of it have ended.
fn exits(task: &Value) -> u64 {
    task["exits_by_outcome"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum()
}

/// `before:7` or `after:7`: the agent dies there.
type Moment = String;

/// One agent from its first start to its end, deaths included.
struct Run {
    agent: Agent,
    what: String,
    /// At which agents die, the next one last.
    moments: Vec<Moment>,
    deaths: usize,
    /// What was shown must not fall.
    shown: BTreeMap<String, f64>,
    id: String,
}

impl Run {
    /// The answer, or `None`: the agent died before it gave one, and another is there now.
    fn request(&mut self, method: &str, path: &str, body: &str) -> Option<Response> {
        match unix(&self.agent.socket(), method, path, &[("Content-Type", "text/plain")], body.as_bytes()) {
            Ok(response) => Some(response),
            Err(error) => {
                let began = Instant::now();
                while !self.agent.has_ended() {
                    assert!(began.elapsed() < limit(), "{}: {method} {path}: {error}, and it lives", self.what);
                    std::thread::sleep(Duration::from_millis(5));
                }
                self.deaths += 1;
                self.start();
                None
            }
        }
    }

    /// Until an agent is ready: the next one, or one after it where that one dies at once.
    fn start(&mut self) {
        loop {
            let moment = self.moments.pop().map(|moment| ("ALLOSTAT_TEST_DIE".to_owned(), moment));
            self.agent.set_env(moment.into_iter().collect());
            self.agent.begin();
            let began = Instant::now();
            while !self.agent.has_ended() {
                let answer = unix(&self.agent.socket(), "GET", "/readyz", &[], b"");
                if answer.is_ok_and(|answer| answer.status == 200) {
                    return;
                }
                assert!(began.elapsed() < limit(), "{}: it is not ready", self.what);
                std::thread::sleep(Duration::from_millis(5));
            }
            self.deaths += 1;
        }
    }

    /// Metrics, which must not have fallen. Dies with the agent like any request.
    fn inspect(&mut self) {
        let Some(response) = self.request("GET", "/metrics", "") else { return };
        let now = counters(&Exposition::parse(response.text()));
        // With the alloc's end its own series go; its workload's and the node's stay.
        self.shown.retain(|series, _| now.contains_key(series) || !series.contains("alloc_id"));
        none_fell(&self.shown, &now, &self.what);
        self.shown = now;
    }

    fn submit(&mut self, job: &str) {
        loop {
            let acknowledged = self.request("POST", "/v1/jobs", job).map(|answer| {
                assert_eq!(answer.status, 201, "{}: {}", self.what, answer.text());
                answer.json()["allocs"][0].as_str().unwrap().to_owned()
            });
            // Whole or not at all; and if it was acknowledged, whole.
            let ids = self.ids();
            assert!(ids.len() <= 1, "{}: two allocs of one submit", self.what);
            match (acknowledged, ids.first()) {
                (Some(id), found) => assert_eq!(Some(&id), found, "{}: what was acknowledged is gone", self.what),
                (None, None) => continue,
                (None, Some(_)) => {}
            }
            self.id = ids[0].clone();
            return;
        }
    }

    fn ids(&mut self) -> Vec<String> {
        let list = self.get("/v1/allocs");
        list["allocs"].as_array().unwrap().iter().map(|alloc| alloc["id"].as_str().unwrap().to_owned()).collect()
    }

    fn get(&mut self, path: &str) -> Value {
        loop {
            let Some(answer) = self.request("GET", path, "") else { continue };
            assert_eq!(answer.status, 200, "{}: GET {path}: {}", self.what, answer.text());
            return answer.json();
        }
    }

    /// Until its tasks are as asked for; then what it looked like.
    fn until(&mut self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        let path = format!("/v1/allocs/{}", self.id);
        loop {
            self.inspect();
            let alloc = self.get(&path);
            if is_so(&alloc) {
                return alloc;
            }
            assert!(began.elapsed() < limit(), "{}: waited in vain for {what}: {alloc:#}", self.what);
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// A request that may be sent twice, until it is acknowledged.
    fn insist(&mut self, request: &str) {
        let path = format!("/v1/allocs/{}/{request}", self.id);
        while self.request("POST", &path, "").is_none_or(|answer| {
            assert_eq!(answer.status, 202, "{}: {}", self.what, answer.text());
            false
        }) {}
    }

    /// A request that counts twice when it is sent twice: only where it was not received.
    fn restart(&mut self, request: &str) {
        let path = format!("/v1/allocs/{}/{request}", self.id);
        let received =
            |alloc: &Value| alloc["tasks"]["serve"]["event_counts"]["restart_signaled"].as_u64().unwrap_or(0);
        loop {
            let before = received(&self.until("its task to run", |alloc| state(alloc, "serve", "running")));
            match self.request("POST", &path, "") {
                Some(answer) => return assert_eq!(answer.status, 202, "{}: {}", self.what, answer.text()),
                None if received(&self.until("", |_| true)) > before => return,
                None => {}
            }
        }
    }

    /// Removed for good, once it may be.
    fn collect(&mut self) {
        let began = Instant::now();
        let path = format!("/v1/gc?alloc={}", self.id);
        loop {
            let removed = match self.request("POST", &path, "") {
                Some(answer) if answer.status == 404 => true,
                Some(answer) => answer.json()["removed"].as_array().is_some_and(|removed| !removed.is_empty()),
                None => false,
            };
            self.inspect();
            if removed && self.ids().is_empty() {
                return;
            }
            assert!(!removed || began.elapsed() < limit(), "{}: it was removed and is there", self.what);
            assert!(began.elapsed() < limit(), "{}: it is not removed", self.what);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn limit() -> Duration {
    Duration::from_secs(60) * patience()
}

/// What each agent that died was about to write, or had just written.
fn last_words(log: &str) -> Vec<(String, String)> {
    let mut deaths: Vec<(String, BTreeSet<String>)> = Vec::new();
    for line in log.lines().filter_map(|line| line.strip_prefix("dies ")) {
        if let Some(record) = line.strip_prefix("with ") {
            deaths.last_mut().unwrap().1.insert(kind(record));
        } else {
            deaths.push((line.split(' ').next().unwrap().to_owned(), BTreeSet::new()));
        }
    }
    deaths.into_iter().map(|(side, kinds)| (side, kinds.into_iter().collect::<Vec<_>>().join(", "))).collect()
}

/// `task/5c…/main {…}` as people call it.
fn kind(record: &str) -> String {
    let (key, value) = record.split_once(' ').unwrap();
    let what = key.split('/').next().unwrap();
    let Ok(value) = serde_json::from_str::<Value>(value) else { return format!("{what} {value}") };
    let is = |name: &str| value.get(name).is_some_and(|value| !value.is_null());
    match what {
        "task" if is("restart") => "task ordered to restart".to_owned(),
        "task" if is("kill") && value["status"]["state"] != "dead" => "task ordered to end".to_owned(),
        "task" => format!("task {}", value["status"]["state"].as_str().unwrap()),
        "alloc" if is("finished") => "alloc ended".to_owned(),
        "alloc" if is("again") => "alloc to restart".to_owned(),
        "alloc" => format!("alloc to {}", value["desired"].as_str().unwrap()),
        _ => what.to_owned(),
    }
}

/// Runs a scenario with agents that die at `moments`, the first one at the last of them. Says how they died: none, if
/// it had ended before.
fn live_through(scenario: &Scenario, moments: Vec<Moment>) -> Vec<(String, String)> {
    let what = format!("{}, deaths at {moments:?}, the last one first", scenario.name);
    let config = "telemetry {\n retention = \"0s\"\n retention_max = \"0s\"\n}\n".to_owned();
    let agent = Agent::to_start(AgentOptions { config, ..AgentOptions::default() });
    let starts = agent.scratch().join("starts");
    let job = (scenario.job)(&|name, head, exec| task(name, head, &starts, exec));
    let (shown, id) = (BTreeMap::new(), String::new());
    let mut run = Run { agent, what, moments, deaths: 0, shown, id };
    run.start();
    run.submit(&job);
    (scenario.actions)(&mut run);
    let alloc = run.until("its end", |alloc| tasks(alloc).all(|(_, task)| task["state"] == "dead"));
    let starts = std::fs::read_to_string(&starts).unwrap_or_default();
    check(&run, &ends(&job, scenario.scripts, scenario.requests), &alloc, &starts);
    run.collect();
    nothing_left(run)
}

fn check(run: &Run, ends: &BTreeSet<CourseEnd>, alloc: &Value, starts: &str) {
    let of_run = |what: &str| format!("{}: {what}: {alloc:#}\nstarts:\n{starts}", run.what);
    let end = end(alloc);
    assert!(ends.contains(&end), "{}", of_run(&format!("it ended as {end:?}, and not as one of {ends:#?}")));
    for (name, task) in tasks(alloc) {
        let all = exits(task);
        let started = starts.lines().filter(|line| **line == format!("{} {name}", run.id)).count() as u64;
        // One that is killed at once has not come to note that it was started.
        let unnoted = task["exits_by_outcome"]["killed"].as_u64().unwrap();
        assert!((all - unnoted..=all).contains(&started), "{}", of_run(&format!("{name} was started {started} times")));
        assert_eq!(
            task["event_counts"]["started"].as_u64().unwrap_or(0),
            all,
            "{}",
            of_run(&format!("starts of {name}"))
        );
        assert_eq!(task["event_counts"]["received"], 1, "{}", of_run(&format!("{name} was received twice")));
        let attempts = task["exits"].as_array().unwrap().iter().filter(|exit| exit.get("started_at").is_some());
        let attempts: BTreeSet<u64> = attempts.map(|exit| exit["attempt"].as_u64().unwrap()).collect();
        assert_eq!(attempts.len() as u64, all, "{}", of_run(&format!("an attempt of {name} ended twice")));
    }
}

/// No process, no cgroup, no directory; what the dead were writing comes back.
fn nothing_left(mut run: Run) -> Vec<(String, String)> {
    let data = run.agent.data_dir();
    let entries = |name: &str| -> Vec<PathBuf> {
        std::fs::read_dir(data.join(name)).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let began = Instant::now();
    // A forgotten alloc's directories go right after it.
    while !entries("alloc").is_empty() || !entries("run").is_empty() {
        let left = (entries("alloc"), entries("run"));
        assert!(began.elapsed() < limit(), "{}: directories are left: {left:?}", run.what);
        run.inspect();
        std::thread::sleep(Duration::from_millis(20));
    }
    // Its last write may be the one at which it dies: it gets no request any more.
    while !run.agent.terminate_with_status().is_some_and(|status| status.success()) {
        run.deaths += 1;
        run.start();
    }
    run.agent.assert_nothing_left();
    let words = last_words(&run.agent.log());
    assert_eq!(words.len(), run.deaths, "{}: it died otherwise", run.what);
    words
}

/// All moments of a scenario on one side of its writes, as far as they have been met.
struct Line {
    scenario: &'static Scenario,
    side: &'static str,
    next: u64,
    over: bool,
}

/// Promise (Task groups and lifecycle order): A recovered task that ends before its first reading is in the counts of
/// the first snapshot
#[test]
fn agent_deaths_between_any_two_writes_lose_double_and_leave_nothing() {
    if !is_root() {
        skip_test!("not-root");
    }
    let stride = std::env::var("ALLOSTAT_CHAOS_STRIDE");
    let stride = stride.map_or_else(|_| how_many(32, 8) as u64, |stride| stride.parse().expect("a number"));
    let (mut random, seed) = Random::seeded();
    let mut lines = Vec::new();
    for scenario in SCENARIOS {
        for side in ["before", "after"] {
            lines.push(Line { scenario, side, next: 1 + random.below(stride), over: false });
        }
    }
    let lines = Mutex::new((lines, random));
    let met: Mutex<BTreeMap<String, [u32; 2]>> = Mutex::default();
    let deaths = Mutex::new((0, 0));
    let work = || {
        loop {
            let (line, scenario, moments) = {
                let mut locked = lines.lock().unwrap();
                let (lines, random) = &mut *locked;
                let open = lines.iter_mut().enumerate().filter(|(_, line)| !line.over);
                let Some((at, line)) = open.min_by_key(|(_, line)| line.next) else { return };
                let mut moments = vec![format!("{}:{}", line.side, line.next)];
                line.next += stride;
                // Who finds what is left may die of its own first writes.
                if random.below(3) == 0 {
                    let side = if random.below(2) == 0 { "before" } else { "after" };
                    moments.insert(0, format!("{side}:{}", 1 + random.below(4)));
                }
                (at, line.scenario, moments)
            };
            match catch_unwind(AssertUnwindSafe(|| live_through(scenario, moments))) {
                Ok(words) if words.is_empty() => lines.lock().unwrap().0[line].over = true,
                Ok(words) => {
                    let mut deaths = deaths.lock().unwrap();
                    *deaths = (deaths.0 + 1, deaths.1 + words.len() - 1);
                    for (side, kind) in words {
                        met.lock().unwrap().entry(kind).or_default()[usize::from(side == "after")] += 1;
                    }
                }
                Err(panic) => {
                    eprintln!("ALLOSTAT_SEED={seed} ALLOSTAT_CHAOS_STRIDE={stride}");
                    lines.lock().unwrap().0.iter_mut().for_each(|line| line.over = true);
                    resume_unwind(panic);
                }
            }
        }
    };
    std::thread::scope(|scope| (0..WORKERS).for_each(|_| drop(scope.spawn(work))));
    let (first, second) = deaths.into_inner().unwrap();
    println!("{first} moments, one of {stride}; {second} second deaths, of who found what was left");
    println!("  before  after  a write of");
    for (kind, [before, after]) in met.into_inner().unwrap() {
        println!("  {before:6}  {after:5}  {kind}");
    }
    assert!(first > 0, "the agent never died: does it know ALLOSTAT_TEST_DIE?");
}
