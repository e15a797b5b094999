//! Short observed tasks, 200 a minute, under an agent that is scraped each 15 s: whether each is there and ends once,
//! and whether what is exposed and what is held stay bounded.
//!
//! `cargo xtask bench churn 10`: so many minutes; without a number it measures nothing. Each life has a cgroup and a
//! name of its own, touches 8 MiB and ends. Each whole minute is one point, as in `hour`; the six after the start are
//! none: what ended first is exposed for five. Whether series and memory stay is said by the mean of the second half of
//! these beside that of the first.

#[path = "../tests/common/mod.rs"]
mod common;
mod shared;

use std::collections::HashSet;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Agent, AgentOptions, Cgroups, Exposition, is_root, wait_for, workload};
use shared::trend::report_trend;
use shared::{cpu, report, rss_bytes, scrape};

/// What has ended is exposed for five minutes.
const WARM_UP: u32 = 6;
const EACH: Duration = Duration::from_millis(300);
const SCRAPE_EACH: Duration = Duration::from_secs(15);
const MIB: u64 = 1 << 20;
const MINUTE: Duration = Duration::from_secs(60);

fn main() {
    let Some(minutes) = std::env::args().skip(1).find_map(|word| word.parse::<u32>().ok()) else {
        println!("churn: takes a number of minutes: cargo xtask bench churn 10");
        return;
    };
    if !is_root() {
        println!("observed tasks need root: cgroups");
        return;
    }
    let observed_cgroups = Cgroups::new();
    let env = [
        ("ALLOSTAT_OBSERVE", "true".to_owned()),
        ("ALLOSTAT_OBSERVE_INCLUDE", format!("cgroup:{}/*", observed_cgroups.parent)),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value)).into();
    let agent = Agent::with(AgentOptions { env, ..AgentOptions::default() });
    let mut churn =
        Churn { observed: observed_cgroups, lives: 0, next_scrape: Instant::now(), series: 0.0, right: HashSet::new() };
    let (mut used, mut resident, mut series) = (Vec::new(), Vec::new(), Vec::new());
    for minute in 1..=WARM_UP + minutes {
        let (before, began) = (cpu(agent.pid()), Instant::now());
        churn.minute(&agent);
        let seconds = cpu(agent.pid()).saturating_sub(before).as_secs_f64() * 60.0 / began.elapsed().as_secs_f64();
        #[allow(clippy::cast_precision_loss)] // Some tens of MiB.
        let mib = rss_bytes(agent.pid()) as f64 / f64::from(1 << 20);
        println!("minute {minute}: {} lives, {seconds:.3} CPU-s, {mib:.2} MiB, {} series", churn.lives, churn.series);
        if minute > WARM_UP {
            used.push(seconds);
            resident.push(mib);
            series.push(churn.series);
        }
    }
    report_trend(["churn/cpu", "churn/cpu-slope", "churn/cpu-slope-error"], "CPU-s/min", &used);
    let stays =
        [("churn/rss", "churn/rss-later", "MiB", &resident), ("churn/series", "churn/series-later", "series", &series)];
    for (row, later, unit, points) in stays {
        let (first, second) = points.split_at(points.len() / 2);
        let [first, second] = [first, second].map(mean);
        report(row, first, unit, None);
        report(later, second, unit, Some((second / first, row)));
    }
    let ends = wait_for("the last end", Duration::from_secs(60), || {
        let ends = churn.ends(&agent);
        (ends >= churn.lives).then_some(ends)
    });
    churn.see(&agent);
    for (row, unit, count) in
        [("churn/ends", "ends that were seen", ends), ("churn/right-peaks", "peaks of 8 to 12 MiB", churn.right.len())]
    {
        #[allow(clippy::cast_precision_loss)] // Some thousands.
        let (count, lives) = (count as f64, churn.lives as f64);
        report(row, count, unit, Some((count / lives, "lives")));
    }
    agent.stop();
}

#[allow(clippy::cast_precision_loss)] // Some tens.
fn mean(points: &[f64]) -> f64 {
    points.iter().sum::<f64>() / points.len() as f64
}

struct Churn {
    observed: Cgroups,
    lives: usize,
    next_scrape: Instant,
    /// Of the last body.
    series: f64,
    /// Those whose peak is what they reached.
    right: HashSet<String>,
}

impl Churn {
    fn minute(&mut self, agent: &Agent) {
        let began = Instant::now();
        let mut next = began;
        while began.elapsed() < MINUTE {
            self.live();
            if Instant::now() >= self.next_scrape {
                self.see(agent);
                self.next_scrape += SCRAPE_EACH;
            }
            next += EACH;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }

    #[allow(clippy::cast_precision_loss)] // Some thousands.
    fn see(&mut self, agent: &Agent) {
        let body = Exposition::parse(&scrape(agent));
        self.series = body.samples.len() as f64;
        let peaks = body.all("allostat_task_memory_peak_bytes", &[]);
        let right = peaks.into_iter().filter(|peak| (8 * MIB..12 * MIB).contains(&peak.u64()));
        let ids = right.filter_map(|peak| peak.labels.get("alloc_id"));
        self.right.extend(ids.filter(|id| id.contains("/life-")).cloned());
    }

    fn live(&mut self) {
        let name = format!("life-{}", self.lives);
        self.lives += 1;
        self.observed.make(&name);
        // It begins when it is where it belongs.
        let script = format!("read go; {} touch 8 1 >/dev/null; exit 3", workload().display());
        let mut child = Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).spawn().expect("it must start");
        self.observed.place(&name, child.id());
        drop(child.stdin.take());
        child.wait().expect("our own child");
        self.observed.remove(&name);
    }

    /// Those of all lives that were seen to end.
    fn ends(&self, agent: &Agent) -> usize {
        let body = Exposition::parse(&scrape(agent));
        body.all("allostat_observed_ends_total", &[])
            .iter()
            .map(|sample| usize::try_from(sample.u64()).expect("it fits"))
            .sum()
    }
}
