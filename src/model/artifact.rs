//! The `artifact` stanza of a task, and what its `source` means: go-getter's addresses, as Nomad reads them.
//!
//! ```text
//! [getter::]scheme://[user:password@]host[:port]/path[//subdirectory][?archive=..&checksum=..&...]
//! github.com/org/repo   gitlab.com/org/repo   bitbucket.org/org/repo   git@host:path     repositories of git
//! ```
//! Source: go-getter's `client.go`, `source.go` and `detect_*.go`; Nomad's `client/allocrunner/taskrunner/getter`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::archive::ArchiveFormat;
use super::checksum::ChecksumSource;
use super::words;

/// Something that is fetched before a task starts for the first time. Its texts are templates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskArtifact {
    pub source: String,
    /// A path below the task's directory or the alloc's shared one.
    pub destination: String,
    #[serde(default)]
    pub mode: ArtifactMode,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The certificate of the server is not verified.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
}

words! {
    /// What `destination` is.
    #[derive(Default)]
    pub enum ArtifactMode {
        /// A directory: archives are unpacked into it, a file keeps its name in it.
        #[default]
        Any = "any",
        /// A file.
        File = "file",
        /// A directory, and only archives and repositories are directories.
        Dir = "dir",
    }
}

/// A source whose references are resolved.
#[derive(Clone, PartialEq, Eq)]
pub struct ArtifactSource {
    pub from: ArtifactOrigin,
    /// The directory in the archive or repository that is meant.
    pub subdirectory: Option<String>,
    pub archive: Option<ArchiveFormat>,
    pub checksum: Option<ChecksumSource>,
    /// The name of a file in mode `any`; `None`: the last component of its path.
    pub filename: Option<String>,
}

#[derive(Clone, PartialEq, Eq)]
pub enum ArtifactOrigin {
    /// `http` or `https`, with its credentials and its query.
    Http(String),
    Git(GitSource),
}

#[derive(Clone, PartialEq, Eq)]
pub struct GitSource {
    pub url: String,
    /// A branch, a tag or a commit.
    pub reference: Option<String>,
    pub depth: Option<u32>,
    /// A private key, base64.
    pub ssh_key: Option<String>,
}

impl ArtifactSource {
    /// Errors: it cannot be fetched, in a sentence that contains no credentials.
    pub fn parse(source: &str, options: &BTreeMap<String, String>) -> Result<ArtifactSource, String> {
        let (forced, address) = forced_getter(source.trim());
        let (address, mut subdirectory) = split_subdirectory(address);
        let (getter, address) = detect(forced, &address)?;
        // What is detected may have one as well.
        let (address, inner) = if getter == Getter::Git { split_subdirectory(&address) } else { (address, None) };
        if subdirectory.is_none() {
            subdirectory = inner;
        }
        if subdirectory.as_deref().is_some_and(|sub| sub.split('/').any(|part| part == "..")) {
            return Err("the subdirectory of its source has a component `..`".to_owned());
        }
        let mut url = Url::split(&address);
        for (key, value) in options {
            url.set(key, value);
        }
        let checksum = match url.take("checksum") {
            Some(text) => Some(ChecksumSource::parse(&text)?),
            None => None,
        };
        let archive = match url.take("archive") {
            Some(text) => ArchiveFormat::of_word(&text),
            None => ArchiveFormat::of_path(&url.path()),
        };
        let from = match getter {
            Getter::Http => {
                let filename = url.take("filename");
                let from = ArtifactOrigin::Http(url.to_text());
                return Ok(ArtifactSource { from, subdirectory, archive, checksum, filename });
            }
            Getter::Git => ArtifactOrigin::Git(GitSource::of(url)?),
        };
        if checksum.is_some() {
            return Err("a repository has no checksum: give `ref` the hash of a commit".to_owned());
        }
        Ok(ArtifactSource { from, subdirectory, archive: None, checksum, filename: None })
    }

    /// For people: without credentials and query.
    pub fn shown(&self) -> String {
        match &self.from {
            ArtifactOrigin::Http(url) => redacted(url),
            ArtifactOrigin::Git(git) => redacted(&git.url),
        }
    }

    /// The name of the file that it is, in mode `any`.
    pub fn name(&self) -> Option<String> {
        let ArtifactOrigin::Http(url) = &self.from else { return None };
        let name = self.filename.clone().or_else(|| {
            let path = Url::split(url).path();
            path.rsplit('/').next().map(decoded)
        })?;
        let name = name.rsplit('/').next().unwrap_or_default().to_owned();
        (!name.is_empty() && name != "." && name != ".." && !name.contains('\0')).then_some(name)
    }
}

impl GitSource {
    fn of(mut url: Url) -> Result<GitSource, String> {
        let reference = url.take("ref").filter(|text| !text.is_empty());
        // What begins with `-` would be an option of git.
        if reference.as_deref().is_some_and(|text| text.starts_with('-')) {
            return Err("its `ref` begins with `-`".to_owned());
        }
        let depth = match url.take("depth").filter(|text| !text.is_empty()) {
            Some(text) => Some(text.parse().map_err(|_| format!("its `depth` {text:?} is no whole number"))?),
            None => None,
        };
        let ssh_key = url.take("sshkey").filter(|text| !text.is_empty());
        Ok(GitSource { url: url.to_text(), reference, depth: depth.filter(|depth| *depth > 0), ssh_key })
    }
}

/// An address without user, password, query and fragment.
pub fn redacted(url: &str) -> String {
    let shown = url.split(['?', '#']).next().unwrap_or_default();
    match shown.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let host = authority.rsplit('@').next().unwrap_or_default();
            format!("{scheme}://{host}{path}")
        }
        None => shown.rsplit('@').next().unwrap_or_default().to_owned(),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Getter {
    Http,
    Git,
}

fn forced_getter(source: &str) -> (Option<&str>, &str) {
    match source.split_once("::") {
        Some((name, rest)) if !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric()) => (Some(name), rest),
        _ => (None, source),
    }
}

/// Which getter, and its whole address.
fn detect(forced: Option<&str>, address: &str) -> Result<(Getter, String), String> {
    const NO_OBJECTS: &str = "object stores (`s3`, `gcs`) are not supported: use their https address";
    let scheme = address.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    if scheme.is_none() && forced.is_none_or(|name| name == "git") {
        for host in ["github.com/", "gitlab.com/", "bitbucket.org/"] {
            if let Some(path) = address.strip_prefix(host) {
                return hosted(host, path).map(|url| (Getter::Git, url));
            }
        }
        if address.contains(".amazonaws.com/") || address.starts_with("www.googleapis.com/") {
            return Err(NO_OBJECTS.to_owned());
        }
        if let Some(url) = of_ssh(forced.is_some(), address) {
            return Ok((Getter::Git, url));
        }
    }
    let schemes = |name: &str| format!("sources of `{name}` are not supported: http, https and git are");
    match (forced, scheme.as_deref()) {
        (Some("s3" | "gcs"), _) | (None, Some("s3" | "gcs")) => Err(NO_OBJECTS.to_owned()),
        (Some("git"), Some("http" | "https" | "ssh")) => Ok((Getter::Git, address.to_owned())),
        (Some("git"), Some(other)) => Err(format!("git fetches over https, http and ssh, not over `{other}`")),
        (None | Some("http" | "https"), Some("http" | "https")) => Ok((Getter::Http, address.to_owned())),
        (None, Some("git")) => Err("git fetches over https, http and ssh, not over `git`".to_owned()),
        (None, Some("ssh")) => Err("over ssh only git fetches: write git::ssh://...".to_owned()),
        (Some("http" | "https"), Some(other)) | (None, Some(other)) => Err(schemes(other)),
        (Some("git"), None) | (None, None) => {
            Err("its source names no server: write https://..., git::https://... or github.com/...".to_owned())
        }
        (Some("http" | "https"), None) => Err("its source has no scheme: write https://...".to_owned()),
        (Some(other), _) => Err(schemes(other)),
    }
}

/// `org/repo[/more][?query]`
fn hosted(host: &str, path: &str) -> Result<String, String> {
    let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    let mut parts = path.splitn(3, '/');
    let (Some(owner), Some(repository)) = (parts.next(), parts.next().filter(|name| !name.is_empty())) else {
        return Err(format!("a repository there is {host}OWNER/NAME"));
    };
    let repository = repository.strip_suffix(".git").unwrap_or(repository);
    let more = parts.next().map(|more| format!("//{more}")).unwrap_or_default();
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    Ok(format!("https://{host}{owner}/{repository}.git{more}{query}"))
}

/// `git@host:path` is `ssh://git@host/path`. Without a user only where git is forced.
fn of_ssh(forced: bool, address: &str) -> Option<String> {
    // `ext::...` is a helper program of git.
    let (host, path) = address.split_once(':').filter(|(_, path)| !path.starts_with(':'))?;
    let is_host = |host: &str| !host.is_empty() && !host.contains(['/', '?', '#', ' ']);
    let user_and_host = match host.split_once('@') {
        Some((user, host)) if !user.is_empty() && is_host(host) => format!("{user}@{host}"),
        None if forced && is_host(host) => format!("git@{host}"),
        _ => return None,
    };
    let path = path.trim_start_matches('/');
    (!path.is_empty()).then(|| format!("ssh://{user_and_host}/{path}"))
}

/// The address, and what stands behind `//` in its path.
fn split_subdirectory(source: &str) -> (String, Option<String>) {
    let stop = source.find('?').unwrap_or(source.len());
    let (path, query) = source.split_at(stop);
    let begin = path.find("://").map_or(0, |at| at + 3);
    match path.get(begin..).and_then(|rest| rest.find("//")) {
        Some(at) => {
            let (before, after) = path.split_at(begin + at);
            let subdirectory = after.trim_start_matches('/').trim_end_matches('/').to_owned();
            (format!("{before}{query}"), Some(subdirectory).filter(|text| !text.is_empty()))
        }
        None => (source.to_owned(), None),
    }
}

/// An address and the pairs of its query. A caller can remove a pair.
struct Url {
    before: String,
    /// As they are written.
    query: Vec<(String, Option<String>)>,
}

impl Url {
    fn split(address: &str) -> Url {
        let address = address.split('#').next().unwrap_or_default();
        let (before, query) = address.split_once('?').unwrap_or((address, ""));
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| match pair.split_once('=') {
            Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
            None => (pair.to_owned(), None),
        });
        Url { before: before.to_owned(), query: pairs.collect() }
    }
    fn path(&self) -> String {
        let rest = self.before.split_once("://").map_or(self.before.as_str(), |(_, rest)| rest);
        rest.split_once('/').map(|(_, path)| path.to_owned()).unwrap_or_default()
    }
    fn set(&mut self, key: &str, value: &str) {
        self.query.retain(|(name, _)| decoded(name) != key);
        self.query.push((encoded(key), Some(encoded(value))));
    }
    fn take(&mut self, key: &str) -> Option<String> {
        let at = self.query.iter().position(|(name, _)| decoded(name) == key)?;
        let (_, value) = self.query.remove(at);
        self.query.retain(|(name, _)| decoded(name) != key);
        Some(decoded(&value.unwrap_or_default()).trim().to_owned())
    }
    fn to_text(&self) -> String {
        let pair = |(key, value): &(String, Option<String>)| match value {
            Some(value) => format!("{key}={value}"),
            None => key.clone(),
        };
        let query: Vec<String> = self.query.iter().map(pair).collect();
        if query.is_empty() { self.before.clone() } else { format!("{}?{}", self.before, query.join("&")) }
    }
}

/// Of a query: `+` is a space, `%41` is `A`. What is no UTF-8 stays as it is written.
fn decoded(text: &str) -> String {
    let hex =
        |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16)).and_then(|d| u8::try_from(d).ok());
    let bytes = text.as_bytes();
    let (mut plain, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        match (byte, hex(bytes.get(at + 1)), hex(bytes.get(at + 2))) {
            (b'%', Some(high), Some(low)) => {
                plain.push(high << 4 | low);
                at += 3;
                continue;
            }
            (b'+', _, _) => plain.push(b' '),
            (other, _, _) => plain.push(*other),
        }
        at += 1;
    }
    String::from_utf8(plain).unwrap_or_else(|_| text.to_owned())
}

fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let one = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(one).collect()
}

#[cfg(test)]
#[path = "artifact_tests.rs"]
mod tests;
