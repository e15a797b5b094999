//! A body that is written while its reader takes it: of one of any size, some pages stand in memory.
//!
//! ```text
//! writer, on a thread that may wait ── full pages; two may wait ──► reader
//!        ◄── a page that was sent ──────────────────────────────────┘
//! ```
//! A reader that goes stops nothing but its own writer, which writes to the end for nobody: some milliseconds.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use thiserror::Error;
use tokio::sync::mpsc;

use super::page::Sink;
use crate::telemetry::lock;

/// Of one page: as much as stays in a processor's own cache beside the labels and values that are written on it.
pub(super) const PIECE: usize = 128 * 1024;
/// Full ones that wait for the reader.
const WAITING: usize = 2;

/// What is left of a body.
#[derive(Debug)]
pub struct Telling {
    pieces: mpsc::Receiver<Step>,
}

#[derive(Debug)]
enum Step {
    Piece(Bytes),
    End,
}

/// Its writer failed: what was sent is not the whole.
#[derive(Debug, Error)]
#[error("the body breaks off: writing it failed")]
pub struct BrokenOff;

impl Telling {
    /// Begins to write. `write` gets the first page and who takes the full ones, and gives the last; `done` is told how long
    /// that took without the time of the reader.
    ///
    /// Panics outside a tokio runtime.
    pub(super) fn begin(
        write: impl FnOnce(Vec<u8>, Sink<'_>) -> (Vec<u8>, usize) + Send + 'static,
        done: impl FnOnce(Duration) + Send + 'static,
    ) -> Telling {
        let (sender, pieces) = mpsc::channel(WAITING);
        tokio::task::spawn_blocking(move || {
            let (began, mut waited) = (Instant::now(), Duration::ZERO);
            let sent = Arc::new(Sent::default());
            let mut send = |bytes, len| {
                let piece = Bytes::from_owner(OnPage { bytes, len, sent: Arc::clone(&sent) });
                let asked = Instant::now();
                // Fails when nobody reads any more: then the page comes back at once.
                let _ = sender.blocking_send(Step::Piece(piece));
                waited += asked.elapsed();
            };
            let mut full = |bytes, len| {
                send(bytes, len);
                let again = lock(&sent.0).pop();
                again.unwrap_or_else(|| vec![0; PIECE])
            };
            let (rest, len) = write(vec![0; PIECE], &mut full);
            send(rest, len);
            let _ = sender.blocking_send(Step::End);
            done(began.elapsed().saturating_sub(waited));
        });
        Telling { pieces }
    }

    /// The next piece; `None`: it was the last. Errors: its writer failed.
    pub async fn next(&mut self) -> Result<Option<Bytes>, BrokenOff> {
        match self.pieces.recv().await {
            Some(Step::Piece(bytes)) => Ok(Some(bytes)),
            Some(Step::End) => Ok(None),
            None => Err(BrokenOff),
        }
    }
}

/// Pages that were sent.
#[derive(Debug, Default)]
struct Sent(Mutex<Vec<Vec<u8>>>);

struct OnPage {
    bytes: Vec<u8>,
    len: usize,
    sent: Arc<Sent>,
}

impl AsRef<[u8]> for OnPage {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Drop for OnPage {
    fn drop(&mut self) {
        lock(&self.sent.0).push(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(mut stream: Telling) -> Result<Vec<u8>, BrokenOff> {
        let mut all = Vec::new();
        while let Some(piece) = stream.next().await? {
            all.extend_from_slice(&piece);
        }
        Ok(all)
    }

    /// Writes `pages` pages, each full of its number.
    fn pages(pages: u8) -> impl FnOnce(Vec<u8>, Sink<'_>) -> (Vec<u8>, usize) + Send {
        move |mut page, full| {
            for number in 0..pages {
                page.fill(number);
                page = full(page, PIECE);
            }
            (page, 0)
        }
    }

    #[tokio::test]
    async fn a_reader_gets_every_page_in_order_and_pages_are_written_on_again() {
        let expected: Vec<u8> = (0..40).flat_map(|number| vec![number; PIECE]).collect();
        assert_eq!(read(Telling::begin(pages(40), |_| {})).await.unwrap(), expected);
    }

    #[tokio::test]
    async fn a_writer_that_fails_is_told_from_one_that_is_done() {
        let stream = Telling::begin(
            |page, full| {
                full(page, 3);
                panic!("on purpose");
            },
            |_| {},
        );
        assert!(read(stream).await.is_err());
    }

    #[tokio::test]
    async fn who_is_slow_is_waited_for_with_few_pages_and_its_time_is_not_the_writers() {
        let (told, took) = tokio::sync::oneshot::channel();
        let (count, mut written) = mpsc::unbounded_channel();
        let began = Instant::now();
        let mut stream = Telling::begin(
            move |mut page, full| {
                for number in 0..10 {
                    count.send(number).unwrap();
                    page = full(page, PIECE);
                }
                (page, 0)
            },
            |took| told.send(took).unwrap(),
        );
        // Two wait, one is held by the writer: a fourth is not begun before somebody reads.
        for _ in 0..3 {
            written.recv().await.unwrap();
        }
        let slept = Instant::now();
        tokio::time::sleep(Duration::from_millis(300)).await;
        let slept = slept.elapsed();
        assert!(written.try_recv().is_err());
        while stream.next().await.unwrap().is_some() {}
        let (took, whole) = (took.await.unwrap(), began.elapsed());
        assert!(took + slept / 2 < whole, "the writer's {took:?} hold the reader's {slept:?}, of {whole:?}");
    }

    #[tokio::test]
    async fn a_reader_that_goes_lets_its_writer_end() {
        let (told, took) = tokio::sync::oneshot::channel();
        drop(Telling::begin(pages(200), |took| told.send(took).unwrap()));
        took.await.unwrap();
    }
}
