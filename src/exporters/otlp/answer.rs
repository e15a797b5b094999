//! What an answer of the collector means.
//!
//! Source: OTLP specification 1.8: "OTLP/HTTP Response", "OTLP/gRPC Response", "Failures", "Throttling".

use std::time::{Duration, SystemTime};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use prost::Message;
use serde_json::Value;

use super::settings::decoded;
use crate::host::http::grpc::GrpcReply;
use crate::host::http::{HttpError, HttpResponse};
use crate::model::bounded_json;
use crate::model::text::log_text;

/// What has become of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PushAnswer {
    /// `rejected`: so many of its points were not.
    Taken { rejected: u64, message: String },
    /// Something in it is bad, or it is too large: without that the rest would be taken.
    Bad { message: String },
    /// It will not be taken, however often it comes.
    Refused { message: String },
    /// As far as is known it was not stored.
    Later { after: Option<Duration>, message: String },
}

pub(super) fn failed(error: &HttpError) -> (String, PushAnswer) {
    let code = match error {
        HttpError::Timeout { .. } => "timeout",
        HttpError::Connect { .. } => "connect",
        HttpError::Tls { .. } => "tls",
        HttpError::Protocol { .. }
        | HttpError::Stranger { .. }
        | HttpError::Unknown { .. }
        | HttpError::Setup { .. } => "broken",
    };
    (code.to_owned(), PushAnswer::Later { after: None, message: crate::telemetry::chain(error) })
}

/// Those of logs and traces have the same fields under other names. `None`: it is no message of this kind.
fn taken(body: &[u8]) -> Option<PushAnswer> {
    let partial = ExportMetricsServiceResponse::decode(body).ok()?.partial_success.unwrap_or_default();
    let rejected = u64::try_from(partial.rejected_data_points).unwrap_or(0);
    Some(PushAnswer::Taken { rejected, message: log_text(&partial.error_message) })
}

/// The same as JSON: `{}`, or with `partialSuccess`. An object of other members alone is no such message.
fn taken_as_json(body: &[u8]) -> Option<PushAnswer> {
    let Value::Object(text) = bounded_json::parse(body)? else { return None };
    let partial = match text.get("partialSuccess").or_else(|| text.get("partial_success")) {
        Some(Value::Object(partial)) => partial,
        Some(Value::Null) => return Some(PushAnswer::Taken { rejected: 0, message: String::new() }),
        None if text.is_empty() => return Some(PushAnswer::Taken { rejected: 0, message: String::new() }),
        Some(_) | None => return None,
    };
    let any = |names: &[&str]| names.iter().find_map(|name| partial.get(*name));
    let rejected = any(&["rejectedDataPoints", "rejectedLogRecords", "rejectedSpans"]);
    // A 64-bit number is a text in the JSON of Protobuf.
    let rejected = rejected.and_then(|n| n.as_u64().or_else(|| n.as_str()?.parse().ok())).unwrap_or(0);
    let message = any(&["errorMessage"]).and_then(Value::as_str).unwrap_or_default();
    Some(PushAnswer::Taken { rejected, message: log_text(message) })
}

/// The outcome that the answer's body reports. An empty body is a message without fields. `None`: OTLP does not define
/// this answer, whatever its status: the page of a proxy, a portal or another service at this address.
fn success(answer: &HttpResponse) -> Option<PushAnswer> {
    if answer.body.is_empty() {
        return taken(&[]);
    }
    match media_type(answer).as_str() {
        "application/x-protobuf" | "application/protobuf" => taken(&answer.body),
        "application/json" => taken_as_json(&answer.body),
        _ => None,
    }
}

fn media_type(answer: &HttpResponse) -> String {
    let kind = answer.header("content-type").and_then(|kind| kind.split(';').next()).unwrap_or_default();
    kind.trim().to_ascii_lowercase()
}

pub(super) fn of_http(answer: &HttpResponse) -> (String, PushAnswer) {
    let code = answer.status.to_string();
    let text = reason_of(answer);
    let message = format!("the collector answers {code}{}{text}", if text.is_empty() { "" } else { ": " });
    match answer.status {
        200..300 => match success(answer) {
            Some(taken) => (code, taken),
            None => {
                let kind = media_type(answer);
                let message = format!("the answer ({code}, {}) is not one of OTLP: {text}", log_text(&kind));
                ("broken".to_owned(), PushAnswer::Later { after: None, message })
            }
        },
        400 | 413 => (code, PushAnswer::Bad { message }),
        // Too many requests, no service for now; an answer of another place than the collector's.
        429 | 502 | 503 | 504 => {
            (code, PushAnswer::Later { after: answer.header("retry-after").and_then(retry_after), message })
        }
        400..600 => (code, PushAnswer::Refused { message }),
        // A redirect, to a page for logging in for instance: OTLP defines none.
        _ => (code, PushAnswer::Later { after: None, message }),
    }
}

/// Why, as it has it: the specification's `google.rpc.Status`, else the first line of a text.
fn reason_of(answer: &HttpResponse) -> String {
    /// The longest reason that is reported.
    const LONGEST: usize = 300;
    let text = if media_type(answer) == "application/x-protobuf" {
        RpcReason::decode(&*answer.body).map(|status| status.message).unwrap_or_default()
    } else {
        String::from_utf8(answer.body.to_vec()).unwrap_or_default()
    };
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    log_text(&line.chars().filter(|c| !c.is_control()).take(LONGEST).collect::<String>())
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
pub(super) fn of_grpc(reply: &GrpcReply) -> (String, PushAnswer) {
    let Some(status) = reply.status else {
        // A proxy in between, or an answer that broke off: 200 does not say that it will not be taken.
        let message = format!("the collector answers HTTP {} without a status of gRPC", reply.http_status);
        let answer = match reply.http_status {
            200 | 429 | 502 | 503 | 504 => PushAnswer::Later { after: None, message },
            _ => PushAnswer::Refused { message },
        };
        let code = if reply.http_status == 200 { "broken".to_owned() } else { reply.http_status.to_string() };
        return (code, answer);
    };
    // As gRPC has it, with its odd characters percent-encoded; what is not is shown as it came.
    let text = decoded(&reply.message).unwrap_or_else(|_| reply.message.clone());
    let message = format!("the collector answers status {status} of gRPC: {}", log_text(&text));
    let after = reply.details.as_deref().and_then(retry_delay);
    let answer = match status {
        0 => taken(&reply.body).unwrap_or(PushAnswer::Later { after: None, message }),
        // Invalid argument.
        3 => PushAnswer::Bad { message },
        // Cancelled, deadline exceeded, aborted, out of range, unavailable, data loss.
        1 | 4 | 10 | 11 | 14 | 15 => PushAnswer::Later { after, message },
        // Resource exhausted: only with a word on when. Else it is too large.
        8 if after.is_some() => PushAnswer::Later { after, message },
        8 => PushAnswer::Bad { message },
        _ => PushAnswer::Refused { message },
    };
    (format!("grpc-{status}"), answer)
}

/// `google.rpc.Status` without its details: two million of them fit into 4 MiB, and take 190 MiB of memory.
#[derive(Clone, PartialEq, Message)]
struct RpcReason {
    #[prost(string, tag = "2")]
    message: String,
}

/// `google.rpc.Status`: when to come again. It comes in a header, which is short.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(message, repeated, tag = "3")]
    details: Vec<RpcDetail>,
}

/// `google.protobuf.Any`
#[derive(Clone, PartialEq, Message)]
struct RpcDetail {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.RetryInfo`
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<RetryDelay>,
}

/// `google.protobuf.Duration`
#[derive(Clone, PartialEq, Message)]
struct RetryDelay {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

fn retry_delay(details: &str) -> Option<Duration> {
    let status = RpcStatus::decode(base64(details)?.as_slice()).ok()?;
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
pub(super) mod tests {
    use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsPartialSuccess;

    use super::super::deliver::{FIRST_WAIT, LONGEST_WAIT, MAX_RETRY_AFTER, wait};
    use super::*;
    use crate::model::fuzzed::{Fuzz, each};

    fn reply(status: Option<u16>, details: Option<&str>) -> PushAnswer {
        let details = details.map(str::to_owned);
        of_grpc(&GrpcReply { http_status: 200, status, message: String::new(), details, body: Vec::new().into() }).1
    }

    #[test]
    fn each_grpc_status_is_handled_as_specified() {
        for later in [1, 4, 10, 11, 14, 15] {
            assert!(matches!(reply(Some(later), None), PushAnswer::Later { after: None, .. }), "{later}");
        }
        for never in [2, 5, 6, 7, 9, 12, 13, 16, 99] {
            assert!(matches!(reply(Some(never), None), PushAnswer::Refused { .. }), "{never}");
        }
        assert!(matches!(reply(Some(0), None), PushAnswer::Taken { rejected: 0, .. }));
        assert!(matches!(reply(None, None), PushAnswer::Later { .. }), "it broke off, and was not refused");
        assert!(matches!(reply(Some(3), None), PushAnswer::Bad { .. }));
        assert!(matches!(reply(Some(8), None), PushAnswer::Bad { .. }), "without a time to retry");
        // Encoded by another library: code 8, RetryInfo of 7.5 s.
        let details = "CAgaNgoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIKCggIBxCAyrXuAQ==";
        let answer = reply(Some(8), Some(details));
        assert!(
            matches!(answer, PushAnswer::Later { after: Some(after), .. } if after.as_millis() == 7_500),
            "{answer:?}"
        );
    }

    #[test]
    fn retry_after_accepts_seconds_and_dates() {
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
    fn reason_of_an_http_answer_is_its_status_or_its_first_line() {
        let of =
            |kind: &str, body: Vec<u8>| reason_of(&HttpResponse::of_parts(400, &[("content-type", kind)], body.into()));
        let status = RpcReason { message: "no such tenant".to_owned() };
        assert_eq!(of("application/x-protobuf", status.encode_to_vec()), "no such tenant");
        assert_eq!(of("text/plain; charset=utf-8", b"\n out of \x1bbounds\nmore".to_vec()), "out of bounds");
        assert_eq!(
            (of("text/plain", vec![0xff]), of("application/x-protobuf", vec![0xff])),
            (String::new(), String::new())
        );
        assert_eq!(of("text/html", vec![b'a'; 5_000]).len(), 300);
    }

    #[test]
    fn grpc_status_message_is_shown_percent_decoded() {
        let text = |message: &str| {
            let message = message.to_owned();
            let (http_status, status) = (200, Some(7));
            match of_grpc(&GrpcReply { http_status, status, message, details: None, body: Vec::new().into() }).1 {
                PushAnswer::Refused { message } => message,
                other => panic!("{other:?}"),
            }
        };
        assert!(text("no%20such%20tenant%3A 100%25").ends_with("no such tenant: 100%"));
        assert!(text("100% wrong").ends_with("100% wrong"));
    }

    fn rejected(kind: &str, body: &[u8]) -> Option<u64> {
        match of_http(&HttpResponse::of_parts(200, &[("content-type", kind)], body.to_vec().into())).1 {
            PushAnswer::Taken { rejected, .. } => Some(rejected),
            PushAnswer::Later { after: None, .. } => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_a_success_that_otlp_defines_is_one() {
        let partial = ExportMetricsPartialSuccess { rejected_data_points: 7, error_message: String::new() };
        let message = ExportMetricsServiceResponse { partial_success: Some(partial) }.encode_to_vec();
        let page = b"<!doctype html><title>Log in</title>";
        assert_eq!(rejected("application/x-protobuf", &message), Some(7));
        assert_eq!(rejected("application/x-protobuf", page), None);
        assert_eq!(rejected("text/html; charset=utf-8", page), None);
        assert_eq!(rejected("text/plain", b"OK"), None);
        assert_eq!([rejected("text/html", b""), rejected("application/json", b"{}")], [Some(0); 2]);
        let json = br#"{"partialSuccess": {"rejectedSpans": "3", "errorMessage": "x"}, "more": 1}"#;
        assert_eq!(rejected("Application/JSON; charset=utf-8", json), Some(3));
        for other in [&b"{\"status\":\"ok\"}"[..], b"[]", b"ok", b"{\"partialSuccess\":1}"] {
            assert_eq!(rejected("application/json", other), None, "{other:?}");
        }
        let redirect = HttpResponse::of_parts(302, &[("location", "/login")], page.to_vec().into());
        assert!(matches!(of_http(&redirect).1, PushAnswer::Later { .. }));
        let broken = GrpcReply {
            http_status: 200,
            status: Some(0),
            message: String::new(),
            details: None,
            body: page.to_vec().into(),
        };
        assert!(matches!(of_grpc(&broken).1, PushAnswer::Later { .. }));
    }

    pub(in super::super) const PIECES: &[&str] = &[
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
    pub(in super::super) fn damaged_answer(fuzz: &mut Fuzz) -> Vec<u8> {
        let rejected_data_points = i64::from_le_bytes(fuzz.word().to_le_bytes()) >> fuzz.below(64);
        let partial_success = Some(ExportMetricsPartialSuccess { rejected_data_points, error_message: fuzz.text(12) });
        let good = ExportMetricsServiceResponse { partial_success }.encode_to_vec();
        if fuzz.one_in(4) { good } else { fuzz.damaged(&good, PIECES) }
    }

    /// With details of a delay, damaged before and after they became text.
    fn details(fuzz: &mut Fuzz) -> String {
        use base64::Engine as _;
        let delay =
            RetryDelay { seconds: i64::from_le_bytes(fuzz.word().to_le_bytes()) >> fuzz.below(64), nanos: i32::MAX };
        let value = RetryInfo { retry_delay: Some(delay) }.encode_to_vec();
        let detail = RpcDetail { type_url: PIECES[1].to_owned(), value };
        let good = RpcStatus { details: vec![detail] }.encode_to_vec();
        let bytes = if fuzz.one_in(3) { good } else { fuzz.damaged(&good, PIECES) };
        let text = base64::prelude::BASE64_STANDARD.encode(bytes);
        if fuzz.one_in(2) { text } else { String::from_utf8_lossy(&fuzz.damaged(text.as_bytes(), PIECES)).into_owned() }
    }

    /// A status that said that nothing was taken is never one of something taken, and the other way round.
    #[test]
    fn no_answer_of_a_collector_panics_and_each_is_handled_by_its_status() {
        each("OTLP answers", 20_000, |fuzz| {
            let body: bytes::Bytes = damaged_answer(fuzz).into();
            let (_, answer) = if fuzz.one_in(2) {
                let status = u16::try_from(100 + fuzz.below(500)).expect("it is below 600");
                let kind = ["application/x-protobuf", "application/json", "text/html"][fuzz.below(3)];
                let after = fuzz.pieces(PIECES, 3);
                let answer = of_http(&HttpResponse::of_parts(
                    status,
                    &[("retry-after", &after), ("content-type", kind)],
                    bytes::Bytes::clone(&body),
                ));
                let is_success = (200..300).contains(&status) && (body.is_empty() || kind != "text/html");
                assert!(is_success || !matches!(answer.1, PushAnswer::Taken { .. }), "{status}: {answer:?}");
                answer
            } else {
                let status =
                    fuzz.below(3).checked_sub(1).map(|_| u16::try_from(fuzz.below(20)).expect("it is below 20"));
                let http_status = u16::try_from(100 + fuzz.below(500)).expect("it is below 600");
                let (message, details) = (fuzz.pieces(PIECES, 4), (!fuzz.one_in(3)).then(|| details(fuzz)));
                let answer = of_grpc(&GrpcReply { http_status, status, message, details, body });
                assert!(status == Some(0) || !matches!(answer.1, PushAnswer::Taken { .. }), "{status:?}: {answer:?}");
                answer
            };
            if let PushAnswer::Later { after, .. } = answer {
                assert!(
                    wait(3, after) <= MAX_RETRY_AFTER + FIRST_WAIT.max(LONGEST_WAIT),
                    "no collector delays a retry for ever"
                );
            }
        });
    }
}
