//! A hostile user at work beside managed tasks: their values, ages and ends, and the cost of the agent.
//!
//! The goals are ages of 1.1 s and 5 % of a core of a release build on a quiet machine: `docs/figures.md` has them.
//! Beside other tests the clock and the build decide such figures, so the test compares with what does not depend on
//! them: ages with the agent's own ticks, and CPU time with that of the same agent without the user.
//!
//! One minute each without and with the user: `ALLOSTAT_BIN=target/dist/allostat cargo test --test agents
//! observed::neighbour -- --nocapture`. The figures stand in `docs/figures.md`.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::common::{Agent, AgentOptions, Cgroups, Exposition, Sample, how_many, is_root, part, patience, wait_for};
use crate::observed::live::long;

/// Without an account.
const USER: u32 = 12_362;
const TASKS: usize = 10;
/// Of the managed tasks, which wake ten times a second: a tick, and the time to publish it.
const USUAL_AGE: Duration = Duration::from_millis(1_100);
/// Of one of them at any time, before the agent's latest tick: some ticks without it.
const MOST_AGE: Duration = Duration::from_secs(5);
/// Of any running task, idle ones of the user included, by the agent's own series. They are read each 8 s.
const MOST_IDLE_AGE: Duration = Duration::from_secs(30);
/// CPU time beside the user, to that without him: 2 to 4 times. When it read directories that were gone it was 8 times
/// as much, and 30 times before its wake-ups were bounded.
const MOST_CPU_RATIO: f64 = 7.0;
/// Of the agent at any time, in kB.
const MOST_MEMORY: u64 = 120 << 10;

/// When the agent sampled last, and when the oldest value was read that it exposes.
const OF_SAMPLES: &str = "/metrics?name[]=allostat_collector_last_sample_timestamp_seconds\
                          &name[]=allostat_collector_oldest_sample_timestamp_seconds";

/// What the agent did in some seconds.
struct Stretch {
    /// Of the shown samples of managed tasks, in order.
    ages: Vec<Duration>,
    /// The same, when the agent had its latest tick.
    at_ticks: Vec<Duration>,
    /// Of the oldest sample of all tasks, by the agent's own series.
    oldest: Duration,
    /// Of one core.
    percent: f64,
    peak_kilobytes: u64,
}

/// One process group, killed as a whole.
struct Neighbour(Child);

impl Neighbour {
    fn start(agent: &Agent, cgroups: &Cgroups) -> Neighbour {
        cgroups.make("given");
        let given = cgroups.directories("given");
        for directory in &given {
            chown(directory, Some(USER), Some(USER)).unwrap();
            chown(directory.join("cgroup.procs"), Some(USER), Some(USER)).unwrap();
        }
        let mut command = Command::new(part("python3").unwrap());
        command.args(["-c", include_str!("neighbour.py"), &agent.address.port().to_string()]).args(&given);
        command.uid(USER).gid(USER).current_dir("/").process_group(0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        cgroups.place("given", child.id());
        drop(child.stdin.take());
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Neighbour(child)
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.0.wait();
    }
}

pub fn cpu_time(agent: &Agent) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", agent.pid())).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

/// Watches for so many seconds, in which a job of one failure begins each second.
fn watch(agent: &Agent, seconds: usize) -> Stretch {
    let (began, before) = (Instant::now(), cpu_time(agent));
    let (mut ages, mut at_ticks, mut oldest) = (Vec::new(), Vec::new(), Duration::ZERO);
    for _ in 0..seconds {
        agent.run(&failing());
        let second = Instant::now();
        while second.elapsed() < Duration::from_secs(1) {
            // Over the socket: the user may hold all room for answers over TCP.
            let body = Exposition::parse(agent.request("GET", OF_SAMPLES, "").text());
            let of_tasks = |what: &str| {
                let family = format!("allostat_collector_{what}_sample_timestamp_seconds");
                body.one(&family, &[("collector", "task")]).map(|sample| Duration::from_secs_f64(sample.f64()))
            };
            // Absent until the first value of a task is exposed.
            let (Some(tick), Some(earliest)) = (of_tasks("last"), of_tasks("oldest")) else {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            };
            oldest = oldest.max(tick.saturating_sub(earliest));
            let tasks = agent.json("/v1/tasks");
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            let waking = tasks["tasks"].as_array().unwrap().iter().filter(|task| task["job"] == "waking");
            for at in waking.filter_map(|task| task["sampled_at"].as_u64()).map(Duration::from_nanos) {
                ages.push(now.saturating_sub(at));
                at_ticks.push(tick.saturating_sub(at));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    ages.sort_unstable();
    at_ticks.sort_unstable();
    let percent = (cpu_time(agent) - before) / began.elapsed().as_secs_f64() * 100.0;
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    Stretch { ages, at_ticks, oldest, percent, peak_kilobytes: peak.trim().trim_end_matches(" kB").parse().unwrap() }
}

fn job(name: &str, kind: &str, count: usize, command: &str) -> String {
    let none = if kind == "batch" { "restart {\n attempts = 0\n }\n reschedule {\n attempts = 0\n }\n" } else { "" };
    let task =
        format!("driver = \"raw_exec\"\n config {{\n command = \"/bin/sh\"\n args = [\"-c\", {command:?}]\n }}\n");
    format!(
        "job {name:?} {{\n type = {kind:?}\n group \"g\" {{\n count = {count}\n {none} task \"t\" {{\n {task} }}\n }}\n}}\n"
    )
}

/// A new text each time: an unchanged job would start nothing.
fn failing() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    job("failing", "batch", 1, &format!("exit 3; {now}"))
}

/// Promise (Observed workloads): A hostile user with floods, names and connections changes no value or end of managed
/// tasks
#[test]
fn managed_tasks_keep_values_ages_and_ends_beside_a_hostile_user() {
    if !is_root() {
        skip_test!("not-root");
    }
    if part("python3").is_none() {
        skip_test!("no-python");
    }
    let cgroups = Cgroups::new();
    let env = vec![
        ("ALLOSTAT_OBSERVE".to_owned(), "true".to_owned()),
        ("ALLOSTAT_PROFILE".to_owned(), "standard".to_owned()),
    ];
    let agent = Agent::with(AgentOptions { env, ..AgentOptions::default() });
    agent.run(&job("waking", "service", TASKS, "while :; do sleep 0.1; done"));
    let shown = |family: &str, labels: &[(&str, &str)]| -> Vec<f64> {
        agent.metrics().all(family, labels).into_iter().map(Sample::f64).collect()
    };
    let waking = [("workload", "waking")];
    let used = || shown("allostat_task_cpu_usage_seconds_total", &waking);
    wait_for("all tasks", long(), || (used().len() == TASKS).then_some(()));

    let seconds = how_many(10, 60);
    let alone = watch(&agent, seconds);
    let neighbour = Neighbour::start(&agent, &cgroups);
    let before = used();
    let disturbed = watch(&agent, seconds);
    for (what, stretch) in [("alone", &alone), ("beside a hostile user", &disturbed)] {
        let (middle, oldest) = (stretch.ages[stretch.ages.len() / 2], stretch.ages.last().unwrap());
        let (at_tick, of_all) = (stretch.at_ticks.last().unwrap(), stretch.oldest);
        println!(
            "{what}: {:.2} % of a core, peak {:.1} MiB; samples of managed tasks: median {middle:?}, oldest {oldest:?}, \
             at the ticks {at_tick:?}; of all tasks {of_all:?}",
            stretch.percent,
            stretch.peak_kilobytes as f64 / 1024.0
        );
        assert!(middle < USUAL_AGE * patience() && *oldest < long(), "{what}: {middle:?}, {oldest:?}");
        let most = MOST_AGE * patience();
        assert!(*at_tick < most && of_all < MOST_IDLE_AGE * patience(), "{what}: {at_tick:?}, {of_all:?}");
    }
    let ratio = disturbed.percent / alone.percent;
    assert!(ratio < MOST_CPU_RATIO, "{ratio:.1} times the CPU time: {:.2} % of a core", disturbed.percent);
    assert!(disturbed.peak_kilobytes < MOST_MEMORY, "{} kB", disturbed.peak_kilobytes);
    assert_eq!(used().len(), TASKS);
    assert!(used().iter().zip(&before).all(|(now, then)| now > then), "{before:?}, {:?}", used());
    let failed = [("workload", "failing"), ("outcome", "error")];
    let ends = || shown("allostat_workload_exits_total", &failed).iter().sum::<f64>();
    wait_for("every end", Duration::from_secs(20) * patience(), || (ends() == 2.0 * seconds as f64).then_some(()));
    drop(neighbour);
}
