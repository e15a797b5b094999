//! Pseudoterminals, of this host or of a task's own `/dev/pts`.
//!
//! Source: pty(7), ioctl_tty(2) `TIOCGPTPEER` (4.13), Documentation/filesystems/devpts.rst.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer};
use rustix::termios::{Winsize, tcsetwinsize};

/// `DEVPTS_SUPER_MAGIC` in include/uapi/linux/magic.h.
const DEVPTS: u64 = 0x1cd1;

/// Columns and rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct WindowSize {
    pub columns: u16,
    pub rows: u16,
}

/// Both ends of a new one.
#[derive(Debug)]
pub struct Pty {
    pub master: OwnedFd,
    pub terminal: OwnedFd,
}

impl Pty {
    /// `root_of`: a process whose `/dev/pts` it is made in; `None`: that of this process. A directory that another
    /// mount took the place of is not used.
    ///
    /// Errors: as open(2); `Unsupported`: no devpts is there.
    pub fn open(root_of: Option<u32>) -> io::Result<Pty> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let master = match root_of {
            None => rustix::fs::open("/dev/ptmx", flags, Mode::empty())?,
            Some(pid) => {
                let way = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let root = rustix::fs::open(format!("/proc/{pid}/root"), way, Mode::empty())?;
                let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
                let pts = rustix::fs::openat2(&root, "dev/pts", way, Mode::empty(), resolve)?;
                if u64::try_from(rustix::fs::fstatfs(&pts)?.f_type).ok() != Some(DEVPTS) {
                    return Err(io::Error::new(io::ErrorKind::Unsupported, "the task has no /dev/pts"));
                }
                rustix::fs::openat2(&pts, "ptmx", flags, Mode::empty(), ResolveFlags::BENEATH)?
            }
        };
        rustix::pty::unlockpt(&master)?;
        let terminal = ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        Ok(Pty { master, terminal })
    }

    /// The terminal belongs to that user from now on; its group is left to the mount.
    pub fn give_to(&self, uid: u32, gid: Option<u32>) -> io::Result<()> {
        Ok(rustix::fs::fchown(&self.terminal, Some(Uid::from_raw(uid)), gid.map(Gid::from_raw))?)
    }
}

/// Programs on the terminal get SIGWINCH where it is another size than before.
pub fn resize(either_end: impl AsFd, size: WindowSize) -> io::Result<()> {
    let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(tcsetwinsize(either_end, size)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_has_the_size_that_its_master_was_given() {
        // Another process's root is looked into by root alone.
        let through_root = rustix::process::getuid().is_root().then(|| Some(std::process::id()));
        for root_of in [Some(None), through_root].into_iter().flatten() {
            let pty = Pty::open(root_of).unwrap();
            resize(&pty.master, WindowSize { columns: 101, rows: 33 }).unwrap();
            let size = rustix::termios::tcgetwinsize(&pty.terminal).unwrap();
            assert_eq!((size.ws_col, size.ws_row), (101, 33));
            assert!(rustix::termios::isatty(&pty.terminal));
        }
    }
}
