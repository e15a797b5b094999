//! A connection that does not wait for ever: how long a peer may idle, send its head, send its body and take its
//! answer. It also knows when an answer was written whole, which is what makes a scrape an acknowledged one.
//!
//! ```text
//!   Idle --first byte--> Receiving --request read--> Answering --answer written--> Idle
//!   75 s                 10 s                        30 s without progress in writing
//! ```
//! An answer that goes on ([`StreamedBody`](super::pieces::StreamedBody)) stays in `Answering`: it may be silent for as
//! long as it likes, and a peer that does not take what there is to say has the same 30 s.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::exporters::prometheus::BrokenOff;
use crate::telemetry::lock;

/// How patient a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionTimeouts {
    /// Between requests. 75 s: longer than any usual scrape interval, so that a scraper keeps its connection.
    pub idle: Duration,
    /// From the first byte of a request to its last: a peer that dribbles is cut off.
    pub receive: Duration,
    /// Without a byte taken by the peer while we write.
    pub write: Duration,
}

impl Default for ConnectionTimeouts {
    fn default() -> ConnectionTimeouts {
        ConnectionTimeouts {
            idle: Duration::from_secs(75),
            receive: Duration::from_secs(10),
            write: Duration::from_secs(30),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionPhase {
    Idle,
    Receiving,
    Answering,
}

type OnWritten = Box<dyn FnOnce() + Send>;

/// What the service reports to its connection.
pub(super) struct ResponseProgress(Mutex<State>);

struct State {
    phase: ConnectionPhase,
    /// The body was handed over to its last byte; it is written once the connection has been flushed.
    body_done: bool,
    on_written: Option<OnWritten>,
}

impl ResponseProgress {
    pub(super) fn new() -> Arc<ResponseProgress> {
        Arc::new(ResponseProgress(Mutex::new(State {
            phase: ConnectionPhase::Idle,
            body_done: false,
            on_written: None,
        })))
    }
    /// The whole request was read: the peer now waits for us.
    pub(super) fn received(&self) {
        lock(&self.0).phase = ConnectionPhase::Answering;
    }
    /// `action` runs when the present answer is with the kernel, whole; never if the peer went before.
    pub(super) fn when_written(&self, action: impl FnOnce() + Send + 'static) {
        lock(&self.0).on_written = Some(Box::new(action));
    }
    /// The body was handed over to its last byte.
    pub(super) fn body_done(&self) {
        lock(&self.0).body_done = true;
    }
    /// The connection has nothing left to write.
    fn flushed(&self) {
        let mut state = lock(&self.0);
        if !state.body_done {
            return;
        }
        state.body_done = false;
        state.phase = ConnectionPhase::Idle;
        let action = state.on_written.take();
        drop(state);
        if let Some(action) = action {
            action();
        }
    }
}

/// The socket, watched.
pub(super) struct GuardedSocket<I> {
    io: I,
    progress: Arc<ResponseProgress>,
    patience: ConnectionTimeouts,
    phase: ConnectionPhase,
    read_deadline: Pin<Box<Sleep>>,
    write_deadline: Option<Pin<Box<Sleep>>>,
}

impl<I> GuardedSocket<I> {
    pub(super) fn new(io: I, progress: Arc<ResponseProgress>, patience: ConnectionTimeouts) -> GuardedSocket<I> {
        // A new connection has something to say: it gets the time of a request, not of an idle one.
        let read_deadline = Box::pin(sleep_until(Instant::now() + patience.receive));
        lock(&progress.0).phase = ConnectionPhase::Receiving;
        GuardedSocket { io, progress, patience, phase: ConnectionPhase::Receiving, read_deadline, write_deadline: None }
    }

    /// The phase now. One that has just begun has its time from here on.
    fn enter_phase(&mut self) -> ConnectionPhase {
        let phase = lock(&self.progress.0).phase;
        if phase != self.phase {
            self.phase = phase;
            let patience = if phase == ConnectionPhase::Idle { self.patience.idle } else { self.patience.receive };
            self.read_deadline.as_mut().reset(Instant::now() + patience);
        }
        phase
    }

    fn write_progress<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.write_deadline = None;
            return result;
        }
        let limit = self.patience.write;
        let deadline = self.write_deadline.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + limit)));
        match deadline.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer takes nothing"))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<I: Read + Unpin> Read for GuardedSocket<I> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let me = &mut *self;
        let phase = me.enter_phase();
        match Pin::new(&mut me.io).poll_read(cx, buf) {
            Poll::Ready(result) => {
                let mut state = lock(&me.progress.0);
                if state.phase == ConnectionPhase::Idle {
                    state.phase = ConnectionPhase::Receiving;
                }
                Poll::Ready(result)
            }
            Poll::Pending if phase == ConnectionPhase::Answering => Poll::Pending,
            Poll::Pending => match me.read_deadline.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer sends nothing"))),
                Poll::Pending => Poll::Pending,
            },
        }
    }
}

impl<I: Write + Unpin> Write for GuardedSocket<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.io).poll_write(cx, buf);
        self.write_progress(cx, result)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.io).poll_flush(cx);
        if matches!(result, Poll::Ready(Ok(()))) {
            self.progress.flushed();
            // Idle from now on, not from the next read; polled, so that its end wakes the reader.
            if self.enter_phase() == ConnectionPhase::Idle {
                let _ = self.read_deadline.as_mut().poll(cx);
            }
        }
        self.write_progress(cx, result)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.write_progress(cx, result)
    }
}

/// An answer's body: one shared piece, which reports to its connection when it was taken.
pub(super) struct WholeBody {
    bytes: Option<Bytes>,
    progress: Arc<ResponseProgress>,
}

impl WholeBody {
    pub(super) fn new(bytes: Bytes, progress: Arc<ResponseProgress>) -> WholeBody {
        if bytes.is_empty() {
            // An empty body is never polled for its frames.
            progress.body_done();
            return WholeBody { bytes: None, progress };
        }
        WholeBody { bytes: Some(bytes), progress }
    }
}

impl Body for WholeBody {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let bytes = self.bytes.take();
        self.progress.body_done();
        Poll::Ready(bytes.map(|b| Ok(Frame::data(b))))
    }
    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }
    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |b| b.len() as u64))
    }
}
