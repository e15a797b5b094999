//! A collector over HTTP that answers as the test sets it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::otlp;

/// What a receiver does with a request.
#[derive(Debug, Clone)]
pub enum Reaction {
    Answer(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// Hangs up without a word.
    Reset,
    /// Hangs up in the middle of its answer.
    CutOff,
    /// Reads, and says nothing for as long as the other one waits.
    Silence,
    /// The answer comes byte by byte.
    Slowly,
}

pub const PROTOBUF: (&str, &str) = ("content-type", "application/x-protobuf");

pub fn plain(status: u16) -> Reaction {
    Reaction::Answer(status, Vec::new(), Vec::new())
}

#[derive(Debug, Clone)]
pub struct Request {
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// When it had come whole.
    pub at: Instant,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
    pub fn decoded(&self) -> ExportMetricsServiceRequest {
        otlp::decode(&self.plain())
    }
    pub fn plain(&self) -> Vec<u8> {
        match self.header("content-encoding") {
            Some("gzip") => {
                let mut plain = Vec::new();
                GzDecoder::new(self.body.as_slice()).read_to_end(&mut plain).expect("gzip");
                plain
            }
            Some("zstd") => zstd::decode_all(self.body.as_slice()).expect("zstd"),
            None => self.body.clone(),
            Some(other) => panic!("{other} was not asked for"),
        }
    }
    pub fn points(&self) -> Vec<otlp::DataPoint> {
        otlp::points(&self.decoded())
    }
}

pub type Tls = Box<dyn Fn() -> Arc<ServerConfig> + Send>;
type React = dyn Fn(usize, &Request) -> Reaction + Send + Sync;

pub struct Receiver {
    pub address: SocketAddr,
    is_secure: bool,
    /// With what was done with them.
    seen: Arc<Mutex<Vec<(Request, Reaction)>>>,
    is_closed: Arc<AtomicBool>,
}

impl Receiver {
    /// `react`: to the nth request.
    pub fn start(react: impl Fn(usize, &Request) -> Reaction + Send + Sync + 'static) -> Receiver {
        Receiver::with(None, react)
    }
    /// `tls`: each connection asks what it is to be.
    pub fn with(tls: Option<Tls>, react: impl Fn(usize, &Request) -> Reaction + Send + Sync + 'static) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (seen, is_closed) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (react, is_secure): (Arc<React>, bool) = (Arc::new(react), tls.is_some());
        let (log, closed) = (Arc::clone(&seen), Arc::clone(&is_closed));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if closed.load(Ordering::SeqCst) {
                    return;
                }
                let (react, log) = (Arc::clone(&react), Arc::clone(&log));
                let tls = tls.as_ref().map(|tls| ServerConnection::new(tls()).expect("a configuration"));
                std::thread::spawn(move || match tls {
                    Some(tls) => serve(StreamOwned::new(tls, stream), &*react, &log),
                    None => serve(stream, &*react, &log),
                });
            }
        });
        Receiver { address, is_secure, seen, is_closed }
    }
    pub fn seen(&self) -> Vec<(Request, Reaction)> {
        self.seen.lock().expect("not poisoned").clone()
    }
    /// Those that were taken, in their order.
    pub fn taken(&self) -> Vec<Request> {
        let taken = |reaction: &Reaction| matches!(reaction, Reaction::Answer(200, ..) | Reaction::Slowly);
        self.seen().into_iter().filter(|(_, reaction)| taken(reaction)).map(|(request, _)| request).collect()
    }
    /// Of one signal.
    pub fn of(&self, path: &str) -> Vec<Request> {
        self.taken().into_iter().filter(|request| request.path == path).collect()
    }
    pub fn env(&self, more: &[(&str, &str)]) -> Vec<(String, String)> {
        let endpoint = format!("http{}://{}", if self.is_secure { "s" } else { "" }, self.address);
        let all = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
            ("OTEL_METRIC_EXPORT_INTERVAL", "200"),
            ("ALLOSTAT_TICK", "100ms"),
            // But where they are meant.
            ("OTEL_LOGS_EXPORTER", "none"),
            ("OTEL_TRACES_EXPORTER", "none"),
        ];
        all.iter().chain(more).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(mut stream: impl Read + Write, react: &React, log: &Mutex<Vec<(Request, Reaction)>>) {
    let (mut buffer, mut chunk) = (Vec::new(), [0; 65536]);
    loop {
        let head = loop {
            if let Some(end) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                break end + 4;
            }
            match stream.read(&mut chunk) {
                Ok(0) | Err(_) => return,
                Ok(n) => buffer.extend_from_slice(&chunk[..n]),
            }
        };
        let text = String::from_utf8(buffer[..head].to_vec()).expect("a head is text");
        let mut lines = text.lines();
        let path = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a path").to_owned();
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        let length =
            headers.iter().find(|(name, _)| name == "content-length").map_or(0, |(_, n)| n.parse().expect("n"));
        while buffer.len() < head + length {
            match stream.read(&mut chunk) {
                Ok(0) | Err(_) => return,
                Ok(n) => buffer.extend_from_slice(&chunk[..n]),
            }
        }
        let body = buffer[head..head + length].to_vec();
        buffer.drain(..head + length);
        let request = Request { path, headers, body, at: Instant::now() };
        let reaction = {
            let mut log = log.lock().expect("not poisoned");
            let reaction = react(log.len(), &request);
            log.push((request, reaction.clone()));
            reaction
        };
        let sent = match reaction {
            Reaction::Answer(status, headers, body) => {
                let mut head = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n", body.len());
                headers.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
                stream.write_all(&[head.as_bytes(), b"\r\n", &body].concat())
            }
            Reaction::Reset => return,
            Reaction::CutOff => {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf");
                return;
            }
            Reaction::Silence => {
                // Until the other one has had enough.
                let _ = stream.read(&mut chunk);
                return;
            }
            Reaction::Slowly => b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".iter().try_for_each(|byte| {
                std::thread::sleep(Duration::from_millis(5));
                stream.write_all(&[*byte])
            }),
        };
        if sent.is_err() {
            return;
        }
    }
}
