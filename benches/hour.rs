//! A long run of the whole agent with 1,000 idle tasks, pushed each 10 s and scraped each 15 s: whether its CPU and its
//! memory stay flat.
//!
//! `cargo xtask bench hour 60`: so many minutes; without a number it measures nothing. Each whole minute is one point:
//! the CPU seconds that it took, and resident memory at its end, with that of files and without. The result has the
//! means, the slopes of the least squares for an hour, and the standard errors of the slopes: a slope that is no
//! greater than twice its error is no slope. The two minutes after the start are no points.
//!
//! A machine is not as fast in one minute as in the next: beside the agent this walks over the cgroups once a second,
//! and reports each minute's CPU in walks of that minute too. If only the former rises, it is the machine.

#[path = "../tests/common/mod.rs"]
mod common;
mod shared;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Agent, AgentOptions, Exposition, is_root};
use shared::trend::report_trend;
use shared::walk::Floor;
use shared::{HOLD, anonymous_bytes, cpu, end, report, rss_bytes, scrape, sink, start};

const TASKS: usize = 1000;
const WARM_UP: u32 = 2;
const SCRAPE_EACH: Duration = Duration::from_secs(15);
const MINUTE: Duration = Duration::from_secs(60);

fn main() {
    let Some(minutes) = std::env::args().skip(1).find_map(|word| word.parse::<u32>().ok()) else {
        println!("hour: takes a number of minutes: cargo xtask bench hour 60");
        return;
    };
    if !is_root() {
        println!("the agent's figures need root: cgroups");
        return;
    }
    let pushes = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&pushes);
    let collector = sink::start(move |path, _| {
        if path == "/v1/metrics" {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let config = format!("otlp {{\n  endpoint = \"http://{collector}\"\n  interval = \"10s\"\n}}\n");
    let agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    start(&agent, TASKS, HOLD);
    let mut clock = Clock { next_scrape: Instant::now(), scrapes: 0, floor: Floor::below("/"), walked: Vec::new() };
    for _ in 0..WARM_UP {
        clock.minute(&agent);
    }
    let (pushed_before, scraped_before) = (pushes.load(Ordering::Relaxed), clock.scrapes);
    let (mut used, mut in_walks, mut resident, mut anonymous) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for minute in 1..=minutes {
        let before = cpu(agent.pid());
        let took = clock.minute(&agent);
        let ran = cpu(agent.pid()).saturating_sub(before);
        #[allow(clippy::cast_precision_loss)] // Some tens of MiB.
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let seconds = ran.as_secs_f64() * 60.0 / took.as_secs_f64();
        let (all, own) = (mib(rss_bytes(agent.pid())), mib(anonymous_bytes(agent.pid())));
        let walk = clock.take_walk();
        let times = walk.map(|walk| seconds / (walk * 60.0));
        let shown = times.map_or_else(String::new, |times| format!("{times:.2} walks, "));
        println!("minute {minute}: {seconds:.3} CPU-s, {shown}{all:.2} MiB, {own:.2} without files");
        used.push(seconds);
        in_walks.extend(times);
        resident.push(all);
        anonymous.push(own);
    }
    report_trend(["hour/cpu", "hour/cpu-slope", "hour/cpu-slope-error"], "CPU-s/min", &used);
    if !in_walks.is_empty() {
        report_trend(["hour/walks", "hour/walks-slope", "hour/walks-slope-error"], "walks a second", &in_walks);
    }
    report_trend(["hour/rss", "hour/rss-slope", "hour/rss-slope-error"], "MiB", &resident);
    report_trend(
        ["hour/anonymous", "hour/anonymous-slope", "hour/anonymous-slope-error"],
        "MiB without files",
        &anonymous,
    );
    #[allow(clippy::cast_precision_loss)] // Counts of some thousands.
    {
        report(
            "hour/pushes",
            (pushes.load(Ordering::Relaxed) - pushed_before) as f64,
            "requests of metrics that were taken",
            None,
        );
        report("hour/scrapes", (clock.scrapes - scraped_before) as f64, "scrapes", None);
    }
    // A queue that fills or drops is no push: the figures would be of something else.
    let reported = Exposition::parse(&scrape(&agent));
    let dropped = reported.all("allostat_otlp_points_dropped_total", &[]);
    assert!(!dropped.is_empty(), "what is dropped is counted");
    let dropped: f64 = dropped.iter().map(|sample| sample.f64()).sum();
    report("hour/dropped-points", dropped, "points", None);
    end(agent);
}

/// Scrapes at their time, over all minutes.
struct Clock {
    next_scrape: Instant,
    scrapes: u64,
    /// `None`: this host has none.
    floor: Option<Floor>,
    /// CPU microseconds of each walk of this minute.
    walked: Vec<f64>,
}

impl Clock {
    fn minute(&mut self, agent: &Agent) -> Duration {
        let began = Instant::now();
        while began.elapsed() < MINUTE {
            if Instant::now() >= self.next_scrape {
                drop(scrape(agent));
                self.scrapes += 1;
                self.next_scrape += SCRAPE_EACH;
            }
            self.walked.extend(self.floor.as_ref().map(|floor| floor.tick(true)));
            let to_scrape = self.next_scrape.saturating_duration_since(Instant::now());
            let to_minute = MINUTE.saturating_sub(began.elapsed());
            std::thread::sleep(to_scrape.min(to_minute).min(Duration::from_secs(1)));
        }
        began.elapsed()
    }

    /// What one took in the last minute, in CPU seconds. The median: one in eight is over everything.
    fn take_walk(&mut self) -> Option<f64> {
        let mut walked = std::mem::take(&mut self.walked);
        walked.sort_by(f64::total_cmp);
        walked.get(walked.len() / 2).map(|micros| micros / 1e6)
    }
}
