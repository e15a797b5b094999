//! From orders to the root directory, the namespaces and the rights of a confined task.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::mount::MountFlags;

use super::orders::{Mount, SandboxNode, SandboxOrders};
use super::record::MainOutcome;
use super::start::{refuse, refused, text};
use crate::host::process::{
    HostTree, RootPlan, RootStep, RunningSandbox, Sandbox, SandboxError, SandboxStep, binds_whole_trees, errno_text,
};
use crate::host::seccomp;
use crate::model::volume::{MountPropagation, TaskVolume};

/// Of the kernel's own files: what is closed to writers, and what is hidden. As in Docker and Nomad.
const CLOSED: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];
const HIDDEN: [&str; 11] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];
/// In `/dev`, of the host.
const NODES: [&str; 6] = ["full", "null", "random", "tty", "urandom", "zero"];
const LINKS: [(&str, &str); 5] = [
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
    ("pts/ptmx", "/dev/ptmx"),
];

/// Its root and its namespaces. Errors: what failed, as it will stand in the record; nothing is left.
pub fn confine(orders: &SandboxOrders) -> Result<RunningSandbox, MainOutcome> {
    let network = match &orders.network {
        Some(path) => {
            Some(File::open(path).map_err(|e| refused("cannot open the network namespace ", path, &e))?.into())
        }
        None => None,
    };
    let sandbox = Sandbox {
        root: RootPlan {
            directory: text(&orders.root, "the directory")?,
            pivots: orders.pivots,
            whole_trees: binds_whole_trees(),
            steps: RootSteps::of(orders)?,
        },
        own_pids: orders.own_pids,
        own_ipc: orders.own_ipc,
        network,
        capabilities: orders.capabilities,
        filters: orders.filters.iter().map(seccomp::instructions).collect(),
    };
    RunningSandbox::begin(sandbox).map_err(|(sandbox, error)| explain(orders, &sandbox, error))
}

fn explain(orders: &SandboxOrders, sandbox: &Sandbox, error: SandboxError) -> MainOutcome {
    let why = errno_text(error.errno);
    let message = match error.step {
        SandboxStep::Fork => format!("cannot make a process: {why}"),
        SandboxStep::Namespaces => format!("cannot make the namespaces of the task: {why}"),
        SandboxStep::Network => {
            let path = orders.network.as_deref().unwrap_or(Path::new("")).display();
            format!("cannot join the network namespace {path}: {why}")
        }
        SandboxStep::Root if error.errno == libc::EINVAL && orders.pivots => {
            let root = orders.root.display();
            format!("cannot make {root} the root directory of the task: {why} (on a RAM disk, set exec.no_pivot_root)")
        }
        SandboxStep::Root => format!("cannot make {} the root directory of the task: {why}", orders.root.display()),
        SandboxStep::Step(index) => {
            let attempt = sandbox.root.steps.get(index).map(RootStep::attempt).unwrap_or_default();
            format!("cannot {attempt} in the root directory of the task, {}: {why}", orders.root.display())
        }
        SandboxStep::Harden => format!("cannot drop the capabilities of the first process of the task: {why}"),
    };
    refuse(message, Some(error.errno))
}

/// What has to be made in the root, in order.
struct RootSteps {
    steps: Vec<RootStep>,
    directories: BTreeSet<PathBuf>,
}

impl RootSteps {
    fn of(orders: &SandboxOrders) -> Result<Vec<RootStep>, MainOutcome> {
        let mut all = RootSteps { steps: Vec::new(), directories: BTreeSet::new() };
        // First, while nothing but its own directory can be reached: a task that becomes several users needs both.
        all.steps.push(RootStep::Mode { path: c"/".to_owned(), mode: 0o711 });
        all.directory(Path::new("/tmp"))?;
        all.steps.push(RootStep::Mode { path: c"/tmp".to_owned(), mode: 0o1777 });
        for mount in &orders.mounts {
            all.bind(&orders.root, mount)?;
        }
        all.kernel(orders)?;
        all.devices(orders)?;
        for (host, inside) in &orders.hidden {
            all.hide(host, inside)?;
        }
        orders.volumes.iter().try_for_each(|volume| all.volume(volume))?;
        Ok(all.steps)
    }

    /// With those above it.
    fn directory(&mut self, path: &Path) -> Result<(), MainOutcome> {
        let mut above: Vec<&Path> = path.ancestors().filter(|path| path.parent().is_some()).collect();
        above.reverse();
        for path in above {
            if self.directories.insert(path.to_owned()) {
                self.steps.push(RootStep::Directory { path: inside(path)?, mode: 0o755 });
            }
        }
        Ok(())
    }

    /// Something to mount over.
    fn place(&mut self, is_directory: bool, path: &Path) -> Result<(), MainOutcome> {
        if is_directory {
            return self.directory(path);
        }
        self.directory(path.parent().unwrap_or(path))?;
        self.steps.push(RootStep::File(inside(path)?));
        Ok(())
    }

    /// Left out where the host has no such thing.
    fn bind(&mut self, root: &Path, mount: &Mount) -> Result<(), MainOutcome> {
        let failed = |e: &io::Error| refused("cannot mount ", &mount.host, e);
        // What the agent made for the task is followed through no link.
        if mount.needed && std::fs::symlink_metadata(&mount.host).map_err(|e| failed(&e))?.is_symlink() {
            return Err(failed(&io::Error::other("it is a symbolic link")));
        }
        // It comes with the root.
        if !mount.read_only && mount.inside.strip_prefix("/").is_ok_and(|inside| root.join(inside) == mount.host) {
            return Ok(());
        }
        let found = std::fs::canonicalize(&mount.host).and_then(|host| Ok((std::fs::metadata(&host)?.is_dir(), host)));
        let (is_directory, host) = match found {
            Ok(found) => found,
            Err(e) if e.kind() == io::ErrorKind::NotFound && !mount.needed => return Ok(()),
            Err(e) => return Err(failed(&e)),
        };
        self.place(is_directory, &mount.inside)?;
        let (source, path) = (outside(&host)?, inside(&mount.inside)?);
        self.steps.push(RootStep::Bind { source, path, read_only: mount.read_only });
        Ok(())
    }

    /// Of the host's settings: links in its path are theirs too. What is there is opened here, once.
    fn volume(&mut self, volume: &TaskVolume) -> Result<(), MainOutcome> {
        let failed = |e: &io::Error| refused("cannot mount the host volume ", &volume.host, e);
        let host = std::fs::canonicalize(&volume.host).map_err(|e| failed(&e))?;
        let is_directory = std::fs::metadata(&host).map_err(|e| failed(&e))?.is_dir();
        // An earlier one may cover what was made below it.
        self.directories.clear();
        self.place(is_directory, &volume.inside)?;
        let (source, path) = (outside(&host)?, inside(&volume.inside)?);
        self.steps.push(match (HostTree::open(&host), volume.propagation) {
            (Ok(tree), propagation) => {
                RootStep::Volume { tree, source, path, read_only: volume.read_only, propagation }
            }
            // Before Linux 5.12.
            (Err(e), MountPropagation::Private) if e.kind() == io::ErrorKind::Unsupported => {
                RootStep::Bind { source, path, read_only: volume.read_only }
            }
            (Err(e), _) => return Err(failed(&e)),
        });
        Ok(())
    }

    fn mount(&mut self, kind: &str, path: &str, flags: MountFlags, data: &str) -> Result<(), MainOutcome> {
        self.directory(Path::new(path))?;
        let (kind, path, data) = (text(kind, "a mount")?, text(path, "a mount")?, text(data, "a mount")?);
        self.steps.push(RootStep::Mount { kind, path, flags, data });
        Ok(())
    }

    fn kernel(&mut self, orders: &SandboxOrders) -> Result<(), MainOutcome> {
        let plain = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        self.mount("proc", "/proc", plain, "")?;
        self.mount("sysfs", "/sys", plain | MountFlags::RDONLY, "")?;
        for path in CLOSED.iter().filter(|path| Path::new(path).exists()) {
            self.steps.push(RootStep::Close(text(path, "a path")?));
        }
        HIDDEN.iter().try_for_each(|path| self.hide(Path::new(path), Path::new(path)))?;
        self.mount("tmpfs", "/dev", MountFlags::NOSUID | MountFlags::NOEXEC, "mode=755,size=64k")?;
        self.mount(
            "devpts",
            "/dev/pts",
            MountFlags::NOSUID | MountFlags::NOEXEC,
            "newinstance,ptmxmode=0666,mode=0620,gid=5",
        )?;
        self.mount("tmpfs", "/dev/shm", plain, "mode=1777,size=65536k")?;
        if orders.own_ipc && Path::new("/proc/sys/fs/mqueue").exists() {
            self.mount("mqueue", "/dev/mqueue", plain, "")?;
        }
        Ok(())
    }

    fn devices(&mut self, orders: &SandboxOrders) -> Result<(), MainOutcome> {
        let usual = NODES.iter().map(|name| Path::new("/dev").join(name)).filter(|node| node.exists());
        let usual = usual.map(|node| SandboxNode { host: node.clone(), inside: node });
        for node in usual.chain(orders.devices.iter().cloned()) {
            self.place(false, &node.inside)?;
            self.steps.push(RootStep::Node { source: outside(&node.host)?, path: inside(&node.inside)? });
        }
        for (to, path) in LINKS {
            self.steps.push(RootStep::Link { to: text(to, "a link")?, path: text(path, "a link")? });
        }
        self.steps.push(RootStep::Seal(c"/dev".to_owned()));
        Ok(())
    }

    /// An empty file or directory stands there instead. Left out where the host has no such thing.
    fn hide(&mut self, host: &Path, path: &Path) -> Result<(), MainOutcome> {
        let Ok(found) = std::fs::metadata(host) else { return Ok(()) };
        let path = inside(path)?;
        self.steps.push(if found.is_dir() {
            let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
            RootStep::Mount { kind: c"tmpfs".to_owned(), path, flags, data: c"mode=755,size=4k".to_owned() }
        } else {
            RootStep::Node { source: c"dev/null".to_owned(), path }
        });
        Ok(())
    }
}

fn inside(path: &Path) -> Result<CString, MainOutcome> {
    text(path, "a path")
}

/// As it is called from the host's root.
fn outside(path: &Path) -> Result<CString, MainOutcome> {
    let relative = path.strip_prefix("/").unwrap_or(path);
    text(if relative.as_os_str().as_bytes().is_empty() { Path::new(".") } else { relative }, "a path")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::process::Capabilities;

    fn orders(mounts: Vec<Mount>) -> SandboxOrders {
        SandboxOrders {
            root: "/data/task".into(),
            pivots: true,
            own_pids: true,
            own_ipc: false,
            network: None,
            mounts,
            hidden: vec![("/etc/passwd".into(), "/x/passwd".into()), ("/no/such".into(), "/x/y".into())],
            volumes: Vec::new(),
            devices: vec![SandboxNode { host: "/dev/made/up".into(), inside: "/dev/seen/here".into() }],
            capabilities: Capabilities::NONE,
            filters: Vec::new(),
        }
    }
    fn mount(host: &str, inside: &str) -> Mount {
        Mount { host: host.into(), inside: inside.into(), read_only: true, needed: false }
    }
    fn attempts(orders: &SandboxOrders) -> Vec<String> {
        RootSteps::of(orders).unwrap().iter().map(RootStep::attempt).collect()
    }

    #[test]
    fn each_directory_is_made_once_and_what_the_host_does_not_have_is_left_out() {
        let all =
            attempts(&orders(vec![mount("/usr", "/a/b"), mount("/etc/passwd", "/a/c/d"), mount("/no/such", "/e")]));
        let begin = ["make the directory /a", "make the directory /a/b", "mount /usr of the host as /a/b"];
        let then = ["make the directory /a/c", "make the file /a/c/d", "mount /etc/passwd of the host as /a/c/d"];
        let at = all.iter().position(|step| step == begin[0]).unwrap();
        assert_eq!(all[at..at + 6], [begin, then].concat());
        assert!(
            !all.iter().any(|step| step.contains("/e ") || step.ends_with("/e") || step.contains("/x/y")),
            "{all:?}"
        );
        assert_eq!(all.last().unwrap(), "mount /dev/null of the host as /x/passwd");
    }

    #[test]
    fn devices_are_made_before_the_directory_is_closed() {
        let all = attempts(&orders(Vec::new()));
        let at = |expected: &str| {
            all.iter().position(|step| step == expected).unwrap_or_else(|| panic!("{expected}: {all:?}"))
        };
        let node = at("mount /dev/made/up of the host as /dev/seen/here");
        assert!(at("mount tmpfs on /dev") < at("make the directory /dev/seen") && node < at("make /dev read-only"));
        assert!(at("mount proc on /proc") < at("make /proc/sys read-only"));
    }

    #[test]
    fn required_mount_that_is_missing_is_named() {
        let needed = Mount { needed: true, ..mount("/no/such", "/alloc") };
        let Err(MainOutcome::NotStarted { message, recoverable }) = RootSteps::of(&orders(vec![needed])) else {
            panic!("it goes on")
        };
        assert!(message.starts_with("cannot mount /no/such: No such file") && !recoverable, "{message}");
    }

    #[test]
    fn mounts_inside_the_root_are_skipped_and_symlinks_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let own = |name: &str| Mount {
            host: dir.path().join(name),
            inside: Path::new("/").join(name),
            read_only: false,
            needed: true,
        };
        std::fs::create_dir(dir.path().join("local")).unwrap();
        std::os::unix::fs::symlink("/etc", dir.path().join("secrets")).unwrap();
        let with = |mount: Mount| SandboxOrders { root: dir.path().to_owned(), ..orders(vec![mount]) };
        assert!(!attempts(&with(own("local"))).iter().any(|step| step.ends_with("/local")));
        let Err(MainOutcome::NotStarted { message, .. }) = RootSteps::of(&with(own("secrets"))) else {
            panic!("it is followed")
        };
        assert!(message.ends_with("secrets: it is a symbolic link"), "{message}");
    }
}
