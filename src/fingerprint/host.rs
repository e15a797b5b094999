//! The host's name, kernel and distribution. Source: uname(2); os-release(5).

use std::time::Duration;

use super::{EACH_MINUTE, FingerprintError, FingerprintRequest, Fingerprinter, if_exists, read};
use crate::model::attribute::Attribute;
use crate::model::attributes::{AttributeDiff, HostAttribute};

pub struct HostFingerprinter;

impl Fingerprinter for HostFingerprinter {
    fn name(&self) -> &'static str {
        "host"
    }
    /// A host may be renamed, and a distribution brought up to date.
    fn period(&self) -> Option<Duration> {
        EACH_MINUTE
    }
    fn fingerprint(&self, request: &FingerprintRequest) -> Result<AttributeDiff, FingerprintError> {
        let uname = rustix::system::uname();
        let text = |c: &std::ffi::CStr| c.to_string_lossy().into_owned();
        let mut release = if_exists(read(request.roots.file("/etc/os-release")))?;
        if release.is_none() {
            release = if_exists(read(request.roots.file("/usr/lib/os-release")))?;
        }
        let release = release.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        Ok(AttributeDiff::default()
            .with(HostAttribute::KernelName, Some(text(uname.sysname()).to_lowercase().into()))
            .with(HostAttribute::KernelVersion, Some(text(uname.release()).into()))
            .with(HostAttribute::OsName, of(&release, "ID"))
            .with(HostAttribute::OsVersion, of(&release, "VERSION_ID"))
            .with(HostAttribute::UniqueHostname, Some(text(uname.nodename()).into())))
    }
}

/// The value of a key: bare, or in quotes in which a backslash makes the next character itself. The last one counts.
fn of(release: &str, key: &str) -> Option<Attribute> {
    let lines = release.lines().map(str::trim).filter_map(|line| line.split_once('='));
    let (_, value) = lines.rev().find(|(found, _)| *found == key)?;
    let quoted = ['"', '\''].iter().find_map(|q| value.strip_prefix(*q)?.strip_suffix(*q));
    let mut escaped = false;
    let plain = quoted.unwrap_or(value).chars().filter(|c| {
        escaped = *c == '\\' && !escaped;
        !escaped
    });
    Some(plain.collect::<String>().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_bare_or_in_quotes_and_what_is_not_there_is_absent() {
        let text = "NAME=\"A B\"\n# ID=no\nID=old\nID=debian\nVERSION_ID='12'\nODD=\"a \\\"b\\\" \\\\ \\$c\"\nHALF=\"x\nEMPTY=\n";
        let message = |key: &str| of(text, key).map(|value| value.bare());
        assert_eq!(message("ID").as_deref(), Some("debian"));
        assert_eq!(message("VERSION_ID").as_deref(), Some("12"));
        assert_eq!(message("ODD").as_deref(), Some("a \"b\" \\ $c"));
        assert_eq!(message("HALF").as_deref(), Some("\"x"));
        assert_eq!(message("EMPTY").as_deref(), Some(""));
        assert_eq!(message("VERSION"), None);
    }
}
