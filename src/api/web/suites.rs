//! What Go calls the versions, cipher suites and curves of TLS, and which of them there are here. Pure.

use rustls::crypto::SupportedKxGroup;
use rustls::crypto::ring::{cipher_suite as suite, kx_group};
use rustls::version::{TLS12, TLS13};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};

use crate::jobspec::diagnostic::quote;

/// Oldest first.
pub(super) static VERSIONS: &[(&str, &SupportedProtocolVersion)] = &[("TLS12", &TLS12), ("TLS13", &TLS13)];

static SUITES: &[(&str, &SupportedCipherSuite)] = &[
    ("TLS_AES_128_GCM_SHA256", &suite::TLS13_AES_128_GCM_SHA256),
    ("TLS_AES_256_GCM_SHA384", &suite::TLS13_AES_256_GCM_SHA384),
    ("TLS_CHACHA20_POLY1305_SHA256", &suite::TLS13_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", &suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", &suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", &suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", &suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", &suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", &suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];

fn names<T>(all: &[(&'static str, T)]) -> String {
    all.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

pub(super) fn no_version(text: &str) -> String {
    match text {
        "TLS10" | "TLS11" => format!("{text} is not spoken here, it is broken: the oldest is TLS12"),
        _ => format!("{} is no version of TLS; there are {}", quote(text), names(VERSIONS)),
    }
}

/// Errors: why there is none, and which there are.
pub(super) fn cipher_suite(name: &str) -> Result<SupportedCipherSuite, String> {
    if let Some((_, suite)) = SUITES.iter().find(|(known, _)| *known == name) {
        return Ok(**suite);
    }
    let why = match name {
        _ if name.contains("_CBC_") => "suites with CBC are not spoken here",
        _ if name.contains("_RC4_") || name.contains("3DES") => "it is broken and not spoken here",
        _ if name.starts_with("TLS_RSA_") => "suites without forward secrecy are not spoken here",
        _ => "there is no such cipher suite here",
    };
    Err(format!("{}: {why}; there are {}", quote(name), names(SUITES)))
}

/// Errors: why there is none, and which there are.
pub(super) fn group(name: &str) -> Result<&'static dyn SupportedKxGroup, String> {
    match name {
        "X25519" => Ok(kx_group::X25519),
        "CurveP256" => Ok(kx_group::SECP256R1),
        "CurveP384" => Ok(kx_group::SECP384R1),
        _ => {
            let why = match name {
                "CurveP521" | "X25519MLKEM768" => "this curve is not spoken here",
                _ => "there is no such curve",
            };
            Err(format!("{}: {why}; there are CurveP256, CurveP384, X25519", quote(name)))
        }
    }
}

/// As in Go, a list that names none of TLS 1.3 leaves those as they are: it is about the older version.
pub(super) fn with_default_suites(mut chosen: Vec<SupportedCipherSuite>) -> Vec<SupportedCipherSuite> {
    use rustls::crypto::ring::DEFAULT_CIPHER_SUITES;
    if chosen.is_empty() {
        return DEFAULT_CIPHER_SUITES.to_vec();
    }
    if !chosen.iter().any(|suite| suite.tls13().is_some()) {
        chosen.extend(DEFAULT_CIPHER_SUITES.iter().filter(|suite| suite.tls13().is_some()));
    }
    chosen
}

/// Ours, if none was chosen.
pub(super) fn with_default_groups(chosen: Vec<&'static dyn SupportedKxGroup>) -> Vec<&'static dyn SupportedKxGroup> {
    if chosen.is_empty() { rustls::crypto::ring::DEFAULT_KX_GROUPS.to_vec() } else { chosen }
}
