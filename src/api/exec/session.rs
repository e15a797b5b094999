//! One exec session: carries bytes between a client and a command until one of them ends.
//!
//! ```text
//! client ─ frames ─► this loop ─► input (64 KiB at most) ─► the command
//!        ◄─ writer ◄──────────── 16 KiB each ◄──────────── output, errors: read while the client grants credit
//! ```
//! A client that does not read stops its command's output, and nothing else: what waits is bounded.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::frame::{BadFrame, ExecFrame, FrameDecoder, LONGEST_PAYLOAD, WINDOW};
use crate::runner::drivers::ExecSession;
use crate::telemetry::lock;

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SessionEnd {
    Exited(u8),
    /// How its command ended is not known.
    Unknown(String),
    /// The command was killed.
    ClientDisconnected,
    AgentStops,
    Misbehaved(&'static str),
}

/// A descriptor of the command's output that another process was given is not waited for: after its end so long without
/// a byte.
const REST: Duration = Duration::from_secs(1);
/// What a terminal takes for the end of its input: Ctrl-D.
const END_OF_TRANSMISSION: u8 = 4;

/// Until the command or the client ends, or the agent (`stops`).
pub(super) async fn run<IO>(io: IO, session: ExecSession, mut stops: watch::Receiver<bool>) -> SessionEnd
where
    IO: AsyncRead + AsyncWrite + Send + 'static,
{
    let ExecSession { input, output, errors, size, mut end, hold } = session;
    let (reader, writer) = split(io);
    let mut frames = FrameStream { reader, decoder: FrameDecoder::default() };
    let (sender, outgoing) = mpsc::channel(4);
    // Until its last sender is dropped, or the client takes nothing.
    let written = tokio::spawn(write(writer, outgoing));
    let credit = Arc::new(Semaphore::new(WINDOW));
    let typed = Arc::new(ClientInput::default());
    let (ended, over) = watch::channel(false);
    // Dropped, they end.
    let (mut readers, mut writers) = (JoinSet::new(), JoinSet::new());
    let is_terminal = errors.is_none();
    readers.spawn(pump(output, ExecFrame::Output, (sender.clone(), Arc::clone(&credit)), over.clone()));
    if let Some(errors) = errors {
        readers.spawn(pump(errors, ExecFrame::Errors, (sender.clone(), Arc::clone(&credit)), over));
    }
    if let Some(input) = input {
        writers.spawn(feed(Arc::clone(&typed), input, is_terminal, sender.clone()));
    }
    let mut exit = None;
    let how = loop {
        tokio::select! {
            frame = frames.next() => match frame {
                Ok(Some(ExecFrame::Input(bytes))) if typed.add(&bytes) => {}
                Ok(Some(ExecFrame::Input(_))) => break SessionEnd::Misbehaved("more input than it was granted"),
                Ok(Some(ExecFrame::EndOfInput)) => typed.close(),
                Ok(Some(ExecFrame::Size(requested))) => drop(size.send_replace(requested)),
                Ok(Some(ExecFrame::Credit(bytes))) => {
                    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                    if bytes > WINDOW.saturating_sub(credit.available_permits()) {
                        break SessionEnd::Misbehaved("more credit than it was sent");
                    }
                    credit.add_permits(bytes);
                }
                Ok(Some(_)) => break SessionEnd::Misbehaved("a frame that the agent sends"),
                Ok(None) => break SessionEnd::ClientDisconnected,
                Err(BadFrame(why)) => break SessionEnd::Misbehaved(why),
            },
            found = &mut end, if exit.is_none() => {
                exit = Some(found);
                ended.send_replace(true);
            }
            // What it wrote last is on its way when both are at their end.
            _ = readers.join_next(), if !readers.is_empty() => {}
            () = stopped(&mut stops) => break SessionEnd::AgentStops,
        }
        if readers.is_empty()
            && let Some(found) = exit.take()
        {
            let (frame, how) = match found {
                Ok(code) => (ExecFrame::Exit(code), SessionEnd::Exited(code)),
                Err(error) => (ExecFrame::Failed(error.to_string()), SessionEnd::Unknown(error.to_string())),
            };
            let _ = sender.send(frame).await;
            break how;
        }
    };
    drop((readers, writers, hold, end, sender));
    finish(written).await;
    how
}

/// Waits as long as the connection does for a client that takes nothing.
async fn finish(written: JoinHandle<()>) {
    let _ = written.await;
}

/// Also when its sender is gone.
async fn stopped(stops: &mut watch::Receiver<bool>) {
    let _ = stops.wait_for(|stops| *stops).await;
}

struct FrameStream<IO> {
    reader: ReadHalf<IO>,
    decoder: FrameDecoder,
}

impl<IO: AsyncRead> FrameStream<IO> {
    /// `None`: the client is gone. Concurrency: a dropped future loses nothing.
    async fn next(&mut self) -> Result<Option<ExecFrame>, BadFrame> {
        loop {
            if let Some(frame) = self.decoder.frame()? {
                return Ok(Some(frame));
            }
            match self.reader.read_buf(self.decoder.buffer()).await {
                Ok(0) | Err(_) => return Ok(None),
                Ok(_) => {}
            }
        }
    }
}

async fn write<IO: AsyncWrite>(mut to: WriteHalf<IO>, mut frames: mpsc::Receiver<ExecFrame>) {
    while let Some(frame) = frames.recv().await {
        let sent = async {
            to.write_all(&frame.encode()).await?;
            to.flush().await
        };
        if sent.await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}

/// Until the end of its input, or a moment after the command.
async fn pump(
    mut from: Box<dyn AsyncRead + Send + Unpin>,
    frame: fn(Bytes) -> ExecFrame,
    (frames, credit): (mpsc::Sender<ExecFrame>, Arc<Semaphore>),
    mut over: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; LONGEST_PAYLOAD];
    loop {
        let read = tokio::select! {
            read = from.read(&mut buffer) => read.unwrap_or(0),
            () = rest(&mut over) => 0,
        };
        let Ok(requested) = u32::try_from(read) else { return };
        if read == 0 {
            return;
        }
        match credit.acquire_many(requested).await {
            Ok(granted) => granted.forget(),
            Err(_) => return,
        }
        if frames.send(frame(Bytes::copy_from_slice(&buffer[..read]))).await.is_err() {
            return;
        }
    }
}

async fn rest(over: &mut watch::Receiver<bool>) {
    let _ = over.wait_for(|over| *over).await;
    tokio::time::sleep(REST).await;
}

/// What the client sent and the command has not read.
#[derive(Default)]
struct ClientInput {
    state: Mutex<(BytesMut, bool)>,
    changed: Notify,
}

impl ClientInput {
    /// `false`: it does not fit, so the client sent more than it may.
    fn add(&self, bytes: &[u8]) -> bool {
        let mut state = lock(&self.state);
        if state.1 || state.0.len() + bytes.len() > WINDOW {
            return false;
        }
        state.0.extend_from_slice(bytes);
        self.changed.notify_one();
        true
    }
    fn close(&self) {
        lock(&self.state).1 = true;
        self.changed.notify_one();
    }
    /// `None`: the end.
    async fn take(&self) -> Option<BytesMut> {
        loop {
            let closed = {
                let mut state = lock(&self.state);
                if !state.0.is_empty() {
                    return Some(std::mem::take(&mut state.0));
                }
                state.1
            };
            if closed {
                return None;
            }
            self.changed.notified().await;
        }
    }
}

/// Credit is granted for what was written. What a command does not want any more is granted at once, and thrown away.
async fn feed(
    typed: Arc<ClientInput>,
    input: Box<dyn AsyncWrite + Send + Unpin>,
    is_terminal: bool,
    frames: mpsc::Sender<ExecFrame>,
) {
    let mut input = Some(input);
    while let Some(bytes) = typed.take().await {
        if let Some(to) = &mut input
            && (to.write_all(&bytes).await.is_err() || to.flush().await.is_err())
        {
            input = None;
        }
        let granted = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if frames.send(ExecFrame::Credit(granted)).await.is_err() {
            return;
        }
    }
    match input {
        Some(mut to) if is_terminal => {
            let _ = to.write_all(&[END_OF_TRANSMISSION]).await;
        }
        Some(mut to) => drop(to.shutdown().await),
        None => {}
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
