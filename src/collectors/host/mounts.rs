//! Size and free space of every file system that stores data. Source: mountinfo; statvfs(3), which may hang.
//!
//! ```text
//! mountinfo ── poll(2): changed ──► one mount per superblock ──► its thread calls statvfs each 10 s ──► last result
//! ```
//! Shape: six values per file system, at most [`MOST`]. `allostat_host_mounts` counts every mount, shown or not, by
//! reason. A host with containers has thousands of mounts; nearly all are layers, memory, or the same file system
//! again.
//!
//! Mount namespace: that of PID 1 if the agent may read it, else the agent's own. An agent in a container, or with
//! `ProtectSystem=` of systemd, sees other mounts than the host.

use std::borrow::Cow;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;

use super::blocking_probe::BlockingProbe;
use crate::collectors::{CollectError, Collector};
use crate::host::roots::{ReadError, Roots};
use crate::host::untrusted;
use crate::kernel::ParseError;
use crate::kernel::proc::mountinfo::{self, Filesystem, Filesystems};
use crate::model::metric::{MetricDesc, Samples, Value};
use crate::model::profile::Profile;
use crate::model::text::label_path;
use crate::model::units::Unit;

/// Maximum of file systems and their threads, including threads that hang in the kernel for an unmounted file system.
const MOST: usize = 64;
/// Free space hardly changes faster, and for a network file system each call may be a request to its server.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
/// Re-read interval where the kernel does not signal mount changes (gVisor), or the file is not the kernel's.
const REREAD_INTERVAL: Duration = Duration::from_secs(60);

/// Larger tables are not read. 100,000 mounts, the kernel's own limit, take 20 MB.
const LARGEST_TABLE: usize = 32 << 20;

/// How to read a value. `None`: absent.
type ReadMountValue = fn(&MountSpace) -> Option<u64>;

static FAMILIES: [(MetricDesc, ReadMountValue); 6] = [
    (
        gauge("allostat_host_mount_size_bytes", Unit::Bytes, "Size of the mounted file system.")
            .from_source("statvfs f_blocks")
            .from_profile(Profile::Standard)
            .otlp("system.filesystem.limit", "By"),
        |space| Some(space.size),
    ),
    (
        gauge(
            "allostat_host_mount_avail_bytes",
            Unit::Bytes,
            "Space of the file system available to unprivileged users.",
        )
        .from_source("statvfs f_bavail")
        .from_profile(Profile::Standard)
        .otlp("system.filesystem.usage", "By"),
        |space| Some(space.available),
    ),
    (
        gauge(
            "allostat_host_mount_free_bytes",
            Unit::Bytes,
            "Unused space of the file system, including the part reserved for root.",
        )
        .from_source("statvfs f_bfree")
        .from_profile(Profile::Full)
        .otlp("allostat.host.mount.free", "By"),
        |space| Some(space.free),
    ),
    (
        gauge("allostat_host_mount_inodes", Unit::None, "Total inodes of the file system.")
            .from_source("statvfs f_files")
            .absent_when("as for its size, or it has no inode table (btrfs, vfat)")
            .from_profile(Profile::Standard)
            .otlp("allostat.host.mount.inodes.limit", "{inode}"),
        |space| space.inodes.map(|(all, _)| all),
    ),
    (
        gauge("allostat_host_mount_inodes_free", Unit::None, "Free inodes of the file system.")
            .from_source("statvfs f_ffree")
            .absent_when("as for its size, or it has no inode table (btrfs, vfat)")
            .from_profile(Profile::Standard)
            .otlp("allostat.host.mount.inodes.free", "{inode}"),
        |space| space.inodes.map(|(_, free)| free),
    ),
    (
        gauge(
            "allostat_host_mount_readonly",
            Unit::None,
            "1 if the file system is read-only, by mount option or after a device failure.",
        )
        .from_source("statvfs f_flag")
        .from_profile(Profile::Standard)
        .otlp("allostat.host.mount.readonly", "1"),
        |space| Some(u64::from(space.readonly)),
    ),
];

static MOUNTS: MetricDesc = MetricDesc::gauge(
    "allostat_host_mounts",
    Unit::None,
    "Mounts of the host by state: shown, or why they are not shown.",
    &["state"],
)
.from_source("mountinfo")
.absent_when("the kernel does not report it")
.from_profile(Profile::Standard)
.otlp("allostat.host.mounts", "{mount}");

static METRICS: LazyLock<Vec<&MetricDesc>> =
    LazyLock::new(|| FAMILIES.iter().map(|(desc, _)| desc).chain([&MOUNTS]).collect());

const fn gauge(name: &'static str, unit: Unit, help: &'static str) -> MetricDesc {
    MetricDesc::gauge(name, unit, help, &["mountpoint", "device", "fstype"]).absent_when(
        "it does not answer; it stores no data of its own (proc, tmpfs, overlay, squashfs); an automounter would \
         unmount it; the same file system is shown by a shorter path; or 64 are shown: see allostat_host_mounts",
    )
}

/// Size and free space of one mounted file system.
#[derive(Debug, Clone, Copy)]
struct MountSpace {
    size: u64,
    available: u64,
    free: u64,
    /// Total and free.
    inodes: Option<(u64, u64)>,
    readonly: bool,
}

/// A mounted file system, and the probe of its size.
#[derive(Debug)]
struct ProbedMount {
    of: Filesystem,
    /// `None`: the thread could not be created yet.
    probe: Option<BlockingProbe<MountSpace>>,
}

/// Size and free space of the host's file systems.
#[derive(Debug, Default)]
pub(super) struct MountCollector {
    table: Option<MountTable>,
    /// The mounts of the table that are not shown.
    left_out: Filesystems,
    over_limit: usize,
    probed: Vec<ProbedMount>,
    /// Unmounted file systems whose statvfs call has not returned.
    held: Vec<BlockingProbe<MountSpace>>,
    probed_at: Option<Instant>,
}

/// An open mountinfo file, and the directory below which its mount points are reachable.
#[derive(Debug)]
struct MountTable {
    file: File,
    path: PathBuf,
    root: PathBuf,
    read_at: Option<Instant>,
}

impl MountTable {
    fn open(roots: &Roots) -> Result<MountTable, ReadError> {
        let of = |owner: &str| {
            let path = roots.proc(format!("{owner}/mountinfo"));
            let file = File::open(&path).map_err(|e| ReadError::new(&path, e))?;
            Ok(MountTable { file, path, root: roots.proc(format!("{owner}/root")), read_at: None })
        };
        // A readable table is useless without permission to traverse its root.
        let first = of("1").ok().filter(|table| std::fs::metadata(table.root.join("")).is_ok());
        first.map_or_else(|| of("self"), Ok)
    }

    fn has_changed(&self, now: Instant) -> bool {
        let is_old = self.read_at.is_none_or(|at| now.saturating_duration_since(at) >= REREAD_INTERVAL);
        let mut requests = [PollFd::new(&self.file, PollFlags::PRI)];
        let signalled = poll(&mut requests, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|n| n > 0);
        is_old || (signalled && requests[0].revents().intersects(PollFlags::PRI | PollFlags::ERR))
    }

    fn read(&mut self, now: Instant) -> Result<Vec<u8>, ReadError> {
        use std::io::Seek as _;
        let read = self.file.rewind().and_then(|()| untrusted::read_all(&self.file, LARGEST_TABLE));
        let bytes = read.map_err(|e| ReadError::new(&self.path, e))?;
        self.read_at = Some(now);
        Ok(bytes)
    }
}

impl MountCollector {
    fn collect_at(&mut self, roots: &Roots, now: Instant, out: &mut Samples) -> Result<(), CollectError> {
        let mut result = Ok(());
        if self.probed_at.is_none_or(|at| now.saturating_duration_since(at) >= PROBE_INTERVAL) {
            // The table must be current: the path of an unmounted file system leads to another one.
            if let Some(bad) = self.refresh(roots, now)? {
                result = Err(bad.into());
            }
            self.probed_at = Some(now);
            for pending in self.probed.iter_mut().filter_map(|f| f.probe.as_mut()) {
                if let Err(error) = pending.take(now) {
                    result = worse(result, error);
                }
                pending.request(now);
            }
        }
        let (mut rows, mut empty, probed) = (Vec::new(), 0, self.probed.len());
        for ProbedMount { of, probe: started } in &mut self.probed {
            let Some(started) = started else { continue };
            let taken = started.take(now);
            match taken.and_then(|()| started.known(now)) {
                Ok(Some(space)) if space.size == 0 => empty += 1,
                Ok(Some(space)) => rows.push((of, *space)),
                Ok(None) => {}
                Err(error) => result = worse(result, error),
            }
        }
        for (desc, value) in &FAMILIES {
            for (of, space) in &rows {
                if let Some(value) = value(space) {
                    // A user who mounts with FUSE chooses all three labels.
                    let mount_point = of.mount_point.to_string_lossy();
                    let labels = [&*mount_point, of.device.as_str(), of.fs_type.as_str()];
                    let labels = labels.map(|text| Cow::Owned(label_path(text).into_owned()));
                    out.push_owned(desc, labels.into(), Value::Int(value));
                }
            }
        }
        let left_out = &self.left_out;
        for (state, count) in [
            ("shown", rows.len()),
            ("no_storage", left_out.no_storage + empty),
            ("repeated", left_out.repeated),
            ("hidden", left_out.hidden),
            ("on_demand", left_out.on_demand),
            ("over_limit", self.over_limit),
            ("unanswered", probed - rows.len() - empty),
        ] {
            out.push_int(&MOUNTS, &[state], u64::try_from(count).unwrap_or(u64::MAX));
        }
        result
    }

    /// Reads the table if it changed, and updates the probed mounts.
    fn refresh(&mut self, roots: &Roots, now: Instant) -> Result<Option<ParseError>, CollectError> {
        let table = match &mut self.table {
            Some(table) => table,
            none => none.insert(MountTable::open(roots)?),
        };
        self.held.retain_mut(|probe| probe.take(now).is_ok() && probe.is_pending());
        if !table.has_changed(now) {
            return Ok(None);
        }
        let (mut found, bad) = mountinfo::filesystems(&table.read(now)?);
        let root = table.root.clone();
        let shown = std::mem::take(&mut found.shown);
        self.left_out = found;
        self.follow(shown, |of| {
            let path = of.mount_point.strip_prefix("/").map_or_else(|_| root.clone(), |below| root.join(below));
            let target = format!("the file system at {}", of.mount_point.display());
            let mount_point = of.mount_point.clone();
            BlockingProbe::new("statvfs", target, move || read_space(&path, &mount_point))
        });
        Ok(bad)
    }

    fn follow(&mut self, found: Vec<Filesystem>, begin: impl Fn(&Filesystem) -> Option<BlockingProbe<MountSpace>>) {
        let mut before = std::mem::take(&mut self.probed);
        let mut shown = Vec::new();
        let mut new = Vec::new();
        for of in found {
            // A mount whose thread could not be created is tried again.
            match before.iter().position(|probed| probed.of == of && probed.probe.is_some()) {
                Some(at) => shown.push(before.swap_remove(at)),
                None => new.push(of),
            }
        }
        self.held.extend(before.into_iter().filter_map(|removed| removed.probe).filter(BlockingProbe::is_pending));
        let room = MOST.saturating_sub(shown.len() + self.held.len());
        self.over_limit = new.len().saturating_sub(room);
        shown.extend(new.into_iter().take(room).map(|of| ProbedMount { probe: begin(&of), of }));
        self.probed = shown;
    }

    fn age_at(&self, now: Instant) -> Duration {
        let answers = self.probed.iter().filter_map(|f| f.probe.as_ref()?.started_at());
        answers.min().map_or(Duration::ZERO, |at| now.saturating_duration_since(at))
    }
    fn stuck_at(&self, now: Instant) -> bool {
        self.probed.iter().filter_map(|f| f.probe.as_ref()).any(|probe| probe.is_stuck(now))
    }
}

/// Only one error is reported: the first that is not `Absent`.
fn worse(before: Result<(), CollectError>, error: CollectError) -> Result<(), CollectError> {
    match before {
        Err(before) if before.reason().is_some() => Err(before),
        Ok(()) | Err(_) => Err(error),
    }
}

fn read_space(path: &Path, mount_point: &Path) -> Result<MountSpace, CollectError> {
    let found = rustix::fs::statvfs(path).map_err(|errno| match errno {
        // A FUSE mount of a user may be closed to root.
        Errno::ACCESS | Errno::PERM => CollectError::Absent(format!("{}: permission denied", mount_point.display())),
        other => ReadError::new(mount_point, other.into()).into(),
    })?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Ok(MountSpace {
        size: bytes(found.f_blocks),
        available: bytes(found.f_bavail),
        free: bytes(found.f_bfree),
        inodes: (found.f_files > 0).then_some((found.f_files, found.f_ffree)),
        readonly: found.f_flag.contains(StatVfsMountFlags::RDONLY),
    })
}

impl Collector for MountCollector {
    fn name(&self) -> &'static str {
        "mounts"
    }
    fn metrics(&self) -> &'static [&'static MetricDesc] {
        &METRICS
    }
    fn collect(&mut self, roots: &Roots, out: &mut Samples) -> Result<(), CollectError> {
        self.collect_at(roots, Instant::now(), out)
    }
    fn age(&self) -> Duration {
        self.age_at(Instant::now())
    }
    fn stuck(&self) -> Option<bool> {
        Some(self.stuck_at(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::blocking_probe::DEADLINE;
    use super::super::tests::host;
    use super::*;
    use crate::collectors::ErrorReason;

    /// Two file systems of a host whose mount points lie below a test directory.
    const TABLE: &str = "27 1 8:1 / / rw - ext4 /dev/sda1 rw\n28 27 0:70 / /data rw - nfs4 s:/data rw\n\
        29 27 0:5 / /proc rw - proc proc rw\n30 27 8:1 /srv /srv rw - ext4 /dev/sda1 rw\n";

    fn states(out: &Samples) -> BTreeMap<String, u64> {
        let of = out.0.iter().filter(|s| s.desc == &MOUNTS && s.value != Value::Int(0));
        of.map(|s| (s.labels[0].to_string(), if let Value::Int(n) = s.value { n } else { 0 })).collect()
    }
    fn mount_points(out: &Samples) -> Vec<&str> {
        out.0.iter().filter(|s| s.desc == &FAMILIES[0].0).map(|s| &*s.labels[0]).collect()
    }

    /// Repeats until the given number of file systems is shown or an error occurs: the threads need a moment.
    fn answered(mounts: &mut MountCollector, roots: &Roots, shown: usize) -> (Samples, Result<(), CollectError>) {
        for _ in 0..6_000 {
            let mut out = Samples::default();
            let result = mounts.collect_at(roots, Instant::now(), &mut out);
            // Others may have failed before.
            if mount_points(&out).len() == shown {
                return (out, result);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the file system of a temporary directory must answer");
    }

    /// The root directory that the agent itself sees.
    const OWN_ROOT: &str = "proc/self/root";

    fn machine(table: &str) -> (tempfile::TempDir, Roots) {
        host(&[("proc/self/mountinfo", table), (&format!("{OWN_ROOT}/data/file"), "")])
    }

    #[test]
    fn each_file_system_is_shown_once_families_together_and_every_mount_is_counted() {
        let (_dir, roots) = machine(TABLE);
        let mut mounts = MountCollector::default();
        let (out, result) = answered(&mut mounts, &roots, 2);
        assert!(result.is_ok(), "{result:?}");
        assert_eq!(mount_points(&out), ["/", "/data"]);
        let first = &out.0[0];
        assert_eq!(first.labels, ["/", "/dev/sda1", "ext4"]);
        assert!(matches!(first.value, Value::Int(n) if n > 0));
        let families: Vec<_> = out.0.iter().map(|s| s.desc.name).collect();
        let mut unique = families.clone();
        unique.dedup();
        let number = unique.len();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), number, "{families:?}");
        let expected = [("shown", 2), ("no_storage", 1), ("repeated", 1)].map(|(state, n)| (state.to_owned(), n));
        assert_eq!(states(&out), expected.into());
        assert!(mounts.age_at(Instant::now() + Duration::from_secs(3)) >= Duration::from_secs(3));
    }

    /// The flags that statvfs has at a mount point: those of this mount, as its line has them.
    fn readonly_of_line(table: &str, mount_point: &Path) -> bool {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let line = table.lines().map(words).find(|words| Path::new(&words[4]) == mount_point).unwrap();
        line[5].split(',').any(|option| option == "ro")
    }

    #[test]
    fn file_system_is_read_only_if_no_mount_of_it_is_writable() {
        const TABLE: &str = "27 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n\
            30 27 8:2 / /ro ro,relatime - ext4 /dev/sda2 rw\n31 27 8:2 / /much/longer rw,relatime - ext4 /dev/sda2 rw\n\
            32 27 8:3 / /both ro,relatime - xfs /dev/sda3 rw\n33 27 8:3 /a /both/more ro,relatime - xfs /dev/sda3 rw\n\
            34 27 8:4 / /failed ro,relatime - ext4 /dev/sda4 ro,errors=remount-ro\n";
        let now = Instant::now();
        // No table is read: these are the file systems.
        let mut mounts = MountCollector { probed_at: Some(now), ..MountCollector::default() };
        mounts.follow(mountinfo::filesystems(TABLE.as_bytes()).0.shown, |of| {
            let readonly = readonly_of_line(TABLE, &of.mount_point);
            let space = MountSpace { size: 1, available: 1, free: 1, inodes: None, readonly };
            BlockingProbe::new("statvfs", "a recorded file system".to_owned(), move || Ok(space))
        });
        mounts.probed.iter_mut().filter_map(|f| f.probe.as_mut()).for_each(|probe| probe.request(now));
        let (_dir, roots) = machine(TABLE);
        let (out, _) = answered(&mut mounts, &roots, 4);
        let readonly: BTreeMap<&str, &Value> = out
            .0
            .iter()
            .filter(|s| s.desc.name == "allostat_host_mount_readonly")
            .map(|s| (&*s.labels[1], &s.value))
            .collect();
        let [no, yes] = [Value::Int(0), Value::Int(1)];
        let expected = [("/dev/sda1", &no), ("/dev/sda2", &no), ("/dev/sda3", &yes), ("/dev/sda4", &yes)];
        assert_eq!(readonly, expected.into());
    }

    #[test]
    fn through_the_first_process_the_host_is_seen_where_that_is_allowed() {
        let first = "27 1 8:1 / / rw - ext4 /dev/sda1 rw\n";
        let (dir, roots) = machine(TABLE);
        std::fs::create_dir_all(dir.path().join("proc/1")).unwrap();
        std::fs::write(dir.path().join("proc/1/mountinfo"), first).unwrap();
        let (out, _) = answered(&mut MountCollector::default(), &roots, 2);
        assert_eq!(mount_points(&out), ["/", "/data"], "its root cannot be walked");
        std::fs::create_dir_all(dir.path().join("proc/1/root")).unwrap();
        let (out, _) = answered(&mut MountCollector::default(), &roots, 1);
        assert_eq!(mount_points(&out), ["/"]);
    }

    #[test]
    fn mount_with_a_missing_path_has_no_value_and_affects_no_other() {
        let (dir, roots) = machine(TABLE);
        std::fs::remove_dir_all(dir.path().join(OWN_ROOT).join("data")).unwrap();
        let (out, _) = answered(&mut MountCollector::default(), &roots, 1);
        assert_eq!(mount_points(&out), ["/"]);
        assert_eq!(states(&out)["unanswered"], 1);
    }

    fn hanging() -> Option<BlockingProbe<MountSpace>> {
        let hang = || loop {
            std::thread::park();
        };
        BlockingProbe::new("hangs", "what hangs".to_owned(), hang)
    }

    /// Promise (Measured values): A file system that hangs loses only its own values, in time, and its threads are
    /// bounded
    #[test]
    fn source_that_hangs_loses_its_own_values_alone_in_time() {
        let (_dir, roots) = machine(TABLE);
        let mut mounts = MountCollector::default();
        answered(&mut mounts, &roots, 2).1.unwrap();
        let hung = mounts.probed.iter_mut().find(|f| f.of.fs_type == "nfs4").unwrap();
        hung.probe = hanging();
        let queried_at = Instant::now() + PROBE_INTERVAL;
        let mut out = Samples::default();
        let _ = mounts.collect_at(&roots, queried_at, &mut out);
        let late = queried_at + DEADLINE + Duration::from_secs(1);
        assert!(!mounts.stuck_at(queried_at + DEADLINE) && mounts.stuck_at(late));
        // The other file system has answered by then, however busy the machine is.
        while mounts.probed.iter().filter_map(|f| f.probe.as_ref()).filter(|probe| probe.is_pending()).count() > 1 {
            std::thread::sleep(Duration::from_millis(1));
            let _ = mounts.collect_at(&roots, queried_at, &mut Samples::default());
        }
        let mut out = Samples::default();
        let result = mounts.collect_at(&roots, late, &mut out);
        assert_eq!(result.as_ref().unwrap_err().reason(), Some(ErrorReason::Timeout));
        assert_eq!(mount_points(&out), ["/"]);
        assert_eq!((states(&out)["shown"], states(&out)["unanswered"]), (1, 1));
    }

    /// A server that does not answer for a long time, while a user mounts and unmounts it repeatedly.
    #[test]
    fn threads_that_the_kernel_holds_for_what_is_gone_are_not_without_number() {
        let mut mounts = MountCollector::default();
        let of = |n: usize| Filesystem {
            mount_point: format!("/n{n}").into(),
            superblock: format!("0:{n}"),
            device: "s:/".to_owned(),
            fs_type: "nfs".to_owned(),
        };
        for n in 0..MOST + 5 {
            mounts.follow(vec![of(n)], |_| hanging());
            mounts.probed.iter_mut().filter_map(|f| f.probe.as_mut()).for_each(|probe| probe.request(Instant::now()));
        }
        assert_eq!((mounts.held.len() + mounts.probed.len(), mounts.over_limit), (MOST, 1));
    }

    /// Promise (Measured values): Of thousands of mounts at most 64 are exposed, each once; every mount is counted with
    /// its reason
    #[test]
    fn mounts_above_the_limit_are_left_out_and_counted() {
        let mut table = String::from("1 0 8:1 / / rw - ext4 /dev/sda1 rw\n");
        for n in 0..3_000 {
            table += &format!("{} 1 0:{} / /pods/{n}/secret rw - tmpfs tmpfs rw\n", 3 * n + 2, 3 * n + 100);
            table += &format!("{} 1 0:{} / /pods/{n}/root rw - overlay overlay rw\n", 3 * n + 3, 3 * n + 101);
            table += &format!("{} 1 8:1 /v{n} /pods/{n}/volume rw - ext4 /dev/sda1 rw\n", 3 * n + 4);
        }
        for n in 0..MOST + 6 {
            table += &format!("{} 1 9:{n} / /disk/{n} rw - xfs /dev/sd{n} rw\n", 20_000 + n);
        }
        let (dir, roots) = machine(&table);
        for n in 0..MOST + 6 {
            std::fs::create_dir_all(dir.path().join(format!("{OWN_ROOT}/disk/{n}"))).unwrap();
        }
        let (out, _) = answered(&mut MountCollector::default(), &roots, MOST);
        let expected = [("shown", 64), ("no_storage", 6_000), ("repeated", 3_000), ("over_limit", 7)];
        assert_eq!(states(&out), expected.map(|(state, n)| (state.to_owned(), n)).into());
        assert_eq!(mount_points(&out)[0], "/");
    }
}
