//! `GET /v1/allocs/{id}/fs/snapshot`: the directory of an alloc, or a part of it, as a tar archive. It is written while
//! it is read: its memory is a few pieces, whatever its size.

use std::io::{self, Write};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::access::Access;
use super::contract::{EndpointAnswer, Parameter, QueryRule};
use super::error::{ApiError, Code};
use super::files::{found_in, managed, requested_path};
use super::http::Reply;
use super::stream::PieceSource;
use super::{ApiContext, Method, Route};
use crate::exporters::prometheus::BrokenOff;
use crate::host::foreign_tree::{ForeignTree, FoundFile};
use crate::model::id::AllocId;
use crate::model::text::log_text;
use crate::runner::drivers::BoxFuture;
use crate::runner::write_snapshot;

pub const SNAPSHOT_TYPE: &str = "application/x-tar";

/// Of one piece, and how many wait for their reader.
const PIECE: usize = 64 << 10;
const WAITING: usize = 4;
/// Each reads the disk without end.
static SNAPSHOTS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(4)));

pub(super) static SNAPSHOT: Route = Route {
    method: Method::Get,
    path: "/v1/allocs/{id}/fs/snapshot",
    access: Access::SocketOnly("files of allocs are read"),
    about: "a tar archive of the alloc's directory, or of ?path=web/local, without secrets",
    query: QueryRule::Once(&[Parameter::new(
        "path",
        "A path below the directory of the alloc, such as web/local. Default: the directory itself.",
    )]),
    body: None,
    answers: &[EndpointAnswer::other(&[SNAPSHOT_TYPE], "The archive")],
    handler: |context, request| {
        Box::pin(async {
            let id = managed(context, request)?;
            archived(context, &id, requested_path(request), write_snapshot).await
        })
    },
};

/// An archive of `path` in the directory of an alloc, by the function that writes it.
///
/// Errors: four are being written; those of [`found_in`].
pub(super) async fn archived(
    context: &ApiContext,
    id: &AllocId,
    path: &str,
    write: impl FnOnce(&ForeignTree, FoundFile, &mut dyn Write) -> io::Result<()> + Send + 'static,
) -> Result<Reply, ApiError> {
    let full = |_| ApiError::new(Code::TooManyRequests, "four snapshots are being written; try again later");
    let seat = Arc::clone(&SNAPSHOTS).try_acquire_owned().map_err(full)?;
    let (sender, pieces) = mpsc::channel(WAITING);
    let alloc_id = id.clone();
    found_in(context, id, path, move |tree, found| {
        let tree = tree.try_clone()?;
        // On a thread of its own: it lasts as long as its reader reads.
        std::thread::Builder::new().name("snapshot".into()).spawn(move || {
            let mut writer = ArchiveWriter { held: Vec::with_capacity(PIECE), sender };
            match write(&tree, found, &mut writer) {
                // Without this the end is one that broke off.
                Ok(()) => drop(writer.sender.blocking_send(WHOLE)),
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                // It has the name of a file, which the task chose.
                Err(error) => {
                    let error = log_text(&error.to_string());
                    tracing::warn!(%alloc_id, error, "snapshot of an alloc failed before its end");
                }
            }
        })?;
        Ok(())
    })
    .await?;
    Ok(Reply::following(SNAPSHOT_TYPE, Box::new(ArchiveStream { pieces, _seat: seat })))
}

/// The archive was written to its end.
const WHOLE: Bytes = Bytes::new();

/// Where the archive is written to.
struct ArchiveWriter {
    held: Vec<u8>,
    sender: mpsc::Sender<Bytes>,
}

impl Write for ArchiveWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PIECE - self.held.len());
        self.held.extend_from_slice(&bytes[..taken]);
        if self.held.len() == PIECE {
            self.flush()?;
        }
        Ok(taken)
    }
    fn flush(&mut self) -> io::Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        let piece = Bytes::from(std::mem::replace(&mut self.held, Vec::with_capacity(PIECE)));
        self.sender.blocking_send(piece).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// Where it is read from.
struct ArchiveStream {
    pieces: mpsc::Receiver<Bytes>,
    _seat: OwnedSemaphorePermit,
}

impl PieceSource for ArchiveStream {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, BrokenOff>> {
        Box::pin(async {
            match self.pieces.recv().await {
                Some(piece) if piece.is_empty() => Ok(None),
                Some(piece) => Ok(Some(piece)),
                None => Err(BrokenOff),
            }
        })
    }
    fn buffered(&self) -> usize {
        PIECE * (WAITING + 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn archive_comes_in_pieces_and_without_its_end_breaks_off() {
        for is_whole in [true, false] {
            let (sender, pieces) = mpsc::channel(WAITING);
            let seat = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
            let mut archive = ArchiveStream { pieces, _seat: seat };
            let written = std::thread::spawn(move || {
                let mut writer = ArchiveWriter { held: Vec::with_capacity(PIECE), sender };
                writer.write_all(&vec![7; PIECE * 2 + 5]).unwrap();
                writer.flush().unwrap();
                if is_whole {
                    writer.sender.blocking_send(WHOLE).unwrap();
                }
            });
            let mut sizes = Vec::new();
            let end = loop {
                match archive.next().await {
                    Ok(Some(piece)) => sizes.push(piece.len()),
                    end => break end,
                }
            };
            assert_eq!((sizes, end.is_ok()), (vec![PIECE, PIECE, 5], is_whole));
            written.join().unwrap();
        }
    }

    #[test]
    fn writer_ends_with_its_reader() {
        let (sender, pieces) = mpsc::channel(WAITING);
        drop(pieces);
        let mut writer = ArchiveWriter { held: Vec::with_capacity(PIECE), sender };
        assert_eq!(writer.write_all(&vec![7; PIECE * 2]).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
