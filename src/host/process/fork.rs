//! Creating a child process: calls shared by `launch` and `sandbox`.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::raw;

/// Blocks every signal of this thread; returns the previous mask.
pub(super) fn block_signals() -> libc::sigset_t {
    // SAFETY: both sets are local. The first is filled before it is read, the second is written by the call, which
    // cannot fail with these arguments.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    }
}

pub(super) fn restore_signals(mask: &libc::sigset_t) {
    // SAFETY: a mask that the kernel returned.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::from_ref(mask), std::ptr::null_mut());
    }
}

/// Creates a child with these flags. With a cgroup (5.7) its memory is charged there from the first page, and no lock
/// over all processes is taken. Without one the older `clone` is used, since a systemd unit with RestrictNamespaces=
/// refuses every `clone3`.
pub(super) fn clone_with(flags: u64, cgroup: Option<&OwnedFd>) -> Result<i32, Errno> {
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
    let Some(cgroup) = cgroup else {
        let flags = flags | u64::try_from(libc::SIGCHLD).unwrap_or(17);
        // SAFETY: as below; without a stack of its own, the child continues here on its copy of the stack.
        return to_pid(unsafe { libc::syscall(libc::SYS_clone, flags, 0_usize, 0_usize, 0_usize, 0_usize) });
    };
    // SAFETY: an all-zero clone_args is valid. Without CLONE_VM this is a fork: the child has a copy of all memory and
    // continues here as its only thread.
    let answer = unsafe {
        let mut args: libc::clone_args = std::mem::zeroed();
        args.flags = flags | CLONE_INTO_CGROUP;
        args.cgroup = u64::try_from(raw(cgroup)).unwrap_or(u64::MAX);
        args.exit_signal = u64::try_from(libc::SIGCHLD).unwrap_or(17);
        libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>())
    };
    to_pid(answer)
}

pub(super) fn fork_plainly() -> Result<i32, Errno> {
    // SAFETY: the child only makes system calls until it execs or exits.
    to_pid(i64::from(unsafe { libc::fork() }))
}

fn to_pid(answer: i64) -> Result<i32, Errno> {
    match i32::try_from(answer) {
        Ok(pid) if pid >= 0 => Ok(pid),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}
