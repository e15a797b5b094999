//! Certificates made for one test: authorities, and what they sign.

// Each test binary uses its own part of it.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType, date_time_ymd,
};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};

/// Who signs.
pub struct Authority {
    pub certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key.
pub struct Shown {
    pub certificate: CertificateDer<'static>,
    pub key: KeyPair,
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let key = KeyPair::generate().expect("a certificate");
        let mut params = CertificateParams::new(Vec::new()).expect("a certificate");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("a certificate").der().clone();
        Authority { certificate, issuer: Issuer::new(params, key) }
    }
    /// For 127.0.0.1, client or server, unless `change` says otherwise.
    pub fn sign(&self, change: impl FnOnce(&mut CertificateParams)) -> Shown {
        let key = KeyPair::generate().expect("a certificate");
        let mut params = CertificateParams::new(Vec::new()).expect("a certificate");
        params.subject_alt_names = vec![SanType::IpAddress([127, 0, 0, 1].into())];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        Shown { certificate: params.signed_by(&key, &self.issuer).expect("a certificate").der().clone(), key }
    }
    /// With this DNS name besides.
    pub fn sign_named(&self, name: &str) -> Shown {
        self.sign(|params| params.subject_alt_names.push(SanType::DnsName(name.try_into().expect("a name"))))
    }
    pub fn sign_expired(&self) -> Shown {
        self.sign(|params| {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        })
    }
    pub fn pem(&self) -> String {
        pem("CERTIFICATE", &self.certificate)
    }
    pub fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).expect("a certificate");
        roots
    }
    /// A client that believes this authority, and shows a certificate where it is asked for one.
    pub fn client(&self, shows: Option<&Shown>, versions: &[&'static SupportedProtocolVersion]) -> Arc<ClientConfig> {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_protocol_versions(versions).expect("a version").with_root_certificates(self.roots());
        Arc::new(match shows {
            None => config.with_no_client_auth(),
            Some(shown) => config
                .with_client_auth_cert(vec![shown.certificate.clone()], shown.private_key())
                .expect("a certificate"),
        })
    }
}

pub fn pem(what: &str, der: &[u8]) -> String {
    format!("-----BEGIN {what}-----\n{}\n-----END {what}-----\n", BASE64_STANDARD.encode(der))
}

impl Shown {
    fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()))
    }
    /// Writes both, and says where.
    pub fn write(&self, dir: &Path, name: &str) -> (PathBuf, PathBuf) {
        let (certificate, key) = (dir.join(format!("{name}.pem")), dir.join(format!("{name}.key")));
        std::fs::write(&certificate, pem("CERTIFICATE", &self.certificate)).expect("a certificate");
        crate::common::write_secret(&key, &pem("PRIVATE KEY", &self.key.serialize_der()));
        (certificate, key)
    }
    /// For a server. `requests`: for a certificate of this authority.
    pub fn server(&self, requests: Option<&Authority>, protocol: &[u8]) -> Arc<ServerConfig> {
        let provider = Arc::new(ring::default_provider());
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let config = config.with_safe_default_protocol_versions().expect("a certificate");
        let config = match requests {
            None => config.with_no_client_auth(),
            Some(authority) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authority.roots()), provider);
                config.with_client_cert_verifier(verifier.build().expect("a certificate"))
            }
        };
        let mut config =
            config.with_single_cert(vec![self.certificate.clone()], self.private_key()).expect("a certificate");
        config.alpn_protocols = vec![protocol.to_vec()];
        Arc::new(config)
    }
}
