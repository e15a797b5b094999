//! Builds the root directory of a task in its own mount namespace.
//!
//! The directory becomes the root first. Then everything is mounted into it from the old root, which is still the
//! working directory; then the old root is unmounted. So a link that an earlier attempt left in the directory cannot
//! lead outside.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags};

use crate::model::volume::MountPropagation;

/// The steps to build a root, prepared before the fork.
#[derive(Debug)]
pub struct RootPlan {
    /// The new root directory on the host.
    pub directory: CString,
    /// Whether to use `pivot_root`; otherwise a mount move, which works if the root is a RAM disk.
    pub pivots: bool,
    /// Whether to bind mounts recursively: needs mount_setattr(2).
    pub whole_trees: bool,
    pub steps: Vec<RootStep>,
}

/// Paths inside are absolute. Sources have no leading slash: they are relative to the host's root.
#[derive(Debug)]
pub enum RootStep {
    Directory {
        path: CString,
        mode: u32,
    },
    Mode {
        path: CString,
        mode: u32,
    },
    /// An empty file as a mount point.
    File(CString),
    Link {
        to: CString,
        path: CString,
    },
    Bind {
        source: CString,
        path: CString,
        read_only: bool,
    },
    /// A directory tree opened on the host. Unless its propagation is private, later mounts on the host appear in it.
    Volume {
        tree: HostTree,
        source: CString,
        path: CString,
        read_only: bool,
        propagation: MountPropagation,
    },
    /// A device node.
    Node {
        source: CString,
        path: CString,
    },
    /// Makes an existing directory read-only and noexec, by a bind mount on itself.
    Close(CString),
    Mount {
        kind: CString,
        path: CString,
        flags: MountFlags,
        data: CString,
    },
    /// Makes a filled tmpfs read-only. Device nodes in it can still be opened.
    Seal(CString),
}

impl RootStep {
    /// For messages, after "cannot".
    pub fn attempt(&self) -> String {
        let text = |path: &CStr| path.to_string_lossy().into_owned();
        match self {
            RootStep::Directory { path, .. } => format!("make the directory {}", text(path)),
            RootStep::Mode { path, mode } => format!("give {} the mode {mode:04o}", text(path)),
            RootStep::File(path) => format!("make the file {}", text(path)),
            RootStep::Link { to, path } => format!("make the link {} to {}", text(path), text(to)),
            RootStep::Bind { source, path, .. }
            | RootStep::Volume { source, path, .. }
            | RootStep::Node { source, path } => {
                format!("mount /{} of the host as {}", text(source), text(path))
            }
            RootStep::Close(path) | RootStep::Seal(path) => format!("make {} read-only", text(path)),
            RootStep::Mount { kind, path, .. } => format!("mount {} on {}", text(kind), text(path)),
        }
    }
}

/// A directory tree of the host with its submounts.
#[derive(Debug)]
pub struct HostTree(OwnedFd);

impl HostTree {
    /// Errors: those of open_tree(2); `Unsupported`: this kernel has no mount_setattr(2) (5.12).
    pub fn open(path: &Path) -> io::Result<HostTree> {
        if !binds_whole_trees() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "mount_setattr(2) needs Linux 5.12"));
        }
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
        Ok(HostTree(rustix::mount::open_tree(rustix::fs::CWD, path, flags)?))
    }
}

/// nosuid and nodev for a volume and its submounts.
fn volume_attributes(read_only: bool) -> MountAttributes {
    let read_only = if read_only { MountFlags::RDONLY } else { MountFlags::empty() };
    let set = u64::from((MountFlags::NOSUID | MountFlags::NODEV | read_only).bits());
    MountAttributes { set, clear: 0, propagation: 0, userns: 0 }
}

/// Whether this kernel has mount_setattr(2) with AT_RECURSIVE (5.12).
pub fn binds_whole_trees() -> bool {
    // It finds no such directory, unless it does not know the call. A change of nothing succeeds on any path.
    matches!(volume_attributes(true).apply(c""), Err(Errno::NOENT | Errno::INVAL))
}

impl RootPlan {
    /// Runs in the child. Errors: the index of the failed step; `None`: the root itself.
    pub(super) fn build(&self) -> Result<(), (Option<usize>, Errno)> {
        self.enter().map_err(|errno| (None, errno))?;
        for (index, step) in self.steps.iter().enumerate() {
            self.take(step).map_err(|errno| (Some(index), errno))?;
        }
        self.leave().map_err(|errno| (None, errno))
    }

    fn enter(&self) -> Result<(), Errno> {
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        rustix::mount::mount_change(c"/", private)?;
        rustix::mount::mount_bind_recursive(self.directory.as_c_str(), self.directory.as_c_str())?;
        let old = rustix::fs::open(c"/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::process::chdir(self.directory.as_c_str())?;
        self.restrict(c".", MountFlags::empty())?;
        if self.pivots {
            rustix::process::pivot_root(c".", c".")?;
        } else {
            rustix::mount::mount_move(c".", c"/")?;
            rustix::process::chroot(c".")?;
        }
        rustix::process::fchdir(&old)
    }

    fn leave(&self) -> Result<(), Errno> {
        if self.pivots {
            rustix::mount::unmount(c".", UnmountFlags::DETACH)?;
        }
        rustix::process::chdir(c"/")
    }

    /// Sets nosuid and nodev, and the flags given.
    fn restrict(&self, path: &CStr, also: MountFlags) -> Result<(), Errno> {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | also;
        if self.whole_trees {
            let set = u64::from(flags.bits());
            MountAttributes { set, clear: 0, propagation: 0, userns: 0 }.apply(path)
        } else {
            rustix::mount::mount_remount(path, flags | MountFlags::BIND, c"")
        }
    }

    fn take(&self, step: &RootStep) -> Result<(), Errno> {
        match step {
            RootStep::Directory { path, mode } => {
                match rustix::fs::mkdir(path.as_c_str(), Mode::from_raw_mode(*mode)) {
                    Err(Errno::EXIST) => Ok(()),
                    made => made,
                }
            }
            RootStep::Mode { path, mode } => rustix::fs::chmod(path.as_c_str(), Mode::from_raw_mode(*mode)),
            RootStep::File(path) => {
                let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
                match rustix::fs::open(path.as_c_str(), flags | OFlags::EXCL, Mode::from_raw_mode(0o644)) {
                    Ok(_) | Err(Errno::EXIST) => Ok(()),
                    Err(e) => Err(e),
                }
            }
            RootStep::Link { to, path } => match rustix::fs::symlink(to.as_c_str(), path.as_c_str()) {
                Err(Errno::EXIST) => Ok(()),
                made => made,
            },
            RootStep::Bind { source, path, read_only } => {
                let (source, path) = (source.as_c_str(), path.as_c_str());
                if self.whole_trees {
                    rustix::mount::mount_bind_recursive(source, path)?;
                } else {
                    rustix::mount::mount_bind(source, path)?;
                }
                self.restrict(path, if *read_only { MountFlags::RDONLY } else { MountFlags::empty() })
            }
            RootStep::Volume { tree, path, read_only, propagation, .. } => {
                let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
                rustix::mount::move_mount(&tree.0, c"", rustix::fs::CWD, path.as_c_str(), flags)?;
                volume_attributes(*read_only).apply(path)?;
                let change = match propagation {
                    MountPropagation::Private => MountPropagationFlags::PRIVATE,
                    MountPropagation::HostToTask => MountPropagationFlags::DOWNSTREAM,
                    MountPropagation::Bidirectional => MountPropagationFlags::SHARED,
                };
                rustix::mount::mount_change(path.as_c_str(), change | MountPropagationFlags::REC)
            }
            // Read-only, it can be written to as before; but its mode and owner, which are the host's, cannot be
            // changed.
            RootStep::Node { source, path } => {
                rustix::mount::mount_bind(source.as_c_str(), path.as_c_str())?;
                let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NOEXEC;
                rustix::mount::mount_remount(path.as_c_str(), flags, c"")
            }
            RootStep::Close(path) => {
                rustix::mount::mount_bind(path.as_c_str(), path.as_c_str())?;
                self.restrict(path, MountFlags::RDONLY | MountFlags::NOEXEC)
            }
            RootStep::Mount { kind, path, flags, data } => {
                let data = Some(data.as_c_str());
                rustix::mount::mount(kind.as_c_str(), path.as_c_str(), kind.as_c_str(), *flags, data)
            }
            RootStep::Seal(path) => {
                let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NOEXEC;
                rustix::mount::mount_remount(path.as_c_str(), flags, c"")
            }
        }
    }
}

/// `struct mount_attr`. The bits of read-only, nosuid, nodev and noexec are those of mount(2).
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

impl MountAttributes {
    fn apply(&self, path: &CStr) -> Result<(), Errno> {
        // SAFETY: a path and a structure with its size, which outlive the call.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_mount_setattr,
                libc::AT_FDCWD,
                path.as_ptr(),
                libc::AT_RECURSIVE,
                std::ptr::from_ref(self),
                size_of::<MountAttributes>(),
            )
        };
        if answer == 0 {
            return Ok(());
        }
        Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
    }
}
