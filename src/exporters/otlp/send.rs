//! One request to the collector, and what its answer means.
//!
//! Source: OTLP specification 1.8: "OTLP/HTTP Response", "OTLP/gRPC Response", "Failures", "Throttling".

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use prost::Message;

use super::packed;
use super::settings::{Compression, Config, Protocol, PushEndpoint, Scheme, decoded};
use crate::host::http::grpc::{Caller, GrpcReply};
use crate::host::http::{Address, Client, HttpError, Method, Response, TlsFiles};
use crate::host::peer::Trust;
use crate::telemetry::otlp::Signal;

/// The specification's limit of an answer.
const LARGEST_ANSWER: usize = 4 << 20;

fn service(signal: Signal) -> &'static str {
    match signal {
        Signal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        Signal::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        Signal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    }
}

/// What has become of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// `rejected`: so many of its points were not.
    Taken { rejected: u64, message: String },
    /// Something in it is bad, or it is too large: without that the rest would be taken.
    Bad { message: String },
    /// It will not be taken, however often it comes.
    Refused { message: String },
    /// Nobody has it, as far as we know.
    Later { after: Option<Duration>, message: String },
}

pub(super) struct Sender {
    config: Config,
    signal: Signal,
    endpoint: PushEndpoint,
    door: Door,
    compression: Compression,
    /// The collector has taken something of it.
    is_understood: bool,
}

enum Door {
    Http(Client),
    Grpc(Caller),
}

impl Sender {
    /// `config`: as it is for this signal.
    pub fn new(config: &Config, signal: Signal, endpoint: PushEndpoint) -> Result<Sender, HttpError> {
        let address = match endpoint.scheme {
            Scheme::Http => Address::Tcp(endpoint.authority.clone()),
            Scheme::Https | Scheme::Unsaid => {
                let client = config.client_certificate.clone().zip(config.client_key.clone());
                let files = TlsFiles { authorities: config.certificate.clone(), client };
                Address::Tls(endpoint.authority.clone(), Arc::new(files))
            }
        };
        let door = match config.protocol {
            Protocol::HttpProtobuf => {
                let mut client = Client::new(address, Trust::Named)?;
                client.set_timeout(config.timeout);
                client.set_largest_answer(LARGEST_ANSWER);
                Door::Http(client)
            }
            Protocol::Grpc => Door::Grpc(Caller::new(address, config.timeout, LARGEST_ANSWER)?),
        };
        let compression = config.compression;
        Ok(Sender { config: config.clone(), signal, endpoint, door, compression, is_understood: false })
    }

    /// `batch`: as the queue has it. Gives what is counted of the request as well.
    pub fn send(&mut self, batch: &[u8]) -> (String, Answer) {
        let (code, answer) = self.ask(batch);
        match &answer {
            Answer::Taken { .. } => self.is_understood = true,
            // Receivers say in many ways that they do not know it: 415, 400, 12 of gRPC. Each of them knows gzip.
            Answer::Bad { message } | Answer::Refused { message }
                if self.compression == Compression::Zstd && !self.is_understood =>
            {
                self.compression = Compression::Gzip;
                let message = format!("{message}: it may not know zstd, so gzip is sent from now on");
                return (code, Answer::Later { after: Some(Duration::ZERO), message });
            }
            Answer::Bad { .. } | Answer::Refused { .. } | Answer::Later { .. } => {}
        }
        (code, answer)
    }

    fn ask(&mut self, batch: &[u8]) -> (String, Answer) {
        let body = packed::packed_as(batch, self.compression);
        let encoding = match self.compression {
            Compression::None => None,
            Compression::Gzip | Compression::Zstd => Some(self.compression.as_str()),
        };
        let Ok(body) = body else {
            return ("unreadable".to_owned(), Answer::Refused { message: "a batch cannot be unpacked".to_owned() });
        };
        let mut headers: Vec<(&str, &str)> =
            self.config.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        match &mut self.door {
            Door::Http(client) => {
                headers.push(("content-type", "application/x-protobuf"));
                headers.extend(encoding.map(|encoding| ("content-encoding", encoding)));
                let answer = client.request(Method::Post, &self.endpoint.path, &headers, body.into());
                answer.map_or_else(|error| failed(&error), |answer| of_http(&answer))
            }
            Door::Grpc(caller) => {
                headers.extend(encoding.map(|encoding| ("grpc-encoding", encoding)));
                let answer = caller.call(service(self.signal), &headers, &body, encoding.is_some());
                answer.map_or_else(|error| failed(&error), |reply| of_grpc(&reply))
            }
        }
    }
}

fn failed(error: &HttpError) -> (String, Answer) {
    let code = match error {
        HttpError::Timeout { .. } => "timeout",
        HttpError::Connect { .. } => "connect",
        HttpError::Tls { .. } => "tls",
        HttpError::Protocol { .. }
        | HttpError::Stranger { .. }
        | HttpError::Unknown { .. }
        | HttpError::Setup { .. } => "broken",
    };
    (code.to_owned(), Answer::Later { after: None, message: crate::telemetry::chain(error) })
}

fn taken(body: &[u8]) -> Answer {
    // Those of logs and traces have the same fields under other names. A body that is no message of ours takes nothing back: the status has said that it was taken.
    let partial = ExportMetricsServiceResponse::decode(body).ok().and_then(|answer| answer.partial_success);
    let partial = partial.unwrap_or_default();
    Answer::Taken { rejected: u64::try_from(partial.rejected_data_points).unwrap_or(0), message: partial.error_message }
}

fn of_http(answer: &Response) -> (String, Answer) {
    let code = answer.status.to_string();
    let said = reason_of(answer);
    let message = format!("the collector answers {code}{}{said}", if said.is_empty() { "" } else { ": " });
    let answer = match answer.status {
        200..300 => taken(&answer.body),
        400 | 413 => Answer::Bad { message },
        429 | 502 | 503 | 504 => Answer::Later { after: answer.header("retry-after").and_then(retry_after), message },
        _ => Answer::Refused { message },
    };
    (code, answer)
}

/// Why, as it has it: the specification's `google.rpc.Status`, else the first line of a text.
fn reason_of(answer: &Response) -> String {
    /// So much of it is told.
    const LONGEST: usize = 300;
    let is_message = answer.header("content-type").is_some_and(|kind| kind.starts_with("application/x-protobuf"));
    let text = if is_message {
        Status::decode(&*answer.body).map(|status| status.message).unwrap_or_default()
    } else {
        String::from_utf8(answer.body.to_vec()).unwrap_or_default()
    };
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.chars().filter(|c| !c.is_control()).take(LONGEST).collect()
}

/// In seconds, or the time of day at which to come again: RFC 9110, 10.2.3. `None` of anything else.
fn retry_after(text: &str) -> Option<Duration> {
    let text = text.trim();
    let seconds = text.parse().ok().map(Duration::from_secs);
    // By its clock and ours: one that has passed says nothing.
    let until = || httpdate::parse_http_date(text).ok()?.duration_since(SystemTime::now()).ok();
    seconds.or_else(until)
}

/// Source: OTLP specification, the table of retryable gRPC codes.
fn of_grpc(reply: &GrpcReply) -> (String, Answer) {
    let Some(status) = reply.status else {
        // A proxy in between, or an answer that broke off: with 200 nobody has said that it will not be taken.
        let message = format!("the collector answers HTTP {} without a status of gRPC", reply.http_status);
        let answer = match reply.http_status {
            200 | 429 | 502 | 503 | 504 => Answer::Later { after: None, message },
            _ => Answer::Refused { message },
        };
        let code = if reply.http_status == 200 { "broken".to_owned() } else { reply.http_status.to_string() };
        return (code, answer);
    };
    // As gRPC has it, with its odd characters percent-encoded; what is not is shown as it came.
    let said = decoded(&reply.message).unwrap_or_else(|_| reply.message.clone());
    let message = format!("the collector answers status {status} of gRPC: {said}");
    let after = reply.details.as_deref().and_then(retry_delay);
    let answer = match status {
        0 => taken(&reply.body),
        // Invalid argument.
        3 => Answer::Bad { message },
        // Cancelled, deadline exceeded, aborted, out of range, unavailable, data loss.
        1 | 4 | 10 | 11 | 14 | 15 => Answer::Later { after, message },
        // Resource exhausted: only with a word on when. Else it is too large.
        8 if after.is_some() => Answer::Later { after, message },
        8 => Answer::Bad { message },
        _ => Answer::Refused { message },
    };
    (format!("grpc-{status}"), answer)
}

/// `google.rpc.Status`: why, and when to come again.
#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Detail>,
}

/// `google.protobuf.Any`
#[derive(Clone, PartialEq, Message)]
struct Detail {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.RetryInfo`
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<Delay>,
}

/// `google.protobuf.Duration`
#[derive(Clone, PartialEq, Message)]
struct Delay {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

fn retry_delay(details: &str) -> Option<Duration> {
    let status = Status::decode(base64(details)?.as_slice()).ok()?;
    let info = status.details.iter().find(|detail| detail.type_url.ends_with("/google.rpc.RetryInfo"))?;
    let delay = RetryInfo::decode(info.value.as_slice()).ok()?.retry_delay.unwrap_or_default();
    Some(Duration::new(u64::try_from(delay.seconds).unwrap_or(0), u32::try_from(delay.nanos).unwrap_or(0)))
}

/// With or without padding.
fn base64(text: &str) -> Option<Vec<u8>> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut have) = (Vec::new(), 0_u32, 0);
    for byte in text.trim_end_matches('=').bytes() {
        let six = ALPHABET.iter().position(|known| *known == byte)?;
        bits = (bits << 6 | u32::try_from(six).ok()?) & 0xFFFF;
        have += 6;
        if have >= 8 {
            have -= 8;
            bytes.push(u8::try_from(bits >> have & 0xFF).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsPartialSuccess;

    use super::super::deliver::{FIRST_WAIT, LONGEST_ASKED, LONGEST_WAIT, wait};
    use super::*;
    use crate::model::fuzzed::{Fuzz, each, each_of, variable};

    fn reply(status: Option<u16>, details: Option<&str>) -> Answer {
        let details = details.map(str::to_owned);
        of_grpc(&GrpcReply { http_status: 200, status, message: String::new(), details, body: Vec::new().into() }).1
    }

    #[test]
    fn each_status_of_grpc_means_what_the_specification_says() {
        for later in [1, 4, 10, 11, 14, 15] {
            assert!(matches!(reply(Some(later), None), Answer::Later { after: None, .. }), "{later}");
        }
        for never in [2, 5, 6, 7, 9, 12, 13, 16, 99] {
            assert!(matches!(reply(Some(never), None), Answer::Refused { .. }), "{never}");
        }
        assert!(matches!(reply(Some(0), None), Answer::Taken { rejected: 0, .. }));
        assert!(matches!(reply(None, None), Answer::Later { .. }), "it broke off, and nobody has refused it");
        assert!(matches!(reply(Some(3), None), Answer::Bad { .. }));
        assert!(matches!(reply(Some(8), None), Answer::Bad { .. }), "nobody says when");
        // Encoded by another library: code 8, RetryInfo of 7.5 s.
        let details = "CAgaNgoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIKCggIBxCAyrXuAQ==";
        let told = reply(Some(8), Some(details));
        assert!(matches!(told, Answer::Later { after: Some(after), .. } if after.as_millis() == 7_500), "{told:?}");
    }

    #[test]
    fn a_collector_says_when_to_come_again_in_seconds_or_by_a_date() {
        let in_a_minute = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(60));
        let after = retry_after(&in_a_minute).expect("a date");
        assert!(after > Duration::from_secs(50) && after <= Duration::from_secs(60), "{after:?}");
        assert_eq!(retry_after("Wed, 21 Oct 2015 07:28:00 GMT"), None, "it has passed");
        assert_eq!(retry_after(" 7 "), Some(Duration::from_secs(7)));
        for nothing in ["", "-1", "soon", "1.5", "Wed, 21 Oct"] {
            assert_eq!(retry_after(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn what_a_collector_says_over_http_is_told_as_its_status_or_its_first_line() {
        let of =
            |kind: &str, body: Vec<u8>| reason_of(&Response::of_parts(400, &[("content-type", kind)], body.into()));
        let status = Status { message: "no such tenant".to_owned(), details: Vec::new() };
        assert_eq!(of("application/x-protobuf", status.encode_to_vec()), "no such tenant");
        assert_eq!(of("text/plain; charset=utf-8", b"\n out of \x1bbounds\nmore".to_vec()), "out of bounds");
        assert_eq!(
            (of("text/plain", vec![0xff]), of("application/x-protobuf", vec![0xff])),
            (String::new(), String::new())
        );
        assert_eq!(of("text/html", vec![b'a'; 5_000]).len(), 300);
    }

    #[test]
    fn what_grpc_says_is_shown_as_people_read_it() {
        let said = |message: &str| {
            let message = message.to_owned();
            let (http_status, status) = (200, Some(7));
            match of_grpc(&GrpcReply { http_status, status, message, details: None, body: Vec::new().into() }).1 {
                Answer::Refused { message } => message,
                other => panic!("{other:?}"),
            }
        };
        assert!(said("no%20such%20tenant%3A 100%25").ends_with("no such tenant: 100%"));
        assert!(said("100% wrong").ends_with("100% wrong"));
    }

    const PIECES: &[&str] = &[
        "CAgaNgoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIKCggIBxCAyrXuAQ==",
        "type.googleapis.com/google.rpc.RetryInfo",
        "=",
        "+/",
        "%20",
        "%",
        "%E0%A4%A",
        "7",
        "-1",
        "0",
        "1e9",
        "18446744073709551616",
        "Wed, 21 Oct 2026 07:28:00 GMT",
        " ",
        "\u{8}",
        "\u{0}",
        "\u{ffff}",
    ];

    /// A good answer, damaged.
    fn said(fuzz: &mut Fuzz) -> Vec<u8> {
        let rejected_data_points = i64::from_le_bytes(fuzz.word().to_le_bytes()) >> fuzz.below(64);
        let partial_success = Some(ExportMetricsPartialSuccess { rejected_data_points, error_message: fuzz.text(12) });
        let good = ExportMetricsServiceResponse { partial_success }.encode_to_vec();
        if fuzz.one_in(4) { good } else { fuzz.damaged(&good, PIECES) }
    }

    /// With details of a delay, damaged before and after they became text.
    fn details(fuzz: &mut Fuzz) -> String {
        use base64::Engine as _;
        let delay = Delay { seconds: i64::from_le_bytes(fuzz.word().to_le_bytes()) >> fuzz.below(64), nanos: i32::MAX };
        let value = RetryInfo { retry_delay: Some(delay) }.encode_to_vec();
        let detail = Detail { type_url: PIECES[1].to_owned(), value };
        let good = Status { message: fuzz.text(12), details: vec![detail] }.encode_to_vec();
        let bytes = if fuzz.one_in(3) { good } else { fuzz.damaged(&good, PIECES) };
        let text = base64::prelude::BASE64_STANDARD.encode(bytes);
        if fuzz.one_in(2) { text } else { String::from_utf8_lossy(&fuzz.damaged(text.as_bytes(), PIECES)).into_owned() }
    }

    /// A status that said that nothing was taken is never one of something taken, and the other way round.
    #[test]
    fn no_answer_of_a_collector_panics_and_each_means_what_its_status_says() {
        each("OTLP answers", 20_000, |fuzz| {
            let body = said(fuzz).into();
            let (_, answer) = if fuzz.one_in(2) {
                let status = u16::try_from(100 + fuzz.below(500)).expect("it is below 600");
                let after = fuzz.pieces(PIECES, 3);
                let answer = of_http(&Response::of_parts(status, &[("retry-after", &after)], body));
                assert_eq!(
                    matches!(answer.1, Answer::Taken { .. }),
                    (200..300).contains(&status),
                    "{status}: {answer:?}"
                );
                answer
            } else {
                let status =
                    fuzz.below(3).checked_sub(1).map(|_| u16::try_from(fuzz.below(20)).expect("it is below 20"));
                let http_status = u16::try_from(100 + fuzz.below(500)).expect("it is below 600");
                let (message, details) = (fuzz.pieces(PIECES, 4), (!fuzz.one_in(3)).then(|| details(fuzz)));
                let answer = of_grpc(&GrpcReply { http_status, status, message, details, body });
                assert_eq!(matches!(answer.1, Answer::Taken { .. }), status == Some(0), "{status:?}: {answer:?}");
                answer
            };
            if let Answer::Later { after, .. } = answer {
                assert!(wait(3, after) <= LONGEST_ASKED + FIRST_WAIT.max(LONGEST_WAIT), "nobody puts us off for ever");
            }
        });
    }

    /// Bytes on a real connection: now and then an answer, most often none.
    #[test]
    fn no_bytes_on_a_connection_break_who_pushes() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (give, take) = std::sync::mpsc::channel::<Vec<u8>>();
        std::thread::spawn(move || {
            while let (Ok(bytes), Ok((mut socket, _))) = (take.recv(), listener.accept()) {
                let _ = socket.read(&mut [0; 4096]);
                let _ = socket.write_all(&bytes);
                let _ = socket.shutdown(std::net::Shutdown::Both);
            }
        });
        let packed = packed::pack(&ExportMetricsServiceResponse::default(), Compression::Gzip);
        let cases = variable("ALLOSTAT_FUZZ_CASES").map_or(400, |cases| (cases / 100).max(1));
        each_of("OTLP answers on a connection", cases, |fuzz| {
            let is_grpc = fuzz.one_in(2);
            let body = said(fuzz);
            let good = match is_grpc {
                false => {
                    [format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(), &body].concat()
                }
                // Settings, then headers of stream 1: status 200, its end.
                true => b"\0\0\0\x04\0\0\0\0\0\0\0\x01\x01\x05\0\0\0\x01\x88".to_vec(),
            };
            give.send(if fuzz.one_in(8) { good } else { fuzz.damaged(&good, PIECES) }).unwrap();
            let protocol = if is_grpc { Protocol::Grpc } else { Protocol::HttpProtobuf };
            let config = Config { protocol, timeout: Duration::from_millis(500), ..Config::default() };
            let endpoint = super::super::endpoint(&format!("http://{address}"), true).unwrap();
            let mut sender = Sender::new(&config, Signal::Metrics, endpoint).unwrap();
            let (code, _) = sender.send(&packed);
            assert!(!code.is_empty());
        });
    }
}
