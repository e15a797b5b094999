//! HTTP client with one persistent connection over a Unix socket, TCP or TLS, plus one connection for each event
//! stream. The commands use it to call the agent; the agent uses it to push to a collector.
//!
//! Concurrency: blocking, like the whole layer; the connection runs on a private single-threaded runtime.

// No public `async fn` in this layer: no caller sees a future. These private ones run right here.
#![allow(clippy::manual_async_fn)]

pub mod exchange;
pub mod fetch;
pub mod grpc;
mod interim;
mod names;
pub mod probe;
mod tls;
pub mod tunnel;

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, UnixStream};

use super::peer::{self, Trust};
use super::roots::Roots;

pub use tls::TlsFiles;

/// Larger answers are refused: ten times the size for a very large host.
const MAX_ANSWER_BYTES: usize = 256 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of the check whether the connection was accepted.
const RECHECK_EVERY: Duration = Duration::from_millis(2);

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    Unix(PathBuf),
    /// `host:port`, plain HTTP.
    Tcp(String),
    /// `host:port`, HTTP over TLS.
    Tls(String, Arc<TlsFiles>),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(host) => write!(f, "http://{host}"),
            Address::Tls(host, _) => write!(f, "https://{host}"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an agent address: write unix:/path/to/allostat.sock, http://host:port or https://host:port")]
pub struct AddressError {
    text: String,
}

impl FromStr for Address {
    type Err = AddressError;
    fn from_str(text: &str) -> Result<Address, AddressError> {
        let refused = || AddressError { text: text.to_owned() };
        if let Some(path) = text.strip_prefix("unix:") {
            // unix:/path and unix:///path are equivalent.
            let path = path.strip_prefix("//").filter(|p| p.starts_with('/')).unwrap_or(path);
            return if path.starts_with('/') { Ok(Address::Unix(path.into())) } else { Err(refused()) };
        }
        let secured = text.strip_prefix("https://");
        let host = secured.or_else(|| text.strip_prefix("http://")).ok_or_else(refused)?;
        let host = host.strip_suffix('/').unwrap_or(host);
        let (name, port) = host.rsplit_once(':').ok_or_else(refused)?;
        let plain = !name.is_empty() && !name.contains(['/', '@', '?', '#', ' ']);
        if !plain || port.parse::<u16>().is_err() {
            return Err(refused());
        }
        let host = host.to_owned();
        Ok(if secured.is_some() { Address::Tls(host, Arc::default()) } else { Address::Tcp(host) })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("cannot connect to {address}")]
    Connect { address: Address, source: std::io::Error },
    #[error("{address} did not answer within {} s", after.as_secs_f32())]
    Timeout { address: Address, after: Duration },
    #[error("the connection to {address} failed: {message}")]
    Protocol { address: Address, message: String },
    /// No request was sent.
    #[error("{address} is not trusted: its server runs as user {uid}, neither root nor the user of this client")]
    Stranger { address: Address, uid: u32 },
    /// One side rejected the other's certificate, or a certificate file cannot be read.
    #[error("TLS with {address} failed: {reason}")]
    Tls { address: Address, reason: String },
    /// No request was sent.
    #[error("{address} is not trusted: the user of its server cannot be determined")]
    Unknown { address: Address, source: std::io::Error },
    #[error("cannot set up a client")]
    Setup { source: std::io::Error },
}

impl HttpError {
    /// No server listens: the socket does not exist, or the connection was refused.
    pub fn is_unreachable(&self) -> bool {
        use std::io::ErrorKind::{ConnectionRefused, NotFound};
        matches!(self, HttpError::Connect { source, .. } if matches!(source.kind(), NotFound | ConnectionRefused))
    }
    /// A server listens but is not trusted.
    pub fn is_untrusted(&self) -> bool {
        matches!(self, HttpError::Stranger { .. } | HttpError::Unknown { .. })
    }
    /// A server answers, but the TLS handshake failed on one side.
    pub fn is_tls_failure(&self) -> bool {
        matches!(self, HttpError::Tls { .. })
    }
    /// This user may not connect to the socket.
    pub fn is_permission_denied(&self) -> bool {
        matches!(self, HttpError::Connect { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied)
    }
}

/// A complete response.
#[derive(Debug, Clone)]
pub struct HttpResponse {
    pub status: u16,
    headers: hyper::HeaderMap,
    pub body: Bytes,
}

impl HttpResponse {
    /// A response as from a collector. Invalid headers are left out.
    #[cfg(test)]
    pub fn of_parts(status: u16, headers: &[(&str, &str)], body: Bytes) -> HttpResponse {
        let pair = |(name, value): &(&str, &str)| Some((name.parse().ok()?, value.parse().ok()?));
        HttpResponse { status, headers: headers.iter().filter_map(pair).collect(), body }
    }
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|v| v.to_str().ok())
    }
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// A streamed response on its own connection.
pub struct HttpStream {
    body: Incoming,
    /// Keeps the connection open.
    _sender: SendRequest<Full<Bytes>>,
}

/// The result of opening a stream.
pub enum StreamOpening {
    Stream(HttpStream),
    /// A complete response instead: an error, or an agent without streaming.
    Answer(HttpResponse),
}

/// A piece of a streamed body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyPiece {
    Data(Bytes),
    /// The wait ended without data.
    Nothing,
    End,
}

const EVENT_STREAM: &str = "text/event-stream";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
}

impl Method {
    fn of_hyper(self) -> hyper::Method {
        match self {
            Method::Get => hyper::Method::GET,
            Method::Post => hyper::Method::POST,
        }
    }
}

/// A client of one server.
pub struct Client {
    address: Address,
    /// Checked for each connection, since the server may change.
    trust: Trust,
    timeout: Duration,
    largest_answer: usize,
    runtime: tokio::runtime::Runtime,
    /// `Bearer TOKEN`, sent with each request.
    authorization: Option<String>,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl Client {
    pub fn new(address: Address, trust: Trust) -> Result<Client, HttpError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| HttpError::Setup { source })?;
        Ok(Client {
            address,
            trust,
            timeout: Duration::from_secs(30),
            largest_answer: MAX_ANSWER_BYTES,
            runtime,
            authorization: None,
            connection: None,
        })
    }
    pub fn address(&self) -> &Address {
        &self.address
    }
    /// Limit for one request including the connect. Default 30 s.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }
    /// Sends this token with each further request.
    pub fn set_token(&mut self, token: &str) {
        self.authorization = Some(format!("Bearer {token}"));
    }
    /// Larger responses are refused.
    pub fn set_largest_answer(&mut self, bytes: usize) {
        self.largest_answer = bytes;
    }
    /// Connects now, so that a missing agent is reported before the first request.
    pub fn connect(&mut self) -> Result<(), HttpError> {
        self.connection = Some(self.runtime.block_on(connect((&self.address, self.trust)))?);
        Ok(())
    }
    pub fn get(&mut self, target: &str, headers: &[(&str, &str)]) -> Result<HttpResponse, HttpError> {
        self.request(Method::Get, target, headers, Bytes::new())
    }
    /// Sends one request and reads the complete response. A persistent connection that the server has closed is
    /// replaced once, before the request is sent.
    pub fn request(
        &mut self,
        method: Method,
        target: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<HttpResponse, HttpError> {
        let Client { address, trust, timeout, largest_answer, runtime, authorization, connection } = self;
        let all = [headers, authorized(authorization).as_slice()].concat();
        let exchange = exchange((address, *trust), (connection, *largest_answer), method, target, &all, body);
        match runtime.block_on(within(*timeout, exchange)) {
            Some(result) => result,
            None => {
                *connection = None;
                Err(HttpError::Timeout { address: address.clone(), after: *timeout })
            }
        }
    }
    /// Opens a stream of server-sent events. The timeout covers the response head.
    pub fn open(&mut self, target: &str) -> Result<StreamOpening, HttpError> {
        self.open_kind(target, EVENT_STREAM)
    }
    /// Asks for an answer of this content type, which may go on for long. The timeout holds until it begins.
    pub fn open_kind(&mut self, target: &str, kind: &str) -> Result<StreamOpening, HttpError> {
        let Client { address, trust, timeout, runtime, authorization, .. } = self;
        let headers = [[("accept", kind)].as_slice(), authorized(authorization).as_slice()].concat();
        match runtime.block_on(within(*timeout, open((address, *trust), (target, kind), &headers))) {
            Some(result) => result,
            None => Err(HttpError::Timeout { address: address.clone(), after: *timeout }),
        }
    }
    /// Waits for more data, for `wait` at most.
    pub fn next(&mut self, stream: &mut HttpStream, wait: Duration) -> Result<BodyPiece, HttpError> {
        match self.runtime.block_on(within(wait, stream.body.frame())) {
            None => Ok(BodyPiece::Nothing),
            Some(None) => Ok(BodyPiece::End),
            // Trailers are ignored.
            Some(Some(Ok(frame))) => Ok(frame.into_data().map_or(BodyPiece::Nothing, BodyPiece::Data)),
            Some(Some(Err(error))) => {
                Err(HttpError::Protocol { address: self.address.clone(), message: error.to_string() })
            }
        }
    }
}

/// An address, and who may serve it.
type ServerAddress<'a> = (&'a Address, Trust);

fn authorized(authorization: &Option<String>) -> Vec<(&str, &str)> {
    authorization.iter().map(|value| ("authorization", value.as_str())).collect()
}

fn open<'a>(
    at: ServerAddress<'a>,
    (target, kind): (&'a str, &'a str),
    headers: &'a [(&'a str, &'a str)],
) -> impl Future<Output = Result<StreamOpening, HttpError>> + 'a {
    async move {
        let (sender, answer) = send(at, None, Method::Get, target, headers, Bytes::new()).await?;
        let goes_on = answer.headers().get("content-type").is_some_and(|found| found.as_bytes() == kind.as_bytes());
        if answer.status().is_success() && goes_on {
            return Ok(StreamOpening::Stream(HttpStream { body: answer.into_body(), _sender: sender }));
        }
        Ok(StreamOpening::Answer(whole(at.0, answer, MAX_ANSWER_BYTES).await?))
    }
}

/// `None`: the limit passed.
fn within<T>(limit: Duration, work: impl Future<Output = T>) -> impl Future<Output = Option<T>> {
    let limited = async move { tokio::time::timeout(limit, work).await };
    async move { limited.await.ok() }
}

fn exchange<'a>(
    at: ServerAddress<'a>,
    (retained, largest_answer): (&'a mut Option<SendRequest<Full<Bytes>>>, usize),
    method: Method,
    target: &'a str,
    headers: &'a [(&'a str, &'a str)],
    body: Bytes,
) -> impl Future<Output = Result<HttpResponse, HttpError>> + 'a {
    async move {
        let (sender, answer) = send(at, retained.take(), method, target, headers, body).await?;
        let answer = whole(at.0, answer, largest_answer).await?;
        *retained = Some(sender);
        Ok(answer)
    }
}

fn broken(address: &Address, error: &(dyn Error + 'static)) -> HttpError {
    match tls::reason(error) {
        Some(reason) => HttpError::Tls { address: address.clone(), reason },
        None => HttpError::Protocol { address: address.clone(), message: error.to_string() },
    }
}

fn whole(
    address: &Address,
    answer: hyper::Response<Incoming>,
    largest: usize,
) -> impl Future<Output = Result<HttpResponse, HttpError>> + '_ {
    async move {
        let (parts, body) = answer.into_parts();
        let body = Limited::new(body, largest).collect().await;
        let body = body.map_err(|e| broken(address, &*e))?.to_bytes();
        Ok(HttpResponse { status: parts.status.as_u16(), headers: parts.headers, body })
    }
}

/// Between requests nothing drives the runtime. Yielding lets it process pending socket events, above all a close by
/// the server, before the next request is sent.
fn process_pending_events() -> impl Future<Output = ()> {
    async {
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
    }
}

type Sent = (SendRequest<Full<Bytes>>, hyper::Response<Incoming>);

/// Completes with the head of the response.
fn send<'a>(
    at: ServerAddress<'a>,
    retained: Option<SendRequest<Full<Bytes>>>,
    method: Method,
    target: &'a str,
    headers: &'a [(&'a str, &'a str)],
    body: Bytes,
) -> impl Future<Output = Result<Sent, HttpError>> + 'a {
    async move {
        let (address, _) = at;
        let broken = |e: &(dyn Error + 'static)| broken(address, e);
        process_pending_events().await;
        let mut sender = match retained {
            Some(sender) if !sender.is_closed() => sender,
            _ => connect(at).await?,
        };
        if sender.ready().await.is_err() {
            sender = connect(at).await?;
            sender.ready().await.map_err(|e| broken(&e))?;
        }
        let request = request_to(address, method.of_hyper(), target, headers);
        let request = request.body(Full::new(body)).map_err(|e| broken(&e))?;
        let answer = interim::answer_to((&mut sender, address), request).await?;
        Ok((sender, answer))
    }
}

fn request_to(
    address: &Address,
    method: hyper::Method,
    target: &str,
    headers: &[(&str, &str)],
) -> hyper::http::request::Builder {
    let host = match address {
        Address::Unix(_) => "localhost",
        Address::Tcp(host) | Address::Tls(host, _) => host,
    };
    let own = [("host", host), ("user-agent", concat!("allostat/", env!("CARGO_PKG_VERSION")))];
    let is_given = |name: &str| headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
    let request = hyper::Request::builder().method(method).uri(target);
    let request =
        own.into_iter().filter(|(name, _)| !is_given(name)).fold(request, |r, (name, value)| r.header(name, value));
    headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))
}

fn connect<B>((address, trust): ServerAddress<'_>) -> impl Future<Output = Result<SendRequest<B>, HttpError>> + '_
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    async move {
        let check_trust = |uid| match trust.covers(uid) {
            true => Ok(()),
            false => Err(HttpError::Stranger { address: address.clone(), uid }),
        };
        let unknown = |source| HttpError::Unknown { address: address.clone(), source };
        let failed = |source| HttpError::Connect { address: address.clone(), source };
        let late = || HttpError::Timeout { address: address.clone(), after: CONNECT_TIMEOUT };
        let sender = match address {
            Address::Unix(path) => {
                if trust != Trust::Named
                    && let Some(uid) = peer::exposed(path).map_err(failed)?
                {
                    check_trust(uid)?;
                }
                let socket = tokio::time::timeout(CONNECT_TIMEOUT, UnixStream::connect(path));
                let socket = socket.await.map_err(|_| late())?.map_err(failed)?;
                // The listening process may have changed since the file was checked.
                check_trust(socket.peer_cred().map_err(unknown)?.uid())?;
                greet(TokioIo::new(socket)).await
            }
            Address::Tcp(host) => {
                let socket = tokio::time::timeout(CONNECT_TIMEOUT, names::connect(host));
                let socket = socket.await.map_err(|_| late())?.map_err(failed)?;
                socket.set_nodelay(true).map_err(failed)?;
                if trust != Trust::Named {
                    let who = tokio::time::timeout(CONNECT_TIMEOUT, accepted(&socket));
                    check_trust(who.await.map_err(|_| late())?.map_err(unknown)?)?;
                }
                greet(TokioIo::new(socket)).await
            }
            Address::Tls(host, files) => {
                let socket = tokio::time::timeout(CONNECT_TIMEOUT, names::connect(host));
                let socket = socket.await.map_err(|_| late())?.map_err(failed)?;
                socket.set_nodelay(true).map_err(failed)?;
                greet(TokioIo::new(tls::secured(socket, address, (host, files), b"http/1.1").await?)).await
            }
        };
        sender.map_err(|e| broken(address, &e))
    }
}

/// Waits until a process has accepted the connection; returns its uid.
fn accepted(socket: &TcpStream) -> impl Future<Output = std::io::Result<u32>> + '_ {
    async move {
        let (local, remote) = (socket.local_addr()?, socket.peer_addr()?);
        loop {
            if let Some(uid) = peer::accepted(&Roots::default(), local, remote)? {
                return Ok(uid);
            }
            tokio::time::sleep(RECHECK_EVERY).await;
        }
    }
}

fn greet<I, B>(io: I) -> impl Future<Output = hyper::Result<SendRequest<B>>>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    async move {
        let (sender, connection) = handshake(io).await?;
        // The pending request receives its errors.
        tokio::spawn(connection.with_upgrades());
        Ok(sender)
    }
}

/// A Unix socket path must fit `sockaddr_un` with its final zero byte: 107 bytes.
pub const MAX_SOCKET_PATH_BYTES: usize = 107;

pub fn socket_path_fits(path: &Path) -> bool {
    path.as_os_str().len() <= MAX_SOCKET_PATH_BYTES
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Sender;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_address_is_a_socket_or_http_plain_or_over_tls() {
        assert_eq!("unix:/run/a.sock".parse(), Ok(Address::Unix("/run/a.sock".into())));
        assert_eq!("unix:///run/a.sock".parse(), Ok(Address::Unix("/run/a.sock".into())));
        assert_eq!("http://127.0.0.1:9740".parse(), Ok(Address::Tcp("127.0.0.1:9740".into())));
        assert_eq!("https://a.example:9740".parse(), Ok(Address::Tls("a.example:9740".into(), Arc::default())));
        assert_eq!("http://[::1]:9740/".parse(), Ok(Address::Tcp("[::1]:9740".into())));
        for wrong in [
            "",
            "9740",
            "https://a",
            "ftp://a:1",
            "http://a",
            "http://a:99999",
            "unix:relative",
            "http://u@h:1",
            "http://a/b:1",
        ] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn missing_listener_is_distinguished_from_refused_access() {
        let dir = tempfile::tempdir().unwrap();
        let error =
            Client::new(Address::Unix(dir.path().join("none")), Trust::OwnUser).unwrap().get("/", &[]).unwrap_err();
        assert!(error.is_unreachable() && !error.is_permission_denied(), "{error}");
    }

    /// Serves one request per connection, closes it, and then sends to `closed`.
    fn takes_one_request_on_each(listener: std::net::TcpListener, connections: usize, closed: &Sender<()>) {
        use std::io::{BufRead, Write};
        for _ in 0..connections {
            let (mut socket, _) = listener.accept().unwrap();
            let head = std::io::BufReader::new(socket.try_clone().unwrap()).lines();
            assert!(head.map_while(Result::ok).any(|line| line.is_empty()), "the end of a head");
            socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
            // By then nothing drives the client's connection.
            std::thread::sleep(Duration::from_millis(20));
            drop(socket);
            closed.send(()).unwrap();
        }
    }

    #[test]
    fn pooled_connection_closed_by_the_other_end_fails_no_request() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap().to_string());
        let (closes, closed) = std::sync::mpsc::channel();
        let server = std::thread::spawn(move || takes_one_request_on_each(listener, 3, &closes));
        let mut client = Client::new(address, Trust::Named).unwrap();
        for _ in 0..3 {
            let answer = client.request(Method::Post, "/", &[], Bytes::new());
            assert_eq!(answer.unwrap().status, 200);
            // As long as the pause between two pushes.
            closed.recv().unwrap();
        }
        server.join().unwrap();
    }

    proptest! {
        #[test]
        fn printed_http_address_parses_back(text in "(unix:/[a-z/]{1,30}|https?://[a-z0-9.]{1,20}:[1-9][0-9]{0,3})") {
            let address: Address = text.parse().unwrap();
            prop_assert_eq!(address.to_string().parse::<Address>(), Ok(address));
        }
        #[test]
        fn no_address_panics(text in ".*") {
            let _ = text.parse::<Address>();
        }
    }
}
