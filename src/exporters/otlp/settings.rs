//! What can be set, in the words of the OpenTelemetry specification.
//!
//! Source: OpenTelemetry specification, "OTLP Exporter Configuration" and "Environment Variable Specification".

use std::path::PathBuf;
use std::time::Duration;

use crate::telemetry::otlp::OtlpSignal;

/// Nothing is pushed, and nothing of it runs, unless an endpoint is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Nothing is pushed, whatever else is said. Of the agent's own, none of the further ones is either.
    pub disabled: bool,
    /// Of all signals: metrics go to `/v1/metrics` below it.
    pub endpoint: Option<PushEndpoint>,
    pub protocol: Protocol,
    /// Of an endpoint that says neither http nor https.
    pub insecure: bool,
    /// The authorities that are believed, PEM. `None`: those of the system.
    pub certificate: Option<PathBuf>,
    /// What is shown to a collector that asks for it, PEM; with its key.
    pub client_certificate: Option<PathBuf>,
    pub client_key: Option<PathBuf>,
    /// Sent with each request.
    pub headers: Vec<(String, String)>,
    /// Of one request, connecting included.
    pub timeout: Duration,
    pub compression: Compression,
    pub temporality: Temporality,
    /// Of histograms.
    pub aggregation: HistogramAggregation,
    /// Of metrics.
    pub names: MetricNames,
    /// What a resource says stands on its points as well.
    pub flat: bool,
    /// Between two collections.
    pub interval: Duration,
    /// Of host and agent.
    pub service_name: Option<String>,
    /// On every resource.
    pub resource_attributes: Vec<(String, String)>,
    /// What waits on disk is no more than this.
    pub queue_bytes: u64,
    /// And no older than this.
    pub queue_age: Duration,
    /// Output of managed tasks that is pushed as log records.
    pub task_streams: Vec<ForwardedStream>,
    /// Of the output of one task, in bytes a second.
    pub task_rate: u64,
    /// Of all output.
    pub tasks_rate: u64,
    /// What is said of one alone, in the order of [`OtlpSignal::ALL`].
    pub signals: [SignalConfig; OtlpSignal::ALL.len()],
    /// Further destinations, by name: each is set for itself, but for who the host is.
    pub destinations: Vec<(String, Config)>,
}

/// What is said of one signal; `None`: as it is for all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SignalConfig {
    /// It is not sent, wherever an endpoint is.
    pub is_off: bool,
    /// As it stands.
    pub endpoint: Option<PushEndpoint>,
    pub protocol: Option<Protocol>,
    pub insecure: Option<bool>,
    pub certificate: Option<PathBuf>,
    pub client_certificate: Option<PathBuf>,
    pub client_key: Option<PathBuf>,
    pub headers: Option<Vec<(String, String)>>,
    pub timeout: Option<Duration>,
    pub compression: Option<Compression>,
}

/// What the destination without a name is called where it needs one.
pub const DEFAULT: &str = "default";

impl Default for Config {
    fn default() -> Config {
        Config {
            disabled: false,
            endpoint: None,
            protocol: Protocol::HttpProtobuf,
            insecure: false,
            certificate: None,
            client_certificate: None,
            client_key: None,
            headers: Vec::new(),
            timeout: Duration::from_secs(10),
            compression: Compression::Gzip,
            temporality: Temporality::Cumulative,
            aggregation: HistogramAggregation::Explicit,
            names: MetricNames::Conventions,
            flat: false,
            interval: Duration::from_secs(60),
            service_name: None,
            resource_attributes: Vec::new(),
            queue_bytes: 256 << 20,
            queue_age: Duration::from_secs(48 * 3_600),
            task_streams: Vec::new(),
            task_rate: 64 << 10,
            tasks_rate: 1 << 20,
            signals: Default::default(),
            destinations: Vec::new(),
        }
    }
}

impl Config {
    /// All destinations with their names that are not disabled: the further ones are of the same host and agent, where
    /// they do not say otherwise.
    pub fn all(&self) -> Vec<(String, Config)> {
        if self.disabled {
            return Vec::new();
        }
        let own = Config { destinations: Vec::new(), ..self.clone() };
        let further = self.destinations.iter().filter(|(_, config)| !config.disabled).map(|(name, config)| {
            let mut config = config.clone();
            config.service_name = config.service_name.or_else(|| self.service_name.clone());
            if config.resource_attributes.is_empty() {
                config.resource_attributes.clone_from(&self.resource_attributes);
            }
            (name.clone(), config)
        });
        std::iter::once((DEFAULT.to_owned(), own)).chain(further).collect()
    }

    /// With what is said of the signal in the place of what is said of all.
    #[must_use]
    pub fn of(&self, signal: OtlpSignal) -> Config {
        let (mut config, own) = (self.clone(), self.signals[signal.settings().index()].clone());
        config.protocol = own.protocol.unwrap_or(config.protocol);
        config.insecure = own.insecure.unwrap_or(config.insecure);
        config.certificate = own.certificate.or(config.certificate);
        config.client_certificate = own.client_certificate.or(config.client_certificate);
        config.client_key = own.client_key.or(config.client_key);
        config.headers = own.headers.unwrap_or(config.headers);
        config.timeout = own.timeout.unwrap_or(config.timeout);
        config.compression = own.compression.unwrap_or(config.compression);
        config
    }

    /// Where a signal goes; `None`: nowhere.
    pub fn target(&self, signal: OtlpSignal) -> Option<PushEndpoint> {
        let signal = signal.settings();
        let own = &self.signals[signal.index()];
        let below =
            |base: &PushEndpoint| PushEndpoint { path: format!("{}v1/{}", base.path, signal.as_str()), ..base.clone() };
        let target = own.endpoint.clone().or_else(|| self.endpoint.as_ref().map(below));
        let mut target = target.filter(|_| !own.is_off)?;
        if target.scheme == Scheme::Unspecified {
            let insecure = own.insecure.unwrap_or(self.insecure);
            target.scheme = if insecure { Scheme::Http } else { Scheme::Https };
        }
        Some(target)
    }

    /// Settings that are fine alone and impossible together: each such case in a sentence, behind the keys that it is
    /// about, those that win first.
    pub fn clashes(&self) -> Vec<(Vec<String>, String)> {
        let mut found: Vec<(Vec<String>, String)> = Vec::new();
        let own = OtlpSignal::ALL.into_iter().filter(|signal| signal.settings() == *signal);
        for signal in own.filter(|signal| !self.signals[signal.index()].is_off) {
            let (of, own) = (self.of(signal), &self.signals[signal.index()]);
            let keys = |keys: &[&str]| -> Vec<String> {
                let of_signal = keys.iter().map(|key| format!("{}_{key}", signal.as_str()));
                of_signal.chain(keys.iter().map(|key| (*key).to_owned())).collect()
            };
            if of.client_certificate.is_some() != of.client_key.is_some() {
                let message = "client_certificate and client_key are given together, or neither".to_owned();
                found.push((keys(&["client_certificate", "client_key"]), message));
            }
            let endpoint = own.endpoint.as_ref().or(self.endpoint.as_ref());
            let unspecified = endpoint.filter(|endpoint| endpoint.scheme == Scheme::Unspecified);
            if let Some(endpoint) = unspecified.filter(|_| of.protocol != Protocol::Grpc) {
                let message = format!(
                    "the endpoint {endpoint} has neither http:// nor https://, which only gRPC has a default for \
                     (insecure)"
                );
                found.push((keys(&["endpoint", "protocol"]), message));
            }
        }
        found
    }
}

crate::model::words! {
    pub enum Protocol {
        HttpProtobuf = "http/protobuf",
        Grpc = "grpc",
    }
}

crate::model::words! {
    /// What a task writes to.
    pub enum ForwardedStream {
        Stdout = "stdout",
        Stderr = "stderr",
    }
}

crate::model::words! {
    pub enum Compression {
        Gzip = "gzip",
        Zstd = "zstd",
        None = "none",
    }
}

crate::model::words! {
    /// What sums and histograms count from.
    pub enum Temporality {
        /// Their beginning.
        Cumulative = "cumulative",
        /// What the collector took last; sums that may fall from their beginning.
        Delta = "delta",
        /// Histograms from what it took last. Of our sums, which are read and not added up, all from their beginning.
        LowMemory = "lowmemory",
    }
}

crate::model::words! {
    /// Which buckets of a histogram go out.
    pub enum HistogramAggregation {
        /// Those of `/metrics`.
        Explicit = "explicit_bucket_histogram",
        /// Finer ones, counted beside them, whose bounds grow by one factor.
        Exponential = "base2_exponential_bucket_histogram",
    }
}

crate::model::words! {
    /// By which names metrics go out.
    pub enum MetricNames {
        /// Those of the semantic conventions, with a resource for each task, alloc and device.
        Conventions = "conventions",
        /// Those of `/metrics` with its labels, for boards and alerts on pushed data.
        Prometheus = "prometheus",
    }
}

crate::model::words! {
    pub enum Scheme {
        Http = "http://",
        Https = "https://",
        /// As gRPC has it: `host:port`.
        Unspecified = "",
    }
}

/// Where a collector listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushEndpoint {
    pub scheme: Scheme,
    /// `host:port`
    pub authority: String,
    /// Of the base of several it ends in `/`.
    pub path: String,
}

impl std::fmt::Display for PushEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = if self.scheme == Scheme::Unspecified { "" } else { &self.path };
        write!(f, "{}{}{path}", self.scheme.as_str(), self.authority)
    }
}

/// `is_base`: paths of signals follow it.
///
/// Errors: what is wrong with it, in a sentence.
pub fn endpoint(text: &str, is_base: bool) -> Result<PushEndpoint, String> {
    const SHAPE: &str = "write http://host:port or https://host:port";
    // Who writes a password into it does not want it in the log.
    if text.contains('@') {
        return Err(format!(
            "an endpoint has no name and no password: {SHAPE}, and the header `authorization` beside it"
        ));
    }
    let wrong = |why: &str| format!("{text:?} is no endpoint: {why}");
    let known = [Scheme::Http, Scheme::Https].into_iter().find(|scheme| text.starts_with(scheme.as_str()));
    let scheme = known.unwrap_or(Scheme::Unspecified);
    let rest = &text[scheme.as_str().len()..];
    if rest.contains("://") {
        return Err(wrong(SHAPE));
    }
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    // The colons of an address of IPv6 stand in brackets.
    let port = authority.rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
    let host = port.map_or(authority, |(host, _)| host);
    let in_brackets = host.starts_with('[') && host.ends_with(']');
    if host.is_empty()
        || host.contains(['?', '#', '%', '\\'])
        || host.contains(|c: char| c.is_whitespace() || c.is_control())
        || (host.contains([':', '[', ']']) && !in_brackets)
    {
        return Err(wrong(SHAPE));
    }
    let authority = match (port.map(|(_, port)| port), scheme) {
        (Some(port), _) if port.parse::<u16>().is_ok_and(|port| port > 0) => authority.to_owned(),
        (Some(_), _) => return Err(wrong("the port is a number up to 65535")),
        (None, Scheme::Http) => format!("{authority}:80"),
        (None, Scheme::Https) => format!("{authority}:443"),
        (None, Scheme::Unspecified) => return Err(wrong(SHAPE)),
    };
    if path.contains(['?', '#', ' ']) || path.chars().any(char::is_control) {
        return Err(wrong("its path has no query and no spaces"));
    }
    if scheme == Scheme::Unspecified && !path.is_empty() {
        return Err(wrong(SHAPE));
    }
    let slash = if path.is_empty() || (is_base && !path.ends_with('/')) { "/" } else { "" };
    Ok(PushEndpoint { scheme, authority, path: format!("{path}{slash}") })
}

/// Of a further destination: it is a label, and a part of the name of its queue's directory.
///
/// Errors: what is wrong with it, in a sentence.
pub fn destination_name(text: &str) -> Result<(), String> {
    const LONGEST: usize = 32;
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
    if text == DEFAULT {
        return Err(format!("{text:?} is what the settings of otlp itself are called"));
    }
    if text.is_empty() || text.len() > LONGEST || !text.bytes().all(is_plain) {
        return Err(format!("{text:?} is no name of a destination: a-z, 0-9, - and _, {LONGEST} at most"));
    }
    Ok(())
}

/// `key=value,key=value`, percent-encoded as in W3C baggage.
///
/// Errors: the pair that is none.
pub fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let pair = |part: &str| {
        let (key, value) = part.split_once('=').ok_or_else(|| format!("{part:?} is no key=value"))?;
        let (key, value) = (decoded(key.trim())?, decoded(value.trim())?);
        if key.is_empty() { Err(format!("{part:?} has no key")) } else { Ok((key, value)) }
    };
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(pair).collect()
}

/// Headers, which go over the wire as they are.
///
/// Errors: a name or a value that no header can have. The value is not repeated: it may be a secret.
pub fn headers(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut all =
        pairs(text).map_err(|_| "write name=value, separated by commas, values percent-encoded".to_owned())?;
    for (name, value) in &mut all {
        name.make_ascii_lowercase();
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if !name.bytes().all(token) {
            return Err(format!("{name:?} is no name of a header"));
        }
        if matches!(
            name.as_str(),
            "host" | "content-type" | "content-length" | "content-encoding" | "te" | "connection"
        ) {
            return Err(format!("{name:?} is set by the protocol"));
        }
        if !value.bytes().all(|b| (b' '..=b'~').contains(&b)) {
            return Err(format!("the value of {name:?} has a character that no header can have"));
        }
    }
    Ok(all)
}

/// As [`pairs`] reads them.
pub fn joined(pairs: &[(String, String)]) -> String {
    let encoded = |text: &str| -> String {
        text.bytes()
            .map(|b| match b {
                b'!'..=b'~' if !b"%,=;\\\"".contains(&b) => char::from(b).to_string(),
                _ => format!("%{b:02X}"),
            })
            .collect()
    };
    let all: Vec<String> = pairs.iter().map(|(key, value)| format!("{}={}", encoded(key), encoded(value))).collect();
    all.join(",")
}

pub(super) fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |b: Option<u8>| char::from(b?).to_digit(16).and_then(|d| u8::try_from(d).ok());
        bytes.push(match byte {
            b'%' => match (digit(rest.next()), digit(rest.next())) {
                (Some(high), Some(low)) => high * 16 + low,
                _ => return Err(format!("{text:?} has a % without two digits")),
            },
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| format!("{text:?} is no text"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn otlp_endpoint_for_all_signals_gets_a_signal_path_and_one_signal_none() {
        let to = |base: Option<&str>, metrics: Option<&str>| {
            let mut config = Config { endpoint: base.map(|text| endpoint(text, true).unwrap()), ..Config::default() };
            config.signals[0].endpoint = metrics.map(|text| endpoint(text, false).unwrap());
            config.target(OtlpSignal::Metrics).map(|target| target.to_string())
        };
        assert_eq!(to(None, None), None);
        assert_eq!(to(Some("http://c:4318"), None).unwrap(), "http://c:4318/v1/metrics");
        assert_eq!(to(Some("http://c/a/b"), None).unwrap(), "http://c:80/a/b/v1/metrics");
        assert_eq!(to(Some("http://c:1/"), Some("http://[::1]:2")).unwrap(), "http://[::1]:2/");
        assert_eq!(to(None, Some("http://[::1]/x")).unwrap(), "http://[::1]:80/x");
        assert_eq!(to(Some("https://c"), None).unwrap(), "https://c:443/v1/metrics");
    }

    #[test]
    fn otlp_setting_of_one_signal_applies_to_no_other() {
        let mut config = Config { endpoint: Some(endpoint("http://all:1", true).unwrap()), ..Config::default() };
        config.headers = vec![("a".to_owned(), "of all".to_owned())];
        config.signals[OtlpSignal::Logs.index()] = SignalConfig {
            endpoint: Some(endpoint("c:2", false).unwrap()),
            protocol: Some(Protocol::Grpc),
            insecure: Some(true),
            headers: Some(Vec::new()),
            ..SignalConfig::default()
        };
        config.signals[OtlpSignal::Traces.index()].is_off = true;
        assert_eq!(config.clashes(), []);
        let targets = OtlpSignal::ALL.map(|signal| config.target(signal).map(|target| target.to_string()));
        let logs = Some("http://c:2/".to_owned());
        assert_eq!(targets, [Some("http://all:1/v1/metrics".to_owned()), logs.clone(), None, logs]);
        let of = OtlpSignal::ALL.map(|signal| config.of(signal)).map(|of| (of.protocol, of.headers.len()));
        let logs = (Protocol::Grpc, 0);
        assert_eq!(of, [(Protocol::HttpProtobuf, 1), logs, (Protocol::HttpProtobuf, 1), logs]);
    }

    #[test]
    fn invalid_otlp_endpoint_is_refused() {
        let wrong = [
            "",
            "c",
            "http://",
            "https://",
            "http://:4318",
            ":4318",
            "http://c:0",
            "http://c:99999",
            "http://u@c:1",
            "http://c:1/a b",
            "http://c?x",
            "c:4317/path",
            "ftp://c:1",
            "https://::1:2",
            "http://[::1:2",
            "unix:/a",
        ];
        for wrong in wrong {
            assert!(endpoint(wrong, true).is_err(), "{wrong}");
        }
        let secret = endpoint("http://me:sesame@c:1", true).unwrap_err();
        assert!(!secret.contains("sesame") && secret.contains("authorization"), "{secret}");
    }

    #[test]
    fn otlp_endpoint_without_scheme_requires_grpc_and_uses_tls_unless_insecure() {
        let endpoint = endpoint("c:4317", true).unwrap();
        assert_eq!(endpoint.to_string(), "c:4317");
        let config = Config { endpoint: Some(endpoint), ..Config::default() };
        assert!(config.clashes()[0].1.contains("c:4317"));
        let config = Config { protocol: Protocol::Grpc, ..config };
        assert_eq!(config.clashes(), []);
        assert_eq!(config.target(OtlpSignal::Metrics).unwrap().scheme, Scheme::Https);
        assert_eq!(Config { insecure: true, ..config }.target(OtlpSignal::Metrics).unwrap().scheme, Scheme::Http);
    }

    #[test]
    fn headers_are_percent_encoded_and_a_refused_one_does_not_repeat_its_value() {
        let read = headers("Authorization=Bearer%20s3cret, x-scope=a=b,").unwrap();
        assert_eq!(read, [("authorization".into(), "Bearer s3cret".into()), ("x-scope".into(), "a=b".into())]);
        for wrong in ["s3cret", "a b=s3cret", "x=s3cret%0A", "x=s3cret%", "content-type=s3cret"] {
            let why = headers(wrong).unwrap_err();
            assert!(!why.contains("s3cret"), "{why}");
        }
    }

    proptest! {
        #[test]
        fn otlp_pairs_joined_are_parsed_back(all in prop::collection::vec(("[a-z.]{1,9}", ".{0,9}"), 0..4)) {
            prop_assert_eq!(pairs(&joined(&all)).unwrap(), all);
        }
        #[test]
        fn no_otlp_setting_text_panics(text in ".*") {
            let _ = (endpoint(&text, true), headers(&text), pairs(&text));
        }
    }
}
