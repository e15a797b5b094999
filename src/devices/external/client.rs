//! gRPC client for device plugins: one connection, unary calls and response streams.
//!
//! Concurrency: used on one single-threaded runtime; calls run concurrently.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::{HeaderMap, Method, Request, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::devices::plugin::{PluginError, PluginFault};
use crate::devices::protocol::certificate::NAME;
use crate::devices::protocol::frames::{GrpcFrameError, GrpcFrames, framed};
use crate::devices::protocol::handshake::PluginAddress;

/// gRPC status codes.
const OK: u16 = 0;
const DEADLINE_EXCEEDED: u16 = 4;
const UNIMPLEMENTED: u16 = 12;

#[derive(Debug, thiserror::Error)]
pub(super) enum GrpcCallError {
    #[error("cannot connect to {address}: {message}")]
    Connect { address: String, message: String },
    #[error("no response to {method} within {} s", after.as_secs_f64())]
    Timeout { method: &'static str, after: Duration },
    #[error("connection lost during {method}: {message}")]
    Broken { method: &'static str, message: String },
    #[error("{method} failed with code {code}: {message}")]
    Status { method: &'static str, code: u16, message: String },
    #[error("invalid response to {method}: {source}")]
    Frame { method: &'static str, source: GrpcFrameError },
    #[error("cannot decode the response to {method}: {source}")]
    Malformed { method: &'static str, source: prost::DecodeError },
    #[error("empty response to {method}")]
    Empty { method: &'static str },
    #[error("response to {method} is not gRPC: HTTP status {status}")]
    NoGrpc { method: &'static str, status: u16 },
}

impl GrpcCallError {
    pub(super) fn is_unimplemented(&self) -> bool {
        matches!(self, GrpcCallError::Status { code: UNIMPLEMENTED, .. })
    }
}

impl From<GrpcCallError> for PluginError {
    fn from(error: GrpcCallError) -> PluginError {
        let fault = match &error {
            GrpcCallError::Timeout { .. } | GrpcCallError::Status { code: DEADLINE_EXCEEDED, .. } => {
                PluginFault::Timeout
            }
            GrpcCallError::Connect { .. } | GrpcCallError::Broken { .. } => PluginFault::Died,
            GrpcCallError::Frame { source: GrpcFrameError::TooLarge(_), .. } | GrpcCallError::Malformed { .. } => {
                PluginFault::Invalid
            }
            GrpcCallError::Frame { .. } | GrpcCallError::Empty { .. } | GrpcCallError::NoGrpc { .. } => {
                PluginFault::Protocol
            }
            GrpcCallError::Status { code: UNIMPLEMENTED, .. } => PluginFault::Protocol,
            GrpcCallError::Status { .. } => PluginFault::Failed,
        };
        PluginError::new(fault, error.to_string())
    }
}

#[derive(Debug, Clone)]
pub(super) struct Client {
    sender: SendRequest<Full<Bytes>>,
    /// Timeout of one unary call.
    limit: Duration,
}

impl Client {
    /// `tls`: set if the plugin sent a certificate in its handshake.
    pub(super) async fn connect(
        to: &PluginAddress,
        tls: Option<ClientConfig>,
        limit: Duration,
    ) -> Result<Client, GrpcCallError> {
        let failed = |message: String| GrpcCallError::Connect { address: to.to_string(), message };
        let opened = async {
            match to {
                PluginAddress::Unix(path) => {
                    secured(UnixStream::connect(path).await.map_err(|e| e.to_string())?, tls).await
                }
                PluginAddress::Tcp(address) => {
                    secured(TcpStream::connect(address).await.map_err(|e| e.to_string())?, tls).await
                }
            }
        };
        match timeout(limit, opened).await {
            Ok(sender) => Ok(Client { sender: sender.map_err(failed)?, limit }),
            Err(_) => Err(failed("no answer in time".to_owned())),
        }
    }

    /// A unary call.
    pub(super) async fn call<A: Message + Default>(
        &self,
        method: &'static str,
        question: &impl Message,
    ) -> Result<A, GrpcCallError> {
        let answered = async {
            let mut answers = self.open(method, question).await?;
            let answer = answers.next().await?.ok_or(GrpcCallError::Empty { method })?;
            // The gRPC status follows in the trailers.
            answers.next().await?;
            Ok(answer)
        };
        let after = self.limit;
        timeout(after, answered).await.unwrap_or(Err(GrpcCallError::Timeout { method, after }))
    }

    /// A call with a response stream.
    pub(super) async fn open<A>(
        &self,
        method: &'static str,
        question: &impl Message,
    ) -> Result<ResponseStream<A>, GrpcCallError> {
        let broken = |e: &dyn std::error::Error| GrpcCallError::Broken { method, message: reason(e) };
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("http://{NAME}{method}"))
            .version(Version::HTTP_2)
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("user-agent", concat!("allostat/", env!("CARGO_PKG_VERSION")));
        let request = request.body(Full::new(framed(question))).map_err(|e| broken(&e))?;
        let mut sender = self.sender.clone();
        sender.ready().await.map_err(|e| broken(&e))?;
        let (head, body) = sender.send_request(request).await.map_err(|e| broken(&e))?.into_parts();
        if head.status != StatusCode::OK {
            return Err(GrpcCallError::NoGrpc { method, status: head.status.as_u16() });
        }
        Ok(ResponseStream {
            method,
            body,
            frames: GrpcFrames::default(),
            status: status(&head.headers),
            of: PhantomData,
        })
    }
}

/// A response stream.
pub(super) struct ResponseStream<A> {
    method: &'static str,
    body: Incoming,
    frames: GrpcFrames,
    /// From the headers if there is no message, otherwise from the trailers.
    status: Option<(u16, String)>,
    of: PhantomData<A>,
}

impl<A: Message + Default> ResponseStream<A> {
    /// `None`: the stream ended with status OK.
    pub(super) async fn next(&mut self) -> Result<Option<A>, GrpcCallError> {
        let method = self.method;
        loop {
            if let Some(message) = self.frames.next().map_err(|source| GrpcCallError::Frame { method, source })? {
                return A::decode(message).map(Some).map_err(|source| GrpcCallError::Malformed { method, source });
            }
            match self.body.frame().await {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.frames.push(&data),
                    Err(frame) => self.status = frame.trailers_ref().and_then(status).or_else(|| self.status.take()),
                },
                Some(Err(error)) => return Err(GrpcCallError::Broken { method, message: reason(&error) }),
                None => return self.ended().map(|()| None),
            }
        }
    }
    fn ended(&self) -> Result<(), GrpcCallError> {
        let method = self.method;
        match &self.status {
            Some((OK, _)) if !self.frames.is_amid() => Ok(()),
            Some((OK, _)) => Err(GrpcCallError::Broken { method, message: "within a message".to_owned() }),
            Some((code, message)) => Err(GrpcCallError::Status { method, code: *code, message: message.clone() }),
            None => Err(GrpcCallError::Broken { method, message: "no gRPC status".to_owned() }),
        }
    }
}

fn status(headers: &HeaderMap) -> Option<(u16, String)> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let code = text("grpc-status")?.parse().ok()?;
    Some((code, unescaped(text("grpc-message").unwrap_or_default())))
}

/// Decodes percent-encoded UTF-8, as gRPC encodes status messages.
fn unescaped(text: &str) -> String {
    let (bytes, mut plain, mut at) = (text.as_bytes(), Vec::new(), 0);
    while let Some(byte) = bytes.get(at) {
        let coded = text.get(at + 1..at + 3).filter(|_| *byte == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok());
        plain.push(coded.unwrap_or(*byte));
        at += if coded.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// The innermost source: the actual cause.
fn reason(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

async fn secured<S>(socket: S, tls: Option<ClientConfig>) -> Result<SendRequest<Full<Bytes>>, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match tls {
        None => greeted(socket).await,
        Some(config) => {
            let name = ServerName::try_from(NAME).map_err(|e| e.to_string())?;
            let secure = TlsConnector::from(Arc::new(config)).connect(name, socket).await;
            greeted(secure.map_err(|e| e.to_string())?).await
        }
    }
}

async fn greeted<S>(socket: S) -> Result<SendRequest<Full<Bytes>>, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(socket)).await.map_err(|e| reason(&e))?;
    // Pending calls receive its errors. The task ends with the runtime.
    tokio::spawn(connection);
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_errors_are_read_as_they_were_meant() {
        assert_eq!(unescaped("100%25 of it%0A%C3%A9"), "100% of it\né");
        assert_eq!(unescaped("50% %zz %"), "50% %zz %");
    }
}
