//! Whether a request over TCP means us. A web page elsewhere can make a browser send requests to 127.0.0.1 under a name
//! that its owner points there (DNS rebinding): the Host header is how we tell.

use std::net::{IpAddr, SocketAddr};

/// `Host` names that are ours: loopback, the address that the connection came in on, and the configured names.
/// The port does not matter: it was reached already.
pub fn is_ours(host: &str, local: SocketAddr, names: &[String]) -> bool {
    let Some(name) = host_name(host) else { return false };
    if name.eq_ignore_ascii_case("localhost") || names.iter().any(|n| n.eq_ignore_ascii_case(name)) {
        return true;
    }
    let bare = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name);
    // An address cannot be pointed elsewhere, so the one that was connected to is us, whatever the page.
    bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback() || ip.to_canonical() == local.ip().to_canonical())
}

/// The name without the port; `None` if it is no `host[:port]`.
pub(super) fn host_name(host: &str) -> Option<&str> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let end = rest.find(']')? + 2;
            host.split_at_checked(end)?
        }
        None => host.find(':').map_or((host, ""), |at| host.split_at(at)),
    };
    let port_is_fine = port.is_empty() || port.strip_prefix(':').is_some_and(|p| p.bytes().all(|b| b.is_ascii_digit()));
    (!name.is_empty() && port_is_fine).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ours(host: &str) -> bool {
        is_ours(host, "192.0.2.7:9740".parse().unwrap(), &["metrics.example".to_owned()])
    }

    #[test]
    fn loopback_names_the_bound_address_and_configured_names_are_ours() {
        for host in [
            "localhost",
            "LOCALHOST:9740",
            "127.0.0.1",
            "127.0.0.1:9740",
            "127.8.8.8",
            "[::1]",
            "[::1]:9740",
            "192.0.2.7:9740",
            "metrics.example",
            "Metrics.Example:80",
        ] {
            assert!(ours(host), "{host}");
        }
    }

    #[test]
    fn every_other_name_is_not() {
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "192.0.2.8",
            "[::2]",
            "[::1",
            "localhost:port",
            "user@localhost",
            "localhost/",
            ":9740",
        ] {
            assert!(!ours(host), "{host}");
        }
    }

    proptest! {
        #[test]
        fn no_host_panics(host in ".*") {
            let _ = ours(&host);
        }
    }
}
