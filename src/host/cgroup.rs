//! Creates, limits, kills and removes cgroups: the same path in every hierarchy in which tasks are placed.
//!
//! `cgroups-rs` writes the limits. Directories are created and removed here, because that crate discards the errors of
//! both. `collectors/` reads the measured values.

mod end;
mod limits;
mod nested;

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::hierarchy::{CgroupVersion, Hierarchy, Layout};
use super::roots::Roots;
use crate::model::id::CgroupPath;

pub use limits::{CgroupLimits, IoLimit, cpu_weight_of_shares};

#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error("cannot create the cgroup {}", path.display())]
    Create { path: PathBuf, source: io::Error },
    /// v2: a cgroup that contains processes cannot delegate controllers to its children (EBUSY).
    #[error("cannot enable {controllers} for the children of the cgroup {}", path.display())]
    Enable { path: PathBuf, controllers: String, source: io::Error },
    #[error("cannot set {what} to {value} in the cgroup {}", path.display())]
    Limit { what: &'static str, value: String, path: PathBuf, source: io::Error },
    #[error("{what} cannot be limited: this host has no {controller} controller")]
    NoController { what: &'static str, controller: &'static str },
    #[error("cannot attach a device program to the cgroup {}", path.display())]
    Gate { path: PathBuf, source: super::bpf::BpfError },
    #[error("cannot list the processes of the cgroup {}", path.display())]
    List { path: PathBuf, source: io::Error },
    #[error("cannot kill the processes of the cgroup {}", path.display())]
    Kill { path: PathBuf, source: io::Error },
    #[error("cannot remove the cgroup {}", path.display())]
    Remove { path: PathBuf, source: io::Error },
    #[error("no cgroup hierarchy is mounted in which a task can be placed")]
    NoHierarchy,
}

impl CgroupError {
    /// Whether a retry may succeed: EAGAIN, EBUSY, ENOMEM, ENOSPC.
    pub fn is_transient(&self) -> bool {
        let source = match self {
            CgroupError::Create { source, .. }
            | CgroupError::Enable { source, .. }
            | CgroupError::Limit { source, .. }
            | CgroupError::List { source, .. }
            | CgroupError::Kill { source, .. }
            | CgroupError::Remove { source, .. } => source,
            CgroupError::NoController { .. } | CgroupError::NoHierarchy | CgroupError::Gate { .. } => return false,
        };
        let passing = [libc::EAGAIN, libc::EBUSY, libc::ENOMEM, libc::ENOSPC, libc::EINTR];
        source.raw_os_error().is_some_and(|errno| passing.contains(&errno))
    }
}

/// One cgroup, as a path in every hierarchy in which it is created. Plain data: the supervisor receives it in its
/// orders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    pub path: CgroupPath,
    pub places: Vec<CgroupDir>,
}

/// The cgroup's directory in one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupDir {
    /// The mount point of the hierarchy.
    pub mount: PathBuf,
    pub directory: PathBuf,
    pub unified: bool,
    /// The hierarchy's controllers that measure or limit a task.
    pub controllers: Vec<String>,
}

/// v2 controllers that are delegated to tasks if they are available.
const V2_CONTROLLERS: [&str; 4] = ["cpu", "io", "memory", "pids"];

/// v1 only: on v2 a BPF program controls access to devices ([`gate`](crate::kernel::bpf::gate)).
const DEVICES: &str = "devices";

const CPUSET: &str = "cpuset";

/// The path of this process in the unified hierarchy. `None`: there is no such hierarchy, or the cgroup was removed.
pub fn own(roots: &Roots) -> Option<CgroupPath> {
    let text = roots.read_proc("self/cgroup").ok()?;
    crate::kernel::proc::cgroup::unified(&text).map(CgroupPath::from)
}

/// The cgroup directory of this process in a hierarchy. `None`: the cgroup was removed, or its path is unknown because
/// of a cgroup namespace.
///
/// Source: `PROC_CGROUP_INIT_INO` in include/linux/proc_ns.h is the inode number of the initial namespace.
pub fn own_directory(roots: &Roots, hierarchy: &Hierarchy) -> Option<PathBuf> {
    let namespace = std::fs::read_link(roots.proc("self/ns/cgroup")).ok()?;
    let text = roots.read_proc("self/cgroup").ok().filter(|_| namespace.as_os_str() == "cgroup:[4026531835]")?;
    let controller = match hierarchy.version {
        CgroupVersion::V1 => Some(hierarchy.controllers.first()?.as_str()),
        CgroupVersion::V2 => None,
    };
    crate::kernel::proc::cgroup::place(&text, controller).map(|path| hierarchy.directory(path))
}

/// The cores that a task can reserve: those of the host, or of the agent's cpuset. Empty: there is no cpuset
/// controller.
pub fn cores(layout: &Layout) -> Vec<u32> {
    let Some(home) = layout.controller(CPUSET) else { return Vec::new() };
    let file = match home.version {
        CgroupVersion::V1 => "cpuset.effective_cpus",
        CgroupVersion::V2 => "cpuset.cpus.effective",
    };
    let files = [file, "cpuset.cpus"].into_iter().map(|file| home.mount.join(file));
    let read = |path: PathBuf| super::untrusted::read(&path, 1 << 16).ok();
    let parsed = files.filter_map(read).find_map(|bytes| crate::kernel::cgroup::cpuset::list(file, &bytes).ok());
    let online: Vec<u32> = parsed.unwrap_or_default();
    let own = rustix::thread::sched_getaffinity(None).ok();
    let may = |core: &u32| {
        let core = usize::try_from(*core).unwrap_or(usize::MAX);
        own.as_ref().is_none_or(|own| core < rustix::thread::CpuSet::MAX_CPU && own.is_set(core))
    };
    online.into_iter().filter(may).collect()
}

impl Cgroup {
    pub fn at(layout: &Layout, path: &CgroupPath) -> Cgroup {
        let places = layout.placements().map(|hierarchy| {
            let unified = hierarchy.version == CgroupVersion::V2;
            let accepts = |c: &&String| !unified || V2_CONTROLLERS.contains(&c.as_str());
            CgroupDir {
                mount: hierarchy.mount.clone(),
                directory: hierarchy.mount.join(path.relative()),
                unified,
                controllers: hierarchy.controllers.iter().filter(accepts).cloned().collect(),
            }
        });
        Cgroup { path: path.clone(), places: places.collect() }
    }

    /// Adds v1's devices hierarchy if there is one. Needed for a task with restricted devices, and to clean up a cgroup
    /// that may have belonged to one.
    #[must_use]
    pub fn with_devices(mut self, layout: &Layout) -> Cgroup {
        let home = layout.controller(DEVICES).filter(|hierarchy| hierarchy.version == CgroupVersion::V1);
        if let Some(home) = home
            && self.controller(DEVICES).is_none()
        {
            self.places.push(CgroupDir {
                mount: home.mount.clone(),
                directory: home.mount.join(self.path.relative()),
                unified: false,
                controllers: home.controllers.clone(),
            });
        }
        self
    }

    /// Adds the cpuset hierarchy if there is one. Needed for a task with its own cores, and to clean up a cgroup that
    /// may have belonged to one. v1: a new cpuset accepts no process before [`Cgroup::limit`] has set it up.
    #[must_use]
    pub fn with_cpuset(mut self, layout: &Layout) -> Cgroup {
        let Some(home) = layout.controller(CPUSET).filter(|_| self.controller(CPUSET).is_none()) else { return self };
        match self.places.iter_mut().find(|place| place.mount == home.mount) {
            Some(place) if place.unified => place.controllers.push(CPUSET.to_owned()),
            Some(_) => {}
            None => self.places.push(CgroupDir {
                mount: home.mount.clone(),
                directory: home.mount.join(self.path.relative()),
                unified: home.version == CgroupVersion::V2,
                controllers: vec![CPUSET.to_owned()],
            }),
        }
        self
    }

    /// Adds all other v1 hierarchies: container runtimes create cgroups in all of them and leave the parents behind.
    #[must_use]
    pub fn everywhere(mut self, layout: &Layout) -> Cgroup {
        for hierarchy in layout.hierarchies().iter().filter(|hierarchy| hierarchy.version == CgroupVersion::V1) {
            if self.places.iter().any(|place| place.mount == hierarchy.mount) {
                continue;
            }
            self.places.push(CgroupDir {
                mount: hierarchy.mount.clone(),
                directory: hierarchy.mount.join(self.path.relative()),
                unified: false,
                controllers: hierarchy.controllers.clone(),
            });
        }
        self
    }

    pub fn exists(&self) -> bool {
        self.places.iter().any(|p| p.directory.is_dir())
    }

    /// Creates the cgroup and its missing parents; an existing cgroup is no error. Errors: directories that this call
    /// created are removed again.
    pub fn create(&self) -> Result<(), CgroupError> {
        if self.places.is_empty() {
            return Err(CgroupError::NoHierarchy);
        }
        let mut made = Vec::new();
        let result = self.places.iter().try_for_each(|place| place.create(&mut made));
        if result.is_err() {
            made.iter().rev().for_each(|directory| drop(std::fs::remove_dir(directory)));
        }
        result
    }

    /// Removes the cgroup if it contains no process and no child cgroup. Returns whether it is gone from every
    /// hierarchy.
    pub fn remove_if_empty(&self) -> bool {
        let is_removed = |place: &CgroupDir| match std::fs::remove_dir(&place.directory) {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        self.places.iter().filter(|place| !is_removed(place)).count() == 0
    }

    /// Creates an empty cgroup: kills and removes one that an earlier attempt left at the same path.
    pub fn create_fresh(&self) -> Result<(), CgroupError> {
        if self.exists() {
            self.end(std::time::Duration::from_secs(5))?;
            self.remove(std::time::Duration::from_secs(1))?;
        }
        self.create()
    }

    /// Its directory in the unified hierarchy.
    pub fn unified(&self) -> Option<&CgroupDir> {
        self.places.iter().find(|p| p.unified)
    }
    /// Its directory in the hierarchy of this controller.
    pub fn controller(&self, name: &str) -> Option<&CgroupDir> {
        self.places.iter().find(|p| p.controllers.iter().any(|c| c == name))
    }
}

impl CgroupDir {
    fn create(&self, made: &mut Vec<PathBuf>) -> Result<(), CgroupError> {
        let below = self.directory.strip_prefix(&self.mount).unwrap_or(Path::new(""));
        let mut parent = self.mount.clone();
        for component in below.components() {
            let directory = parent.join(component);
            let missing = !directory.is_dir();
            // Existing parents may not have the cpuset controller enabled for their children yet.
            if missing || self.controllers.iter().any(|c| c == CPUSET) {
                self.enable_controllers(&parent)?;
            }
            if missing {
                match std::fs::create_dir(&directory) {
                    Ok(()) => made.push(directory.clone()),
                    Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                    Err(source) => return Err(CgroupError::Create { path: directory, source }),
                }
            }
            parent = directory;
        }
        Ok(())
    }

    /// v2: enables the controllers of this cgroup for the children of `parent`. Writes only those that are missing.
    fn enable_controllers(&self, parent: &Path) -> Result<(), CgroupError> {
        if !self.unified || self.controllers.is_empty() {
            return Ok(());
        }
        let path = parent.join("cgroup.subtree_control");
        let now = std::fs::read_to_string(&path).unwrap_or_default();
        let missing: Vec<_> = self.controllers.iter().filter(|c| !now.split_whitespace().any(|n| n == *c)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let text = missing.iter().map(|c| format!("+{c}")).collect::<Vec<_>>().join(" ");
        std::fs::write(&path, &text).map_err(|source| {
            let controllers = missing.iter().map(|c| c.as_str()).collect::<Vec<_>>().join(", ");
            CgroupError::Enable { path: parent.to_owned(), controllers, source }
        })
    }
}
