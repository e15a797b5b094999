//! Answers that wait for their readers: how many bytes of them there may be, and how many large ones are written at
//! once.
//!
//! | budget | for |
//! |---|---|
//! | readers | everybody over TCP who may not act |
//! | operators | the Unix socket, and over TCP who may act: readers cannot lock them out |
//!
//! A byte counts from when it is made until the kernel has taken it; one that several connections share counts once. An
//! answer of at most [`SMALL`] bytes does not count: all connections together hold few of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::{ApiError, Code};
use super::stream::PieceSource;
use crate::exporters::prometheus::BrokenOff;
use crate::runner::drivers::BoxFuture;
use crate::telemetry::access::AccessRefusal;
use crate::telemetry::lock;

/// In bytes. The answer with which it is more is the last one.
const MOST: usize = 32 << 20;
/// At least so many answers fit, however large each is: a host with a /metrics of 40 MiB has several scrapers too.
const FIT: usize = 4;
const SMALL: usize = 16 << 10;
/// So many large answers are written at once.
const TURNS: usize = 2;
/// So long a request waits for its turn.
const WAITS: Duration = Duration::from_secs(10);
/// A reader that takes its answer byte by byte keeps its turn no longer.
const LONGEST_TURN: Duration = Duration::from_secs(60);

/// One budget. Concurrency: any task.
#[derive(Debug)]
pub(super) struct UnsentBudget {
    bytes: AtomicUsize,
    most: usize,
    /// Where each answer lies in memory, and how many connections have it.
    holders: Mutex<HashMap<usize, usize>>,
    turns: Arc<Semaphore>,
}

impl Default for UnsentBudget {
    fn default() -> UnsentBudget {
        UnsentBudget {
            bytes: AtomicUsize::new(0),
            most: MOST,
            holders: Mutex::default(),
            turns: Arc::new(Semaphore::new(TURNS)),
        }
    }
}

impl UnsentBudget {
    /// Before work is done for an answer that could not be held. Errors: the budget is used up.
    pub(super) fn has_room(&self) -> Result<(), ApiError> {
        if self.bytes.load(Ordering::Relaxed) < self.most { Ok(()) } else { Err(full()) }
    }

    /// Errors: the budget is used up.
    fn reserve(self: &Arc<Self>, bytes: usize) -> Result<ByteReservation, ApiError> {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        // Given back when it is dropped, also right here.
        let reserved = ByteReservation { unsent: Arc::clone(self), bytes };
        if before < self.most { Ok(reserved) } else { Err(full()) }
    }

    /// One more connection has this body. Errors: the budget is used up.
    fn share(self: &Arc<Self>, body: &Bytes) -> Result<SharedBody, ApiError> {
        let (at, bytes) = (body.as_ptr().addr(), body.len().min(self.most / FIT));
        let mut holders = lock(&self.holders);
        if !holders.contains_key(&at) {
            self.has_room()?;
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        *holders.entry(at).or_default() += 1;
        Ok(SharedBody { unsent: Arc::clone(self), at, bytes })
    }

    /// To write a large answer. Errors: two other answers take long.
    pub(super) async fn turn(&self) -> Result<WriteTurn, ApiError> {
        let permit = tokio::time::timeout(WAITS, Arc::clone(&self.turns).acquire_owned()).await;
        let permit = permit.ok().and_then(Result::ok).ok_or_else(full)?;
        let turn = WriteTurn(Arc::new(Mutex::new(Some(permit))));
        let weak = Arc::downgrade(&turn.0);
        tokio::spawn(async move {
            tokio::time::sleep(LONGEST_TURN).await;
            weak.upgrade().and_then(|turn| lock(&turn).take());
        });
        Ok(turn)
    }

    /// A body, counted until it is written. Errors: there is no room for it.
    pub(super) fn hold(self: &Arc<Self>, bytes: Bytes, turn: Option<WriteTurn>) -> Result<Bytes, ApiError> {
        if bytes.len() <= SMALL && turn.is_none() {
            return Ok(bytes);
        }
        let shared = Some(self.share(&bytes)?);
        Ok(Bytes::from_owner(HeldBytes { _shared: shared, _turn: turn, bytes }))
    }

    /// The same of an answer that goes on, with what it keeps in memory.
    pub(super) fn hold_stream(
        self: &Arc<Self>,
        source: Box<dyn PieceSource>,
        turn: Option<WriteTurn>,
    ) -> Result<Box<dyn PieceSource>, ApiError> {
        let reserved = self.reserve(source.buffered())?;
        Ok(Box::new(ChargedSource { source, turn, _reserved: reserved }))
    }
}

fn full() -> ApiError {
    let message = "too many answers wait for readers that do not take them; try again";
    ApiError::new(Code::UnsentAnswers, message).because(AccessRefusal::UnsentAnswers)
}

/// Given back when it is dropped.
#[derive(Debug)]
struct ByteReservation {
    unsent: Arc<UnsentBudget>,
    bytes: usize,
}

impl Drop for ByteReservation {
    fn drop(&mut self) {
        self.unsent.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A body that several connections may have.
#[derive(Debug)]
struct SharedBody {
    unsent: Arc<UnsentBudget>,
    at: usize,
    bytes: usize,
}

impl Drop for SharedBody {
    fn drop(&mut self) {
        let mut holders = lock(&self.unsent.holders);
        let Some(count) = holders.get_mut(&self.at) else { return };
        *count -= 1;
        if *count == 0 {
            holders.remove(&self.at);
            self.unsent.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// The right to write a large answer; held until its last byte is with the kernel, [`LONGEST_TURN`] at most.
#[derive(Debug, Clone)]
pub struct WriteTurn(#[allow(dead_code, reason = "it is held")] Arc<Mutex<Option<OwnedSemaphorePermit>>>);

/// Bytes of an answer that is not written yet.
struct HeldBytes {
    // Given back before the memory: another answer may lie there then.
    _shared: Option<SharedBody>,
    _turn: Option<WriteTurn>,
    bytes: Bytes,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// An answer that goes on, with what it keeps in memory.
struct ChargedSource {
    source: Box<dyn PieceSource>,
    turn: Option<WriteTurn>,
    _reserved: ByteReservation,
}

impl PieceSource for ChargedSource {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, BrokenOff>> {
        let turn = self.turn.clone();
        Box::pin(async move {
            let piece = self.source.next().await?;
            Ok(piece.map(|bytes| match turn {
                None => bytes,
                turn => Bytes::from_owner(HeldBytes { _shared: None, _turn: turn, bytes }),
            }))
        })
    }
    fn buffered(&self) -> usize {
        self.source.buffered()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unsent(most: usize) -> Arc<UnsentBudget> {
        Arc::new(UnsentBudget { most, ..UnsentBudget::default() })
    }
    fn hold(unsent: &Arc<UnsentBudget>, bytes: usize) -> Result<Bytes, ApiError> {
        unsent.hold(vec![0; bytes].into(), None)
    }

    #[tokio::test]
    async fn answers_count_until_their_last_copy_is_gone_and_small_ones_never() {
        let unsent = unsent(100_000);
        let first: Vec<Bytes> = (0..3).map(|_| hold(&unsent, 24_000).unwrap()).collect();
        let last = hold(&unsent, 200_000).unwrap();
        assert_eq!((last.len(), unsent.bytes.load(Ordering::Relaxed)), (200_000, 97_000), "as one of four");
        let over = hold(&unsent, 20_000).unwrap();
        let error = hold(&unsent, 20_000).expect_err("it is too much");
        assert_eq!((error.status(), error.refusal), (503, Some(AccessRefusal::UnsentAnswers)));
        assert!(unsent.has_room().is_err());
        assert!(hold(&unsent, SMALL).is_ok());
        let copy = over.clone();
        drop(over);
        assert!(hold(&unsent, 20_000).is_err(), "the connection still has a copy");
        drop(copy);
        assert!(unsent.has_room().is_ok());
        drop((first, last));
        assert_eq!(unsent.bytes.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_body_that_many_connections_have_counts_once() {
        let unsent = unsent(100_000);
        let body = Bytes::from(vec![0; 20_000]);
        let all: Vec<Bytes> = (0..50).map(|_| unsent.hold(body.clone(), None).unwrap()).collect();
        assert_eq!(unsent.bytes.load(Ordering::Relaxed), 20_000);
        drop(all);
        assert!(lock(&unsent.holders).is_empty());
        assert_eq!(unsent.bytes.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_lasts_until_its_answer_is_written_and_no_longer_than_a_minute() {
        let unsent = unsent(100_000);
        let large = |turn| unsent.hold(vec![0; 10].into(), Some(turn)).unwrap();
        let first = large(unsent.turn().await.unwrap());
        let _second = large(unsent.turn().await.unwrap());
        assert_eq!(unsent.turn().await.err().map(|error| error.status()), Some(503), "after a while");
        drop(first);
        drop(unsent.turn().await.unwrap());
        tokio::time::sleep(LONGEST_TURN).await;
        let _both = (unsent.turn().await.unwrap(), unsent.turn().await.unwrap());
    }
}
