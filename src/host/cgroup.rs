//! Creates, limits, ends and removes cgroups: the same path in every hierarchy where tasks are placed.
//!
//! Limits are written by `cgroups-rs`; making and removing directories is done here, because that crate swallows the errors of
//! both. Nothing here reads values for measuring: that is `collectors/`.

mod end;
mod limits;
mod nested;

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::hierarchy::{Hierarchy, Layout, Version};
use super::roots::Roots;
use crate::model::id::CgroupPath;

pub use limits::{IoLimit, Limits, cpu_weight_of_shares};

#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error("cannot create the cgroup {}", path.display())]
    Create { path: PathBuf, source: io::Error },
    /// v2: a cgroup that holds processes itself cannot hand controllers to its children (EBUSY).
    #[error("cannot enable {controllers} for the children of the cgroup {}", path.display())]
    Enable { path: PathBuf, controllers: String, source: io::Error },
    #[error("cannot set {what} to {value} in the cgroup {}", path.display())]
    Limit { what: &'static str, value: String, path: PathBuf, source: io::Error },
    #[error("{what} cannot be limited: this host has no {controller} controller")]
    NoController { what: &'static str, controller: &'static str },
    #[error("cannot put a program before the devices of the cgroup {}", path.display())]
    Gate { path: PathBuf, source: super::bpf::BpfError },
    #[error("cannot list the processes of the cgroup {}", path.display())]
    List { path: PathBuf, source: io::Error },
    #[error("cannot end the processes of the cgroup {}", path.display())]
    Kill { path: PathBuf, source: io::Error },
    #[error("cannot remove the cgroup {}", path.display())]
    Remove { path: PathBuf, source: io::Error },
    #[error("no cgroup hierarchy is mounted that a task could be placed in")]
    NoHierarchy,
}

impl CgroupError {
    /// EAGAIN, EBUSY, ENOMEM, ENOSPC: trying again may help.
    pub fn is_passing(&self) -> bool {
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

/// One cgroup, in every hierarchy where it is made. Plain values: the supervisor gets it in its orders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    pub path: CgroupPath,
    pub places: Vec<CgroupDir>,
}

/// Its directory in one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupDir {
    /// Where the hierarchy is mounted.
    pub mount: PathBuf,
    pub directory: PathBuf,
    pub unified: bool,
    /// Those of the hierarchy that measure or limit a task.
    pub controllers: Vec<String>,
}

/// v2 controllers that are handed down to tasks where there are any.
const V2_CONTROLLERS: [&str; 4] = ["cpu", "io", "memory", "pids"];

/// v1 only: on v2 a program stands before devices ([`gate`](crate::kernel::bpf::gate)).
const DEVICES: &str = "devices";

const CPUSET: &str = "cpuset";

/// Where this process is in the unified tree. `None`: there is none, or the place was removed.
pub fn own(roots: &Roots) -> Option<CgroupPath> {
    let text = roots.read_proc("self/cgroup").ok()?;
    crate::kernel::proc::cgroup::unified(&text).map(CgroupPath::from)
}

/// Where this process is in a hierarchy. `None`: the place was removed, or nobody says where it is, in a namespace of cgroups.
///
/// Source: `PROC_CGROUP_INIT_INO` in include/linux/proc_ns.h is the number of the first namespace.
pub fn own_directory(roots: &Roots, hierarchy: &Hierarchy) -> Option<PathBuf> {
    let namespace = std::fs::read_link(roots.proc("self/ns/cgroup")).ok()?;
    let text = roots.read_proc("self/cgroup").ok().filter(|_| namespace.as_os_str() == "cgroup:[4026531835]")?;
    let controller = match hierarchy.version {
        Version::V1 => Some(hierarchy.controllers.first()?.as_str()),
        Version::V2 => None,
    };
    crate::kernel::proc::cgroup::place(&text, controller).map(|path| hierarchy.directory(path))
}

/// Cores that a task can have for itself: those of the host, or of where the agent lives. Empty: there is no controller of cpusets.
pub fn cores(layout: &Layout) -> Vec<u32> {
    let Some(home) = layout.controller(CPUSET) else { return Vec::new() };
    let file = match home.version {
        Version::V1 => "cpuset.effective_cpus",
        Version::V2 => "cpuset.cpus.effective",
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
            let unified = hierarchy.version == Version::V2;
            let wanted = |c: &&String| !unified || V2_CONTROLLERS.contains(&c.as_str());
            CgroupDir {
                mount: hierarchy.mount.clone(),
                directory: hierarchy.mount.join(path.relative()),
                unified,
                controllers: hierarchy.controllers.iter().filter(wanted).cloned().collect(),
            }
        });
        Cgroup { path: path.clone(), places: places.collect() }
    }

    /// With a place in v1's hierarchy of devices, if there is one: made for a task that is not to open all of them, looked for by whoever
    /// removes what may be of such a task.
    #[must_use]
    pub fn with_devices(mut self, layout: &Layout) -> Cgroup {
        let home = layout.controller(DEVICES).filter(|hierarchy| hierarchy.version == Version::V1);
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

    /// With a place in the hierarchy of cpusets, if there is one: made for a task that has cores of its own, searched for by the code that removes
    /// what may be of such a task. v1: a new cpuset takes no process before [`Cgroup::limit`] has set it up.
    #[must_use]
    pub fn with_cpuset(mut self, layout: &Layout) -> Cgroup {
        let Some(home) = layout.controller(CPUSET).filter(|_| self.controller(CPUSET).is_none()) else { return self };
        match self.places.iter_mut().find(|place| place.mount == home.mount) {
            Some(place) if place.unified => place.controllers.push(CPUSET.to_owned()),
            Some(_) => {}
            None => self.places.push(CgroupDir {
                mount: home.mount.clone(),
                directory: home.mount.join(self.path.relative()),
                unified: home.version == Version::V2,
                controllers: vec![CPUSET.to_owned()],
            }),
        }
        self
    }

    /// With a place in each other hierarchy of v1 too: runtimes of containers enter all of them, and leave the parents there.
    #[must_use]
    pub fn everywhere(mut self, layout: &Layout) -> Cgroup {
        for hierarchy in layout.hierarchies().iter().filter(|hierarchy| hierarchy.version == Version::V1) {
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

    /// Makes it, with the parents that are missing; that it exists already is fine. Errors: what this call made is removed
    /// again.
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

    /// Removes it where nothing is in it, no process and no cgroup: else the kernel refuses. Whether it is gone everywhere.
    pub fn remove_if_empty(&self) -> bool {
        let gone = |place: &CgroupDir| match std::fs::remove_dir(&place.directory) {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        self.places.iter().filter(|place| !gone(place)).count() == 0
    }

    /// Makes it anew: one of that path that is still there (of an attempt nobody saw the end of) is ended and removed.
    pub fn create_fresh(&self) -> Result<(), CgroupError> {
        if self.exists() {
            self.end(std::time::Duration::from_secs(5))?;
            self.remove(std::time::Duration::from_secs(1))?;
        }
        self.create()
    }

    /// Its place in the unified tree.
    pub fn unified(&self) -> Option<&CgroupDir> {
        self.places.iter().find(|p| p.unified)
    }
    /// Where a controller lives.
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
            // Of a cpuset the parents that are there have none to hand down yet.
            if missing || self.controllers.iter().any(|c| c == CPUSET) {
                self.hand_down(&parent)?;
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

    /// v2: lets the children of `parent` have our controllers. Only those that are missing are written.
    fn hand_down(&self, parent: &Path) -> Result<(), CgroupError> {
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
