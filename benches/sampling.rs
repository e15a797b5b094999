//! What it costs to read cgroups, beside the floor: the same `pread` calls on kept descriptors, without our code.
//!
//! `cargo bench --bench sampling [-- CGROUPS]`, as root. It makes that many cgroups (1,000), each with a sleeping
//! process, below a parent of its own, and removes them. Lines:
//! `bench <tab> name <tab> value <tab> unit <tab> ratio <tab> to what`.

use std::fs;
use std::hint::black_box;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use allostat::collectors::{FdBudget, KernelPass, SamplingContext, TaskReader};
use allostat::host::hierarchy::{CgroupVersion, Layout};
use allostat::host::roots::Roots;
use allostat::model::id::CgroupPath;
use allostat::model::units::Timestamp;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const ROUNDS: usize = 15;

/// The six files of the budget, and what comes closest to them on v2.
const V1: [&str; 6] = [
    "memory/memory.usage_in_bytes",
    "memory/memory.max_usage_in_bytes",
    "memory/memory.stat",
    "cpuacct/cpuacct.usage",
    "cpu/cpu.stat",
    "pids/pids.current",
];
const V2: [&str; 6] = [
    "unified/memory.current",
    "unified/memory.peak",
    "unified/memory.stat",
    "unified/memory.events",
    "unified/cpu.stat",
    "unified/pids.current",
];

/// Real cgroups, each with a process; gone with it.
struct Forest {
    layout: Layout,
    parent: CgroupPath,
    cgroups: Vec<CgroupPath>,
    sleepers: Vec<Child>,
}

impl Forest {
    fn plant(count: usize) -> Result<Forest, String> {
        let layout = Layout::detect(&Roots::default()).map_err(|e| e.to_string())?;
        let parent = CgroupPath::new(format!("/allostat-bench-{}", std::process::id()));
        let mut forest = Forest { layout, parent, cgroups: Vec::new(), sleepers: Vec::new() };
        forest.make(&forest.parent)?;
        for home in forest.layout.placements().filter(|h| h.version == CgroupVersion::V2) {
            let control = home.mount.join(forest.parent.relative()).join("cgroup.subtree_control");
            let controllers: String = home.controllers.iter().map(|c| format!("+{c} ")).collect();
            // Without them there are fewer files: the bench says so by itself.
            let _ = fs::write(control, controllers);
        }
        for i in 0..count {
            let path = forest.parent.child(&format!("t{i}"));
            forest.make(&path)?;
            let sleeper =
                Command::new("sleep").arg("infinity").stdin(Stdio::null()).spawn().map_err(|e| e.to_string())?;
            let pid = sleeper.id().to_string();
            forest.sleepers.push(sleeper);
            for home in forest.layout.placements() {
                let procs = home.mount.join(path.relative()).join("cgroup.procs");
                fs::write(&procs, &pid).map_err(|e| format!("{}: {e}", procs.display()))?;
            }
            forest.cgroups.push(path);
        }
        Ok(forest)
    }

    fn make(&self, path: &CgroupPath) -> Result<(), String> {
        for home in self.layout.placements() {
            let directory = home.mount.join(path.relative());
            fs::create_dir(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
        }
        Ok(())
    }

    fn file(&self, cgroup: &CgroupPath, key: &str) -> Option<PathBuf> {
        let (label, name) = key.split_once('/')?;
        let home = if label == "unified" { self.layout.unified() } else { self.layout.controller(label) }?;
        Some(home.mount.join(cgroup.relative()).join(name)).filter(|p| p.exists())
    }
}

impl Drop for Forest {
    fn drop(&mut self) {
        for sleeper in &mut self.sleepers {
            let _ = sleeper.kill();
            let _ = sleeper.wait();
        }
        for path in self.cgroups.iter().chain([&self.parent]) {
            for home in self.layout.placements() {
                let directory = home.mount.join(path.relative());
                // A process that was just killed may hold its cgroup for a moment.
                for _ in 0..50 {
                    match fs::remove_dir(&directory) {
                        Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy => {
                            std::thread::sleep(Duration::from_millis(10));
                        }
                        _ => break,
                    }
                }
            }
        }
    }
}

fn main() -> ExitCode {
    // `cargo test --benches` runs this too: then a few cgroups show that it works.
    let measured = std::env::args().any(|a| a == "--bench");
    let count = std::env::args().skip(1).find_map(|a| a.parse().ok()).unwrap_or(if measured { 1000 } else { 3 });
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let forest = match Forest::plant(count) {
        Ok(forest) => forest,
        Err(why) => {
            eprintln!("SKIP sampling: cannot make {count} cgroups: {why}");
            return ExitCode::SUCCESS;
        }
    };
    let keys = if forest.layout.controller("cpuacct").is_some() { V1 } else { V2 };
    let keys: Vec<&str> = keys.into_iter().filter(|k| forest.file(&forest.cgroups[0], k).is_some()).collect();
    if keys.len() < 6 {
        eprintln!("note: only {} of the six files exist here: {}", keys.len(), keys.join(" "));
    }
    six_files(&forest, &keys);
    whole_tasks(&forest);
    by_kernel_pass(&forest);
    ExitCode::SUCCESS
}

/// Our reader and the bare loop over the same files, by turns: of 1,000 cgroups at most, because both keep every file
/// open.
fn six_files(forest: &Forest, keys: &[&str]) {
    let sampling = sampling();
    let cgroups = forest.cgroups.get(..1000).unwrap_or(&forest.cgroups);
    let readers: Vec<_> = cgroups.iter().map(|c| TaskReader::for_files(&sampling, c.clone(), keys)).collect();
    let bare: Vec<OwnedFd> = cgroups
        .iter()
        .flat_map(|c| keys.iter().filter_map(|k| forest.file(c, k)))
        .map(|p| fs::File::open(p).expect("a file of a cgroup just made must open").into())
        .collect();
    let mut buffer = vec![0; 16 << 10];
    let (mut floor, mut own) = (Vec::new(), Vec::new());
    for _ in 0..=ROUNDS {
        floor.push(time(|| {
            for fd in &bare {
                black_box(rustix::io::pread(fd, &mut buffer[..], 0).expect("a cgroup that exists must be readable"));
            }
        }));
        own.push(time(|| read_all(&readers, Instant::now(), true)));
    }
    let (floor, own) = (per_task(&mut floor, cgroups.len()), per_task(&mut own, cgroups.len()));
    print("sampling/six-files/floor", floor, "us/cgroup", None);
    print("sampling/six-files", own, "us/cgroup", Some((own / floor, "sampling/six-files/floor")));
    if sampling.budget.reopened() > 0 {
        eprintln!("note: {} reads had to open their file: too few descriptors", sampling.budget.reopened());
    }
}

/// Everything that is measured of a task: at once, and as the ticks of a minute in which nothing moves.
fn whole_tasks(forest: &Forest) {
    let sampling = sampling();
    let readers: Vec<_> = forest.cgroups.iter().map(|c| TaskReader::for_cgroup(&sampling, c.clone())).collect();
    let mut full: Vec<_> = (0..=ROUNDS).map(|_| time(|| read_all(&readers, Instant::now(), true))).collect();
    print("sampling/full-read", per_task(&mut full, forest.cgroups.len()), "us/cgroup", None);

    // Time is a parameter: a minute of ticks is read in one go. The first tick settles what moved before.
    let start = Instant::now() + Duration::from_secs(100);
    read_all(&readers, start, false);
    let mut ticks: Vec<_> = (1..=60u64)
        .map(|second| {
            let now = start + Duration::from_secs(second);
            let due = readers.iter().filter(|r| r.is_due(now)).count();
            (due, time(|| read_all(&readers, now, false)))
        })
        .collect();
    let minute: Duration = ticks.iter().map(|(_, t)| *t).sum();
    ticks.sort();
    let quiet = ticks.first().map_or(f64::NAN, |(_, t)| micros(*t) / forest.cgroups.len() as f64);
    print("sampling/idle-quietest-tick", quiet, "us/cgroup", None);
    print(
        "sampling/idle-minute",
        minute.as_secs_f64() / forest.cgroups.len() as f64 * 1000.0,
        "CPU-s/min per 1000",
        None,
    );
    print("sampling/descriptors", sampling.budget.used() as f64 / forest.cgroups.len() as f64, "kept/cgroup", None);
    print("sampling/opened", sampling.budget.reopened() as f64, "reads without a kept descriptor", None);
}

/// The same where a kernel pass reads most of it: the pass itself, everything of a task beside it, and a minute in
/// which nothing moves. Beside the floor of files: two `pread` on kept descriptors.
fn by_kernel_pass(forest: &Forest) {
    let sampling = sampling();
    match KernelPass::open(&sampling.roots, &sampling.layout, &forest.parent) {
        Ok(pass) => sampling.set_kernel_pass(pass),
        Err(why) => return eprintln!("note: no kernel pass here: {}", why.reason()),
    }
    let readers: Vec<_> = forest.cgroups.iter().map(|c| TaskReader::for_cgroup(&sampling, c.clone())).collect();
    let start = Instant::now();
    read_all(&readers, start, true);
    let (mut walks, mut rest) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS as u64 + 1 {
        let now = start + Duration::from_millis(round);
        walks.push(time(|| sampling.take_pass(now)));
        rest.push(time(|| read_all(&readers, now, true)));
    }
    print("sampling/kernel-pass", per_task(&mut walks, readers.len()), "us/cgroup: all of its hierarchies", None);
    print("sampling/full-read-by-pass", per_task(&mut rest, readers.len()), "us/cgroup beside the pass", None);
    let start = start + Duration::from_secs(200);
    let minute: Duration = (1..=60u64)
        .map(|second| {
            let now = start + Duration::from_secs(second);
            time(|| {
                sampling.take_pass(now);
                read_all(&readers, now, false);
            })
        })
        .sum();
    let minute = minute.as_secs_f64() / readers.len() as f64 * 1000.0;
    print("sampling/idle-minute-by-pass", minute, "CPU-s/min per 1000", None);
}

fn sampling() -> Arc<SamplingContext> {
    let layout = Layout::detect(&Roots::default()).expect("mountinfo was readable before");
    SamplingContext::new(Roots::default(), layout, FdBudget::from_limit())
}

fn read_all(readers: &[TaskReader], now: Instant, everything: bool) {
    for reader in readers {
        black_box(reader.read(now, Timestamp(0), everything).expect("a cgroup with a process must be there"));
    }
}

/// CPU time of this thread: a budget is in CPU time, and neighbours on the machine do not change it as they change a
/// clock on the wall.
fn time(work: impl FnOnce()) -> Duration {
    let start = cpu_time();
    work();
    cpu_time().saturating_sub(start)
}

fn cpu_time() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec.unsigned_abs(), u32::try_from(t.tv_nsec).unwrap_or_default())
}

/// The median of the rounds but the first, which opens files.
fn per_task(rounds: &mut Vec<Duration>, cgroups: usize) -> f64 {
    rounds.remove(0);
    rounds.sort();
    micros(rounds[rounds.len() / 2]) / cgroups as f64
}

fn micros(t: Duration) -> f64 {
    t.as_secs_f64() * 1e6
}

fn print(name: &str, value: f64, unit: &str, ratio: Option<(f64, &str)>) {
    let ratio = ratio.map_or("-".to_owned(), |(ratio, to)| format!("{ratio:.2}\t{to}"));
    println!("bench\t{name}\t{value:.2}\t{unit}\t{ratio}");
}
