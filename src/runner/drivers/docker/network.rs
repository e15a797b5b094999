//! The networks that an engine gave a container: known after its start, and requested again at a recovery.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::config::Config;
use super::engine::{Container, ContainerEndpoint};
use crate::model::network::{AllocPort, DriverNetwork, NetworkAddress};

/// The default networks of engines: their addresses are local to this host, so services do not advertise them.
const DEFAULT_NETWORK: &str = "bridge";
const MOST_ADDRESSES: usize = 16;
const LONGEST_NAME: usize = 128;

/// The part of a task's `config` that selects its address: stored for a recovery, which has no `config`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkChoice {
    /// Its `network_mode`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ipv6: bool,
    /// The port of the container, by label.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ports: BTreeMap<String, u16>,
}

impl NetworkChoice {
    pub fn of(config: &Config, ports: &[AllocPort]) -> NetworkChoice {
        let network = &config.network;
        let mapped = |port: &AllocPort| {
            let named = network.port_map.iter().find(|(label, _)| *label == port.label).map(|(_, inside)| *inside);
            let is_published = port.task.is_some() || network.ports.contains(&port.label);
            is_published.then(|| (port.label.clone(), named.unwrap_or_else(|| port.inside())))
        };
        let ports = ports.iter().filter_map(mapped).collect();
        NetworkChoice { mode: network.mode.clone(), ipv6: network.advertise_ipv6, ports }
    }

    /// `None`: the container has no address of its own. Of several networks, the one that the task names, otherwise the
    /// first by name.
    pub fn choose(&self, container: &Container) -> Option<DriverNetwork> {
        let networks = container.network_settings.networks.iter().flatten();
        let networks: BTreeMap<&str, Vec<IpAddr>> = networks
            .filter(|(name, _)| name.len() <= LONGEST_NAME)
            .map(|(name, at)| (name.as_str(), addresses(at)))
            .filter(|(_, all)| !all.is_empty())
            .collect();
        let named = self.mode.as_deref().and_then(|mode| networks.get_key_value(mode));
        let (chosen, own) = named.or_else(|| networks.iter().next())?;
        let ip = own.iter().find(|ip| ip.is_ipv6() == self.ipv6).or_else(|| own.first()).copied()?;
        let all = networks.iter().flat_map(|(name, all)| all.iter().map(move |ip| ((*name).to_owned(), *ip)));
        let addresses = all.map(|(network, ip)| NetworkAddress { network, ip }).take(MOST_ADDRESSES).collect();
        let auto_advertise = *chosen != DEFAULT_NETWORK || self.ipv6;
        Some(DriverNetwork { ip, addresses, ports: self.ports.clone(), auto_advertise })
    }
}

fn addresses(at: &ContainerEndpoint) -> Vec<IpAddr> {
    [&at.ip, &at.ipv6].into_iter().filter_map(|ip| ip.parse().ok()).collect()
}

/// Promise (Durability and recovery): A container's addresses are known after its start: one is chosen by rule, all are
/// shown
#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn container(networks: serde_json::Value) -> Container {
        serde_json::from_value(json!({"Id": "x", "NetworkSettings": {"Networks": networks}})).unwrap()
    }
    fn ip(of: &NetworkChoice, networks: serde_json::Value) -> Option<String> {
        of.choose(&container(networks)).map(|network| network.ip.to_string())
    }

    #[test]
    fn docker_address_is_that_of_the_named_network_or_the_first_by_name() {
        let all = json!({
            "zone": {"IPAddress": "10.2.0.2", "GlobalIPv6Address": "fd00::2"},
            "back": {"IPAddress": "10.1.0.2", "GlobalIPv6Address": ""},
            "none": {"IPAddress": ""},
        });
        let any = NetworkChoice::default();
        assert_eq!(ip(&any, all.clone()).as_deref(), Some("10.1.0.2"));
        let zone = NetworkChoice { mode: Some("zone".to_owned()), ..NetworkChoice::default() };
        assert_eq!(ip(&zone, all.clone()).as_deref(), Some("10.2.0.2"));
        let six = NetworkChoice { ipv6: true, ..zone };
        assert_eq!(ip(&six, all.clone()).as_deref(), Some("fd00::2"));
        let listed = any.choose(&container(all)).unwrap().addresses;
        let listed: Vec<String> = listed.iter().map(|one| format!("{} {}", one.network, one.ip)).collect();
        assert_eq!(listed, ["back 10.1.0.2", "zone 10.2.0.2", "zone fd00::2"]);
    }

    #[test]
    fn default_bridge_is_not_advertised_and_garbage_is_no_address() {
        let any = NetworkChoice::default();
        let advertised = |networks| any.choose(&container(networks)).map(|network| network.auto_advertise);
        assert_eq!(advertised(json!({"bridge": {"IPAddress": "172.17.0.2"}})), Some(false));
        assert_eq!(advertised(json!({"lab": {"IPAddress": "172.17.0.2"}})), Some(true));
        assert_eq!(advertised(json!({"lab": {"IPAddress": "300.1.1.1"}, "host": {}})), None);
        assert_eq!(advertised(json!(null)), None);
    }

    #[test]
    fn ports_are_those_that_the_container_publishes() {
        let config = json!({"image": "x", "ports": ["http"]});
        let serde_json::Value::Object(config) = config else { panic!("an object") };
        let task = crate::model::job::Task::new("t", "docker", config, crate::model::job::JobKind::Batch);
        let port = |label: &str, to| AllocPort { to, value: 20_001, ..AllocPort::named(label, None) };
        let choice = NetworkChoice::of(&Config::of(&task).unwrap(), &[port("http", 80), port("db", 5432)]);
        assert_eq!(choice.ports, BTreeMap::from([("http".to_owned(), 80)]));
    }
}
