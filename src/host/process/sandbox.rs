//! A task's own part of the kernel: a root directory, namespaces, capabilities, a seccomp filter.
//!
//! ```text
//! supervisor                       init: PID 1 of the task             main process: PID 2
//! begin: clone with namespaces --> waits
//!        opens these; lets it go   mounts the root, pivots, hardens
//!        learns: done, or what
//!        failed                    waits for the supervisor's end
//! Program::launch ------------------------------------------------->  joins the namespaces, gives up what is not its own
//! ```
//! The init does nothing: orphaned children are reaped by the kernel (SIGCHLD is ignored), and when the supervisor's end
//! closes the pipe it ends, and with it every process of its namespace. Main is not PID 1 itself, because the kernel keeps from that
//! one each signal that it does not handle, and because most programs reap no children.

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

/// What confines a task, made before the fork.
#[derive(Debug)]
pub struct Sandbox {
    pub root: RootPlan,
    /// Whether it has process numbers and an IPC namespace of its own.
    pub own_pids: bool,
    pub own_ipc: bool,
    /// A network namespace that is there already; `None`: ours.
    pub network: Option<OwnedFd>,
    /// What main may have, at most.
    pub kept: Capabilities,
    pub filters: Vec<Vec<libc::sock_filter>>,
}

/// What was being done when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxStep {
    Fork,
    Namespaces,
    Network,
    /// Of [`RootPlan`]: its directory became the root.
    Root,
    /// The one with this index in [`RootPlan::steps`].
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
/// And from here on the steps.
const STEPS: u16 = 3;

/// The namespaces of a task, and the process that keeps them. It ends with this value, or with the supervisor.
#[derive(Debug)]
pub struct Init {
    pid: u32,
    /// Its own, to join: process numbers apart from the others, since these count for children only.
    pids: Option<OwnedFd>,
    namespaces: Vec<OwnedFd>,
    /// Closed with this value, and with this process: then it ends.
    _keep: OwnedFd,
}

impl Init {
    pub fn pid(&self) -> u32 {
        self.pid
    }
    /// What is forked from now on is born among the task's processes.
    pub(super) fn adopt_children(&self) -> Result<(), Errno> {
        let kind = Some(rustix::thread::LinkNameSpaceType::ProcessID);
        self.pids.as_ref().map_or(Ok(()), |pids| rustix::thread::move_into_link_name_space(pids.as_fd(), kind))
    }
}

/// A sandbox, and the init that keeps it.
#[derive(Debug)]
pub struct Confined {
    pub(super) sandbox: Sandbox,
    pub(super) init: Init,
}

impl Confined {
    /// Makes the namespaces and the root. Only in a process of one thread. Errors: nothing is left of it.
    pub fn begin(sandbox: Sandbox) -> Result<Confined, (Box<Sandbox>, SandboxError)> {
        match sandbox.begin() {
            Ok(init) => Ok(Confined { sandbox, init }),
            Err(error) => Err((Box::new(sandbox), error)),
        }
    }
    /// Those of a task that runs, by its main process: a program that is launched joins them, and is confined as that one is. `own`:
    /// whether it has process numbers and an IPC namespace of its own. `network`: as [`Sandbox::network`], by its file.
    ///
    /// Errors: it does not run, or they are another's.
    pub fn beside(
        main: u32,
        (own_pids, own_ipc): (bool, bool),
        network: Option<&Path>,
        (kept, filters): (Capabilities, Vec<Vec<libc::sock_filter>>),
    ) -> io::Result<Confined> {
        let network = network.map(File::open).transpose()?.map(OwnedFd::from);
        let root = RootPlan { directory: c"/".to_owned(), pivots: false, whole_trees: false, steps: Vec::new() };
        let sandbox = Sandbox { root, own_pids, own_ipc, network, kept, filters };
        let (pids, namespaces) = sandbox.join(main).map_err(|e| io::Error::from_raw_os_error(e.errno))?;
        // Nothing waits for it: its init is another supervisor's.
        let (_, keep) = pipe_with(PipeFlags::CLOEXEC)?;
        Ok(Confined { sandbox, init: Init { pid: main, pids, namespaces, _keep: keep } })
    }
    /// For the main process to join, between fork and exec.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = &OwnedFd> {
        self.sandbox.network.iter().chain(&self.init.namespaces)
    }
    /// What has to be kept while the task runs.
    pub fn into_init(self) -> Init {
        self.init
    }
    pub fn init(&self) -> &Init {
        &self.init
    }
}

impl Sandbox {
    fn begin(&self) -> Result<Init, SandboxError> {
        let failed = |step| move |errno: Errno| SandboxError { step, errno: errno.raw_os_error() };
        let (keep_in, keep_out) = pipe_with(PipeFlags::CLOEXEC).map_err(failed(SandboxStep::Fork))?;
        let (errors_in, errors_out) = pipe_with(PipeFlags::CLOEXEC).map_err(failed(SandboxStep::Fork))?;
        let title = Title::ours();
        let blocked = block_signals();
        let pid = clone_with(self.flags(), None);
        if pid != Ok(0) {
            restore_signals(&blocked);
        }
        let pid = pid.map_err(failed(SandboxStep::Namespaces))?;
        if pid == 0 {
            // SAFETY: we are the new child: a single thread that makes only system calls and never returns.
            unsafe { self.keep(&title, [raw(&keep_in), raw(&keep_out), raw(&errors_out)]) }
        }
        drop((keep_in, errors_out));
        let pid = pid.unsigned_abs();
        let built = self.join(pid).and_then(|init| {
            // It has ended if this fails, which its report says better.
            let _ = rustix::io::write(&keep_out, b"g");
            heard(&errors_in).map(|()| init)
        });
        match built {
            Ok((pids, namespaces)) => Ok(Init { pid, pids, namespaces, _keep: keep_out }),
            Err(error) => {
                drop(keep_out);
                // Ends: it has failed and ends, or finds its pipe closed.
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

    /// Its namespaces by descriptor, before it hides itself.
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
        // Last: from then on no path of ours leads anywhere.
        namespaces.push(open("mnt")?);
        Ok((pids, namespaces))
    }

    /// The whole life of the init. No lock, no panic, no return.
    ///
    /// SAFETY: only in a child just forked.
    unsafe fn keep(&self, title: &Title, [keep, our_keep, errors]: [i32; 3]) -> ! {
        let fail = |code: u16, errno: Errno| -> ! {
            let ([c0, c1], [a, b, c, d]) = (code.to_ne_bytes(), errno.raw_os_error().to_ne_bytes());
            let report = [c0, c1, a, b, c, d];
            // SAFETY: plain system calls on what lives here.
            unsafe {
                libc::write(errors, report.as_ptr().cast(), report.len());
                libc::_exit(127)
            }
        };
        // SAFETY (all blocks below): plain system calls on descriptors that are open.
        unsafe {
            // Else we would hold our own pipe open.
            libc::close(our_keep);
            let mut go = 0_u8;
            if libc::read(keep, (&raw mut go).cast(), 1) != 1 {
                libc::_exit(127);
            }
            // The process that holds the record is the supervisor, and its lock is that one's alone.
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
        // Whatever is made has a group of its own.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        match self.root.build() {
            Ok(()) => {}
            Err((None, errno)) => fail(ROOT, errno),
            Err((Some(step), errno)) => fail(STEPS.saturating_add(u16::try_from(step).unwrap_or(u16::MAX)), errno),
        }
        if let Err(errno) = harden() {
            fail(HARDEN, errno);
        }
        // SAFETY: as above; the errors go last, whose end says that all is done.
        unsafe {
            libc::setsid();
            for fd in 1..errors {
                libc::close(fd);
            }
            // From 5.9; before it, what is left open is close-on-exec and never used.
            let rest = u32::try_from(errors).unwrap_or(u32::MAX).saturating_add(1);
            libc::syscall(libc::SYS_close_range, rest, u32::MAX, 0);
            libc::close(errors);
            let mut byte = 0_u8;
            loop {
                // Its writer never writes again: what comes is the end of the supervisor.
                let read = libc::read(0, (&raw mut byte).cast(), 1);
                if read == 0 || (read < 0 && *libc::__errno_location() != libc::EINTR) {
                    libc::_exit(0);
                }
            }
        }
    }
}

/// Reads nothing but the end if all went well.
fn heard(errors: &OwnedFd) -> Result<(), SandboxError> {
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

/// What the init gives up: every capability, and to be looked into by anybody who lacks CAP_SYS_PTRACE.
fn harden() -> Result<(), Errno> {
    // SAFETY: a system call without pointers, and one with the default action of a signal that is known.
    unsafe {
        if libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 {
            return Err(Errno::PERM);
        }
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
    }
    // Without the name it works as well.
    let _ = rustix::thread::set_name(c"allostat-init");
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
}

/// Before main becomes its user: what it will never have.
pub(super) fn bound(kept: Capabilities) -> Result<(), Errno> {
    for number in 0..64 {
        if kept.bits() & (1 << number) != 0 {
            continue;
        }
        match rustix::thread::remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            Ok(()) => {}
            // The kernel knows no more.
            Err(Errno::INVAL) => break,
            Err(e) => return Err(e),
        }
    }
    rustix::thread::set_keep_capabilities(true)
}

/// After it: what it has, also as another user than root, as in Nomad; and that no program gives it more.
pub(super) fn give_up(kept: Capabilities) -> Result<(), Errno> {
    let set = CapabilitySet::from_bits_retain(kept.bits());
    rustix::thread::set_capabilities(None, CapabilitySets { effective: set, permitted: set, inheritable: set })?;
    for one in set.iter() {
        rustix::thread::configure_capability_in_ambient_set(one, true)?;
    }
    rustix::thread::set_no_new_privs(true)
}

/// The last before the gate: from here on only what the filters allow.
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

/// Where our command line stands in our memory: the init is not to be taken for a supervisor, nor show the task where its record is.
/// Source: fields 48 and 49 of `/proc/self/stat`.
struct Title(Option<(u64, usize)>);

impl Title {
    fn ours() -> Title {
        let found = std::fs::read("/proc/self/stat").ok().and_then(|stat| pid_stat::arguments(&stat));
        Title(found.and_then(|(from, to)| Some((from, usize::try_from(to - from).ok()?))))
    }

    /// Without allocation. What cannot be replaced stays.
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
