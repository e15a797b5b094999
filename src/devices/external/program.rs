//! The program of a plugin: started with what go-plugin wants in its environment, heard, ended.

use std::fs::Permissions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;

use super::says::{Lines, Said, Voice};
use crate::devices::protocol::handshake::{APP, CERTIFICATE, COOKIE, PORTS, VERSIONS};
use crate::host::process::{HeldProgram, spawn_held, without_ours};
use crate::host::tree;
use crate::telemetry::chain;

/// A program that runs. Its end is for whoever has it: [`Program::end`].
#[derive(Debug)]
pub(super) struct Program {
    held: HeldProgram,
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
        without_ours(&mut command);
        command.envs([COOKIE, (VERSIONS, APP), (CERTIFICATE, certificate)]).envs(PORTS);
        command.env("TMPDIR", &place.0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut started = spawn_held(&mut command)?;
        let (stdout, stderr) = (started.stdout.take(), started.stderr.take());
        let held = HeldProgram::of(started)?.guarded()?;
        let (stdout, stderr) = match heard(stdout).and_then(|stdout| Ok((stdout, heard(stderr)?))) {
            Ok(both) => both,
            Err(error) => {
                held.end(Duration::ZERO, place);
                return Err(error);
            }
        };
        let voice = voice.clone();
        // Ends: with the runtime, or with the program and all that have its standard error.
        tokio::spawn(async move { voice.hear(Said::Error, stderr, Lines::default()).await });
        Ok(Program { held, stdout: Some(stdout), place })
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

    /// Waits so long for its end, then kills its process group: [`HeldProgram::end`].
    pub(super) fn end(self, grace: Duration) -> String {
        self.held.end(grace, self.place)
    }
}

fn heard(pipe: Option<impl Into<OwnedFd>>) -> io::Result<Receiver> {
    Receiver::from_owned_fd(pipe.ok_or(io::ErrorKind::NotFound)?.into())
}
