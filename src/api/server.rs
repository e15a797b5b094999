//! The door: accepts connections, checks who knocks, finds the route, writes the answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::error::{ApiError, Code};
use super::guard::{Guarded, Progress, Whole};
use super::http::{Origin, Reply, Request};
use super::pieces::{Pieces, Sent};
use super::target::RequestTarget;
use super::{Config, Door, Method, Public, ROUTES, Route, health, host_header};

/// A request's head: line and headers together. 431 beyond it.
const MAX_HEAD_BYTES: usize = 16 << 10;
const MAX_HEADERS: usize = 64;
/// So many may stand, and for so long until they have asked.
const STANDING: usize = 32;
const ASKS_WITHIN: Duration = Duration::from_millis(500);

/// Serves TCP until `stop` turns true, then finishes what it has begun.
pub async fn serve_tcp(listener: TcpListener, door: Arc<Door>, mut stop: watch::Receiver<bool>) {
    let seats = Seats::of(&door);
    let finish = stop.clone();
    loop {
        let (socket, peer) = tokio::select! {
            () = stopped(&mut stop) => return finished(&seats, &door).await,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => { refused(&error).await; continue }
            },
        };
        let local = socket.local_addr().unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0)));
        // An answer is one write; waiting for more to send would only delay it.
        let _ = socket.set_nodelay(true);
        seat(&seats, socket, Origin::Tcp { peer, local }, &door, &finish);
    }
}

/// Serves the Unix socket likewise, with seats of its own: who floods TCP cannot lock the operator out.
pub async fn serve_unix(listener: UnixListener, door: Arc<Door>, mut stop: watch::Receiver<bool>) {
    let seats = Seats::of(&door);
    let finish = stop.clone();
    loop {
        let socket = tokio::select! {
            () = stopped(&mut stop) => return finished(&seats, &door).await,
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => socket,
                Err(error) => { refused(&error).await; continue }
            },
        };
        seat(&seats, socket, Origin::Socket, &door, &finish);
    }
}

/// Also when nobody is left who could say so.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Of one listener.
struct Seats {
    taken: Arc<Semaphore>,
    /// For who is turned away, until it has heard why: more are sent off without a wait, so that a flood holds no descriptors.
    standing: Arc<Semaphore>,
}

impl Seats {
    fn of(door: &Door) -> Seats {
        let of = |places| Arc::new(Semaphore::new(places));
        Seats { taken: of(door.config.max_connections), standing: of(STANDING) }
    }
}

/// Every seat is free again: all answers that had begun are written.
async fn finished(seats: &Seats, door: &Door) {
    let all = u32::try_from(door.config.max_connections).unwrap_or(u32::MAX);
    let _ = seats.taken.acquire_many(all).await;
}

/// Out of descriptors or memory: the connection stays in the queue, so trying at once would only burn the CPU.
async fn refused(error: &std::io::Error) {
    tracing::warn!(%error, "cannot accept a connection");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

fn seat<S>(seats: &Seats, socket: S, origin: Origin, door: &Arc<Door>, stop: &watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match Arc::clone(&seats.taken).try_acquire_owned() {
        Ok(permit) => {
            let (door, stop) = (Arc::clone(door), stop.clone());
            tokio::spawn(async move {
                connection(socket, origin, door, stop).await;
                drop(permit);
            });
        }
        Err(_) => {
            let standing = Arc::clone(&seats.standing).try_acquire_owned().ok();
            tokio::spawn(turn_away(socket, standing));
        }
    }
}

/// Too many at once: told so, in a second or not at all.
///
/// Who may stand is heard before, and after until it goes: its library would take an answer that it has not asked for, or that
/// came with something unread, for a connection that broke.
async fn turn_away<S: AsyncRead + AsyncWrite + Unpin>(mut socket: S, standing: Option<OwnedSemaphorePermit>) {
    let mut heard = [0; 4096];
    let body = ApiError::new(Code::TooManyConnections, "too many connections; try again, and close those not in use");
    let answer = async {
        if standing.is_some() {
            let _ = tokio::time::timeout(ASKS_WITHIN, socket.read(&mut heard)).await;
        }
        socket.write_all(&body.to_wire()).await?;
        socket.shutdown().await?;
        while standing.is_some() && socket.read(&mut heard).await? > 0 {}
        Ok::<_, std::io::Error>(())
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), answer).await;
}

async fn connection<S>(socket: S, origin: Origin, door: Arc<Door>, mut stop: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let progress = Progress::new();
    let io = Guarded::new(TokioIo::new(socket), Arc::clone(&progress), door.config.patience);
    let service = service_fn(|request: hyper::Request<Incoming>| {
        let (door, progress) = (Arc::clone(&door), Arc::clone(&progress));
        async move { Ok::<_, std::convert::Infallible>(answer(request, origin, &door, &progress).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // The guard is the one that waits: it tells an idle peer from a slow one.
        .header_read_timeout(None)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(io, service);
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
    origin: Origin,
    door: &Door,
    progress: &Arc<Progress>,
) -> hyper::Response<Sent> {
    let (parts, body) = request.into_parts();
    let head_only = parts.method == hyper::Method::HEAD;
    let mut reply = match reply(parts, body, origin, door, progress).await {
        Ok(reply) => reply,
        Err(error) => Reply::error(&error),
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
    let body = match reply.source {
        Some(source) if !head_only => Sent::Pieces(Pieces::new(source, Arc::clone(progress))),
        // Whoever asks for the head alone is told all but a length, which there is none of.
        Some(_) => Sent::Whole(Whole::new(Bytes::new(), Arc::clone(progress))),
        None => {
            response = response.header("content-length", reply.body.len());
            let body = if head_only { Bytes::new() } else { reply.body };
            Sent::Whole(Whole::new(body, Arc::clone(progress)))
        }
    };
    response.body(body).unwrap_or_else(|error| {
        tracing::error!(%error, "an answer's headers are malformed");
        let mut broken = hyper::Response::new(Sent::Whole(Whole::new(Bytes::new(), Arc::clone(progress))));
        *broken.status_mut() = hyper::StatusCode::INTERNAL_SERVER_ERROR;
        broken
    })
}

async fn reply(
    parts: hyper::http::request::Parts,
    body: Incoming,
    origin: Origin,
    door: &Door,
    progress: &Arc<Progress>,
) -> Result<Reply, ApiError> {
    if let Origin::Tcp { local, .. } = origin {
        check_host(&parts, local, &door.config.host_names)?;
    }
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
    if let Origin::Tcp { .. } = origin
        && let Some(why) = route.access.refused_on_tcp(door.config.public)
    {
        return Err(ApiError::new(Code::SocketOnly, why));
    }
    let body = match route.method {
        Method::Get => Bytes::new(),
        Method::Post => read_body(body, &door.config).await?,
    };
    let Some(context) = door.context() else {
        return health::closed(route);
    };
    progress.received();
    let names = origin == Origin::Socket || door.config.public != Public::None;
    let request = Request { origin, names, target, params, headers: parts.headers, body };
    (route.handler)(context, &request).await
}

fn check_host(parts: &hyper::http::request::Parts, local: SocketAddr, names: &[String]) -> Result<(), ApiError> {
    let mut lines = parts.headers.get_all("host").iter();
    let (host, more) = (lines.next().and_then(|h| h.to_str().ok()), lines.next().is_some());
    // The absolute form of a request names its host itself, and that must be us too.
    let absolute = parts.uri.authority().map(hyper::http::uri::Authority::as_str);
    let ours = |host: &str| host_header::is_ours(host, local, names);
    match (host, more) {
        (Some(host), false) if ours(host) && absolute.is_none_or(ours) => Ok(()),
        (_, true) => Err(ApiError::new(Code::WrongHost, "a request has one Host header, this one has more").on("host")),
        (host, false) => Err(ApiError::new(
            Code::WrongHost,
            match absolute.or(host) {
                None => "the request has no Host header".to_owned(),
                Some(name) => format!(
                    "the Host header {name:?} does not name this agent; add the name to agent.host_names if it should"
                ),
            },
        )
        .on("host")),
    }
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
