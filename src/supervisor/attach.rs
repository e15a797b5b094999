//! A command beside a task, with a user at the other end of its streams: `allostat exec`. It runs as the task's user,
//! in its cgroup and its namespaces, with its environment, capabilities and filters, and ends with its session.
//!
//! ```text
//! agent ── orders, three pipes ──► this process ── fork, as for a main process ──► the command
//!       ◄── started, its terminal ──┤ waits: the command ends, the task ends, the agent hangs up
//!       ◄── how it ended ───────────┘ ends what the command left, then reports
//! ```
//! Bytes go between the agent and the command directly. The line between the agent and this process is what a session
//! hangs on: where it breaks, by the end of either, everything that the command started is killed.

use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Uid;
use serde::{Deserialize, Serialize};

use super::orders::Orders;
use super::start;
use super::tree::{self, ReapedProcesses};
use crate::host::cgroup::Cgroup;
use crate::host::fd_passing;
use crate::host::process::{self, Process, RunningSandbox, WaitStatus, identity};
use crate::host::pty::{self, Pty, WindowSize};
use crate::host::seccomp;
use crate::model::id::ProcessId;

/// The word that this binary is executed with.
pub const ATTACH: &str = "run-attached";
/// How the cgroups of sessions begin, below those of their tasks.
pub const EXEC_CGROUP: &str = "allostat-exec-";

/// What the agent asks for. With it come a file of this as JSON and, without a terminal, the ends of three pipes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachOrders {
    /// Of the task, with the command and its arguments.
    pub orders: Orders,
    /// Of the task: its namespaces are joined, and the session ends with it.
    pub main: ProcessId,
    /// `None`: three pipes.
    pub terminal: Option<WindowSize>,
}

/// What this process says, each in a message of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttachReport {
    /// It runs. The master of its terminal comes with it, if it has one.
    Started,
    /// It never ran; why.
    Failed(String),
    Code(u8),
    Signal(u8),
}

/// More is no orders.
const LONGEST_INPUT: u64 = 4 << 20;
/// Until what is left of a session is looked at again.
const RETRY: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// What SIGKILL does not end within so long hangs in the kernel, and is left there.
const KILLED_WITHIN: Duration = Duration::from_secs(10);
/// Until the kernel lets go of a cgroup without processes.
const REMOVED_WITHIN: Duration = Duration::from_secs(2);

/// Errors: a sentence; nothing ran.
pub fn run_attached() -> Result<(), String> {
    let failed = |what: &'static str| move |e: io::Error| format!("{what}: {e}");
    // Without the name it works as well.
    let _ = rustix::thread::set_name(c"allostat-exec");
    process::lead_session().map_err(failed("setsid"))?;
    process::become_subreaper().map_err(failed("cannot become a subreaper"))?;
    let line = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).map_err(|e| failed("no line")(e.into()))?;
    let signals = process::signals_as_descriptor(&[libc::SIGCHLD]).map_err(failed("signalfd"))?;
    let mut nothing = [0; 1];
    let (length, descriptors) = fd_passing::receive(&line, &mut nothing).map_err(failed("no orders of an agent"))?;
    if length == 0 {
        return Ok(());
    }
    match AttachedCommand::begin(descriptors) {
        Ok((mut session, master)) => {
            let masters: Vec<_> = master.iter().map(AsFd::as_fd).collect();
            // An agent that is gone is found gone below.
            let _ = fd_passing::send(&line, &words(&AttachReport::Started), &masters);
            drop(master);
            let end = session.live(&line, &signals);
            let _ = fd_passing::send(&line, &words(&end), &[]);
        }
        Err(why) => {
            let _ = fd_passing::send(&line, &words(&AttachReport::Failed(why)), &[]);
        }
    }
    Ok(())
}

fn words(report: &AttachReport) -> Vec<u8> {
    serde_json::to_vec(report).expect("plain strings and numbers must serialize")
}

/// The command, running.
struct AttachedCommand {
    pid: u32,
    tree: ReapedProcesses,
    /// Readable when the task's main process has ended.
    task: OwnedFd,
    /// Of what the command starts; `None`: this host cannot make one.
    cgroup: Option<Cgroup>,
}

impl AttachedCommand {
    /// Errors: a sentence; nothing ran, and nothing is left.
    fn begin(descriptors: Vec<OwnedFd>) -> Result<(AttachedCommand, Option<OwnedFd>), String> {
        let mut descriptors = descriptors.into_iter();
        let mut orders_file = std::fs::File::from(descriptors.next().ok_or("no orders of an agent")?);
        let mut input = Vec::new();
        let read =
            orders_file.seek(SeekFrom::Start(0)).and_then(|_| orders_file.take(LONGEST_INPUT).read_to_end(&mut input));
        read.map_err(|e| format!("cannot read the orders: {e}"))?;
        let requested: AttachOrders =
            serde_json::from_slice(&input).map_err(|e| format!("no orders of an agent: {e}"))?;
        let streams = match (descriptors.next(), descriptors.next(), descriptors.next()) {
            (Some(stdin), Some(stdout), Some(stderr)) => Some([stdin, stdout, stderr]),
            _ => None,
        };
        let cgroup = own_cgroup(&requested)?;
        AttachedCommand::launch(&requested, streams, cgroup.clone()).inspect_err(|_| {
            let _ = cgroup.map(|cgroup| cgroup.remove(REMOVED_WITHIN));
        })
    }

    fn launch(
        requested: &AttachOrders,
        streams: Option<[OwnedFd; 3]>,
        cgroup: Option<Cgroup>,
    ) -> Result<(AttachedCommand, Option<OwnedFd>), String> {
        // It logs nothing: what it prints is the user's who asked.
        let mut orders = Orders { logs: None, ..requested.orders.clone() };
        if let (Some(whole), Some(own)) = (orders.cgroup.take(), &cgroup) {
            orders.cgroup = Some(whole.entered_through(own));
        } else {
            orders.cgroup.clone_from(&requested.orders.cgroup);
        }
        let (mut program, _outputs) = start::prepare(&orders).map_err(super::exec_in_task::words)?;
        let removed = |e: io::Error| format!("cannot find the main process {} of the task: {e}", requested.main.pid);
        let task = Process::open(requested.main).map_err(removed)?.ok_or("the task is not running")?;
        let confined = match &orders.sandbox {
            None => None,
            Some(sandbox) => {
                let filters = sandbox.filters.iter().map(seccomp::instructions).collect();
                let own = (sandbox.own_pids, sandbox.own_ipc);
                let joined = RunningSandbox::join(
                    requested.main.pid,
                    own,
                    sandbox.network.as_deref(),
                    (sandbox.capabilities, filters),
                );
                Some(joined.map_err(|e| format!("cannot join the namespaces of the task: {e}"))?)
            }
        };
        let user = orders.account.as_ref().map(|account| account.uid);
        let mut master = None;
        match (requested.terminal, streams) {
            (Some(size), _) => {
                let failed = |e: io::Error| format!("cannot open a terminal: {e}");
                let pty = Pty::open(confined.is_some().then_some(requested.main.pid)).map_err(failed)?;
                user.map_or(Ok(()), |uid| pty.give_to(uid, None)).map_err(failed)?;
                pty::resize(&pty.master, size).map_err(failed)?;
                let copy = || pty.terminal.try_clone().map_err(failed);
                (program.stdin, program.stdout, program.stderr) = (copy()?, copy()?, copy()?);
                program.has_terminal = true;
                master = Some(pty.master);
            }
            (None, Some([stdin, stdout, stderr])) => {
                for pipe in [&stdin, &stdout, &stderr] {
                    // So that it can open /dev/stdin by name. Where that is refused, it has it open all the same.
                    let _ = user.map(|uid| rustix::fs::fchown(pipe, Some(Uid::from_raw(uid)), None));
                }
                (program.stdin, program.stdout, program.stderr) = (stdin, stdout, stderr);
            }
            (None, None) => return Err("no streams of an agent".to_owned()),
        }
        program.dies_with_parent = true;
        // Whose namespaces and terminal they are is known when they are open.
        match identity(requested.main.pid) {
            Ok(Some(found)) if found == requested.main => {}
            Ok(_) => return Err("the task is not running".to_owned()),
            Err(e) => return Err(removed(e)),
        }
        let explain = |e| super::exec_in_task::words(start::explain(&orders, confined.as_ref(), e));
        let launched = program.launch(confined.as_ref()).map_err(explain)?;
        let pid = launched.pid;
        drop(program);
        if let Some(score) = orders.oom_score_adj {
            let written = std::fs::write(format!("/proc/{pid}/oom_score_adj"), score.to_string());
            if let Err(e) = written {
                drop(launched);
                tree::wait_for_all();
                return Err(format!("cannot set its oom_score_adj: {e}"));
            }
        }
        if let Err(error) = launched.open_gate() {
            tree::wait_for_all();
            return Err(explain(error));
        }
        Ok((AttachedCommand { pid, tree: ReapedProcesses::default(), task: task.into_pidfd(), cgroup }, master))
    }

    /// Until nothing of it is left: by itself, with its task, or with the line.
    fn live(&mut self, line: &OwnedFd, signals: &OwnedFd) -> AttachReport {
        let mut problems = Vec::new();
        let mut ends_at = None;
        loop {
            let no_child = self.tree.reap(self.pid, None, &mut problems);
            if self.tree.main.is_some() || no_child {
                ends_at.get_or_insert_with(|| Instant::now() + KILLED_WITHIN);
            }
            if let Some(until) = ends_at {
                let removed = tree::kill_rest(self.cgroup.as_ref(), &mut problems) && no_child;
                if removed || Instant::now() >= until {
                    break;
                }
            }
            let limit = ends_at.is_some().then_some(&RETRY);
            let mut ready = [
                PollFd::new(signals, PollFlags::IN),
                PollFd::new(line, PollFlags::IN),
                PollFd::new(&self.task, PollFlags::IN),
            ];
            // What ended the session would be ready for ever.
            let watched = if ends_at.is_some() { &mut ready[..1] } else { &mut ready[..] };
            let _ = poll(watched, limit);
            // The agent sends nothing more: what comes of it is its end.
            let over = ready[1..].iter().any(|fd| !fd.revents().is_empty());
            if over {
                ends_at.get_or_insert_with(|| Instant::now() + KILLED_WITHIN);
            }
            while process::next_signal(signals).is_some() {}
        }
        if let Some(cgroup) = &self.cgroup {
            // Its task's removal takes it along otherwise.
            let _ = cgroup.remove(REMOVED_WITHIN);
        }
        match self.tree.main.as_ref().and_then(|main| process::ended(main.status)) {
            Some(WaitStatus::Code(code)) => AttachReport::Code(code),
            Some(WaitStatus::Signal(number)) => AttachReport::Signal(number),
            None => AttachReport::Signal(9),
        }
    }
}

/// Errors: its task has none any more.
fn own_cgroup(requested: &AttachOrders) -> Result<Option<Cgroup>, String> {
    let name = format!("{EXEC_CGROUP}{}", std::process::id());
    let Some(own) = requested.orders.cgroup.as_ref().and_then(|task| task.nested(&name)) else { return Ok(None) };
    match own.create_nested() {
        Ok(()) => Ok(Some(own)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err("the task is not running".to_owned()),
        // As many as there may be: the session is ended by its processes then.
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_is_one_message_that_is_read_back() {
        for report in [
            AttachReport::Started,
            AttachReport::Failed("x".to_owned()),
            AttachReport::Code(3),
            AttachReport::Signal(9),
        ] {
            assert_eq!(serde_json::from_slice::<AttachReport>(&words(&report)).unwrap(), report);
        }
    }
}
