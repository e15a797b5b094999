//! A source that may hang (a dead NFS server) and must not stall a tick: a thread asks it, and a tick takes the answer that there
//! is. One that does not come for [`DEADLINE`] is an error, and then there is no value.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use crate::collectors::CollectError;

pub(super) const DEADLINE: Duration = Duration::from_secs(5);

/// One question that is asked again and again, and the thread that asks it.
#[derive(Debug)]
pub(super) struct Slow<T> {
    /// Who is asked, for people.
    whom: String,
    questions: SyncSender<()>,
    answers: Receiver<Result<T, CollectError>>,
    /// The question that is under way.
    since: Option<Instant>,
    /// And when that was asked.
    pub(super) last: Option<(T, Instant)>,
}

impl<T: Send + 'static> Slow<T> {
    /// `None` if no thread can be had.
    pub(super) fn new(
        thread: &str,
        whom: String,
        ask: impl Fn() -> Result<T, CollectError> + Send + 'static,
    ) -> Option<Slow<T>> {
        let (questions, asked) = sync_channel::<()>(1);
        let (answer, answers) = sync_channel(1);
        let work = move || {
            while asked.recv().is_ok() {
                if answer.send(ask()).is_err() {
                    return;
                }
            }
        };
        // It is never joined: it may hang for ever, and ends with the channel otherwise.
        std::thread::Builder::new().name(thread.to_owned()).stack_size(64 << 10).spawn(work).ok()?;
        Some(Slow { whom, questions, answers, since: None, last: None })
    }

    /// The latest answer, and asks again. `None`: the first one is on its way.
    pub(super) fn latest(&mut self, now: Instant) -> Result<Option<&T>, CollectError> {
        let taken = self.take(now);
        self.ask(now);
        taken?;
        self.known(now)
    }

    /// Takes the answer that has come. One that is an error is told once, and then there is no value.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), CollectError> {
        match self.answers.try_recv() {
            Ok(Ok(answer)) => self.last = Some((answer, self.since.take().unwrap_or(now))),
            Ok(Err(error)) => {
                (self.since, self.last) = (None, None);
                return Err(error);
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => {}
        }
        Ok(())
    }

    /// Asks, unless a question is under way.
    pub(super) fn ask(&mut self, now: Instant) {
        if self.since.is_none() {
            match self.questions.try_send(()) {
                Ok(()) => self.since = Some(now),
                Err(TrySendError::Full(()) | TrySendError::Disconnected(())) => {}
            }
        }
    }

    /// The answer that was taken last.
    pub(super) fn known(&mut self, now: Instant) -> Result<Option<&T>, CollectError> {
        if self.is_stuck(now) {
            self.last = None;
            let waited = self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since)).as_secs();
            return Err(CollectError::Timeout(format!("{} has not answered for {waited} s", self.whom)));
        }
        Ok(self.last.as_ref().map(|(answer, _)| answer))
    }

    /// Whether its thread may still be held by the kernel.
    pub(super) fn is_asked(&self) -> bool {
        self.since.is_some()
    }
    pub(super) fn asked_at(&self) -> Option<Instant> {
        self.last.as_ref().map(|(_, at)| *at)
    }
    pub(super) fn is_stuck(&self, now: Instant) -> bool {
        self.since.is_some_and(|since| now.saturating_duration_since(since) > DEADLINE)
    }
}
