//! The name in the subject of a certificate: what `openssl req -x509 -subj /CN=HOST` makes has no other one.

use std::net::IpAddr;

use rustls::pki_types::{CertificateDer, ServerName};

/// The CN of a certificate without a subjectAltName. `None`: it has a subjectAltName, whatever that contains, not
/// exactly one CN, or cannot be read.
///
/// Trust boundary: bytes of a peer.
pub fn subject_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    if !matches!(parsed.subject_alternative_name(), Ok(None)) {
        return None;
    }
    let mut names = parsed.subject().iter_common_name();
    match (names.next(), names.next()) {
        (Some(one), None) => one.as_str().ok().map(str::to_owned),
        _ => None,
    }
}

/// Whether the name in a subject is this host: the whole name, or the address. A wildcard matches nothing.
pub fn is_host(subject: &str, host: &ServerName<'_>) -> bool {
    match host {
        ServerName::DnsName(name) => name.as_ref().trim_end_matches('.').eq_ignore_ascii_case(subject),
        ServerName::IpAddress(address) => subject.parse::<IpAddr>().is_ok_and(|own| own == IpAddr::from(*address)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subject_is_a_host_by_its_whole_name_or_address_alone() {
        let host = |name: &'static str| ServerName::try_from(name).unwrap();
        for (subject, name, expected) in [
            ("agent.example", "agent.example", true),
            ("AGENT.example", "agent.EXAMPLE", true),
            ("agent.example", "agent.example.", true),
            ("example", "agent.example", false),
            ("agent.example", "example", false),
            ("*.example", "agent.example", false),
            ("*", "agent.example", false),
            ("", "agent.example", false),
            ("agent.example\0.evil", "agent.example", false),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.11", false),
            ("0:0:0:0:0:0:0:1", "::1", true),
            ("127.0.0.1", "agent.example", false),
            ("agent.example", "127.0.0.1", false),
        ] {
            assert_eq!(is_host(subject, &host(name)), expected, "{subject} {name}");
        }
    }
}
