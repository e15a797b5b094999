//! `GET /v1/node`: this host and its attributes, what can be measured on it and why the rest cannot, and the drivers.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::access::Access;
use super::contract::{EndpointAnswer, QueryRule};
use super::http::Reply;
use super::{ApiContext, Method, Route};
use crate::exporters::json::node::{NodeSummary, node as summary};
use crate::fingerprint::{FingerprinterInfo, FingerprinterState};
use crate::model::answer::{Detail, WITHHELD};
use crate::model::attributes::Attributes;
use crate::model::id::{AllocId, TaskName};
use crate::model::units::Timestamp;
use crate::model::volume::HostVolume;
use crate::runner::drivers::{DriverInfo, Health};
use crate::runner::{Fate, Orphan, Stray, Watchers};
use crate::snapshot::Snapshot;
use crate::telemetry::metrics::WatchedBy;

pub(super) static NODE: Route = Route {
    method: Method::Get,
    path: "/v1/node",
    access: Access::Read,
    about: "this host, and what can be measured on it",
    query: QueryRule::NONE,
    body: None,
    answers: &[EndpointAnswer::json::<NodeAnswer>()],
    handler: |context, request| {
        Box::pin(async {
            let snapshot = context.snapshots.refresh().await;
            Ok(Reply::json(&node(context, &snapshot, request.origin.detail())))
        })
    },
};

/// This host and this agent.
#[derive(Debug, Serialize, JsonSchema)]
pub struct NodeAnswer {
    #[serde(flatten)]
    pub summary: NodeSummary,
    pub drivers: Vec<DriverAnswer>,
    /// Attributes by name, as constraints of job files use them.
    pub attributes: Attributes,
    pub fingerprinters: Vec<FingerprinterAnswer>,
    /// Hooks of allocs and of tasks, in the order in which they set up.
    pub hooks: BTreeMap<&'static str, Vec<&'static str>>,
    /// Metadata of the node. Only for clients that may act.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<BTreeMap<String, String>>,
    pub host_volumes: Vec<HostVolumeAnswer>,
    /// Records that could not be read and were set aside.
    pub quarantined: Vec<String>,
    /// Processes of tasks that no record has any more.
    pub orphans: Vec<OrphanAnswer>,
    /// Supervisors on this host by the agent that watches them. Absent until they are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supervisors: Option<BTreeMap<&'static str, u64>>,
    /// Supervisors of other agents, or of none. Only for clients that may act.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strays: Option<Vec<StrayAnswer>>,
}

/// A driver and its last fingerprint.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DriverAnswer {
    pub name: String,
    pub healthy: bool,
    /// Since when it is that.
    pub since: Timestamp,
    pub message: String,
    /// Absent until it has answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attributes: Option<BTreeMap<String, String>>,
}

/// A fingerprinter: what finds attributes of the host.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FingerprinterAnswer {
    pub name: String,
    /// `pending`, `current` or `degraded`.
    pub state: &'static str,
    pub since: Timestamp,
    /// Why it is degraded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A directory or file of this host that jobs may mount.
#[derive(Debug, Serialize, JsonSchema)]
pub struct HostVolumeAnswer {
    pub name: String,
    pub read_only: bool,
    /// Only for clients that may act.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub path: Option<std::path::PathBuf>,
}

/// A process of a task without a record.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OrphanAnswer {
    pub alloc_id: AllocId,
    pub task: TaskName,
    /// Counted from 0.
    pub attempt: u32,
    /// `ending`, `killed` or `may_run`.
    pub fate: &'static str,
    /// Only for clients that may act.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Why it may still run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A supervisor that this agent does not watch.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StrayAnswer {
    pub pid: u32,
    pub watched_by: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alloc_id: Option<String>,
}

fn node(context: &ApiContext, snapshot: &Snapshot, detail: Detail) -> NodeAnswer {
    let runner = &context.runner;
    let identity = &snapshot.info.identity;
    let is_full = detail == Detail::Full;
    let watchers = runner.watchers();
    let quarantined = runner.quarantined();
    // They may be another user's: this user sees there what its own permissions show.
    let strays = watchers.as_ref().filter(|_| is_full);
    NodeAnswer {
        summary: summary(snapshot),
        drivers: runner.driver_infos().iter().map(|(name, info)| driver(name, info)).collect(),
        attributes: runner.facts().now().as_ref().clone(),
        fingerprinters: context.fingerprinters.now().iter().map(|one| fingerprinter(one, detail)).collect(),
        hooks: runner.hooks().into_iter().collect(),
        meta: Some(identity.meta.clone()).filter(|_| is_full),
        host_volumes: identity.host_volumes.iter().map(|one| host_volume(one, detail)).collect(),
        // That there are some is no secret; what they are called and hold is.
        quarantined: quarantined.iter().map(|one| if is_full { one.clone() } else { WITHHELD.to_owned() }).collect(),
        orphans: runner.orphans().iter().map(|one| orphan(one, detail)).collect(),
        supervisors: watchers.as_ref().map(supervisors),
        strays: strays.map(|watchers| watchers.strays.iter().map(stray).collect()),
    }
}

fn driver(name: &str, info: &DriverInfo) -> DriverAnswer {
    let report = info.fingerprint.as_ref();
    let unknown = || "it has not reported its health yet".to_owned();
    DriverAnswer {
        name: name.to_owned(),
        healthy: info.is_healthy(),
        since: info.since,
        message: report.map_or_else(unknown, |report| report.description.clone()),
        health: report.map(|report| report.health),
        attributes: report.map(|report| report.attributes.clone()),
    }
}

fn fingerprinter(info: &FingerprinterInfo, detail: Detail) -> FingerprinterAnswer {
    let message = match &info.state {
        // It may cite a path.
        FingerprinterState::Degraded(why) => Some(if detail == Detail::Full { why.as_str() } else { WITHHELD }),
        FingerprinterState::Pending | FingerprinterState::Current => None,
    };
    FingerprinterAnswer {
        name: info.name.to_string(),
        state: info.state.as_str(),
        since: info.since,
        message: message.map(str::to_owned),
    }
}

/// Where it is, is in the answers to those who may start tasks.
fn host_volume(volume: &HostVolume, detail: Detail) -> HostVolumeAnswer {
    HostVolumeAnswer {
        name: volume.name.clone(),
        read_only: volume.read_only,
        path: Some(volume.path.clone()).filter(|_| detail == Detail::Full),
    }
}

/// How many there are on this host, by who watches them.
pub(super) fn supervisors(watchers: &Watchers) -> BTreeMap<&'static str, u64> {
    WatchedBy::ALL.iter().zip(watchers.counts).map(|(by, n)| (by.as_str(), n)).collect()
}

/// Its directory shows whose it is; where that lies is in the agent's log alone.
fn stray(stray: &Stray) -> StrayAnswer {
    let Stray { process, run_dir, watched_by } = stray;
    let mut names = run_dir.iter().rev().skip(1).filter_map(|name| name.to_str()).map(str::to_owned);
    let (task, alloc_id) = (names.next(), names.next());
    StrayAnswer { pid: process.pid, watched_by: watched_by.as_str(), task, alloc_id }
}

fn orphan(orphan: &Orphan, detail: Detail) -> OrphanAnswer {
    let (fate, why) = match &orphan.fate {
        Fate::Ending => ("ending", None),
        Fate::Killed => ("killed", None),
        Fate::MayRun(why) => ("may_run", Some(why)),
    };
    let is_full = detail == Detail::Full;
    OrphanAnswer {
        alloc_id: orphan.alloc_id.clone(),
        task: orphan.task.clone(),
        attempt: orphan.attempt,
        fate,
        pid: orphan.pid.filter(|_| is_full),
        why: why.map(|why| if is_full { why.clone() } else { WITHHELD.to_owned() }),
    }
}
