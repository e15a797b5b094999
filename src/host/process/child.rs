//! A child process of the agent, started by the standard library or created in a cgroup.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, WaitOptions, waitpid};

use super::launch::{GatedChild, LaunchError, LaunchParameters};
use super::{adopted, errno_text, signal_pid, to_pid};
use crate::host::roots::open_path;

/// [`Child::wait`] reaps it; until then its pid cannot be reused.
#[derive(Debug)]
pub struct Child {
    pid: u32,
    ended: Option<ExitStatus>,
}

impl From<std::process::Child> for Child {
    fn from(child: std::process::Child) -> Child {
        Child::of(child.id())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        adopted::unregister_owned(self.pid);
    }
}

impl Child {
    pub(super) fn of(pid: u32) -> Child {
        adopted::register_owned(pid);
        Child { pid, ended: None }
    }

    /// Starts `path` as a session leader in `/` that inherits only three descriptors. It starts in `cgroup` (a
    /// directory of the unified hierarchy) and is never in another. Returns after the exec.
    ///
    /// Errors: no process is left.
    pub fn born_in(cgroup: &Path, path: &Path, args: &[&OsStr], streams: [OwnedFd; 3]) -> io::Result<Child> {
        let text = |bytes: &[u8]| CString::new(bytes).map_err(io::Error::other);
        let [stdin, stdout, stderr] = streams;
        let program = LaunchParameters {
            paths: vec![text(path.as_os_str().as_bytes())?],
            args: args.iter().map(|arg| text(arg.as_bytes())).collect::<io::Result<_>>()?,
            env: Vec::new(),
            directory: c"/".to_owned(),
            user: None,
            limits: Vec::new(),
            unified: Some(open_path(cgroup).map_err(io::Error::other)?),
            v1_tasks: Vec::new(),
            network: None,
            stdin,
            stdout,
            stderr,
            has_terminal: false,
            dies_with_parent: false,
        };
        let failed = |e: LaunchError| io::Error::other(format!("{:?}: {}", e.step, errno_text(e.errno)));
        let launched = program.launch(None).map_err(failed)?;
        let mut child = Child::of(launched.pid);
        match launched.open_gate() {
            Ok(()) => Ok(child),
            Err(error) => {
                child.wait()?;
                Err(failed(error))
            }
        }
    }

    /// A child that waits at its gate.
    pub fn launched(gated: &GatedChild) -> Child {
        Child::of(gated.pid)
    }

    /// Blocks until it has ended or `until` has passed. Returns whether it is still alive.
    pub fn ends_by(&self, until: Instant) -> io::Result<bool> {
        let Some(pid) = to_pid(self.pid).filter(|_| self.ended.is_none()) else { return Ok(false) };
        let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) if left.is_zero() => return Ok(true),
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(false),
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Sends SIGKILL to the process group that it leads.
    pub fn kill_session(&self) -> io::Result<()> {
        if let Some(pid) = to_pid(self.pid).filter(|_| self.ended.is_none()) {
            rustix::process::kill_process_group(pid, rustix::process::Signal::KILL)?;
        }
        Ok(())
    }

    pub fn id(&self) -> u32 {
        self.pid
    }

    /// Sends SIGKILL unless it was reaped.
    pub fn kill(&self) -> io::Result<()> {
        if self.ended.is_none() {
            signal_pid(self.pid, 9)?;
        }
        Ok(())
    }

    /// Blocks until it has ended and reaps it.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.ended {
            return Ok(status);
        }
        let pid: Option<Pid> = to_pid(self.pid);
        let reaped = rustix::io::retry_on_intr(|| waitpid(pid, WaitOptions::empty()))?;
        let (_, status) = reaped.ok_or(io::ErrorKind::NotFound)?;
        let status = ExitStatus::from_raw(status.as_raw());
        self.ended = Some(status);
        // From now on the pid may be reused.
        adopted::unregister_owned(self.pid);
        Ok(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_of_the_standard_library_is_killed_and_reaped_once() {
        let mut child = Child::from(std::process::Command::new("sleep").arg("60").spawn().unwrap());
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert_eq!(child.wait().unwrap().signal(), Some(9), "what is known is said again");
        child.kill().unwrap();
    }

    #[test]
    fn process_in_a_missing_cgroup_is_not_started() {
        let null = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let error = Child::born_in(
            Path::new("/no/cgroup"),
            Path::new("/bin/true"),
            &[OsStr::new("true")],
            [null(), null(), null()],
        );
        assert!(error.unwrap_err().to_string().contains("/no/cgroup"));
    }
}
