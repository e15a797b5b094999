//! Requests of health checks: one request to an untrusted server. Reads the head and the first bytes of the body;
//! follows no redirects. The caller sets a deadline; dropping the future closes the connection.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};

use super::grpc::{self, GrpcReply};
use super::{Address, HttpError, TlsFiles, broken, connect, interim, names};
use crate::host::peer::Trust;

/// Whether and how to use TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeTls {
    Plain,
    Verified,
    /// Accepts any certificate.
    Unverified,
}

/// `host:port`, IPv6 addresses in brackets.
pub fn probe_address(host: &str, port: u16, tls: ProbeTls) -> Address {
    let authority = match host.parse() {
        Ok(ip) => SocketAddr::new(ip, port).to_string(),
        Err(_) => format!("{host}:{port}"),
    };
    match tls {
        ProbeTls::Plain => Address::Tcp(authority),
        ProbeTls::Verified => Address::Tls(authority, Arc::default()),
        ProbeTls::Unverified => {
            Address::Tls(authority, Arc::new(TlsFiles { is_unverified: true, ..TlsFiles::default() }))
        }
    }
}

/// The HTTP request of a check.
#[derive(Debug, Clone)]
pub struct ProbeRequest {
    pub method: String,
    /// Path and query.
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
}

#[derive(Debug, Clone)]
pub struct ProbeAnswer {
    pub status: u16,
    /// The first bytes of the body.
    pub body: Bytes,
}

/// Errors: no connection, or the response is not HTTP.
pub fn http<'a>(
    address: &'a Address,
    probe: &'a ProbeRequest,
    most: usize,
) -> impl Future<Output = Result<ProbeAnswer, HttpError>> + Send + 'a {
    async move {
        let mut sender = connect((address, Trust::Named)).await?;
        let request = request(address, probe).map_err(|e| broken(address, &e))?;
        let answer = interim::answer_to((&mut sender, address), request).await?;
        let (status, mut body) = (answer.status().as_u16(), answer.into_body());
        let mut first = BytesMut::new();
        while first.len() < most
            && let Some(Ok(frame)) = body.frame().await
        {
            if let Ok(data) = frame.into_data() {
                first.extend_from_slice(&data[..data.len().min(most - first.len())]);
            }
        }
        Ok(ProbeAnswer { status, body: first.freeze() })
    }
}

fn request(address: &Address, probe: &ProbeRequest) -> Result<hyper::Request<Full<Bytes>>, hyper::http::Error> {
    let (Address::Tcp(host) | Address::Tls(host, _)) = address else {
        return hyper::Request::builder().body(Full::default());
    };
    let target = if probe.target.starts_with('/') { probe.target.clone() } else { format!("/{}", probe.target) };
    let mut request = hyper::Request::builder().method(probe.method.as_str()).uri(target);
    let is_given = |name: &str| probe.headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
    let defaults = [
        ("host", host.as_str()),
        ("user-agent", concat!("allostat/", env!("CARGO_PKG_VERSION"))),
        ("accept", "text/plain, */*"),
        ("connection", "close"),
    ];
    for (name, value) in defaults.into_iter().filter(|(name, _)| !is_given(name)) {
        request = request.header(name, value);
    }
    for (name, value) in &probe.headers {
        request = request.header(name.as_str(), value.as_str());
    }
    request.body(Full::new(probe.body.clone()))
}

/// Succeeds if the server accepts a connection.
pub fn tcp(address: &Address) -> impl Future<Output = Result<(), HttpError>> + Send + '_ {
    async move {
        let (Address::Tcp(host) | Address::Tls(host, _)) = address else { return Ok(()) };
        let failed = |source| HttpError::Connect { address: address.clone(), source };
        names::connect(host).await.map(drop).map_err(failed)
    }
}

/// Calls `Check` of `grpc.health.v1.Health`. Errors: why the service is not serving.
pub fn grpc<'a>(address: &'a Address, service: &'a str) -> impl Future<Output = Result<(), String>> + Send + 'a {
    async move {
        let message = health_request(service);
        let answer = grpc::call_once(address, "/grpc.health.v1.Health/Check", &message, 4096).await;
        serving(&answer.map_err(|error| error.to_string())?)
    }
}

/// `HealthCheckRequest { service = 1 }`.
fn health_request(service: &str) -> Vec<u8> {
    let mut message = Vec::new();
    if !service.is_empty() {
        message.push(0x0a);
        let mut length = service.len();
        while length >= 0x80 {
            message.push(u8::try_from(length & 0x7f).unwrap_or(0) | 0x80);
            length >>= 7;
        }
        message.push(u8::try_from(length).unwrap_or(0));
        message.extend_from_slice(service.as_bytes());
    }
    message
}

/// `HealthCheckResponse { status = 1 }`: 1 is SERVING; an omitted field is 0.
fn serving(reply: &GrpcReply) -> Result<(), String> {
    match (reply.http_status, reply.status) {
        (200, Some(0)) => {}
        (200, Some(status)) => return Err(format!("gRPC status {status}: {}", reply.message)),
        (http, _) => return Err(format!("HTTP status {http}, and no gRPC status")),
    }
    match reply.body.as_ref() {
        [0x08, 1, ..] => Ok(()),
        [0x08, 2, ..] => Err("NOT_SERVING".to_owned()),
        [0x08, 3, ..] => Err("SERVICE_UNKNOWN".to_owned()),
        [] | [0x08, 0, ..] => Err("UNKNOWN".to_owned()),
        _ => Err("its answer is not a HealthCheckResponse".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn health_request_has_the_service_behind_its_length() {
        assert!(health_request("").is_empty());
        assert_eq!(health_request("ab"), [0x0a, 2, b'a', b'b']);
        let long = health_request(&"x".repeat(300));
        assert_eq!((&long[..3], long.len()), (&[0x0a, 0xac, 0x02][..], 303));
    }

    #[test]
    fn only_serving_is_healthy() {
        let reply = |http_status, status, body: &'static [u8]| GrpcReply {
            http_status,
            status,
            message: "m".to_owned(),
            details: None,
            body: Bytes::from_static(body),
        };
        assert_eq!(serving(&reply(200, Some(0), &[8, 1])), Ok(()));
        for (http, status, body, why) in [
            (200, Some(0), &[8, 2][..], "NOT_SERVING"),
            (200, Some(0), &[], "UNKNOWN"),
            (200, Some(0), &[1, 2, 3], "not a HealthCheckResponse"),
            (200, Some(12), &[], "gRPC status 12: m"),
            (200, None, &[8, 1], "no gRPC status"),
            (502, None, &[8, 1], "HTTP status 502"),
        ] {
            assert!(serving(&reply(http, status, body)).unwrap_err().contains(why), "{why}");
        }
    }

    #[test]
    fn address_of_a_probe_has_an_ipv6_address_in_brackets() {
        assert_eq!(probe_address("::1", 80, ProbeTls::Plain), Address::Tcp("[::1]:80".into()));
        assert_eq!(probe_address("a.lab", 80, ProbeTls::Plain), Address::Tcp("a.lab:80".into()));
    }

    const LONG: Duration = Duration::from_secs(60);

    /// Answers one connection with this, then continues as `more` says.
    async fn server(answer: &'static [u8], more: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut head = [0; 2048];
            let _ = socket.read(&mut head).await;
            let _ = socket.write_all(answer).await;
            while !more.is_empty() && socket.write_all(more).await.is_ok() {}
        });
        address
    }
    fn get() -> ProbeRequest {
        ProbeRequest { method: "GET".into(), target: "/ok".into(), headers: Vec::new(), body: Bytes::new() }
    }
    async fn probe_once(address: SocketAddr) -> Result<ProbeAnswer, HttpError> {
        let address = probe_address(&address.ip().to_string(), address.port(), ProbeTls::Plain);
        tokio::time::timeout(LONG, http(&address, &get(), 16)).await.unwrap()
    }

    #[tokio::test]
    async fn body_is_read_to_its_limit_and_no_redirect_is_followed() {
        let endless = server(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"5\r\nabcde\r\n").await;
        let answer = probe_once(endless).await.unwrap();
        assert_eq!((answer.status, answer.body.as_ref()), (200, &b"abcdeabcdeabcdea"[..]));
        let moved =
            server(b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n", b"").await;
        assert_eq!(probe_once(moved).await.unwrap().status, 302);
        let nonsense = server(b"\xff\xfe\xfd\r\n\r\n", b"").await;
        assert!(probe_once(nonsense).await.is_err());
    }

    #[test]
    fn request_has_the_headers_of_its_check_before_our_own() {
        let address = probe_address("a.lab", 80, ProbeTls::Plain);
        let headers = vec![("Host".to_owned(), "b.lab".to_owned()), ("X-A".to_owned(), "1".to_owned())];
        let probe = ProbeRequest { target: "no-slash".into(), headers, ..get() };
        let request = request(&address, &probe).unwrap();
        assert_eq!((request.uri().path(), request.headers().get_all("host").iter().count()), ("/no-slash", 1));
        assert_eq!(request.headers().get("host").unwrap(), "b.lab");
        let bad = ProbeRequest { target: "/a b\n".into(), ..probe };
        assert!(super::request(&address, &bad).is_err());
    }

    #[tokio::test]
    async fn grpc_health_is_queried_over_http2() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let answer = |request: hyper::Request<hyper::body::Incoming>| async move {
                    assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
                    let message = request.into_body().collect().await.unwrap().to_bytes();
                    // The service "ill": NOT_SERVING.
                    let status = if message.ends_with(b"ill") { 2 } else { 1 };
                    let body = Full::new(Bytes::from(vec![0, 0, 0, 0, 2, 0x08, status]));
                    let answer = hyper::Response::builder().header("grpc-status", "0");
                    Ok::<_, std::convert::Infallible>(answer.body(body).unwrap())
                };
                let service = hyper::service::service_fn(answer);
                let server = hyper::server::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new());
                tokio::spawn(server.serve_connection(hyper_util::rt::TokioIo::new(socket), service));
            }
        });
        let address = probe_address("127.0.0.1", address.port(), ProbeTls::Plain);
        let query = async |service: &str| tokio::time::timeout(LONG, grpc(&address, service)).await.unwrap();
        assert_eq!(query("").await, Ok(()));
        assert_eq!(query("ill").await, Err("NOT_SERVING".to_owned()));
    }
}
