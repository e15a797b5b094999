//! The network namespace of an alloc, where its group asks for one: made before its first task, recorded with its
//! ports, removed when nothing of it is left.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::frame::{Hook, HookError, HookOutcome, HookPhase};
use super::subject::{AllocSpec, OfAlloc};
use crate::host::tree;
use crate::jobspec::interpolate;
use crate::model::env::{Env, clean_name, node_attributes};
use crate::model::event::EventKind;
use crate::model::job::Task;
use crate::model::network::{DnsConfig, GroupNetwork, is_cni_arg};
use crate::runner::drivers::{BoxFuture, call};
use crate::runner::networks::{NetworkRequest, write_resolv_conf};

/// Several plugins, each with its own time.
const WITHIN: Duration = Duration::from_secs(180);

pub struct AllocNetworkHook;

impl Hook<OfAlloc> for AllocNetworkHook {
    fn name(&self) -> &'static str {
        "network"
    }
    fn after(&self) -> &'static [&'static str] {
        // What drivers hold for it has a cgroup in the alloc's: it goes first.
        &["ports", "cgroup"]
    }
    fn phases(&self) -> &'static [HookPhase] {
        &[HookPhase::Prerun, HookPhase::Postrun, HookPhase::Destroy]
    }
    fn deadline(&self, _: HookPhase) -> Duration {
        WITHIN
    }
    fn run<'a>(&'a self, phase: HookPhase, subject: &'a mut OfAlloc) -> BoxFuture<'a, Result<HookOutcome, HookError>> {
        Box::pin(async move {
            let ctx = Arc::clone(&subject.ctx);
            let Some(spec) = &subject.spec else {
                let id = subject.id.clone();
                let networks = Arc::clone(&ctx.networks);
                let forgotten = ctx.plugins.block(move || networks.forget(&id)).await;
                return forgotten.map(|()| HookOutcome::Again).map_err(HookError::setup);
            };
            let Some(network) = spec.group().network.as_ref() else { return Ok(HookOutcome::Again) };
            if !network.mode.is_isolated() {
                resolver(phase, subject, spec, network).await?;
                return Ok(HookOutcome::Again);
            }
            let request = network_request(phase, subject, spec, network)?;
            let (networks, record) = (Arc::clone(&ctx.networks), subject.network.clone());
            if phase != HookPhase::Prerun {
                if spec.all_exited {
                    let left = leave(subject, spec).await;
                    let torn = ctx.plugins.block(move || networks.tear_down(&request, record.as_deref())).await;
                    torn.and_then(|torn| torn).and(left).map_err(HookError::setup)?;
                }
                return Ok(HookOutcome::Again);
            }
            if let Some(message) = cannot_join(subject, spec) {
                return Err(HookError { recoverable: false, ..HookError::setup(message) });
            }
            let work = move || match record {
                Some(record) if networks.exists(&record) => Ok(None),
                _ => networks.set_up(&request).map(Some),
            };
            let made = ctx.plugins.block(work).await.and_then(|made| made);
            if let Some(record) = made.map_err(HookError::setup)? {
                let addresses = record.network.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                let inside = if addresses.is_empty() { "loopback alone".to_owned() } else { addresses };
                (spec.emit)(EventKind::Network, format!("network namespace of mode {}: {inside}", record.network.mode));
                subject.network = Some(Box::new(record));
            }
            Ok(HookOutcome::Again)
        })
    }
}

/// The first task that would run in the host's network all the same.
fn cannot_join(subject: &OfAlloc, spec: &AllocSpec) -> Option<String> {
    let driver = |task: &Task| subject.ctx.drivers.get(task.driver.as_str());
    let task = spec.group().tasks.iter().find(|task| driver(task).is_some_and(|driver| !driver.joins_namespaces()))?;
    Some(format!("task {}: its driver {} cannot join a network namespace", task.name, task.driver))
}

/// What drivers hold for its network beside their tasks. Errors: of the first one that failed.
async fn leave(subject: &OfAlloc, spec: &AllocSpec) -> Result<(), String> {
    let names: BTreeSet<&str> = spec.group().tasks.iter().map(|task| task.driver.as_str()).collect();
    let mut left = Ok(());
    for driver in names.into_iter().filter_map(|name| subject.ctx.drivers.get(name)) {
        left = left.and(call::leave_network(driver.as_ref(), &subject.id).await.map_err(|e| e.to_string()));
    }
    left
}

/// In the host's network a group may have `dns` of its own all the same.
async fn resolver(
    phase: HookPhase,
    subject: &OfAlloc,
    spec: &AllocSpec,
    network: &GroupNetwork,
) -> Result<(), HookError> {
    let Some(dns) = network.dns.as_ref().map(|dns| GroupReferences::of(phase, subject, spec).dns(dns)) else {
        return Ok(());
    };
    let files = subject.ctx.data_dir.network(&subject.id);
    let all_exited = spec.all_exited;
    let work = move || match phase {
        HookPhase::Prerun => {
            write_resolv_conf(&files, &dns).map_err(|e| format!("cannot write {}: {e}", files.display()))
        }
        _ if all_exited => tree::remove(&files).map_err(|e| e.to_string()),
        _ => Ok(()),
    };
    subject.ctx.blocking.block(work).await.and_then(|done| done).map_err(HookError::setup)
}

/// What references in the network of a group are resolved against.
struct GroupReferences {
    env: Env,
    meta: BTreeMap<String, String>,
    attributes: Env,
    /// Else a reference that is gone by now is no reason to leave the network in place.
    is_start: bool,
}

impl GroupReferences {
    fn of(phase: HookPhase, subject: &OfAlloc, spec: &AllocSpec) -> GroupReferences {
        let mut meta = spec.job.meta.clone();
        meta.extend(spec.group().meta.clone());
        let attributes = node_attributes(&subject.ctx.node, &subject.ctx.facts.now(), &spec.job);
        GroupReferences { env: variables(subject, spec), meta, attributes, is_start: phase == HookPhase::Prerun }
    }
    /// Errors: a reference that is not there.
    fn resolve(&self, field: &str, template: &str) -> Result<String, HookError> {
        match interpolate::resolve(field, template, &self.env, &self.meta, &self.attributes) {
            Err(_) if !self.is_start => Ok(template.to_owned()),
            resolved => resolved
                .map_err(|failed| invalid(failed.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))),
        }
    }
    /// A name server without a value is left out, as one that is no address.
    fn dns(&self, dns: &DnsConfig) -> DnsConfig {
        let each = |texts: &[String], holds: fn(&str) -> bool| -> Vec<String> {
            let resolved = texts.iter().filter_map(|text| self.resolve("network.dns", text).ok());
            resolved.filter(|text| holds(text)).collect()
        };
        DnsConfig {
            servers: each(&dns.servers, |server| server.parse::<IpAddr>().is_ok()),
            searches: each(&dns.searches, is_word),
            options: each(&dns.options, is_word),
        }
    }
    /// Errors: a reference that is not there, or that gives what no argument can have.
    fn cni_args(&self, args: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>, HookError> {
        let resolved = args.iter().map(|(name, template)| {
            let value = self.resolve(&format!("network.cni.args.{name}"), template)?;
            match is_cni_arg(&value) || !self.is_start {
                true => Ok((name.clone(), value)),
                false => Err(invalid(format!("network.cni.args.{name}: {value:?} has `;` or `=` in it"))),
            }
        });
        resolved.collect()
    }
}

fn invalid(message: String) -> HookError {
    HookError { kind: EventKind::FailedValidation, message, recoverable: false }
}

/// A line of resolv.conf has words.
fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| !c.is_control() && !c.is_whitespace())
}

/// Errors: a reference in its host name or its arguments that is not there.
fn network_request(
    phase: HookPhase,
    subject: &OfAlloc,
    spec: &AllocSpec,
    network: &GroupNetwork,
) -> Result<NetworkRequest, HookError> {
    let group = GroupReferences::of(phase, subject, spec);
    let resolve = |template: &String| group.resolve("network.hostname", template);
    // What a reference gave may be no host name.
    let tame = |name: String| clean_name(&format!("_{name}")).split_off(1).replace('_', "-");
    let plain = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    let hostname = network.hostname.as_ref().map(resolve).transpose()?;
    Ok(NetworkRequest {
        alloc: subject.id.clone(),
        mode: network.mode.clone(),
        hostname: hostname.map(|name| if plain(&name) { name } else { tame(name) }),
        dns: network.dns.as_ref().map(|dns| group.dns(dns)),
        cni_args: group.cni_args(&network.cni_args)?,
        ports: subject.ports.iter().filter(|_| network.mode.maps_ports()).cloned().collect(),
        files: subject.ctx.data_dir.network(&subject.id),
    })
}

/// Those that do not depend on a task.
fn variables(subject: &OfAlloc, spec: &AllocSpec) -> Env {
    let (id, group) = (&subject.id, spec.group());
    let values = [
        ("NOMAD_ALLOC_DIR", subject.ctx.data_dir.alloc(id).join("alloc").display().to_string()),
        ("NOMAD_ALLOC_ID", id.to_string()),
        ("NOMAD_SHORT_ALLOC_ID", id.short().to_owned()),
        ("NOMAD_ALLOC_NAME", spec.name.clone()),
        ("NOMAD_ALLOC_INDEX", spec.index.to_string()),
        ("NOMAD_GROUP_NAME", group.name.to_string()),
        ("NOMAD_JOB_ID", spec.job.id.to_string()),
        ("NOMAD_JOB_NAME", spec.job.name.clone()),
    ];
    values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
