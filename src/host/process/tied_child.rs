//! A program that ends with the agent.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, getpgrp, getpid, getppid, kill_process_group, pidfd_open, set_parent_process_death_signal,
};

use super::{Child, to_pid};

/// A process that SIGKILL does not end within this time hangs in the kernel: a thread waits for it.
const KILLED_WITHIN: Duration = Duration::from_secs(2);

const POLL_EVERY: Duration = Duration::from_millis(50);

/// The command of this binary that guards a process group.
pub const GUARD: &str = "guard-group";
/// This binary, even if its file was replaced.
const OURSELVES: &str = "/proc/self/exe";

/// A running program, to be ended with [`HeldProgram::end`].
#[derive(Debug)]
pub struct HeldProgram {
    child: Child,
    pidfd: OwnedFd,
    guard: Option<GroupGuard>,
}

/// A process in the program's group that kills the group as soon as the agent is gone. While it lives the kernel does
/// not reuse the group id.
#[derive(Debug)]
struct GroupGuard {
    child: Child,
    /// The kernel closes it when the agent ends in any way.
    _hold: Option<ChildStdin>,
}

impl GroupGuard {
    fn of(group: u32) -> io::Result<GroupGuard> {
        let id = i32::try_from(group).map_err(io::Error::other)?;
        let mut command = Command::new(OURSELVES);
        command.arg0("allostat").args([GUARD, &group.to_string()]).env_clear().process_group(id);
        let mut started = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let hold = started.stdin.take();
        Ok(GroupGuard { child: Child::from(started), _hold: hold })
    }
}

/// Waits until standard input is closed, then kills its process group, itself included.
///
/// Errors: it is not in the process group given as argument.
pub fn guard() -> Result<(), String> {
    let own = getpgrp();
    let named = std::env::args().nth(2).and_then(|group| group.parse().ok()).and_then(to_pid);
    if named != Some(own) {
        return Err("only the agent runs this command".to_owned());
    }
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    kill_process_group(own, Signal::KILL).map_err(|e| e.to_string())
}

impl HeldProgram {
    /// Takes over a process from [`spawn_held`]. Errors: it cannot be waited for, and was killed.
    pub fn of(started: std::process::Child) -> io::Result<HeldProgram> {
        let mut child = Child::from(started);
        let followed = to_pid(child.id()).ok_or_else(|| io::ErrorKind::NotFound.into());
        match followed.and_then(|pid: Pid| Ok(pidfd_open(pid, PidfdFlags::empty())?)) {
            Ok(pidfd) => Ok(HeldProgram { child, pidfd, guard: None }),
            Err(error) => {
                child.kill()?;
                child.wait()?;
                Err(error)
            }
        }
    }

    /// Starts the guard: the process group now ends with the agent, even after SIGKILL. A process that leaves the group
    /// is not covered.
    ///
    /// Errors: the guard did not start; the program was killed.
    pub fn guarded(mut self) -> io::Result<HeldProgram> {
        match GroupGuard::of(self.child.id()) {
            Ok(guard) => {
                self.guard = Some(guard);
                Ok(self)
            }
            Err(error) => {
                self.end(Duration::ZERO, ());
                Err(error)
            }
        }
    }

    /// Waits for `grace`, then kills the process group. Blocks for `grace` plus two seconds at most. `with` is dropped
    /// when the program has ended, however late.
    ///
    /// Returns how it ended, as text.
    pub fn end(self, grace: Duration, with: impl Send + 'static) -> String {
        match self.finish(grace, with) {
            None => "it cannot be killed".to_owned(),
            Some((true, Ok(status))) => format!("it ended with {status}"),
            Some((false, Ok(_))) => "it was killed".to_owned(),
            Some((_, Err(error))) => format!("how it ended is not known: {error}"),
        }
    }

    /// As [`HeldProgram::end`]. `None`: killed after `grace`. Errors: the exit status is not known.
    pub fn status_within(self, grace: Duration) -> io::Result<Option<ExitStatus>> {
        match self.finish(grace, ()) {
            None | Some((false, Ok(_))) => Ok(None),
            Some((true, Ok(status))) => Ok(Some(status)),
            Some((_, Err(error))) => Err(error),
        }
    }

    /// As [`HeldProgram::status_within`]; polls `is_cancelled` 20 times a second and kills the program if it is true.
    pub fn status_unless(self, grace: Duration, is_cancelled: &dyn Fn() -> bool) -> io::Result<Option<ExitStatus>> {
        let until = Instant::now() + grace;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || is_cancelled() || self.ends_within(left.min(POLL_EVERY)) {
                return self.status_within(Duration::ZERO);
            }
        }
    }

    /// Whether it ended by itself, and its status. `None`: it cannot be killed.
    fn finish(mut self, grace: Duration, with: impl Send + 'static) -> Option<(bool, io::Result<ExitStatus>)> {
        let by_itself = self.ends_within(grace);
        // The leader is not reaped yet, so the group id is not reused. Kill what it has started.
        if let Some(group) = to_pid(self.child.id()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        if let Some(mut guard) = self.guard.take() {
            let _ = guard.child.wait();
        }
        if !by_itself && !self.ends_within(KILLED_WITHIN) {
            std::thread::spawn(move || (self.child.wait(), with));
            return None;
        }
        Some((by_itself, self.child.wait()))
    }

    fn ends_within(&self, limit: Duration) -> bool {
        let limit = Timespec::try_from(limit).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        rustix::io::retry_on_intr(|| poll(&mut fds, Some(&limit))).is_ok_and(|ready| ready > 0)
    }
}

/// Variables of the agent that a child must not see: push targets and secrets, and the service manager's socket.
const AGENT_VARIABLES: [&str; 3] = ["ALLOSTAT_", "OTEL_", "NOTIFY_SOCKET"];

/// Removes the agent's own variables from the command's environment.
pub fn remove_agent_variables(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if AGENT_VARIABLES.iter().any(|own| name.to_string_lossy().starts_with(own)) {
            command.env_remove(name);
        }
    }
}

/// Starts the command as leader of its own process group. The kernel kills it when the calling thread ends; the caller
/// has to end the group.
///
/// Errors: no process is left.
pub fn spawn_held(command: &mut Command) -> io::Result<std::process::Child> {
    let own = getpid();
    let hold = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have ended before the death signal was set.
        if getppid() == Some(own) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: between fork and exec only two system calls are made; nothing is allocated.
    unsafe { command.process_group(0).pre_exec(hold) };
    command.spawn()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn held_process_ends_with_the_thread_that_started_it() {
        let start = || spawn_held(Command::new("sleep").arg("60")).unwrap();
        let mut child = std::thread::spawn(start).join().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }
}
