//! One request to the collector.

use std::sync::Arc;
use std::time::Duration;

use super::answer::{PushAnswer, failed, of_grpc, of_http};
use super::packed;
use super::settings::{Compression, Config, Protocol, PushEndpoint, Scheme};
use crate::host::http::grpc::GrpcCaller;
use crate::host::http::{Address, Client, HttpError, Method, TlsFiles};
use crate::host::peer::Trust;
use crate::telemetry::otlp::OtlpSignal;

/// The specification's limit of an answer.
const LARGEST_ANSWER: usize = 4 << 20;

fn service(signal: OtlpSignal) -> &'static str {
    match signal {
        OtlpSignal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        OtlpSignal::Logs | OtlpSignal::WorkloadLogs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        OtlpSignal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    }
}

pub(super) struct Sender {
    config: Config,
    signal: OtlpSignal,
    endpoint: PushEndpoint,
    door: PushTransport,
    compression: Compression,
    /// The collector has taken something of it.
    is_understood: bool,
}

enum PushTransport {
    Http(Client),
    Grpc(GrpcCaller),
}

impl Sender {
    /// `config`: as it is for this signal.
    pub fn new(config: &Config, signal: OtlpSignal, endpoint: PushEndpoint) -> Result<Sender, HttpError> {
        let address = match endpoint.scheme {
            Scheme::Http => Address::Tcp(endpoint.authority.clone()),
            Scheme::Https | Scheme::Unspecified => {
                let client = config.client_certificate.clone().zip(config.client_key.clone());
                let files = TlsFiles { authorities: config.certificate.clone(), client, is_unverified: false };
                Address::Tls(endpoint.authority.clone(), Arc::new(files))
            }
        };
        let door = match config.protocol {
            Protocol::HttpProtobuf => {
                let mut client = Client::new(address, Trust::Named)?;
                client.set_timeout(config.timeout);
                client.set_largest_answer(LARGEST_ANSWER);
                PushTransport::Http(client)
            }
            Protocol::Grpc => PushTransport::Grpc(GrpcCaller::new(address, config.timeout, LARGEST_ANSWER)?),
        };
        let compression = config.compression;
        Ok(Sender { config: config.clone(), signal, endpoint, door, compression, is_understood: false })
    }

    /// `batch`: as the queue has it. Gives what is counted of the request as well.
    pub fn send(&mut self, batch: &[u8]) -> (String, PushAnswer) {
        let (code, answer) = self.send_batch(batch);
        match &answer {
            PushAnswer::Taken { .. } => self.is_understood = true,
            // Receivers say in many ways that they do not know it: 415, 400, 12 of gRPC. Each of them knows gzip.
            PushAnswer::Bad { message } | PushAnswer::Refused { message }
                if self.compression == Compression::Zstd && !self.is_understood =>
            {
                self.compression = Compression::Gzip;
                let message = format!("{message}: it may not know zstd, so gzip is sent from now on");
                return (code, PushAnswer::Later { after: Some(Duration::ZERO), message });
            }
            PushAnswer::Bad { .. } | PushAnswer::Refused { .. } | PushAnswer::Later { .. } => {}
        }
        (code, answer)
    }

    fn send_batch(&mut self, batch: &[u8]) -> (String, PushAnswer) {
        let body = packed::packed_as(batch, self.compression);
        let encoding = match self.compression {
            Compression::None => None,
            Compression::Gzip | Compression::Zstd => Some(self.compression.as_str()),
        };
        let Ok(body) = body else {
            return ("unreadable".to_owned(), PushAnswer::Refused { message: "a batch cannot be unpacked".to_owned() });
        };
        let mut headers: Vec<(&str, &str)> =
            self.config.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        match &mut self.door {
            PushTransport::Http(client) => {
                headers.push(("content-type", "application/x-protobuf"));
                headers.extend(encoding.map(|encoding| ("content-encoding", encoding)));
                let answer = client.request(Method::Post, &self.endpoint.path, &headers, body.into());
                answer.map_or_else(|error| failed(&error), |answer| of_http(&answer))
            }
            PushTransport::Grpc(caller) => {
                headers.extend(encoding.map(|encoding| ("grpc-encoding", encoding)));
                let answer = caller.call(service(self.signal), &headers, &body, encoding.is_some());
                answer.map_or_else(|error| failed(&error), |reply| of_grpc(&reply))
            }
        }
    }
}

/// Sends one packed batch of metrics. Returns what is counted of the request, and the message of its answer. For tests
/// with hostile answers.
///
/// Errors: no client can be made.
#[cfg(debug_assertions)]
#[doc(hidden)]
pub fn send_once(config: &Config, endpoint: PushEndpoint, batch: &[u8]) -> Result<(String, String), HttpError> {
    let (code, answer) = Sender::new(config, OtlpSignal::Metrics, endpoint)?.send(batch);
    let (PushAnswer::Taken { message, .. }
    | PushAnswer::Bad { message }
    | PushAnswer::Refused { message }
    | PushAnswer::Later { message, .. }) = answer;
    Ok((code, message))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;

    use super::super::answer::tests::{PIECES, damaged_answer};
    use super::*;
    use crate::model::fuzzed::{each_of, variable};

    const KIND: &str = "Content-Type: application/x-protobuf";

    /// Bytes on a real connection: now and then an answer, most often none.
    ///
    /// Promise (Input validation): No answer of a collector breaks the exporter, and each means what its status means
    #[test]
    fn no_bytes_on_a_connection_panic_the_sender() {
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
            let body = damaged_answer(fuzz);
            let good = match is_grpc {
                false => {
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{KIND}\r\n\r\n", body.len());
                    [head.as_bytes(), &body].concat()
                }
                // Settings, then headers of stream 1: status 200, its end.
                true => b"\0\0\0\x04\0\0\0\0\0\0\0\x01\x01\x05\0\0\0\x01\x88".to_vec(),
            };
            give.send(if fuzz.one_in(8) { good } else { fuzz.damaged(&good, PIECES) }).unwrap();
            let protocol = if is_grpc { Protocol::Grpc } else { Protocol::HttpProtobuf };
            let config = Config { protocol, timeout: Duration::from_millis(500), ..Config::default() };
            let endpoint = super::super::endpoint(&format!("http://{address}"), true).unwrap();
            let mut sender = Sender::new(&config, OtlpSignal::Metrics, endpoint).unwrap();
            let (code, _) = sender.send(&packed);
            assert!(!code.is_empty());
        });
    }
}
