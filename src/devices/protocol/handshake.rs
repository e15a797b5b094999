//! The handshake: the environment that a plugin receives, and the line with which it answers. Pure.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Shows a plugin that a Nomad client, or a compatible program, started it.
pub(in crate::devices) const COOKIE: (&str, &str) =
    ("NOMAD_PLUGIN_MAGIC_COOKIE", "e4327c2e01eabfd75a8a67adb114fb34a757d57eee7728d857a8cec6e91a7255");
/// Protocol versions of the client, separated by commas.
pub(in crate::devices) const VERSIONS: &str = "PLUGIN_PROTOCOL_VERSIONS";
/// The client's certificate, PEM. A plugin that receives one answers with its own, and the connection uses TLS.
pub(in crate::devices) const CERTIFICATE: &str = "PLUGIN_CLIENT_CERT";
/// For plugins that listen on TCP.
pub(in crate::devices) const PORTS: [(&str, &str); 2] = [("PLUGIN_MIN_PORT", "10000"), ("PLUGIN_MAX_PORT", "25000")];

/// Protocol version of go-plugin itself.
const CORE: &str = "1";
/// Protocol version of Nomad's plugins since 0.9, which use gRPC.
pub(in crate::devices) const APP: &str = "2";
const PROTOCOL: &str = "grpc";
/// Old plugins send a shorter field in place of the certificate.
const LEAST_CERTIFICATE: usize = 50;

/// Go writes no padding; other implementations may.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_encode_padding(false).with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The address on which a plugin listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::devices) enum PluginAddress {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

impl fmt::Display for PluginAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PluginAddress::Unix(path) => write!(f, "unix|{}", path.display()),
            PluginAddress::Tcp(address) => write!(f, "tcp|{address}"),
        }
    }
}

/// The handshake line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::devices) struct Handshake {
    pub listens: PluginAddress,
    /// DER. `None`: no TLS.
    pub certificate: Option<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::devices) enum HandshakeError {
    #[error("{0:?} is not a handshake line")]
    NoPlugin(String),
    #[error("go-plugin protocol version {0:?}, expected {CORE}")]
    Core(String),
    #[error("Nomad plugin protocol version {0:?}, expected {APP}")]
    App(String),
    #[error("address {0:?} is neither a Unix socket nor a loopback address")]
    Address(String),
    #[error("protocol {0:?}, expected {PROTOCOL}")]
    Protocol(String),
    #[error("the certificate is not base64")]
    Certificate,
}

impl Handshake {
    /// Errors: the invalid field, or the expected version.
    pub(in crate::devices) fn parse(line: &str) -> Result<Handshake, HandshakeError> {
        let line = line.trim();
        let fields: Vec<&str> = line.split('|').collect();
        let [core, app, network, address, rest @ ..] = fields.as_slice() else {
            return Err(HandshakeError::NoPlugin(beginning(line)));
        };
        if core.parse::<u32>().is_err() || app.parse::<u32>().is_err() {
            return Err(HandshakeError::NoPlugin(beginning(line)));
        }
        if *core != CORE {
            return Err(HandshakeError::Core(beginning(core)));
        }
        if *app != APP {
            return Err(HandshakeError::App(beginning(app)));
        }
        let listens = listens(network, address).ok_or_else(|| HandshakeError::Address(beginning(address)))?;
        // Before gRPC the field did not exist.
        let protocol = rest.first().copied().unwrap_or("netrpc");
        if protocol != PROTOCOL {
            return Err(HandshakeError::Protocol(beginning(protocol)));
        }
        let certificate = rest.get(1).filter(|text| text.len() >= LEAST_CERTIFICATE);
        let certificate = certificate.map(|text| BASE64.decode(text).map_err(|_| HandshakeError::Certificate));
        Ok(Handshake { listens, certificate: certificate.transpose()? })
    }
}

impl fmt::Display for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let certificate = self.certificate.as_ref().map(|der| BASE64.encode(der)).unwrap_or_default();
        write!(f, "{CORE}|{APP}|{}|{PROTOCOL}|{certificate}", self.listens)
    }
}

fn listens(network: &str, address: &str) -> Option<PluginAddress> {
    match network {
        "unix" => Some(PathBuf::from(address)).filter(|path| path.is_absolute()).map(PluginAddress::Unix),
        "tcp" => address.parse().ok().filter(|address: &SocketAddr| address.ip().is_loopback()).map(PluginAddress::Tcp),
        _ => None,
    }
}

/// The first characters of foreign text, for messages.
fn beginning(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_of_plugins_old_and_new_are_read() {
        let plain = |line: &str| Handshake::parse(line).unwrap();
        let unix = Handshake { listens: PluginAddress::Unix("/tmp/plugin7".into()), certificate: None };
        assert_eq!(plain("1|2|unix|/tmp/plugin7|grpc"), unix);
        assert_eq!(plain("1|2|unix|/tmp/plugin7|grpc|\r\n"), unix);
        assert_eq!(plain("1|2|unix|/tmp/plugin7|grpc|AAAA"), unix, "too short for a certificate");
        assert_eq!(plain("1|2|unix|/tmp/plugin7|grpc||true"), unix, "newer ones say more");
        let tcp = Handshake {
            listens: PluginAddress::Tcp("127.0.0.1:1234".parse().unwrap()),
            certificate: Some(vec![7; 60]),
        };
        assert_eq!(plain(&tcp.to_string()), tcp);
    }

    #[test]
    fn a_line_that_is_none_is_refused_with_what_is_wrong() {
        let refused = |line: &str| Handshake::parse(line).unwrap_err();
        assert_eq!(refused("hello"), HandshakeError::NoPlugin("hello".into()));
        assert_eq!(refused("a|b|c|d|e"), HandshakeError::NoPlugin("a|b|c|d|e".into()));
        assert_eq!(refused("2|2|unix|/x|grpc"), HandshakeError::Core("2".into()));
        assert_eq!(refused("1|1|unix|/x|grpc"), HandshakeError::App("1".into()));
        assert_eq!(refused("1|2|unix|x|grpc"), HandshakeError::Address("x".into()));
        assert_eq!(refused("1|2|tcp|192.0.2.1:80|grpc"), HandshakeError::Address("192.0.2.1:80".into()));
        assert_eq!(refused("1|2|unix|/x"), HandshakeError::Protocol("netrpc".into()));
        assert_eq!(refused(&format!("1|2|unix|/x|grpc|{}", "*".repeat(60))), HandshakeError::Certificate);
    }

    proptest! {
        #[test]
        fn no_line_panics_and_what_is_printed_is_read_again(line: String, path in "/[a-z]{1,9}", der in prop::option::of(prop::collection::vec(any::<u8>(), 40..90))) {
            let _ = Handshake::parse(&line);
            let made = Handshake { listens: PluginAddress::Unix(path.into()), certificate: der };
            prop_assert_eq!(Handshake::parse(&made.to_string()).unwrap(), made);
        }
    }
}
