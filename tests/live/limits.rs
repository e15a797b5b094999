//! What happens at a limit: throttling, a refused fork, an OOM kill, a throttled disk.

use std::time::Duration;

use crate::common::{Agent, is_root, mounted_v1, mounted_v2, patience, wait_for};
use crate::live::work::{MIB, Work, assert_near, keyed, lacks};

/// Promise (Measured values): CPU time under a quota and its throttling are counted; user and system add up to usage
#[test]
fn cpu_burnt_under_a_quota_is_counted_and_its_throttling_too() {
    if let Some(reason) = lacks("cpu") {
        skip_test!(reason);
    }
    let agent = Agent::start();
    let burn = |name: &str| {
        let work = Work::batch(name, &["burn", "4000"]).config("cpu_hard_limit = true\n cpu_cfs_period = 100000");
        let alloc = work.resources("cpu = 250").run(&agent);
        alloc.ready();
        let limit = wait_for("its quota", Duration::from_secs(20) * patience(), || {
            Some(agent.metrics().one("allostat_task_cpu_limit_cores", &alloc.labels())?.f64())
        });
        assert!(limit > 0.0, "a quota is a limit: {limit}");
        alloc.wait_dead();
        let metrics = agent.metrics();
        let throttled = metrics.one("allostat_task_cpu_cfs_throttled_periods_total", &alloc.labels());
        let is_throttled = throttled.is_some_and(|throttled| throttled.f64() > 0.0);
        (alloc, limit, is_throttled)
    };
    // One that gets less than its quota, since other programs have the processors, is not throttled: it burns again.
    let names = ["burner", "burner-2", "burner-3", "burner-4"];
    let (mut burnt, mut next) = (burn(names[0]), names[1..].iter());
    while !burnt.2
        && burnt.1 < 0.9
        && let Some(name) = next.next()
    {
        burnt = burn(name);
    }
    let (alloc, limit, _) = burnt;
    let metrics = agent.metrics();
    let used = metrics.f64("allostat_task_cpu_usage_seconds_total", &alloc.labels());
    let allowed = limit.min(1.0) * 4.0;
    if limit < 0.9 {
        assert!(used <= allowed * 1.3 + 0.1, "used {used} s of {allowed} s allowed");
        let throttled = metrics.u64("allostat_task_cpu_cfs_throttled_periods_total", &alloc.labels());
        let periods = metrics.u64("allostat_task_cpu_cfs_periods_total", &alloc.labels());
        assert!(throttled > 0 && throttled <= periods, "{throttled} of {periods} periods");
        assert!(metrics.f64("allostat_task_cpu_throttled_seconds_total", &alloc.labels()) > 0.0);
    }
    assert!(used > 0.05, "used {used} s");
    let by_mode = |mode| {
        let labels = [("alloc_id", alloc.id.as_str()), ("task", alloc.task.as_str()), ("mode", mode)];
        metrics.f64("allostat_task_cpu_seconds_total", &labels)
    };
    let both = by_mode("user") + by_mode("system");
    assert!((both - used).abs() <= 0.03 + used * 0.02, "user + system {both} s and usage {used} s are the same time");
    // The workload's total has it as well, and keeps it.
    let total = metrics.f64(
        "allostat_workload_cpu_usage_seconds_total",
        &[("workload", alloc.task.as_str()), ("task", alloc.task.as_str())],
    );
    assert!((total - used).abs() < 1e-9, "{total} and {used}");
    agent.stop();
}

/// Promise (Measured values): Without a quota there is no throttling series
#[test]
fn without_a_quota_there_is_no_throttling_series() {
    if let Some(reason) = lacks("cpu") {
        skip_test!(reason);
    }
    let agent = Agent::start();
    let alloc = Work::batch("free", &["burn", "60000"]).run(&agent);
    alloc.ready();
    let metrics = alloc.fresh_metrics();
    assert_eq!(metrics.one("allostat_task_cpu_cfs_throttled_periods_total", &alloc.labels()), None);
    assert_eq!(metrics.one("allostat_task_cpu_limit_cores", &alloc.labels()), None);
    wait_for("what it burns to be counted", Duration::from_secs(20) * patience(), || {
        let seconds = agent.metrics().f64("allostat_task_cpu_usage_seconds_total", &alloc.labels());
        (seconds > 0.3).then_some(())
    });
    agent.stop();
}

/// Promise (Measured values): Forks refused at the pids limit equal `pids.events`
#[test]
fn a_fork_refused_at_the_pids_limit_is_counted() {
    if let Some(reason) = lacks("pids") {
        skip_test!(reason);
    }
    let agent = Agent::start();
    let alloc = Work::batch("forks", &["fork", "20", "60000"]).config("pids_limit = 8").run(&agent);
    let reported = alloc.ready();
    assert_eq!(reported["children"], 7, "the parent and seven children are eight: {reported}");
    let metrics = alloc.fresh_metrics();
    let task = |name: &str| metrics.u64(&format!("allostat_task_{name}"), &alloc.labels());
    assert_eq!(task("pids_limit"), 8);
    assert_eq!(task("pids_current"), 8);
    assert_eq!(task("processes"), 8);
    let events = alloc.kernel("pids", "pids.events", "pids.events").expect("pids.events");
    let hits = keyed(&events, "max").expect("max");
    assert!(hits >= 13, "thirteen forks were refused: {events}");
    assert_eq!(task("pids_limit_hits_total"), hits);
    agent.stop();
}

/// Promise (Measured values): An OOM-killed task is one kill with outcome `oom` in metrics, API and events; no other
/// outcome counts it
#[test]
fn oom_killed_task_is_reported_so_everywhere() {
    if let Some(reason) = lacks("memory") {
        skip_test!(reason);
    }
    let agent = Agent::start();
    let alloc = Work::batch("hog", &["touch", "200", "60000"]).resources("memory = 64").run(&agent);
    alloc.wait_dead();
    let metrics = agent.metrics();
    assert_eq!(metrics.u64("allostat_task_oom_kills_total", &alloc.labels()), 1);
    assert_eq!(alloc.exits("oom"), 1);
    for outcome in ["success", "error", "signal", "killed", "unknown"] {
        assert_eq!(alloc.exits(outcome), 0, "{outcome}");
    }
    assert_eq!(metrics.u64("allostat_task_memory_limit_bytes", &alloc.labels()), 64 * MIB);
    if let Some(peak) = metrics.one("allostat_task_memory_peak_bytes", &alloc.labels()) {
        assert_near("the peak and the limit", peak.u64(), 64 * MIB, MIB);
    }
    assert!(metrics.u64("allostat_task_memory_limit_hits_total", &alloc.labels()) > 0);
    assert_eq!(
        metrics.one("allostat_task_memory_usage_bytes", &alloc.labels()),
        None,
        "what was used live is gone with the task"
    );
    let detail = agent.json(&format!("/v1/allocs/{}", alloc.id)).to_string();
    assert!(detail.contains("\"oom\""), "the API names the outcome: {detail}");
    let events = agent.json("/v1/events").to_string();
    assert!(events.contains("OOM") || events.contains("oom"), "the event names it: {events}");
    agent.stop();
}

/// The task itself ends by its own will. Nomad counts such an attempt as killed, and so does the page of its names.
#[test]
fn a_child_that_dies_of_oom_is_counted_under_nomads_name() {
    if let Some(reason) = lacks("memory") {
        skip_test!(reason);
    }
    let agent = Agent::start();
    let mut work = Work::batch("parent", &[]).resources("memory = 64");
    let script = format!("'{}' touch 200 60000; exit 1", crate::common::workload().display());
    work.args = vec!["-c".to_owned(), script];
    let hcl = work.hcl().replace(&format!("{:?}", crate::common::workload().display().to_string()), "\"/bin/sh\"");
    let alloc = work.run_as(&agent, &hcl);
    alloc.wait_dead();
    assert_eq!((alloc.exits("oom"), alloc.exits("error")), (0, 1));
    assert_eq!(agent.metrics().u64("allostat_task_oom_kills_total", &alloc.labels()), 1);
    let page = agent.get("/metrics/nomad").text().to_owned();
    let killed = page.lines().find(|line| line.starts_with("nomad_client_allocs_oom_killed{")).unwrap_or_default();
    assert!(killed.contains(&alloc.id) && killed.ends_with(" 1"), "{killed}");
    agent.stop();
}

/// Promise (Measured values): Attempts add up: three OOM kills of one service are 3, with 2 restarts
#[test]
fn an_oom_killed_service_is_restarted_and_its_counters_add_up() {
    if let Some(reason) = lacks("memory") {
        skip_test!(reason);
    }
    let agent = Agent::start();
    let mut work = Work::batch("leaky", &["touch", "100", "60000"]).resources("memory = 32");
    work.kind = "service";
    work.restart = "attempts = 2\n interval = \"10m\"\n delay = \"100ms\"\n mode = \"fail\"".into();
    let alloc = work.run(&agent);
    alloc.wait_dead();
    assert_eq!(alloc.exits("oom"), 3, "the first run and two restarts");
    let metrics = agent.metrics();
    assert_eq!(metrics.u64("allostat_task_oom_kills_total", &alloc.labels()), 3, "attempts add up");
    let restarts: u64 =
        metrics.all("allostat_task_restarts_total", &alloc.labels()).iter().map(|sample| sample.u64()).sum();
    assert_eq!(restarts, 2);
    agent.stop();
}

/// Promise (Measured values): Bytes written under a throttle are counted, and the throttle works
#[test]
fn a_throttled_disk_write_is_counted_to_the_byte() {
    let controller = if crate::common::mounted_v1("blkio").is_some() { "blkio" } else { "io" };
    if let Some(reason) = lacks(controller) {
        skip_test!(reason);
    }
    let dir = crate::common::test_dir();
    let probe = std::fs::OpenOptions::new();
    if !direct_io_works(probe, dir.path()) {
        skip_test!("no-real-disk");
    }
    let agent = Agent::start();
    let alloc = Work::batch("writer", &["write", "20", dir.path().to_str().expect("UTF-8")])
        .config(&format!("io_write_bps = {}", 10 * MIB))
        .run(&agent);
    let reported = alloc.ready();
    alloc.wait_dead();
    let written = agent.metrics().u64("allostat_task_io_written_bytes_total", &alloc.labels());
    // The file's own blocks to the byte; the file system may add metadata of its own.
    assert!((20 * MIB..20 * MIB + MIB).contains(&written), "{written}");
    let took = reported["milliseconds"].as_u64().expect("a number");
    assert!(took >= 1500, "20 MiB at 10 MiB/s take 2 s, not {took} ms");
    agent.stop();
}

fn direct_io_works(mut options: std::fs::OpenOptions, dir: &std::path::Path) -> bool {
    use std::os::unix::fs::OpenOptionsExt;
    options.write(true).create(true).custom_flags(libc::O_DIRECT).open(dir.join("probe")).is_ok()
}

/// Promise (Durability and recovery): A task that ignores its kill signal is killed by force after its kill timeout
#[test]
fn a_task_that_ignores_its_kill_signal_is_killed_by_force() {
    let agent = Agent::start();
    let mut work = Work::batch("stubborn", &["stubborn", "60000"]);
    work.task = "kill_timeout = \"300ms\"".into();
    let alloc = work.run(&agent);
    alloc.ready();
    let started_at = std::time::Instant::now();
    agent.cli(&["stop", &alloc.id]).ok();
    alloc.wait_dead();
    assert!(started_at.elapsed() >= Duration::from_millis(300), "it had its grace");
    assert!(started_at.elapsed() < Duration::from_secs(10) * patience());
    assert_eq!(alloc.exits("killed"), 1);
    agent.stop();
}

/// Writes its second word with the value.
struct Freezer(std::path::PathBuf, &'static str);

impl Drop for Freezer {
    fn drop(&mut self) {
        let _ = std::fs::write(&self.0, self.1);
    }
}

/// Promise (Durability and recovery): A frozen task is killed, and nothing of it is left
#[test]
fn frozen_task_is_killed_all_the_same() {
    let v1 = mounted_v1("freezer");
    let Some(root) = v1.clone().or_else(|| mounted_v2("memory")).filter(|_| is_root()) else {
        skip_test!("no-cgroups")
    };
    let (file, frozen, thawed) =
        if v1.is_some() { ("freezer.state", "FROZEN", "THAWED") } else { ("cgroup.freeze", "1", "0") };
    let agent = Agent::start();
    let mut work = Work::batch("frozen", &["hold", "60000"]);
    work.task = "kill_timeout = \"300ms\"".into();
    let alloc = work.run(&agent);
    alloc.ready();
    let task = root.join(agent.cgroups.parent.trim_start_matches('/')).join(&alloc.id).join("frozen");
    std::fs::write(task.join(file), frozen).expect("it can be frozen");
    let _thaw = Freezer(task.join(file), thawed);
    agent.cli(&["stop", &alloc.id]).ok();
    alloc.wait_dead();
    assert_eq!(alloc.exits("killed"), 1);
    assert!(!task.exists(), "nothing of it is left");
    agent.stop();
}

/// Promise (Durability and recovery): A descendant in a session of its own does not outlive its task
#[test]
fn a_descendant_that_hides_in_a_session_of_its_own_does_not_outlive_its_task() {
    let agent = Agent::start();
    let alloc = Work::batch("daemon", &["daemonize", "60000"]).run(&agent);
    alloc.wait_dead();
    assert_eq!(alloc.exits("success"), 1);
    wait_for("the daemon to be gone", Duration::from_secs(5) * patience(), || {
        agent.processes().iter().all(|p| !p.contains("daemonize")).then_some(())
    });
    agent.stop();
}
