//! The smallest blocking HTTP client that does: one request per connection, over TCP or a Unix socket. Its own code on
//! purpose: what serves must not be tested by what it was built from.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// An answer that does not come at all.
fn limit() -> Duration {
    Duration::from_secs(60) * super::patience()
}

#[derive(Debug, Clone)]
pub struct Response {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body must be UTF-8")
    }
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("not JSON ({e}): {}", self.text()))
    }
}

/// `headers` replace the `Host` that would be sent by itself where they name one.
pub fn tcp(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<Response> {
    let stream = TcpStream::connect_timeout(&address, limit())?;
    stream.set_read_timeout(Some(limit()))?;
    exchange(stream, &address.to_string(), method, path, headers, body)
}

pub fn unix(socket: &Path, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> io::Result<Response> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(limit()))?;
    exchange(stream, "localhost", method, path, headers, body)
}

/// Over any connection.
pub fn exchange(
    mut stream: impl Read + Write,
    host: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<Response> {
    let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        request += &format!("Host: {host}\r\n");
    }
    if method != "GET" {
        request += &format!("Content-Length: {}\r\n", body.len());
    }
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    request += "\r\n";
    stream.write_all(request.as_bytes())?;
    stream.write_all(body)?;
    let mut raw = Vec::new();
    stream.read_to_end(&mut raw)?;
    parse(&raw)
}

fn parse(raw: &[u8]) -> io::Result<Response> {
    let odd = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let end = raw.windows(4).position(|w| w == b"\r\n\r\n").ok_or_else(|| odd("the response has no end of headers"))?;
    let head = std::str::from_utf8(&raw[..end]).map_err(|_| odd("the headers are not text"))?;
    let mut lines = head.split("\r\n");
    let status = lines
        .next()
        .and_then(|line| line.split(' ').nth(1))
        .and_then(|code| code.parse().ok())
        .ok_or_else(|| odd("there is no status line"))?;
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let rest = &raw[end + 4..];
    let find = |expected: &str| headers.iter().find(|(name, _)| name == expected).map(|(_, value)| value.as_str());
    let body = if find("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
        unchunk(rest).ok_or_else(|| odd("the chunks of the body are broken"))?
    } else {
        if let Some(length) = find("content-length").and_then(|value| value.parse::<usize>().ok())
            && length != rest.len()
        {
            return Err(odd("the body is not as long as its content-length says"));
        }
        rest.to_vec()
    };
    Ok(Response { status, headers, body })
}

fn unchunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line_end = rest.windows(2).position(|w| w == b"\r\n")?;
        let size = std::str::from_utf8(&rest[..line_end]).ok()?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        rest = &rest[line_end + 2..];
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size + 2..)?;
    }
}
