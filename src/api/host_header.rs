//! Whether a request over TCP means us. A web page elsewhere can make a browser send requests to 127.0.0.1 under a name
//! that its owner points there (DNS rebinding): the Host header distinguishes them.

use std::net::{IpAddr, SocketAddr};

/// What a request over TCP may call us.
#[derive(Debug, Clone, Copy)]
pub struct OurNames<'a> {
    /// The address that the connection came in on.
    pub local: SocketAddr,
    /// The agent listens on each address of this host, and so on those under which others reach it: of a port that is
    /// passed on to a container, another one than `local`.
    pub on_each_address: bool,
    /// As uname(2) reports it.
    pub of_host: &'a str,
    pub configured: &'a [String],
}

impl OurNames<'_> {
    /// Whether this `Host` is us. The port does not matter: it was reached already.
    pub fn have(&self, host: &str) -> bool {
        let Some(name) = host_name(host) else { return false };
        let name = absolute(name);
        let configured = self.configured.iter().map(String::as_str);
        if ["localhost", self.of_host].into_iter().chain(configured).any(|own| means(own, name)) {
            return true;
        }
        let bare = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name);
        // An address cannot be pointed elsewhere, so the one that was connected to is us, whatever the page.
        bare.parse::<IpAddr>().is_ok_and(|ip| {
            self.on_each_address || ip.is_loopback() || ip.to_canonical() == self.local.ip().to_canonical()
        })
    }
}

/// The same name of DNS without the dot that makes it absolute: `web-1.example.com.`.
pub(super) fn absolute(name: &str) -> &str {
    match name.strip_suffix('.') {
        Some(rest) if !rest.is_empty() && rest.parse::<IpAddr>().is_err() => rest,
        _ => name,
    }
}

/// `*.cluster.example` means each name below that domain, at any depth, and not the domain. The administrator of that
/// domain can point any name at this agent and have a page of that name let in: the user of the setting accepts that.
fn means(own: &str, name: &str) -> bool {
    let Some(domain) = own.strip_prefix('*') else { return own.eq_ignore_ascii_case(name) };
    let below = name.len().checked_sub(domain.len()).and_then(|at| name.split_at_checked(at));
    below.is_some_and(|(label, end)| !label.is_empty() && end.eq_ignore_ascii_case(domain))
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

    fn has(on_each_address: bool, of_host: &str, host: &str) -> bool {
        let configured = &["metrics.example", "*.cluster", "*.prod.example"].map(str::to_owned);
        OurNames { local: "192.0.2.7:9740".parse().unwrap(), on_each_address, of_host, configured }.have(host)
    }

    fn accepts_host(host: &str) -> bool {
        has(false, "Node-7", host)
    }

    #[test]
    fn host_header_accepts_loopback_bound_address_host_name_and_configured_names() {
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
            "node-7",
            "NODE-7:9740",
            "node-7.",
            "node-7.:9740",
        ] {
            assert!(accepts_host(host), "{host}");
        }
    }

    #[test]
    fn a_domain_that_is_configured_has_each_name_below_it_however_far() {
        for host in [
            "vm.cluster",
            "vm.cluster.",
            "VM.Cluster:9740",
            "a.b.cluster",
            "web-1.prod.example",
            "web-1.rack-2.PROD.example:80",
        ] {
            assert!(accepts_host(host), "{host}");
        }
    }

    #[test]
    fn every_other_name_is_not() {
        for host in [
            "cluster",
            ".cluster",
            "*",
            "*.",
            "evilcluster",
            "vm.cluster..",
            "vm.cluster.evil.example",
            "prod.example",
            "web-1.example",
            "evil-prod.example",
            "ä.example",
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
            "node-7.evil.example",
            "node-7..",
            ".",
            "node",
            "node-77",
            "x.node-7",
        ] {
            assert!(!accepts_host(host), "{host}");
        }
        assert!(!has(false, "", ":9740") && !has(false, "", ""), "a host without a name has none");
    }

    /// A page has a name, and only that can be pointed to us.
    #[test]
    fn an_agent_on_each_address_takes_any_address_and_no_other_name() {
        for host in ["192.0.2.8", "192.0.2.8:9740", "10.1.2.3:80", "[2001:db8::2]", "[2001:db8::2]:9740"] {
            assert!(has(true, "node-7", host) && !accepts_host(host), "{host}");
        }
        for host in
            ["evil.example", "192.0.2.8.evil.example", "192.0.2.8.", "0x7f000001", "3221225992", "192.0.2", "[::2"]
        {
            assert!(!has(true, "node-7", host), "{host}");
        }
    }

    proptest! {
        #[test]
        fn no_host_panics(host in ".*") {
            let _ = (accepts_host(&host), has(true, "", &host));
        }
    }
}
