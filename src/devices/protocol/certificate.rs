//! Mutual TLS between client and plugin. Each side creates a certificate for this one connection and receives the other
//! one's beforehand. Only that very certificate is trusted; authorities and names are ignored.
//!
//! Go plugins use keys on curve P-521, which `ring` does not support: `p521` verifies their signatures. The agent's
//! keys are on P-256.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use p521::ecdsa::signature::Verifier as _;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName,
    SignatureVerificationAlgorithm, UnixTime, alg_id,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible, ServerConfig,
    SignatureScheme,
};

/// The name in both certificates.
pub(in crate::devices) const NAME: &str = "localhost";
const ALPN: &[u8] = b"h2";
const PEM_LINE: usize = 64;

#[derive(Debug, thiserror::Error)]
pub(in crate::devices) enum TlsError {
    #[error("cannot make a certificate")]
    Make(#[from] rcgen::Error),
    #[error("cannot set up TLS")]
    Tls(#[from] Error),
    #[error("invalid client certificate: {0}")]
    NoPem(rustls::pki_types::pem::Error),
}

/// Certificate and key for one connection.
#[derive(Debug)]
pub(in crate::devices) struct TlsIdentity {
    certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
}

impl TlsIdentity {
    /// Like go-plugin's: self-signed, for client and server authentication.
    pub(in crate::devices) fn make() -> Result<TlsIdentity, TlsError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec![NAME.to_owned()])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.self_signed(&key)?.der().clone();
        Ok(TlsIdentity { certificate, key: PrivatePkcs8KeyDer::from(key.serialize_der()) })
    }
    pub(in crate::devices) fn der(&self) -> &[u8] {
        &self.certificate
    }
    pub(in crate::devices) fn pem(&self) -> String {
        let text = BASE64_STANDARD.encode(&self.certificate);
        let lines = text.as_bytes().chunks(PEM_LINE).map(String::from_utf8_lossy);
        let body: String = lines.flat_map(|line| [line, "\n".into()]).collect();
        format!("-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n")
    }
    /// Client configuration that trusts only `peer`, DER.
    pub(in crate::devices) fn client(&self, peer: Vec<u8>) -> Result<ClientConfig, TlsError> {
        let (provider, only) = only(peer);
        let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13])?;
        let config = config.dangerous().with_custom_certificate_verifier(only);
        let mut config = config.with_client_auth_cert(vec![self.certificate.clone()], self.private())?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(config)
    }
    /// Server configuration that trusts only `peer`, PEM.
    pub(in crate::devices) fn server(&self, peer: &str) -> Result<ServerConfig, TlsError> {
        let peer = CertificateDer::from_pem_slice(peer.as_bytes()).map_err(TlsError::NoPem)?;
        let (provider, only) = only(peer.to_vec());
        let config = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13])?;
        let config = config.with_client_cert_verifier(only);
        let mut config = config.with_single_cert(vec![self.certificate.clone()], self.private())?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(config)
    }
    fn private(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(self.key.clone_key())
    }
}

fn only(peer: Vec<u8>) -> (Arc<CryptoProvider>, Arc<PinnedCertificate>) {
    let provider = ring::default_provider();
    let known = provider.signature_verification_algorithms;
    (Arc::new(provider), Arc::new(PinnedCertificate { certificate: peer.into(), known }))
}

/// Trusts a single certificate.
#[derive(Debug)]
struct PinnedCertificate {
    certificate: CertificateDer<'static>,
    known: WebPkiSupportedAlgorithms,
}

impl PinnedCertificate {
    /// Byte equality is stronger than dates and names, so these are not checked.
    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        if *shown == self.certificate { Ok(()) } else { Err(CertificateError::UnknownIssuer.into()) }
    }
    /// Verifies that the peer has the key of the certificate.
    fn check_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = if signed.scheme == SignatureScheme::ECDSA_NISTP521_SHA512 { &P521 } else { &self.known };
        verify_tls13_signature(message, certificate, signed, known)
    }
    fn schemes(&self) -> Vec<SignatureScheme> {
        let mut schemes = self.known.supported_schemes();
        schemes.push(SignatureScheme::ECDSA_NISTP521_SHA512);
        schemes
    }
}

/// Only TLS 1.3 is supported.
fn too_old() -> Error {
    PeerIncompatible::Tls12NotOfferedOrEnabled.into()
}

impl ServerCertVerifier for PinnedCertificate {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(shown).map(|()| ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(too_old())
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, certificate, signed)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}

impl ClientCertVerifier for PinnedCertificate {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }
    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(shown).map(|()| ClientCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(too_old())
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, certificate, signed)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}

/// ECDSA on P-521 with SHA-512.
#[derive(Debug)]
struct EcdsaP521;

static P521: WebPkiSupportedAlgorithms = WebPkiSupportedAlgorithms {
    all: &[&EcdsaP521],
    mapping: &[(SignatureScheme::ECDSA_NISTP521_SHA512, &[&EcdsaP521])],
};

impl SignatureVerificationAlgorithm for EcdsaP521 {
    fn verify_signature(&self, public_key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
        let key = p521::ecdsa::VerifyingKey::from_sec1_bytes(public_key).map_err(|_| InvalidSignature)?;
        let signature = p521::ecdsa::Signature::from_der(signature).map_err(|_| InvalidSignature)?;
        key.verify(message, &signature).map_err(|_| InvalidSignature)
    }
    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ECDSA_P521
    }
    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ECDSA_SHA512
    }
}
