//! The agent's own cgroup of a task, above the cgroup of the container that an engine creates.
//!
//! ```text
//! cgroupfs   <parent>/<alloc>/<task>/<container>                         created and removed by the driver
//! systemd    /allostat.slice/allostat-<alloc>_<task>.slice/docker-<container>.scope   by systemd, stopped by the driver
//! ```
//! Cgroups count for those below them, so this one has the peak, the CPU time and the I/O after the container's is
//! gone.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::host::cgroup::{Cgroup, CgroupError};
use crate::host::hierarchy::{CgroupVersion, Layout};
use crate::host::systemd::{SystemdManager, TASK_SLICE};
use crate::kernel::proc::cgroup;
use crate::model::id::{AllocId, CgroupPath, TaskName};

/// How long the kernel may take to release a cgroup.
const REMOVE_PATIENCE: Duration = Duration::from_secs(2);

/// The cgroup parent of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParentCgroup {
    pub path: CgroupPath,
    /// `None`: it is a path.
    pub slice: Option<String>,
}

/// Creation and removal are serialized: a container runtime creates missing parents, and fails if one is removed
/// meanwhile.
#[derive(Debug, Default)]
pub struct ParentCgroups(Mutex<()>);

impl ParentCgroup {
    pub fn below(alloc: &CgroupPath, task: &TaskName) -> ParentCgroup {
        ParentCgroup { path: alloc.child(task.as_str()), slice: None }
    }
    pub fn slice(alloc: &AllocId, task: &TaskName) -> ParentCgroup {
        let slice = format!("allostat-{}_{}.slice", alloc.as_str().replace('-', ""), escaped(task.as_str()));
        ParentCgroup { path: CgroupPath::new(format!("/{TASK_SLICE}/{slice}")), slice: Some(slice) }
    }
    /// From a handle. `None`: the engine chose the parent.
    pub fn of(path: &CgroupPath) -> ParentCgroup {
        let slice = path.as_str().strip_prefix(&format!("/{TASK_SLICE}/")).map(str::to_owned);
        ParentCgroup { path: path.clone(), slice }
    }
    /// From the engine's description of a container.
    pub fn of_parent(parent: &str) -> Option<ParentCgroup> {
        let path = if parent.starts_with('/') { parent.to_owned() } else { format!("/{TASK_SLICE}/{parent}") };
        let is_plain = path.split('/').skip(1).all(|part| !matches!(part, "" | "." | ".."));
        (is_plain && path.matches('/').count() > 1).then(|| ParentCgroup::of(&CgroupPath::new(path)))
    }
    /// As `CgroupParent` of a container. `None`: it cannot be expressed.
    pub fn as_parent(&self) -> Option<String> {
        let path = || self.path.relative().to_str().map(|path| format!("/{path}"));
        self.slice.clone().or_else(path)
    }
}

/// Different names stay different. A dash in the name of a slice means a parent slice. Source: systemd.slice(5).
fn escaped(name: &str) -> String {
    let one = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        other => format!("_{other:02x}"),
    };
    name.bytes().map(one).collect()
}

impl ParentCgroups {
    /// Blocks.
    pub fn make(&self, layout: &Layout, parent: &ParentCgroup) -> Result<(), CgroupError> {
        let _alone = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &parent.slice {
            // Systemd creates it with the container. One that is left of an earlier attempt counts its OOM kills.
            Some(slice) if Cgroup::at(layout, &parent.path).exists() => SystemdManager::System
                .stop(slice)
                .map_err(|why| CgroupError::Remove { path: slice.into(), source: std::io::Error::other(why) }),
            Some(_) => Ok(()),
            None => Cgroup::at(layout, &parent.path).everywhere(layout).create_fresh(),
        }
    }

    /// The same, if something may run in it already. Blocks.
    pub fn make_missing(&self, layout: &Layout, parent: &ParentCgroup) -> Result<(), CgroupError> {
        let _alone = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if parent.slice.is_some() { Ok(()) } else { Cgroup::at(layout, &parent.path).everywhere(layout).create() }
    }

    /// With its children, when nothing runs in it. Idempotent. Blocks. Errors: as a sentence.
    pub fn remove(&self, layout: &Layout, parent: &ParentCgroup) -> Result<(), String> {
        let _alone = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slice) = &parent.slice {
            return if Cgroup::at(layout, &parent.path).exists() { SystemdManager::System.stop(slice) } else { Ok(()) };
        }
        let cgroup = Cgroup::at(layout, &parent.path).everywhere(layout);
        cgroup.remove(REMOVE_PATIENCE).map_err(|e| crate::telemetry::chain(&e))?;
        // In hierarchies that the agent does not use, the parents exist for containers alone: the alloc's, and the one
        // of all allocs.
        let rest = layout.hierarchies().iter().filter(|hierarchy| {
            hierarchy.version == CgroupVersion::V1 && layout.placements().all(|used| used.mount != hierarchy.mount)
        });
        for hierarchy in rest {
            let task = hierarchy.directory(parent.path.as_str());
            task.ancestors().skip(1).take(2).filter(|above| *above != hierarchy.mount).all(is_removed);
        }
        Ok(())
    }

    /// As [`ParentCgroups::remove`], with the cgroup of an alloc that has ended: its own removal failed while this one
    /// was in it. Idempotent. Blocks. Errors: as a sentence.
    pub fn remove_with_alloc(&self, layout: &Layout, parent: &ParentCgroup) -> Result<(), String> {
        self.remove(layout, parent)?;
        let _alone = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if parent.slice.is_none() {
            let alloc = CgroupPath::above(parent.path.as_str()).next().map(CgroupPath::from);
            alloc.map(|alloc| Cgroup::at(layout, &alloc).everywhere(layout).remove_if_empty());
        }
        Ok(())
    }
}

/// The kernel refuses if it is not empty.
fn is_removed(directory: &Path) -> bool {
    std::fs::remove_dir(directory).map_or_else(|error| error.kind() == ErrorKind::NotFound, |()| true)
}

pub fn is_below(path: &CgroupPath, above: &CgroupPath) -> bool {
    CgroupPath::above(path.as_str()).any(|part| part == above.as_str())
}

/// The cgroup of a process in the memory hierarchy.
pub fn of_process(proc: &Path, layout: &Layout, pid: u32) -> Option<CgroupPath> {
    let text = std::fs::read(proc.join(pid.to_string()).join("cgroup")).ok()?;
    let counted = layout.controller("memory").or_else(|| layout.placements().next())?;
    let controller = match counted.version {
        CgroupVersion::V1 => counted.controllers.first().map(String::as_str),
        CgroupVersion::V2 => None,
    };
    cgroup::place(&text, controller).filter(|path| *path != "/").map(CgroupPath::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_has_a_slice_of_its_own_directly_below_that_of_all() {
        let alloc = AllocId::from("8d4c3a52-5ef4-4b2e-9c4d-0a1b2c3d4e5f");
        let parent = ParentCgroup::slice(&alloc, &"web-1.a".into());
        let slice = "allostat-8d4c3a525ef44b2e9c4d0a1b2c3d4e5f_web_2d1_2ea.slice";
        assert_eq!(parent.as_parent().as_deref(), Some(slice));
        assert_eq!(parent.path.as_str(), format!("/allostat.slice/{slice}"));
        assert_eq!(ParentCgroup::of(&parent.path), parent, "a handle keeps the path alone");
    }

    #[test]
    fn below_a_path_the_path_is_the_parent() {
        let parent = ParentCgroup::below(&CgroupPath::from("/allostat/a"), &"web".into());
        assert_eq!(parent.as_parent().as_deref(), Some("/allostat/a/web"));
        assert_eq!(ParentCgroup::of(&parent.path), parent);
    }

    #[test]
    fn docker_cgroup_parent_is_accepted_only_in_our_form() {
        for parent in ["/allostat/a/web", "allostat-a_web.slice"] {
            assert_eq!(ParentCgroup::of_parent(parent).unwrap().as_parent().as_deref(), Some(parent));
        }
        for odd in ["", "/", "/docker", "/a/../../b", "//a", "/a/./b"] {
            assert_eq!(ParentCgroup::of_parent(odd), None, "{odd}");
        }
    }
}
