//! A program that does not outlive whoever started it.

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

/// What SIGKILL does not end within so long hangs in the kernel: it is left to a thread that waits for it.
const KILLED_WITHIN: Duration = Duration::from_secs(2);

const ASK_AGAIN: Duration = Duration::from_millis(50);

/// The word by which this binary is the guard of a process group.
pub const GUARD: &str = "guard-group";
/// This very binary, even if its file was replaced meanwhile.
const OURSELVES: &str = "/proc/self/exe";

/// Runs, and ends with [`HeldProgram::end`].
#[derive(Debug)]
pub struct HeldProgram {
    child: Child,
    pidfd: OwnedFd,
    guard: Option<Guard>,
}

/// A process in the program's group that kills the whole group as soon as the agent is gone. As long as it lives the kernel does not
/// reuse the group's number.
#[derive(Debug)]
struct Guard {
    child: Child,
    /// Closed by the kernel, however the agent ends.
    _hold: Option<ChildStdin>,
}

impl Guard {
    fn of(group: u32) -> io::Result<Guard> {
        let id = i32::try_from(group).map_err(io::Error::other)?;
        let mut command = Command::new(OURSELVES);
        command.arg0("allostat").args([GUARD, &group.to_string()]).env_clear().process_group(id);
        let mut started = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let hold = started.stdin.take();
        Ok(Guard { child: Child::from(started), _hold: hold })
    }
}

/// Waits until its standard input is closed, then kills its process group, itself included.
///
/// Errors: it is not in the group of its argument.
pub fn guard() -> Result<(), String> {
    let own = getpgrp();
    let named = std::env::args().nth(2).and_then(|group| group.parse().ok()).and_then(to_pid);
    if named != Some(own) {
        return Err("this is run by an agent, for itself".to_owned());
    }
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    kill_process_group(own, Signal::KILL).map_err(|e| e.to_string())
}

impl HeldProgram {
    /// What [`spawn_held`] started. Errors: it cannot be followed, and was killed.
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

    /// From now on its process group ends with the agent, even where that is killed. A process that leaves the group is not covered.
    ///
    /// Errors: it cannot be guarded, and was killed.
    pub fn guarded(mut self) -> io::Result<HeldProgram> {
        match Guard::of(self.child.id()) {
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

    /// Waits so long for its end, then kills its process group. Blocks for that long, and two seconds. `with`: dropped when it has
    /// ended, however late.
    ///
    /// Gives how it ended.
    pub fn end(self, grace: Duration, with: impl Send + 'static) -> String {
        match self.finish(grace, with) {
            None => "it cannot be killed".to_owned(),
            Some((true, Ok(status))) => format!("it ended with {status}"),
            Some((false, Ok(_))) => "it was killed".to_owned(),
            Some((_, Err(error))) => format!("how it ended is not known: {error}"),
        }
    }

    /// The same. `None`: it was killed at the end of its time. Errors: how it ended is not known.
    pub fn status_within(self, grace: Duration) -> io::Result<Option<ExitStatus>> {
        match self.finish(grace, ()) {
            None | Some((false, Ok(_))) => Ok(None),
            Some((true, Ok(status))) => Ok(Some(status)),
            Some((_, Err(error))) => Err(error),
        }
    }

    /// The same; `is_cancelled` is asked 20 times a second, and kills it as well.
    pub fn status_unless(self, grace: Duration, is_cancelled: &dyn Fn() -> bool) -> io::Result<Option<ExitStatus>> {
        let until = Instant::now() + grace;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || is_cancelled() || self.ends_within(left.min(ASK_AGAIN)) {
                return self.status_within(Duration::ZERO);
            }
        }
    }

    /// Whether it ended by itself, and how. `None`: it cannot be killed.
    fn finish(mut self, grace: Duration, with: impl Send + 'static) -> Option<(bool, io::Result<ExitStatus>)> {
        let by_itself = self.ends_within(grace);
        // Not reaped yet: the number of its group is nobody else's. Where it has ended, what it started goes.
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

/// What is ours, and nobody's business whom we start: where we push to and with which secret, who our manager is.
const OURS: [&str; 3] = ["ALLOSTAT_", "OTEL_", "NOTIFY_SOCKET"];

/// Takes what is ours out of the environment that it gets.
pub fn without_ours(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if OURS.iter().any(|ours| name.to_string_lossy().starts_with(ours)) {
            command.env_remove(name);
        }
    }
}

/// Starts it as the leader of a process group of its own. The kernel kills it as soon as the calling thread has ended, however that
/// came; what it has started itself is for whoever ends the group.
///
/// Errors: nothing runs.
pub fn spawn_held(command: &mut Command) -> io::Result<std::process::Child> {
    let ours = getpid();
    let hold = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // Whoever it was to die with may have ended before that was said.
        if getppid() == Some(ours) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: between fork and exec only two plain system calls are made; nothing is allocated.
    unsafe { command.process_group(0).pre_exec(hold) };
    command.spawn()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn it_ends_with_the_thread_that_started_it() {
        let start = || spawn_held(Command::new("sleep").arg("60")).unwrap();
        let mut child = std::thread::spawn(start).join().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }
}
