//! TLS client configuration: trusted authorities and the client certificate. Read again for each connection, so that a
//! renewed certificate needs no restart.

use std::error::Error as StdError;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{Address, HttpError};
use crate::host::subject_name::{is_host, subject_name};
use crate::host::{access, untrusted};
use crate::telemetry::chain;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Size limit of a certificate file in bytes. A system's CA bundle is a quarter of it.
const LARGEST: usize = 1 << 20;

/// The certificate files of a client, in PEM format.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The trusted authorities. `None`: the system's, or those of `SSL_CERT_FILE` and `SSL_CERT_DIR`.
    pub authorities: Option<PathBuf>,
    /// A client certificate with its chain, and its key.
    pub client: Option<(PathBuf, PathBuf)>,
    /// Accepts any certificate: for checks and artifacts that request this.
    pub is_unverified: bool,
}

#[derive(Debug, thiserror::Error)]
enum TlsFilesError {
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} is not a PEM file")]
    Pem { path: PathBuf, source: pem::Error },
    #[error("there is no certificate in {path}")]
    Empty { path: PathBuf },
    #[error("the system has no CA certificates: {message}")]
    NoSystem { message: String },
    #[error("a certificate in {path} cannot be used")]
    Authority { path: PathBuf, source: Error },
    #[error("{certificate} cannot be used with the key in {key}")]
    Client { certificate: PathBuf, key: PathBuf, source: Error },
    #[error("TLS cannot be set up")]
    Setup(#[from] Error),
}

impl TlsFiles {
    /// `protocol`: the ALPN protocol id.
    fn read(&self, protocol: &[u8]) -> Result<ClientConfig, TlsFilesError> {
        let provider = Arc::new(ring::default_provider());
        let config =
            ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
        if self.is_unverified {
            let any = Arc::new(AnyCertificate(provider));
            let mut config = config.dangerous().with_custom_certificate_verifier(any).with_no_client_auth();
            config.alpn_protocols = vec![protocol.to_vec()];
            return Ok(config);
        }
        let (roots, own) = self.roots()?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
        let verifier = verifier.map_err(|error| Error::General(error.to_string()))?;
        let verifier = Arc::new(OwnCertificate { verifier, own });
        let config = config.dangerous().with_custom_certificate_verifier(verifier);
        let mut config = match &self.client {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let read = |source| TlsFilesError::Read { path: key.clone(), source };
                let bytes = untrusted::read_all(access::open_secret(key).map_err(read)?, LARGEST).map_err(read)?;
                let private = PrivateKeyDer::from_pem_slice(&bytes)
                    .map_err(|source| TlsFilesError::Pem { path: key.clone(), source })?;
                config.with_client_auth_cert(certificates(certificate)?, private).map_err(|source| {
                    TlsFilesError::Client { certificate: certificate.clone(), key: key.clone(), source }
                })?
            }
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(config)
    }

    /// The trusted authorities, and the certificates of the file that names them.
    fn roots(&self) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), TlsFilesError> {
        let mut roots = RootCertStore::empty();
        let Some(path) = &self.authorities else {
            let found = rustls_native_certs::load_native_certs();
            // A system's bundle always contains some certificates of unsupported kinds: skip them.
            if roots.add_parsable_certificates(found.certs).0 == 0 {
                let message: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
                return Err(TlsFilesError::NoSystem { message: message.join(", ") });
            }
            return Ok((roots, Vec::new()));
        };
        let own = certificates(path)?;
        for certificate in &own {
            let unusable = |source| TlsFilesError::Authority { path: path.clone(), source };
            roots.add(certificate.clone()).map_err(unusable)?;
        }
        Ok((roots, own))
    }
}

/// Verifies as webpki does; beyond that a server may show a certificate that the user named as an authority, as
/// `openssl req -x509` makes them: basicConstraints CA:TRUE, and a name in the subject alone. curl does the same.
#[derive(Debug)]
struct OwnCertificate {
    verifier: Arc<WebPkiServerVerifier>,
    own: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for OwnCertificate {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.verifier.verify_server_cert(shown, between, name, ocsp, now) {
            Err(error) if self.own.iter().any(|own| own.as_ref() == shown.as_ref()) => {
                verify_own(error, shown, name).map(|()| ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, certificate, signature)
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, certificate, signature)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// Of a certificate that the user named: whether it is valid for `name` although webpki refused it with this error.
fn verify_own(refused: Error, shown: &CertificateDer<'_>, name: &ServerName<'_>) -> Result<(), Error> {
    let refused = if is_of_authority(&refused) {
        // webpki checks the validity period before it gives this reason, and purposes and names only after it.
        verify_purpose(shown)?;
        match verify_server_name(&ParsedCertificate::try_from(shown)?, name) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        }
    } else {
        refused
    };
    match subject_name(shown).filter(|_| is_of_name(&refused)) {
        Some(subject) if is_host(&subject, name) => Ok(()),
        Some(subject) => {
            let wrong = WrongSubject { subject, name: name.to_owned() };
            Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(wrong)))))
        }
        None => Err(refused),
    }
}

/// A certificate that lists its purposes must list that of a server.
fn verify_purpose(shown: &CertificateDer<'_>) -> Result<(), CertificateError> {
    let (_, parsed) = x509_parser::parse_x509_certificate(shown).map_err(|_| CertificateError::BadEncoding)?;
    let purposes = parsed.extended_key_usage().map_err(|_| CertificateError::BadEncoding)?;
    let is_server = purposes.is_none_or(|purposes| purposes.value.server_auth);
    if is_server { Ok(()) } else { Err(CertificateError::InvalidPurpose) }
}

fn is_of_name(error: &Error) -> bool {
    use CertificateError::{NotValidForName, NotValidForNameContext};
    matches!(error, Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }))
}

/// A certificate without a subjectAltName, for another host.
#[derive(Debug, thiserror::Error)]
#[error(
    "its certificate has no subjectAltName and is for {subject:?} (CN) alone: use that name, or {}",
    renewed(.name)
)]
struct WrongSubject {
    subject: String,
    name: ServerName<'static>,
}

/// How a certificate gets this name.
fn renewed(name: &ServerName<'_>) -> String {
    let kind = if matches!(name, ServerName::IpAddress(_)) { "IP" } else { "DNS" };
    format!("create it again with -addext subjectAltName={kind}:{}", name.to_str())
}

/// The type of the reason is of a crate below rustls.
fn is_of_authority(error: &Error) -> bool {
    error.to_string().contains("CaUsedAsEndEntity")
}

/// Verifies only that the server has the private key of its certificate.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFilesError> {
    let bytes =
        untrusted::read(path, LARGEST).map_err(|source| TlsFilesError::Read { path: path.to_owned(), source })?;
    let all = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|source| TlsFilesError::Pem { path: path.to_owned(), source })?;
    if all.is_empty() { Err(TlsFilesError::Empty { path: path.to_owned() }) } else { Ok(all) }
}

/// Performs the TLS handshake on a connection, within [`HANDSHAKE_TIMEOUT`].
pub(super) fn secured<'a>(
    socket: TcpStream,
    address: &'a Address,
    (host, files): (&'a str, &'a TlsFiles),
    protocol: &'static [u8],
) -> impl Future<Output = Result<TlsStream<TcpStream>, HttpError>> + 'a {
    async move {
        let failed = |reason: String| HttpError::Tls { address: address.clone(), reason };
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(name).map_err(|error| failed(error.to_string()))?;
        let config = files.read(protocol).map_err(|error| failed(chain(&error)))?;
        let handshake = TlsConnector::from(Arc::new(config)).connect(name, socket);
        // A listener that accepts and is silent would hold a command for ever.
        let late = |_| HttpError::Timeout { address: address.clone(), after: HANDSHAKE_TIMEOUT };
        let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await.map_err(late)?;
        stream.map_err(|source| match reason(&source) {
            Some(reason) => failed(reason),
            None => HttpError::Connect { address: address.clone(), source },
        })
    }
}

/// Of what `openssl req -x509` makes by itself.
const IS_AUTHORITY: &str = "its certificate is one of an authority (basicConstraints CA:TRUE), which a server may show \
                            only to clients that name it as their CA: name it (--ca), or create it again with -addext \
                            basicConstraints=critical,CA:FALSE";

/// The TLS error in this chain, if any. With TLS 1.3 a server's rejection appears only at the first read.
pub(super) fn reason(error: &(dyn StdError + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        // An I/O error wraps a TLS error in `get_ref`, not in `source`.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let found = error.downcast_ref::<Error>().or_else(|| inner?.downcast_ref::<Error>());
        if let Some(found) = found {
            return Some(described(found));
        }
        next = error.source();
    }
    None
}

fn described(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(CertificateError::NotValidForNameContext { expected, presented })
            if presented.is_empty() =>
        {
            format!("its certificate has no subjectAltName: {}", renewed(expected))
        }
        Error::InvalidCertificate(CertificateError::Other(OtherError(other))) if other.is::<WrongSubject>() => {
            other.to_string()
        }
        error if is_of_authority(error) => IS_AUTHORITY.to_owned(),
        error => error.to_string(),
    }
}
