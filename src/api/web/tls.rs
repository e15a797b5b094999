//! TLS of the server, as the web configuration file wants it: what it shows, and whose certificates it takes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig, SignatureScheme,
};
use x509_parser::extensions::GeneralName;

use super::file::{Pem, SpannedValue, TlsServer, problem_of};
use super::reload::FileStamps;
use crate::host::subject_name::{is_host, subject_name};
use crate::jobspec::diagnostic::{Diagnostic, Diagnostics, Severity, SourceText};
use crate::telemetry::access::AccessRefusal;
use crate::telemetry::chain;

const IS_AUTHORITY: &str = "this certificate is one of an authority (basicConstraints CA:TRUE): clients believe it \
                            only where it is named as their CA itself; create it with -addext \
                            basicConstraints=critical,CA:FALSE";
const HAS_NO_NAME: &str = "this certificate has no name in a subjectAltName: Prometheus and most clients refuse it, \
                           and commands take it only where it is named as their CA itself; create it with -addext \
                           subjectAltName=DNS:NAME";

/// How a connection is secured.
#[derive(Debug)]
pub(super) struct TlsSetup {
    pub config: Arc<ServerConfig>,
    certificate: CertificateDer<'static>,
    /// A certificate that a client showed was signed by an authority of ours.
    pub verifies: bool,
    /// Who shows none is sent away.
    pub requires: bool,
    /// So is a client whose certificate has no allowed name.
    pub checks_names: bool,
    /// Of what works here, and not for every client.
    pub warnings: Vec<Diagnostic>,
}

impl TlsSetup {
    /// Reads what the file names. Errors: what is wrong, at the place that names it.
    pub(super) fn read(tls: &TlsServer, source: &SourceText, files: &mut FileStamps) -> Result<TlsSetup, Diagnostics> {
        const CERTIFICATE: &str = "tls_server_config.cert_file";
        const KEY: &str = "tls_server_config.key_file";
        let wrong = |pem: &SpannedValue<Pem>, field: &str, message: String| problem_of(source, pem, field, message);
        let chain_of =
            certificates(&tls.certificate, files).map_err(|why| wrong(&tls.certificate, CERTIFICATE, why))?;
        let key = secret(&tls.key, source, files).map_err(|why| wrong(&tls.key, KEY, why))?;
        let key = PrivateKeyDer::from_pem_slice(&key)
            .map_err(|error| wrong(&tls.key, KEY, format!("no private key can be read there: {error}")))?;
        let provider = Arc::new(CryptoProvider {
            cipher_suites: tls.suites.clone(),
            kx_groups: tls.groups.clone(),
            ..ring::default_provider()
        });
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(&tls.versions);
        let config = config.map_err(|error| wrong(&tls.certificate, "tls_server_config", error.to_string()))?;
        let config = match clients(tls, &provider, files) {
            Ok(None) => config.with_no_client_auth(),
            Ok(Some(verifier)) => config.with_client_cert_verifier(verifier),
            Err(why) => {
                let place = tls.client_authorities.as_ref().unwrap_or(&tls.certificate);
                return Err(wrong(place, "tls_server_config.client_ca_file", why));
            }
        };
        let certificate = chain_of[0].clone();
        let mut config = config.with_single_cert(chain_of, key).map_err(|error| match error {
            Error::InconsistentKeys(_) => wrong(&tls.key, KEY, "this key is not that of cert_file".to_owned()),
            other => wrong(&tls.certificate, CERTIFICATE, format!("this certificate cannot be used: {other}")),
        })?;
        config.ignore_client_order = tls.prefers_own_order;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let (verifies, requires) = (tls.client_auth.verifies(), tls.client_auth.requires());
        let checks_names = tls.allowed_names.is_some();
        let mut warnings = Vec::new();
        let mut warn = |message: &str| {
            let Diagnostics(found) = wrong(&tls.certificate, CERTIFICATE, message.to_owned());
            warnings.extend(found.into_iter().map(|found| Diagnostic { severity: Severity::Warning, ..found }));
        };
        if is_authority(&certificate) {
            warn(IS_AUTHORITY);
        }
        if names_of(&certificate).is_empty() {
            warn(HAS_NO_NAME);
        }
        Ok(TlsSetup { config: Arc::new(config), certificate, verifies, requires, checks_names, warnings })
    }

    /// Whether the certificate that we show is valid for this name: then a client that used it was not misled.
    pub(super) fn is_called(&self, host: &str) -> bool {
        let Ok(name) = ServerName::try_from(host) else { return false };
        let certificate = ParsedCertificate::try_from(&self.certificate);
        certificate.is_ok_and(|own| verify_server_name(&own, &name).is_ok())
            || subject_name(&self.certificate).is_some_and(|subject| is_host(&subject, &name))
    }
}

fn bytes(pem: &SpannedValue<Pem>, files: &mut FileStamps) -> Result<Vec<u8>, String> {
    match &pem.value {
        Pem::Inline(text) => Ok(text.clone().into_bytes()),
        Pem::File(path) => files.read(path).map_err(|error| format!("cannot read {}: {error}", path.display())),
    }
}

/// A key inside the configuration makes a secret of that file.
fn secret(pem: &SpannedValue<Pem>, source: &SourceText, files: &mut FileStamps) -> Result<Vec<u8>, String> {
    let path = match &pem.value {
        Pem::Inline(_) => Path::new(source.file()),
        Pem::File(path) => path,
    };
    let bytes = files.read_secret(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Ok(match &pem.value {
        Pem::Inline(text) => text.clone().into_bytes(),
        Pem::File(_) => bytes,
    })
}

/// At least one.
fn certificates(pem: &SpannedValue<Pem>, files: &mut FileStamps) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes = bytes(pem, files)?;
    let all = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    match all {
        Ok(all) if all.is_empty() => Err("there is no certificate in it".to_owned()),
        Ok(all) => Ok(all),
        Err(error) => Err(format!("no certificate can be read there: {error}")),
    }
}

/// `None`: no client needs a certificate. Errors: of the authorities.
fn clients(
    tls: &TlsServer,
    provider: &Arc<CryptoProvider>,
    files: &mut FileStamps,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
    let mut roots = RootCertStore::empty();
    if let Some(authorities) = &tls.client_authorities {
        for certificate in certificates(authorities, files)? {
            roots.add(certificate).map_err(|error| format!("an authority in it cannot be used: {error}"))?;
        }
    }
    if tls.client_auth == super::file::ClientAuth::No {
        return Ok(None);
    }
    let by_authority = if tls.client_auth.verifies() {
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
        Some(builder.build().map_err(|error| format!("these authorities cannot be used: {}", chain(&error)))?)
    } else {
        None
    };
    Ok(Some(Arc::new(ClientVerifier {
        by_authority,
        requires: tls.client_auth.requires(),
        names: tls.allowed_names.clone(),
        algorithms: provider.signature_verification_algorithms,
    })))
}

/// Who a client may be. That it has the key of what it shows is asked in any case.
#[derive(Debug)]
struct ClientVerifier {
    /// `None`: any certificate will do.
    by_authority: Option<Arc<dyn ClientCertVerifier>>,
    requires: bool,
    names: Option<Vec<String>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.requires
    }
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.by_authority.as_ref().map_or(&[], |verifier| verifier.root_hint_subjects())
    }
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if let Some(verifier) = &self.by_authority {
            verifier.verify_client_cert(end_entity, intermediates, now)?;
        }
        if let Some(allowed) = &self.names
            && !names_of(end_entity).iter().any(|name| allowed.contains(name))
        {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        Ok(ClientCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// The subject alternative names of a certificate: DNS names, addresses of mail and of hosts, URIs, as they are
/// written.
pub(super) fn names_of(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(certificate) else { return Vec::new() };
    let Ok(Some(extension)) = parsed.subject_alternative_name() else { return Vec::new() };
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(text) | GeneralName::RFC822Name(text) | GeneralName::URI(text) => Some((*text).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let four = <[u8; 4]>::try_from(*bytes).map(|bytes| IpAddr::V4(Ipv4Addr::from(bytes)));
            let sixteen = || <[u8; 16]>::try_from(*bytes).map(|bytes| IpAddr::V6(Ipv6Addr::from(bytes)));
            four.or_else(|_| sixteen()).ok().map(|address| address.to_string())
        }
        _ => None,
    };
    extension.value.general_names.iter().filter_map(name).collect()
}

fn is_authority(certificate: &CertificateDer<'_>) -> bool {
    x509_parser::parse_x509_certificate(certificate).is_ok_and(|(_, parsed)| parsed.is_ca())
}

/// Why a handshake failed: for the count, and for the log.
pub(in crate::api) fn handshake_refusal(error: &io::Error) -> (AccessRefusal, String) {
    let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) else {
        return (AccessRefusal::Tls, format!("the connection broke off: {error}"));
    };
    let reason = match error {
        Error::NoCertificatesPresented => AccessRefusal::NoCertificate,
        Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            AccessRefusal::CertificateExpired
        }
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => AccessRefusal::CertificateUntrusted,
        Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure) => AccessRefusal::CertificateName,
        Error::InvalidCertificate(_) => AccessRefusal::CertificateInvalid,
        _ => AccessRefusal::Tls,
    };
    let detail = match reason {
        AccessRefusal::CertificateName => "no name of the certificate is in client_allowed_sans".to_owned(),
        AccessRefusal::NoCertificate => "it showed no certificate, and everybody must".to_owned(),
        _ => error.to_string(),
    };
    (reason, detail)
}
