//! `GET /v1/node`: this host and its attributes, what can be measured on it and why the rest cannot, and the drivers.

use serde_json::{Map, Value, json};

use super::access::Access;
use super::http::Reply;
use super::{Context, Method, Route};
use crate::exporters::json as views;
use crate::fingerprint::{FingerprinterInfo, FingerprinterState};
use crate::model::answer::{Detail, WITHHELD};
use crate::model::volume::HostVolume;
use crate::runner::drivers::{DriverInfo, Fingerprint};
use crate::runner::{Fate, Orphan, Stray, Watchers};
use crate::snapshot::Snapshot;
use crate::telemetry::metrics::WatchedBy;

pub(super) static NODE: Route = Route {
    method: Method::Get,
    path: "/v1/node",
    access: Access::Read,
    about: "this host, and what can be measured on it",
    handler: |context, request| {
        Box::pin(async {
            request.query().only(&[])?;
            let snapshot = context.snapshots.bring().await;
            Ok(Reply::json(&node(context, &snapshot, request.origin.detail())))
        })
    },
};

fn node(context: &Context, snapshot: &Snapshot, detail: Detail) -> Value {
    let runner = &context.runner;
    let mut node = views::node(snapshot);
    node["drivers"] = runner.driver_infos().iter().map(|(name, info)| driver(name, info)).collect();
    node["attributes"] = json!(*runner.facts().now());
    node["fingerprinters"] = context.fingerprinters.now().iter().map(|one| fingerprinter(one, detail)).collect();
    node["hooks"] = runner.hooks().into_iter().map(|(runner, order)| (runner.to_owned(), json!(order))).collect();
    if detail == Detail::Full {
        node["meta"] = json!(snapshot.info.identity.meta);
    }
    node["host_volumes"] = snapshot.info.identity.host_volumes.iter().map(|one| host_volume(one, detail)).collect();
    let quarantined = runner.quarantined();
    node["quarantined"] = match detail {
        Detail::Full => json!(quarantined),
        // That there are some is no secret; what they are called and hold is.
        Detail::Public => quarantined.iter().map(|_| WITHHELD).collect(),
    };
    node["orphans"] = runner.orphans().iter().map(|one| orphan(one, detail)).collect();
    if let Some(watchers) = runner.watchers() {
        node["supervisors"] = supervisors(&watchers);
        // They may be another user's: who looks there by himself sees what he may see.
        if detail == Detail::Full {
            node["strays"] = watchers.strays.iter().map(stray).collect();
        }
    }
    node
}

fn driver(name: &str, info: &DriverInfo) -> Value {
    let mut row = json!({ "name": name, "healthy": info.is_healthy(), "since": info.since, "message": "it has not said yet how it is" });
    if let Some(Fingerprint { health, description, attributes }) = &info.fingerprint {
        row["message"] = json!(description);
        row["health"] = json!(health);
        row["attributes"] = json!(attributes);
    }
    row
}

fn fingerprinter(info: &FingerprinterInfo, detail: Detail) -> Value {
    let FingerprinterInfo { name, state, since } = info;
    let mut row = json!({ "name": name, "state": state.as_str(), "since": since });
    if let FingerprinterState::Degraded(why) = state {
        // It may cite a path.
        row["message"] = json!(if detail == Detail::Full { why } else { WITHHELD });
    }
    row
}

/// Where it is, is in the answers to those who may start tasks.
fn host_volume(volume: &HostVolume, detail: Detail) -> Value {
    let mut row = json!({ "name": volume.name, "read_only": volume.read_only });
    if detail == Detail::Full {
        row["path"] = json!(volume.path);
    }
    row
}

/// How many there are on this host, by who watches them.
pub(super) fn supervisors(watchers: &Watchers) -> Value {
    let counts = WatchedBy::ALL.iter().zip(watchers.counts).map(|(by, n)| (by.as_str().to_owned(), json!(n)));
    counts.collect::<Map<_, _>>().into()
}

/// Its directory tells whose it is; where that lies is in the agent's log alone.
fn stray(stray: &Stray) -> Value {
    let Stray { process, run_dir, watched_by } = stray;
    let mut names = run_dir.iter().rev().skip(1).filter_map(|name| name.to_str());
    let mut row = json!({ "pid": process.pid, "watched_by": watched_by.as_str() });
    names.next().iter().for_each(|task| row["task"] = json!(task));
    names.next().iter().for_each(|alloc| row["alloc_id"] = json!(alloc));
    row
}

fn orphan(orphan: &Orphan, detail: Detail) -> Value {
    let Orphan { alloc_id, task, attempt, pid, fate } = orphan;
    let (fate, why) = match fate {
        Fate::Ending => ("ending", None),
        Fate::Killed => ("killed", None),
        Fate::MayRun(why) => ("may_run", Some(why)),
    };
    let mut row = json!({ "alloc_id": alloc_id, "task": task, "attempt": attempt, "fate": fate });
    if detail == Detail::Full {
        pid.iter().for_each(|pid| row["pid"] = json!(pid));
    }
    why.iter().for_each(|why| row["why"] = json!(if detail == Detail::Full { why } else { WITHHELD }));
    row
}
