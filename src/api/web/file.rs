//! Prometheus's web configuration file: its text becomes what it means, or every problem in it with its place. Pure.
//!
//! Source: exporter-toolkit, docs/web-configuration.md and web/tls_config.go. What it reads and we cannot do is refused
//! by name.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue};
use rustls::crypto::SupportedKxGroup;
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};

use super::suites;
use super::yaml::{YamlContent, YamlKey, YamlNode, tree};
use crate::jobspec::diagnostic::{Diagnostic, Diagnostics, Problems, Severity, SourceText, Span, quote};
use crate::jobspec::quantity::parse_duration;
use crate::model::nearest::nearest;
use crate::model::words;

/// The fields at its top: what distinguishes it from other files.
pub const WEB_FIELDS: [&str; 4] = ["tls_server_config", "http_server_config", "basic_auth_users", "rate_limit"];

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(super) struct SpannedValue<T> {
    pub value: T,
    pub span: Span,
}

/// What it says. Files are named relative to it, and not read yet.
#[derive(Debug, Default)]
pub(super) struct WebFile {
    /// `None`: plain HTTP.
    pub tls: Option<TlsServer>,
    /// On each answer.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// bcrypt hashes by user; none: no client needs a password.
    pub users: BTreeMap<String, String>,
    /// So long for one more request, and so many at once.
    pub rate: Option<(Duration, u32)>,
    pub warnings: Vec<Diagnostic>,
}

words! {
    /// Who must show a certificate, in Go's words.
    #[derive(Default)]
    pub enum ClientAuth {
        #[default]
        No = "NoClientCert",
        /// Requested, and not verified.
        Request = "RequestClientCert",
        /// Any will do, as long as its key is there.
        RequireAny = "RequireAnyClientCert",
        VerifyIfGiven = "VerifyClientCertIfGiven",
        RequireAndVerify = "RequireAndVerifyClientCert",
    }
}

impl ClientAuth {
    /// Whether what was shown was signed by an authority of ours.
    pub fn verifies(self) -> bool {
        matches!(self, ClientAuth::VerifyIfGiven | ClientAuth::RequireAndVerify)
    }
    pub fn requires(self) -> bool {
        matches!(self, ClientAuth::RequireAny | ClientAuth::RequireAndVerify)
    }
}

/// PEM, in a file or in this one.
#[derive(Debug, Clone)]
pub(super) enum Pem {
    File(PathBuf),
    Inline(String),
}

#[derive(Debug)]
pub(super) struct TlsServer {
    pub certificate: SpannedValue<Pem>,
    pub key: SpannedValue<Pem>,
    pub client_auth: ClientAuth,
    pub client_authorities: Option<SpannedValue<Pem>>,
    /// Exact names; a client's certificate must have one of them.
    pub allowed_names: Option<Vec<String>>,
    pub versions: Vec<&'static SupportedProtocolVersion>,
    pub suites: Vec<SupportedCipherSuite>,
    pub groups: Vec<&'static dyn SupportedKxGroup>,
    pub prefers_own_order: bool,
}

/// Errors: every problem of the file, with secrets made unreadable.
pub(super) fn web_file(path: &Path, source: &SourceText) -> Result<WebFile, Diagnostics> {
    let root = match tree(source.text()) {
        Ok(root) => root,
        Err(error) => {
            let mut problem = source.diagnostic(Severity::Error, &error.span, "", error.message);
            close(&mut problem);
            return Err(Diagnostics(vec![problem]));
        }
    };
    let problems = Problems::new(source);
    let directory = path.parent().unwrap_or(Path::new(""));
    let reader = Reader { problems: &problems, directory, secrets: RefCell::default() };
    let mut read = reader.file(&root);
    let secrets = reader.secrets.into_inner();
    let (mut errors, mut warnings) = problems.into_parts();
    errors.0.iter_mut().chain(&mut warnings).for_each(|problem| hide(problem, source, &secrets));
    if !errors.0.is_empty() {
        return Err(errors);
    }
    read.warnings = warnings;
    Ok(read)
}

/// Where it is not known what of the line is a secret.
fn close(problem: &mut Diagnostic) {
    let shown = problem.source_line.find(':').map_or(0, |at| at + 1);
    problem.source_line = format!("{}…", &problem.source_line[..shown]);
}

/// What is wrong with what it names, said with the place that names it.
pub(super) fn problem_of(source: &SourceText, pem: &SpannedValue<Pem>, field: &str, message: String) -> Diagnostics {
    let mut problem = source.diagnostic(Severity::Error, &pem.span, field, message);
    if let Pem::Inline(_) = pem.value {
        close(&mut problem);
    }
    Diagnostics(vec![problem])
}

/// A problem goes to a log and a terminal; the line that it shows may hold a password that a user forgot to hash.
fn hide(problem: &mut Diagnostic, source: &SourceText, secrets: &[Span]) {
    let line = problem.line;
    let is_secret = |at: usize| secrets.iter().any(|secret| secret.contains(&at));
    let start: usize = source.text().split_inclusive('\n').take(line - 1).map(str::len).sum();
    let masked = problem.source_line.char_indices();
    let masked = masked.map(|(at, c)| if is_secret(start + at) && !c.is_whitespace() { '*' } else { c });
    problem.source_line = masked.collect();
}

struct Reader<'p> {
    problems: &'p Problems<'p>,
    directory: &'p Path,
    /// What no line that is shown may say.
    secrets: RefCell<Vec<Span>>,
}

impl Reader<'_> {
    fn error(&self, span: &Span, field: &str, message: impl Into<String>) {
        self.problems.error(span, field, message, None);
    }

    /// What stands in a mapping; what is unknown, there twice or no mapping is a problem.
    fn fields<'n>(&self, node: &'n YamlNode, path: &str, known: &[&str]) -> BTreeMap<&'n str, &'n YamlNode> {
        let mut found = BTreeMap::new();
        for (key, value) in self.entries(node, path) {
            let field = joined(path, &key.text);
            if !known.contains(&key.text.as_str()) {
                let near = nearest(&key.text, known.iter().copied());
                let advice = near
                    .map_or_else(|| format!("there are {}", known.join(", ")), |near| format!("did you mean {near}?"));
                let message = format!("there is no field {} here", quote(&key.text));
                self.problems.error(&key.span, &field, message, Some(advice));
                // Perhaps that of a password, misspelt.
                self.secrets.borrow_mut().push(value.span.clone());
            } else if found.insert(key.text.as_str(), value).is_some() {
                self.error(&key.span, &field, format!("{} is there twice", key.text));
            }
        }
        found
    }

    fn entries<'n>(&self, node: &'n YamlNode, path: &str) -> &'n [(YamlKey, YamlNode)] {
        match &node.content {
            YamlContent::Null => &[],
            YamlContent::Map(entries) => entries,
            other => {
                self.error(&node.span, path, format!("fields are wanted here, this is {}", other.kind()));
                &[]
            }
        }
    }

    fn text<'n>(&self, node: &'n YamlNode, field: &str) -> Option<&'n str> {
        match &node.content {
            // As Go reads it: what is empty is not there.
            YamlContent::Null => None,
            YamlContent::Scalar { text, .. } => Some(text.as_str()).filter(|text| !text.is_empty()),
            other => {
                self.error(&node.span, field, format!("text is wanted here, this is {}", other.kind()));
                None
            }
        }
    }

    fn bool(&self, node: &YamlNode, field: &str) -> Option<bool> {
        match &node.content {
            YamlContent::Null => return None,
            YamlContent::Scalar { text, is_plain: true } => match text.to_lowercase().as_str() {
                "true" | "yes" | "on" => return Some(true),
                "false" | "no" | "off" => return Some(false),
                _ => {}
            },
            _ => {}
        }
        self.error(&node.span, field, "true or false is wanted here");
        None
    }

    /// Each with its place.
    fn texts<'n>(&self, node: Option<&'n YamlNode>, field: &str) -> Option<Vec<(&'n str, &'n Span)>> {
        let node = node?;
        let items = match &node.content {
            YamlContent::Null => return None,
            YamlContent::List(items) => items,
            other => {
                self.error(&node.span, field, format!("a list is wanted here, this is {}", other.kind()));
                return None;
            }
        };
        let mut all = Vec::new();
        for (i, item) in items.iter().enumerate() {
            let field = format!("{field}[{i}]");
            match self.text(item, &field) {
                Some(text) => all.push((text, &item.span)),
                None if matches!(item.content, YamlContent::List(_) | YamlContent::Map(_)) => {}
                None => self.error(&item.span, &field, "an element of the list is empty"),
            }
        }
        Some(all)
    }

    fn file(&self, root: &YamlNode) -> WebFile {
        let top = self.fields(root, "", &WEB_FIELDS);
        let [tls, http, users, rate] = WEB_FIELDS.map(|name| top.get(name).copied());
        WebFile {
            users: users.map(|node| self.users(node)).unwrap_or_default(),
            tls: tls.and_then(|node| self.tls(node)),
            headers: http.map(|node| self.http(node)).unwrap_or_default(),
            rate: rate.and_then(|node| self.rate(node)),
            warnings: Vec::new(),
        }
    }

    fn users(&self, node: &YamlNode) -> BTreeMap<String, String> {
        let mut users = BTreeMap::new();
        for (key, value) in self.entries(node, "basic_auth_users") {
            self.secrets.borrow_mut().push(value.span.clone());
            let field = joined("basic_auth_users", &key.text);
            let hash = self.text(value, &field).map(str::to_owned);
            let Some(hash) = hash else {
                self.error(&key.span, &field, format!("{} has no hash of a password", quote(&key.text)));
                continue;
            };
            if key.text.contains(':') || key.text.chars().any(char::is_control) {
                self.error(
                    &key.span,
                    &field,
                    "a user's name has no colon and no control characters: none could be sent",
                );
            } else if let Err(why) = hash_works(&hash) {
                let message = format!("the password of {} is no hash of bcrypt: {why}", quote(&key.text));
                let advice =
                    "`htpasswd -nBC 10 \"\" | tr -d ':\\n'` prompts for a password and prints its hash".to_owned();
                self.problems.error(&key.span, &field, message, Some(advice));
            } else if users.insert(key.text.clone(), hash).is_some() {
                self.error(&key.span, &field, format!("{} is there twice", quote(&key.text)));
            }
        }
        users
    }

    fn http(&self, node: &YamlNode) -> Vec<(HeaderName, HeaderValue)> {
        const FIELD: &str = "http_server_config";
        let fields = self.fields(node, FIELD, &["http2", "headers"]);
        if let Some(http2) = fields.get("http2")
            && self.bool(http2, "http_server_config.http2") == Some(true)
        {
            let message = "HTTP/2 is not spoken here: every client speaks HTTP/1.1 instead, as TLS lets it choose";
            self.problems.warn(&http2.span, "http_server_config.http2", message, None);
        }
        let mut headers = Vec::new();
        let Some(node) = fields.get("headers") else { return headers };
        let known: Vec<&str> = HEADERS.iter().map(|(name, _)| *name).collect();
        let path = joined(FIELD, "headers");
        for (name, value) in self.fields(node, &path, &known) {
            let field = joined(&path, name);
            let Some(text) = self.text(value, &field) else { continue };
            let allowed = HEADERS.iter().find(|(known, _)| *known == name).map_or(&[] as &[&str], |(_, all)| all);
            if !allowed.is_empty() && !allowed.contains(&text) {
                let message = format!("{name} cannot be {}: it is {}", quote(text), allowed.join(" or "));
                self.error(&value.span, &field, message);
            } else if let (Ok(name), Ok(text)) = (HeaderName::try_from(name), HeaderValue::try_from(text)) {
                headers.push((name, text));
            } else {
                self.error(&value.span, &field, "that cannot stand in a header: it is one line of visible characters");
            }
        }
        headers
    }

    fn rate(&self, node: &YamlNode) -> Option<(Duration, u32)> {
        let fields = self.fields(node, "rate_limit", &["interval", "burst"]);
        let interval = fields.get("interval").and_then(|value| {
            let text = self.text(value, "rate_limit.interval")?;
            let read = parse_duration(text);
            let wrong = |error| {
                self.error(&value.span, "rate_limit.interval", format!("{} is no duration: {error}", quote(text)))
            };
            read.map_err(wrong).ok()
        });
        let burst = fields.get("burst").and_then(|value| {
            let text = self.text(value, "rate_limit.burst")?;
            let read = text.parse::<u32>().ok().filter(|burst| *burst > 0);
            if read.is_none() {
                self.error(&value.span, "rate_limit.burst", format!("{} is no whole number above 0", quote(text)));
            }
            read
        });
        let interval = interval.filter(|interval| !interval.is_zero())?;
        if burst.is_none() && !fields.contains_key("burst") {
            self.error(&node.span, "rate_limit.burst", "how many requests may come at once is missing: burst");
        }
        Some((interval, burst?))
    }

    fn tls(&self, node: &YamlNode) -> Option<TlsServer> {
        const FIELD: &str = "tls_server_config";
        const KNOWN: &[&str] = &[
            "cert",
            "key",
            "client_ca",
            "cert_file",
            "key_file",
            "client_auth_type",
            "client_ca_file",
            "client_allowed_sans",
            "min_version",
            "max_version",
            "cipher_suites",
            "prefer_server_cipher_suites",
            "curve_preferences",
        ];
        let fields = self.fields(node, FIELD, KNOWN);
        if fields.is_empty() {
            return None;
        }
        self.secrets.borrow_mut().extend(fields.get("key").map(|key| key.span.clone()));
        let get = |name: &str| fields.get(name).copied();
        let certificate = self.pem(get("cert_file"), get("cert"), "cert", Some(&node.span));
        let key = self.pem(get("key_file"), get("key"), "key", Some(&node.span));
        let client_authorities = self.pem(get("client_ca_file"), get("client_ca"), "client_ca", None);
        let client_auth = self.client_auth(get("client_auth_type"));
        let place = get("client_auth_type").unwrap_or(node);
        match &client_authorities {
            None if client_auth.verifies() => {
                let message = format!(
                    "client_ca_file is missing: {} requires client certificates of its authorities",
                    client_auth.as_str()
                );
                self.error(&place.span, "tls_server_config.client_ca_file", message);
            }
            Some(authorities) if client_auth == ClientAuth::No => {
                let message = "client certificates are not requested, so these authorities have no effect";
                let advice = "client_auth_type: RequireAndVerifyClientCert, or leave the authorities out".to_owned();
                self.problems.error(&authorities.span, "tls_server_config.client_ca_file", message, Some(advice));
            }
            _ => {}
        }
        let names = self.texts(get("client_allowed_sans"), "tls_server_config.client_allowed_sans");
        if let (Some(_), Some(list), false) = (&names, get("client_allowed_sans"), client_auth.requires()) {
            let message = "client_allowed_sans needs a certificate of everybody";
            let advice = "client_auth_type: RequireAndVerifyClientCert, or RequireAnyClientCert".to_owned();
            self.problems.error(&list.span, "tls_server_config.client_allowed_sans", message, Some(advice));
        }
        let versions = self.versions(get("min_version"), get("max_version"));
        let listed = self.texts(get("cipher_suites"), "tls_server_config.cipher_suites").unwrap_or_default();
        let suites = self.chosen(&listed, "cipher_suites", suites::cipher_suite);
        let listed = self.texts(get("curve_preferences"), "tls_server_config.curve_preferences").unwrap_or_default();
        let groups = self.chosen(&listed, "curve_preferences", suites::group);
        let prefers = get("prefer_server_cipher_suites");
        let prefers = prefers.and_then(|value| self.bool(value, "tls_server_config.prefer_server_cipher_suites"));
        let suites = suites::with_default_suites(suites);
        if let Some(place) = get("cipher_suites")
            && !suites.iter().any(|suite| versions.contains(&suite.version()))
        {
            let message = "none of these is of a version of TLS that min_version and max_version leave";
            self.error(&place.span, "tls_server_config.cipher_suites", message);
        }
        Some(TlsServer {
            certificate: certificate?,
            key: key?,
            client_auth,
            client_authorities,
            allowed_names: names.map(|all| all.into_iter().map(|(name, _)| name.to_owned()).collect()),
            versions,
            suites,
            groups: suites::with_default_groups(groups),
            prefers_own_order: prefers.unwrap_or(true),
        })
    }

    /// Of a file, or inline; as Go takes it, the file where both are there, which is refused here. `needed`: where it
    /// is missed.
    fn pem(
        &self,
        file: Option<&YamlNode>,
        inline: Option<&YamlNode>,
        name: &str,
        needed: Option<&Span>,
    ) -> Option<SpannedValue<Pem>> {
        let of_file = format!("{name}_file");
        let field = |name: &str| format!("tls_server_config.{name}");
        let text = |node: Option<&YamlNode>, name: &str| {
            let node = node?;
            Some((self.text(node, &field(name))?.to_owned(), node.span.clone()))
        };
        match (text(file, &of_file), text(inline, name)) {
            (Some((_, span)), Some(_)) => {
                self.error(
                    &span,
                    &field(&of_file),
                    format!("{of_file} and {name} are both there: one of them is wanted"),
                );
                None
            }
            (Some((path, span)), None) => Some(SpannedValue { value: Pem::File(self.directory.join(path)), span }),
            (None, Some((text, span))) => Some(SpannedValue { value: Pem::Inline(text), span }),
            (None, None) => {
                if let Some(span) = needed {
                    self.error(
                        span,
                        &field(&of_file),
                        format!("{of_file} is missing: TLS needs cert_file and key_file"),
                    );
                }
                None
            }
        }
    }

    fn client_auth(&self, node: Option<&YamlNode>) -> ClientAuth {
        const FIELD: &str = "tls_server_config.client_auth_type";
        let Some((node, text)) = node.and_then(|node| Some((node, self.text(node, FIELD)?))) else {
            return ClientAuth::default();
        };
        // An older word of the same format.
        let text = if text == "RequireClientCert" { ClientAuth::RequireAny.as_str() } else { text };
        ClientAuth::parse(text).unwrap_or_else(|| {
            let known = ClientAuth::ALL.map(ClientAuth::as_str);
            let advice = nearest(text, known)
                .map_or_else(|| format!("there are {}", known.join(", ")), |near| format!("did you mean {near}?"));
            let message = format!("{} is no policy for certificates of clients", quote(text));
            self.problems.error(&node.span, FIELD, message, Some(advice));
            ClientAuth::default()
        })
    }

    fn versions(&self, min: Option<&YamlNode>, max: Option<&YamlNode>) -> Vec<&'static SupportedProtocolVersion> {
        let read = |node: Option<&YamlNode>, name: &str, default: &str| {
            let field = format!("tls_server_config.{name}");
            let text = node.and_then(|node| self.text(node, &field)).unwrap_or(default);
            let found = suites::VERSIONS.iter().position(|(known, _)| *known == text);
            if let (None, Some(node)) = (found, node) {
                self.error(&node.span, &field, suites::no_version(text));
            }
            found
        };
        let (least, most) = (read(min, "min_version", "TLS12"), read(max, "max_version", "TLS13"));
        let (Some(least), Some(most)) = (least, most) else { return Vec::new() };
        if least > most
            && let Some(node) = max.or(min)
        {
            self.error(&node.span, "tls_server_config.max_version", "max_version is older than min_version");
        }
        suites::VERSIONS.get(least..=most).unwrap_or(&[]).iter().map(|(_, version)| *version).collect()
    }

    fn chosen<T>(&self, listed: &[(&str, &Span)], name: &str, find: fn(&str) -> Result<T, String>) -> Vec<T> {
        let mut all = Vec::new();
        for (i, (text, span)) in listed.iter().enumerate() {
            match find(text) {
                Ok(found) => all.push(found),
                Err(why) => self.error(span, &format!("tls_server_config.{name}[{i}]"), why),
            }
        }
        all
    }
}

/// What may be set, and to what; empty: to anything.
const HEADERS: [(&str, &[&str]); 5] = [
    ("Strict-Transport-Security", &[]),
    ("X-Content-Type-Options", &["nosniff"]),
    ("X-Frame-Options", &["deny", "sameorigin"]),
    ("X-XSS-Protection", &[]),
    ("Content-Security-Policy", &[]),
];

fn joined(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// A hash that is verified without an error, and in bearable time.
fn hash_works(hash: &str) -> Result<(), String> {
    /// 2^17 rounds take some ten seconds.
    const DEAREST: u32 = 16;
    let parts: bcrypt::HashParts = hash.parse().map_err(|error: bcrypt::BcryptError| error.to_string())?;
    match parts.get_cost() {
        4..=DEAREST => Ok(()),
        cost => Err(format!("its cost of {cost} is not between 4 and {DEAREST}; 10 is usual")),
    }
}
