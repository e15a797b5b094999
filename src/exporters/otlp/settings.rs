//! What can be set, in the words of the OpenTelemetry specification.
//!
//! Source: OpenTelemetry specification, "OTLP Exporter Configuration" and "Environment Variable Specification".

use std::time::Duration;

/// Nothing is pushed, and nothing of it runs, unless an endpoint is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Of all signals: metrics go to `/v1/metrics` below it.
    pub endpoint: Option<PushEndpoint>,
    /// Of metrics, as it stands.
    pub metrics_endpoint: Option<PushEndpoint>,
    pub protocol: Protocol,
    /// Sent with each request.
    pub headers: Vec<(String, String)>,
    /// Of one request, connecting included.
    pub timeout: Duration,
    pub compression: Compression,
    /// Between two collections.
    pub interval: Duration,
    /// On every resource.
    pub resource_attributes: Vec<(String, String)>,
    /// What waits on disk is no more than this.
    pub queue_bytes: u64,
    /// And no older than this.
    pub queue_age: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            endpoint: None,
            metrics_endpoint: None,
            protocol: Protocol::HttpProtobuf,
            headers: Vec::new(),
            timeout: Duration::from_secs(10),
            compression: Compression::Gzip,
            interval: Duration::from_secs(60),
            resource_attributes: Vec::new(),
            queue_bytes: 256 << 20,
            queue_age: Duration::from_secs(48 * 3_600),
        }
    }
}

impl Config {
    /// Where metrics go; `None`: nowhere.
    pub fn target(&self) -> Option<PushEndpoint> {
        let below = |base: &PushEndpoint| PushEndpoint { path: format!("{}v1/metrics", base.path), ..base.clone() };
        self.metrics_endpoint.clone().or_else(|| self.endpoint.as_ref().map(below))
    }
}

crate::model::words! {
    pub enum Protocol {
        HttpProtobuf = "http/protobuf",
        Grpc = "grpc",
    }
}

crate::model::words! {
    pub enum Compression {
        Gzip = "gzip",
        None = "none",
    }
}

/// Where a collector listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushEndpoint {
    /// `host:port`
    pub authority: String,
    /// Of the base of several it ends in `/`.
    pub path: String,
}

impl std::fmt::Display for PushEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

/// `is_base`: paths of signals follow it.
///
/// Errors: what is wrong with it, in a sentence.
pub fn endpoint(text: &str, is_base: bool) -> Result<PushEndpoint, String> {
    if text.starts_with("https://") {
        return Err(format!(
            "{text:?} asks for TLS, which is not built in: send to a collector on this host by http://, and let that encrypt"
        ));
    }
    let wrong = |why: &str| format!("{text:?} is no endpoint: {why}");
    let rest = text.strip_prefix("http://").ok_or_else(|| wrong("write http://host:port"))?;
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if authority.is_empty() || authority.contains(['@', '?', '#', ' ']) {
        return Err(wrong("write http://host:port"));
    }
    // The colons of an address of IPv6 stand in brackets.
    let port = authority.rsplit_once(':').map(|(_, port)| port).filter(|port| !port.ends_with(']'));
    let authority = match port {
        Some(port) if port.parse::<u16>().is_ok_and(|port| port > 0) => authority.to_owned(),
        Some(_) => return Err(wrong("the port is a number up to 65535")),
        None => format!("{authority}:80"),
    };
    if path.contains(['?', '#', ' ']) || path.chars().any(char::is_control) {
        return Err(wrong("its path has no query and no spaces"));
    }
    let slash = if path.is_empty() || (is_base && !path.ends_with('/')) { "/" } else { "" };
    Ok(PushEndpoint { authority, path: format!("{path}{slash}") })
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

fn decoded(text: &str) -> Result<String, String> {
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
    fn an_endpoint_of_all_signals_gets_the_path_of_metrics_and_one_of_metrics_is_taken_as_it_stands() {
        let to = |base: Option<&str>, metrics: Option<&str>| {
            let config = Config {
                endpoint: base.map(|text| endpoint(text, true).unwrap()),
                metrics_endpoint: metrics.map(|text| endpoint(text, false).unwrap()),
                ..Config::default()
            };
            config.target().map(|target| target.to_string())
        };
        assert_eq!(to(None, None), None);
        assert_eq!(to(Some("http://c:4318"), None).unwrap(), "http://c:4318/v1/metrics");
        assert_eq!(to(Some("http://c/a/b"), None).unwrap(), "http://c:80/a/b/v1/metrics");
        assert_eq!(to(Some("http://c:1/"), Some("http://[::1]:2")).unwrap(), "http://[::1]:2/");
        assert_eq!(to(None, Some("http://[::1]/x")).unwrap(), "http://[::1]:80/x");
    }

    #[test]
    fn what_is_no_endpoint_is_refused_and_tls_with_what_to_do() {
        for wrong in
            ["", "c:4318", "http://", "http://c:0", "http://c:99999", "http://u@c:1", "http://c:1/a b", "http://c?x"]
        {
            assert!(endpoint(wrong, true).is_err(), "{wrong}");
        }
        let why = endpoint("https://c:4318", true).unwrap_err();
        assert!(why.contains("TLS, which is not built in") && why.contains("http://"), "{why}");
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
        fn what_is_joined_is_read_again(all in prop::collection::vec(("[a-z.]{1,9}", ".{0,9}"), 0..4)) {
            prop_assert_eq!(pairs(&joined(&all)).unwrap(), all);
        }
        #[test]
        fn nothing_panics(text in ".*") {
            let _ = (endpoint(&text, true), headers(&text), pairs(&text));
        }
    }
}
