//! The program of a plugin: started with what go-plugin wants in its environment, heard, ended.

use std::fs::Permissions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;

use super::says::{Lines, Said, Voice};
use crate::devices::protocol::handshake::{APP, CERTIFICATE, COOKIE, PORTS, VERSIONS};
use crate::host::process::{Child, spawn_held};
use crate::host::tree;
use crate::telemetry::chain;

/// Of ours, and none of a plugin's business: where we push to and with which secret, who our manager is.
const OURS: [&str; 3] = ["ALLOSTAT_", "OTEL_", "NOTIFY_SOCKET"];
/// What SIGKILL does not end within so long hangs in the kernel: it is left to a thread that waits for it.
const KILLED_WITHIN: Duration = Duration::from_secs(2);

/// A program that runs. Its end is for whoever has it: [`Program::end`].
#[derive(Debug)]
pub(super) struct Program {
    child: Child,
    pidfd: OwnedFd,
    stdout: Option<Receiver>,
    place: Place,
}

/// Where a plugin makes its socket: nobody else can look into it, and what a plugin that was killed has left there goes with it.
#[derive(Debug)]
struct Place(PathBuf);

impl Place {
    fn make() -> io::Result<Place> {
        let private = Permissions::from_mode(0o700);
        let made = tempfile::Builder::new().prefix("allostat-plugin-").permissions(private).tempdir()?;
        Ok(Place(made.keep()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(error) = tree::remove(&self.0) {
            tracing::warn!(error = %chain(&error), "cannot remove the temporary directory of a device plugin");
        }
    }
}

impl Program {
    /// `certificate`: ours, PEM. Within a runtime, which hears what it prints; it dies with the calling thread.
    ///
    /// Errors: nothing runs.
    pub(super) fn start(path: &Path, certificate: &str, voice: &Voice) -> io::Result<Program> {
        let place = Place::make()?;
        let mut command = Command::new(path);
        for (name, _) in std::env::vars_os() {
            if OURS.iter().any(|ours| name.to_string_lossy().starts_with(ours)) {
                command.env_remove(name);
            }
        }
        command.envs([COOKIE, (VERSIONS, APP), (CERTIFICATE, certificate)]).envs(PORTS);
        command.env("TMPDIR", &place.0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut started = spawn_held(&mut command)?;
        let (stdout, stderr) = (started.stdout.take(), started.stderr.take());
        let mut child = Child::from(started);
        let parts = pipes(child.id(), stdout.map(OwnedFd::from), stderr.map(OwnedFd::from));
        let (pidfd, stdout, stderr) = match parts {
            Ok(parts) => parts,
            Err(error) => {
                child.kill()?;
                child.wait()?;
                return Err(error);
            }
        };
        let voice = voice.clone();
        // Ends: with the runtime, or with the program and all that have its standard error.
        tokio::spawn(async move { voice.hear(Said::Error, stderr, Lines::default()).await });
        Ok(Program { child, pidfd, stdout: Some(stdout), place })
    }

    /// Its first line, by which it says where it listens; all others go to the log. `None`: it ended without one.
    pub(super) async fn first_line(&mut self, voice: &Voice) -> Option<String> {
        let mut stdout = self.stdout.take()?;
        let (mut lines, mut buffer) = (Lines::default(), [0; 4096]);
        let first = loop {
            match stdout.read(&mut buffer).await {
                Ok(read @ 1..) => lines.push(&buffer[..read]),
                Ok(0) | Err(_) => break lines.rest()?,
            }
            if let Some(line) = lines.next() {
                break line;
            }
        };
        let voice = voice.clone();
        // Ends: likewise.
        tokio::spawn(async move { voice.hear(Said::Output, stdout, lines).await });
        Some(first)
    }

    /// Waits so long for its end, then kills its process group. Blocks for that long, and [`KILLED_WITHIN`].
    ///
    /// Gives how it ended.
    pub(super) fn end(mut self, grace: Duration) -> String {
        let by_itself = self.ends_within(grace);
        // Not reaped yet: the number of its group is nobody else's. Where it has ended, what it started goes.
        if let Some(group) = pid(self.child.id()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        if !by_itself && !self.ends_within(KILLED_WITHIN) {
            std::thread::spawn(move || (self.child.wait(), self.place));
            return "it cannot be killed".to_owned();
        }
        match self.child.wait() {
            Ok(status) if by_itself => format!("it ended with {status}"),
            Ok(_) => "it was killed".to_owned(),
            Err(error) => format!("how it ended is not known: {error}"),
        }
    }
    fn ends_within(&self, limit: Duration) -> bool {
        let limit = Timespec::try_from(limit).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        rustix::io::retry_on_intr(|| poll(&mut fds, Some(&limit))).is_ok_and(|ready| ready > 0)
    }
}

fn pid(number: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(number).ok()?)
}

fn pipes(child: u32, stdout: Option<OwnedFd>, stderr: Option<OwnedFd>) -> io::Result<(OwnedFd, Receiver, Receiver)> {
    let pidfd = pidfd_open(pid(child).ok_or(io::ErrorKind::NotFound)?, PidfdFlags::empty())?;
    let heard = |pipe: Option<OwnedFd>| Receiver::from_owned_fd(pipe.ok_or(io::ErrorKind::NotFound)?);
    Ok((pidfd, heard(stdout)?, heard(stderr)?))
}
