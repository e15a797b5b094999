//! Finds the mounted cgroup hierarchies in mountinfo; holds an O_PATH descriptor of each root.
//!
//! Source: `/proc/self/mountinfo`; on v2 also `cgroup.controllers` in the root of the tree (4.5).

use std::error::Error;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use super::roots::{ReadError, Roots, open_path};
use crate::kernel::proc::mountinfo;
use crate::model::id::CgroupPath;
use crate::model::{raw_name, words};

/// Controllers that measure, limit or freeze a task. The agent does not use a v1 hierarchy with none of them
/// (`name=systemd`, `devices`, `perf_event` ...), nor `cpuset`: a fresh v1 cpuset accepts no process before it is set
/// up.
const USED: [&str; 6] = ["cpu", "cpuacct", "memory", "blkio", "pids", "freezer"];

words! {
    /// The cgroup setup of a host.
    pub enum CgroupMode {
        /// Controllers in v1 hierarchies, no unified hierarchy.
        V1 = "v1",
        /// One unified hierarchy.
        V2 = "v2",
        /// v1 controllers and a unified hierarchy, which provides PSI, `cpu.stat` and `cgroup.kill`.
        Hybrid = "hybrid",
        None = "none",
    }
}

/// Version of the cgroup interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CgroupVersion {
    V1,
    V2,
}

/// One mounted hierarchy.
#[derive(Debug)]
pub struct Hierarchy {
    pub version: CgroupVersion,
    /// v1: from the superblock options. v2: `cgroup.controllers` of the root, or of the agent's parent: see
    /// [`Layout::narrow`].
    pub controllers: Vec<String>,
    /// v2: controllers of the root that the agent's parent lacks.
    pub withheld: Vec<String>,
    /// Its mount point, below the configured roots.
    pub mount: PathBuf,
    root: OwnedFd,
}

impl Hierarchy {
    /// The root, for `openat`, `mkdirat`, `unlinkat`.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
    /// The directory of a cgroup path.
    pub fn directory(&self, path: &str) -> PathBuf {
        self.mount.join(raw_name::path(path.trim_start_matches('/')))
    }
    pub fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|c| c == controller)
    }
}

/// The cgroup hierarchies of this host.
#[derive(Debug)]
pub struct Layout {
    hierarchies: Vec<Hierarchy>,
    /// Mountinfo entries that could not be parsed or opened, for the log.
    problems: Vec<String>,
}

impl Layout {
    /// Reads mountinfo once. If a hierarchy is mounted several times, the mount that shows most of it is used: in a
    /// container the host's, not the container's own. Errors: mountinfo cannot be read. A mount that cannot be opened
    /// is left out and named in [`Layout::problems`].
    pub fn detect(roots: &Roots) -> Result<Layout, ReadError> {
        let (mut mounts, bad) = mountinfo::cgroups(&roots.read_proc("self/mountinfo")?);
        mounts.sort_by_key(mountinfo::CgroupMount::depth);
        let mut layout = Layout { hierarchies: Vec::new(), problems: bad.iter().map(ToString::to_string).collect() };
        for mount in mounts {
            let known = layout.hierarchies.iter().any(|h| match mount.unified {
                true => h.version == CgroupVersion::V2,
                false => h.version == CgroupVersion::V1 && h.controllers == mount.controllers,
            });
            if !known && let Err(problem) = layout.add(roots, mount) {
                let why = problem.source().map(|s| format!(": {s}")).unwrap_or_default();
                layout.problems.push(format!("{problem}{why}"));
            }
        }
        Ok(layout)
    }

    fn add(&mut self, roots: &Roots, found: mountinfo::CgroupMount) -> Result<(), ReadError> {
        let mount = roots.mounted(&found.mount_point);
        let root = open_path(&mount)?;
        let (version, controllers) = match found.unified {
            true => (CgroupVersion::V2, v2_controllers(&mount)?),
            false => (CgroupVersion::V1, found.controllers),
        };
        self.hierarchies.push(Hierarchy { version, controllers, withheld: Vec::new(), mount, root });
        Ok(())
    }

    /// Restricts the v2 controllers to those that the cgroup `parent` can get: a parent decides which controllers it
    /// delegates, and a user's systemd usually has no `io`. Uses the parent of `parent`, or the nearest existing
    /// ancestor.
    #[must_use]
    pub fn narrow(mut self, parent: &CgroupPath) -> Layout {
        for hierarchy in self.hierarchies.iter_mut().filter(|h| h.version == CgroupVersion::V2) {
            let expected = hierarchy.mount.join(parent.relative());
            let nearest = expected.ancestors().skip(1).find(|dir| dir.is_dir()).unwrap_or(&hierarchy.mount);
            // `parent` is the root itself, which has no parent cgroup.
            let Ok(offered) = v2_controllers(nearest) else { continue };
            let (controllers, withheld) = hierarchy.controllers.drain(..).partition(|c| offered.contains(c));
            (hierarchy.controllers, hierarchy.withheld) = (controllers, withheld);
        }
        self
    }

    pub fn mode(&self) -> CgroupMode {
        let v1 =
            self.hierarchies.iter().any(|h| h.version == CgroupVersion::V1 && h.controllers.iter().any(|c| used(c)));
        match (v1, self.unified().is_some()) {
            (true, true) => CgroupMode::Hybrid,
            (true, false) => CgroupMode::V1,
            (false, true) => CgroupMode::V2,
            (false, false) => CgroupMode::None,
        }
    }

    /// The hierarchy of a controller, in either version.
    pub fn controller(&self, name: &str) -> Option<&Hierarchy> {
        self.hierarchies.iter().find(|h| h.has(name))
    }

    /// The cgroup2 hierarchy; on hybrid hosts it has few controllers or none.
    pub fn unified(&self) -> Option<&Hierarchy> {
        self.hierarchies.iter().find(|h| h.version == CgroupVersion::V2)
    }

    /// Hierarchies in which a task gets a cgroup: each v1 hierarchy with a controller in use, and the unified
    /// hierarchy.
    pub fn placements(&self) -> impl Iterator<Item = &Hierarchy> {
        self.hierarchies.iter().filter(|h| h.version == CgroupVersion::V2 || h.controllers.iter().any(|c| used(c)))
    }

    pub fn hierarchies(&self) -> &[Hierarchy] {
        &self.hierarchies
    }

    pub fn problems(&self) -> &[String] {
        &self.problems
    }
}

fn used(controller: &str) -> bool {
    USED.contains(&controller)
}

fn v2_controllers(mount: &Path) -> Result<Vec<String>, ReadError> {
    let path = mount.join("cgroup.controllers");
    let bytes = std::fs::read(&path).map_err(|e| ReadError::new(path, e))?;
    Ok(String::from_utf8_lossy(&bytes).split_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(mounts: &str) -> (tempfile::TempDir, Roots) {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        std::fs::create_dir_all(roots.proc("self")).unwrap();
        let mut text = String::new();
        for (i, line) in mounts.lines().enumerate() {
            let (name, options) = line.split_once(' ').unwrap();
            let kind = if options.starts_with('+') { "cgroup2" } else { "cgroup" };
            std::fs::create_dir_all(roots.sys.join("fs/cgroup").join(name)).unwrap();
            if let Some(controllers) = options.strip_prefix('+') {
                std::fs::write(roots.sys.join("fs/cgroup").join(name).join("cgroup.controllers"), controllers).unwrap();
            }
            let options = if kind == "cgroup" { options } else { "rw" };
            text += &format!("{i} 1 0:{i} / /sys/fs/cgroup/{name} rw - {kind} {kind} {options}\n");
        }
        std::fs::write(roots.proc("self/mountinfo"), text).unwrap();
        (dir, roots)
    }

    #[test]
    fn a_v1_host_with_a_unified_tree_is_hybrid_and_tasks_go_where_they_are_measured() {
        let (_dir, roots) = machine(
            "cpu,cpuacct rw,cpu,cpuacct\nmemory rw,memory\ndevices rw,devices\nsystemd rw,name=systemd\nunified +hugetlb\n",
        );
        let layout = Layout::detect(&roots).unwrap();
        assert_eq!(layout.mode(), CgroupMode::Hybrid);
        assert_eq!(layout.controller("cpuacct").unwrap().mount, roots.sys.join("fs/cgroup/cpu,cpuacct"));
        assert!(layout.controller("pids").is_none());
        let names: Vec<_> = layout.placements().map(|h| h.mount.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["cpu,cpuacct", "memory", "unified"]);
    }

    #[test]
    fn a_v2_host_with_only_systemds_named_hierarchy_is_v2() {
        let (_dir, roots) = machine("systemd rw,name=systemd\nunified +cpu io memory pids\n");
        let layout = Layout::detect(&roots).unwrap();
        assert_eq!(layout.mode(), CgroupMode::V2);
        assert_eq!(layout.controller("memory").unwrap().version, CgroupVersion::V2);
        assert_eq!(layout.placements().count(), 1);
    }

    #[test]
    fn a_second_mount_of_the_same_hierarchy_changes_nothing() {
        let (_dir, roots) = machine("memory rw,memory\nother rw,memory\n");
        let layout = Layout::detect(&roots).unwrap();
        assert_eq!(layout.hierarchies().len(), 1);
        assert_eq!(layout.mode(), CgroupMode::V1);
    }

    #[test]
    fn a_mount_that_cannot_be_opened_is_named_and_costs_no_other() {
        let (dir, roots) = machine("memory rw,memory\npids rw,pids\n");
        std::fs::remove_dir(dir.path().join("sys/fs/cgroup/memory")).unwrap();
        let layout = Layout::detect(&roots).unwrap();
        assert!(layout.controller("memory").is_none() && layout.controller("pids").is_some());
        assert_eq!(layout.problems().len(), 1);
    }

    #[test]
    fn only_the_controllers_count_that_were_handed_down_to_where_we_live() {
        let (dir, roots) = machine("unified +cpu io memory pids\n");
        let home = dir.path().join("sys/fs/cgroup/unified/user.slice");
        std::fs::create_dir(&home).unwrap();
        std::fs::write(home.join("cgroup.controllers"), "memory pids\n").unwrap();
        let layout = Layout::detect(&roots).unwrap().narrow(&CgroupPath::from("/user.slice/not-yet/there"));
        let tree = layout.unified().unwrap();
        assert_eq!(tree.controllers, ["memory", "pids"]);
        assert_eq!(tree.withheld, ["cpu", "io"]);
        // `cgroup.subtree_control` of the agent's own parent is not what the parent could have.
        let narrowed = |parent: &str| Layout::detect(&roots).unwrap().narrow(&CgroupPath::from(parent));
        for parent in ["/allostat", "/user.slice", "/"] {
            assert_eq!(narrowed(parent).unified().unwrap().controllers.len(), 4, "{parent}");
        }
    }

    #[test]
    fn no_cgroups_is_a_mode_not_an_error() {
        let (_dir, roots) = machine("");
        assert_eq!(Layout::detect(&roots).unwrap().mode(), CgroupMode::None);
    }
}
