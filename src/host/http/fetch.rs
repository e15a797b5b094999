//! Downloads over HTTP and HTTPS: follows redirects from an address to the head of the final response.
//!
//! Concurrency: runs on the caller's runtime. Each step has a deadline; the reader of the body sets its own.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::exchange::{HttpAnswer, Payload, RequestMethod, send_request};
use super::{Address, HttpError, TlsFiles};
use crate::host::peer::Trust;

/// The limit of Go's client, and so of Nomad.
const MOST_REDIRECTS: usize = 10;
/// In bytes.
const LONGEST_URL: usize = 16 << 10;

/// An http or https URL. `Display` omits credentials and query, which often contain secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpUrl {
    secured: bool,
    /// `user:password`, still percent-encoded.
    credentials: Option<String>,
    /// As written, without port; IPv6 in brackets.
    host: String,
    port: u16,
    /// Starts with `/`.
    path: String,
    query: Option<String>,
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme(), self.authority(), self.path)
    }
}

impl HttpUrl {
    /// Errors: not such a URL; the message repeats nothing of it except the scheme.
    pub fn parse(text: &str) -> Result<HttpUrl, String> {
        if text.len() > LONGEST_URL {
            return Err(format!("its URL has more than {LONGEST_URL} bytes"));
        }
        if let Some(odd) = text.chars().find(|c| c.is_control() || *c == ' ') {
            return Err(format!("its URL contains {odd:?}, which must be percent-encoded"));
        }
        let (scheme, rest) = text.split_once("://").ok_or("its URL has no scheme")?;
        let secured = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _ => return Err(format!("`{}` is neither http nor https", scheme.chars().take(20).collect::<String>())),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (credentials, host) = match authority.rsplit_once('@') {
            Some((credentials, host)) => (Some(credentials.to_owned()), host),
            None => (None, authority),
        };
        let (host, port) = match host.rsplit_once(':') {
            Some((name, port)) if !port.contains(']') => {
                (name, port.parse().map_err(|_| "its URL has no port between 1 and 65535")?)
            }
            _ => (host, if secured { 443 } else { 80 }),
        };
        let is_host = |c: char| c.is_ascii_alphanumeric() || "-._~[]:%".contains(c);
        if host.is_empty() || !host.chars().all(is_host) {
            return Err("its URL has no host".to_owned());
        }
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query.to_owned())));
        let path = if path.is_empty() { "/".to_owned() } else { encoded(path) };
        Ok(HttpUrl {
            secured,
            credentials,
            host: host.to_owned(),
            port,
            path,
            query: query.map(|query| encoded(&query)),
        })
    }

    /// Resolves a `Location` header against this URL. Source: RFC 3986, 5.2.
    ///
    /// Errors: another scheme, or not a URL.
    pub fn join(&self, location: &str) -> Result<HttpUrl, String> {
        let has_scheme = location.split_once(':').is_some_and(|(scheme, _)| {
            scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
        });
        if has_scheme {
            return match location.split_once("://") {
                Some(_) => HttpUrl::parse(location),
                None => {
                    let scheme = location.split(':').next().unwrap_or_default();
                    Err(format!("`{}` is neither http nor https", scheme.chars().take(20).collect::<String>()))
                }
            };
        }
        if let Some(rest) = location.strip_prefix("//") {
            return HttpUrl::parse(&format!("{}://{rest}", self.scheme()));
        }
        let base = format!("{}://{}", self.scheme(), self.authority());
        let (path, query) = location.split_once('?').map_or((location, None), |(p, q)| (p, Some(q)));
        let path = match path.split('#').next().unwrap_or_default() {
            "" => self.path.clone(),
            absolute if absolute.starts_with('/') => without_dots(absolute),
            relative => {
                let directory = self.path.rsplit_once('/').map_or("", |(directory, _)| directory);
                without_dots(&format!("{directory}/{relative}"))
            }
        };
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        let joined = HttpUrl::parse(&format!("{base}{path}{query}"))?;
        Ok(HttpUrl { credentials: self.credentials.clone(), ..joined })
    }

    fn scheme(&self) -> &'static str {
        if self.secured { "https" } else { "http" }
    }
    fn authority(&self) -> String {
        let usual = if self.secured { 443 } else { 80 };
        if self.port == usual { self.host.clone() } else { format!("{}:{}", self.host, self.port) }
    }
    /// Credentials and headers for one server are not sent to another.
    pub fn is_same_server(&self, other: &HttpUrl) -> bool {
        (self.secured, self.port) == (other.secured, other.port) && self.host.eq_ignore_ascii_case(&other.host)
    }
    fn target(&self) -> String {
        self.query.as_ref().map_or_else(|| self.path.clone(), |query| format!("{}?{query}", self.path))
    }
    /// The last path component, decoded; may be empty.
    pub fn name(&self) -> String {
        decoded(self.path.rsplit('/').next().unwrap_or_default())
    }
    /// User and password, decoded. Absent when: the URL has none.
    pub fn credentials(&self) -> Option<(String, String)> {
        let (user, password) = self.credentials.as_ref().map(|c| c.split_once(':').unwrap_or((c, "")))?;
        Some((decoded(user), decoded(password)))
    }
}

/// Percent-encodes characters that a URL must not contain.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte);
    let one = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(one).collect()
}

fn decoded(text: &str) -> String {
    let (mut plain, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [byte, after @ ..] = rest {
        let digits = (*byte == b'%').then(|| after.get(..2)).flatten();
        let code = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        plain.push(code.unwrap_or(*byte));
        rest = after.get(if code.is_some() { 2 } else { 0 }..).unwrap_or_default();
    }
    String::from_utf8_lossy(&plain).into_owned()
}

fn without_dots(path: &str) -> String {
    let mut retained: Vec<&str> = Vec::new();
    for component in path.split('/').skip(1) {
        match component {
            ".." => {
                retained.pop();
            }
            "." => {}
            other => retained.push(other),
        }
    }
    let is_directory = path.ends_with("/.") || path.ends_with("/..");
    format!("/{}{}", retained.join("/"), if is_directory { "/" } else { "" })
}

/// A download request.
pub struct FetchRequest<'a> {
    pub url: &'a HttpUrl,
    /// For the URL's own server only: they are dropped at a redirect to another server.
    pub headers: &'a [(String, String)],
    pub tls: Arc<TlsFiles>,
    /// Time limit per server until the head of its response.
    pub patience: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("{0} redirects in a circle")]
    Circle(String),
    #[error("{0} redirects more than {MOST_REDIRECTS} times")]
    TooMany(String),
    #[error("{from} has a redirect that is not allowed: {why}")]
    Elsewhere { from: String, why: String },
    #[error("{url} answered with status {status}")]
    Status { url: String, status: u16 },
}

/// Follows redirects to http and https only.
///
/// Errors: the status is no success; a redirect loop; too many redirects; a redirect to another scheme.
pub fn fetch<'a>(request: FetchRequest<'a>) -> impl Future<Output = Result<HttpAnswer, FetchError>> + Send + 'a {
    async move {
        let mut url = request.url.clone();
        let mut seen: Vec<HttpUrl> = Vec::new();
        loop {
            if seen.contains(&url) {
                return Err(FetchError::Circle(request.url.to_string()));
            }
            if seen.len() > MOST_REDIRECTS {
                return Err(FetchError::TooMany(request.url.to_string()));
            }
            seen.push(url.clone());
            let host = format!("{}:{}", url.host, url.port);
            let address = if url.secured { Address::Tls(host, Arc::clone(&request.tls)) } else { Address::Tcp(host) };
            let authority = url.authority();
            let mut headers: Vec<(&str, &str)> = Vec::new();
            if url.is_same_server(request.url) {
                headers.extend(request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())));
            }
            if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
                headers.push(("host", &authority));
            }
            let target = url.target();
            let answer = send_request(
                (&address, Trust::Named),
                (RequestMethod::Get, &target),
                &headers,
                Payload::Whole(Bytes::new()),
            );
            let answer = tokio::time::timeout(request.patience, answer).await;
            let late = |_| HttpError::Timeout { address: address.clone(), after: request.patience };
            let answer = answer.map_err(late)??;
            match (answer.status, answer.header("location")) {
                (301 | 302 | 303 | 307 | 308, Some(location)) => {
                    let next = url.join(location);
                    url = next.map_err(|why| FetchError::Elsewhere { from: url.to_string(), why })?;
                }
                (status, _) if !answer.is_success() => {
                    return Err(FetchError::Status { url: url.to_string(), status });
                }
                _ => return Ok(answer),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_address_is_shown_without_its_secrets() {
        let url = HttpUrl::parse("https://user:p%40ss@h.lan/a b".replace(' ', "%20").as_str()).unwrap();
        assert_eq!(url.to_string(), "https://h.lan/a%20b");
        assert_eq!(url.credentials(), Some(("user".to_owned(), "p@ss".to_owned())));
        let url = HttpUrl::parse("http://[::1]:80?token=x#f").unwrap();
        assert_eq!((url.to_string().as_str(), url.target().as_str()), ("http://[::1]/", "/?token=x"));
        for odd in ["file:///x", "http://", "http://h:x/", "http://h h/", "h/x", "http://u@/x", "gopher://h/"] {
            assert!(HttpUrl::parse(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn redirect_location_is_joined_by_rfc_3986_and_never_leaves_http() {
        let base = HttpUrl::parse("http://u:p@h:81/b/c/d?q").unwrap();
        for (location, expected) in [
            ("g", "http://h:81/b/c/g"),
            ("./g/", "http://h:81/b/c/g/"),
            ("/g?y", "http://h:81/g"),
            ("?y", "http://h:81/b/c/d"),
            ("../../../g", "http://h:81/g"),
            ("..", "http://h:81/b/"),
            ("//other/x", "http://other/x"),
            ("https://other", "https://other/"),
        ] {
            assert_eq!(base.join(location).unwrap().to_string(), expected, "{location}");
        }
        assert!(base.join("g").unwrap().credentials().is_some());
        assert!(base.join("//other/x").unwrap().credentials().is_none());
        for odd in ["file:///etc/passwd", "file:/etc/passwd", "unix:/run/x", "ftp://h/x", "data:,x"] {
            assert!(base.join(odd).err().unwrap().contains("neither http nor https"), "{odd}");
        }
    }

    proptest! {
        #[test]
        fn joined_url_can_be_parsed(location in "[a-z./?#:@%é-]{0,40}") {
            let base = HttpUrl::parse("https://h/a/b").unwrap();
            if let Ok(url) = base.join(&location) {
                let again = HttpUrl::parse(&url.to_string()).unwrap();
                prop_assert_eq!((again.host, again.port, again.path), (url.host, url.port, url.path));
            }
        }
    }
}
