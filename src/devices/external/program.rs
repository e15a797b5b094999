//! The process of a plugin: started with the environment that go-plugin expects; its output is logged; stopped at the
//! end.

use std::fs::Permissions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;

use super::output::{LineSplitter, PluginOutput, PluginStream};
use crate::devices::protocol::handshake::{APP, CERTIFICATE, COOKIE, PORTS, VERSIONS};
use crate::host::process::{HeldProgram, remove_agent_variables, spawn_held};
use crate::host::tree;
use crate::telemetry::chain;

/// A running plugin process. The caller must stop it: [`PluginProcess::end`].
#[derive(Debug)]
pub(super) struct PluginProcess {
    held: HeldProgram,
    stdout: Option<Receiver>,
    place: SocketDirectory,
}

/// Private directory for the plugin's socket, removed with everything that a killed plugin leaves there.
#[derive(Debug)]
struct SocketDirectory(PathBuf);

impl SocketDirectory {
    fn make() -> io::Result<SocketDirectory> {
        let private = Permissions::from_mode(0o700);
        let made = tempfile::Builder::new().prefix("allostat-plugin-").permissions(private).tempdir()?;
        Ok(SocketDirectory(made.keep()))
    }
}

impl Drop for SocketDirectory {
    fn drop(&mut self) {
        if let Err(error) = tree::remove(&self.0) {
            tracing::warn!(error = %chain(&error), "cannot remove the temporary directory of a device plugin");
        }
    }
}

impl PluginProcess {
    /// Starts the process inside a runtime, which reads its output. The process dies with the calling thread.
    /// `certificate`: the agent's, PEM.
    ///
    /// Errors: no process runs.
    pub(super) fn start(path: &Path, certificate: &str, output: &PluginOutput) -> io::Result<PluginProcess> {
        let place = SocketDirectory::make()?;
        let mut command = Command::new(path);
        remove_agent_variables(&mut command);
        command.envs([COOKIE, (VERSIONS, APP), (CERTIFICATE, certificate)]).envs(PORTS);
        command.env("TMPDIR", &place.0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut started = spawn_held(&mut command)?;
        let (stdout, stderr) = (started.stdout.take(), started.stderr.take());
        let held = HeldProgram::of(started)?.guarded()?;
        let (stdout, stderr) = match pipe_receiver(stdout).and_then(|stdout| Ok((stdout, pipe_receiver(stderr)?))) {
            Ok(both) => both,
            Err(error) => {
                held.end(Duration::ZERO, place);
                return Err(error);
            }
        };
        let output = output.clone();
        // The task ends with the runtime, or when all writers of standard error are gone.
        tokio::spawn(async move { output.read_all(PluginStream::Error, stderr, LineSplitter::default()).await });
        Ok(PluginProcess { held, stdout: Some(stdout), place })
    }

    /// The handshake line, its first line of output. Later lines go to the log. `None`: the process ended without one.
    pub(super) async fn first_line(&mut self, output: &PluginOutput) -> Option<String> {
        let mut stdout = self.stdout.take()?;
        let (mut lines, mut buffer) = (LineSplitter::default(), [0; 4096]);
        let first = loop {
            match stdout.read(&mut buffer).await {
                Ok(read @ 1..) => lines.push(&buffer[..read]),
                Ok(0) | Err(_) => break lines.rest()?,
            }
            if let Some(line) = lines.next() {
                break line;
            }
        };
        let output = output.clone();
        // Ends as the task for standard error.
        tokio::spawn(async move { output.read_all(PluginStream::Output, stdout, lines).await });
        Some(first)
    }

    /// Waits for the process to end, up to `grace`, then kills its process group: [`HeldProgram::end`].
    pub(super) fn end(self, grace: Duration) -> String {
        self.held.end(grace, self.place)
    }
}

fn pipe_receiver(pipe: Option<impl Into<OwnedFd>>) -> io::Result<Receiver> {
    Receiver::from_owned_fd(pipe.ok_or(io::ErrorKind::NotFound)?.into())
}
