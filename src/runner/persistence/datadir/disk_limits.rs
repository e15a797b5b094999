//! The limit of an alloc's directory, by a project quota of the file system.
//!
//! ```text
//! mkdir <alloc> ─► ID of a project ─► its limit ─► mkdir <alloc>/alloc and below ─► logs leave the project
//! ```
//! The directory itself has the ID of its project: nothing else is recorded, and an agent that died before one of these
//! steps is followed by one that goes on with the same ID. A crash between the removal of a directory and that of its
//! limit leaves a limit without files, whose ID is not taken again.

use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Mutex;

use crate::collectors::capability::DISK_LIMIT;
use crate::host::access::open_dir;
use crate::host::project_quota::{self, ProjectQuotas};
use crate::model::capability::Capability;
use crate::model::id::AllocId;
use crate::telemetry::lock;

/// The projects of a file system.
trait Projects: Debug + Send + Sync {
    /// That of a directory, if it hands it on to what is made in it.
    fn of(&self, directory: BorrowedFd<'_>) -> io::Result<Option<u32>>;
    /// Gives an empty directory a project of its own with a limit.
    fn begin(&self, directory: BorrowedFd<'_>, seed: u32, bytes: u64) -> io::Result<()>;
    /// 0 bytes: no limit.
    fn set_limit(&self, project: u32, bytes: u64) -> io::Result<()>;
    /// What is made in this directory from now on has no project.
    fn leave(&self, directory: BorrowedFd<'_>) -> io::Result<()>;
}

impl Projects for ProjectQuotas {
    fn of(&self, directory: BorrowedFd<'_>) -> io::Result<Option<u32>> {
        project_quota::project_of(directory)
    }
    fn begin(&self, directory: BorrowedFd<'_>, seed: u32, bytes: u64) -> io::Result<()> {
        self.limit_tree(directory, seed, bytes).map(drop)
    }
    fn set_limit(&self, project: u32, bytes: u64) -> io::Result<()> {
        ProjectQuotas::set_limit(self, project, bytes)
    }
    fn leave(&self, directory: BorrowedFd<'_>) -> io::Result<()> {
        project_quota::set_project(directory, 0, false)
    }
}

#[derive(Debug)]
pub(super) struct DiskLimits {
    quotas: Result<Box<dyn Projects>, String>,
    /// Held while an ID is chosen: two allocs never take the same.
    choosing: Mutex<()>,
}

impl Default for DiskLimits {
    fn default() -> DiskLimits {
        DiskLimits { quotas: Err("the data directory is not open yet".to_owned()), choosing: Mutex::default() }
    }
}

impl DiskLimits {
    /// Of the file system of this directory.
    pub fn of(directory: &Path) -> DiskLimits {
        let quotas = open_dir(directory).map_err(|e| e.to_string()).and_then(ProjectQuotas::of);
        DiskLimits { quotas: quotas.map(|quotas| Box::new(quotas) as Box<dyn Projects>), ..DiskLimits::default() }
    }

    pub fn capability(&self) -> Capability {
        self.quotas.as_ref().map_or_else(|why| Capability::no(DISK_LIMIT, why), |_| Capability::yes(DISK_LIMIT))
    }

    /// Whether the directory is limited. `limit`: in bytes, for one in which nothing is yet. A failure is logged: its
    /// usage is measured.
    pub fn build(&self, id: &AllocId, directory: &Path, limit: Option<u64>) -> bool {
        let Ok(quotas) = &self.quotas else { return false };
        self.limited(quotas.as_ref(), id, directory, limit).unwrap_or_else(|error| {
            tracing::warn!(alloc_id = %id, %error, "failed to limit the disk usage of an alloc; it is only measured");
            false
        })
    }

    fn limited(&self, quotas: &dyn Projects, id: &AllocId, directory: &Path, limit: Option<u64>) -> io::Result<bool> {
        let directory = open_dir(directory)?;
        match (own_project(quotas, directory.as_fd())?, limit) {
            (None, None) => Ok(false),
            (Some(_), None) => Ok(true),
            // An agent died before it was used: it may have no limit yet.
            (Some(project), Some(bytes)) => quotas.set_limit(project, bytes).map(|()| true),
            (None, Some(bytes)) => {
                let seed = id.as_str().bytes();
                let seed = seed.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
                let _alone = lock(&self.choosing);
                quotas.begin(directory.as_fd(), seed, bytes).map(|()| true)
            }
        }
    }

    /// Takes a directory out of the limit, unless it is out of it already.
    pub fn exempt(&self, id: &AllocId, directory: &Path) {
        let Ok(quotas) = &self.quotas else { return };
        let exempted = open_dir(directory).and_then(|directory| match quotas.of(directory.as_fd())? {
            Some(_) => quotas.leave(directory.as_fd()),
            None => Ok(()),
        });
        if let Err(error) = exempted {
            tracing::warn!(alloc_id = %id, %error, "failed to exempt logs from the disk limit of an alloc");
        }
    }

    /// The project of a directory that has a limit.
    pub fn of_tree(&self, directory: &Path) -> Option<u32> {
        let quotas = self.quotas.as_ref().ok()?;
        own_project(quotas.as_ref(), open_dir(directory).ok()?.as_fd()).ok().flatten()
    }

    /// After its directory was removed.
    pub fn clear(&self, id: &AllocId, project: Option<u32>) {
        let (Ok(quotas), Some(project)) = (&self.quotas, project) else { return };
        if let Err(error) = quotas.set_limit(project, 0) {
            tracing::warn!(alloc_id = %id, project, %error, "failed to clear the disk limit of a removed alloc");
        }
    }
}

/// One that the agent gave.
fn own_project(quotas: &dyn Projects, directory: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    Ok(quotas.of(directory)?.filter(|project| project_quota::is_own(*project)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::super::DataDir;
    use super::*;

    const FIRST: u32 = 0x4000_0000;

    /// Projects as a file system has them, but for what is inherited: by inode of a directory.
    #[derive(Debug, Default)]
    struct ModelProjects {
        of: Mutex<BTreeMap<u64, u32>>,
        limits: Mutex<BTreeMap<u32, u64>>,
    }

    fn inode(directory: BorrowedFd<'_>) -> u64 {
        rustix::fs::fstat(directory).unwrap().st_ino
    }

    impl Projects for Arc<ModelProjects> {
        fn of(&self, directory: BorrowedFd<'_>) -> io::Result<Option<u32>> {
            Ok(lock(&self.of).get(&inode(directory)).copied())
        }
        fn begin(&self, directory: BorrowedFd<'_>, _: u32, bytes: u64) -> io::Result<()> {
            let mut limits = lock(&self.limits);
            let project = FIRST + u32::try_from(limits.len()).unwrap();
            limits.insert(project, bytes);
            lock(&self.of).insert(inode(directory), project);
            Ok(())
        }
        fn set_limit(&self, project: u32, bytes: u64) -> io::Result<()> {
            lock(&self.limits).insert(project, bytes);
            Ok(())
        }
        fn leave(&self, directory: BorrowedFd<'_>) -> io::Result<()> {
            lock(&self.of).remove(&inode(directory));
            Ok(())
        }
    }

    struct LimitedDirectory {
        data: DataDir,
        projects: Arc<ModelProjects>,
        id: AllocId,
        _dir: tempfile::TempDir,
    }

    impl LimitedDirectory {
        fn new() -> LimitedDirectory {
            let dir = tempfile::tempdir().unwrap();
            let (mut data, projects) = (DataDir::open(dir.path()).unwrap(), Arc::<ModelProjects>::default());
            data.limits = DiskLimits { quotas: Ok(Box::new(Arc::clone(&projects))), ..DiskLimits::default() };
            LimitedDirectory { data, projects, id: AllocId::random(), _dir: dir }
        }
        /// What a directory of the file system inherits.
        fn put(&self, path: &Path, project: u32) {
            lock(&self.projects.of).insert(inode(open_dir(path).unwrap().as_fd()), project);
        }
        fn limits(&self) -> Vec<(u32, u64)> {
            lock(&self.projects.limits).iter().map(|(project, bytes)| (*project, *bytes)).collect()
        }
        fn project(&self, path: &Path) -> Option<u32> {
            self.projects.of(open_dir(path).unwrap().as_fd()).unwrap()
        }
    }

    /// Whichever build follows: that of the alloc or that of a task.
    #[test]
    fn logs_of_an_agent_that_died_before_it_exempted_them_leave_the_project() {
        for is_limited_build in [false, true] {
            let dir = LimitedDirectory::new();
            let (alloc, logs) = (dir.data.alloc(&dir.id), dir.data.logs(&dir.id));
            dir.data.build_limited(&dir.id, 1_000).unwrap();
            // As mkdir left it, in the project of the directory above.
            dir.put(&logs, FIRST);
            if is_limited_build {
                dir.data.build_limited(&dir.id, 2_000).unwrap();
            } else {
                dir.data.build(&dir.id, &"t".into(), 0, None).unwrap();
            }
            assert_eq!((dir.project(&logs), dir.project(&alloc)), (None, Some(FIRST)));
            assert_eq!(dir.limits(), [(FIRST, 1_000)], "a directory retains its limit");
        }
    }

    #[test]
    fn project_of_an_agent_that_died_before_it_used_it_is_used_again() {
        let dir = LimitedDirectory::new();
        let alloc = dir.data.alloc(&dir.id);
        std::fs::create_dir(&alloc).unwrap();
        dir.put(&alloc, FIRST + 7);
        dir.data.build_limited(&dir.id, 1_000).unwrap();
        assert_eq!((dir.project(&alloc), dir.limits()), (Some(FIRST + 7), vec![(FIRST + 7, 1_000)]));
        dir.data.remove(&dir.id).unwrap();
        assert_eq!(dir.limits(), [(FIRST + 7, 0)]);
        // One of the administrator's is left alone.
        let dir = LimitedDirectory::new();
        let alloc = dir.data.alloc(&dir.id);
        std::fs::create_dir(&alloc).unwrap();
        dir.put(&alloc, 7);
        dir.data.build_limited(&dir.id, 1_000).unwrap();
        assert_eq!((dir.project(&alloc), dir.limits()), (Some(FIRST), vec![(FIRST, 1_000)]));
    }
}
