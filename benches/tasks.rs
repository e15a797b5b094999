//! What running a task costs: a `true` from submission to completion, 200 allocs at once, short tasks and their peaks,
//! the supervisor beside each task, and finding 200 allocs again after the agent was killed.

#![allow(unsafe_code)] // The floor joins its cgroups between fork and exec, which has no safe form.

#[path = "../tests/common/mod.rs"]
mod common;
mod shared;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Agent, Cgroups, is_root, mounted_v1, mounted_v2, wait_for};
use shared::{HOLD, command, cpu, job, median, p99, report, start, submit, supervisors};

const MIB: f64 = 1_048_576.0;

fn main() {
    if !is_root() {
        println!("the figures of tasks need root: cgroups");
        return;
    }
    true_as_a_batch_task();
    short_tasks_have_their_peak();
    supervisor();
    two_hundred();
}

/// Each `true` alone: submitted over the socket, complete when the API says so.
fn true_as_a_batch_task() {
    const ROUNDS: usize = 100;
    let mut floor: Vec<f64> = (0..ROUNDS).map(|_| floor_of_true().as_secs_f64() * 1000.0).collect();
    let agent = Agent::start();
    let mut per_task = Vec::new();
    for round in 0..ROUNDS {
        let hcl = job(&format!("true-{round}"), "batch", 1, "/bin/true", "");
        let began = Instant::now();
        // Asked for alone: the list of all allocs grows with each round, and its length is not what is measured.
        let path = format!("/v1/allocs/{}", submit(&agent, &hcl)[0]);
        loop {
            let own = agent.json(&path);
            match own["status"].as_str() {
                Some("complete") => break,
                Some("failed") => panic!("true failed: {own}"),
                _ => assert!(began.elapsed() < Duration::from_secs(10), "true does not end: {own}"),
            }
            // Asking without a pause would take one of two cores from what is measured.
            std::thread::sleep(Duration::from_micros(200));
        }
        per_task.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    let base = median(&mut floor);
    report("tasks/true-floor", base, "ms: mkdir, fork, attach, exec, wait, rmdir", None);
    report(
        "tasks/true-p50",
        median(&mut per_task),
        "ms, submission to complete",
        Some((median(&mut per_task) / base, "tasks/true-floor")),
    );
    report("tasks/true-p99", p99(&mut per_task), "ms", None);
    agent.stop();
}

/// The same system calls without our code, in every hierarchy that tasks get a cgroup in.
fn floor_of_true() -> Duration {
    let cgroups = Cgroups::new();
    let roots: Vec<PathBuf> = ["memory", "cpu", "cpuacct", "pids", "blkio", "freezer"]
        .into_iter()
        .filter_map(mounted_v1)
        .chain(mounted_v2("memory"))
        .collect();
    let began = Instant::now();
    let dirs: Vec<PathBuf> = roots.iter().map(|root| root.join(cgroups.parent.trim_start_matches('/'))).collect();
    let mut members = Vec::new();
    for dir in &dirs {
        fs::create_dir(dir).expect("a cgroup can be made");
        members.push(fs::OpenOptions::new().write(true).open(dir.join("cgroup.procs")).expect("it can be joined"));
    }
    let mut command = Command::new("/bin/true");
    // SAFETY: only write(2) on descriptors opened before the fork; nothing is allocated.
    unsafe { command.pre_exec(move || members.iter_mut().try_for_each(|file| file.write_all(b"0"))) };
    assert!(command.status().expect("true must start").success());
    for dir in &dirs {
        fs::remove_dir(dir).expect("an empty cgroup goes");
    }
    began.elapsed()
}

/// 20 tasks of 0.3 s that touch 200 MiB, four at a time: how many have a peak that is right.
fn short_tasks_have_their_peak() {
    const TASKS: usize = 20;
    let agent = Agent::start();
    for four in 0..TASKS / 4 {
        submit(&agent, &job(&format!("touch-{four}"), "batch", 4, &command(), r#""touch", "200", "100""#));
        wait_for("four tasks to end", Duration::from_secs(60), || {
            let dead = agent.metrics();
            let dead = dead.all("allostat_task_state", &[("state", "dead")]).iter().filter(|s| s.value == "1").count();
            (dead == (four + 1) * 4).then_some(())
        });
    }
    let metrics = agent.metrics();
    let mut peaks: Vec<f64> =
        metrics.all("allostat_task_memory_peak_bytes", &[]).iter().map(|sample| sample.f64() / MIB).collect();
    // What a process needs besides: its libraries, its stack, page tables.
    let right = peaks.iter().filter(|peak| (200.0..204.0).contains(*peak)).count();
    report("tasks/short-with-right-peak", f64::from(u32::try_from(right).expect("20")), "of 20 tasks", None);
    report("tasks/short-peak", median(&mut peaks), "MiB, of 200 MiB touched", None);
    agent.stop();
}

/// The memory and the CPU of the process beside each task.
fn supervisor() {
    let agent = Agent::start();
    start(&agent, 20, HOLD);
    let mut dirty: Vec<f64> = supervisors(&agent).iter().map(|pid| private_dirty_kib(*pid)).collect();
    assert_eq!(dirty.len(), 20, "one supervisor for each task");
    report("tasks/supervisor-private-dirty", median(&mut dirty) / 1024.0, "MiB, median of 20", None);
    agent.stop();
}

/// Source: `/proc/PID/smaps_rollup`.
fn private_dirty_kib(pid: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("a supervisor lives as long as its task");
    let line = text.lines().find_map(|line| line.strip_prefix("Private_Dirty:")).expect("a kernel of 4.14");
    line.trim().trim_end_matches(" kB").parse().expect("kB is a number")
}

/// 200 allocs: until all run, what their supervisors use, and until all are measured after the agent was killed.
fn two_hundred() {
    const ALLOCS: usize = 200;
    let mut agent = Agent::start();
    let took = start(&agent, ALLOCS, HOLD);
    report("tasks/200-running", took.as_secs_f64(), "s, submission to all running", None);

    std::thread::sleep(Duration::from_secs(5));
    let pids = supervisors(&agent);
    let all = |pids: &[u32]| pids.iter().map(|pid| cpu(*pid)).sum::<Duration>();
    let (began, before) = (Instant::now(), all(&pids));
    std::thread::sleep(Duration::from_secs(30));
    let used = all(&pids).saturating_sub(before).as_secs_f64() * 60.0 / began.elapsed().as_secs_f64();
    report("tasks/200-supervisors-cpu", used, "CPU-s/min together", None);

    let files = open_cgroup_files(&agent);
    agent.kill();
    let began = Instant::now();
    agent.start_again();
    wait_for("every task to be measured again", Duration::from_secs(30), || {
        // Counted in the text as it comes: reading all of it would take one of two cores from what is measured.
        let body = agent.get("/metrics").body;
        let lines = String::from_utf8_lossy(&body);
        let measured = lines.lines().filter(|line| line.starts_with("allostat_task_memory_usage_bytes{"));
        (measured.count() == ALLOCS).then_some(())
    });
    let again = began.elapsed().as_secs_f64();
    let floor = read_by_hand(&files).as_secs_f64();
    report("tasks/200-read-by-hand", floor, "s: what the agent keeps open, opened and read once", None);
    let ratio = Some((again / floor, "tasks/200-read-by-hand"));
    report("tasks/200-measured-again", again, "s, start to all measured", ratio);

    let began = Instant::now();
    agent.cli(&["stop", "--all"]).ok();
    report("tasks/200-stopped", began.elapsed().as_secs_f64(), "s, asked to all ended and tidied", None);
    agent.stop();
}

/// The files that this agent keeps open: of tasks, of their cgroups and of its own state. What `/proc` has of the agent
/// itself goes with it.
fn open_cgroup_files(agent: &Agent) -> BTreeSet<PathBuf> {
    let own = format!("/proc/{}", agent.pid());
    let fds = fs::read_dir(format!("{own}/fd")).expect("the agent must live");
    let paths = fds.flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
    paths.filter(|path| path.is_absolute() && path.is_file() && !path.starts_with(&own)).collect()
}

/// The same calls without our code.
fn read_by_hand(files: &BTreeSet<PathBuf>) -> Duration {
    let mut text = Vec::new();
    let began = Instant::now();
    for path in files {
        text.clear();
        fs::File::open(path).and_then(|mut file| file.read_to_end(&mut text)).expect("what was open can be read");
    }
    began.elapsed()
}
