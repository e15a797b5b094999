//! Pure: where a service is, by its `address_mode`. Source: Nomad, client/serviceregistration, GetAddress.

use std::net::IpAddr;

use crate::model::id::TaskName;
use crate::model::network::{AllocNetwork, AllocPort, DriverNetwork};
use crate::model::service::{AddressMode, ServicePort};

/// What an alloc has.
#[derive(Debug, Clone, Copy)]
pub struct AllocAddresses<'a> {
    /// Of the host's default network.
    pub host: IpAddr,
    /// All of them, other tasks' too.
    pub ports: &'a [AllocPort],
    pub network: Option<&'a AllocNetwork>,
    /// What the driver gave to the task, known after its start.
    pub driver: Option<&'a DriverNetwork>,
    /// Whose service it is; `None`: the group's.
    pub task: Option<&'a TaskName>,
}

/// Address and port; `None`: it has no port. Texts have no references any more.
///
/// Errors: there is no such port, or no such address.
pub fn locate(
    reach: AllocAddresses<'_>,
    mode: AddressMode,
    address: Option<&str>,
    port: Option<&ServicePort>,
) -> Result<(String, Option<u16>), String> {
    if let Some(driver) = reach.driver
        && (mode == AddressMode::Driver || (mode == AddressMode::Auto && driver.auto_advertise))
    {
        let number = match port {
            None => None,
            Some(ServicePort::Number(number)) => Some(*number),
            Some(ServicePort::Label(label)) => {
                let found = driver.ports.get(label).copied();
                Some(found.ok_or_else(|| format!("the network of the task has no port {label:?}"))?)
            }
        };
        return Ok((address.map_or_else(|| driver.ip.to_string(), str::to_owned), number));
    }
    let is_seen = |port: &&AllocPort| port.task.is_none() || port.task.as_ref() == reach.task;
    let labelled = |label: &str| {
        let found = reach.ports.iter().filter(is_seen).find(|port| port.label == label);
        found.ok_or_else(|| format!("there is no port {label:?}"))
    };
    let inside = || reach.network.and_then(|network| network.addresses.first());
    let ip = match (mode, inside()) {
        (AddressMode::Alloc, None) => return Err("its alloc has no network of its own".to_owned()),
        (AddressMode::Alloc | AddressMode::Driver, Some(ip)) => Some(ip),
        (AddressMode::Auto | AddressMode::Host | AddressMode::Driver, _) => None,
    };
    let (found, number) = match (port, ip) {
        (None, ip) => (ip.copied().unwrap_or(reach.host), None),
        (Some(ServicePort::Number(number)), ip) => (ip.copied().unwrap_or(reach.host), Some(*number)),
        (Some(ServicePort::Label(label)), Some(ip)) => (*ip, Some(labelled(label)?.inside())),
        (Some(ServicePort::Label(label)), None) => {
            let port = labelled(label)?;
            let host = if port.host_ip.is_unspecified() { reach.host } else { port.host_ip };
            (host, Some(port.value))
        }
    };
    Ok((address.map_or_else(|| found.to_string(), str::to_owned), number))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::model::network::NetworkMode;

    #[test]
    fn address_and_port_follow_the_mode() {
        let port = |label: &str, to, task: Option<&str>| AllocPort {
            label: label.into(),
            value: 20_001,
            to,
            host_ip: [10, 0, 0, 7].into(),
            task: task.map(TaskName::from),
        };
        let ports = [port("http", 80, None), port("own", 0, Some("t"))];
        let network = AllocNetwork {
            mode: NetworkMode::Bridge,
            namespace: PathBuf::new(),
            interface: Some("eth0".into()),
            addresses: vec![[172, 26, 64, 2].into()],
            hostname: String::new(),
        };
        let task: TaskName = "t".into();
        let reach = AllocAddresses {
            host: [10, 0, 0, 9].into(),
            ports: &ports,
            network: Some(&network),
            driver: None,
            task: Some(&task),
        };
        let label = |text: &str| Some(ServicePort::Label(text.into()));
        let at = |mode, address, port: Option<ServicePort>| locate(reach, mode, address, port.as_ref());
        let is = |address: &str, port| Ok((address.to_owned(), port));
        assert_eq!(at(AddressMode::Auto, None, label("http")), is("10.0.0.7", Some(20_001)));
        assert_eq!(at(AddressMode::Alloc, None, label("http")), is("172.26.64.2", Some(80)));
        assert_eq!(at(AddressMode::Driver, None, label("own")), is("172.26.64.2", Some(20_001)));
        assert_eq!(at(AddressMode::Host, None, Some(ServicePort::Number(90))), is("10.0.0.9", Some(90)));
        assert_eq!(at(AddressMode::Host, None, None), is("10.0.0.9", None));
        assert_eq!(at(AddressMode::Auto, Some("a.lab"), label("http")), is("a.lab", Some(20_001)));
        assert!(at(AddressMode::Auto, None, label("none")).is_err());
        let alone = AllocAddresses { network: None, task: None, ..reach };
        assert!(locate(alone, AddressMode::Alloc, None, None).is_err());
        assert!(locate(alone, AddressMode::Host, None, label("own").as_ref()).is_err(), "another's");
        assert_eq!(locate(alone, AddressMode::Driver, None, label("http").as_ref()), is("10.0.0.7", Some(20_001)));
    }

    #[test]
    fn driver_address_is_advertised_by_itself_unless_only_this_host_reaches_it() {
        let mut driver = DriverNetwork {
            ip: [172, 18, 0, 2].into(),
            addresses: Vec::new(),
            ports: [("http".to_owned(), 80)].into(),
            auto_advertise: true,
        };
        let port = AllocPort { label: "http".into(), value: 20_001, to: 80, host_ip: [10, 0, 0, 7].into(), task: None };
        let ports = [port];
        let http = ServicePort::Label("http".into());
        let at = |driver: &DriverNetwork, mode, port: &ServicePort| {
            let reach = AllocAddresses {
                host: [10, 0, 0, 9].into(),
                ports: &ports,
                network: None,
                driver: Some(driver),
                task: None,
            };
            locate(reach, mode, None, Some(port))
        };
        let is = |address: &str, port| Ok((address.to_owned(), Some(port)));
        assert_eq!(at(&driver, AddressMode::Auto, &http), is("172.18.0.2", 80));
        assert_eq!(at(&driver, AddressMode::Host, &http), is("10.0.0.7", 20_001));
        assert_eq!(at(&driver, AddressMode::Driver, &ServicePort::Number(9)), is("172.18.0.2", 9));
        assert!(at(&driver, AddressMode::Driver, &ServicePort::Label("none".into())).is_err());
        driver.auto_advertise = false;
        assert_eq!(at(&driver, AddressMode::Auto, &http), is("10.0.0.7", 20_001));
        assert_eq!(at(&driver, AddressMode::Driver, &http), is("172.18.0.2", 80));
    }
}
