//! Runs a command in the container for a user, by the engine: `allostat exec`.
//!
//! Source: Docker Engine API, `/containers/{id}/exec`, `/exec/{id}/start` (with `Upgrade: tcp`), `/exec/{id}/resize`,
//! `/exec/{id}/json`. An engine does not end such a program when its stream is closed: it is killed by its PID, if that
//! is a process in the container's cgroup.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, copy, duplex, split,
};
use tokio::sync::{oneshot, watch};

use super::engine::{EngineError, SOON, encoded, is_id};
use super::exec::{CreatedExec, state};
use super::place;
use super::shared::{AbortGuard, DockerContext, failed};
use crate::host::http::exchange::{Payload, RequestMethod};
use crate::host::http::tunnel::Tunnel;
use crate::host::process::identity;
use crate::host::pty::WindowSize;
use crate::model::id::CgroupPath;
use crate::runner::drivers::supervised::end_session;
use crate::runner::drivers::{DriverError, ExecRequest, ExecSession};
use crate::runner::wait_ends::{Ends, EndsWith, spawn_until};

/// Buffer between the engine and the client, for each stream.
const BUFFER: usize = 16 << 10;
/// An engine closes the stream a moment before it knows the exit code.
const MAX_CHECKS: u32 = 50;
const RECHECK: Duration = Duration::from_millis(100);
/// An engine refuses a size until the program has started, which happens after the stream is open.
const SIZES: u32 = 50;

/// A program in a container, by the engine's exec ID.
struct EngineExec {
    shared: Arc<DockerContext>,
    id: String,
    cgroup: Option<CgroupPath>,
}

/// Returns when the engine has started it. `cgroup`: of the task.
pub async fn attach(
    shared: Arc<DockerContext>,
    container: String,
    cgroup: Option<CgroupPath>,
    request: ExecRequest,
) -> Result<ExecSession, DriverError> {
    let refused = |e: EngineError| failed(shared.record_error(e).to_string());
    let has_terminal = request.terminal.is_some();
    let mut body = json!({
        "AttachStdin": true, "AttachStdout": true, "AttachStderr": true, "Tty": has_terminal, "Cmd": request.command,
    });
    if let Some(terminal) = &request.terminal {
        // Since API version 1.42 the program starts with its size.
        body["ConsoleSize"] = json!([terminal.size.rows, terminal.size.columns]);
    }
    if let Some(kind) = request.terminal.as_ref().and_then(|terminal| terminal.kind.as_ref()) {
        body["Env"] = json!([format!("TERM={kind}")]);
    }
    let target = format!("/containers/{}/exec", encoded(&container));
    let made: CreatedExec =
        shared.engine.json(RequestMethod::Post, &target, Some(&body), SOON).await.map_err(refused)?;
    if !is_id(&made.id) {
        return Err(failed("the engine gave a program without an ID"));
    }
    let target = format!("/exec/{}/start", encoded(&made.id));
    let start = Bytes::from(json!({ "Detach": false, "Tty": has_terminal }).to_string());
    let stream = shared.engine.tunnel(&target, start).await.map_err(refused)?;
    let exec = Arc::new(EngineExec { shared: Arc::clone(&shared), id: made.id, cgroup });
    let (from, to) = split(stream);
    let (input, input_end) = duplex(BUFFER);
    let (output, output_end) = duplex(BUFFER);
    let (errors, errors_end) = duplex(BUFFER);
    let feeding = AbortGuard(tokio::spawn(feed(input_end, to)).abort_handle());
    let (report, end) = oneshot::channel();
    let of = Arc::clone(&exec);
    // It reads the engine's stream; the guard of the session aborts it.
    let reading = spawn_until(Ends::Caller, async move {
        match has_terminal {
            true => show(from, output_end).await,
            false => part(from, output_end, errors_end).await,
        }
        let _ = report.send(of.end().await);
    });
    let reading = AbortGuard(reading.abort_handle());
    let first = request.terminal.map_or(WindowSize { columns: 0, rows: 0 }, |terminal| terminal.size);
    let (size, sizes) = watch::channel(first);
    if has_terminal {
        spawn_until(Ends::Sender, Arc::clone(&exec).follow_sizes(sizes));
    }
    let (held, closed) = oneshot::channel::<()>();
    spawn_until(Ends::Sender, async move {
        let _ = closed.ends_with(Ends::Sender).await;
        exec.kill().await;
    });
    let end = Box::pin(async move {
        end.ends_with(Ends::Subject).await.unwrap_or_else(|_| Err(failed("its stream ended without its exit code")))
    });
    Ok(ExecSession {
        input: Some(Box::new(input)),
        output: Box::new(output),
        errors: if has_terminal { None } else { Some(Box::new(errors)) },
        size,
        end,
        hold: Box::new((feeding, reading, held)),
    })
}

/// Until the end of the input, or of the engine.
async fn feed(mut input: DuplexStream, mut to: WriteHalf<Box<dyn Tunnel>>) {
    // The second is the end of its standard input.
    let _ = copy(&mut input, &mut to).ends_with(Ends::Subject).await;
    let _ = to.shutdown().ends_with(Ends::Subject).await;
}

/// Until the end of the stream.
async fn show(mut from: ReadHalf<Box<dyn Tunnel>>, mut output: impl AsyncWrite + Unpin) {
    let _ = copy(&mut from, &mut output).ends_with(Ends::Subject).await;
}

/// Both streams: 1 byte stream, 3 bytes 0, 4 bytes length (big endian), message. Until the end of the stream, or
/// an invalid header.
async fn part(
    mut from: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
    mut errors: impl AsyncWrite + Unpin,
) {
    let mut head = [0; 8];
    while from.read_exact(&mut head).ends_with(Ends::Subject).await.is_ok() {
        let [stream, _, _, _, length @ ..] = head;
        let mut message = (&mut from).take(u64::from(u32::from_be_bytes(length)));
        let copied = match stream {
            2 => copy(&mut message, &mut errors).ends_with(Ends::Subject).await,
            _ => copy(&mut message, &mut output).ends_with(Ends::Subject).await,
        };
        if copied.is_err() {
            return;
        }
    }
}

impl EngineExec {
    /// Its exit.
    async fn end(&self) -> Result<u8, DriverError> {
        for _ in 0..MAX_CHECKS {
            let found = state(&self.shared.engine, &self.id).await;
            let found = found.map_err(|e| failed(self.shared.record_error(e).to_string()))?;
            if let (false, Some(code)) = (found.running, found.exit_code) {
                return Ok(u8::try_from(code).unwrap_or(u8::MAX));
            }
            tokio::time::sleep(RECHECK).await;
        }
        Err(failed("the engine does not report how it ended"))
    }

    /// Runs until the session drops the sender.
    async fn follow_sizes(self: Arc<Self>, mut sizes: watch::Receiver<WindowSize>) {
        loop {
            let WindowSize { columns, rows } = *sizes.borrow_and_update();
            let target = format!("/exec/{}/resize?h={rows}&w={columns}", encoded(&self.id));
            for _ in 0..SIZES {
                let requested = self
                    .shared
                    .engine
                    .open(RequestMethod::Post, &target, &[], Payload::Whole(Bytes::new()), SOON)
                    .ends_with(Ends::Deadline)
                    .await;
                // A program that has ended has no size either.
                if requested.is_ok() || sizes.has_changed().is_err() {
                    break;
                }
                tokio::time::sleep(RECHECK).await;
            }
            if sizes.changed().ends_with(Ends::Subject).await.is_err() {
                return;
            }
        }
    }

    /// Sends SIGKILL to it and to its session, if it runs.
    async fn kill(&self) {
        let found = match state(&self.shared.engine, &self.id).await {
            Ok(found) if found.running => found,
            Ok(_) => return,
            Err(error) => {
                tracing::warn!(%error, "failed to kill a command in a container");
                return;
            }
        };
        let (shared, cgroup) = (Arc::clone(&self.shared), self.cgroup.clone());
        let killed = self.shared.places.block(move || {
            let pid = u32::try_from(found.pid).ok().filter(|pid| *pid > 0);
            let known = pid.and_then(|pid| identity(pid).ok().flatten());
            // The engine may use another PID namespace than this host: only a process of this task is killed.
            let own = pid.and_then(|pid| place::of_process(&shared.sampling.roots.proc, &shared.sampling.layout, pid));
            let is_own =
                matches!((&own, &cgroup), (Some(own), Some(task)) if own == task || place::is_below(own, task));
            match known.filter(|_| is_own) {
                Some(process) => end_session(process).map_err(|e| e.to_string()),
                None => Err("its process is not found in the cgroup of the task".to_owned()),
            }
        });
        if let Err(error) = killed.ends_with(Ends::Deadline).await.and_then(|killed| killed) {
            tracing::warn!(%error, "failed to kill a command in a container");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn parted(stream: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        part(stream, &mut output, &mut errors).await;
        (output, errors)
    }

    #[tokio::test]
    async fn streams_are_parted_and_the_last_message_may_be_cut() {
        let stream = b"\x01\0\0\0\0\0\0\x02ab\x02\0\0\0\0\0\0\x01c\x01\0\0\0\0\0\0\x09de";
        assert_eq!(parted(stream).await, (b"abde".to_vec(), b"c".to_vec()));
        assert_eq!(parted(b"\x01\0\0\0\0\0").await, (Vec::new(), Vec::new()));
    }
}
