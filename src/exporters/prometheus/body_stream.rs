//! A body that is written while its reader takes it: a few pages are in memory, whatever its size.
//!
//! ```text
//! writer, on a thread that may wait ── full pages; two may wait ──► reader
//!        ◄── a page that was sent ──────────────────────────────────┘
//! ```
//! A reader that goes stops nothing but its own writer, which writes on to the end without one: some milliseconds.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use thiserror::Error;
use tokio::sync::mpsc;

use super::page::PageSink;
use crate::telemetry::lock;

/// Of one page: as much as stays in a processor's own cache beside the labels and values that are written on it.
pub(super) const PIECE: usize = 128 * 1024;
/// Full ones that wait for the reader.
const WAITING: usize = 2;

/// What is left of a body.
#[derive(Debug)]
pub struct BodyStream {
    pieces: mpsc::Receiver<Step>,
    /// Those that were taken and not given out yet, the last one first.
    ahead: Vec<Bytes>,
}

/// An answer whose beginning is there.
#[derive(Debug)]
pub enum BodyStart {
    /// It is no longer than a page.
    Whole(Bytes),
    Pieces(BodyStream),
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

impl BodyStream {
    /// Begins to write. `write` gets the first page and the sink of full ones, and returns the last; `done` receives
    /// how long that took without the time of the reader.
    ///
    /// Panics outside a tokio runtime.
    pub(super) fn begin(
        write: impl FnOnce(Vec<u8>, PageSink<'_>) -> (Vec<u8>, usize) + Send + 'static,
        done: impl FnOnce(Duration) + Send + 'static,
    ) -> BodyStream {
        let (sender, pieces) = mpsc::channel(WAITING);
        tokio::task::spawn_blocking(move || {
            let (began, mut waited) = (Instant::now(), Duration::ZERO);
            let sent = Arc::new(SentPages::default());
            let mut send = |bytes, len| {
                let piece = Bytes::from_owner(OnPage { bytes, len, sent: Arc::clone(&sent) });
                let requested_at = Instant::now();
                // Fails without a reader: then the page comes back at once.
                let _ = sender.blocking_send(Step::Piece(piece));
                waited += requested_at.elapsed();
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
        BodyStream { pieces, ahead: Vec::new() }
    }

    /// So many bytes stand in memory for a reader that does not read.
    pub const BUFFERED: usize = (WAITING + 2) * PIECE;

    /// The same of what is written as to a file. An error, and a reader that goes, end it early.
    ///
    /// Panics outside a tokio runtime.
    pub fn of_writer(write: impl FnOnce(&mut PieceWriter) -> io::Result<()> + Send + 'static) -> BodyStream {
        let (sender, pieces) = mpsc::channel(WAITING);
        tokio::task::spawn_blocking(move || {
            let mut out = PieceWriter { sender, page: Vec::new() };
            match write(&mut out).and_then(|()| out.flush()) {
                Ok(()) => drop(out.sender.blocking_send(Step::End)),
                Err(_) if out.is_unread() => {}
                // Without an end its reader knows that it is not the whole.
                Err(error) => tracing::error!(error = error.to_string(), "failed to write the end of an answer"),
            }
        });
        BodyStream { pieces, ahead: Vec::new() }
    }

    /// Waits until there is more than a page, or all.
    ///
    /// Errors: its writer failed before that.
    pub async fn start(mut self) -> Result<BodyStart, BrokenOff> {
        let Some(first) = self.next().await? else { return Ok(BodyStart::Whole(Bytes::new())) };
        let Some(second) = self.next().await? else { return Ok(BodyStart::Whole(first)) };
        self.ahead = vec![second, first];
        Ok(BodyStart::Pieces(self))
    }

    /// The next piece; `None`: it was the last. Errors: its writer failed.
    pub async fn next(&mut self) -> Result<Option<Bytes>, BrokenOff> {
        if let Some(bytes) = self.ahead.pop() {
            return Ok(Some(bytes));
        }
        match self.pieces.recv().await {
            Some(Step::Piece(bytes)) => Ok(Some(bytes)),
            Some(Step::End) => Ok(None),
            None => Err(BrokenOff),
        }
    }
}

/// Takes an answer, and passes it on page by page; waits where its reader is slow.
#[derive(Debug)]
pub struct PieceWriter {
    sender: mpsc::Sender<Step>,
    page: Vec<u8>,
}

impl PieceWriter {
    /// Its reader is gone.
    pub fn is_unread(&self) -> bool {
        self.sender.is_closed()
    }
}

impl Write for PieceWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PIECE - self.page.len());
        self.page.extend_from_slice(&bytes[..taken]);
        if self.page.len() == PIECE {
            self.flush()?;
        }
        Ok(taken)
    }
    fn flush(&mut self) -> io::Result<()> {
        let page = std::mem::take(&mut self.page);
        let sent = page.is_empty() || self.sender.blocking_send(Step::Piece(page.into())).is_ok();
        if sent { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    }
}

/// Pages that were sent.
#[derive(Debug, Default)]
struct SentPages(Mutex<Vec<Vec<u8>>>);

struct OnPage {
    bytes: Vec<u8>,
    len: usize,
    sent: Arc<SentPages>,
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

    async fn read(mut stream: BodyStream) -> Result<Vec<u8>, BrokenOff> {
        let mut all = Vec::new();
        while let Some(piece) = stream.next().await? {
            all.extend_from_slice(&piece);
        }
        Ok(all)
    }

    /// Writes `pages` pages, each full of its number.
    fn pages(pages: u8) -> impl FnOnce(Vec<u8>, PageSink<'_>) -> (Vec<u8>, usize) + Send {
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
        assert_eq!(read(BodyStream::begin(pages(40), |_| {})).await.unwrap(), expected);
    }

    #[tokio::test]
    async fn failed_writer_is_an_error_and_not_an_end() {
        let stream = BodyStream::begin(
            |page, full| {
                full(page, 3);
                panic!("on purpose");
            },
            |_| {},
        );
        assert!(read(stream).await.is_err());
    }

    #[tokio::test]
    async fn slow_body_reader_holds_few_pages_and_its_time_is_not_the_writers() {
        let (done, took) = tokio::sync::oneshot::channel();
        let (count, mut written) = mpsc::unbounded_channel();
        let began = Instant::now();
        let mut stream = BodyStream::begin(
            move |mut page, full| {
                for number in 0..10 {
                    count.send(number).unwrap();
                    page = full(page, PIECE);
                }
                (page, 0)
            },
            |took| done.send(took).unwrap(),
        );
        // Two wait, one is held by the writer: a fourth is not begun before one is read.
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
    async fn streamed_body_is_whole_if_short_and_in_pieces_if_long() {
        for bytes in [0, 1, PIECE - 1, PIECE, PIECE + 1, 9 * PIECE + 7] {
            let expected: Vec<u8> = (0..=250_u8).cycle().take(bytes).collect();
            let text = expected.clone();
            let stream = BodyStream::of_writer(move |out| text.chunks(1_000).try_for_each(|line| out.write_all(line)));
            let (is_whole, all) = match stream.start().await.unwrap() {
                BodyStart::Whole(all) => (true, all.to_vec()),
                BodyStart::Pieces(stream) => (false, read(stream).await.unwrap()),
            };
            assert_eq!((is_whole, all), (bytes <= PIECE, expected), "{bytes}");
        }
        let fails = |after: usize| {
            BodyStream::of_writer(move |out| {
                out.write_all(&vec![0; after])?;
                Err(io::ErrorKind::NotFound.into())
            })
        };
        assert!(fails(9).start().await.is_err());
        let Ok(BodyStart::Pieces(stream)) = fails(3 * PIECE).start().await else { panic!("it began") };
        assert!(read(stream).await.is_err());
    }

    #[tokio::test]
    async fn body_writer_ends_early_once_its_reader_is_dropped() {
        let (done, count) = tokio::sync::oneshot::channel();
        let stream = BodyStream::of_writer(move |out| {
            let written = (0..1_000).take_while(|_| out.write_all(&[0; PIECE]).is_ok()).count();
            done.send((written, out.is_unread())).unwrap();
            Ok(())
        });
        let Ok(BodyStart::Pieces(stream)) = stream.start().await else { panic!("it is long") };
        drop(stream);
        let (written, is_unread) = count.await.unwrap();
        assert!(is_unread && written < 10, "{written}");
    }

    #[tokio::test]
    async fn body_stream_dropped_by_its_reader_ends_its_writer() {
        let (done, took) = tokio::sync::oneshot::channel();
        drop(BodyStream::begin(pages(200), |took| done.send(took).unwrap()));
        took.await.unwrap();
    }
}
