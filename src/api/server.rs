//! The door: accepts connections, checks who knocks, finds the route, writes the answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use super::access::Access;
use super::error::{ApiError, Code};
use super::guard::{GuardedSocket, ResponseProgress, WholeBody};
use super::host_header::{self, OurNames};
use super::http::{ApiRequest, Origin, Peer, Reply};
use super::stream::{ResponseBody, StreamedBody};
use super::target::RequestTarget;
use super::web::{ConnectionIdentity, TcpCaller, handshake_refusal};
use super::{Config, Method, PublicAccess, ROUTES, Route, ServerState, health};
use crate::host::http::tunnel::Tunnel;
use crate::host::own_names::own_names;
use crate::host::roots::Roots;
use crate::telemetry::access::AccessRefusal;

/// A request's head: line and headers together. 431 beyond it.
const MAX_HEAD_BYTES: usize = 16 << 10;
const MAX_HEADERS: usize = 64;
/// So many may stand, and for so long until they have asked.
const STANDING: usize = 32;
const REQUEST_WITHIN: Duration = Duration::from_millis(500);

/// Serves TCP until `stop` turns true, then finishes what it has begun.
pub async fn serve_tcp(listener: TcpListener, door: Arc<ServerState>, mut stop: watch::Receiver<bool>) {
    let slots = ConnectionSlots::of(&door);
    let finish = stop.clone();
    loop {
        let (socket, peer) = tokio::select! {
            () = stopped(&mut stop) => return finished(&slots, &door).await,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => { refused(&error).await; continue }
            },
        };
        let local = socket.local_addr().unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0)));
        // An answer is one write; waiting for more to send would only delay it.
        let _ = socket.set_nodelay(true);
        keep_alive(&socket);
        let Ok(permit) = Arc::clone(&slots.taken).try_acquire_owned() else {
            door.gate.count(AccessRefusal::TooManyConnections, peer, "too many connections");
            // A client that speaks TLS would take the reason for noise: its connection is closed without one.
            if !door.gate.speaks_tls() {
                slots.reject(socket);
            }
            continue;
        };
        let (door, finish) = (Arc::clone(&door), finish.clone());
        tokio::spawn(async move {
            knock(socket, Origin::Tcp { peer, local, operator: false }, peer, door, finish).await;
            drop(permit);
        });
    }
}

/// Serves the Unix socket likewise, with seats of its own: who floods TCP cannot lock the operator out.
pub async fn serve_unix(listener: UnixListener, door: Arc<ServerState>, mut stop: watch::Receiver<bool>) {
    let slots = ConnectionSlots::of(&door);
    let finish = stop.clone();
    loop {
        let socket = tokio::select! {
            () = stopped(&mut stop) => return finished(&slots, &door).await,
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => socket,
                Err(error) => { refused(&error).await; continue }
            },
        };
        let Ok(permit) = Arc::clone(&slots.taken).try_acquire_owned() else {
            slots.reject(socket);
            continue;
        };
        let (door, finish) = (Arc::clone(&door), finish.clone());
        let guest = ConnectionIdentity::of_user(socket.peer_cred().ok().map(|peer| peer.uid()));
        tokio::spawn(async move {
            connection(socket, Origin::Socket, guest, door, finish).await;
            drop(permit);
        });
    }
}

/// Also when the sender is gone.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// A host that went without a word is noticed within two minutes. A process that stands still answers all the same: the
/// kernel does.
fn keep_alive(socket: &TcpStream) {
    use rustix::net::sockopt;
    const QUIET: Duration = Duration::from_secs(60);
    const AGAIN: Duration = Duration::from_secs(10);
    // What the kernel refuses is as it was before.
    let _ = sockopt::set_tcp_keepidle(socket, QUIET)
        .and_then(|()| sockopt::set_tcp_keepintvl(socket, AGAIN))
        .and_then(|()| sockopt::set_tcp_keepcnt(socket, 6))
        .and_then(|()| sockopt::set_socket_keepalive(socket, true));
}

/// Of one listener.
struct ConnectionSlots {
    taken: Arc<Semaphore>,
    /// For who is turned away, until it has heard why: more are sent off without a wait, so that a flood holds no
    /// descriptors.
    standing: Arc<Semaphore>,
}

impl ConnectionSlots {
    fn of(door: &ServerState) -> ConnectionSlots {
        let of = |places| Arc::new(Semaphore::new(places));
        ConnectionSlots { taken: of(door.config.max_connections), standing: of(STANDING) }
    }
    fn reject<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(&self, socket: S) {
        let standing = Arc::clone(&self.standing).try_acquire_owned().ok();
        tokio::spawn(reject(socket, standing));
    }
}

/// Every seat is free again: all answers that had begun are written.
async fn finished(slots: &ConnectionSlots, door: &ServerState) {
    let all = u32::try_from(door.config.max_connections).unwrap_or(u32::MAX);
    let _ = slots.taken.acquire_many(all).await;
}

/// Out of descriptors or memory: the connection stays in the queue, so trying at once would only burn the CPU.
async fn refused(error: &std::io::Error) {
    tracing::warn!(%error, "cannot accept a connection");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

/// Too many at once: it gets the reason, in a second or not at all.
///
/// A connection with standing room is read before the answer, and after it until it closes: its library would take an
/// answer to no request, or one with unread input, for a broken connection.
async fn reject<S: AsyncRead + AsyncWrite + Unpin>(mut socket: S, standing: Option<OwnedSemaphorePermit>) {
    let body = ApiError::new(Code::TooManyConnections, "too many connections; try again, and close those not in use");
    send_rejection(&mut socket, &body, standing.is_some()).await;
}

/// `reads_request`: its request is read, before and after the answer.
async fn send_rejection<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut S, body: &ApiError, reads_request: bool) {
    let mut received = [0; 4096];
    let answer = async {
        if reads_request {
            let _ = tokio::time::timeout(REQUEST_WITHIN, socket.read(&mut received)).await;
        }
        socket.write_all(&body.to_wire()).await?;
        socket.shutdown().await?;
        while reads_request && socket.read(&mut received).await? > 0 {}
        Ok::<_, std::io::Error>(())
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), answer).await;
}

/// What the first byte of TLS is; HTTP begins with a letter.
const HANDSHAKE: u8 = 0x16;

/// Over TLS, where that is spoken.
async fn knock(
    mut socket: TcpStream,
    origin: Origin,
    peer: SocketAddr,
    door: Arc<ServerState>,
    mut stop: watch::Receiver<bool>,
) {
    let Some((config, web)) = door.gate.tls() else {
        return connection(socket, origin, ConnectionIdentity::default(), door, stop).await;
    };
    let handshake = async {
        let mut first = [0];
        match socket.peek(&mut first).await {
            // A peer that sends nothing only checked whether the port is open.
            Ok(0) | Err(_) => return None,
            Ok(_) if first[0] != HANDSHAKE => {
                let why = "plain HTTP on a port that speaks TLS: use https://";
                door.gate.count(AccessRefusal::PlainHttp, peer, why);
                send_rejection(&mut socket, &ApiError::new(Code::TlsRequired, why), true).await;
                return None;
            }
            Ok(_) => {}
        }
        match TlsAcceptor::from(config).accept(socket).await {
            Ok(secured) => Some(secured),
            Err(error) => {
                let (reason, why) = handshake_refusal(&error);
                door.gate.count(reason, peer, &why);
                None
            }
        }
    };
    let handshake = tokio::time::timeout(door.config.patience.receive, handshake);
    let shaken = tokio::select! {
        shaken = handshake => shaken,
        () = stopped(&mut stop) => return,
    };
    match shaken {
        Ok(Some(secured)) => {
            let shown = secured.get_ref().1.peer_certificates().and_then(<[_]>::first);
            let guest = door.gate.guest(web, shown);
            connection(secured, origin, guest, door, stop).await;
        }
        Ok(None) => {}
        Err(_) => door.gate.count(AccessRefusal::Tls, peer, "the handshake took too long"),
    }
}

pub(super) async fn connection<S>(
    socket: S,
    origin: Origin,
    guest: ConnectionIdentity,
    door: Arc<ServerState>,
    mut stop: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let progress = ResponseProgress::new();
    let io = GuardedSocket::new(TokioIo::new(socket), Arc::clone(&progress), door.config.patience);
    let service = service_fn(|request: hyper::Request<Incoming>| {
        let (door, guest, progress) = (Arc::clone(&door), guest.clone(), Arc::clone(&progress));
        async move { Ok::<_, std::convert::Infallible>(answer(request, (origin, &guest), &door, &progress).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // The guard is the one that waits: it distinguishes an idle peer from a slow one.
        .header_read_timeout(None)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(io, service)
        .with_upgrades();
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopped(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, ?origin, "a connection ended early");
    }
}

async fn answer(
    request: hyper::Request<Incoming>,
    (origin, guest): (Origin, &ConnectionIdentity),
    door: &ServerState,
    progress: &Arc<ResponseProgress>,
) -> hyper::Response<ResponseBody> {
    let (mut parts, body) = request.into_parts();
    let upgrades = parts.extensions.remove::<OnUpgrade>();
    let head_only = parts.method == hyper::Method::HEAD;
    let mut reply = match reply(parts, body, (origin, guest), (door, upgrades.is_some()), progress).await {
        Ok(reply) => reply,
        Err(error) => {
            if let (Some(reason), Origin::Tcp { peer, .. }) = (error.refusal, origin) {
                door.gate.count(reason, peer, &error.message);
            }
            let reply = Reply::error(&error);
            let needs_credentials = error.code == Code::Unauthorized;
            if needs_credentials { reply.header("www-authenticate", door.gate.challenge()) } else { reply }
        }
    };
    progress.received();
    if let Some(action) = reply.when_written.take()
        && !head_only
    {
        progress.when_written(action);
    }
    let mut response = hyper::Response::builder()
        .status(reply.status)
        .header("content-type", reply.content_type)
        // What we serve is data: nothing may guess another type, embed it or keep it.
        .header("x-content-type-options", "nosniff")
        .header("cache-control", "no-store");
    for (name, value) in &reply.headers {
        response = response.header(*name, value);
    }
    if let (Origin::Tcp { .. }, Some(all)) = (origin, response.headers_mut()) {
        all.extend(door.gate.headers());
    }
    if let Some(upgrade) = reply.upgrade {
        // Until the end of the session: of either side, or of the agent.
        tokio::spawn(async move {
            let switched = match upgrades {
                Some(upgrades) => upgrades.await.ok(),
                None => None,
            };
            upgrade.run(switched.map(|io| Box::new(TokioIo::new(io)) as Box<dyn Tunnel>)).await;
        });
        return built(response, ResponseBody::Switched, progress);
    }
    let body = match reply.source {
        Some(source) if !head_only => ResponseBody::Pieces(StreamedBody::new(source, Arc::clone(progress))),
        // A HEAD request gets all but a length, which there is none of.
        Some(_) => ResponseBody::Whole(WholeBody::new(Bytes::new(), Arc::clone(progress))),
        None => {
            // That nothing has changed says nothing of how long it is.
            if reply.status != 304 {
                response = response.header("content-length", reply.body.len());
            }
            let body = if head_only { Bytes::new() } else { reply.body };
            ResponseBody::Whole(WholeBody::new(body, Arc::clone(progress)))
        }
    };
    built(response, body, progress)
}

fn built(
    response: hyper::http::response::Builder,
    body: ResponseBody,
    progress: &Arc<ResponseProgress>,
) -> hyper::Response<ResponseBody> {
    response.body(body).unwrap_or_else(|error| {
        tracing::error!(%error, "failed to build the headers of an answer");
        let mut broken = hyper::Response::new(ResponseBody::Whole(WholeBody::new(Bytes::new(), Arc::clone(progress))));
        *broken.status_mut() = hyper::StatusCode::INTERNAL_SERVER_ERROR;
        broken
    })
}

async fn reply(
    parts: hyper::http::request::Parts,
    body: Incoming,
    (origin, guest): (Origin, &ConnectionIdentity),
    (door, is_upgradable): (&ServerState, bool),
    progress: &Arc<ResponseProgress>,
) -> Result<Reply, ApiError> {
    let peer = match origin {
        Origin::Socket => Peer::User(guest.uid().unwrap_or(u32::MAX)),
        Origin::Tcp { peer, .. } => Peer::Host(peer.ip().to_canonical()),
    };
    let origin = match origin {
        Origin::Socket => Origin::Socket,
        Origin::Tcp { peer, local, .. } => {
            check_host(&parts, local, &door.config, guest)?;
            let is_here = |address: SocketAddr| address.ip().to_canonical().is_loopback();
            let caller = door.gate.who(guest, &parts.headers, is_here(peer) && is_here(local)).await?;
            // A browser shows its certificate for whichever page sends it here; a token no page knows.
            if caller == (TcpCaller::Operator { by_certificate: true }) && parts.headers.contains_key("origin") {
                let why = "a page of a browser does not act by its user's certificate";
                return Err(ApiError::new(Code::NoPages, why).on("origin").because(AccessRefusal::Page));
            }
            Origin::Tcp { peer, local, operator: caller != TcpCaller::Reader }
        }
    };
    let target = RequestTarget::parse(parts.uri.path(), parts.uri.query())?;
    let (route, params) = match find(&parts.method, &target) {
        Ok(found) => found,
        Err(NoRoute::Path) => {
            return Err(ApiError::new(Code::NotFound, format!("nothing is at {}", parts.uri.path())));
        }
        Err(NoRoute::Method(allowed)) => {
            let error = ApiError::new(Code::MethodNotAllowed, format!("{} answers {allowed}", parts.uri.path()));
            return Ok(Reply::error(&error).header("allow", allowed));
        }
    };
    if !origin.may_act()
        && let Some(why) = route.access.refused_on_tcp(door.config.public)
    {
        return Err(ApiError::new(Code::SocketOnly, why).because(AccessRefusal::SocketOnly));
    }
    let body = match route.method {
        Method::Get => Bytes::new(),
        Method::Post => read_body(body, &door.config).await?,
    };
    let Some(context) = door.context() else {
        return health::closed(route);
    };
    let unsent = Arc::clone(door.unsent(origin));
    if matches!(route.access, Access::Metrics | Access::Read) {
        unsent.has_room()?;
    }
    progress.received();
    let names = origin.may_act() || door.config.public != PublicAccess::None;
    let headers = parts.headers;
    let request =
        ApiRequest { origin, peer, is_upgradable, names, target, params, headers, body, unsent: Arc::clone(&unsent) };
    route.query.check(request.query())?;
    (route.handler)(context, &request).await?.counted(&unsent)
}

fn check_host(
    parts: &hyper::http::request::Parts,
    local: SocketAddr,
    config: &Config,
    guest: &ConnectionIdentity,
) -> Result<(), ApiError> {
    let mut lines = parts.headers.get_all("host").iter();
    let (host, more) = (lines.next().and_then(|h| h.to_str().ok()), lines.next().is_some());
    // The absolute form of a request names its host itself, and that must be us too.
    let absolute = parts.uri.authority().map(hyper::http::uri::Authority::as_str);
    let by_certificate = |host: &str| host_header::host_name(host).is_some_and(|name| guest.is_called(name));
    // Read again each time: a host may be renamed.
    let uname = rustix::system::uname();
    let names = OurNames {
        local,
        on_each_address: config.listen.is_some_and(|at| at.ip().is_unspecified()),
        of_host: uname.nodename().to_str().unwrap_or_default(),
        configured: &config.host_names,
    };
    let is_own = |host: &str| names.have(host) || by_certificate(host) || is_alias(host, names.of_host, &config.roots);
    let wrong = |message: String| ApiError::new(Code::WrongHost, message).on("host").because(AccessRefusal::WrongHost);
    match (host, more) {
        (Some(host), false) if is_own(host) && absolute.is_none_or(is_own) => Ok(()),
        (_, true) => Err(wrong("a request has one Host header, this one has more".to_owned())),
        (host, false) => Err(wrong(match absolute.or(host) {
            None => "the request has no Host header".to_owned(),
            Some(name) => format!(
                "the Host header {name:?} does not name this agent; add the name, or *.DOMAIN, to agent.host_names if \
                 it should"
            ),
        })),
    }
}

/// Whether `/etc/hostname` or `/etc/hosts` gives this name to this host, such as its FQDN. Asked last: it reads files.
fn is_alias(host: &str, nodename: &str, roots: &Roots) -> bool {
    let Some(name) = host_header::host_name(host).map(host_header::absolute) else { return false };
    own_names(roots, nodename).iter().any(|own| own.eq_ignore_ascii_case(name))
}

async fn read_body(body: Incoming, config: &Config) -> Result<Bytes, ApiError> {
    let limit = config.max_body_bytes;
    let read = Limited::new(body, limit).collect();
    match tokio::time::timeout(config.patience.receive, read).await {
        Err(_) => Err(ApiError::new(Code::RequestTimeout, "the body took too long to arrive")),
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err(ApiError::new(Code::BodyTooLarge, format!("a body is at most {limit} bytes")))
        }
        Ok(Err(error)) => Err(ApiError::new(Code::BadRequest, format!("the body broke off: {error}"))),
    }
}

enum NoRoute {
    Path,
    Method(String),
}

fn find(method: &hyper::Method, target: &RequestTarget) -> Result<(&'static Route, Vec<String>), NoRoute> {
    let mut allowed = Vec::new();
    for route in ROUTES {
        let Some(params) = target.matches(route.path) else { continue };
        if route.answers(method) {
            return Ok((route, params));
        }
        allowed.push(route.allow());
    }
    if allowed.is_empty() { Err(NoRoute::Path) } else { Err(NoRoute::Method(allowed.join(", "))) }
}
