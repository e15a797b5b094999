//! Calls a source that may hang (a dead NFS server) without stalling a tick: a thread makes the call, and a tick takes
//! the last result. A call that takes longer than [`DEADLINE`] is an error, and the value becomes absent.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use crate::collectors::CollectError;

pub(super) const DEADLINE: Duration = Duration::from_secs(5);

/// A blocking call that is repeated, and the thread that makes it.
#[derive(Debug)]
pub(super) struct BlockingProbe<T> {
    /// Name of the source, for error messages.
    target: String,
    requests: SyncSender<()>,
    results: Receiver<Result<T, CollectError>>,
    /// Start of the call in progress.
    since: Option<Instant>,
    /// The last result, and the start of its call.
    pub(super) last: Option<(T, Instant)>,
}

impl<T: Send + 'static> BlockingProbe<T> {
    /// `None` if the thread cannot be created.
    pub(super) fn new(
        thread: &str,
        target: String,
        request: impl Fn() -> Result<T, CollectError> + Send + 'static,
    ) -> Option<BlockingProbe<T>> {
        let (requests, request_rx) = sync_channel::<()>(1);
        let (answer, results) = sync_channel(1);
        let work = move || {
            while request_rx.recv().is_ok() {
                if answer.send(request()).is_err() {
                    return;
                }
            }
        };
        // Never joined: it may hang for ever. Otherwise it ends with the channel.
        std::thread::Builder::new().name(thread.to_owned()).stack_size(64 << 10).spawn(work).ok()?;
        Some(BlockingProbe { target, requests, results, since: None, last: None })
    }

    /// Returns the last result and starts the next call. `None`: the first call is still in progress.
    pub(super) fn latest(&mut self, now: Instant) -> Result<Option<&T>, CollectError> {
        let taken = self.take(now);
        self.request(now);
        taken?;
        self.known(now)
    }

    /// Takes a finished result. An error is returned once and clears the last value.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), CollectError> {
        match self.results.try_recv() {
            Ok(Ok(answer)) => self.last = Some((answer, self.since.take().unwrap_or(now))),
            Ok(Err(error)) => {
                (self.since, self.last) = (None, None);
                return Err(error);
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => {}
        }
        Ok(())
    }

    /// Starts a call, unless one is in progress.
    pub(super) fn request(&mut self, now: Instant) {
        if self.since.is_none() {
            match self.requests.try_send(()) {
                Ok(()) => self.since = Some(now),
                Err(TrySendError::Full(()) | TrySendError::Disconnected(())) => {}
            }
        }
    }

    /// The last result. Errors: the call in progress is past its deadline.
    pub(super) fn known(&mut self, now: Instant) -> Result<Option<&T>, CollectError> {
        if self.is_stuck(now) {
            self.last = None;
            let waited = self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since)).as_secs();
            return Err(CollectError::Timeout(format!("{} has not answered for {waited} s", self.target)));
        }
        Ok(self.last.as_ref().map(|(answer, _)| answer))
    }

    /// Whether a call is in progress.
    pub(super) fn is_pending(&self) -> bool {
        self.since.is_some()
    }
    pub(super) fn started_at(&self) -> Option<Instant> {
        self.last.as_ref().map(|(_, at)| *at)
    }
    pub(super) fn is_stuck(&self, now: Instant) -> bool {
        self.since.is_some_and(|since| now.saturating_duration_since(since) > DEADLINE)
    }
}
