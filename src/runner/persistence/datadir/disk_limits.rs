//! The limit of an alloc's directory, by a project quota of the file system.
//!
//! The directory itself has the ID of its project: nothing else is recorded, and an agent's restart changes nothing.
//! A crash between the removal of a directory and that of its limit leaves a limit without files, whose ID is not taken
//! again.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Mutex;

use crate::collectors::capability::DISK_LIMIT;
use crate::host::access::open_dir;
use crate::host::project_quota::{self, ProjectQuotas};
use crate::model::capability::Capability;
use crate::model::id::AllocId;
use crate::telemetry::lock;

#[derive(Debug)]
pub(super) struct DiskLimits {
    quotas: Result<ProjectQuotas, String>,
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
        DiskLimits { quotas, ..DiskLimits::default() }
    }

    pub fn capability(&self) -> Capability {
        self.quotas.as_ref().map_or_else(|why| Capability::no(DISK_LIMIT, why), |_| Capability::yes(DISK_LIMIT))
    }

    /// Whether the directory, in which nothing is yet, has a limit now. A failure is logged: its usage is measured.
    pub fn set(&self, id: &AllocId, directory: &Path, bytes: u64) -> bool {
        let Ok(quotas) = &self.quotas else { return false };
        let seed =
            id.as_str().bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        let _alone = lock(&self.choosing);
        let limited = open_dir(directory).and_then(|directory| quotas.limit_tree(directory.as_fd(), seed, bytes));
        if let Err(error) = &limited {
            tracing::warn!(alloc_id = %id, %error, "failed to limit the disk usage of an alloc; it is only measured");
        }
        limited.is_ok()
    }

    /// Takes a new directory out of the limit.
    pub fn exempt(&self, id: &AllocId, directory: &Path) {
        let exempted =
            open_dir(directory).and_then(|directory| project_quota::set_project(directory.as_fd(), 0, false));
        if let Err(error) = exempted {
            tracing::warn!(alloc_id = %id, %error, "failed to exempt logs from the disk limit of an alloc");
        }
    }

    /// The project of a directory that has a limit.
    pub fn of_tree(&self, directory: &Path) -> Option<u32> {
        self.quotas.as_ref().ok()?;
        let directory = open_dir(directory).ok()?;
        project_quota::project_of(directory.as_fd()).ok().flatten().filter(|project| project_quota::is_own(*project))
    }

    /// After its directory was removed.
    pub fn clear(&self, id: &AllocId, project: Option<u32>) {
        let (Ok(quotas), Some(project)) = (&self.quotas, project) else { return };
        if let Err(error) = quotas.set_limit(project, 0) {
            tracing::warn!(alloc_id = %id, project, %error, "failed to clear the disk limit of a removed alloc");
        }
    }
}
