//! Host capabilities: what the agent can measure on this host, and for each gap the reason and the fix.
//!
//! Source: the mounted cgroup hierarchies, and the files of an existing cgroup. The v2 root cgroup has few files, so
//! the probe reads the agent's parent cgroup, which should exist by then. If that is missing or unreadable, any other
//! cgroup below the root answers as well. If no file can be checked for lack of permission, the capability is unknown,
//! not absent.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use rustix::io::Errno;

use super::cgroup::above;
use super::window::can_keep;
use crate::host::bpf;
use crate::host::hierarchy::{CgroupMode, CgroupVersion, Hierarchy, Layout};
use crate::host::roots::Roots;
use crate::host::systemd;
use crate::kernel::cgroup::blkio;
use crate::model::capability::Capability;
use crate::model::id::CgroupPath;
use crate::telemetry::chain;

/// The command with which an unprivileged user gets a delegated cgroup.
pub const DELEGATED: &str = "`systemd-run --user --scope -p Delegate=yes allostat agent`";

/// What gives an ordinary user cgroups on this host.
fn delegation(has_systemd: bool) -> String {
    match has_systemd {
        true => format!("run as root, or with {DELEGATED}"),
        false => "run as root, or let this user write to a cgroup".to_owned(),
    }
}

/// Probes all capabilities once. `parent`: the cgroup below which the agent creates the cgroups of its allocs.
/// `peak_window_v1`: the agent may reset memory peaks on cgroup v1.
pub fn probe(roots: &Roots, layout: &Layout, parent: &CgroupPath, peak_window_v1: bool) -> Vec<Capability> {
    let probe = CapabilityProbe { roots, layout, parent };
    vec![
        probe.cgroup(),
        probe.controller("memory", "memory"),
        probe.file("memory_peak", "memory", "memory.max_usage_in_bytes", "memory.peak", "kernel 5.19"),
        probe.window_peak(peak_window_v1),
        probe.swap(),
        probe.controller("cpu", "cpuacct"),
        probe.file("cpu_quota", "cpu", "cpu.cfs_quota_us", "cpu.max", "a kernel with CONFIG_CFS_BANDWIDTH"),
        probe.cpuset(),
        probe.io(),
        probe.controller("pids", "pids"),
        probe.file("pids_peak", "pids", "pids.peak", "pids.peak", "a newer kernel"),
        probe.psi(),
        probe.cgroup_kill(),
        probe.devices(),
    ]
}

/// Memory peak of the last 60 s.
pub const WINDOW_PEAK: &str = "memory_window_peak";

/// Sampling by a BPF cgroup iterator. Not part of [`probe`]: [`KernelPass::open`](super::KernelPass::open) tries it.
pub const KERNEL_PASS: &str = "kernel_pass";

/// Capabilities that concern managed tasks only; the agent never changes an observed cgroup.
pub const MANAGED_ONLY: [&str; 4] = [WINDOW_PEAK, "cpuset", "cgroup_kill", "device_nodes"];

/// By feature, what the processes of a task without a cgroup still show.
const OF_PROCESSES: [(&str, &str); 5] = [
    ("memory", "the sum of the resident sets of its processes"),
    ("memory_peak", "the peak of its largest process (max_rss)"),
    ("cpu", "the CPU time of its processes, in steps of 10 ms"),
    ("io", "the bytes of its processes (/proc/PID/io)"),
    ("pids", "the number of its processes"),
];

/// Corrects the capabilities of an agent that cannot create cgroups. `observes`: it still measures the cgroups of
/// observed workloads. `runs`: it runs tasks, whose processes are measured instead.
pub fn without_cgroups(capabilities: &mut [Capability], roots: &Roots, observes: bool, runs: bool) {
    for capability in capabilities.iter_mut().filter(|c| c.feature != "cgroup") {
        let managed_only = MANAGED_ONLY.contains(&&*capability.feature);
        let is_possible = capability.available || capability.unknown;
        // No setting and no other kernel gives a task without a cgroup what only a cgroup has.
        if managed_only || (is_possible && !observes) {
            (capability.available, capability.unknown) = (false, false);
            capability.reason = "tasks have no cgroup of their own: see `cgroup`".to_owned();
        }
        let of_processes = OF_PROCESSES.iter().find(|(feature, _)| runs && *feature == capability.feature);
        let of_processes = of_processes.filter(|(feature, _)| *feature != "io" || roots.proc("self/io").exists());
        capability.instead = match of_processes {
            Some((_, words)) => format!("of a task of this agent: {words}"),
            None if runs && capability.available => "of observed workloads only".to_owned(),
            None => String::new(),
        };
    }
}

/// End of observed cgroups, reported by kernel tracepoints. Not part of [`probe`]:
/// [`CgroupEndTracer::open`](super::CgroupEndTracer::open) tries it.
pub const KERNEL_ENDS: &str = "kernel_ends";
/// Not measured but enforced: the `size` of `ephemeral_disk`.
pub const DISK_LIMIT: &str = "disk_limit";

/// What the probes of this host's capabilities read.
#[derive(Debug, Clone, Copy)]
struct CapabilityProbe<'a> {
    roots: &'a Roots,
    layout: &'a Layout,
    parent: &'a CgroupPath,
}

/// Result of the search for a cgroup file.
#[derive(Debug)]
enum FileLookup {
    Found(PathBuf),
    /// A cgroup with the right controller exists and lacks the file.
    Missing,
    /// No cgroup could be checked, with the reason.
    Unknown(String),
}

/// The v2 name of a v1 controller.
fn on_v2(controller: &str) -> &str {
    match controller {
        "blkio" => "io",
        "cpuacct" => "cpu",
        same => same,
    }
}

impl<'a> CapabilityProbe<'a> {
    /// Whether the agent can create cgroups.
    fn cgroup(self) -> Capability {
        const NAME: &str = "cgroup";
        if self.layout.mode() == CgroupMode::None {
            return Capability::no(NAME, "no cgroup hierarchy is mounted: mount cgroup2 on /sys/fs/cgroup");
        }
        let refused = self.layout.placements().find_map(|hierarchy| {
            let (directory, why) = self.not_writable(hierarchy)?;
            Some(format!("cannot make cgroups in {}: {why}", directory.display()))
        });
        match refused {
            None => Capability::yes(NAME),
            Some(why) if rustix::process::geteuid().is_root() => {
                Capability::no(NAME, format!("{why}; mount it writable, or give the agent a cgroup of its own"))
            }
            Some(why) => Capability::no(NAME, format!("{why}; {}", delegation(systemd::is_booted()))),
        }
    }

    /// The nearest existing ancestor of the parent cgroup, if it is not writable.
    fn not_writable(self, hierarchy: &Hierarchy) -> Option<(PathBuf, std::io::Error)> {
        let path = self.parent.relative();
        let nearest = (0..64).map(|up| above(&path, up)).find(|p| hierarchy.mount.join(p).is_dir())?;
        let access = Access::WRITE_OK | Access::EXEC_OK;
        let refused = rustix::fs::accessat(hierarchy.root(), nearest, access, rustix::fs::AtFlags::EACCESS).err()?;
        // Drops a trailing `/.` from the path that the user sees.
        Some((hierarchy.mount.join(nearest).components().collect(), refused.into()))
    }

    fn hierarchy(self, controller: &str) -> Option<&'a Hierarchy> {
        self.layout.controller(controller).or_else(move || self.layout.controller(on_v2(controller)))
    }

    fn missing(self, controller: &str) -> String {
        let v2_name = on_v2(controller);
        if self.layout.unified().is_some_and(|tree| tree.withheld.iter().any(|c| c == v2_name)) {
            return format!(
                "the {v2_name} controller is not delegated to the parent of {}: \
                 under a user's systemd, add it to Delegate= of user@.service",
                self.parent
            );
        }
        match self.layout.mode() {
            CgroupMode::None => "no cgroup hierarchy is mounted".to_owned(),
            CgroupMode::V2 => {
                let controller = on_v2(controller);
                format!(
                    "the {controller} controller is not in cgroup.controllers: \
                     see cgroup_disable on the kernel's command line"
                )
            }
            CgroupMode::V1 | CgroupMode::Hybrid => {
                format!("no hierarchy with the {controller} controller is mounted: mount it, or boot with cgroup v2")
            }
        }
    }

    /// Whether the agent can deny a task access to device nodes that it did not request.
    fn devices(self) -> Capability {
        const NAME: &str = "device_nodes";
        if self.layout.controller("devices").is_some_and(|hierarchy| hierarchy.version == CgroupVersion::V1) {
            return Capability::yes(NAME);
        }
        if self.layout.unified().is_none() {
            return Capability::no(NAME, self.missing("devices"));
        }
        // Loading the program is the only reliable test. It is attached to no cgroup.
        match bpf::device_gate(&[]) {
            Ok(_) => Capability::yes(NAME),
            Err(refused) => Capability::no(
                NAME,
                format!(
                    "tasks can open device nodes that they did not request: {}; \
                     on cgroup v2 the restriction needs CAP_BPF and CAP_NET_ADMIN",
                    chain(&refused)
                ),
            ),
        }
    }

    fn controller(self, name: &'static str, controller: &str) -> Capability {
        match self.hierarchy(controller) {
            Some(_) => Capability::yes(name),
            None => Capability::no(name, self.missing(controller)),
        }
    }

    /// Whether a cgroup has a file, under its name of v1 or v2.
    fn file(self, name: &'static str, controller: &str, v1: &str, v2: &str, since: &str) -> Capability {
        let Some(hierarchy) = self.hierarchy(controller) else { return Capability::no(name, self.missing(controller)) };
        let file = if hierarchy.version == CgroupVersion::V1 { v1 } else { v2 };
        self.by_file(name, hierarchy, Some(controller), file, || format!("this kernel has no {file}: it needs {since}"))
    }

    /// `lacking`: the reason if the kernel does not have the file.
    fn by_file(
        self,
        name: &'static str,
        hierarchy: &Hierarchy,
        controller: Option<&str>,
        file: &str,
        lacking: impl FnOnce() -> String,
    ) -> Capability {
        match self.find_file(hierarchy, controller, file) {
            FileLookup::Found(_) => Capability::yes(name),
            FileLookup::Missing => Capability::no(name, lacking()),
            FileLookup::Unknown(why) => Capability::unknown(name, why),
        }
    }

    fn no_cgroup(self, hierarchy: &Hierarchy) -> String {
        let parent = hierarchy.mount.join(self.parent.relative());
        format!("{} does not exist, so there is no cgroup to check: see the feature cgroup", parent.display())
    }

    /// `controller`: the controller that provides the file; `None` for core files, which every cgroup has.
    fn find_file(self, hierarchy: &Hierarchy, controller: Option<&str>, file: &str) -> FileLookup {
        let parent = hierarchy.mount.join(self.parent.relative());
        let is_root = self.parent.as_str().trim_matches('/').is_empty();
        let mut refused = None;
        if !is_root && parent.is_dir() {
            match file_exists(&parent.join(file)) {
                Ok(true) => return FileLookup::Found(parent.join(file)),
                Ok(false) if has_controller(hierarchy, controller, &parent) => return FileLookup::Missing,
                Ok(false) => {}
                Err(why) => refused = Some((parent, why)),
            }
        }
        // Every cgroup has the files of the root, but the root lacks some files of other cgroups.
        if file_exists(&hierarchy.mount.join(file)).is_ok_and(|there| there) {
            return FileLookup::Found(hierarchy.mount.join(file));
        }
        // Falls back to the other cgroups below the root.
        let mut lacking = false;
        match std::fs::read_dir(&hierarchy.mount) {
            Ok(entries) => {
                for other in entries.flatten().map(|entry| entry.path()) {
                    match file_exists(&other.join(file)) {
                        Ok(true) => return FileLookup::Found(other.join(file)),
                        // If `cgroup.procs` is missing too, the cgroup was removed in between and proves nothing.
                        Ok(false) => {
                            lacking |= has_controller(hierarchy, controller, &other)
                                && file_exists(&other.join("cgroup.procs")).is_ok_and(|there| there);
                        }
                        Err(why) => drop(refused.get_or_insert((other, why))),
                    }
                }
            }
            Err(why) => drop(refused.get_or_insert((hierarchy.mount.clone(), why))),
        }
        match refused {
            _ if lacking => FileLookup::Missing,
            Some((shut, why)) => FileLookup::Unknown(format!(
                "unknown: cannot read {} ({why}), and there is no other cgroup to check; run as root",
                shut.display()
            )),
            None => FileLookup::Unknown(self.no_cgroup(hierarchy)),
        }
    }

    /// Whether the kernel counts disk I/O per cgroup.
    fn io(self) -> Capability {
        const NAME: &str = "io";
        const BYTES: &str = "blkio.throttle.io_service_bytes_recursive";
        let found = self.file(NAME, "blkio", BYTES, "io.stat", "kernel 4.20");
        let v1 = self.hierarchy("blkio").filter(|hierarchy| found.available && hierarchy.version == CgroupVersion::V1);
        match v1.and_then(|hierarchy| std::fs::read(hierarchy.mount.join(BYTES)).ok()) {
            Some(text) if !blkio::names_a_device(&text) => Capability::no(
                NAME,
                "on cgroup v1 this kernel counts I/O only on disks with a throttle rule, and none had one at agent \
                 start: set one in any cgroup (blkio.throttle.read_bps_device), or boot with cgroup v2",
            ),
            _ => found,
        }
    }

    /// Whether the agent can reset the kernel's memory peak each 5 s without losing the lifetime peak.
    fn window_peak(self, peak_window_v1: bool) -> Capability {
        const NAME: &str = WINDOW_PEAK;
        let Some(hierarchy) = self.hierarchy("memory") else { return Capability::no(NAME, self.missing("memory")) };
        if hierarchy.version == CgroupVersion::V1 {
            if !peak_window_v1 {
                let why = "on cgroup v1 a reset hides the lifetime peak from other readers: set cgroup.peak_window_v1 \
                           if no other program reads memory.max_usage_in_bytes, or boot with cgroup v2";
                return Capability::no(NAME, why);
            }
            return match can_keep(self.layout, self.parent) {
                Ok(()) => Capability::yes(NAME),
                Err(Errno::NOENT) => Capability::no(NAME, self.no_cgroup(hierarchy)),
                Err(why) => {
                    let why = std::io::Error::from(why);
                    Capability::no(
                        NAME,
                        format!("cannot store the lifetime peak in an extended attribute: {why}; run as root"),
                    )
                }
            };
        }
        match self.find_file(hierarchy, Some("memory"), "memory.peak") {
            FileLookup::Found(file) => match std::fs::metadata(&file) {
                Ok(found) if found.permissions().mode() & 0o200 != 0 => Capability::yes(NAME),
                Ok(_) => Capability::no(NAME, "this kernel's memory.peak cannot be reset: it needs kernel 6.12"),
                Err(why) => Capability::unknown(NAME, format!("unknown: {}: {why}", file.display())),
            },
            FileLookup::Missing => Capability::no(NAME, "this kernel has no memory.peak: it needs kernel 6.12"),
            FileLookup::Unknown(why) => Capability::unknown(NAME, why),
        }
    }

    fn swap(self) -> Capability {
        const NAME: &str = "swap";
        let Some(hierarchy) = self.hierarchy("memory") else { return Capability::no(NAME, self.missing("memory")) };
        let file =
            if hierarchy.version == CgroupVersion::V1 { "memory.memsw.usage_in_bytes" } else { "memory.swap.current" };
        self.by_file(NAME, hierarchy, Some("memory"), file, || {
            "the kernel does not account for swap: boot with swapaccount=1".to_owned()
        })
    }

    fn cpuset(self) -> Capability {
        const NAME: &str = "cpuset";
        let Some(hierarchy) = self.layout.controller("cpuset") else {
            return Capability::no(NAME, self.missing("cpuset"));
        };
        let control = hierarchy.mount.join(self.parent.relative()).join("cgroup.subtree_control");
        let enabled = std::fs::read_to_string(control).unwrap_or_default();
        if hierarchy.version == CgroupVersion::V2 && enabled.split_whitespace().any(|c| c == "cpuset") {
            return Capability::yes(NAME);
        }
        Capability::no(NAME, "only tasks with `cores` get a cpuset of their own; the others may run on all CPUs")
    }

    fn psi(self) -> Capability {
        const NAME: &str = "psi";
        let Some(hierarchy) = self.layout.unified() else {
            return Capability::no(
                NAME,
                "no unified tree: mount one beside the v1 hierarchies, mount -t cgroup2 none /sys/fs/cgroup/unified",
            );
        };
        let file = self.roots.proc("pressure/cpu");
        match std::fs::read(&file) {
            Ok(_) => {}
            // EOPNOTSUPP: the file exists, but PSI is disabled.
            Err(why) if is_absent(&why) || Errno::from_io_error(&why) == Some(Errno::OPNOTSUPP) => {
                let why = "the kernel has no pressure stall information, or it is off: boot with psi=1";
                return Capability::no(NAME, why);
            }
            Err(why) => return Capability::unknown(NAME, format!("unknown: {}: {why}", file.display())),
        }
        self.by_file(NAME, hierarchy, None, "cpu.pressure", || {
            "cgroups have no cpu.pressure: cgroup_disable=pressure, or cgroup.pressure is 0".to_owned()
        })
    }

    fn cgroup_kill(self) -> Capability {
        const NAME: &str = "cgroup_kill";
        match self.layout.unified() {
            None => {
                Capability::no(NAME, "no unified tree: the agent freezes a task and kills its processes one by one")
            }
            Some(hierarchy) => self.by_file(NAME, hierarchy, None, "cgroup.kill", || {
                "this kernel has no cgroup.kill: it needs kernel 5.14".to_owned()
            }),
        }
    }
}

/// Whether the file exists. Errors: unknown, for example for lack of permission.
fn file_exists(file: &Path) -> io::Result<bool> {
    match std::fs::metadata(file) {
        Ok(_) => Ok(true),
        Err(why) if is_absent(&why) => Ok(false),
        Err(why) => Err(why),
    }
}

fn is_absent(why: &io::Error) -> bool {
    matches!(why.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Whether the controller is enabled for the cgroup. On v2 the parent cgroup decides (`cgroup.subtree_control`); on v1
/// always.
fn has_controller(hierarchy: &Hierarchy, controller: Option<&str>, cgroup: &Path) -> bool {
    let (CgroupVersion::V2, Some(controller)) = (hierarchy.version, controller) else { return true };
    // Without `cgroup.controllers` the creator of the cgroup enabled what it needs.
    let handed = std::fs::read_to_string(cgroup.join("cgroup.controllers"));
    handed.map_or_else(|why| is_absent(&why), |all| all.split_whitespace().any(|one| one == on_v2(controller)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_without_systemd_gets_no_advice_to_use_it() {
        assert!(delegation(true).contains("systemd-run --user"));
        assert!(!delegation(false).contains("systemd") && delegation(false).contains("root"));
    }

    #[test]
    fn host_without_cgroups_lacks_all_capabilities_with_reasons() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        std::fs::create_dir_all(roots.proc("self")).unwrap();
        std::fs::write(roots.proc("self/mountinfo"), "").unwrap();
        let layout = Layout::detect(&roots).unwrap();
        let all = probe(&roots, &layout, &CgroupPath::from("/allostat"), false);
        assert!(all.iter().all(|c| !c.available && !c.reason.is_empty()), "{all:?}");
    }

    #[test]
    fn agent_without_cgroup_write_access_reports_task_metrics_and_only_useful_advice() {
        let has_io = std::path::Path::new("/proc/self/io").exists();
        let of = |observes, runs| {
            let advice = "set cgroup.peak_window_v1";
            let mut all = vec![
                Capability::no("cgroup", "run as root"),
                Capability::yes("cpu"),
                Capability::yes("io"),
                Capability::unknown("swap", "unknown"),
                Capability::yes("psi"),
                Capability::no(WINDOW_PEAK, advice),
                Capability::no("pids_peak", "needs a newer kernel"),
            ];
            without_cgroups(&mut all, &Roots::default(), observes, runs);
            all
        };
        for (observes, runs) in [(false, false), (false, true), (true, false), (true, true)] {
            let [cgroup, cpu, io, swap, psi, window, peak] = of(observes, runs).try_into().unwrap();
            assert_eq!(cgroup, Capability::no("cgroup", "run as root"));
            assert_eq!((cpu.available, psi.available, swap.unknown), (observes, observes, observes));
            assert_eq!(cpu.instead.contains("of a task of this agent"), runs, "{cpu:?}");
            assert_eq!(io.instead.is_empty(), !runs || !has_io && !observes, "{io:?}");
            assert_eq!(psi.instead == "of observed workloads only", observes && runs, "{psi:?}");
            assert!(!window.available && window.reason.contains("see `cgroup`"), "{window:?}");
            assert_eq!((peak.reason.as_str(), peak.instead.as_str()), ("needs a newer kernel", ""));
        }
    }

    #[test]
    fn every_feature_is_named_once() {
        let layout = Layout::detect(&Roots::default()).unwrap();
        let all = probe(&Roots::default(), &layout, &CgroupPath::from("/allostat"), false);
        let names: std::collections::BTreeSet<_> = all.iter().map(|c| &c.feature).collect();
        assert_eq!(names.len(), all.len());
        assert!(all.iter().all(|c| c.available == c.reason.is_empty()), "{all:?}");
    }

    /// A host with one hierarchy whose root has all controllers. Tests add cgroups by path, with the given files.
    struct TestHierarchy(tempfile::TempDir);

    impl TestHierarchy {
        fn v1(controllers: &[&str]) -> TestHierarchy {
            let line = |name: &&str| format!("3 2 0:3 / /sys/fs/cgroup/{name} rw - cgroup cgroup rw,{name}\n");
            let tree = TestHierarchy::mounted(&controllers.iter().map(line).collect::<String>());
            controllers.iter().for_each(|name| tree.cgroup(name, &[]));
            tree
        }
        fn v2() -> TestHierarchy {
            let tree = TestHierarchy::mounted("3 2 0:3 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
            tree.cgroup("", &[("cgroup.controllers", "memory pids")]);
            tree
        }
        fn mounted(mountinfo: &str) -> TestHierarchy {
            let tree = TestHierarchy(tempfile::tempdir().unwrap());
            std::fs::create_dir_all(tree.roots().proc("self")).unwrap();
            std::fs::write(tree.roots().proc("self/mountinfo"), mountinfo).unwrap();
            tree
        }
        fn roots(&self) -> Roots {
            Roots::below(self.0.path())
        }
        fn cgroup(&self, path: &str, files: &[(&str, &str)]) {
            let at = self.0.path().join("sys/fs/cgroup").join(path);
            std::fs::create_dir_all(&at).unwrap();
            for (name, text) in [("cgroup.procs", "")].iter().chain(files) {
                std::fs::write(at.join(name), text).unwrap();
            }
        }
        fn of(&self, feature: &str) -> Capability {
            let layout = Layout::detect(&self.roots()).unwrap();
            let all = probe(&self.roots(), &layout, &CgroupPath::from("/allostat"), false);
            all.into_iter().find(|c| c.feature == feature).unwrap()
        }
    }

    #[test]
    fn kernel_feature_is_available_if_any_cgroup_has_it_and_unknown_if_none_was_checked() {
        let tree = TestHierarchy::v1(&["pids", "memory"]);
        let unchecked = tree.of("pids_peak");
        assert!(unchecked.unknown && !unchecked.available, "{unchecked:?}");
        assert!(!unchecked.reason.contains("kernel"), "{unchecked:?}");
        tree.cgroup("pids/other", &[]);
        let lacking = tree.of("pids_peak");
        assert!(!lacking.unknown && lacking.reason.contains("this kernel has no pids.peak"), "{lacking:?}");
        tree.cgroup("pids/third", &[("pids.peak", "1\n")]);
        assert!(tree.of("pids_peak").available);
        // The agent's own cgroup decides: its tasks will have the same files.
        tree.cgroup("pids/allostat", &[]);
        assert!(!tree.of("pids_peak").available);
    }

    #[test]
    fn v2_cgroup_without_controllers_leaves_kernel_features_unknown() {
        let tree = TestHierarchy::v2();
        tree.cgroup("other", &[("cgroup.controllers", "pids")]);
        for feature in ["memory_peak", "memory_window_peak", "swap"] {
            assert!(tree.of(feature).unknown, "{:?}", tree.of(feature));
        }
        assert!(!tree.of("pids_peak").unknown, "that one it was handed");
        tree.cgroup("third", &[("cgroup.controllers", "memory"), ("memory.peak", "1\n")]);
        assert!(tree.of("memory_peak").available && tree.of("memory_window_peak").available);
        assert!(tree.of("swap").reason.contains("swapaccount"), "the file was checked");
    }

    /// Permission denied is covered in `tests/observed/narrow.rs`. Here a symlink to itself stands for a file that
    /// cannot be checked.
    #[test]
    fn file_without_access_is_not_reported_as_missing_in_kernel() {
        let tree = TestHierarchy::v1(&["pids"]);
        tree.cgroup("pids/allostat", &[]);
        let file = tree.0.path().join("sys/fs/cgroup/pids/allostat/pids.peak");
        std::os::unix::fs::symlink(&file, &file).unwrap();
        let unknown = tree.of("pids_peak");
        assert!(unknown.unknown && unknown.reason.contains("cannot read"), "{unknown:?}");
        tree.cgroup("pids/other", &[("pids.peak", "1\n")]);
        assert!(tree.of("pids_peak").available, "the other cgroup has the file");
    }
}
