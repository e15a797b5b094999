//! Names of this host beside uname(2): from `/etc/hostname`, and those that `/etc/hosts` gives to the same address.
//!
//! DNS and its search domains are left out: the operator of any network that a laptop joins chooses them.

use super::roots::Roots;
use super::untrusted;

/// A longer file is read up to here; ad blockers have hundreds of KiB.
const LARGEST_FILE: usize = 1 << 20;

/// Every name of this host but `nodename`, such as its FQDN.
pub fn own_names(roots: &Roots, nodename: &str) -> Vec<String> {
    let text = |path: &str| {
        let bytes = untrusted::read_start(&roots.file(path), LARGEST_FILE).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    names(&text("etc/hostname"), &text("etc/hosts"), nodename)
}

fn names(hostname: &str, hosts: &str, nodename: &str) -> Vec<String> {
    let is_name = |name: &&str| !name.is_empty() && !name.starts_with('#');
    let configured = hostname.lines().map(str::trim).find(is_name);
    let own: Vec<&str> = configured.into_iter().chain([nodename]).filter(|name| !is_of_every_host(name)).collect();
    let is_own = |name: &&str| own.iter().any(|known| known.eq_ignore_ascii_case(name));
    let mut found: Vec<String> = own.iter().map(|name| (*name).to_owned()).collect();
    for line in hosts.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let aliases: Vec<&str> = line.split_whitespace().skip(1).collect();
        if aliases.iter().any(&is_own) {
            found.extend(aliases.into_iter().filter(|name| !is_of_every_host(name)).map(str::to_owned));
        }
    }
    found
}

fn is_of_every_host(name: &str) -> bool {
    name.is_empty() || name.eq_ignore_ascii_case("localhost")
}

/// Promise (Input validation): Names that `/etc/hosts` and `/etc/hostname` give to this host are admitted, and no other
/// line's
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fqdn_is_found_beside_the_short_name_and_foreign_names_are_not() {
        let hosts = "127.0.0.1 localhost ads.example\n127.0.1.1\tweb-1.example.com WEB-1 # this one\n192.0.2.9 web-2.example.com web-2\n";
        assert_eq!(names("", hosts, "web-1"), ["web-1", "web-1.example.com", "WEB-1"]);
        assert_eq!(names("# comment\nweb-9.example.com\n", "", "web-9"), ["web-9.example.com", "web-9"]);
    }

    #[test]
    fn host_that_is_called_localhost_has_no_other_names() {
        assert_eq!(names("localhost\n", "127.0.0.1 localhost ads.example\n", "localhost"), Vec::<String>::new());
        assert_eq!(names("", "127.0.0.1 ads.example\n", ""), Vec::<String>::new());
    }

    proptest! {
        #[test]
        fn no_text_panics(hostname in ".*", hosts in "(?s).*", nodename in ".*") {
            let _ = names(&hostname, &hosts, &nodename);
        }
    }
}
