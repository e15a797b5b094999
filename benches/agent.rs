//! The whole agent as a process of its own, with real tasks: CPU, memory, series, the age of samples. 1,000 tasks, or
//! the number that is asked for; with `--all` also 5,000, and the memory of 1,000 after ten more minutes of scrapes;
//! with `idle` or `waking` only those.
//!
//! CPU is the time that all its threads ran, those that have ended too, by its CPU clock (nanoseconds); what the
//! supervisors use is not in it and stands in its own row. The limit on descriptors is that of a systemd unit.

#[path = "../tests/common/mod.rs"]
mod common;
mod shared;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::time::{ClockId, clock_gettime};

use common::{Agent, Exposition, is_root, mounted_v1};
use shared::top;
use shared::walk::{Walk, micros_since};
use shared::{
    HOLD, as_a_unit, cpu, cpu_per_minute, end, median, report, rss_bytes, scrape, settle, start, supervisors,
};

fn main() {
    let requests: Vec<String> = std::env::args().skip(1).collect();
    let all = requests.iter().any(|word| word == "--all");
    if !is_root() {
        println!("the agent's figures need root: cgroups");
        return;
    }
    as_a_unit();
    let tasks = requests.iter().find_map(|word| word.parse().ok()).unwrap_or(1000);
    let sizes: &[usize] = if all { &[tasks, 5000] } else { &[tasks] };
    let only = |word: &str| requests.iter().any(|other| other == word);
    for tasks in sizes.iter().filter(|_| !only("waking")) {
        idle(*tasks, all && *tasks == 1000);
    }
    for tasks in sizes.iter().filter(|_| !only("idle")) {
        waking(*tasks);
    }
}

/// Idle tasks: not scraped, then scraped each 15 s as Prometheus does; with `long` for ten minutes more.
fn idle(tasks: usize, long: bool) {
    let agent = Agent::start();
    let bare = agent.metrics().samples.len();
    start(&agent, tasks, HOLD);
    settle();
    let supervisors = Supervisors::of(&agent);
    let by_hand = format!("agent/two-preads-{tasks}");
    let unit = "CPU-us per task and tick: its usage and CPU time, on kept descriptors";
    report(&by_hand, two_preads(&agent), unit, None);
    let walk = walk(&agent, tasks, "idle");
    let idle = cpu_per_minute(agent.pid(), Duration::from_secs(60), || {});
    report(&format!("agent/idle-{tasks}"), idle, "CPU-s/min", walk.as_ref().map(|walk| walk.compared_to(idle)));
    report(&format!("agent/supervisors-idle-{tasks}"), supervisors.cpu_per_minute(), "CPU-s/min together", None);
    let scraped = cpu_per_minute(agent.pid(), Duration::from_secs(60), || drop(scrape(&agent)));
    report(
        &format!("agent/scraped-{tasks}"),
        scraped,
        "CPU-s/min",
        walk.as_ref().map(|walk| walk.compared_to(scraped)),
    );

    let body = scrape(&agent);
    let series = Exposition::parse(&body).samples.len();
    #[allow(clippy::cast_precision_loss)] // Counts of a few millions.
    {
        let per_task = |count: usize| count as f64 / tasks as f64;
        report(&format!("agent/series-per-task-{tasks}"), per_task(series - bare), "series", None);
        report(&format!("agent/bytes-per-task-{tasks}"), per_task(body.len()), "bytes of the uncompressed body", None);
        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        let resident = mib(rss_bytes(agent.pid()) as f64);
        let allowed = 16.0 + 1.5 * mib(body.len() as f64);
        const ALLOWED: &str = "16 MiB and 1.5 bodies";
        report(&format!("agent/rss-{tasks}"), resident, "MiB", Some((resident / allowed, ALLOWED)));
        if long {
            let seconds = std::env::var("ALLOSTAT_BENCH_LATER").ok().and_then(|s| s.parse().ok()).unwrap_or(600);
            cpu_per_minute(agent.pid(), Duration::from_secs(seconds), || drop(scrape(&agent)));
            let resident = mib(rss_bytes(agent.pid()) as f64);
            let unit = format!("MiB, after {seconds} more seconds of scrapes");
            report(&format!("agent/rss-{tasks}-later"), resident, &unit, Some((resident / allowed, ALLOWED)));
        }
    }
    report(&format!("agent/oldest-idle-{tasks}"), oldest_sample(&agent), "ms", None);
    end(agent);
}

/// The least that shows whether a task moved, once a second, without our code: CPU microseconds for each task.
fn two_preads(agent: &Agent) -> f64 {
    // As many as a shell's limit on descriptors allows.
    const TASKS: usize = 400;
    let dirs = agent.cgroups.left();
    let parents: BTreeSet<&Path> = dirs.iter().filter_map(|dir| dir.parent()).collect();
    let open = |name: &str| -> Vec<fs::File> {
        let leaves = dirs.iter().filter(|dir| !parents.contains(dir.as_path()));
        leaves.filter_map(|dir| fs::File::open(dir.join(name)).ok()).take(TASKS).collect()
    };
    let names = match mounted_v1("memory") {
        Some(_) => ["memory.usage_in_bytes", "cpuacct.usage"],
        None => ["memory.current", "cpu.stat"],
    };
    let files: Vec<fs::File> = names.into_iter().flat_map(open).collect();
    assert!(files.len() >= names.len(), "tasks have {names:?}");
    let mut buffer = [0; 4096];
    let mut passes: Vec<f64> = (0..10)
        .map(|_| {
            std::thread::sleep(Duration::from_secs(1));
            let before = clock_gettime(ClockId::ThreadCPUTime);
            for file in &files {
                file.read_at(&mut buffer, 0).expect("its task runs");
            }
            let micros = micros_since(before);
            #[allow(clippy::cast_precision_loss)] // Some hundreds.
            let tasks = files.len() as f64 / names.len() as f64;
            micros / tasks
        })
        .collect();
    median(&mut passes)
}

/// Each task has a cgroup, its alloc another one.
fn walk(agent: &Agent, tasks: usize, kind: &str) -> Option<Walk> {
    Walk::below(&agent.cgroups.parent, 2 * tasks + 1, kind, &format!("agent/walk-{kind}-{tasks}"))
}

/// Tasks that wake ten times a second: their CPU moves between any two samples, so every tick reads everything. They
/// begin when all run: thousands that wake while others start take the cores from what starts them.
fn waking(tasks: usize) {
    let agent = Agent::start();
    let begin = agent.scratch().join("begin");
    mkfifoat(CWD, &begin, Mode::from_raw_mode(0o644)).expect("a FIFO can be made");
    start(&agent, tasks, &format!(r#""wake", "10", "3600000", {begin:?}"#));
    let writer = fs::OpenOptions::new().write(true).open(&begin).expect("they wait for it");
    settle();
    let walk = walk(&agent, tasks, "waking");
    let cpu = cpu_per_minute(agent.pid(), Duration::from_secs(60), || {});
    report(&format!("agent/waking-{tasks}"), cpu, "CPU-s/min", walk.as_ref().map(|walk| walk.compared_to(cpu)));
    report(&format!("agent/oldest-waking-{tasks}"), oldest_sample(&agent), "ms", None);
    let rows = top::Rows {
        top: format!("top/waking-{tasks}"),
        viewed: format!("agent/looked-at-{tasks}"),
        unseen: format!("agent/unseen-{tasks}"),
    };
    top::measure_viewed(&agent, "bench/t", &rows);
    drop(writer);
    end(agent);
}

/// The oldest sample that anybody is shown: one task after another, evenly over all of them, is asked for its age. Idle
/// ones for longer than the 9 s that looks at them are apart. Its own CPU is in no other figure.
fn oldest_sample(agent: &Agent) -> f64 {
    const QUESTIONS: usize = 300;
    let list = agent.json("/v1/allocs");
    let ids: Vec<&str> = list["allocs"].as_array().into_iter().flatten().filter_map(|a| a["id"].as_str()).collect();
    let oldest = (0..QUESTIONS).map(|n| {
        std::thread::sleep(Duration::from_millis(50));
        let stats = agent.json(&format!("/v1/allocs/{}/stats", ids[n * ids.len() / QUESTIONS]));
        stats["tasks"]["t"]["age_ms"].as_f64().expect("a running task was sampled")
    });
    oldest.fold(0.0, f64::max)
}

/// The supervisors of all tasks, and what they had used at a moment.
struct Supervisors {
    pids: Vec<u32>,
    before: Duration,
    since: Instant,
}

impl Supervisors {
    fn of(agent: &Agent) -> Supervisors {
        let pids = supervisors(agent);
        Supervisors { before: pids.iter().map(|pid| cpu(*pid)).sum(), pids, since: Instant::now() }
    }
    fn cpu_per_minute(&self) -> f64 {
        let now: Duration = self.pids.iter().map(|pid| cpu(*pid)).sum();
        now.saturating_sub(self.before).as_secs_f64() * 60.0 / self.since.elapsed().as_secs_f64()
    }
}
