//! Unary gRPC calls over HTTP/2, with or without TLS: one persistent connection, one call at a time.
//!
//! Source: gRPC over HTTP/2. A message has a compression flag, a length of 4 bytes, and its bytes. The status is in the
//! trailers, or in the headers of a response without a body.
//!
//! Concurrency: blocking, like the whole layer; the connection runs on a private single-threaded runtime.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full, Limited};
use hyper::HeaderMap;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::{Address, HttpError, broken, names, process_pending_events, tls, within};

const PREFIX: usize = 5;

/// The result of a call.
#[derive(Debug, Clone)]
pub struct GrpcReply {
    /// The HTTP status: a proxy may answer instead of the server.
    pub http_status: u16,
    /// The gRPC status; `None`: the response is not gRPC.
    pub status: Option<u16>,
    pub message: String,
    /// `grpc-status-details-bin`, undecoded: base64 of a `google.rpc.Status`.
    pub details: Option<String>,
    /// The first message of the response.
    pub body: Bytes,
}

/// A client of one gRPC server.
pub struct GrpcCaller {
    address: Address,
    timeout: Duration,
    largest_answer: usize,
    runtime: tokio::runtime::Runtime,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl GrpcCaller {
    /// `address`: TCP or TLS, not a Unix socket.
    pub fn new(address: Address, timeout: Duration, largest_answer: usize) -> Result<GrpcCaller, HttpError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|source| HttpError::Setup { source })?;
        Ok(GrpcCaller { address, timeout, largest_answer, runtime, connection: None })
    }

    /// `path`: `/package.Service/Method`. `is_packed`: whether `message` is compressed; the header `grpc-encoding`
    /// names the method.
    pub fn call(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
        message: &[u8],
        is_packed: bool,
    ) -> Result<GrpcReply, HttpError> {
        let retained = self.connection.take();
        let call = call(&self.address, retained, (path, headers), framed(message, is_packed), self.largest_answer);
        match self.runtime.block_on(within(self.timeout, call)) {
            Some(Ok((sender, reply))) => {
                self.connection = Some(sender);
                Ok(reply)
            }
            Some(Err(error)) => Err(error),
            None => Err(HttpError::Timeout { address: self.address.clone(), after: self.timeout }),
        }
    }
}

/// One asynchronous call on its own connection. The caller sets a deadline.
pub fn call_once<'a>(
    address: &'a Address,
    path: &'a str,
    message: &'a [u8],
    largest_answer: usize,
) -> impl Future<Output = Result<GrpcReply, HttpError>> + Send + 'a {
    async move {
        let (_sender, reply) = call(address, None, (path, &[]), framed(message, false), largest_answer).await?;
        Ok(reply)
    }
}

/// A message must be below 4 GiB.
fn framed(message: &[u8], is_packed: bool) -> Bytes {
    let mut framed = BytesMut::with_capacity(PREFIX + message.len());
    framed.put_u8(u8::from(is_packed));
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.put_slice(message);
    framed.freeze()
}

fn call<'a>(
    address: &'a Address,
    retained: Option<SendRequest<Full<Bytes>>>,
    (path, headers): (&'a str, &'a [(&'a str, &'a str)]),
    message: Bytes,
    largest_answer: usize,
) -> impl Future<Output = Result<(SendRequest<Full<Bytes>>, GrpcReply), HttpError>> + 'a {
    async move {
        let broken = |e: &(dyn Error + 'static)| broken(address, e);
        process_pending_events().await;
        let mut sender = match retained {
            Some(sender) if !sender.is_closed() => sender,
            _ => connect(address).await?,
        };
        if sender.ready().await.is_err() {
            sender = connect(address).await?;
            sender.ready().await.map_err(|e| broken(&e))?;
        }
        let mut request = hyper::Request::builder()
            .method(hyper::Method::POST)
            .uri(format!("{address}{path}"))
            .version(hyper::Version::HTTP_2)
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("user-agent", concat!("allostat/", env!("CARGO_PKG_VERSION")));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(message)).map_err(|e| broken(&e))?;
        let answer = sender.send_request(request).await.map_err(|e| broken(&e))?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, largest_answer).collect().await.map_err(|e| broken(&*e))?;
        let trailers = body.trailers().cloned().unwrap_or_default();
        let text = |name: &str| {
            let of = |map: &HeaderMap| map.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
            of(&trailers).or_else(|| of(&head.headers))
        };
        let reply = GrpcReply {
            http_status: head.status.as_u16(),
            status: text("grpc-status").and_then(|status| status.parse().ok()),
            message: text("grpc-message").unwrap_or_default(),
            details: text("grpc-status-details-bin"),
            body: first_message(body.to_bytes()),
        };
        Ok((sender, reply))
    }
}

/// Empty without a message, or if it is compressed, which was not requested.
fn first_message(body: Bytes) -> Bytes {
    let length = body.get(1..PREFIX).and_then(|length| length.try_into().ok()).map(u32::from_be_bytes);
    let length = length.and_then(|length| usize::try_from(length).ok());
    match (body.first(), length) {
        (Some(0), Some(length)) if body.len() - PREFIX >= length => body.slice(PREFIX..PREFIX + length),
        _ => Bytes::new(),
    }
}

fn connect(address: &Address) -> impl Future<Output = Result<SendRequest<Full<Bytes>>, HttpError>> + '_ {
    async move {
        let failed = |source| HttpError::Connect { address: address.clone(), source };
        let (Address::Tcp(authority) | Address::Tls(authority, _)) = address else {
            return Err(failed(std::io::ErrorKind::Unsupported.into()));
        };
        let socket = names::connect(authority).await.map_err(failed)?;
        socket.set_nodelay(true).map_err(failed)?;
        let sender = match address {
            Address::Tls(_, files) => {
                greet(TokioIo::new(tls::secured(socket, address, (authority, files), b"h2").await?)).await
            }
            Address::Tcp(_) | Address::Unix(_) => greet(TokioIo::new(socket)).await,
        };
        sender.map_err(|e| broken(address, &e))
    }
}

fn greet<I>(io: I) -> impl Future<Output = hyper::Result<SendRequest<Full<Bytes>>>>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    async move {
        let (sender, connection) = handshake(TokioExecutor::new(), io).await?;
        // The pending call receives its errors.
        tokio::spawn(connection);
        Ok(sender)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn framed_grpc_message_is_read_back_and_no_bytes_panic(
            message in prop::collection::vec(any::<u8>(), 0..40),
            rest: Vec<u8>,
        ) {
            let mut bytes = framed(&message, false).to_vec();
            bytes.extend_from_slice(&rest);
            prop_assert_eq!(first_message(bytes.into()), message);
            first_message(rest.into());
        }
    }
}
