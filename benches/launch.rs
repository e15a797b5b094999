//! What a task costs beyond itself: starting and ending one beside the floor (the same cgroups, fork, exec, wait and
//! rmdir by hand, in turn with ours in one run), and the supervisors of idle ones.
//!
//! `cargo bench --bench launch`, as root.

#![allow(unsafe_code)] // `pre_exec`: the floor enters its cgroups between fork and exec, as the shortest program would.

#[path = "../tests/common/mod.rs"]
mod common;
mod shared;

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use allostat::host::cgroup::Cgroup;
use allostat::kernel::proc::pid_stat;
use allostat::model::id::CgroupPath;
use allostat::model::job::{JobKind, Task};
use allostat::runner::drivers::{ALL, Attempt, Driver, DriverContext, StartRequest};
use common::{Cgroups, driver_context, is_root, sampling, test_dir};
use shared::{median, report};

const ROUNDS: usize = 200;

struct World {
    driver: Arc<dyn Driver>,
    layout_places: Cgroup,
    cgroups: Cgroups,
    dir: tempfile::TempDir,
}

impl World {
    fn new(driver: &str) -> World {
        let sampling = sampling();
        let cgroups = Cgroups::new();
        let layout_places = Cgroup::at(&sampling.layout, &CgroupPath::new(cgroups.parent.as_str()).child("alloc"));
        layout_places.create().expect("root can make cgroups");
        let context = DriverContext { descriptors: None, ..driver_context(sampling) };
        let build = ALL.iter().find(|entry| entry.name == driver).expect("it is always there").build;
        World { driver: build(&context), layout_places, cgroups, dir: test_dir() }
    }

    fn request(&self, name: &str, command: &str, args: &[&str]) -> StartRequest {
        let config = serde_json::json!({ "command": command, "args": args });
        let config = config.as_object().cloned().expect("an object");
        for sub in ["task/local", "task/secrets", "task/tmp", "logs", "shared"] {
            fs::create_dir_all(self.dir.path().join(sub)).expect("the directory must be writable");
        }
        let mut request = StartRequest {
            alloc_cgroup: Some(CgroupPath::new(self.cgroups.parent.as_str()).child("alloc")),
            ..StartRequest::alone(Task::new(name, self.driver.name(), config, JobKind::Batch), self.dir.path())
        };
        if self.driver.has_own_root() {
            let dirs = &mut request.dirs;
            dirs.shared = self.dir.path().join("shared");
            dirs.local = dirs.task.join("local");
            dirs.secrets = dirs.task.join("secrets");
            dirs.tmp = dirs.task.join("tmp");
        }
        request
    }

    async fn start(&self, name: &str, command: &str, args: &[&str]) -> Arc<dyn Attempt> {
        let request = self.request(name, command, args);
        let handle = self.driver.prepare(&request).expect("the task is valid");
        self.driver.start(request, handle).await.unwrap_or_else(|e| panic!("{command} did not start: {e}"))
    }

    /// As short as it can be made by hand: the same directories, the same entering, fork, exec, wait, rmdir.
    fn floor(&self) -> Duration {
        let started_at = Instant::now();
        let dirs: Vec<PathBuf> = self.layout_places.places.iter().map(|p| p.directory.join("floor")).collect();
        let mut enter = Vec::new();
        for (dir, place) in dirs.iter().zip(&self.layout_places.places) {
            fs::create_dir(dir).expect("a cgroup must be makeable");
            let file = dir.join(if place.unified { "cgroup.procs" } else { "tasks" });
            enter.push(fs::File::options().write(true).open(file).expect("its file must be writable"));
        }
        let mut command = Command::new("/bin/true");
        // SAFETY: the closure only writes to descriptors that are open.
        unsafe { command.pre_exec(move || enter.iter().try_for_each(|mut file| file.write_all(b"0"))) };
        assert!(command.status().expect("true must run").success());
        for dir in &dirs {
            while fs::remove_dir(dir).is_err() {}
        }
        started_at.elapsed()
    }
}

fn main() {
    if !is_root() {
        println!("these figures need root: cgroups");
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime must be makeable");
    runtime.block_on(async {
        let world = World::new("raw_exec");
        one_by_one(&world).await;
        confined(&world).await;
        all_at_once(&world).await;
    });
}

async fn one_by_one(world: &World) {
    let (mut floor, mut whole, mut to_running) = (Vec::new(), Vec::new(), Vec::new());
    let (mut floor_cpu, mut whole_cpu) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..ROUNDS {
        let cpu = cpu_with_descendants();
        floor.push(world.floor());
        let between = cpu_with_descendants();
        floor_cpu += between - cpu;
        let started_at = Instant::now();
        let attempt = world.start("true", "/bin/true", &[]).await;
        to_running.push(started_at.elapsed());
        attempt.wait().await;
        attempt.destroy().await.expect("it has ended");
        whole.push(started_at.elapsed());
        whole_cpu += cpu_with_descendants() - between;
    }
    let (floor_50, floor_99) = (millis(&mut floor, 50), millis(&mut floor, 99));
    report("launch/floor-p50", floor_50, "ms: mkdir, fork, enter, exec, wait, rmdir by hand", None);
    report("launch/floor-p99", floor_99, "ms", None);
    report("launch/true-to-running-p50", millis(&mut to_running, 50), "ms", None);
    let (p50, p99) = (millis(&mut whole, 50), millis(&mut whole, 99));
    report("launch/true-p50", p50, "ms, start to destroyed", Some((p50 / floor_50, "launch/floor-p50")));
    report("launch/true-p99", p99, "ms", Some((p99 / floor_99, "launch/floor-p99")));
    // Less moved by what else runs on this machine than the time that passes.
    #[allow(clippy::cast_precision_loss)] // A few hundred rounds.
    let each = |cpu: Duration| cpu.as_secs_f64() * 1e3 / ROUNDS as f64;
    report("launch/floor-cpu", each(floor_cpu), "CPU-ms each", None);
    report(
        "launch/true-cpu",
        each(whole_cpu),
        "CPU-ms each, supervisor included",
        Some((each(whole_cpu) / each(floor_cpu), "launch/floor-cpu")),
    );
}

/// What a root directory, namespaces and a filter cost: `exec` and `raw_exec` in turn.
async fn confined(plain: &World) {
    let confined = World::new("exec");
    let (mut plain_times, mut confined_times) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for (world, times) in [(plain, &mut plain_times), (&confined, &mut confined_times)] {
            let started_at = Instant::now();
            let attempt = world.start("true", "/bin/true", &[]).await;
            times.push(started_at.elapsed());
            attempt.wait().await;
            attempt.destroy().await.expect("it has ended");
        }
    }
    let (plain_50, confined_50) = (millis(&mut plain_times, 50), millis(&mut confined_times, 50));
    report("launch/exec-raw-to-running-p50", plain_50, "ms, raw_exec in the same rounds", None);
    let ratio = Some((confined_50 / plain_50, "launch/exec-raw-to-running-p50"));
    report("launch/exec-to-running-p50", confined_50, "ms", ratio);
    report("launch/exec-to-running-p99", millis(&mut confined_times, 99), "ms", None);
    let mut attempts = Vec::new();
    for n in 0..20 {
        attempts.push(confined.start(&format!("idle-{n}"), "/bin/sleep", &["3600"]).await);
    }
    let supervisors = attempts.iter().map(|attempt| attempt.handle().supervisor.expect("it runs").pid);
    let mut dirty: Vec<f64> = supervisors.clone().map(|pid| smaps_mib(pid, "Private_Dirty:")).collect();
    report("launch/exec-supervisor-private-dirty", median(&mut dirty), "MiB, median of 20", None);
    let mains: Vec<u32> = attempts.iter().map(|attempt| attempt.handle().main.expect("it runs").pid).collect();
    let inits = supervisors.flat_map(|pid| {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()
    });
    let mut dirty: Vec<f64> =
        inits.filter(|pid| !mains.contains(pid)).map(|pid| smaps_mib(pid, "Private_Dirty:")).collect();
    report("launch/exec-init-private-dirty", median(&mut dirty), "MiB, median of 20", None);
    for attempt in &attempts {
        attempt.kill().await.expect("it runs");
        attempt.wait().await;
        attempt.destroy().await.expect("it has ended");
    }
}

async fn all_at_once(world: &World) {
    let started_at = Instant::now();
    let names: Vec<String> = (0..ROUNDS).map(|n| format!("idle-{n}")).collect();
    let starts = names.iter().map(|name| Box::pin(world.start(name, "/bin/sleep", &["3600"])));
    let attempts = join_all(starts.collect()).await;
    let took = started_at.elapsed().as_secs_f64() * 1e3;
    report("launch/200-at-once-all-running", took, "ms", None);

    // Let what a start left to do come to rest.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let supervisors: Vec<u32> =
        attempts.iter().map(|a| a.handle().supervisor.expect("a running attempt has one").pid).collect();
    let mut dirty: Vec<f64> = supervisors.iter().take(20).map(|pid| smaps_mib(*pid, "Private_Dirty:")).collect();
    let mut pss: Vec<f64> = supervisors.iter().take(20).map(|pid| smaps_mib(*pid, "Pss:")).collect();
    report("launch/supervisor-private-dirty", median(&mut dirty), "MiB, median of 20", None);
    report("launch/supervisor-pss", median(&mut pss), "MiB, median of 20", None);

    let window = Duration::from_secs(10);
    let before: u64 = supervisors.iter().map(|pid| cpu_ns(*pid)).sum();
    tokio::time::sleep(window).await;
    let after: u64 = supervisors.iter().map(|pid| cpu_ns(*pid)).sum();
    #[allow(clippy::cast_precision_loss)] // Nanoseconds of some seconds.
    let per_minute = (after - before) as f64 / 1e9 * 60.0 / window.as_secs_f64();
    report("launch/200-idle-supervisors", per_minute, "CPU-s/min together", None);

    for attempt in &attempts {
        attempt.kill().await.expect("a running attempt can be killed");
    }
    for attempt in &attempts {
        attempt.wait().await;
        attempt.destroy().await.expect("it has ended");
    }
}

async fn join_all<F: Future<Output = Arc<dyn Attempt>> + Unpin>(mut starts: Vec<F>) -> Vec<Arc<dyn Attempt>> {
    let mut done: Vec<Option<Arc<dyn Attempt>>> = starts.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        let mut pending = false;
        for (start, done) in starts.iter_mut().zip(&mut done) {
            if done.is_none() {
                match std::pin::Pin::new(start).poll(context) {
                    std::task::Poll::Ready(attempt) => *done = Some(attempt),
                    std::task::Poll::Pending => pending = true,
                }
            }
        }
        if pending { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
    done.into_iter().flatten().collect()
}

/// Who forks supervisors for us: it comes with the first start.
fn spawner() -> Option<u32> {
    static PID: OnceLock<u32> = OnceLock::new();
    let is_own = |pid: &u32| {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let own = stat.windows(16).any(|name| name == b"(allostat-spawn)");
        (own && pid_stat::parse(&stat).ok()?.parent == std::process::id()).then_some(())
    };
    if PID.get().is_none() {
        let pids = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let _ = PID.set(pids.into_iter().find(|pid| is_own(pid).is_some())?);
    }
    PID.get().copied()
}

/// Of the spawner and of the supervisors that it has reaped, with their tasks. Source: `/proc/PID/stat`, in ticks of 10
/// ms.
fn cpu_of_supervisors() -> Duration {
    let stat = spawner().and_then(|pid| fs::read(format!("/proc/{pid}/stat")).ok());
    let ticks = stat
        .and_then(|stat| pid_stat::parse(&stat).ok())
        .map_or(0, |stat| stat.user_ticks + stat.system_ticks + stat.waited_user_ticks + stat.waited_system_ticks);
    Duration::from_millis(ticks * 10)
}

/// CPU time of this process and of all children that were reaped, with theirs.
fn cpu_with_descendants() -> Duration {
    let of = |who| {
        // SAFETY: an all-zero rusage is valid, and getrusage fills it in.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(who, &raw mut usage);
            usage
        };
        [usage.ru_utime, usage.ru_stime]
            .map(|t| Duration::new(u64::try_from(t.tv_sec).unwrap_or(0), u32::try_from(t.tv_usec).unwrap_or(0) * 1000))
    };
    of(libc::RUSAGE_SELF).into_iter().chain(of(libc::RUSAGE_CHILDREN)).sum::<Duration>() + cpu_of_supervisors()
}

fn millis(of: &mut [Duration], percent: usize) -> f64 {
    of.sort_unstable();
    of[(of.len() - 1) * percent / 100].as_secs_f64() * 1e3
}

fn smaps_mib(pid: u32, field: &str) -> f64 {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(Path::new(&path)).expect("our own child's");
    let line = text.lines().find(|line| line.starts_with(field)).expect("every kernel from 4.14 has it");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<f64>().ok()).expect("a number") / 1024.0
}

/// Time on a CPU. Source: `/proc/PID/schedstat`.
fn cpu_ns(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).expect("our own child's");
    text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number")
}
