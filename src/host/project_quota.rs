//! Project quotas: a limit of bytes for a directory tree, which the kernel enforces.
//!
//! A directory has the ID of a project, and what is made in it inherits the ID. The file system counts the blocks of
//! each project and refuses (EDQUOT, ENOSPC) what exceeds its limit. Files cannot be renamed or linked into a tree of
//! another project (EXDEV).
//!
//! Units: bytes; limits are in steps of 1 KiB. Source: quotactl(2), FS_IOC_FSSETXATTR in xfsctl(3), `fs/quota/quota.c`
//! and `include/uapi/linux/dqblk_xfs.h` of the kernel. ext4 limits no process with CAP_SYS_RESOURCE
//! (`ignore_hardlimit` in `fs/quota/dquot.c`).

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// `FS_IOC_FSGETXATTR` and `FS_IOC_FSSETXATTR`.
const GET_ATTRIBUTES: libc::c_ulong = 0x801c_581f;
const SET_ATTRIBUTES: libc::c_ulong = 0x401c_5820;
/// `FS_XFLAG_PROJINHERIT`
const INHERITS: u32 = 0x200;
/// `Q_GETQUOTA`, `Q_SETQUOTA`, `Q_XGETQSTAT`.
const GET_QUOTA: u32 = 0x80_0007;
const SET_QUOTA: u32 = 0x80_0008;
const GET_STATE: u32 = 0x5805;
/// `PRJQUOTA`
const PROJECT: u32 = 2;
/// `FS_QUOTA_PDQ_ENFD`: limits of projects are enforced.
const ENFORCED: u16 = 1 << 5;
/// `QIF_BLIMITS`
const BLOCK_LIMITS: u32 = 1;
/// The unit of `dqb_bhardlimit`.
const QUOTA_BLOCK: u64 = 1024;
/// IDs that the agent takes: high, so that those of administrators (`/etc/projid`) are none of them.
const FIRST_ID: u32 = 0x4000_0000;
const IDS: u32 = 0x3fff_ffff;
/// IDs that are tried before none is free.
const TRIES: u32 = 64;

/// `struct fsxattr`
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct FileAttributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    copy_extent_size: u32,
    padding: [u8; 8],
}

/// `struct fs_quota_stat`, as far as it is read, with room for the rest.
#[repr(C)]
struct QuotaState {
    version: i8,
    flags: u16,
    rest: [u64; 15],
}

/// Limit and usage of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProjectUsage {
    /// 0: no limit.
    pub limit_bytes: u64,
    pub used_bytes: u64,
    pub inodes: u64,
}

impl ProjectUsage {
    fn is_unused(self) -> bool {
        self == ProjectUsage { limit_bytes: 0, used_bytes: 0, inodes: 0 }
    }
}

/// The project quotas of one file system, which are enforced.
#[derive(Debug)]
pub struct ProjectQuotas {
    /// Any directory of it.
    directory: OwnedFd,
}

impl ProjectQuotas {
    /// Errors: why this process can set no limits on the file system of the directory.
    pub fn of(directory: OwnedFd) -> Result<ProjectQuotas, String> {
        let mut state = QuotaState { version: 1, flags: 0, rest: [0; 15] };
        // SAFETY: `state` is as large as the kernel's `fs_quota_stat`, lives through the call, and any bytes are valid.
        let answer = unsafe { quota_call(directory.as_fd(), GET_STATE, 0, (&raw mut state).cast()) };
        match answer.map_err(|e| e.raw_os_error()) {
            Ok(()) if state.flags & ENFORCED != 0 => {}
            Err(Some(libc::EPERM)) => return Err("the kernel refuses quotactl_fd(2) (EPERM)".to_owned()),
            Err(Some(libc::ENOSYS)) if !has_call() => return Err("it needs Linux 5.14".to_owned()),
            Ok(()) | Err(_) => {
                return Err(
                    "the file system of the data directory enforces no project quotas: ext4 needs the feature \
                            `project` and the mount option prjquota, XFS that option"
                        .to_owned(),
                );
            }
        }
        let quotas = ProjectQuotas { directory };
        // As limits are set: with CAP_SYS_ADMIN.
        match quotas.usage(FIRST_ID) {
            Ok(_) => Ok(quotas),
            Err(e) if e.raw_os_error() == Some(libc::EPERM) => Err("it needs CAP_SYS_ADMIN".to_owned()),
            Err(e) => Err(format!("project quotas cannot be read: {e}")),
        }
    }

    pub fn usage(&self, project: u32) -> io::Result<ProjectUsage> {
        let mut found = block(0);
        // SAFETY: `found` is the kernel's `if_dqblk` and lives through the call.
        let answer = unsafe { quota_call(self.directory.as_fd(), GET_QUOTA, project, (&raw mut found).cast()) };
        match answer.map_err(|e| (e.raw_os_error(), e)) {
            // XFS has no record of a project without usage.
            Err((Some(libc::ENOENT), _)) => Ok(ProjectUsage { limit_bytes: 0, used_bytes: 0, inodes: 0 }),
            Err((_, e)) => Err(e),
            Ok(()) => Ok(ProjectUsage {
                limit_bytes: found.dqb_bhardlimit.saturating_mul(QUOTA_BLOCK),
                used_bytes: found.dqb_curspace,
                inodes: found.dqb_curinodes,
            }),
        }
    }

    /// 0 bytes: no limit.
    pub fn set_limit(&self, project: u32, bytes: u64) -> io::Result<()> {
        let mut limit = block(bytes.div_ceil(QUOTA_BLOCK));
        // SAFETY: `limit` is the kernel's `if_dqblk` and lives through the call.
        unsafe { quota_call(self.directory.as_fd(), SET_QUOTA, project, (&raw mut limit).cast()) }
    }

    /// Makes an empty directory a tree of its own with a limit, under an ID that nothing on the file system uses.
    /// `seed`: different for each tree.
    ///
    /// Errors: it has no limit; or no ID is free.
    pub fn limit_tree(&self, directory: BorrowedFd<'_>, seed: u32, bytes: u64) -> io::Result<u32> {
        for n in 0..TRIES {
            let project = FIRST_ID + (seed.wrapping_add(n) & IDS).min(IDS - 1);
            if !self.usage(project)?.is_unused() {
                continue;
            }
            // The directory first: the next agent goes on with its ID.
            set_project(directory, project, true)?;
            return self.set_limit(project, bytes).map(|()| project).inspect_err(|_| {
                // Best effort: an ID without a limit limits nothing.
                let _ = set_project(directory, 0, false);
            });
        }
        Err(io::Error::other(format!("{TRIES} project IDs of the file system are all in use")))
    }
}

/// Whether an ID is one that the agent gave.
pub fn is_own(project: u32) -> bool {
    project.checked_sub(FIRST_ID).is_some_and(|above| above < IDS)
}

/// The project of a directory that hands it on to what is made in it.
pub fn project_of(directory: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    let found = attributes(directory)?;
    Ok((found.flags & INHERITS != 0).then_some(found.project))
}

/// Of a directory alone, not of what is in it. 0 is the project of files without one.
pub fn set_project(directory: BorrowedFd<'_>, project: u32, inherits: bool) -> io::Result<()> {
    let mut changed = attributes(directory)?;
    changed.project = project;
    changed.flags = if inherits { changed.flags | INHERITS } else { changed.flags & !INHERITS };
    // SAFETY: the pointer is to a live `fsxattr`, which the kernel only reads.
    let answer = unsafe { libc::ioctl(directory.as_raw_fd(), SET_ATTRIBUTES, &raw const changed) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn attributes(directory: BorrowedFd<'_>) -> io::Result<FileAttributes> {
    let mut found = FileAttributes::default();
    // SAFETY: the pointer is to a live `fsxattr` that nothing else uses.
    let answer = unsafe { libc::ioctl(directory.as_raw_fd(), GET_ATTRIBUTES, &raw mut found) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(found) }
}

fn block(hard_limit: u64) -> libc::dqblk {
    libc::dqblk {
        dqb_bhardlimit: hard_limit,
        dqb_bsoftlimit: 0,
        dqb_curspace: 0,
        dqb_ihardlimit: 0,
        dqb_isoftlimit: 0,
        dqb_curinodes: 0,
        dqb_btime: 0,
        dqb_itime: 0,
        dqb_valid: BLOCK_LIMITS,
    }
}

/// Whether the kernel has the system call at all: file systems without quotas answer ENOSYS as well.
fn has_call() -> bool {
    let no_data = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: without a descriptor the kernel reads and writes no memory of ours.
    let answer = unsafe { libc::syscall(libc::SYS_quotactl_fd, -1, 0, 0, no_data) };
    answer < 0 && io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS)
}

/// # Safety
/// `data` is what the command reads or writes.
unsafe fn quota_call(directory: BorrowedFd<'_>, command: u32, project: u32, data: *mut libc::c_void) -> io::Result<()> {
    let command = (command << 8) | PROJECT;
    // SAFETY: the caller's promise.
    let answer = unsafe { libc::syscall(libc::SYS_quotactl_fd, directory.as_raw_fd(), command, project, data) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::access::open_dir;

    #[test]
    fn file_system_without_project_quotas_is_named_as_the_reason() {
        // A tmpfs never has them.
        let refused = ProjectQuotas::of(open_dir("/dev/shm".as_ref()).unwrap()).unwrap_err();
        assert!(["prjquota", "5.14", "EPERM"].iter().any(|word| refused.contains(word)), "{refused}");
        assert!(has_call() || refused.contains("5.14"), "{refused}");
    }

    #[test]
    fn own_project_ids_are_those_above_the_first_one() {
        let own = [0, 1000, FIRST_ID - 1, FIRST_ID, FIRST_ID + IDS - 1, FIRST_ID + IDS, u32::MAX].map(is_own);
        assert_eq!(own, [false, false, false, true, true, false, false]);
    }
}
