//! Who is let in over TCP: TLS and passwords as Prometheus's web configuration file wants them, tokens and certificates
//! of who may act.
//!
//! ```text
//! connection ─► TLS, a certificate where one is wanted ─► Host header ─► rate ─► which caller?
//!   no password is configured ─────────────────► reader
//!   basic auth: user and password ─────────────► reader
//!   a certificate in agent.acting_certificates ─► operator
//!   Authorization: Bearer, over TLS or loopback ► operator: all that the Unix socket gives
//! ```
//! What is configured is read again when its files change ([`reload`]); a reload never opens what was shut: neither
//! TLS nor passwords go without a restart.

mod error;
mod file;
mod passwords;
mod reload;
mod suites;
#[cfg(test)]
mod tests;
mod tls;
mod tokens;
mod yaml;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;

pub use error::AccessError;
pub use file::{ClientAuth, WEB_FIELDS};
pub(super) use tls::handshake_refusal;

use self::passwords::Passwords;
use self::reload::{FileStamps, WatchedFiles};
use self::tls::TlsSetup;
use self::tokens::Tokens;
use super::Config;
use super::error::{ApiError, Code};
use crate::jobspec::diagnostic::{Diagnostic, SourceText};
use crate::jobspec::text_of;
use crate::telemetry::access::{AccessFile, AccessRefusal};
use crate::telemetry::{Metrics, lock};

/// A web configuration file with all that it names.
pub(super) struct WebAccess {
    tls: Option<TlsSetup>,
    headers: Vec<(HeaderName, HeaderValue)>,
    users: BTreeMap<String, String>,
    rate: Option<(Duration, u32)>,
    warnings: Vec<Diagnostic>,
}

impl WebAccess {
    fn read(path: &Path, files: &mut FileStamps, before: Option<&WebAccess>) -> Result<WebAccess, AccessError> {
        let bytes = files.read(path).map_err(|source| AccessError::Read { path: path.to_owned(), source })?;
        let name = path.display().to_string();
        let text = text_of(&name, bytes).map_err(AccessError::File)?;
        let source = SourceText::new(name, text);
        let file = file::web_file(path, &source).map_err(AccessError::File)?;
        let tls = file.tls.as_ref().map(|tls| TlsSetup::read(tls, &source, files)).transpose();
        let tls = tls.map_err(AccessError::File)?;
        let opens = |what| Err(AccessError::Opens { path: path.to_owned(), what });
        if let Some(before) = before {
            if before.tls.is_some() && tls.is_none() {
                return opens("TLS");
            }
            let loses =
                |has: fn(&TlsSetup) -> bool| before.tls.as_ref().is_some_and(has) && !tls.as_ref().is_some_and(has);
            if loses(|tls| tls.verifies) || loses(|tls| tls.requires) {
                return opens("the certificates of clients");
            }
            if loses(|tls| tls.checks_names) {
                return opens("the names of clients that are allowed (client_allowed_sans)");
            }
            if !before.users.is_empty() && file.users.is_empty() {
                return opens("every password");
            }
        }
        let mut warnings = file.warnings;
        warnings.extend(tls.iter().flat_map(|tls| tls.warnings.iter().cloned()));
        Ok(WebAccess { tls, headers: file.headers, users: file.users, rate: file.rate, warnings })
    }
}

/// Reads a web configuration file and all that it names, as an agent would. What of it has no effect, or not for
/// everybody, comes back.
pub fn check_web_config(path: &Path) -> Result<Vec<Diagnostic>, AccessError> {
    WebAccess::read(path, &mut FileStamps::default(), None).map(|web| web.warnings)
}

/// The same of every file that a configuration names.
pub fn check_access(config: &Config) -> Result<Vec<Diagnostic>, Vec<AccessError>> {
    let mut files = FileStamps::default();
    let web = config.web_config_file.as_deref().map(|path| WebAccess::read(path, &mut files, None)).transpose();
    let tokens = config.token_file.as_deref().map(|path| Tokens::read(path, &mut files)).transpose();
    // What a file says that cannot be read is not known.
    let acts = web.as_ref().map_or(Ok(()), |web| some_caller_may_act(config, web.as_ref()));
    match (web, tokens, acts) {
        (Ok(web), Ok(_), Ok(())) => Ok(web.map(|web| web.warnings).unwrap_or_default()),
        (web, tokens, acts) => Err([web.err(), tokens.err(), acts.err()].into_iter().flatten().collect()),
    }
}

/// Certificates that act are such that are verified.
fn some_caller_may_act(config: &Config, web: Option<&WebAccess>) -> Result<(), AccessError> {
    let verifies = web.is_some_and(|web| web.tls.as_ref().is_some_and(|tls| tls.verifies));
    match &config.web_config_file {
        Some(path) if !config.acting_certificates.is_empty() && !verifies => {
            Err(AccessError::Unverified { path: path.clone() })
        }
        _ => Ok(()),
    }
}

/// What stands before every request over TCP.
///
/// Concurrency: any task.
pub struct Gate {
    web: Option<WatchedFiles<WebAccess, AccessError>>,
    tokens: Option<WatchedFiles<Tokens, AccessError>>,
    passwords: Passwords,
    /// Names of certificates whose owners may act; `*`: of each that was verified.
    acting: Vec<String>,
    bucket: Mutex<RateBucket>,
    metrics: Arc<Metrics>,
}

/// A connection over TCP: what is known of who made it before it asks.
#[derive(Clone, Default)]
pub(super) struct ConnectionIdentity {
    /// `None`: plain HTTP.
    web: Option<Arc<WebAccess>>,
    /// By a certificate that was verified.
    operates: bool,
    /// Of the Unix socket: the user.
    uid: Option<u32>,
}

impl ConnectionIdentity {
    /// Of the Unix socket.
    pub(super) fn of_user(uid: Option<u32>) -> ConnectionIdentity {
        ConnectionIdentity { uid, ..ConnectionIdentity::default() }
    }
    pub(super) fn uid(&self) -> Option<u32> {
        self.uid
    }
    pub(super) fn is_secured(&self) -> bool {
        self.web.is_some()
    }
    /// By what it was shown.
    pub(super) fn is_called(&self, host: &str) -> bool {
        let secured = self.web.as_ref().and_then(|web| web.tls.as_ref());
        secured.is_some_and(|secured| secured.is_called(host))
    }
}

/// The caller over TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TcpCaller {
    /// Gets what `telemetry.public` allows.
    Reader,
    /// Gets what the Unix socket gives.
    Operator { by_certificate: bool },
}

/// Tokens of `rate_limit`: as many as its burst at first, and one more each interval.
struct RateBucket {
    left: f64,
    since: Option<Instant>,
}

impl RateBucket {
    fn takes(&mut self, (interval, burst): (Duration, u32), now: Instant) -> bool {
        let come = self.since.map_or(f64::from(burst), |since| {
            now.saturating_duration_since(since).as_secs_f64() / interval.as_secs_f64()
        });
        self.since = Some(now);
        self.left = (self.left + come).min(f64::from(burst));
        let takes = self.left >= 1.0;
        self.left -= if takes { 1.0 } else { 0.0 };
        takes
    }
}

impl Gate {
    /// Reads the files. Errors: what is wrong in one of them, with its place.
    pub fn open(config: &Config, metrics: &Arc<Metrics>) -> Result<Gate, AccessError> {
        let web = config.web_config_file.clone().map(|path| {
            let read = move |files: &mut FileStamps, before: Option<&WebAccess>| WebAccess::read(&path, files, before);
            WatchedFiles::begin(AccessFile::WebConfig, Arc::clone(metrics), read)
        });
        let tokens = config.token_file.clone().map(|path| {
            let read = move |files: &mut FileStamps, _: Option<&Tokens>| Tokens::read(&path, files);
            // Without the file no token is valid.
            Ok::<_, AccessError>(
                WatchedFiles::begin(AccessFile::Tokens, Arc::clone(metrics), read)?.fallback_to(Tokens::none()?),
            )
        });
        let gate = Gate {
            web: web.transpose()?,
            tokens: tokens.transpose()?,
            passwords: Passwords::new()?,
            acting: config.acting_certificates.clone(),
            bucket: Mutex::new(RateBucket { left: 0.0, since: None }),
            metrics: Arc::clone(metrics),
        };
        some_caller_may_act(config, gate.web().as_deref())?;
        for warning in gate.web().iter().flat_map(|web| &web.warnings) {
            let (file, line, why) = (&warning.file, warning.line, &warning.message);
            tracing::warn!(
                file,
                line,
                why,
                "the web configuration has entries without effect, or not for every client"
            );
        }
        Ok(gate)
    }

    fn web(&self) -> Option<Arc<WebAccess>> {
        self.web.as_ref().map(WatchedFiles::current)
    }
    /// `None`: plain HTTP is spoken.
    pub(super) fn tls(&self) -> Option<(Arc<ServerConfig>, Arc<WebAccess>)> {
        let web = self.web()?;
        let config = Arc::clone(&web.tls.as_ref()?.config);
        Some((config, web))
    }
    pub fn speaks_tls(&self) -> bool {
        self.web().is_some_and(|web| web.tls.is_some())
    }

    /// Of a connection whose handshake is over. `shown`: the certificate of the client.
    pub(super) fn guest(&self, web: Arc<WebAccess>, shown: Option<&CertificateDer<'_>>) -> ConnectionIdentity {
        let verified = shown.filter(|_| web.tls.as_ref().is_some_and(|tls| tls.verifies));
        let operates = verified.is_some_and(|certificate| {
            let is_named = |name: &String| self.acting.contains(name);
            self.acting.iter().any(|name| name == "*") || tls::names_of(certificate).iter().any(is_named)
        });
        ConnectionIdentity { web: Some(web), operates, uid: None }
    }

    /// What stands on each answer over TCP.
    pub(super) fn headers(&self) -> Vec<(HeaderName, HeaderValue)> {
        self.web().map(|web| web.headers.clone()).unwrap_or_default()
    }

    /// How to say who one is, in the words of the header WWW-Authenticate.
    pub(super) fn challenge(&self) -> &'static str {
        match self.web() {
            Some(web) if !web.users.is_empty() => "Basic realm=\"allostat\", charset=\"UTF-8\"",
            _ => "Bearer realm=\"allostat\"",
        }
    }

    /// The caller. `from_here`: both ends are on this host's loopback.
    ///
    /// Errors: why it is not let in.
    pub(super) async fn who(
        &self,
        guest: &ConnectionIdentity,
        headers: &HeaderMap,
        from_here: bool,
    ) -> Result<TcpCaller, ApiError> {
        let web = self.web();
        let web = web.as_deref();
        if let Some(rate) = web.and_then(|web| web.rate)
            && !lock(&self.bucket).takes(rate, Instant::now())
        {
            let message = "more requests than rate_limit of the web configuration allows; try again later";
            return Err(refused(AccessRefusal::RateLimit, message));
        }
        if headers.get_all(AUTHORIZATION).iter().count() > 1 {
            return Err(refused(
                AccessRefusal::NoCredentials,
                "a request has one Authorization header, this one has more",
            ));
        }
        let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given.and_then(|text| text.trim().split_once(' '));
        if let (Some((scheme, token)), Some(tokens)) = (given, &self.tokens)
            && scheme.eq_ignore_ascii_case("bearer")
        {
            if !guest.is_secured() && !from_here {
                let message = "this token came as plain text, so others may have read it: make another one, and use it \
                               over https";
                return Err(refused(AccessRefusal::TokenInClear, message));
            }
            return match tokens.current().has(token.trim()) {
                true => Ok(TcpCaller::Operator { by_certificate: false }),
                false => Err(refused(AccessRefusal::WrongToken, "this token is none of the agent's")),
            };
        }
        if guest.operates {
            return Ok(TcpCaller::Operator { by_certificate: true });
        }
        let Some(users) = web.map(|web| &web.users).filter(|users| !users.is_empty()) else {
            return Ok(TcpCaller::Reader);
        };
        let Some((user, password)) = given.and_then(basic) else {
            return Err(refused(
                AccessRefusal::NoCredentials,
                "a user and a password are wanted: basic authentication",
            ));
        };
        match self.passwords.are_right(users, &user, &password).await {
            true => Ok(TcpCaller::Reader),
            false => Err(refused(AccessRefusal::WrongPassword, "user or password is wrong")),
        }
    }

    /// One was not let in: counted, and logged at a bounded rate.
    pub(super) fn count(&self, reason: AccessRefusal, peer: std::net::SocketAddr, why: &str) {
        self.metrics.access.refused(reason);
        tracing::warn!(%peer, reason = reason.as_str(), why, "a request was refused");
    }
}

/// User and password of basic authentication.
fn basic((scheme, encoded): (&str, &str)) -> Option<(String, String)> {
    let encoded = Some(encoded.trim()).filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    let text = String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

fn refused(reason: AccessRefusal, message: &str) -> ApiError {
    let code = match reason {
        AccessRefusal::RateLimit => Code::TooManyRequests,
        AccessRefusal::TokenInClear => Code::TokenInClear,
        _ => Code::Unauthorized,
    };
    ApiError::new(code, message).because(reason)
}
