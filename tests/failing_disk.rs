//! A real disk that fails under a running agent: every read and write answers EIO, or it turns read-only. The disk is
//! an ext4 file system in a file; what was never synced to it is lost.
//!
//! Promise (Durability and recovery): A real disk with EIO, or turned read-only, ends no task, loses nothing
//! acknowledged, and is reported

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::common::{Agent, AgentOptions, counters, none_fell, part, patience, unmount_secrets, wait_for, workload};

/// Unmounted with the value, and detached by that.
struct Disk(tempfile::TempDir);

impl Disk {
    fn make() -> Option<Disk> {
        let disk = Disk(crate::common::test_dir());
        let image = std::fs::File::create(disk.image()).expect("our own directory");
        image.set_len(64 << 20).expect("a sparse file takes no room");
        std::fs::create_dir(disk.path()).expect("our own directory");
        let mke2fs = part("mke2fs").unwrap_or_else(|| "mke2fs".into());
        let made = Command::new(mke2fs).args(["-q", "-F", "-t", "ext4"]).arg(disk.image()).status();
        (made.is_ok_and(|status| status.success()) && disk.mount()).then_some(disk)
    }
    fn image(&self) -> PathBuf {
        self.0.path().join("image")
    }
    fn path(&self) -> PathBuf {
        self.0.path().join("disk")
    }
    fn mount(&self) -> bool {
        let mut mount = Command::new("mount");
        mount.args(["-t", "ext4", "-o", "loop,errors=remount-ro"]).arg(self.image()).arg(self.path());
        mount.status().is_ok_and(|status| status.success())
    }
    /// As after a repair: no process has a file of it open any more.
    fn mount_again(&self) {
        unmount_secrets(&self.path());
        wait_for("the disk to be free", Duration::from_secs(20) * patience(), || {
            Command::new("umount").arg(self.path()).status().is_ok_and(|status| status.success()).then_some(())
        });
        assert!(self.mount(), "it is sound again");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        unmount_secrets(&self.path());
        // Lazily: processes of a test that failed may still be on their way out.
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

/// EXT4_IOC_SHUTDOWN without flushing anything: from now on every access answers EIO.
fn goes_away(disk: &Path) -> bool {
    let script = "import fcntl, os, struct, sys\n\
                  fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack('I', 2))";
    let python = part("python3").unwrap_or_else(|| "python3".into());
    Command::new(python).args(["-c", script]).arg(disk).status().is_ok_and(|status| status.success())
}

/// What ext4 does when it finds itself damaged.
fn turns_read_only(disk: &Path) -> bool {
    Command::new("mount").args(["-o", "remount,abort"]).arg(disk).status().is_ok_and(|status| status.success())
}

fn job(name: &str, kind: &str, args: &str, attempts: u32) -> String {
    format!(
        "job \"{name}\" {{\n type = \"{kind}\"\n group \"g\" {{\n reschedule {{\n attempts=0\n unlimited=false\n }}\n restart {{\n attempts = {attempts}\n interval = \"24h\"\n \
         delay = \"5s\"\n mode = \"fail\"\n }}\n task \"{name}\" {{\n driver = \"raw_exec\"\n config {{\n \
         command = {:?}\n args = [{args}]\n }}\n }}\n }}\n}}\n",
        workload().display().to_string()
    )
}

fn of(agent: &Agent, metric: &str, task: &str, more: &[(&str, &str)]) -> f64 {
    let labels: Vec<_> = [("workload", task), ("task", task)].into_iter().chain(more.iter().copied()).collect();
    agent.metrics().one(metric, &labels).map_or(0.0, |sample| sample.f64())
}

/// Points that were ever queued, and those that are in memory alone: of one body, in which the books balance.
fn queued(agent: &Agent) -> (u64, u64) {
    let body = agent.metrics();
    let sum =
        |name: &str| body.all(&format!("allostat_otlp_{name}"), &[]).iter().map(|sample| sample.u64()).sum::<u64>();
    let enqueued = sum("points_enqueued_total");
    let ends = ["points_exported_total", "points_rejected_total", "points_dropped_total", "queue_points"].map(sum);
    assert_eq!(enqueued, ends.iter().sum::<u64>(), "{ends:?}");
    (enqueued, sum("queue_in_memory"))
}

fn survives(fault: fn(&Path) -> bool) -> Result<(), &'static str> {
    let Some(disk) = Disk::make() else { return Err("no-loop-device") };
    // No receiver is there to take what it pushes: it waits on this disk.
    let away = format!("http://{}", crate::common::free_address());
    let env = [("OTEL_EXPORTER_OTLP_ENDPOINT", away.as_str()), ("OTEL_METRIC_EXPORT_INTERVAL", "300")];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let options = AgentOptions { data_dir: Some(disk.path().join("data")), env, ..AgentOptions::default() };
    let mut agent = Agent::with(options);
    let until = |what: &str, holds: &dyn Fn() -> bool| {
        wait_for(what, Duration::from_secs(30) * patience(), || holds().then_some(()));
    };
    agent.run(&job("held", "service", r#""hold", "600000""#, 0));
    agent.run(&job("busy", "service", r#""burn", "600000""#, 0));
    agent.run(&job("looping", "service", r#""burn", "20""#, 1000));
    let cpu = |agent: &Agent| {
        let shown = agent.metrics();
        shown.one("allostat_workload_cpu_usage_seconds_total", &[("workload", "busy")]).map_or(0.0, |s| s.f64())
    };
    until("readings", &|| cpu(&agent) > 0.0);
    // In the middle of a start it would not be clear what came of it: that one is abandoned.
    until("a backoff", &|| {
        agent.metrics().u64("allostat_task_state", &[("task", "looping"), ("state", "backoff")]) == 1
    });
    until("points that wait", &|| queued(&agent).0 > 500 && queued(&agent).1 == 0);
    let (known, shown) = (agent.alloc_ids(), counters(&agent.metrics()));
    let (durable, _) = queued(&agent);
    // No receiver has taken anything: the first batch of all is in the queue.
    let oldest = |agent: &Agent| {
        agent
            .metrics()
            .one("allostat_otlp_queue_oldest_timestamp_seconds", &[("signal", "metrics")])
            .map(crate::common::Sample::f64)
    };
    let first = oldest(&agent).expect("points wait");

    assert!(fault(&disk.path()), "the fault can be made");
    let refused = agent.request("POST", "/v1/jobs", &job("more", "batch", r#""burn", "20""#, 0));
    assert!(refused.status >= 500 && refused.text().contains("state database"), "{}", refused.text());
    until("its count", &|| agent.metrics().u64("allostat_state_db_write_failures_total", &[]) > 0);
    assert_eq!(agent.get("/healthz").status, 200, "it lives");
    let before = cpu(&agent);
    until("readings that go on", &|| cpu(&agent) > before);
    // A stop is carried out all the same.
    let allocs = agent.json("/v1/allocs");
    let held = allocs["allocs"].as_array().and_then(|all| all.iter().find(|alloc| alloc["job"] == "held"));
    let held = held.and_then(|alloc| alloc["id"].as_str()).expect("it is listed");
    let stopped = agent.cli(&["stop", held]);
    assert!(stopped.code == Some(0) && stopped.stderr.contains("not recorded"), "{}", stopped.stderr);
    until("its end", &|| of(&agent, "allostat_workload_exits_total", "held", &[("outcome", "killed")]) > 0.5);
    // What cannot be started for it is not abandoned: it is tried again once its end is on record.
    until("a start that fails", &|| agent.log().contains("Setup Failure"));
    assert_eq!(agent.metrics().u64("allostat_task_state", &[("task", "looping"), ("state", "dead")]), 0);
    none_fell(&shown, &counters(&agent.metrics()), "under a disk that fails");
    until("points that wait in memory", &|| queued(&agent).1 > 0);
    assert!(agent.log().contains("state database"), "it is said:\n{}", agent.log());

    // The disk is repaired, for which nothing may use it.
    agent.kill();
    agent.kill_processes();
    disk.mount_again();
    agent.start_again();
    assert_eq!(agent.alloc_ids(), known, "what was acknowledged is known, what was refused is not");
    agent.run(&job("after", "batch", r#""burn", "20""#, 0));
    until("work", &|| of(&agent, "allostat_workload_exits_total", "after", &[("outcome", "success")]) > 0.5);
    assert_eq!(agent.metrics().u64("allostat_state_db_write_failures_total", &[]), 0);
    until("what waits to be on the disk", &|| queued(&agent).1 == 0);
    assert!(queued(&agent).0 >= durable, "what the disk had is counted: {durable}");
    assert_eq!(oldest(&agent), Some(first), "and is there, from the first batch on");
    agent.stop();
    Ok(())
}

/// Promise (Measured values): On a failing disk points wait in memory, the counters balance, and queued data is there
/// after a repair
#[test]
fn a_disk_that_answers_nothing_any_more_costs_no_task_and_no_acknowledged_state() {
    if !crate::common::is_root() {
        skip_test!("not-root");
    }
    if let Err(why) = survives(goes_away) {
        skip_test!(why);
    }
}

#[test]
fn a_disk_that_turns_read_only_costs_no_task_and_no_acknowledged_state() {
    if !crate::common::is_root() {
        skip_test!("not-root");
    }
    if let Err(why) = survives(turns_read_only) {
        skip_test!(why);
    }
}
