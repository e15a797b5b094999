//! What a handler gets and gives: a request and a reply without the wire.

use std::sync::Arc;

use bytes::Bytes;
use hyper::HeaderMap;
use tokio::sync::Semaphore;

use super::error::{ApiError, Code};
use super::response_budget::{UnsentBudget, WriteTurn};
use super::stream::PieceSource;
use super::target::{Query, RequestTarget};
use crate::exporters::prometheus::{BodyStart, BodyStream, BrokenOff};
use crate::host::http::tunnel::Tunnel;
use crate::model::answer::Detail;
use crate::runner::drivers::BoxFuture;

/// Where a request came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The Unix socket: a user that can open it owns the agent.
    Socket,
    Tcp {
        peer: std::net::SocketAddr,
        local: std::net::SocketAddr,
        /// The caller may act: by a token or a certificate.
        operator: bool,
    },
}

impl Origin {
    /// How much may be shown there.
    pub fn detail(self) -> Detail {
        match self {
            Origin::Socket | Origin::Tcp { operator: true, .. } => Detail::Full,
            Origin::Tcp { operator: false, .. } => Detail::Public,
        }
    }
    /// The caller may do everything.
    pub fn may_act(self) -> bool {
        self.detail() == Detail::Full
    }
    pub fn is_loopback(self) -> bool {
        match self {
            Origin::Socket => true,
            Origin::Tcp { peer, .. } => peer.ip().to_canonical().is_loopback(),
        }
    }
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Peer {
    /// Of the Unix socket, by UID; where the kernel does not say, the largest one.
    User(u32),
    Host(std::net::IpAddr),
}

/// What a connection carries once it stopped being HTTP.
pub(super) trait AfterUpgrade: Send {
    /// Until it ends. `None`: the connection broke off before.
    fn run(self: Box<Self>, connection: Option<Box<dyn Tunnel>>) -> BoxFuture<'static, ()>;
}

/// A request that passed the door.
#[derive(Debug)]
pub struct ApiRequest {
    pub origin: Origin,
    pub peer: Peer,
    /// Its connection can stop being HTTP.
    pub is_upgradable: bool,
    /// Whether its answer may name allocs and tasks: even one about health may not where nothing else is shown.
    pub names: bool,
    pub target: RequestTarget,
    /// Values of the `{...}` segments of the route, in order.
    pub params: Vec<String>,
    pub headers: HeaderMap,
    /// Empty unless the route takes a body.
    pub body: Bytes,
    pub(super) unsent: Arc<UnsentBudget>,
}

impl ApiRequest {
    pub fn query(&self) -> &Query {
        &self.target.query
    }
    /// The n-th `{...}` of the route.
    pub fn param(&self, n: usize) -> &str {
        self.params.get(n).map_or("", String::as_str)
    }
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|v| v.to_str().ok())
    }
    /// To write an answer that may be large, in pieces. Errors: two other answers take long.
    pub(super) async fn turn(&self) -> Result<WriteTurn, ApiError> {
        self.unsent.turn().await
    }
    /// All lines of a list header as one.
    pub fn list_header(&self, name: &str) -> Option<String> {
        let lines: Vec<&str> = self.headers.get_all(name).iter().filter_map(|v| v.to_str().ok()).collect();
        (!lines.is_empty()).then(|| lines.join(","))
    }
}

/// An answer.
pub struct Reply {
    pub status: u16,
    pub content_type: &'static str,
    pub headers: Vec<(&'static str, String)>,
    pub body: Bytes,
    /// Instead of the body: what comes, piece by piece.
    pub source: Option<Box<dyn PieceSource>>,
    /// Held until the answer is written.
    pub(super) turn: Option<WriteTurn>,
    /// Runs once the answer was written whole.
    pub when_written: Option<Box<dyn FnOnce() + Send>>,
    /// What the connection carries from then on, instead of HTTP.
    pub(super) upgrade: Option<Box<dyn AfterUpgrade>>,
}

impl Reply {
    pub fn new(content_type: &'static str, body: impl Into<Bytes>) -> Reply {
        let (headers, body) = (Vec::new(), body.into());
        Reply { status: 200, content_type, headers, body, source: None, turn: None, when_written: None, upgrade: None }
    }
    /// 101: what comes next on this connection is `protocol`.
    pub(super) fn upgrade(protocol: &'static str, upgrade: Box<dyn AfterUpgrade>) -> Reply {
        let reply = Reply { status: 101, upgrade: Some(upgrade), ..Reply::text("") };
        reply.header("connection", "Upgrade").header("upgrade", protocol)
    }
    /// An answer that goes on until its source ends or its reader goes.
    pub fn following(content_type: &'static str, source: Box<dyn PieceSource>) -> Reply {
        Reply { source: Some(source), ..Reply::new(content_type, Bytes::new()) }
    }
    /// JSON that is written while it is read, whole where it is short.
    ///
    /// Errors: its writer failed before anything was sent.
    pub(super) async fn json_in_turn(turn: WriteTurn, stream: BodyStream) -> Result<Reply, BrokenOff> {
        const JSON: &str = "application/json";
        let reply = match stream.start().await? {
            BodyStart::Whole(body) => Reply::new(JSON, body),
            BodyStart::Pieces(stream) => Reply::following(JSON, Box::new(stream)),
        };
        Ok(Reply { turn: Some(turn), ..reply })
    }
    /// Counted until it is written. Errors: there is no room for it.
    pub(super) fn counted(mut self, unsent: &Arc<UnsentBudget>) -> Result<Reply, ApiError> {
        let turn = self.turn.take();
        match self.source.take() {
            Some(source) => self.source = Some(unsent.hold_stream(source, turn)?),
            None => self.body = unsent.hold(self.body, turn)?,
        }
        Ok(self)
    }
    pub fn text(body: impl Into<String>) -> Reply {
        Reply::new("text/plain; charset=utf-8", body.into())
    }
    pub fn json(value: &impl serde::Serialize) -> Reply {
        let body = serde_json::to_vec(value).expect("views hold only maps with string keys, so they must serialize");
        Reply::new("application/json", body)
    }
    pub fn error(error: &ApiError) -> Reply {
        Reply { status: error.status(), ..Reply::new("application/json", error.to_json()) }
    }
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Reply {
        self.headers.push((name, value.into()));
        self
    }
}

/// So many bodies are encoded at once: each may be megabytes before it is counted.
static ENCODERS: Semaphore = Semaphore::const_new(4);

/// Encoding a large body takes milliseconds, which other connections must not wait for.
pub(super) async fn encoded<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ApiError> {
    let _turn = ENCODERS.acquire().await;
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| ApiError::new(Code::Failed, "encoding the answer failed; the agent's log has the reason"))
}

/// The reply under this tag; for a client that has it already, that it has not changed.
pub(super) fn tagged(request: &ApiRequest, tag: &str, reply: Reply) -> Reply {
    let tag = format!("\"{tag}\"");
    let have = request.list_header("if-none-match").unwrap_or_default();
    let is_same = have.split(',').any(|one| one.trim().trim_start_matches("W/") == tag);
    let reply = if is_same { Reply { status: 304, body: Bytes::new(), ..reply } } else { reply };
    reply.header("etag", tag)
}
