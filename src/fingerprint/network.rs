//! Under which address the host reaches others. Source: the kernel's choice for a datagram on its way out; none is
//! sent.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use super::{EACH_MINUTE, FingerprintError, FingerprintRequest, Fingerprinter};
use crate::model::attributes::{AttributeDiff, HostAttribute};

/// Addresses without an owner, kept free for documentation (RFC 5737, RFC 3849): the way to them is the default route.
const OUTSIDE: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))];

pub struct NetworkFingerprinter;

impl Fingerprinter for NetworkFingerprinter {
    fn name(&self) -> &'static str {
        "network"
    }
    /// Leases end, cables are pulled.
    fn period(&self) -> Option<Duration> {
        EACH_MINUTE
    }
    /// Absent when: no way leads out.
    fn fingerprint(&self, _: &FingerprintRequest) -> Result<AttributeDiff, FingerprintError> {
        let mut address = None;
        for outside in OUTSIDE {
            if address.is_none() {
                address = source_for(outside)?;
            }
        }
        let address = address.map(|address| address.to_string().into());
        Ok(AttributeDiff::default().with(HostAttribute::UniqueNetworkIpAddress, address))
    }
}

/// `None`: the kernel knows no way there.
fn source_for(to: IpAddr) -> Result<Option<IpAddr>, FingerprintError> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = match UdpSocket::bind(SocketAddr::new(any, 0)) {
        Ok(socket) => socket,
        // A kernel without IPv6.
        Err(error) if error.kind() == ErrorKind::AddrNotAvailable || no_family(&error) => return Ok(None),
        Err(error) => return Err(FingerprintError::Socket(error)),
    };
    // The port means nothing: discard.
    if socket.connect(SocketAddr::new(to, 9)).is_err() {
        return Ok(None);
    }
    Ok(socket.local_addr().ok().map(|address| address.ip()))
}

fn no_family(error: &std::io::Error) -> bool {
    rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::AFNOSUPPORT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_one_of_this_host_and_the_way_to_itself_begins_there() {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert_eq!(source_for(loopback).unwrap(), Some(loopback));
        if let Some(address) = source_for(OUTSIDE[0]).unwrap() {
            assert!(!address.is_unspecified());
            UdpSocket::bind((address, 0)).expect("an own address has a free port");
        }
    }
}
