//! Isolation of a task: root directory, namespaces, capabilities, seccomp filter.
//!
//! ```text
//! supervisor                       init: PID 1 of the task             main process: PID 2
//! begin: clone with namespaces --> waits
//!        opens them; resumes it    mounts the root, pivots, hardens
//!        reads: done, or the
//!        failed step               waits for the supervisor's end
//! Program::launch ------------------------------------------------->  joins the namespaces, drops capabilities
//! ```
//! The init does nothing else: the kernel reaps orphans (SIGCHLD is ignored). When the supervisor ends, the pipe closes
//! and the init exits, and the kernel kills every process of its pid namespace. The main process is not PID 1, because
//! the kernel discards signals that PID 1 does not handle, and because most programs do not reap orphans.

mod root;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::fork::{block_signals, clone_with, restore_signals};
use super::{Capabilities, raw};
use crate::kernel::proc::pid_stat;

pub use root::{HostTree, RootPlan, RootStep, binds_whole_trees};

/// The isolation of a task, prepared before the fork.
#[derive(Debug)]
pub struct Sandbox {
    pub root: RootPlan,
    /// Whether it has its own pid and IPC namespaces.
    pub own_pids: bool,
    pub own_ipc: bool,
    /// An existing network namespace; `None`: the current one.
    pub network: Option<OwnedFd>,
    /// The capabilities that the main process may have at most.
    pub capabilities: Capabilities,
    pub filters: Vec<Vec<libc::sock_filter>>,
}

/// The step that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxStep {
    Fork,
    Namespaces,
    Network,
    /// Making the directory of [`RootPlan`] the root.
    Root,
    /// The step with this index in [`RootPlan::steps`].
    Step(usize),
    Harden,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SandboxError {
    pub step: SandboxStep,
    pub errno: i32,
}

const NETWORK: u16 = 0;
const ROOT: u16 = 1;
const HARDEN: u16 = 2;
/// The first code for [`SandboxStep::Step`].
const STEPS: u16 = 3;

/// The namespaces of a task and the process that keeps them. It ends when this value is dropped, or with the
/// supervisor.
#[derive(Debug)]
pub struct SandboxInit {
    pid: u32,
    /// Its pid namespace, separate from the others, since joining it affects only children.
    pids: Option<OwnedFd>,
    namespaces: Vec<OwnedFd>,
    /// The init exits when it is closed: by a drop of this value or the end of this process.
    _keep: OwnedFd,
}

impl SandboxInit {
    pub fn pid(&self) -> u32 {
        self.pid
    }
    /// Children forked from now on start in the task's pid namespace.
    pub(super) fn adopt_children(&self) -> Result<(), Errno> {
        let kind = Some(rustix::thread::LinkNameSpaceType::ProcessID);
        self.pids.as_ref().map_or(Ok(()), |pids| rustix::thread::move_into_link_name_space(pids.as_fd(), kind))
    }
}

/// A sandbox and its init.
#[derive(Debug)]
pub struct RunningSandbox {
    pub(super) sandbox: Sandbox,
    pub(super) init: SandboxInit,
}

impl RunningSandbox {
    /// Creates the namespaces and the root. Only in a process with one thread. Errors: everything is undone.
    pub fn begin(sandbox: Sandbox) -> Result<RunningSandbox, (Box<Sandbox>, SandboxError)> {
        match sandbox.begin() {
            Ok(init) => Ok(RunningSandbox { sandbox, init }),
            Err(error) => Err((Box::new(sandbox), error)),
        }
    }
    /// The namespaces of a running task, found by its main process. A program that is launched joins them with the same
    /// restrictions. `own_pids`, `own_ipc`: whether the task has its own pid and IPC namespaces. `network`: the file of
    /// [`Sandbox::network`].
    ///
    /// Errors: the main process is not running, or its namespaces cannot be opened.
    pub fn join(
        main: u32,
        (own_pids, own_ipc): (bool, bool),
        network: Option<&Path>,
        (retained, filters): (Capabilities, Vec<Vec<libc::sock_filter>>),
    ) -> io::Result<RunningSandbox> {
        let network = network.map(File::open).transpose()?.map(OwnedFd::from);
        let root = RootPlan { directory: c"/".to_owned(), pivots: false, whole_trees: false, steps: Vec::new() };
        let sandbox = Sandbox { root, own_pids, own_ipc, network, capabilities: retained, filters };
        let (pids, namespaces) = sandbox.join(main).map_err(|e| io::Error::from_raw_os_error(e.errno))?;
        // A dummy pipe: the init belongs to another supervisor.
        let (_, keep) = pipe_with(PipeFlags::CLOEXEC)?;
        Ok(RunningSandbox { sandbox, init: SandboxInit { pid: main, pids, namespaces, _keep: keep } })
    }
    /// The namespaces that the main process joins between fork and exec.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = &OwnedFd> {
        self.sandbox.network.iter().chain(&self.init.namespaces)
    }
    /// The part to keep while the task runs.
    pub fn into_init(self) -> SandboxInit {
        self.init
    }
    pub fn init(&self) -> &SandboxInit {
        &self.init
    }
}

impl Sandbox {
    fn begin(&self) -> Result<SandboxInit, SandboxError> {
        let failed = |step| move |errno: Errno| SandboxError { step, errno: errno.raw_os_error() };
        let (keep_in, keep_out) = pipe_with(PipeFlags::CLOEXEC).map_err(failed(SandboxStep::Fork))?;
        let (errors_in, errors_out) = pipe_with(PipeFlags::CLOEXEC).map_err(failed(SandboxStep::Fork))?;
        let title = ProcessTitle::current();
        let blocked = block_signals();
        let pid = clone_with(self.flags(), None);
        if pid != Ok(0) {
            restore_signals(&blocked);
        }
        let pid = pid.map_err(failed(SandboxStep::Namespaces))?;
        if pid == 0 {
            // SAFETY: this is the new child: a single thread that makes only system calls and never returns.
            unsafe { self.keep(&title, [raw(&keep_in), raw(&keep_out), raw(&errors_out)]) }
        }
        drop((keep_in, errors_out));
        let pid = pid.unsigned_abs();
        let built = self.join(pid).and_then(|init| {
            // Fails if the init has exited; its report says why.
            let _ = rustix::io::write(&keep_out, b"g");
            read_result(&errors_in).map(|()| init)
        });
        match built {
            Ok((pids, namespaces)) => Ok(SandboxInit { pid, pids, namespaces, _keep: keep_out }),
            Err(error) => {
                drop(keep_out);
                // It exits: it has failed, or its pipe is closed now.
                let _ = rustix::io::retry_on_intr(|| {
                    rustix::process::waitpid(super::to_pid(pid), rustix::process::WaitOptions::empty())
                });
                Err(error)
            }
        }
    }

    fn flags(&self) -> u64 {
        let when = |is: bool, flag: i32| if is { u64::from(flag.unsigned_abs()) } else { 0 };
        when(true, libc::CLONE_NEWNS) | when(self.own_pids, libc::CLONE_NEWPID) | when(self.own_ipc, libc::CLONE_NEWIPC)
    }

    /// Opens its namespaces before it becomes non-dumpable.
    fn join(&self, pid: u32) -> Result<(Option<OwnedFd>, Vec<OwnedFd>), SandboxError> {
        let open = |name: &str| {
            let file = File::open(format!("/proc/{pid}/ns/{name}")).map(OwnedFd::from);
            file.map_err(|e| SandboxError {
                step: SandboxStep::Namespaces,
                errno: e.raw_os_error().unwrap_or(libc::EIO),
            })
        };
        let pids = if self.own_pids { Some(open("pid")?) } else { None };
        let mut namespaces = Vec::new();
        if self.own_ipc {
            namespaces.push(open("ipc")?);
        }
        // Last: after it no path leads to the host.
        namespaces.push(open("mnt")?);
        Ok((pids, namespaces))
    }

    /// The init's code. No lock, no panic, no return.
    ///
    /// SAFETY: only in a child just forked.
    unsafe fn keep(&self, title: &ProcessTitle, [keep, our_keep, errors]: [i32; 3]) -> ! {
        let fail = |code: u16, errno: Errno| -> ! {
            let ([c0, c1], [a, b, c, d]) = (code.to_ne_bytes(), errno.raw_os_error().to_ne_bytes());
            let report = [c0, c1, a, b, c, d];
            // SAFETY: system calls on local values.
            unsafe {
                libc::write(errors, report.as_ptr().cast(), report.len());
                libc::_exit(127)
            }
        };
        // SAFETY (all blocks below): system calls on open descriptors.
        unsafe {
            // Otherwise the init would hold its own pipe open.
            libc::close(our_keep);
            let mut go = 0_u8;
            if libc::read(keep, (&raw mut go).cast(), 1) != 1 {
                libc::_exit(127);
            }
            // Replaces the descriptor of the record: its lock belongs to the supervisor alone.
            libc::dup2(keep, 0);
        }
        if let Some(network) = &self.network
            && let Err(errno) = rustix::thread::move_into_link_name_space(
                network.as_fd(),
                Some(rustix::thread::LinkNameSpaceType::Network),
            )
        {
            fail(NETWORK, errno);
        }
        title.replace();
        // Files are created with the modes given explicitly.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        match self.root.build() {
            Ok(()) => {}
            Err((None, errno)) => fail(ROOT, errno),
            Err((Some(step), errno)) => fail(STEPS.saturating_add(u16::try_from(step).unwrap_or(u16::MAX)), errno),
        }
        if let Err(errno) = harden() {
            fail(HARDEN, errno);
        }
        // SAFETY: as above. The error pipe is closed last: its end reports success.
        unsafe {
            libc::setsid();
            for fd in 1..errors {
                libc::close(fd);
            }
            // Since 5.9; on older kernels the remaining descriptors are close-on-exec and never used.
            let rest = u32::try_from(errors).unwrap_or(u32::MAX).saturating_add(1);
            libc::syscall(libc::SYS_close_range, rest, u32::MAX, 0);
            libc::close(errors);
            let mut byte = 0_u8;
            loop {
                // The writer sends nothing further: the read ends with the supervisor.
                let read = libc::read(0, (&raw mut byte).cast(), 1);
                if read == 0 || (read < 0 && *libc::__errno_location() != libc::EINTR) {
                    libc::_exit(0);
                }
            }
        }
    }
}

/// An empty read means success.
fn read_result(errors: &OwnedFd) -> Result<(), SandboxError> {
    let mut report = [0_u8; 6];
    match rustix::io::retry_on_intr(|| rustix::io::read(errors, &mut report)) {
        Ok(0) => Ok(()),
        Ok(6) => {
            let [c0, c1, a, b, c, d] = report;
            let step = match u16::from_ne_bytes([c0, c1]) {
                NETWORK => SandboxStep::Network,
                ROOT => SandboxStep::Root,
                HARDEN => SandboxStep::Harden,
                step => SandboxStep::Step(usize::from(step - STEPS)),
            };
            Err(SandboxError { step, errno: i32::from_ne_bytes([a, b, c, d]) })
        }
        Ok(_) => Err(SandboxError { step: SandboxStep::Fork, errno: libc::EIO }),
        Err(e) => Err(SandboxError { step: SandboxStep::Fork, errno: e.raw_os_error() }),
    }
}

/// Drops every capability and makes the init non-dumpable, so that only CAP_SYS_PTRACE can inspect it.
fn harden() -> Result<(), Errno> {
    // SAFETY: a system call without pointers, and one that ignores a valid signal.
    unsafe {
        if libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 {
            return Err(Errno::PERM);
        }
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
    }
    // The name is cosmetic.
    let _ = rustix::thread::set_name(c"allostat-init");
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
}

/// Drops capabilities from the bounding set, before the main process changes its user.
pub(super) fn bound(capabilities: Capabilities) -> Result<(), Errno> {
    for number in 0..64 {
        if capabilities.bits() & (1 << number) != 0 {
            continue;
        }
        match rustix::thread::remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            Ok(()) => {}
            // The kernel has no further capability.
            Err(Errno::INVAL) => break,
            Err(e) => return Err(e),
        }
    }
    rustix::thread::set_keep_capabilities(true)
}

/// Sets the capabilities after the change of user (also for users other than root, as in Nomad), and no_new_privs.
pub(super) fn give_up(capabilities: Capabilities) -> Result<(), Errno> {
    let set = CapabilitySet::from_bits_retain(capabilities.bits());
    rustix::thread::set_capabilities(None, CapabilitySets { effective: set, permitted: set, inheritable: set })?;
    for one in set.iter() {
        rustix::thread::configure_capability_in_ambient_set(one, true)?;
    }
    rustix::thread::set_no_new_privs(true)
}

/// Installs the seccomp filters: the last step before the gate.
pub(super) fn filter(filters: &[Vec<libc::sock_filter>]) -> Result<(), Errno> {
    for filter in filters {
        let program = libc::sock_fprog {
            len: u16::try_from(filter.len()).map_err(|_| Errno::TOOBIG)?,
            filter: filter.as_ptr().cast_mut(),
        };
        // SAFETY: the program points to instructions that outlive the call, which copies them.
        let answer =
            unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0_u64, &raw const program) };
        if answer != 0 {
            return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO));
        }
    }
    Ok(())
}

/// The location of the command line in memory. The init overwrites it: it must not look like a supervisor, nor show the
/// path of the task's record. Source: fields 48 and 49 of `/proc/self/stat`.
struct ProcessTitle(Option<(u64, usize)>);

impl ProcessTitle {
    fn current() -> ProcessTitle {
        let found = std::fs::read("/proc/self/stat").ok().and_then(|stat| pid_stat::arguments(&stat));
        ProcessTitle(found.and_then(|(from, to)| Some((from, usize::try_from(to - from).ok()?))))
    }

    /// Does not allocate. On failure the title stays.
    fn replace(&self) {
        const NAME: &[u8] = b"allostat\0init\0";
        let Some((mut from, mut left)) = self.0 else { return };
        let memory = rustix::fs::open(c"/proc/self/mem", rustix::fs::OFlags::WRONLY, rustix::fs::Mode::empty());
        let Ok(memory) = memory else { return };
        let mut part = [0_u8; 256];
        part[..NAME.len()].copy_from_slice(NAME);
        while left > 0 {
            let length = left.min(part.len());
            match rustix::io::pwrite(&memory, &part[..length], from) {
                Ok(written) if written > 0 => {
                    from = from.saturating_add(written as u64);
                    left = left.saturating_sub(written);
                }
                _ => return,
            }
            part = [0; 256];
        }
    }
}
