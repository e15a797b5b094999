//! "Absent, not 0": what each fixture machine lets us read, field by field, and that no file costs another its values.

// Every fixture is known to be there.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use allostat::collectors::{
    ErrorReason, FdBudget, ReadingError, SamplingContext, TaskReader, fields_of, final_files, host, parse_final,
};
use allostat::host::hierarchy::{CgroupMode, Layout};
use allostat::host::roots::Roots;
use allostat::model::id::CgroupPath;
use allostat::model::metric::Samples;
use allostat::model::units::Timestamp;
use allostat::model::usage::{Field, Usage};

const ALLOC: &str = "/allostat/6f1c2f3e-5b0a-4c1d-9a57-2d0c3b4a5e61";
const MACHINES: [&str; 6] = ["v1", "hybrid", "v2-old", "v2-new", "no-psi", "garbage"];

type Fields = BTreeMap<&'static str, u64>;

fn fixture(machine: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(machine)
}

fn sampling(root: &Path) -> Arc<SamplingContext> {
    let roots = Roots::below(root);
    let layout = Layout::detect(&roots).expect("a fixture has a mountinfo");
    SamplingContext::new(roots, layout, FdBudget::of(1000))
}

fn errors(sampling: &SamplingContext) -> BTreeMap<&'static str, u64> {
    sampling.errors.iter().filter(|(_, n)| *n > 0).map(|(reason, n)| (reason.as_str(), n)).collect()
}

fn read(sampling: &Arc<SamplingContext>, path: &str) -> Usage {
    let reader = TaskReader::for_cgroup(sampling, CgroupPath::from(path));
    let reading = reader.read(Instant::now(), Timestamp(1), true).expect("a fixture's cgroup is there");
    reading.usage.as_ref().clone()
}

fn fields(usage: &Usage) -> Fields {
    usage.iter().collect()
}

fn task(name: &str) -> String {
    format!("{ALLOC}/{name}")
}

/// Everything that is the same of `web` on each machine that is not broken.
const WEB: &[(&str, u64)] = &[
    ("memory_usage_bytes", 44_900_000),
    ("memory_working_set_bytes", 36_708_000),
    ("memory_rss_bytes", 31_457_280),
    ("memory_cache_bytes", 12_288_000),
    ("memory_shmem_bytes", 4_096),
    ("memory_mapped_bytes", 2_048_000),
    ("memory_dirty_bytes", 8_192),
    ("memory_limit_hits", 17),
    ("oom_kills", 1),
    ("page_faults_minor", 9_100),
    ("page_faults_major", 23),
    ("cpu_cfs_periods", 600),
    ("cpu_cfs_throttled_periods", 40),
    ("cpu_throttled_ns", 1_500_000_000),
    ("cpu_quota_us", 50_000),
    ("cpu_period_us", 100_000),
    ("io_written_bytes", 8_192_000),
    ("io_writes", 2_000),
    ("pids_current", 3),
    ("pids_limit", 64),
    ("pids_limit_hits", 2),
    ("processes", 2),
    ("open_fds", 8),
];

/// The same of `sidecar`: no limit, no quota, and 0 where it has done nothing.
const SIDECAR: &[(&str, u64)] = &[
    ("memory_usage_bytes", 1_100_000),
    ("memory_working_set_bytes", 1_100_000),
    ("memory_rss_bytes", 1_048_576),
    ("memory_cache_bytes", 0),
    ("memory_shmem_bytes", 0),
    ("memory_mapped_bytes", 0),
    ("memory_dirty_bytes", 0),
    ("memory_limit_hits", 0),
    ("oom_kills", 0),
    ("page_faults_minor", 310),
    ("page_faults_major", 0),
    ("cpu_usage_ns", 10_000_000),
    ("io_read_bytes", 0),
    ("io_written_bytes", 0),
    ("io_discarded_bytes", 0),
    ("io_reads", 0),
    ("io_writes", 0),
    ("pids_current", 1),
    ("pids_limit_hits", 0),
    ("processes", 1),
    ("open_fds", 4),
];

const V1_WEB: &[(&str, u64)] = &[
    ("memory_peak_bytes", 60_000_000),
    ("memory_kernel_bytes", 2_097_152),
    ("memory_limit_bytes", 67_108_864),
    ("memory_reservation_bytes", 33_554_432),
    ("cpu_usage_ns", 11_990_000_000),
    ("cpu_shares", 512),
    ("io_read_bytes", 4_096_000),
    ("io_discarded_bytes", 0),
    ("io_reads", 1_000),
];

const V1_SIDECAR: &[(&str, u64)] = &[
    ("memory_peak_bytes", 1_200_000),
    ("memory_kernel_bytes", 65_536),
    ("cpu_shares", 1_024),
    ("cpu_user_ns", 5_000_000),
    ("cpu_system_ns", 5_000_000),
];

const V2_WEB: &[(&str, u64)] = &[
    ("memory_swap_bytes", 1_048_576),
    // The alloc's, which is lower than its own.
    ("memory_limit_bytes", 50_331_648),
    ("memory_high_bytes", 60_000_000),
    ("memory_reservation_bytes", 16_777_216),
    ("memory_high_events", 3),
    ("workingset_refaults_anon", 2),
    ("workingset_refaults_file", 77),
    ("cpu_usage_ns", 11_990_001_000),
    ("cpu_user_ns", 7_995_000_000),
    ("cpu_system_ns", 3_995_001_000),
    ("cpu_weight", 50),
    ("cpuset_cpus", 2),
    ("io_read_bytes", 4_100_096),
    ("io_discarded_bytes", 512),
    ("io_reads", 1_001),
];

const V2_SIDECAR: &[(&str, u64)] = &[
    ("memory_swap_bytes", 0),
    ("memory_limit_bytes", 50_331_648),
    ("memory_high_events", 0),
    ("workingset_refaults_anon", 0),
    ("workingset_refaults_file", 0),
    ("cpu_user_ns", 5_000_000),
    ("cpu_system_ns", 5_000_000),
    ("cpu_weight", 100),
    ("cpuset_cpus", 2),
];

/// What kernels from 5.18 on have more.
const NEW_WEB: &[(&str, u64)] = &[
    ("memory_peak_bytes", 60_000_000),
    ("memory_zswap_bytes", 262_144),
    ("memory_kernel_bytes", 2_097_152),
    ("oom_group_kills", 0),
    ("cpu_burst_periods", 1),
    ("cpu_burst_ns", 250_000),
    ("pids_peak", 6),
];

const NEW_SIDECAR: &[(&str, u64)] = &[
    ("memory_peak_bytes", 1_200_000),
    ("memory_zswap_bytes", 0),
    ("memory_kernel_bytes", 65_536),
    ("oom_group_kills", 0),
    ("pids_peak", 1),
];

/// PSI counts of a fixture: it numbers its cgroups.
fn psi(n: u64, irq: bool) -> Vec<(&'static str, u64)> {
    let mut all = vec![
        ("pressure_cpu_some_ns", (1000 + n) * 1000),
        ("pressure_cpu_full_ns", (500 + n) * 1000),
        ("pressure_memory_some_ns", n * 1000),
        ("pressure_memory_full_ns", 0),
        ("pressure_io_some_ns", (30 + n) * 1000),
        ("pressure_io_full_ns", (20 + n) * 1000),
    ];
    all.extend(irq.then_some(("pressure_irq_full_ns", n * 1000)));
    all
}

/// The exact reading of each task: what is not listed must be absent.
fn expected(machine: &str) -> [(&'static str, Vec<(&'static str, u64)>); 2] {
    let (web, sidecar) = match machine {
        // Ticks of 10 ms: this kernel has nothing finer. No swap accounting, no peak of pids, no PSI, no bursts.
        "v1" => (
            [WEB, V1_WEB, &[("cpu_user_ns", 7_990_000_000), ("cpu_system_ns", 3_990_000_000)]].concat(),
            [SIDECAR, V1_SIDECAR, &[("cpu_user_ns", 0), ("cpu_system_ns", 0)]].concat(),
        ),
        "hybrid" => (
            [
                WEB,
                V1_WEB,
                &[("cpu_user_ns", 7_995_000_000), ("cpu_system_ns", 3_995_000_000), ("memory_swap_bytes", 1_048_576)],
                &[("cpu_burst_periods", 0), ("cpu_burst_ns", 0), ("pids_peak", 6)],
                &psi(11, true),
            ]
            .concat(),
            [SIDECAR, V1_SIDECAR, &[("memory_swap_bytes", 0), ("pids_peak", 6)], &psi(22, true)].concat(),
        ),
        // No peak in the kernel: what we saw.
        "v2-old" => (
            [WEB, V2_WEB, &[("memory_sampled_peak_bytes", 44_900_000)], &psi(7, false)].concat(),
            [SIDECAR, V2_SIDECAR, &[("memory_sampled_peak_bytes", 1_100_000)], &psi(0, false)].concat(),
        ),
        "v2-new" => {
            ([WEB, V2_WEB, NEW_WEB, &psi(7, true)].concat(), [SIDECAR, V2_SIDECAR, NEW_SIDECAR, &psi(0, true)].concat())
        }
        "no-psi" => ([WEB, V2_WEB, NEW_WEB].concat(), [SIDECAR, V2_SIDECAR, NEW_SIDECAR].concat()),
        other => panic!("no expectation for {other}"),
    };
    [("web", web), ("sidecar", sidecar)]
}

/// Promise (Absent values and sums): Each fixture machine gives exactly its kernel's values (v1, v2 old and new,
/// hybrid, no PSI, garbage)
#[test]
fn each_machine_gives_exactly_its_kernels_values_and_no_zero_for_the_rest() {
    for machine in ["v1", "hybrid", "v2-old", "v2-new", "no-psi"] {
        let sampling = sampling(&fixture(machine));
        for (name, expected) in expected(machine) {
            // Later entries win: a machine may correct what most have.
            let expected: Fields = expected.into_iter().collect();
            assert_eq!(fields(&read(&sampling, &task(name))), expected, "{name} on {machine}");
        }
        assert_eq!(errors(&sampling), BTreeMap::new(), "{machine}: what a kernel lacks is no error");
    }
}

#[test]
fn broken_files_cost_their_own_fields_and_are_counted() {
    let sampling = sampling(&fixture("garbage"));
    let web = fields(&read(&sampling, &task("web")));
    let [(_, whole), _] = expected("v2-new");
    let whole: Fields = whole.into_iter().collect();
    let lost: BTreeSet<_> = whole.keys().filter(|name| !web.contains_key(*name)).copied().collect();
    let expected_losses = BTreeSet::from([
        // Each from a number that is none.
        "memory_peak_bytes",
        "memory_cache_bytes",
        "memory_shmem_bytes",
        "memory_mapped_bytes",
        "memory_limit_hits",
        "cpu_system_ns",
        "cpu_cfs_throttled_periods",
        "io_written_bytes",
        "pids_current",
        "pids_limit",
        "pressure_memory_some_ns",
        "pressure_memory_full_ns",
        "cpuset_cpus",
        "processes",
        "open_fds",
        // From lines that are cut off or missing.
        "memory_dirty_bytes",
        "workingset_refaults_anon",
        "workingset_refaults_file",
        "oom_group_kills",
        "cpu_throttled_ns",
        "cpu_burst_periods",
        "cpu_burst_ns",
        // No limit is known, so neither is throttling by one.
        "memory_limit_bytes",
        "cpu_quota_us",
        "cpu_period_us",
        "cpu_cfs_periods",
    ]);
    assert_eq!(lost, expected_losses);
    for (name, value) in &web {
        // The broken io.stat lists fewer numbers.
        if !matches!(*name, "io_discarded_bytes" | "io_reads") {
            assert_eq!(whole.get(name), Some(value), "{name} has a value that was never written");
        }
    }
    assert!(!web.contains_key("memory_sampled_peak_bytes"), "the kernel has a peak, even if it cannot be read now");
    // One for each broken file: peak, stat, events, max, cpu.stat, cpu.max, cpuset, io.stat, two of pids, PSI, procs.
    assert_eq!(errors(&sampling), BTreeMap::from([("parse", 12)]));

    let sidecar = fields(&read(&sampling, &task("sidecar")));
    let [_, (_, whole)] = expected("v2-new");
    assert_eq!(sidecar, whole.into_iter().collect::<Fields>(), "a broken neighbour costs nothing");
}

/// The fields that a file has, alone or together with others.
fn own_fields(file: &str) -> BTreeSet<&'static str> {
    let processes = [Field::processes, Field::open_fds].into_iter().filter(|_| file == "cgroup.procs");
    fields_of(file).chain(processes).map(Field::name).collect()
}

/// Each file of the task's cgroup, in all hierarchies, relative to the machine.
fn task_files(root: &Path, name: &str) -> Vec<PathBuf> {
    let cgroups = root.join("sys/fs/cgroup");
    let mut directories = vec![cgroups.join(&task(name)[1..])];
    directories.extend(fs::read_dir(&cgroups).unwrap().map(|e| e.unwrap().path().join(&task(name)[1..])));
    let files = directories.into_iter().filter_map(|d| fs::read_dir(d).ok()).flatten();
    let files = files.map(|e| e.unwrap().path()).filter(|p| p.is_file());
    files.map(|p| p.strip_prefix(root).unwrap().to_owned()).collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Reads `web` of each whole machine with one file changed, for each file.
fn with_each_file_changed(change: impl Fn(&Path), check: impl Fn(&str, &str, &Fields, &Fields, &SamplingContext)) {
    for machine in ["v1", "hybrid", "v2-old", "v2-new", "no-psi"] {
        let dir = tempfile::tempdir().unwrap();
        copy(&fixture(machine), dir.path());
        let whole = fields(&read(&sampling(dir.path()), &task("web")));
        let files = task_files(dir.path(), "web");
        assert!(files.len() >= 20, "{machine} has {} files", files.len());
        for file in files {
            let path = dir.path().join(&file);
            let before = fs::read(&path).unwrap();
            change(&path);
            let sampling = sampling(dir.path());
            let changed = fields(&read(&sampling, &task("web")));
            fs::write(&path, before).unwrap();
            check(machine, file.file_name().unwrap().to_str().unwrap(), &whole, &changed, &sampling);
        }
    }
}

/// Only the file's own fields may differ: gone, or from another file instead.
fn only_own_fields_differ(machine: &str, file: &str, whole: &Fields, changed: &Fields) {
    let own = own_fields(file);
    let names: BTreeSet<_> = whole.keys().chain(changed.keys()).collect();
    for name in names {
        if !own.contains(name) {
            assert_eq!(changed.get(name), whole.get(name), "{name} without {file} on {machine}");
        }
    }
}

/// Promise (Absent values and sums): Removing a file removes only its own fields; a broken one loses its own fields and
/// is one counted error
#[test]
fn removing_any_file_removes_only_its_own_fields_and_is_no_error() {
    with_each_file_changed(
        |path| fs::remove_file(path).unwrap(),
        |machine, file, whole, changed, sampling| {
            only_own_fields_differ(machine, file, whole, changed);
            assert_eq!(errors(sampling), BTreeMap::new(), "without {file} on {machine}");
            assert!(changed.values().count() > 10, "without {file} on {machine}: {changed:?}");
        },
    );
}

#[test]
fn a_file_of_binary_costs_only_its_own_fields_and_is_one_error() {
    with_each_file_changed(
        |path| fs::write(path, b"\xff\x00 \x80\xfe\n").unwrap(),
        |machine, file, whole, changed, sampling| {
            only_own_fields_differ(machine, file, whole, changed);
            let lost = own_fields(file).iter().filter(|f| whole.contains_key(*f) && !changed.contains_key(*f)).count();
            // On v1 each hierarchy lists the processes, and one of them is asked; cpu.stat of a unified tree beside
            // cpuacct is not.
            if lost > 0 {
                assert_eq!(errors(sampling), BTreeMap::from([("parse", 1)]), "{file} on {machine}");
            }
            for field in own_fields(file) {
                assert!(
                    changed.get(field).is_none_or(|v| whole.get(field) == Some(v) || field.starts_with("cpu_")),
                    "{field} of a broken {file} on {machine} has a value that was never written"
                );
            }
        },
    );
}

#[test]
fn the_last_reading_agrees_with_a_live_one() {
    for machine in MACHINES {
        let sampling = sampling(&fixture(machine));
        for name in ["web", "sidecar"] {
            let path = CgroupPath::new(task(name));
            let read_by_supervisor: Vec<_> = final_files(&sampling.layout, &path)
                .into_iter()
                .map(|f| (f.key, fs::read(f.path).map_err(|e| e.raw_os_error().unwrap())))
                .collect();
            let (last, problems) = parse_final(&read_by_supervisor);
            let live = read(&sampling, &task(name)).without_live();
            assert_eq!(fields(&last), fields(&live), "{name} on {machine}");
            assert_eq!(problems.is_empty(), machine != "garbage" || name != "web", "{machine}: {problems:?}");
            let mut live_fields = Field::ALL.into_iter().filter(|field| field.nature().goes_with_the_end());
            assert!(live_fields.all(|field| last.get(field).is_none()));
        }
    }
}

#[test]
fn the_alloc_is_read_from_its_own_cgroup() {
    for machine in MACHINES {
        let sampling = sampling(&fixture(machine));
        let reader = TaskReader::for_alloc_cgroup(&sampling, CgroupPath::from(ALLOC));
        let alloc = reader.read(Instant::now(), Timestamp(1), true).unwrap().usage;
        assert_eq!(alloc.memory_usage_bytes(), Some(46_000_000), "{machine}");
        assert_eq!(alloc.cpu_quota_us(), None, "{machine}");
        assert_eq!(alloc.cpu_cfs_periods(), None, "{machine}: no quota, no throttling");
        assert_eq!((alloc.processes(), alloc.open_fds()), (None, None), "{machine}: the sum of its tasks'");
        let peak = (machine != "v2-old").then_some(61_000_000);
        assert_eq!(alloc.memory_peak_bytes(), peak, "{machine}: not the sum of its tasks' peaks");
    }
}

#[test]
fn modes_are_distinguished() {
    let modes = MACHINES.map(|m| sampling(&fixture(m)).layout.mode());
    assert_eq!(
        modes,
        [CgroupMode::V1, CgroupMode::Hybrid, CgroupMode::V2, CgroupMode::V2, CgroupMode::V2, CgroupMode::V2]
    );
    assert_eq!(sampling(&fixture("garbage")).layout.problems().len(), 1, "the broken line of mountinfo is named");
}

#[test]
fn the_host_of_each_machine_gives_its_families_and_no_zero_for_the_rest() {
    for machine in MACHINES {
        let sampling = sampling(&fixture(machine));
        let (mut samples, mut failed) = (Samples::default(), Vec::new());
        for mut collector in host(vec![]) {
            if let Err(error) = collector.collect(&sampling.roots, &mut samples)
                && let Some(reason) = error.reason()
            {
                failed.push((collector.name(), reason));
            }
        }
        let count = |prefix: &str| samples.0.iter().filter(|s| s.desc.name.starts_with(prefix)).count();
        let subjects = ["cpu", "pressure", "network", "memory", "swap", "load", "disk_", "mounts"];
        let found = subjects.map(|subject| count(&format!("allostat_host_{subject}")));
        let expected = match machine {
            "v1" => [8, 0, 16, 8, 2, 3, 9, 7],
            "v2-old" => [8, 5, 0, 8, 2, 3, 12, 7],
            "no-psi" => [8, 0, 24, 12, 2, 3, 28, 7],
            "v2-new" => [8, 5, 24, 12, 4, 3, 28, 7],
            "garbage" => [3, 3, 16, 1, 0, 0, 9, 7],
            _ => [8, 5, 0, 8, 2, 0, 0, 7],
        };
        assert_eq!(found, expected, "{machine}");
        let all = ["cpu", "memory", "pressure", "network", "load", "disk", "mounts"];
        let broken: &[&str] = if machine == "garbage" { &all } else { &[] };
        let errors: Vec<_> = broken.iter().map(|name| (*name, ErrorReason::Parse)).collect();
        assert_eq!(failed, errors, "{machine}");
    }
}

#[test]
fn a_removed_cgroup_is_gone_for_ever_even_if_another_takes_its_path() {
    let dir = tempfile::tempdir().unwrap();
    copy(&fixture("v2-new"), dir.path());
    let sampling = sampling(dir.path());
    let reader = TaskReader::for_cgroup(&sampling, CgroupPath::new(task("web")));
    let now = Instant::now();
    let first = reader.read(now, Timestamp(1), false).unwrap();

    let cgroup = dir.path().join("sys/fs/cgroup").join(&task("web")[1..]);
    let aside = dir.path().join("aside");
    fs::rename(&cgroup, &aside).unwrap();
    let later = now + Duration::from_secs(100);
    // A file system keeps what is open; only a kernel's cgroup answers ENODEV. What is opened by its path is noticed.
    let without_descriptors =
        SamplingContext::new(sampling.roots.clone(), Layout::detect(&sampling.roots).unwrap(), FdBudget::of(0));
    let never_there = TaskReader::for_cgroup(&without_descriptors, CgroupPath::new(task("web")));
    assert!(matches!(never_there.read(later, Timestamp(2), false), Err(ReadingError::Removed)));

    fs::rename(&aside, &cgroup).unwrap();
    let reader = TaskReader::for_cgroup(&without_descriptors, CgroupPath::new(task("web")));
    reader.read(now, Timestamp(1), false).unwrap();
    fs::rename(&cgroup, &aside).unwrap();
    copy(&aside, &cgroup);
    for seconds in [1, 2, 100] {
        let result = reader.read(now + Duration::from_secs(seconds), Timestamp(2), false);
        assert!(matches!(result, Err(ReadingError::Removed)), "another cgroup's numbers are not ours");
    }
    assert_eq!(reader.latest().unwrap().usage, first.usage, "what was read last stays known");
    assert_eq!(errors(&without_descriptors), BTreeMap::new(), "an end is no error");
}

#[test]
fn counters_never_fall_within_an_attempt() {
    let dir = tempfile::tempdir().unwrap();
    copy(&fixture("v2-new"), dir.path());
    let sampling = sampling(dir.path());
    let cgroup = dir.path().join("sys/fs/cgroup").join(&task("web")[1..]);
    let reader = TaskReader::for_cgroup(&sampling, CgroupPath::new(task("web")));
    let before = reader.read(Instant::now(), Timestamp(1), true).unwrap().usage;
    fs::write(cgroup.join("cpu.stat"), "usage_usec 5\nuser_usec 3\nsystem_usec 2\n").unwrap();
    fs::write(cgroup.join("memory.current"), "7\n").unwrap();
    fs::write(cgroup.join("memory.events"), "oom_kill 0\n").unwrap();
    let after = reader.read(Instant::now(), Timestamp(2), true).unwrap().usage;
    assert_eq!((after.cpu_usage_ns(), after.oom_kills()), (before.cpu_usage_ns(), before.oom_kills()));
    assert_eq!(after.memory_usage_bytes(), Some(7), "a gauge may fall");
    assert_eq!(after.memory_high_events(), None, "and what is no longer reported is absent");
}

#[test]
fn idle_cgroup_has_only_its_probes_read_for_nine_seconds() {
    let dir = tempfile::tempdir().unwrap();
    copy(&fixture("v2-new"), dir.path());
    let sampling = sampling(dir.path());
    let cgroup = dir.path().join("sys/fs/cgroup").join(&task("web")[1..]);
    let reader = TaskReader::for_cgroup(&sampling, CgroupPath::new(task("web")));
    let start = Instant::now();
    let at = |seconds| reader.read(start + Duration::from_secs(seconds), Timestamp(seconds), false).unwrap();
    let (first, second) = (at(0), at(0));
    assert!(Arc::ptr_eq(&first.usage, &second.usage), "nothing changed: nothing is made again");
    // It settles, then looks once within the first nine seconds, at a time of its own.
    (1..=10).for_each(|s| drop(at(s)));
    assert!(!reader.is_due(start + Duration::from_secs(10)));
    let checked = at(10);

    fs::write(cgroup.join("pids.current"), "9\n").unwrap();
    let next = (11..=30).find(|s| reader.is_due(start + Duration::from_secs(*s))).unwrap();
    let before = at(next - 1);
    assert!(Arc::ptr_eq(&before.usage, &checked.usage));
    assert_eq!(before.at, checked.at, "an old sample says how old it is");
    let due = at(next);
    assert_eq!((due.usage.pids_current(), due.at), (Some(9), Timestamp(next)));
    assert!(next - checked.at.0 <= 9, "{next} - {}", checked.at.0);

    // A movement of memory brings memory.stat in the same tick: the working set is of one moment.
    let stat = fs::read_to_string(cgroup.join("memory.stat")).unwrap();
    fs::write(cgroup.join("memory.stat"), stat.replace("inactive_file 8192000", "inactive_file 1000")).unwrap();
    fs::write(cgroup.join("memory.current"), "50000\n").unwrap();
    let moved = at(next + 1);
    assert_eq!(moved.usage.memory_working_set_bytes(), Some(49_000));
}

#[test]
fn a_sampled_peak_remembers_the_highest_sample() {
    let dir = tempfile::tempdir().unwrap();
    copy(&fixture("v2-old"), dir.path());
    let sampling = sampling(dir.path());
    let current = dir.path().join("sys/fs/cgroup").join(&task("web")[1..]).join("memory.current");
    let reader = TaskReader::for_cgroup(&sampling, CgroupPath::new(task("web")));
    for (usage, peak) in [(10, 10), (30, 30), (20, 30)] {
        fs::write(&current, format!("{usage}\n")).unwrap();
        let usage = reader.read(Instant::now(), Timestamp(1), true).unwrap().usage;
        assert_eq!((usage.memory_sampled_peak_bytes(), usage.memory_peak_bytes()), (Some(peak), None));
    }
}

#[test]
fn without_descriptors_the_values_are_the_same() {
    for machine in MACHINES {
        let retained = read(&sampling(&fixture(machine)), &task("web"));
        let roots = Roots::below(&fixture(machine));
        let layout = Layout::detect(&roots).unwrap();
        let sampling = SamplingContext::new(roots, layout, FdBudget::of(0));
        assert_eq!(read(&sampling, &task("web")), retained, "{machine}");
        assert_eq!(sampling.budget.used(), 0);
        assert!(sampling.budget.reopened() > 0);
    }
}

#[test]
fn descriptors_are_given_back() {
    let sampling = sampling(&fixture("v2-new"));
    let reader = TaskReader::for_cgroup(&sampling, CgroupPath::new(task("web")));
    reader.read(Instant::now(), Timestamp(1), true).unwrap();
    assert!(sampling.budget.used() > 20);
    drop(reader);
    assert_eq!(sampling.budget.used(), 0);
}

#[test]
fn fixtures_name_no_machine_and_no_foreign_path() {
    fn walk(dir: &Path, seen: &mut usize) {
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                walk(&entry.path(), seen);
                continue;
            }
            *seen += 1;
            let text = fs::read(entry.path()).unwrap();
            let text = String::from_utf8_lossy(&text);
            for word in text.split(|c: char| c.is_whitespace() || c == ',') {
                let known = ["/sys", "/proc", "/dev/root"];
                // What is mounted on a machine that was made up.
                let mounted = [
                    "/dev/nvme0n1p1",
                    "/dev/mapper/data",
                    "/dev/loop0",
                    "/run",
                    "/srv/",
                    "/shop",
                    "/snap/",
                    "/var/lib/docker/",
                ];
                let path = word.starts_with('/') && word.len() > 1;
                assert!(
                    !path || known.iter().chain(&mounted).any(|k| word.starts_with(k)),
                    "{word} in {:?}",
                    entry.path()
                );
            }
        }
    }
    let mut seen = 0;
    MACHINES.iter().for_each(|m| walk(&fixture(m), &mut seen));
    assert!(seen > 400);
}
