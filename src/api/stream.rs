//! An answer that goes on: pieces as they come, until their source ends or the peer goes.
//!
//! A piece is asked for when the one before it is on its way, so a peer that does not read holds one piece and what
//! hyper and the kernel buffer, and is let go after the patience of any writing. All that the answer owns is dropped
//! with it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::guard::{ResponseProgress, WholeBody};
use crate::exporters::prometheus::{BodyStream, BrokenOff};
use crate::runner::drivers::BoxFuture;

/// Where the pieces come from.
pub trait PieceSource: Send {
    /// `None`: the end. Errors: what was sent is not the whole, which the peer learns from a connection that breaks
    /// off.
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, BrokenOff>>;
    /// So many bytes it keeps for a reader that does not read.
    fn buffered(&self) -> usize {
        0
    }
}

impl PieceSource for BodyStream {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, BrokenOff>> {
        Box::pin(BodyStream::next(self))
    }
    fn buffered(&self) -> usize {
        BodyStream::BUFFERED
    }
}

type Next = BoxFuture<'static, (Box<dyn PieceSource>, Result<Option<Bytes>, BrokenOff>)>;

pub(super) struct StreamedBody {
    /// `None`: it has ended.
    next: Option<Next>,
    progress: Arc<ResponseProgress>,
}

impl StreamedBody {
    pub(super) fn new(source: Box<dyn PieceSource>, progress: Arc<ResponseProgress>) -> StreamedBody {
        StreamedBody { next: Some(next(source)), progress }
    }
}

fn next(mut source: Box<dyn PieceSource>) -> Next {
    Box::pin(async move {
        let piece = source.next().await;
        (source, piece)
    })
}

/// An answer's body, of either kind.
pub(super) enum ResponseBody {
    Whole(WholeBody),
    Pieces(StreamedBody),
    /// Nothing, and the connection does not go back to waiting for requests.
    Switched,
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let pieces = match &mut *self {
            ResponseBody::Whole(whole) => return Pin::new(whole).poll_frame(cx),
            ResponseBody::Pieces(pieces) => pieces,
            ResponseBody::Switched => return Poll::Ready(None),
        };
        let Some(waiting) = &mut pieces.next else { return Poll::Ready(None) };
        let (source, piece) = ready!(waiting.as_mut().poll(cx));
        pieces.next = matches!(piece, Ok(Some(_))).then(|| next(source));
        if let Ok(None) = piece {
            pieces.progress.body_done();
        }
        Poll::Ready(piece.map(|bytes| bytes.map(Frame::data)).transpose())
    }
    fn is_end_stream(&self) -> bool {
        match self {
            ResponseBody::Whole(whole) => whole.is_end_stream(),
            ResponseBody::Pieces(pieces) => pieces.next.is_none(),
            ResponseBody::Switched => true,
        }
    }
    fn size_hint(&self) -> SizeHint {
        match self {
            ResponseBody::Whole(whole) => whole.size_hint(),
            ResponseBody::Pieces(_) => SizeHint::default(),
            ResponseBody::Switched => SizeHint::with_exact(0),
        }
    }
}
