//! `/etc/hosts` and `/etc/resolv.conf` of a container, if the agent writes them instead of the engine: in the network
//! of a group, and if the group has `dns`. As in Nomad.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

use super::config::ContainerNetwork;
use crate::host::untrusted;
use crate::model::network::DnsConfig;
use crate::runner::drivers::{DriverError, StartRequest};
use crate::runner::networks::{HOSTS, RESOLV_CONF, resolv_conf};

/// Maximum size of the agent's own file.
const LARGEST: usize = 64 << 10;

/// Whether the group or, in the group's network, the task itself sets the contents of `/etc/resolv.conf`.
pub fn has_resolv_conf(request: &StartRequest, network: &ContainerNetwork) -> bool {
    request.network.resolv_conf.is_some() || (network.joined && own_dns(network).is_some())
}

fn own_dns(network: &ContainerNetwork) -> Option<DnsConfig> {
    let dns = DnsConfig {
        servers: network.dns_servers.clone(),
        searches: network.dns_search.clone(),
        options: network.dns_options.clone(),
    };
    (dns != DnsConfig::default()).then_some(dns)
}

/// Entries of `Mounts` for them. Files of this attempt alone are written to its run directory. Blocks.
pub fn mounts(request: &StartRequest, network: &ContainerNetwork) -> Result<Vec<Value>, DriverError> {
    let mut all = Vec::new();
    let mut mount = |source: &Path, target: &str, read_only: bool| {
        all.push(json!({ "Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only }));
    };
    let run = &request.dirs.run;
    match (&request.network.resolv_conf, own_dns(network).filter(|_| network.joined)) {
        (Some(of_group), _) => mount(of_group, "/etc/resolv.conf", true),
        (None, Some(own)) => {
            write(&run.join(RESOLV_CONF), &resolv_conf(&own))?;
            mount(&run.join(RESOLV_CONF), "/etc/resolv.conf", true);
        }
        (None, None) => {}
    }
    if let Some(of_alloc) = request.network.hosts.as_ref().filter(|_| network.joined) {
        let read = untrusted::read_to_string(of_alloc, LARGEST);
        let mut text = read.map_err(|e| failed(format!("cannot read {}: {e}", of_alloc.display()), true))?;
        for (at, host) in network.extra_hosts.iter().enumerate() {
            text.push_str(&line(at, host)?);
        }
        // For this container alone: no other task sees its changes.
        write(&run.join(HOSTS), &text)?;
        mount(&run.join(HOSTS), "/etc/hosts", false);
    }
    Ok(all)
}

/// `10.0.0.1 db` from `db:10.0.0.1`.
fn line(at: usize, host: &str) -> Result<String, DriverError> {
    let parts = host.split_once(':').and_then(|(name, ip)| Some((name, ip.trim().parse::<IpAddr>().ok()?)));
    let (name, ip) = parts.filter(|(name, _)| !name.contains(char::is_whitespace)).ok_or_else(|| {
        let message = "in the network of a group it must be \"name:address\" with an IP address";
        failed(format!("extra_hosts[{at}]: {message}, not {host:?}"), false)
    })?;
    Ok(format!("{ip} {name}\n"))
}

/// Readable for the user of the image, whatever the agent's umask.
fn write(path: &Path, text: &str) -> Result<(), DriverError> {
    let written = fs::write(path, text).and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o644)));
    written.map_err(|e| failed(format!("cannot write {}: {e}", path.display()), true))
}

fn failed(message: String, recoverable: bool) -> DriverError {
    DriverError::Start { message, recoverable }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::job::{JobKind, Task};

    fn request(dir: &Path) -> StartRequest {
        let request = StartRequest::alone(Task::new("t", "docker", serde_json::Map::new(), JobKind::Batch), dir);
        fs::create_dir_all(&request.dirs.run).unwrap();
        request
    }
    fn network(extra: &[&str], joined: bool) -> ContainerNetwork {
        let extra_hosts = extra.iter().map(|host| (*host).to_owned()).collect();
        ContainerNetwork { extra_hosts, dns_servers: vec!["1.1.1.1".to_owned()], joined, ..ContainerNetwork::default() }
    }

    #[test]
    fn container_in_a_group_network_gets_files_of_the_agent() {
        let dir = tempfile::tempdir().unwrap();
        let mut request = request(dir.path());
        let hosts = dir.path().join("hosts");
        fs::write(&hosts, "127.0.0.1 localhost\n").unwrap();
        request.network.hosts = Some(hosts);
        assert_eq!(mounts(&request, &network(&["db:10.0.0.1"], false)).unwrap(), Vec::<Value>::new());
        let all = mounts(&request, &network(&["db:10.0.0.1", "six:fd00::1"], true)).unwrap();
        let targets: Vec<_> = all.iter().map(|mount| (&mount["Target"], &mount["ReadOnly"])).collect();
        assert_eq!(targets, [(&json!("/etc/resolv.conf"), &json!(true)), (&json!("/etc/hosts"), &json!(false))]);
        let text = |at: usize| fs::read_to_string(all[at]["Source"].as_str().unwrap()).unwrap();
        assert_eq!(text(0), "nameserver 1.1.1.1\n");
        assert_eq!(text(1), "127.0.0.1 localhost\n10.0.0.1 db\nfd00::1 six\n");
    }

    #[test]
    fn dns_of_the_group_comes_before_that_of_the_task() {
        let dir = tempfile::tempdir().unwrap();
        let mut request = request(dir.path());
        request.network.resolv_conf = Some("/data/network/a/resolv.conf".into());
        assert!(has_resolv_conf(&request, &network(&[], false)));
        let all = mounts(&request, &network(&[], false)).unwrap();
        assert_eq!((all.len(), &all[0]["Source"]), (1, &json!("/data/network/a/resolv.conf")));
    }

    #[test]
    fn extra_host_without_an_address_is_refused_at_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let mut request = request(dir.path());
        let hosts = dir.path().join("hosts");
        fs::write(&hosts, "").unwrap();
        request.network.hosts = Some(hosts);
        let error = mounts(&request, &network(&["a:1.2.3.4", "b:host-gateway"], true)).unwrap_err().to_string();
        assert!(error.starts_with("extra_hosts[1]: in the network of a group it must be"), "{error}");
    }
}
