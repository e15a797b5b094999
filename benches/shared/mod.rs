//! What the benchmarks of a whole agent share.

// Each benchmark compiles this for itself and uses its own part of it.
#![allow(dead_code)]

pub mod sink;
pub mod top;
pub mod trend;
pub mod walk;

use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::common::{self, Agent, wait_for, workload};

/// Long enough for every task of a benchmark; each is stopped at its end.
pub const HOLD: &str = r#""hold", "3600000""#;

/// One line for `cargo xtask bench`, with a ratio and to what: a floor or peer of the same run.
pub fn report(name: &str, value: f64, unit: &str, ratio: Option<(f64, &str)>) {
    let ratio = ratio.map_or("-".to_owned(), |(ratio, to)| format!("{ratio:.2}\t{to}"));
    println!("bench\t{name}\t{value:.3}\t{unit}\t{ratio}");
}

/// A job of `count` allocs, each with one task `t`; nothing is started again.
pub fn job(id: &str, kind: &str, count: usize, command: &str, args: &str) -> String {
    format!(
        "job \"{id}\" {{\n type = \"{kind}\"\n group \"all\" {{\n count = {count}\n \
         restart {{\n attempts = 0\n mode = \"fail\"\n }}\n \
         task \"t\" {{\n driver = \"raw_exec\"\n config {{\n command = {command:?}\n args = [{args}]\n }}\n }}\n }}\n}}\n"
    )
}

/// The workload's path, for a job file.
pub fn command() -> String {
    workload().display().to_string()
}

/// Submits a job; gives the ids of its allocs.
#[track_caller]
pub fn submit(agent: &Agent, job: &str) -> Vec<String> {
    let response = agent.request("POST", "/v1/jobs", job);
    assert_eq!(response.status / 100, 2, "{}", response.text());
    let submitted = response.json();
    let ids = submitted["allocs"].as_array().into_iter().flatten();
    ids.map(|id| id.as_str().expect("an id is text").to_owned()).collect()
}

/// Submits a service of `count` workloads and waits until all run; gives the time that took.
pub fn start(agent: &Agent, count: usize, args: &str) -> Duration {
    let began = Instant::now();
    submit(agent, &job("bench", "service", count, &command(), args));
    wait_running(agent, count);
    let took = began.elapsed();
    eprintln!("{count} tasks run after {:.2} s", took.as_secs_f64());
    took
}

pub fn wait_running(agent: &Agent, count: usize) {
    wait_for("all tasks to run", Duration::from_secs(600), || (running(agent) == count).then_some(()));
}

/// Asked of the node, whose answer is small: an exposition of 5,000 tasks each 10 ms would be most of what is measured.
fn running(agent: &Agent) -> usize {
    let running = agent.json("/v1/node")["tasks"]["running"].as_u64();
    usize::try_from(running.expect("a number of tasks")).expect("it fits")
}

/// The time that all threads of a process ran, those that have ended too. Source: its CPU clock,
/// clock_getcpuclockid(3), nanoseconds.
#[allow(unsafe_code)]
pub fn cpu(pid: u32) -> Duration {
    let pid = libc::pid_t::try_from(pid).expect("a pid fits");
    let mut clock = 0;
    let mut ran = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: each call gets a place of its own to write to, which outlives it.
    let known =
        unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) == 0 && libc::clock_gettime(clock, &raw mut ran) == 0 };
    let nanos = u64::try_from(ran.tv_sec).ok().zip(u64::try_from(ran.tv_nsec).ok()).map(|(s, n)| s * 1_000_000_000 + n);
    Duration::from_nanos(nanos.filter(|_| known).unwrap_or(0))
}

/// What systemd gives every unit that asks for nothing else: a shell's hard limit on descriptors may be far lower, and
/// with too few of them the agent opens the rarest files again and again.
pub fn as_a_unit() {
    const HARD: u64 = 524_288;
    let now = getrlimit(Resource::Nofile);
    if now.maximum.is_some_and(|maximum| maximum < HARD) {
        let raised = setrlimit(Resource::Nofile, Rlimit { current: now.current, maximum: Some(HARD) });
        eprintln!("descriptors: {:?} at most here, now {HARD} as under systemd: {raised:?}", now.maximum);
    }
}

/// What starting left to do is not what running costs.
pub fn settle() {
    std::thread::sleep(Duration::from_secs(12));
}

/// CPU seconds per minute of a process over `span`, with `each` run every 15 s.
pub fn cpu_per_minute(pid: u32, span: Duration, each: impl Fn()) -> f64 {
    let (began, before) = (Instant::now(), cpu(pid));
    while began.elapsed() < span {
        each();
        std::thread::sleep(Duration::from_secs(15).min(span.saturating_sub(began.elapsed())));
    }
    let used = cpu(pid).saturating_sub(before);
    used.as_secs_f64() * 60.0 / began.elapsed().as_secs_f64()
}

/// With thousands of allocs their last cgroups go a while after the last task: an agent that ends before leaves them to
/// the next.
pub fn end(agent: Agent) {
    agent.cli(&["stop", "--all"]).ok();
    wait_for("the cgroups to be gone", Duration::from_secs(60), || agent.cgroups.left().is_empty().then_some(()));
    agent.stop();
}

/// As Prometheus asks; a loopback peer gets identity.
pub fn scrape(agent: &Agent) -> String {
    let headers = [("X-Prometheus-Scrape-Timeout-Seconds", "10"), ("Accept-Encoding", "gzip"), ("User-Agent", "bench")];
    let response = common::tcp(agent.address, "GET", "/metrics", &headers, b"").expect("the agent must answer");
    assert_eq!((response.status, response.header("content-encoding")), (200, None), "a loopback peer gets identity");
    String::from_utf8(response.body).expect("an exposition is text")
}

pub fn rss_bytes(pid: u32) -> u64 {
    status_bytes(pid, "VmRSS:")
}

/// What no other process can take away from it: pages of files come and go as the host likes.
pub fn anonymous_bytes(pid: u32) -> u64 {
    status_bytes(pid, "RssAnon:")
}

fn status_bytes(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the agent must live");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a process has resident memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("kB is a number") * 1024
}

/// The pids of all supervisors of this agent.
pub fn supervisors(agent: &Agent) -> Vec<u32> {
    let processes = agent.processes();
    let found = processes.iter().filter(|line| line.contains(" supervise "));
    found.filter_map(|line| line.split(' ').next()?.parse().ok()).collect()
}

pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The value that 99 of 100 do not exceed.
pub fn p99(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() * 99).div_ceil(100) - 1]
}
