//! The network namespace of an alloc, where its group asks for one: made before its first task, recorded with its ports, removed when
//! nothing of it is left.

use std::sync::Arc;
use std::time::Duration;

use super::frame::{Hook, HookError, HookOutcome, Phase};
use super::subject::{AllocAsks, OfAlloc};
use crate::jobspec::interpolate;
use crate::model::env::{Env, clean_name};
use crate::model::event::EventKind;
use crate::model::job::Task;
use crate::model::network::GroupNetwork;
use crate::runner::drivers::BoxFuture;
use crate::runner::networks::NetworkAsk;

/// Several plugins, each with its own time.
const WITHIN: Duration = Duration::from_secs(180);

pub struct AllocNetworkHook;

impl Hook<OfAlloc> for AllocNetworkHook {
    fn name(&self) -> &'static str {
        "network"
    }
    fn after(&self) -> &'static [&'static str] {
        &["ports"]
    }
    fn phases(&self) -> &'static [Phase] {
        &[Phase::Prerun, Phase::Postrun, Phase::Destroy]
    }
    fn deadline(&self, _: Phase) -> Duration {
        WITHIN
    }
    fn run<'a>(&'a self, phase: Phase, subject: &'a mut OfAlloc) -> BoxFuture<'a, Result<HookOutcome, HookError>> {
        Box::pin(async move {
            let ctx = Arc::clone(&subject.ctx);
            let Some(asks) = &subject.asks else {
                let id = subject.id.clone();
                let networks = Arc::clone(&ctx.networks);
                let forgotten = ctx.plugins.block(move || networks.forget(&id)).await;
                return forgotten.map(|()| HookOutcome::Again).map_err(HookError::setup);
            };
            let Some(network) = asks.group().network.as_ref().filter(|network| network.mode.is_isolated()) else {
                return Ok(HookOutcome::Again);
            };
            let ask = ask(subject, asks, network)?;
            let (networks, record) = (Arc::clone(&ctx.networks), subject.network.clone());
            if phase != Phase::Prerun {
                if asks.all_gone {
                    let torn = ctx.plugins.block(move || networks.tear_down(&ask, record.as_deref())).await;
                    torn.and_then(|torn| torn).map_err(HookError::setup)?;
                }
                return Ok(HookOutcome::Again);
            }
            if let Some(message) = cannot_join(subject, asks) {
                return Err(HookError { recoverable: false, ..HookError::setup(message) });
            }
            let work = move || match record {
                Some(record) if networks.exists(&record) => Ok(None),
                _ => networks.set_up(&ask).map(Some),
            };
            let made = ctx.plugins.block(work).await.and_then(|made| made);
            if let Some(record) = made.map_err(HookError::setup)? {
                let addresses = record.network.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                let inside = if addresses.is_empty() { "loopback alone".to_owned() } else { addresses };
                (asks.say)(EventKind::Network, format!("network namespace of mode {}: {inside}", record.network.mode));
                subject.network = Some(Box::new(record));
            }
            Ok(HookOutcome::Again)
        })
    }
}

/// The first task that would run in the host's network all the same.
fn cannot_join(subject: &OfAlloc, asks: &AllocAsks) -> Option<String> {
    let driver = |task: &Task| subject.ctx.drivers.get(task.driver.as_str());
    let task = asks.group().tasks.iter().find(|task| driver(task).is_some_and(|driver| !driver.joins_namespaces()))?;
    Some(format!("task {}: its driver {} cannot join a network namespace", task.name, task.driver))
}

/// Errors: a reference in its host name that is not there.
fn ask(subject: &OfAlloc, asks: &AllocAsks, network: &GroupNetwork) -> Result<NetworkAsk, HookError> {
    let resolve = |template: &String| {
        let mut meta = asks.job.meta.clone();
        meta.extend(asks.group().meta.clone());
        interpolate::resolve("network.hostname", template, &variables(subject, asks), &meta).map_err(|failed| {
            let message = failed.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            HookError { kind: EventKind::FailedValidation, message, recoverable: false }
        })
    };
    // What a reference gave may be no host name.
    let tame = |name: String| clean_name(&format!("_{name}")).split_off(1).replace('_', "-");
    let plain = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    let hostname = network.hostname.as_ref().map(resolve).transpose()?;
    Ok(NetworkAsk {
        alloc: subject.id.clone(),
        mode: network.mode.clone(),
        hostname: hostname.map(|name| if plain(&name) { name } else { tame(name) }),
        dns: network.dns.clone(),
        cni_args: network.cni_args.clone(),
        ports: subject.ports.iter().filter(|_| network.mode.maps_ports()).cloned().collect(),
        files: subject.ctx.data_dir.network(&subject.id),
    })
}

/// Those that do not depend on a task.
fn variables(subject: &OfAlloc, asks: &AllocAsks) -> Env {
    let (id, group) = (&subject.id, asks.group());
    let values = [
        ("NOMAD_ALLOC_ID", id.to_string()),
        ("NOMAD_SHORT_ALLOC_ID", id.short().to_owned()),
        ("NOMAD_ALLOC_NAME", asks.name.clone()),
        ("NOMAD_ALLOC_INDEX", asks.index.to_string()),
        ("NOMAD_GROUP_NAME", group.name.to_string()),
        ("NOMAD_JOB_ID", asks.job.id.to_string()),
        ("NOMAD_JOB_NAME", asks.job.name.clone()),
    ];
    values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
