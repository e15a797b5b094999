//! The gRPC services over HTTP/2.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::channel::{Channel, Sender};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prost::Message;
use rustls::ServerConfig;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::answer;
use super::feed::PluginFeed;
use crate::devices::plugin::{PluginError, PluginFault};
use crate::devices::protocol::MOST_BYTES;
use crate::devices::protocol::frames::{GrpcFrames, framed};
use crate::devices::protocol::messages::{
    ConfigSchema, Empty, HealthAnswer, HealthRequest, KIND_DEVICE, PluginInfo, ReserveRequest, SERVING, SetConfig,
    Spec, SpecKind, SpecObject, StatsRequest,
};
use crate::devices::protocol::methods::{
    API_VERSION, BROKER, CONFIG, FINGERPRINT, HEALTH, HEALTH_OF, INFO, RESERVE, SCHEMA, SHUTDOWN, STATS, STDIO,
};
use crate::model::id::DeviceId;

/// Timeout of a TLS handshake, of receiving a request, and of a reservation.
const LIMIT: Duration = Duration::from_secs(10);
/// Interval of readings if the client sends none or one that is too short.
const INTERVAL: Duration = Duration::from_secs(1);
const SHORTEST: Duration = Duration::from_millis(100);
/// Queue length of outgoing messages.
const WAITING: usize = 4;

/// A gRPC status other than OK.
#[derive(Debug)]
struct GrpcError {
    code: u8,
    message: String,
}

impl GrpcError {
    const INVALID_ARGUMENT: u8 = 3;
    const DEADLINE_EXCEEDED: u8 = 4;
    const NOT_FOUND: u8 = 5;
    const UNIMPLEMENTED: u8 = 12;
    const INTERNAL: u8 = 13;
    const UNAVAILABLE: u8 = 14;

    fn new(code: u8, message: impl Into<String>) -> GrpcError {
        GrpcError { code, message: message.into() }
    }
}

impl From<PluginError> for GrpcError {
    fn from(error: PluginError) -> GrpcError {
        let code = match error.fault {
            PluginFault::Invalid => GrpcError::NOT_FOUND,
            PluginFault::Timeout => GrpcError::DEADLINE_EXCEEDED,
            PluginFault::Missing | PluginFault::NoDriver | PluginFault::Stopped | PluginFault::Died => {
                GrpcError::UNAVAILABLE
            }
            PluginFault::VersionMismatch | PluginFault::NoPermission | PluginFault::Protocol | PluginFault::Failed => {
                GrpcError::INTERNAL
            }
        };
        GrpcError::new(code, error.message)
    }
}

/// The client is gone.
struct ClientDisconnect;

/// Sends the messages of one call.
struct ResponseSender(Sender<Bytes>);

impl ResponseSender {
    async fn send(&mut self, message: &impl Message) -> Result<(), ClientDisconnect> {
        self.0.send_data(framed(message)).await.map_err(|_| ClientDisconnect)
    }
    async fn end(&mut self, refusal: Option<GrpcError>) {
        let (code, message) = refusal.map_or((0, String::new()), |refusal| (refusal.code, refusal.message));
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from(u16::from(code)));
        if let Ok(message) = HeaderValue::from_str(&escaped(&message)) {
            trailers.insert("grpc-message", message);
        }
        let _ = self.0.send_trailers(trailers).await;
    }
}

/// Percent-encodes a status message as gRPC requires.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'%' => out.push_str("%25"),
            b' '..=b'~' => out.push(char::from(byte)),
            other => _ = write!(out, "%{other:02X}"),
        }
    }
    out
}

/// Serves one connection until it ends.
pub(super) async fn connection(socket: UnixStream, plugin: Arc<PluginService>, tls: Option<Arc<ServerConfig>>) {
    let server = http2::Builder::new(TokioExecutor::new()).timer(TokioTimer::new()).to_owned();
    let service = service_fn(move |request| {
        let plugin = Arc::clone(&plugin);
        async move { Ok::<_, Infallible>(plugin.open(request)) }
    });
    // A client may disconnect during a response.
    match tls {
        None => _ = server.serve_connection(TokioIo::new(socket), service).await,
        Some(config) => match timeout(LIMIT, TlsAcceptor::from(config).accept(socket)).await {
            Ok(Ok(socket)) => _ = server.serve_connection(TokioIo::new(socket), service).await,
            Ok(Err(error)) => tracing::warn!(%error, "device plugin client rejected: TLS handshake failed"),
            Err(_) => tracing::warn!("device plugin client timed out in the TLS handshake"),
        },
    }
}

pub(super) struct PluginService {
    feed: PluginFeed,
    /// Becomes true when the shutdown is requested.
    end: watch::Sender<bool>,
}

impl PluginService {
    pub(super) fn new(feed: PluginFeed) -> PluginService {
        PluginService { feed, end: watch::Sender::new(false) }
    }
    #[must_use]
    pub(super) fn with_stop(self, end: watch::Sender<bool>) -> PluginService {
        PluginService { end, ..self }
    }

    /// Answers in a task of its own, which ends with the call.
    fn open(self: Arc<Self>, request: Request<Incoming>) -> Response<Channel<Bytes>> {
        let (sender, body) = Channel::new(WAITING);
        let path = request.uri().path().to_owned();
        tokio::spawn(async move {
            let mut to = ResponseSender(sender);
            let refusal = match timeout(LIMIT, question(request.into_body(), &path)).await {
                Err(_) => Some(GrpcError::new(GrpcError::DEADLINE_EXCEEDED, "incomplete request")),
                Ok(Err(refusal)) => Some(refusal),
                Ok(Ok(question)) => match self.answer(&path, question, &mut to).await {
                    Ok(()) => None,
                    Err(CallEnd::Refused(refusal)) => Some(refusal),
                    Err(CallEnd::Disconnected) => return,
                },
            };
            to.end(refusal).await;
        });
        let mut response = Response::new(body);
        response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
        response
    }

    async fn answer(&self, path: &str, question: Bytes, to: &mut ResponseSender) -> Result<(), CallEnd> {
        match path {
            HEALTH => to.send(&health(&read::<HealthRequest>(question)?)?).await?,
            INFO => to.send(&self.info()).await?,
            SCHEMA => to.send(&schema()).await?,
            CONFIG => {
                let config = read::<SetConfig>(question)?;
                configured(&config)?;
                to.send(&Empty {}).await?;
            }
            FINGERPRINT => self.fingerprint(to).await?,
            STATS => self.stats(&read::<StatsRequest>(question)?, to).await?,
            RESERVE => self.reserve(read::<ReserveRequest>(question)?, to).await?,
            SHUTDOWN => {
                to.send(&Empty {}).await?;
                self.end.send_replace(true);
            }
            // Both streams stay open without messages: standard output is not captured, and nothing is brokered.
            STDIO | BROKER => _ = self.end.subscribe().wait_for(|end| *end).await,
            other => return Err(GrpcError::new(GrpcError::UNIMPLEMENTED, format!("unknown method {other}")).into()),
        }
        Ok(())
    }

    fn info(&self) -> PluginInfo {
        PluginInfo {
            kind: KIND_DEVICE,
            api_versions: vec![API_VERSION.to_owned()],
            version: env!("CARGO_PKG_VERSION").to_owned(),
            name: self.feed.name().to_owned(),
        }
    }

    /// Runs until the client disconnects.
    async fn fingerprint(&self, to: &mut ResponseSender) -> Result<(), CallEnd> {
        let mut groups = self.feed.groups();
        loop {
            let device_groups = groups.borrow_and_update().clone();
            if let Some(device_groups) = device_groups {
                to.send(&answer::fingerprint(&self.feed.well(&device_groups))).await?;
            }
            tokio::select! {
                changed = groups.changed() => changed.map_err(|_| ClientDisconnect)?,
                () = self.ended() => return Ok(()),
            }
        }
    }

    async fn stats(&self, request: &StatsRequest, to: &mut ResponseSender) -> Result<(), CallEnd> {
        let requested = request.collection_interval.as_ref().and_then(|interval| {
            let (seconds, nanos) = (u64::try_from(interval.seconds).ok()?, u32::try_from(interval.nanos).ok()?);
            Some(Duration::new(seconds, nanos))
        });
        let mut ticks = tokio::time::interval(requested.filter(|interval| *interval >= SHORTEST).unwrap_or(INTERVAL));
        let groups = self.feed.groups();
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.ended() => return Ok(()),
            }
            let device_groups = groups.borrow().clone();
            if let Some(device_groups) = device_groups {
                to.send(&answer::stats(&device_groups, &self.feed.readings())).await?;
            }
        }
    }

    async fn reserve(&self, request: ReserveRequest, to: &mut ResponseSender) -> Result<(), CallEnd> {
        let ids: Vec<DeviceId> = request.device_ids.into_iter().map(DeviceId::new).collect();
        let feed = self.feed.clone();
        let reserved = match timeout(LIMIT, tokio::task::spawn_blocking(move || feed.reserve(&ids))).await {
            Ok(Ok(reserved)) => reserved.map_err(GrpcError::from)?,
            Ok(Err(_)) => return Err(GrpcError::new(GrpcError::INTERNAL, "the plugin failed").into()),
            Err(_) => return Err(GrpcError::new(GrpcError::DEADLINE_EXCEEDED, "the plugin does not respond").into()),
        };
        Ok(to.send(&answer::reservation(reserved)).await?)
    }

    async fn ended(&self) {
        // Fails only if the sender is dropped; `self` owns it.
        let _ = self.end.subscribe().wait_for(|end| *end).await;
    }
}

/// Why a call ends early.
enum CallEnd {
    Refused(GrpcError),
    Disconnected,
}

impl From<GrpcError> for CallEnd {
    fn from(refusal: GrpcError) -> CallEnd {
        CallEnd::Refused(refusal)
    }
}

impl From<ClientDisconnect> for CallEnd {
    fn from(ClientDisconnect: ClientDisconnect) -> CallEnd {
        CallEnd::Disconnected
    }
}

/// The first message. The broker sends a stream; its messages are not read.
async fn question(body: Incoming, path: &str) -> Result<Bytes, GrpcError> {
    let wrong = |message: String| GrpcError::new(GrpcError::INVALID_ARGUMENT, message);
    if path == BROKER {
        return Ok(Bytes::new());
    }
    let body = Limited::new(body, MOST_BYTES + 5).collect().await.map_err(|e| wrong(e.to_string()))?;
    let mut frames = GrpcFrames::default();
    frames.push(&body.to_bytes());
    frames.next().map_err(|e| wrong(e.to_string()))?.ok_or_else(|| wrong("no message received".to_owned()))
}

fn read<M: Message + Default>(bytes: Bytes) -> Result<M, GrpcError> {
    M::decode(bytes).map_err(|e| GrpcError::new(GrpcError::INVALID_ARGUMENT, e.to_string()))
}

fn health(request: &HealthRequest) -> Result<HealthAnswer, GrpcError> {
    match request.service.as_str() {
        "" | HEALTH_OF => Ok(HealthAnswer { status: SERVING }),
        other => Err(GrpcError::new(GrpcError::NOT_FOUND, format!("unknown service {other}"))),
    }
}

/// The plugin has no settings.
fn schema() -> ConfigSchema {
    ConfigSchema { spec: Some(Spec { kind: Some(SpecKind::Object(SpecObject::default())) }) }
}

fn configured(config: &SetConfig) -> Result<(), GrpcError> {
    match config.api_version.as_str() {
        "" | API_VERSION => Ok(()),
        other => Err(GrpcError::new(GrpcError::INVALID_ARGUMENT, format!("unknown API version {other}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_refusal_messages_are_percent_encoded() {
        assert_eq!(escaped("100% of it\né"), "100%25 of it%0A%C3%A9");
    }
}
