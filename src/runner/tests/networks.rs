//! Network namespaces of allocs: created and recorded before their first task, removed after their last.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::*;
use crate::model::network::{AllocNetwork, DnsConfig, GroupNetwork, NetworkMode};
use crate::runner::Wait;
use crate::runner::networks::{AllocNetworks, NetworkRequest};
use crate::runner::persistence::record::NetworkRecord;

/// The namespaces of the host, with their requests.
#[derive(Default)]
pub(super) struct FakeNetworks {
    there: Mutex<BTreeMap<AllocId, NetworkRequest>>,
    made: Mutex<u32>,
    refuses: Mutex<Option<String>>,
}

impl AllocNetworks for FakeNetworks {
    fn set_up(&self, request: &NetworkRequest) -> Result<NetworkRecord, String> {
        if let Some(why) = &*self.refuses.lock().unwrap() {
            return Err(why.clone());
        }
        *self.made.lock().unwrap() += 1;
        self.there.lock().unwrap().insert(request.alloc.clone(), request.clone());
        let network = AllocNetwork {
            mode: request.mode.clone(),
            namespace: format!("/run/netns/{}", request.alloc).into(),
            interface: Some("eth0".to_owned()),
            addresses: vec![[172, 26, 80, 2].into()],
            hostname: request.hostname.clone().unwrap_or_default(),
        };
        Ok(NetworkRecord { network, cni: None })
    }
    fn exists(&self, record: &NetworkRecord) -> bool {
        self.there.lock().unwrap().keys().any(|id| record.network.namespace.ends_with(id.as_str()))
    }
    fn tear_down(&self, request: &NetworkRequest, _: Option<&NetworkRecord>) -> Result<(), String> {
        self.forget(&request.alloc);
        Ok(())
    }
    fn forget(&self, alloc: &AllocId) {
        self.there.lock().unwrap().remove(alloc);
    }
}

fn isolated(id: &str, mode: NetworkMode) -> Job {
    let mut job = service(id);
    let hostname = Some("h-${NOMAD_SHORT_ALLOC_ID}".to_owned());
    let port = crate::model::network::PortRequest {
        label: "http".to_owned(),
        fixed: None,
        to: crate::model::network::PortTarget::Port(80),
        host_network: None,
        ignore_collision: false,
    };
    job.groups[0].network = Some(GroupNetwork { mode, hostname, ports: vec![port], ..GroupNetwork::default() });
    job
}

#[tokio::test(start_paused = true)]
async fn network_namespace_exists_until_the_last_task_ends_over_agent_restarts() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, isolated("web", NetworkMode::Bridge)).await;
    until_state(&agent, &id, TaskState::Running).await;
    let network = status_of(&agent, &id).network.clone().expect("it has one");
    assert_eq!(network.hostname, format!("h-{}", id.short()));
    let request = host.networks.there.lock().unwrap()[&id].clone();
    assert_eq!((request.ports[0].to, request.ports.len()), (80, 1));
    {
        let processes = host.world.processes.lock().unwrap();
        let env = &processes.values().next().expect("it runs").env;
        assert_eq!(env["NOMAD_ALLOC_ADDR_http"], "172.26.80.2:80");
        assert_eq!(env["NOMAD_ALLOC_IP_http"], "172.26.80.2");
        assert_eq!((env["NOMAD_ALLOC_INTERFACE_http"].as_str(), env["NOMAD_PORT_http"].as_str()), ("eth0", "80"));
        assert!(env["NOMAD_ADDR_http"].ends_with(&request.ports[0].value.to_string()));
    }
    let agent = host.restart(agent).await;
    until_state(&agent, &id, TaskState::Running).await;
    assert_eq!(*host.networks.made.lock().unwrap(), 1, "it is there already");
    assert_eq!(status_of(&agent, &id).network.as_ref(), Some(&network));
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
    assert!(host.networks.there.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn alloc_without_its_network_fails_with_the_reason() {
    let host = TestHost::new();
    *host.networks.refuses.lock().unwrap() = Some("there is no CNI plugin bridge".to_owned());
    let agent = host.start().await;
    let id = submit(&agent, isolated("web", NetworkMode::Bridge)).await;
    assert_eq!(until_over(&agent, &id).await, AllocState::Failed);
    let task = main_task(&agent, &id);
    let reported = task.events.iter().any(|event| event.message.contains("there is no CNI plugin bridge"));
    assert!(reported, "{:?}", task.events);
    assert!(host.world.processes.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn name_servers_and_arguments_of_a_network_are_interpolated() {
    let host = TestHost::new();
    let agent = host.start().await;
    let with_args = |id: &str, value: &str| {
        let mut job = isolated(id, NetworkMode::Cni("lan".to_owned()));
        let network = job.groups[0].network.as_mut().expect("it has one");
        network.cni_args = BTreeMap::from([("Dir".to_owned(), value.to_owned())]);
        let servers = ["10.0.0.1${NOMAD_ALLOC_INDEX}", "${meta.none}", "${NOMAD_JOB_ID}"].map(str::to_owned).to_vec();
        network.dns = Some(DnsConfig { servers, ..DnsConfig::default() });
        job
    };
    let id = submit(&agent, with_args("web", "${NOMAD_ALLOC_DIR}/x")).await;
    until_state(&agent, &id, TaskState::Running).await;
    let request = host.networks.there.lock().unwrap()[&id].clone();
    assert!(request.cni_args["Dir"].ends_with(&format!("/alloc/{id}/alloc/x")), "{:?}", request.cni_args);
    assert_eq!(request.dns.expect("it has one").servers, ["10.0.0.10"], "others are no addresses");
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
    for (job, value, why) in [
        ("none", "${meta.none}", "network.cni.args.Dir: `${meta.none}` cannot be resolved"),
        ("odd", "${meta.odd}", "network.cni.args.Dir: \"a;b\" has `;` or `=` in it"),
    ] {
        let mut job = with_args(job, value);
        job.meta.insert("odd".to_owned(), "a;b".to_owned());
        let id = submit(&agent, job).await;
        assert_eq!(until_over(&agent, &id).await, AllocState::Failed);
        let task = main_task(&agent, &id);
        assert!(task.events.iter().any(|event| event.message.contains(why)), "{why}: {:?}", task.events);
    }
    assert!(host.networks.there.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_hosts_network_needs_no_namespace() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, isolated("web", NetworkMode::Host)).await;
    until_state(&agent, &id, TaskState::Running).await;
    assert_eq!((status_of(&agent, &id).network.clone(), *host.networks.made.lock().unwrap()), (None, 0));
}
