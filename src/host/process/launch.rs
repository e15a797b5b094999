//! Starts the main process of a task: inside its cgroups from its first instruction, without anything of the
//! supervisor.
//!
//! ```text
//! supervisor                         child
//! launch: clone3 into the v2 cgroup
//!         (or fork) ---------------> enter the other cgroups, session, limits, user, directory, streams
//! write its identity to the record   wait at the gate
//! open_gate -----------------------> exec
//! read: exec done, or the failed step
//! ```
//! If the supervisor dies before it opens the gate, the child exits without running the program. The agent starts
//! supervisors with their own cgroup in the same way (`child.rs`).

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use super::fork::{block_signals, clone_with, fork_plainly, restore_signals};
use super::raw;
use super::sandbox::{self, RunningSandbox};

/// The parameters of a main process, prepared before the fork.
#[derive(Debug)]
pub struct LaunchParameters {
    /// Paths to execute: the first existing one is used.
    pub paths: Vec<CString>,
    pub args: Vec<CString>,
    /// `NAME=value`.
    pub env: Vec<CString>,
    pub directory: CString,
    /// uid, gid, groups; `None`: unchanged.
    pub user: Option<(u32, u32, Vec<u32>)>,
    /// Resource limits by the kernel's numbers; others are inherited.
    pub limits: Vec<(u32, libc::rlimit)>,
    /// The directory of its cgroup in the unified hierarchy.
    pub unified: Option<OwnedFd>,
    /// Open `tasks` files of its v1 cgroups. A process that writes `0` there moves only itself, without the global lock
    /// that a write to `cgroup.procs` takes (10 to 20 ms at times).
    pub v1_tasks: Vec<OwnedFd>,
    /// A network namespace to join; `None`: that of its sandbox, or the current one.
    pub network: Option<OwnedFd>,
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
    /// Its standard input is a terminal that becomes the one of its session.
    pub has_terminal: bool,
    /// The kernel kills it as soon as the thread that launched it has ended.
    pub dies_with_parent: bool,
}

/// The step of the start that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Fork,
    /// Entering the v1 cgroup with this index in [`LaunchParameters::v1_tasks`].
    EnterV1(u8),
    EnterV2,
    Streams,
    Session,
    /// Setting the limit with this index in [`LaunchParameters::limits`].
    Limit(u8),
    Groups,
    Group,
    User,
    Directory,
    Exec,
    /// Joining its network namespace or those of its sandbox.
    Join,
    Capabilities,
    Filter,
    Terminal,
    ParentDeath,
}

impl Step {
    fn code(self) -> [u8; 2] {
        match self {
            Step::Fork => [0, 0],
            Step::EnterV1(index) => [1, index],
            Step::EnterV2 => [2, 0],
            Step::Streams => [3, 0],
            Step::Session => [4, 0],
            Step::Limit(index) => [5, index],
            Step::Groups => [6, 0],
            Step::Group => [7, 0],
            Step::User => [8, 0],
            Step::Directory => [9, 0],
            Step::Exec => [10, 0],
            Step::Join => [11, 0],
            Step::Capabilities => [12, 0],
            Step::Filter => [13, 0],
            Step::Terminal => [14, 0],
            Step::ParentDeath => [15, 0],
        }
    }
    fn of(code: [u8; 2]) -> Step {
        match code[0] {
            1 => Step::EnterV1(code[1]),
            2 => Step::EnterV2,
            3 => Step::Streams,
            4 => Step::Session,
            5 => Step::Limit(code[1]),
            6 => Step::Groups,
            7 => Step::Group,
            8 => Step::User,
            9 => Step::Directory,
            10 => Step::Exec,
            11 => Step::Join,
            12 => Step::Capabilities,
            13 => Step::Filter,
            14 => Step::Terminal,
            15 => Step::ParentDeath,
            _ => Step::Fork,
        }
    }
}

/// The step that failed, and its errno. The caller adds names for the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchError {
    pub step: Step,
    pub errno: i32,
}

/// A child that waits at its gate.
#[derive(Debug)]
pub struct GatedChild {
    pub pid: u32,
    gate: OwnedFd,
    errors: OwnedFd,
}

impl GatedChild {
    /// Opens the gate and waits for the exec. After an error the child has exited or is about to: reap it.
    pub fn open_gate(self) -> Result<(), LaunchError> {
        // A child that failed before the gate has closed it: its report says more than EPIPE here.
        let _ = rustix::io::write(&self.gate, b"g");
        drop(self.gate);
        let mut report = [0u8; 6];
        let read = rustix::io::retry_on_intr(|| rustix::io::read(&self.errors, &mut report));
        match read {
            // Closed by a successful exec, or by a death before it; the wait status distinguishes them.
            Ok(0) => Ok(()),
            Ok(6) => {
                let [step, index, a, b, c, d] = report;
                Err(LaunchError { step: Step::of([step, index]), errno: i32::from_ne_bytes([a, b, c, d]) })
            }
            Ok(_) => Err(LaunchError { step: Step::Fork, errno: libc::EIO }),
            Err(e) => Err(LaunchError { step: Step::Fork, errno: e.raw_os_error() }),
        }
    }
}

/// The values of [`LaunchParameters`] as pointers for system calls; borrowed from it.
struct PointerTables {
    paths: Vec<*const libc::c_char>,
    args: Vec<*const libc::c_char>,
    env: Vec<*const libc::c_char>,
}

fn pointers(texts: &[CString]) -> Vec<*const libc::c_char> {
    texts.iter().map(|t| t.as_ptr()).chain([std::ptr::null()]).collect()
}

impl LaunchParameters {
    /// Creates the child, which runs up to its gate, with or without a sandbox.
    pub fn launch(&self, confined: Option<&RunningSandbox>) -> Result<GatedChild, LaunchError> {
        let fork = |e: Errno| LaunchError { step: Step::Fork, errno: e.raw_os_error() };
        let (gate_in, gate_out) = pipe_with(PipeFlags::CLOEXEC).map_err(fork)?;
        let (errors_in, errors_out) = pipe_with(PipeFlags::CLOEXEC).map_err(fork)?;
        let procs = match &self.unified {
            // Only for kernels before 5.7 and sandboxes without clone3.
            Some(directory) => Some(open_procs(directory).map_err(fork)?),
            None => None,
        };
        let tables =
            PointerTables { paths: pointers(&self.paths), args: pointers(&self.args), env: pointers(&self.env) };
        if let Some(confined) = confined {
            let join = |e: Errno| LaunchError { step: Step::Join, errno: e.raw_os_error() };
            confined.init.adopt_children().map_err(join)?;
        }
        // No signal handler may run in the child: it would write to shared descriptors.
        let blocked = block_signals();
        let (pid, entered) = match self.unified.as_ref().map(|cgroup| clone_with(0, Some(cgroup))) {
            Some(Ok(pid)) => (Ok(pid), true),
            _ => (fork_plainly(), false),
        };
        if pid != Ok(0) {
            restore_signals(&blocked);
        }
        let pid = pid.map_err(fork)?;
        if pid == 0 {
            let enter = if entered { None } else { procs.as_ref() };
            let ends = [raw(&gate_in), raw(&gate_out), raw(&errors_out)];
            // SAFETY: this is the new child: a single thread that makes only system calls and never returns.
            unsafe { self.exec_program(&tables, enter, ends, confined) }
        }
        Ok(GatedChild { pid: pid.unsigned_abs(), gate: gate_out, errors: errors_in })
    }

    /// The child's code until exec. No allocation, no lock, no panic, no return.
    ///
    /// SAFETY: only in a child just forked; the tables must belong to this program.
    unsafe fn exec_program(
        &self,
        tables: &PointerTables,
        procs: Option<&OwnedFd>,
        [gate, our_gate, errors]: [i32; 3],
        confined: Option<&RunningSandbox>,
    ) -> ! {
        // SAFETY (all blocks below): system calls on open descriptors and on tables that live until exec.
        let fail_with = |step: Step, errno: i32| -> ! {
            let ([step, index], [a, b, c, d]) = (step.code(), errno.to_ne_bytes());
            let report = [step, index, a, b, c, d];
            unsafe {
                libc::write(errors, report.as_ptr().cast(), report.len());
                libc::_exit(127)
            }
        };
        let fail = |step: Step| -> ! {
            fail_with(step, Errno::from_io_error(&io::Error::last_os_error()).map_or(0, Errno::raw_os_error))
        };
        let done = |step: Step, result: Result<(), Errno>| {
            if let Err(errno) = result {
                fail_with(step, errno.raw_os_error())
            }
        };
        unsafe {
            // Otherwise the child would hold its own gate open.
            libc::close(our_gate);
            for (index, tasks) in self.v1_tasks.iter().enumerate() {
                if libc::write(raw(tasks), c"0".as_ptr().cast(), 1) < 0 {
                    fail(Step::EnterV1(u8::try_from(index).unwrap_or(u8::MAX)));
                }
            }
            if let Some(procs) = procs
                && libc::write(raw(procs), c"0".as_ptr().cast(), 1) < 0
            {
                fail(Step::EnterV2);
            }
            for (number, stream) in [(0, &self.stdin), (1, &self.stdout), (2, &self.stderr)] {
                if libc::dup2(raw(stream), number) < 0 {
                    fail(Step::Streams);
                }
            }
            // Since 5.11; on older kernels every descriptor of the supervisor is close-on-exec anyway.
            libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
            for namespace in confined.iter().flat_map(|confined| confined.namespaces()) {
                if libc::setns(raw(namespace), 0) < 0 {
                    fail(Step::Join);
                }
            }
            if let Some(network) = &self.network
                && libc::setns(raw(network), libc::CLONE_NEWNET) < 0
            {
                fail(Step::Join);
            }
            if libc::setsid() < 0 {
                fail(Step::Session);
            }
            if self.has_terminal && libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                fail(Step::Terminal);
            }
            for (index, (resource, limit)) in self.limits.iter().enumerate() {
                if libc::setrlimit(*resource, std::ptr::from_ref(limit)) < 0 {
                    fail(Step::Limit(u8::try_from(index).unwrap_or(u8::MAX)));
                }
            }
            if let Some(RunningSandbox { sandbox, .. }) = confined {
                done(Step::Capabilities, sandbox::bound(sandbox.capabilities));
            }
            if let Some((uid, gid, groups)) = &self.user {
                // Direct system calls: glibc's wrappers synchronise threads, and there are none.
                if libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) < 0 {
                    fail(Step::Groups);
                }
                if libc::syscall(libc::SYS_setresgid, *gid, *gid, *gid) < 0 {
                    fail(Step::Group);
                }
                if libc::syscall(libc::SYS_setresuid, *uid, *uid, *uid) < 0 {
                    fail(Step::User);
                }
            }
            if let Some(RunningSandbox { sandbox, .. }) = confined {
                done(Step::Capabilities, sandbox::give_up(sandbox.capabilities));
            }
            if libc::chdir(self.directory.as_ptr()) < 0 {
                fail(Step::Directory);
            }
            libc::umask(0o022);
            reset_signals();
            // After the change of user, which clears it.
            if self.dies_with_parent && libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) < 0 {
                fail(Step::ParentDeath);
            }
            if let Some(RunningSandbox { sandbox, .. }) = confined {
                done(Step::Filter, sandbox::filter(&sandbox.filters));
            }
            let mut go = 0u8;
            if libc::read(gate, (&raw mut go).cast(), 1) != 1 {
                // The supervisor died before it recorded this child.
                libc::_exit(127);
            }
            // As execvp: uses the first existing path; reports EACCES only if no later one can be run.
            let mut denied = false;
            for path in tables.paths.iter().filter(|p| !p.is_null()) {
                libc::execve(*path, tables.args.as_ptr(), tables.env.as_ptr());
                match *libc::__errno_location() {
                    libc::ENOENT | libc::ENOTDIR => {}
                    libc::EACCES => denied = true,
                    _ => fail(Step::Exec),
                }
            }
            *libc::__errno_location() = if denied { libc::EACCES } else { libc::ENOENT };
            fail(Step::Exec)
        }
    }
}

/// Resets all signals to their default action and the mask to empty: exec would pass on ignored and blocked signals.
///
/// SAFETY: only in a child just forked.
unsafe fn reset_signals() {
    // SAFETY: zeros are the default action in the kernel's own layout, which is not larger than this on any
    // architecture. A direct system call, since glibc's wrapper hides signals 32 and 33, which a parent may have
    // ignored. It fails for KILL and STOP, which changes nothing. A pending blocked signal takes effect when the mask
    // opens.
    unsafe {
        let default = [0u64; 4];
        for number in 1..=64u32 {
            libc::syscall(libc::SYS_rt_sigaction, number, default.as_ptr(), std::ptr::null_mut::<u8>(), 8usize);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

fn open_procs(directory: &OwnedFd) -> Result<OwnedFd, Errno> {
    use rustix::fs::{Mode, OFlags, openat};
    const NAME: &CStr = c"cgroup.procs";
    openat(directory, NAME, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_survives_the_way_through_the_pipe() {
        let steps = [
            Step::Fork,
            Step::EnterV1(3),
            Step::EnterV2,
            Step::Streams,
            Step::Session,
            Step::Limit(15),
            Step::Groups,
            Step::Group,
            Step::User,
            Step::Directory,
            Step::Exec,
            Step::Join,
            Step::Capabilities,
            Step::Filter,
            Step::Terminal,
            Step::ParentDeath,
        ];
        for step in steps {
            assert_eq!(Step::of(step.code()), step);
        }
    }
}
