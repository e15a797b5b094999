//! Which files rows replace, kernel by kernel: a field that falls back to its file is right, but costs a reading of it
//! at each tick, and no other test would see that.
//!
//! Promise (Measured values): The rows of a busy task are pinned for each kernel, and no other file is opened for it

use std::time::{Duration, Instant};

use allostat::collectors::TaskReader;
use allostat::host::hierarchy::CgroupVersion;
use allostat::model::units::Timestamp;
use allostat::model::usage::Field;

use crate::common::{description, is_root, must_have_pass, patience, wait_for};
use crate::kernel_pass::scene::{Scene, read, read_at};

/// Of a task that works, where each controller has a hierarchy of cgroup v1 and the unified tree stands beside them.
const V1: &[&str] = &[
    "memory/memory.usage_in_bytes",
    "memory/memory.max_usage_in_bytes",
    "memory/memory.failcnt",
    "memory/memory.memsw.failcnt",
    "memory/memory.kmem.usage_in_bytes",
    "memory/memory.oom_control",
    "memory/memory.limit_in_bytes",
    "memory/memory.soft_limit_in_bytes",
    "cpuacct/cpuacct.usage",
    "hybrid/cpu.stat",
    "cpu/cpu.stat",
    "cpu/cpu.cfs_quota_us",
    "cpu/cpu.cfs_period_us",
    "cpu/cpu.shares",
    "pids/pids.current",
    "pids/pids.max",
    "unified/cpu.pressure",
    "unified/memory.pressure",
    "unified/io.pressure",
];
const V2: &[&str] = &[
    "unified/memory.current",
    "unified/memory.peak",
    "unified/memory.swap.current",
    "unified/memory.events",
    "unified/memory.max",
    "unified/memory.high",
    "unified/memory.low",
    "unified/cpu.stat",
    "unified/cpu.max",
    "unified/cpu.weight",
    "unified/pids.current",
    "unified/pids.max",
    "unified/cpu.pressure",
    "unified/memory.pressure",
    "unified/io.pressure",
];
/// Kernels before 6.11 have no such file on v2, others none on v1.
const NEWER: &[&str] = &["pids/pids.peak", "unified/pids.peak"];

/// Of a task in a guest with cgroup v2 these are there, from wherever they come.
const THERE: &[Field] = &[
    Field::memory_usage_bytes,
    Field::memory_peak_bytes,
    Field::memory_swap_bytes,
    Field::cpu_usage_ns,
    Field::cpu_cfs_throttled_periods,
    Field::pids_current,
    Field::pressure_cpu_some_ns,
    Field::pressure_cpu_full_ns,
    Field::pressure_memory_some_ns,
    Field::pressure_memory_full_ns,
    Field::pressure_io_some_ns,
    Field::pressure_io_full_ns,
];

#[test]
fn rows_of_a_working_task_provide_their_fields_without_reading_other_files() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(bytes) = description() else { skip_test!("no-kernel-pass") };
    let mut scene = Scene::new();
    scene.suffer();
    scene.work(0, &["burn", "600000", "1"]);
    let sampling = scene.sampling_by_rows(&bytes);
    let path = &scene.tasks[0].0;
    let is_v1 = scene.layout.controller("memory").is_some_and(|home| home.version == CgroupVersion::V1);
    let keys = if is_v1 { V1 } else { V2 };
    let is_there = |key: &&&str| {
        let (home, name) = key.split_once('/').expect("a key has two parts");
        let home = match home {
            "unified" | "hybrid" => scene.layout.unified(),
            controller => scene.layout.controller(controller),
        };
        home.is_some_and(|home| home.mount.join(path.relative()).join(name).exists())
    };
    let newer = NEWER.iter().filter(is_there).copied();
    let all: Vec<&str> = keys.iter().copied().chain(newer).collect();
    let mut now = Instant::now();
    // One that asks for nothing else is asked for its path, so that it is compared.
    let whole = TaskReader::for_cgroup(&sampling, path.clone()).read_only();
    let plain = TaskReader::for_cgroup(&scene.sampling(), path.clone()).read_only();
    let readers: Vec<_> =
        all.iter().map(|key| (key, TaskReader::for_files(&sampling, path.clone(), &[key]).read_only())).collect();
    for (_, reader) in &readers {
        reader.read_change(now, Timestamp(1), false).expect("it is there");
    }
    whole.read_change(now, Timestamp(1), false).expect("it is there");
    let mut tick = || {
        std::thread::sleep(Duration::from_millis(30));
        now += Duration::from_secs(1);
        sampling.kernel_pass().expect("there is one").take_all(&scene.layout, now);
        let cost = |reader: &TaskReader| {
            let before = sampling.budget.reopened();
            reader.read_change(now, Timestamp(2), false).expect("it is there");
            sampling.budget.reopened() - before
        };
        let opened = cost(&whole);
        (now, opened, readers.iter().filter(|(_, reader)| cost(reader) > 0).map(|(key, _)| **key).collect::<Vec<_>>())
    };
    // What it reads and writes stands in no row once there is any, as where its program comes from the disk; on v2 that
    // is one file, there or not.
    let blkio = scene.layout.controller("blkio").filter(|_| is_v1).map(|home| home.mount.join(path.relative()));
    let of_blkio = ["blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_serviced_recursive"];
    let has_device = |name: &&str| {
        let text = blkio.as_ref().and_then(|at| std::fs::read_to_string(at.join(name)).ok());
        text.is_some_and(|text| text.contains(':'))
    };
    let few = || if is_v1 { of_blkio.iter().filter(|name| has_device(name)).count() as u64 } else { 1 };
    // Numbers without a previous reading are compared first, by each reader for itself, until a row and its file are of
    // one moment.
    wait_for("rows that have all of it", Duration::from_secs(30) * patience(), || {
        let (_, opened, read) = tick();
        if !read.is_empty() || opened > few() {
            eprintln!("not yet: {read:?}, {opened} in all");
        }
        (read.is_empty() && opened <= few()).then_some(())
    });
    // Once a minute what a user may have set above it, and numbers without a previous reading. A number that moves on
    // its own while other tests work here is compared again.
    let most = few();
    wait_for("ticks that read few files of a task that works", Duration::from_secs(30) * patience(), || {
        let opened: Vec<u64> = (0..20).map(|_| tick().1).collect();
        let quiet = opened.iter().filter(|files| **files <= most).count();
        if quiet < 17 {
            eprintln!("not yet: so many files were read, tick by tick: {opened:?}");
        }
        (quiet >= 17).then_some(())
    });
    let (now, ..) = tick();
    let [by_rows, by_files] = [read_at(&whole, now), read(&plain, Instant::now())];
    for field in Field::ALL {
        let there = [by_rows.get(field), by_files.get(field)].map(|value| value.is_some());
        assert_eq!(there[0], there[1], "{}", field.name());
        assert!(there[0] || !must_have_pass() || !THERE.contains(&field), "{} is not there", field.name());
    }
}
