//! One line: `{"ended_at": .., "alloc": {as /v1/allocs/{id}}, "stats": {as /v1/allocs/{id}/stats}}`, without what is of
//! a moment only.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::exporters::json;
use crate::exporters::json::allocs::AllocAnswer;
use crate::exporters::json::stats::AllocStats;
use crate::model::alloc::{AllocSource, AllocState};
use crate::model::answer::{Detail, WITHHELD};
use crate::model::event::Event;
use crate::model::task::{ExitStatus, TaskState};
use crate::model::units::Timestamp;
use crate::snapshot::{AllocView, Snapshot};

/// Of a task on this host: who sees the metrics alone need not see it.
const PLACES: [&str; 3] = ["cgroup", "main", "user"];

/// When all of it was over. `None`: it is not.
pub(super) fn ended_at(alloc: &AllocView) -> Option<Timestamp> {
    if !alloc.ended {
        return None;
    }
    let managed = alloc.status.as_ref().and_then(|status| status.finished_at);
    managed.or_else(|| alloc.observed.as_ref()?.ended_at)
}

/// What has ended, the newest first.
#[derive(Debug, Serialize, JsonSchema)]
pub struct HistoryAnswer {
    pub ended: Vec<EndedAnswer>,
    /// There are more than the limit.
    pub has_more: bool,
}

/// One alloc at its end.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EndedAnswer {
    pub ended_at: Timestamp,
    pub alloc: AllocAnswer,
    pub stats: AllocStats,
}

/// All that is known of it.
pub(super) fn record(snapshot: &Snapshot, alloc: &AllocView, ended_at: Timestamp) -> Value {
    let mut own = json::allocs::alloc(alloc, Detail::Full);
    // Its job's text, which says more of a secret than of an end; and what changes while it is shown.
    (own.definition, own.exposed, own.generation) = (None, None, None);
    own.tasks.values_mut().for_each(|task| task.event_counts = None);
    let mut stats = json::stats::stats(snapshot, alloc, Detail::Public, ended_at);
    (stats.absent, stats.age_ms, stats.epoch, stats.taken_at, stats.sampled_at) = (None, None, None, None, None);
    for task in stats.tasks.values_mut() {
        (task.absent, task.age_ms, task.sampled_at, task.state, task.this_attempt) = (None, None, None, None, None);
        if let Some(times) = &mut task.time_in_state_ns {
            times.remove(TaskState::Dead.as_str());
        }
    }
    json!(EndedAnswer { ended_at, alloc: own, stats })
}

/// A query; the default matches everything.
#[derive(Debug, Clone, Default)]
pub struct HistoryQuery {
    /// An ID, a prefix of one, the name that its source uses; otherwise the name of an alloc or of its job.
    pub id: Option<String>,
    pub job: Option<String>,
    pub source: Option<AllocSource>,
    pub failed: bool,
    /// When it ended.
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// So many at most.
    pub limit: usize,
}

/// How a record matches an ID; a lower one is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum IdMatch {
    /// As a whole, or as its source calls it; or no ID is sought.
    Exactly,
    Beginning,
    /// It is the name of the alloc or of its job.
    Named,
}

/// What is looked at first: the rest is not even read where it is not sought.
#[derive(Debug, Deserialize)]
pub(super) struct BriefRecord<'a> {
    pub ended_at: Timestamp,
    #[serde(borrow)]
    pub alloc: BriefAlloc<'a>,
}

#[derive(Debug, Deserialize)]
pub(super) struct BriefAlloc<'a> {
    #[serde(borrow)]
    pub id: Cow<'a, str>,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    job: Cow<'a, str>,
    #[serde(borrow)]
    source: Cow<'a, str>,
    #[serde(borrow, default)]
    status: Cow<'a, str>,
}

impl BriefRecord<'_> {
    /// `None`: it is no record.
    pub(super) fn read(line: &[u8]) -> Option<BriefRecord<'_>> {
        serde_json::from_slice(line).ok()
    }
    /// The best way in which it matches. `None`: it is not sought.
    pub(super) fn called(&self, query: &HistoryQuery) -> Option<IdMatch> {
        let BriefAlloc { id, name, job, source, status } = &self.alloc;
        let is_match = query.job.as_ref().is_none_or(|name| *name == **job)
            && query.source.is_none_or(|by| AllocSource::parse(source) == Some(by))
            && (!query.failed || AllocState::parse(status) == Some(AllocState::Failed))
            && query.since.is_none_or(|since| self.ended_at >= since)
            && query.until.is_none_or(|until| self.ended_at <= until);
        let native = || id.split_once(':').map(|(_, native)| native);
        match &query.id {
            _ if !is_match => None,
            None => Some(IdMatch::Exactly),
            Some(text) if *text == **id || native() == Some(text) => Some(IdMatch::Exactly),
            Some(text) if id.starts_with(text.as_str()) => Some(IdMatch::Beginning),
            Some(text) => (*text == **name || *text == **job).then_some(IdMatch::Named),
        }
    }
}

/// As who sees the metrics alone may see it. `None`: it is no record.
pub(super) fn public(line: &[u8]) -> Option<Vec<u8>> {
    let mut all: Value = serde_json::from_slice(line).ok()?;
    let alloc = all.get_mut("alloc")?;
    without(alloc, &PLACES);
    each_task(alloc, |task| {
        without(task, &PLACES);
        let exits = task.get_mut("exits").and_then(Value::as_array_mut);
        exits.into_iter().flatten().for_each(withhold_of_exit);
        if let Some(exit) = task.get_mut("last_exit") {
            withhold_of_exit(exit);
        }
        if let Some(events) = task.get_mut("events").and_then(Value::as_array_mut) {
            *events = events
                .drain(..)
                .filter_map(|event| serde_json::from_value::<Event>(event).ok())
                .map(|event| json!(json::event(&Detail::Public.event(&event))))
                .collect();
        }
    });
    Some(all.to_string().into_bytes())
}

fn withhold_of_exit(exit: &mut Value) {
    without(exit, &["last_output"]);
    if let Some(status) = exit.get_mut("status") {
        let unread = |_| ExitStatus::Unknown(WITHHELD.to_owned());
        let read = serde_json::from_value::<ExitStatus>(status.take());
        *status = json!(read.map_or_else(unread, |status| Detail::Public.status(&status)));
    }
}

fn without(of: &mut Value, keys: &[&str]) {
    if let Some(object) = of.as_object_mut() {
        object.retain(|key, _| !keys.contains(&key.as_str()));
    }
}

fn each_task(of: &mut Value, change: impl FnMut(&mut Value)) {
    let tasks = of.get_mut("tasks").and_then(Value::as_object_mut);
    tasks.into_iter().flat_map(Map::values_mut).for_each(change);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_record_has_the_times_of_events_as_allocs_have_them() {
        let event = json!({ "seq": 1, "task_seq": 1, "time": 1_500_000_000_u64, "kind": "Started", "message": "m" });
        let tasks = json!({ "t": { "user": "u", "events": [event, { "kind": "of a newer agent" }] } });
        let line = json!({ "ended_at": 2, "alloc": { "id": "a", "tasks": tasks }, "stats": {} }).to_string();
        let shown: Value = serde_json::from_slice(&public(line.as_bytes()).unwrap()).unwrap();
        let task = &shown["alloc"]["tasks"]["t"];
        assert!(
            task.get("user").is_none() && task["events"].as_array().is_some_and(|events| events.len() == 1),
            "{shown}"
        );
        let event = &task["events"][0];
        assert_eq!(
            (&event["timestamp"], &event["timestamp_ns"]),
            (&json!("1970-01-01T00:00:01.500000000Z"), &json!("1500000000"))
        );
    }
}
