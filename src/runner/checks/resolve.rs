//! A service and its checks as they are for one alloc: references resolved, address known, texts cut to what is shown.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use bytes::Bytes;

use super::address::{AllocAddresses, locate};
use crate::board::services::ServiceInstance;
use crate::host::http::Address;
use crate::host::http::probe::{ProbeRequest, ProbeTls, probe_address};
use crate::jobspec::interpolate::Resolver;
use crate::model::env::{TaskContext, node_attributes};
use crate::model::id::TaskName;
use crate::model::job::{JobKind, Task};
use crate::model::network::{AllocNetwork, AllocPort, DriverNetwork};
use crate::model::service::{AddressMode, CheckProbe, Service, ServiceCheck, ServicePort};
use crate::model::text::label_value;
use crate::runner::alloc::Alloc;

/// Of one instance; the rest of a hostile reference is not shown.
const TAGS: usize = 100;
const META: usize = 64;
const LONGEST_TEXT: usize = 1024;
/// Of tags and metadata of a service together: each instance is kept, and served to every reader.
const PUBLISHED_BYTES: usize = 8 << 10;
/// The same of all services of an alloc, which share it.
const PUBLISHED_BYTES_OF_ALLOC: usize = 64 << 10;

/// What a check does, made ready.
#[derive(Debug, Clone)]
pub enum ProbePlan {
    Http(Address, ProbeRequest),
    Tcp(Address),
    Grpc(Address, String),
    /// Command and arguments, in the task.
    Script(Vec<String>),
    /// It cannot be run: why.
    Nothing(String),
}

/// What texts of an alloc's services refer to.
pub struct ServiceResolver {
    scope: Resolver,
    task: Option<TaskName>,
    host: IpAddr,
    /// Bytes of tags and metadata of one service.
    room: usize,
    ports: Vec<AllocPort>,
    network: Option<AllocNetwork>,
    driver: Option<DriverNetwork>,
}

impl ServiceResolver {
    /// `at`: whose service it is; `None`: the group's.
    pub fn new(alloc: &Alloc, at: Option<usize>) -> ServiceResolver {
        let (ports, network) = alloc.ports_and_network();
        let driver_networks = alloc.driver_networks();
        // The group's are as those of a task that says nothing.
        let empty = Task::new("", "", serde_json::Map::new(), JobKind::Service);
        let (none, added) = (Path::new(""), BTreeMap::new());
        let (ctx, name) = (&alloc.ctx, alloc.name());
        let attributes = node_attributes(&ctx.node, &ctx.facts.now(), &alloc.job);
        let scope = Resolver::new(&TaskContext {
            job: &alloc.job,
            group: alloc.group(),
            task: at.map_or(&empty, |at| alloc.task(at)),
            alloc_id: &alloc.id,
            alloc_name: &name,
            index: alloc.index(),
            alloc_dir: none,
            local_dir: none,
            secrets_dir: none,
            alloc_cgroup: None,
            inherited: &added,
            added: &added,
            ports: &ports,
            network: network.as_ref(),
            driver_networks: &driver_networks,
            attributes: &attributes,
        });
        let host = ctx.ports.host_address(&ctx.facts.now());
        let task = at.map(|at| alloc.task(at).name.clone());
        let own = driver_networks.into_iter().find(|(name, _)| task.as_ref() == Some(name));
        let room = PUBLISHED_BYTES.min(PUBLISHED_BYTES_OF_ALLOC / alloc.group().services.len().max(1));
        ServiceResolver { scope, task, host, room, ports, network, driver: own.map(|(_, network)| network) }
    }

    /// As it is listed.
    pub fn instance(&self, service: &Service) -> Result<ServiceInstance, String> {
        let (address, port) = self.locate(service.address_mode, service.address.as_deref(), service.port.as_ref())?;
        let mut room = self.room;
        let mut fits = |bytes: usize| {
            room = room.saturating_sub(bytes);
            room > 0
        };
        let tags = service.tags.iter().take(TAGS).map(|text| tame(&self.scope.tolerant(text)));
        let tags: Vec<String> = tags.take_while(|tag| fits(tag.len())).collect();
        let meta = service.meta.iter().take(META).map(|(key, value)| (tame(key), tame(&self.scope.tolerant(value))));
        let meta = meta.take_while(|(key, value)| fits(key.len() + value.len()));
        Ok(ServiceInstance {
            name: self.name(service),
            provider: service.provider,
            task: service.task.clone(),
            address: label_value(&address).into_owned(),
            port,
            meta: meta.collect(),
            tags,
            status: None,
        })
    }
    pub fn name(&self, service: &Service) -> String {
        label_value(&self.scope.tolerant(&service.name)).into_owned()
    }
    pub fn check_name(&self, check: &ServiceCheck) -> String {
        label_value(&self.scope.tolerant(&check.name)).into_owned()
    }

    fn locate(
        &self,
        mode: AddressMode,
        address: Option<&str>,
        port: Option<&ServicePort>,
    ) -> Result<(String, Option<u16>), String> {
        let address = address.map(|address| self.scope.tolerant(address));
        let port = match port {
            Some(ServicePort::Label(label)) => {
                let label = self.scope.tolerant(label);
                // A label may consist of digits.
                let is_known = self.ports.iter().any(|port| port.label == label);
                let number = label.parse().ok().filter(|_| !is_known);
                Some(number.map_or(ServicePort::Label(label), ServicePort::Number))
            }
            port => port.cloned(),
        };
        let reach = AllocAddresses {
            host: self.host,
            ports: &self.ports,
            network: self.network.as_ref(),
            driver: self.driver.as_ref(),
            task: self.task.as_ref(),
        };
        locate(reach, mode, address.as_deref(), port.as_ref())
    }

    pub fn probe_plan(&self, service: &Service, check: &ServiceCheck) -> ProbePlan {
        if let CheckProbe::Script { command, args } = &check.probe {
            return ProbePlan::Script(
                [command].into_iter().chain(args).map(|text| self.scope.tolerant(text)).collect(),
            );
        }
        let port = check.port.as_ref().or(service.port.as_ref());
        let mode = check.address_mode.unwrap_or(service.address_mode);
        let (host, port) = match self.locate(mode, service.address.as_deref(), port) {
            Ok((host, Some(port))) => (host, port),
            Ok((_, None)) => return ProbePlan::Nothing("it has no port".to_owned()),
            Err(why) => return ProbePlan::Nothing(why),
        };
        let tls = |is_tls: bool, skips: bool| match (is_tls, skips) {
            (false, _) => ProbeTls::Plain,
            (true, false) => ProbeTls::Verified,
            (true, true) => ProbeTls::Unverified,
        };
        match &check.probe {
            CheckProbe::Tcp | CheckProbe::Script { .. } => ProbePlan::Tcp(probe_address(&host, port, ProbeTls::Plain)),
            CheckProbe::Grpc { service, tls: is_tls, tls_skip_verify } => ProbePlan::Grpc(
                probe_address(&host, port, tls(*is_tls, *tls_skip_verify)),
                self.scope.tolerant(service),
            ),
            CheckProbe::Http { method, path, https, tls_skip_verify, headers, body } => {
                let header = |(name, value): &(String, String)| (name.clone(), self.scope.tolerant(value));
                let request = ProbeRequest {
                    method: method.clone(),
                    target: self.scope.tolerant(path),
                    headers: headers.iter().map(header).collect(),
                    body: Bytes::from(self.scope.tolerant(body)),
                };
                ProbePlan::Http(probe_address(&host, port, tls(*https, *tls_skip_verify)), request)
            }
        }
    }
}

/// Tags and metadata may be longer than labels.
fn tame(text: &str) -> String {
    let odd = crate::model::text::steers_a_terminal;
    text.chars().take(LONGEST_TEXT).map(|c| if odd(c) { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_cut_and_steer_no_terminal() {
        assert_eq!(tame("a\u{1b}[31m\nb"), "a?[31m?b");
        assert_eq!(tame(&"x".repeat(5000)).len(), LONGEST_TEXT);
    }
}
