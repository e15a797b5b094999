//! A connection that stops being HTTP: after its request and a 101 it carries bytes in both directions.
//!
//! Source: RFC 9110, section 7.8. Concurrency: [`open`] within the caller's runtime; [`Client::tunnel`] blocks, and
//! leaves the connection to a thread.

use std::future::Future;
use std::io;
use std::os::unix::net::UnixStream as BlockingStream;

use bytes::Bytes;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy, split};
use tokio::net::UnixStream;

use super::exchange::{HttpAnswer, Payload};
use super::{
    Address, Client, HttpError, HttpResponse, ServerAddress, authorized, broken, connect, interim, request_to, within,
};
use crate::host::peer::Trust;

/// Both directions.
pub trait Tunnel: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Tunnel for T {}

/// What came of asking for one.
pub enum TunnelAnswer {
    Open(Box<dyn Tunnel>),
    /// It stays HTTP.
    Refused(Box<HttpAnswer>),
}

/// The same, for who blocks.
pub enum TunnelOpened {
    /// Closed when the other side closes; closing it closes the tunnel.
    Open(BlockingStream),
    Refused(HttpResponse),
}

/// An error in an answer is a text.
const LARGEST_REFUSAL: usize = 1 << 20;

/// Asks on a new connection. `protocol`: what the other side has to speak from then on.
///
/// Errors: as [`super::Client::request`]'s.
pub fn open<'a>(
    (address, trust): (&'a Address, Trust),
    (protocol, target): (&'a str, &'a str),
    headers: &'a [(&'a str, &'a str)],
    body: Bytes,
) -> impl Future<Output = Result<TunnelAnswer, HttpError>> + Send + 'a {
    async move {
        let mut sender = connect((address, trust)).await?;
        let all = [headers, [("connection", "Upgrade"), ("upgrade", protocol)].as_slice()].concat();
        let request = request_to(address, hyper::Method::POST, target, &all);
        let request = request.body(Payload::Whole(body)).map_err(|e| broken(address, &e))?;
        let mut answer = interim::answer_to((&mut sender, address), request).await?;
        if answer.status() != hyper::StatusCode::SWITCHING_PROTOCOLS {
            return Ok(TunnelAnswer::Refused(Box::new(HttpAnswer::of(answer, address, sender))));
        }
        let upgraded = hyper::upgrade::on(&mut answer).await.map_err(|e| broken(address, &e))?;
        Ok(TunnelAnswer::Open(Box::new(TokioIo::new(upgraded))))
    }
}

impl Client {
    /// As [`open`].
    pub fn tunnel(self, protocol: &str, target: &str, body: Bytes) -> Result<TunnelOpened, HttpError> {
        let Client { address, trust, timeout, runtime, authorization, .. } = self;
        let headers =
            [[("content-type", "application/json")].as_slice(), authorized(&authorization).as_slice()].concat();
        let at: ServerAddress<'_> = (&address, trust);
        let request = async {
            match open(at, (protocol, target), &headers, body).await? {
                TunnelAnswer::Open(stream) => Ok(Ok(stream)),
                TunnelAnswer::Refused(answer) => Ok(Err(answer.whole(LARGEST_REFUSAL).await?)),
            }
        };
        let late = || HttpError::Timeout { address: address.clone(), after: timeout };
        let stream = match runtime.block_on(within(timeout, request)).ok_or_else(late)?? {
            Ok(stream) => stream,
            Err(refused) => return Ok(TunnelOpened::Refused(refused)),
        };
        let set_up = |source: io::Error| HttpError::Setup { source };
        let (peer, own) = BlockingStream::pair().map_err(set_up)?;
        own.set_nonblocking(true).map_err(set_up)?;
        let carry = move || {
            runtime.block_on(async move {
                let Ok(own) = UnixStream::from_std(own) else { return };
                let ((mut from, mut to), (mut read, mut write)) = (split(stream), own.into_split());
                // Apart: the other side may close before it has read all, and what it sent counts all the same.
                let down = async {
                    let _ = copy(&mut from, &mut write).await;
                    let _ = write.shutdown().await;
                };
                let up = async {
                    let _ = copy(&mut read, &mut to).await;
                    let _ = to.shutdown().await;
                };
                tokio::join!(down, up);
            });
        };
        std::thread::Builder::new().name("tunnel".into()).spawn(carry).map_err(set_up)?;
        Ok(TunnelOpened::Open(peer))
    }
}
