//! Processes: identity, signals by pidfd, start inside cgroups, wait with resource usage.
//!
//! Unsafe code is needed here: `clone3`, `fork`, `execve`, `wait4`, signal masks and the user
//! database have no safe wrappers. Between fork and exec there are only system calls on prepared values: no allocation,
//! no lock, no panic.

#![allow(unsafe_code)]

mod adopted;
mod capability;
mod child;
mod fork;
mod group;
mod launch;
mod rlimit;
mod sandbox;
mod test_child;
mod tied_child;
mod user;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal};
use serde::{Deserialize, Serialize};

use super::roots::{ReadError, Roots};
use crate::kernel::cgroup::procs;
use crate::kernel::proc::pid_stat;
use crate::model::id::{BootId, ProcessId};

pub use adopted::{AdoptedChildren, can_adopt_children};
pub use capability::Capabilities;
pub use child::Child;
pub use group::{GroupError, group};
pub use launch::{GatedChild, LaunchError, LaunchParameters, Step};
pub use rlimit::{RESOURCES, ResourceLimit};
pub use sandbox::{
    HostTree, RootPlan, RootStep, RunningSandbox, Sandbox, SandboxError, SandboxInit, SandboxStep, binds_whole_trees,
};
pub use test_child::{TestChildEnd, end_as};
pub use tied_child::{GUARD, HeldProgram, guard, remove_agent_variables, spawn_held};
pub use user::{Account, UserError, account};

/// The boot ID. Source: `/proc/sys/kernel/random/boot_id`.
pub fn boot_id(roots: &Roots) -> Result<BootId, ReadError> {
    let text = roots.read_proc("sys/kernel/random/boot_id")?;
    Ok(BootId(String::from_utf8_lossy(&text).trim().to_owned()))
}

/// The process that has this pid now; `None`: no process has it. Source: `/proc/PID/stat`, field 22.
pub fn identity(pid: u32) -> io::Result<Option<ProcessId>> {
    let stat = match std::fs::read(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat,
        Err(e) if has_exited(&e) => return Ok(None),
        Err(e) => return Err(e),
    };
    match pid_stat::parse(&stat) {
        Ok(stat) => Ok(Some(ProcessId { pid, start_ticks: stat.start_ticks })),
        Err(e) => Err(io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}: {e}"))),
    }
}

/// Whether this process is in the initial pid namespace, so that it sees every process under the kernel's own pid.
/// Source: `/proc/self/ns/pid`; the initial namespace has a fixed inode number (`PROC_PID_INIT_INO`).
pub fn sees_all(roots: &Roots) -> bool {
    std::fs::read_link(roots.proc("self/ns/pid")).is_ok_and(|namespace| namespace.as_os_str() == "pid:[4026531836]")
}

/// The session ID of a process, which is the pid of the session's first leader. `None`: the process is gone, or its
/// session is outside this pid namespace (getsid(2) returns 0, as in a container that was started without a session).
pub fn session(pid: u32) -> Option<u32> {
    let pid = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0)?;
    // rustix rejects the result 0. SAFETY: a system call without pointers.
    let session = unsafe { libc::getsid(pid) };
    u32::try_from(session).ok().filter(|session| *session > 0)
}

/// Tunes glibc's heap for a process that starts with a burst and then runs for months: two arenas instead of eight per
/// CPU (each keeps what its threads once used), and large blocks return to the kernel when they are freed. By default
/// glibc raises that size to the largest block ever freed: a page of the exposition. Below it, sled's sparsely used
/// tables of half a MiB would be placed on used memory and cleared, which makes them resident.
pub fn keep_heap_small() {
    #[cfg(target_env = "gnu")]
    for (setting, value) in
        [(libc::M_ARENA_MAX, 2), (libc::M_MMAP_THRESHOLD, 128 << 10), (libc::M_TRIM_THRESHOLD, 128 << 10)]
    {
        // A failed setting only costs memory. SAFETY: numbers only.
        let _ = unsafe { libc::mallopt(setting, value) };
    }
}

/// Returns the heap's empty pages to the kernel. A burst frees much memory between live blocks, and glibc by itself
/// returns only memory at the end of the heap. Blocks for milliseconds, during which allocations wait.
pub fn give_back_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: memory in use is not touched.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Whether the error means a lack of resources (descriptors, memory, processes) and says nothing about the target. A
/// retry may succeed.
pub fn is_resource_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EAGAIN))
}

/// ENOENT, ESRCH: the process has gone.
fn has_exited(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// A process that cannot be confused with another: its pidfd was opened while its identity was verified.
#[derive(Debug)]
pub struct Process {
    id: ProcessId,
    pidfd: OwnedFd,
}

impl Process {
    /// `None`: the process is gone (another may have its pid). A zombie still exists.
    pub fn open(id: ProcessId) -> io::Result<Option<Process>> {
        let Some(pid) = to_pid(id.pid) else { return Ok(None) };
        let pidfd = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(rustix::io::Errno::SRCH | rustix::io::Errno::INVAL) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        // Checked after the open: if the identity still matches, the pidfd refers to this process.
        Ok((identity(id.pid)? == Some(id)).then_some(Process { id, pidfd }))
    }
    /// Wraps a pidfd from the parent of the process, which had not reaped it.
    pub fn with_pidfd(id: ProcessId, pidfd: OwnedFd) -> Process {
        Process { id, pidfd }
    }
    pub fn try_clone(&self) -> io::Result<Process> {
        Ok(Process { id: self.id, pidfd: self.pidfd.try_clone()? })
    }
    pub fn id(&self) -> ProcessId {
        self.id
    }
    /// `Ok(false)`: the process is gone. Signal 0 is not supported: use [`Process::has_ended`].
    pub fn signal(&self, number: u8) -> io::Result<bool> {
        match rustix::process::pidfd_send_signal(&self.pidfd, signal_of(number)?) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::SRCH) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }
    /// Whether it has ended; a zombie has ended.
    pub fn has_ended(&self) -> io::Result<bool> {
        self.ends_within(Duration::ZERO)
    }
    /// Blocks until it has ended.
    pub fn wait(&self) -> io::Result<()> {
        self.poll(None).map(drop)
    }
    /// Blocks until it has ended or `limit` has passed. `true`: it has ended.
    pub fn ends_within(&self, limit: Duration) -> io::Result<bool> {
        let limit = rustix::event::Timespec::try_from(limit).map_err(io::Error::other)?;
        self.poll(Some(&limit))
    }
    fn poll(&self, limit: Option<&rustix::event::Timespec>) -> io::Result<bool> {
        let mut fds = [rustix::event::PollFd::new(&self.pidfd, rustix::event::PollFlags::IN)];
        Ok(rustix::io::retry_on_intr(|| rustix::event::poll(&mut fds, limit))? > 0)
    }
    /// The pidfd, which becomes readable when the process ends.
    pub fn into_pidfd(self) -> OwnedFd {
        self.pidfd
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

fn to_pid(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

/// Signals the process that has this pid: only for pids that cannot be reused now (unreaped children, frozen
/// processes). `false`: no process has it.
pub fn signal_pid(pid: u32, number: u8) -> io::Result<bool> {
    let Some(pid) = to_pid(pid) else { return Ok(false) };
    match rustix::process::kill_process(pid, signal_of(number)?) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::SRCH) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

fn signal_of(number: u8) -> io::Result<Signal> {
    Signal::from_named_raw(i32::from(number))
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("{number} is not a signal")))
}

/// The children of this process, including zombies. Source: `/proc/thread-self/children` (3.5, CONFIG_PROC_CHILDREN),
/// else all of `/proc`. Only for a process with one thread: the file lists the children of the thread.
pub fn children() -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    match std::fs::read("/proc/thread-self/children") {
        Ok(text) => {
            let ((), error) = procs::pids("children", &text, &mut found);
            return error.map_or(Ok(found), |e| Err(io::Error::new(io::ErrorKind::InvalidData, e.to_string())));
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    for entry in std::fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
        if pid_stat::parse(&stat).is_ok_and(|stat| stat.parent == std::process::id()) {
            found.push(pid);
        }
    }
    Ok(found)
}

/// Resource usage of a process and of the descendants that it waited for. Source: wait4(2). Units: in the field names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rusage {
    pub user_us: u64,
    pub system_us: u64,
    /// The largest resident set of any single process. Includes the memory from before its exec: some 2 MiB.
    pub max_rss_kib: u64,
    pub minor_faults: u64,
    pub major_faults: u64,
}

impl Rusage {
    /// Combines two process trees: sums, and the larger maximum.
    #[must_use]
    pub fn plus(self, other: Rusage) -> Rusage {
        Rusage {
            user_us: self.user_us.saturating_add(other.user_us),
            system_us: self.system_us.saturating_add(other.system_us),
            max_rss_kib: self.max_rss_kib.max(other.max_rss_kib),
            minor_faults: self.minor_faults.saturating_add(other.minor_faults),
            major_faults: self.major_faults.saturating_add(other.major_faults),
        }
    }
}

/// A child that has ended and was reaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReapedChild {
    pub pid: u32,
    /// The wait status from `wait4`.
    pub status: i32,
    pub rusage: Rusage,
}

/// The result of [`reap`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReapResult {
    Child(ReapedChild),
    /// There are children, but none has ended.
    NoneYet,
    NoChildren,
}

/// Reaps one child, without blocking.
pub fn reap() -> io::Result<ReapResult> {
    let mut status = 0;
    // SAFETY: an all-zero rusage is valid, and wait4 writes only to the two locations given.
    let (pid, raw) = unsafe {
        let mut raw: libc::rusage = std::mem::zeroed();
        (libc::wait4(-1, &raw mut status, libc::WNOHANG, &raw mut raw), raw)
    };
    match pid {
        0 => Ok(ReapResult::NoneYet),
        -1 => match io::Error::last_os_error() {
            e if e.raw_os_error() == Some(libc::ECHILD) => Ok(ReapResult::NoChildren),
            e => Err(e),
        },
        pid => Ok(ReapResult::Child(ReapedChild { pid: pid.unsigned_abs(), status, rusage: rusage(&raw) })),
    }
}

fn rusage(raw: &libc::rusage) -> Rusage {
    let count = |n: i64| u64::try_from(n).unwrap_or(0);
    let micros = |t: libc::timeval| count(t.tv_sec).saturating_mul(1_000_000).saturating_add(count(t.tv_usec));
    Rusage {
        user_us: micros(raw.ru_utime),
        system_us: micros(raw.ru_stime),
        max_rss_kib: count(raw.ru_maxrss),
        minor_faults: count(raw.ru_minflt),
        major_faults: count(raw.ru_majflt),
    }
}

/// A decoded wait status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitStatus {
    Code(u8),
    Signal(u8),
}

/// `None`: the child has not ended (stopped, continued).
pub fn ended(status: i32) -> Option<WaitStatus> {
    if libc::WIFEXITED(status) {
        u8::try_from(libc::WEXITSTATUS(status)).ok().map(WaitStatus::Code)
    } else if libc::WIFSIGNALED(status) {
        u8::try_from(libc::WTERMSIG(status)).ok().map(WaitStatus::Signal)
    } else {
        None
    }
}

/// Blocks every signal of this process and returns a descriptor that becomes readable with each of `numbers`. The
/// others stay pending: only SIGKILL and SIGSTOP take effect.
pub fn signals_as_descriptor(numbers: &[i32]) -> io::Result<OwnedFd> {
    // SAFETY: sigfillset and sigemptyset initialise the local sets before they are read. The descriptor is new, and
    // nothing else owns it.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        if libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut expected: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut expected);
        for number in numbers {
            libc::sigaddset(&raw mut expected, *number);
        }
        match libc::signalfd(-1, &raw const expected, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// The next pending signal of a descriptor from [`signals_as_descriptor`].
pub fn next_signal(descriptor: &OwnedFd) -> Option<i32> {
    let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
    let read = rustix::io::read(descriptor, &mut info).ok()?;
    let number = info.first_chunk::<4>().filter(|_| read == info.len())?;
    i32::try_from(u32::from_ne_bytes(*number)).ok()
}

/// SIGXFSZ, which the kernel sends to a process that writes beyond its file size limit.
pub const FILE_TOO_LARGE: i32 = libc::SIGXFSZ;

/// Forks this process. Returns `None` in the child and the child's pid in the parent. Errors: this process has further
/// threads (locks that they hold would stay locked in the child), or the limit of processes is reached.
pub fn fork() -> io::Result<Option<Pid>> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("only a process of one thread can be copied"));
    }
    // SAFETY: there is no other thread that could hold a lock or be changing memory.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid)),
    }
}

/// Makes this process a session leader, unless it is one.
pub fn lead_session() -> io::Result<()> {
    if session(std::process::id()) == Some(std::process::id()) {
        return Ok(());
    }
    rustix::process::setsid()?;
    Ok(())
}

/// Makes orphaned descendants children of this process, so that it can reap them.
pub fn become_subreaper() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Takes ownership of descriptors 0 and 1. `None`: they were taken before, or one of them is not open.
pub fn take_standard_streams() -> Option<(OwnedFd, OwnedFd)> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let open = |fd| {
        // SAFETY: reads the flags of a number, which need not be an open descriptor.
        unsafe { libc::fcntl(fd, libc::F_GETFD) != -1 }
    };
    if !(open(0) && open(1)) || TAKEN.swap(true, Ordering::Relaxed) {
        return None;
    }
    // SAFETY: both are open and have no other owner: the standard library's streams only borrow the numbers, and a
    // second call returns `None`.
    Some(unsafe { (OwnedFd::from_raw_fd(0), OwnedFd::from_raw_fd(1)) })
}

static ORIGINAL_SOFT_LIMIT: OnceLock<Option<u64>> = OnceLock::new();

/// Raises the soft limit of descriptors to the hard limit and remembers the original one for tasks. Returns the new
/// limit; `None`: unlimited.
pub fn raise_descriptor_limit() -> io::Result<Option<u64>> {
    let now = rustix::process::getrlimit(Resource::Nofile);
    ORIGINAL_SOFT_LIMIT.get_or_init(|| now.current);
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum })?;
    Ok(now.maximum)
}

/// The soft limit of descriptors that this process was started with.
pub fn original_descriptor_limit() -> Option<u64> {
    *ORIGINAL_SOFT_LIMIT.get_or_init(|| rustix::process::getrlimit(Resource::Nofile).current)
}

/// The text of an errno for messages, without Rust's "(os error N)".
pub fn errno_text(errno: i32) -> String {
    let text = io::Error::from_raw_os_error(errno).to_string();
    match text.find(" (os error") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

/// The descriptor number, for direct system calls.
fn raw(fd: &impl AsFd) -> i32 {
    fd.as_fd().as_raw_fd()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_identity_is_stable_and_can_be_opened() {
        let me = identity(std::process::id()).unwrap().unwrap();
        assert_eq!(identity(me.pid).unwrap(), Some(me));
        let process = Process::open(me).unwrap().unwrap();
        assert!(!process.has_ended().unwrap());
    }

    #[test]
    fn a_pid_with_another_start_time_is_another_process() {
        let me = identity(std::process::id()).unwrap().unwrap();
        let other = ProcessId { start_ticks: me.start_ticks + 1, ..me };
        assert!(Process::open(other).unwrap().is_none());
        assert!(Process::open(ProcessId { pid: 0, start_ticks: 0 }).unwrap().is_none());
    }

    #[test]
    fn a_signal_reaches_the_process_and_none_after_its_end() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::open(identity(child.id()).unwrap().unwrap()).unwrap().unwrap();
        assert!(process.signal(15).unwrap());
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap()), Some(15));
        assert!(!process.signal(15).unwrap(), "it is gone");
        assert!(process.signal(77).is_err(), "no such signal");
    }

    #[test]
    fn statuses_read_as_wait_defines_them() {
        assert_eq!(ended(0), Some(WaitStatus::Code(0)));
        assert_eq!(ended(3 << 8), Some(WaitStatus::Code(3)));
        assert_eq!(ended(9), Some(WaitStatus::Signal(9)));
        assert_eq!(ended(0x80 | 11), Some(WaitStatus::Signal(11)), "with a core dump");
        assert_eq!(ended(0x7f | 19 << 8), None, "stopped");
    }

    /// Runs in a separate process, since it takes the process's standard streams.
    ///
    /// Promise (Durability and recovery): The supervisor's two streams have one owner
    #[test]
    fn the_standard_streams_are_given_to_one_only() {
        const INSIDE: &str = "ALLOSTAT_TEST_TAKES_STREAMS";
        if std::env::var_os(INSIDE).is_some() {
            let first = take_standard_streams();
            let code = i32::from(!(first.is_some() && take_standard_streams().is_none()));
            std::process::exit(code);
        }
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "host::process::tests::the_standard_streams_are_given_to_one_only"]).env(INSIDE, "1");
        let status = again.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null()).status().unwrap();
        assert!(status.success(), "{status}");
    }
}
