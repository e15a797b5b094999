//! What the agent says of the host itself is what the kernel and other programs say of it.
//!
//! Promise (Measured values): Disk activity, free space, load, memory and swap of the host equal the kernel's files and
//! `df`

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags};

use crate::common::{Agent, AgentOptions, Exposition, Sample, allostat, is_root, patience, test_dir, wait_for};
use crate::live::work::fresh_metrics;

/// Everything that is known.
fn agent() -> Agent {
    Agent::with(AgentOptions { env: vec![("ALLOSTAT_PROFILE".into(), "full".into())], ..AgentOptions::default() })
}

/// The whole disks that were ever used, with their numbers.
fn disks() -> Vec<(String, Vec<u64>)> {
    let text = std::fs::read_to_string("/proc/diskstats").expect("this kernel counts what disks do");
    let of = |line: &str| {
        let mut words = line.split_whitespace().skip(2);
        let name = words.next().expect("a name").to_owned();
        (name, words.map(|word| word.parse().expect("a number")).collect::<Vec<u64>>())
    };
    let is_memory_or_file = |name: &str| ["loop", "ram", "zram"].iter().any(|kind| name.starts_with(kind));
    let all = text.lines().map(of).filter(|(name, _)| !is_memory_or_file(name));
    let whole = all.filter(|(name, _)| std::path::Path::new("/sys/block").join(name.replace('/', "!")).exists());
    whole.filter(|(_, numbers)| numbers.iter().any(|n| *n > 0)).collect()
}

/// What stands between two looks at the kernel's own file is right.
#[track_caller]
fn between(what: &str, found: f64, before: u64, after: u64, per: f64) {
    let range = before as f64 / per..=after as f64 / per;
    assert!(range.contains(&found), "{what}: {found} is not in {range:?}");
}

#[test]
fn disk_counters_equal_those_of_the_kernel_for_each_whole_disk() {
    let agent = agent();
    let before = disks();
    let metrics = fresh_metrics(&agent);
    let after = disks();
    let shown = metrics.all("allostat_host_disk_read_bytes_total", &[]).len();
    assert_eq!(shown, before.len(), "{before:?}");
    for ((disk, before), (_, after)) in before.iter().zip(&after) {
        let families = [
            ("reads_total", 0, 1.0),
            ("read_bytes_total", 2, 1.0 / 512.0),
            ("read_seconds_total", 3, 1e3),
            ("writes_total", 4, 1.0),
            ("written_bytes_total", 6, 1.0 / 512.0),
            ("write_seconds_total", 7, 1e3),
            ("busy_seconds_total", 9, 1e3),
            ("queue_seconds_total", 10, 1e3),
            ("discarded_bytes_total", 13, 1.0 / 512.0),
            ("flushes_total", 15, 1.0),
        ];
        for (family, at, per) in families.into_iter().filter(|(_, at, _)| *at < before.len()) {
            let name = format!("allostat_host_disk_{family}");
            between(&format!("{name} of {disk}"), metrics.f64(&name, &[("disk", disk)]), before[at], after[at], per);
        }
    }
    agent.stop();
}

/// `df`: type, size, available and mount point, in bytes. Nothing where that of a guest's shell has no such columns.
fn df() -> Vec<(String, u64, u64, String)> {
    let df = Command::new("df").args(["--local", "--block-size=1", "--output=fstype,size,avail,target"]).output();
    let text = df.ok().and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    let of = |line: &str| {
        let mut words = line.split_whitespace();
        let kind = words.next()?.to_owned();
        let (size, available) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some((kind, size, available, words.collect::<Vec<_>>().join(" ")))
    };
    text.lines().skip(1).filter_map(of).collect()
}

fn mounts(metrics: &Exposition, state: &str) -> u64 {
    metrics.u64("allostat_host_mounts", &[("state", state)])
}

/// How many mounts the first process sees.
fn mounted() -> u64 {
    let of = |owner: &str| std::fs::read_to_string(format!("/proc/{owner}/mountinfo"));
    of("1").or_else(|_| of("self")).expect("a table of mounts").lines().count() as u64
}

#[test]
fn free_space_of_file_systems_equals_that_of_df() {
    let agent = agent();
    // Others mount things at the same time, which is seen within 10 s.
    let all = "every file system to answer, and each mount to be counted once";
    let metrics = wait_for(all, Duration::from_secs(60) * patience(), || {
        let metrics = agent.metrics();
        let states = metrics.all("allostat_host_mounts", &[]).iter().map(|sample| sample.u64()).sum::<u64>();
        (mounts(&metrics, "unanswered") == 0 && states == mounted()).then_some(metrics)
    });
    let retained = ["ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs"];
    let rest = df();
    let mut compared = 0;
    for sample in metrics.all("allostat_host_mount_size_bytes", &[]) {
        let (mount_point, kind) = (sample.labels["mountpoint"].as_str(), sample.labels["fstype"].as_str());
        let Some((_, size, available, _)) = rest.iter().find(|(.., target)| target == mount_point) else { continue };
        assert_eq!(sample.u64(), *size, "{mount_point}");
        let own = metrics.u64("allostat_host_mount_avail_bytes", &[("mountpoint", mount_point)]);
        // Others write meanwhile.
        assert!(own.abs_diff(*available) < size / 50, "{mount_point}: {own} and {available}");
        assert!(metrics.u64("allostat_host_mount_free_bytes", &[("mountpoint", mount_point)]) >= own || own == 0);
        compared += usize::from(retained.contains(&kind));
    }
    let expected = rest.iter().filter(|(kind, .., target)| retained.contains(&kind.as_str()) && target == "/").count();
    assert!(compared >= expected, "{rest:?}");
    agent.stop();
}

/// File systems in memory below a directory, unmounted with the value.
struct Mounted(tempfile::TempDir);

impl Mounted {
    /// `None`: without the right to mount.
    fn new(count: u64) -> Option<Mounted> {
        let mounted = Mounted(tempfile::tempdir().expect("a directory"));
        for number in 0..count {
            let at = mounted.0.path().join(number.to_string());
            std::fs::create_dir(&at).expect("our own directory");
            rustix::mount::mount("tmpfs", &at, "tmpfs", MountFlags::empty(), c"size=4k").ok()?;
        }
        Some(mounted)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        for entry in std::fs::read_dir(self.0.path()).into_iter().flatten().flatten() {
            let _ = rustix::mount::unmount(entry.path(), UnmountFlags::DETACH);
        }
    }
}

/// Tasks of other tests mount their secrets meanwhile: so many as these they are not.
#[test]
fn mounted_and_removed_file_systems_are_counted_as_the_kernel_reports_them() {
    const MANY: u64 = 300;
    let agent = agent();
    let before = mounts(&agent.metrics(), "no_storage");
    let Some(mounted) = Mounted::new(MANY) else { skip_test!("cannot-mount") };
    // The table is read again at most each 10 s.
    let wait = Duration::from_secs(60) * patience();
    let now = || mounts(&agent.metrics(), "no_storage");
    let with = wait_for("the mounts to be counted", wait, || Some(now()).filter(|now| *now > before + MANY / 2));
    drop(mounted);
    wait_for("them to be gone", wait, || (now() + MANY / 2 < with).then_some(()));
    agent.stop();
}

#[test]
fn load_memory_and_swap_equal_those_of_the_kernel() {
    let agent = agent();
    let metrics = agent.metrics();
    let of = |file: &str, key: &str| -> Option<u64> {
        let text = std::fs::read_to_string(file).expect("a kernel file");
        text.lines().find_map(|line| line.strip_prefix(key)?.split_whitespace().next()?.parse().ok())
    };
    let kib = |key: &str| of("/proc/meminfo", key).map(|n| n * 1024);
    let swap = metrics.all("allostat_host_swap_total_bytes", &[]).first().map(|sample| sample.u64());
    assert_eq!(swap, kib("SwapTotal:"));
    let total = kib("MemTotal:").expect("every kernel says it");
    for (family, key) in [("cached", "Cached:"), ("free", "MemFree:"), ("buffers", "Buffers:"), ("shared", "Shmem:")] {
        let own = metrics.u64(&format!("allostat_host_memory_{family}_bytes"), &[]);
        assert!(own.abs_diff(kib(key).expect("every kernel says it")) < total / 4, "{family}: {own}");
    }
    let load = std::fs::read_to_string("/proc/loadavg").expect("a kernel file");
    let slowest: f64 = load.split(' ').nth(2).and_then(|word| word.parse().ok()).expect("a number");
    assert!((metrics.f64("allostat_host_load_average", &[("window", "15m")]) - slowest).abs() < 0.5);
    let forks = of("/proc/stat", "processes ").expect("every kernel says it");
    let own = metrics.u64("allostat_host_forks_total", &[]);
    assert!(own <= forks && own > forks / 2, "{own} of {forks}");
    agent.stop();
}

/// In place of the binary: an agent with another `/proc/loadavg`, in a mount namespace of its own. `None`: it cannot
/// be made.
fn with_loadavg(directory: &Path, text: &str) -> Option<PathBuf> {
    let (file, wrapped) = (directory.join("loadavg"), directory.join("wrapped"));
    std::fs::write(&file, text).expect("our own file");
    let mount = format!("mount --make-rprivate / && mount --bind {} /proc/loadavg", file.display());
    let probe = Command::new("unshare").args(["-m", "sh", "-c", &mount]).output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        return None;
    }
    let program = allostat();
    let script = format!("#!/bin/sh\nexec unshare -m sh -c '{mount} && exec {} \"$@\"' sh \"$@\"\n", program.display());
    std::fs::write(&wrapped, script).expect("our own file");
    std::fs::set_permissions(&wrapped, std::fs::Permissions::from_mode(0o755)).expect("our own file");
    Some(wrapped)
}

/// Regression: a warning each second, without end.
///
/// Promise (Measured values): A host collector that fails at each tick is logged once; its other lines are counted
#[test]
fn host_collector_that_fails_at_each_tick_is_logged_once_and_counted() {
    const FAILURES: u64 = 12;
    if !is_root() {
        skip_test!("not-root");
    }
    let directory = test_dir();
    let Some(binary) = with_loadavg(directory.path(), "0.5 none none\n") else { skip_test!("cannot-unshare") };
    let env = vec![("ALLOSTAT_TICK".into(), "200ms".into())];
    let agent = Agent::with(AgentOptions { binary: Some(binary), env, ..AgentOptions::default() });
    let of_load = [("collector", "load"), ("reason", "parse")];
    let failures = || agent.metrics().one("allostat_collector_errors_total", &of_load).map_or(0, Sample::u64);
    wait_for("failures", Duration::from_secs(30) * patience(), || (failures() >= FAILURES).then_some(()));
    let suppressed = || agent.metrics().u64("allostat_log_lines_suppressed_total", &[]);
    wait_for("their count", Duration::from_secs(30) * patience(), || (suppressed() >= FAILURES - 1).then_some(()));
    let log = agent.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("collector failed")).collect();
    let of_load: Vec<&&str> = lines.iter().filter(|line| line.contains("loadavg, line 1: expected")).collect();
    assert_eq!(of_load.len(), 1, "{lines:#?}");
    assert!(agent.metrics().all("allostat_host_load_average", &[]).is_empty(), "no value is known");
    agent.stop();
}
