//! Jobs that start other jobs, periodic and parameterized ones, and the children that they start. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::id::JobId;
use super::job::Job;
use super::words;

/// How a job is launched: at once, or as the child of a job that launches it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launching {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub periodic: Option<Box<Periodic>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameterized: Option<Box<Parameterized>>,
    /// Of a child: who launched it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<Box<ChildJob>>,
}

/// Launched by the clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Periodic {
    /// `false`: neither the clock nor a request launches it.
    pub enabled: bool,
    /// Cron expressions: due when any of them is.
    pub crons: Vec<String>,
    /// No launch while a child runs.
    #[serde(default)]
    pub prohibit_overlap: bool,
    /// An IANA name, `UTC` or `Local`.
    pub time_zone: String,
}

/// Launched by requests that bring parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameterized {
    pub payload: PayloadRule,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub meta_required: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub meta_optional: Vec<String>,
}

words! {
    /// Whether a dispatch brings a payload.
    #[derive(Default)]
    pub enum PayloadRule {
        #[default]
        Optional = "optional",
        Required = "required",
        Forbidden = "forbidden",
    }
}

/// What a child has of its launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildJob {
    pub parent: JobId,
    /// The job at the top of its line: its usage and its exits count as that job's.
    pub workload: JobId,
    /// Base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// The dispatch's idempotency token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// A payload's limit, in bytes: Nomad's.
pub const MAX_PAYLOAD_BYTES: usize = 16 << 10;

/// What a dispatch brings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DispatchParameters {
    pub payload: Option<DispatchPayload>,
    pub meta: BTreeMap<String, String>,
    pub token: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DispatchPayload {
    pub base64: String,
    /// Of what it encodes.
    pub bytes: usize,
}

/// Why a dispatch is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DispatchRefusal {
    #[error("the job is not parameterized: `allostat run` starts it")]
    NotParameterized,
    #[error("the job requires a payload, and the dispatch has none")]
    PayloadMissing,
    #[error("the job forbids a payload, and the dispatch has one")]
    PayloadForbidden,
    #[error("the payload has {bytes} bytes; the limit is {MAX_PAYLOAD_BYTES}")]
    PayloadTooLarge { bytes: usize },
    #[error("the dispatch lacks required metadata: {}", .0.join(", "))]
    MetaMissing(Vec<String>),
    #[error("the dispatch has metadata that the job does not permit: {}", .0.join(", "))]
    MetaUnknown(Vec<String>),
}

impl DispatchRefusal {
    /// The field of the request that is wrong.
    pub fn field(&self) -> Option<&'static str> {
        match self {
            DispatchRefusal::NotParameterized => None,
            DispatchRefusal::PayloadMissing
            | DispatchRefusal::PayloadForbidden
            | DispatchRefusal::PayloadTooLarge { .. } => Some("Payload"),
            DispatchRefusal::MetaMissing(_) | DispatchRefusal::MetaUnknown(_) => Some("Meta"),
        }
    }
}

impl Parameterized {
    /// Every key that a dispatch may bring.
    pub fn keys(&self) -> impl Iterator<Item = &String> {
        self.meta_required.iter().chain(&self.meta_optional)
    }

    fn check(&self, given: &DispatchParameters) -> Result<(), DispatchRefusal> {
        match (&given.payload, self.payload) {
            (None, PayloadRule::Required) => return Err(DispatchRefusal::PayloadMissing),
            (Some(_), PayloadRule::Forbidden) => return Err(DispatchRefusal::PayloadForbidden),
            (Some(payload), PayloadRule::Optional | PayloadRule::Required) if payload.bytes > MAX_PAYLOAD_BYTES => {
                return Err(DispatchRefusal::PayloadTooLarge { bytes: payload.bytes });
            }
            (None, PayloadRule::Optional | PayloadRule::Forbidden)
            | (Some(_), PayloadRule::Optional | PayloadRule::Required) => {}
        }
        let is_known = |key: &&String| self.keys().any(|known| known == *key);
        let unknown: Vec<String> = given.meta.keys().filter(|key| !is_known(key)).cloned().collect();
        if !unknown.is_empty() {
            return Err(DispatchRefusal::MetaUnknown(unknown));
        }
        let missing = self.meta_required.iter().filter(|key| !given.meta.contains_key(*key));
        let missing: Vec<String> = missing.cloned().collect();
        if missing.is_empty() { Ok(()) } else { Err(DispatchRefusal::MetaMissing(missing)) }
    }
}

impl Job {
    /// It starts children and runs nothing itself.
    pub fn is_parent(&self) -> bool {
        self.launching.periodic.is_some() || self.launching.parameterized.is_some()
    }
    /// The job that launched it.
    pub fn parent(&self) -> Option<&JobId> {
        self.launching.child.as_ref().map(|child| &child.parent)
    }
    /// The name that its totals are kept under: of all children of a job the job's.
    pub fn workload(&self) -> &JobId {
        self.launching.child.as_ref().map_or(&self.id, |child| &child.workload)
    }
    /// It is launched by the clock.
    pub fn clock(&self) -> Option<&Periodic> {
        let clock = self.launching.periodic.as_deref();
        clock.filter(|clock| clock.enabled && self.launching.parameterized.is_none())
    }

    /// The child that is launched at a second of the Unix epoch.
    pub fn periodic_child(&self, at: u64) -> Job {
        let launching = Launching { periodic: None, ..self.launching.clone() };
        self.child(format!("{}/periodic-{at}", self.id), launching)
    }

    /// The child of a dispatch at a second of the Unix epoch. `unique`: distinguishes it from others of that second.
    ///
    /// Errors: the parameters are not those that the job asks for.
    pub fn dispatched_child(&self, given: DispatchParameters, at: u64, unique: &str) -> Result<Job, DispatchRefusal> {
        let Some(asks) = &self.launching.parameterized else { return Err(DispatchRefusal::NotParameterized) };
        asks.check(&given)?;
        let launching = Launching { parameterized: None, ..self.launching.clone() };
        let mut child = self.child(format!("{}/dispatch-{at}-{unique}", self.id), launching);
        for key in &asks.meta_optional {
            child.meta.entry(key.clone()).or_default();
        }
        child.meta.extend(given.meta);
        if let Some(of) = &mut child.launching.child {
            of.payload = given.payload.map(|payload| payload.base64);
            of.token = given.token;
        }
        Ok(child)
    }

    fn child(&self, id: String, launching: Launching) -> Job {
        let of_parent = launching.child.as_deref();
        let child = ChildJob {
            parent: self.id.clone(),
            workload: self.workload().clone(),
            payload: of_parent.and_then(|child| child.payload.clone()),
            token: None,
        };
        Job {
            id: id.as_str().into(),
            name: id,
            launching: Launching { child: Some(Box::new(child)), ..launching },
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::job::{JobKind, Placing};

    fn job(launching: Launching) -> Job {
        Job {
            id: "mail".into(),
            name: "Mail".to_owned(),
            kind: JobKind::Batch,
            namespace: String::new(),
            region: String::new(),
            datacenters: Vec::new(),
            node_pool: Job::ANY_POOL.to_owned(),
            meta: BTreeMap::from([("from".to_owned(), "me".to_owned())]),
            placing: Placing::default(),
            launching,
            groups: Vec::new(),
        }
    }
    fn asks(payload: PayloadRule) -> Launching {
        let list = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
        let asks = Parameterized { payload, meta_required: list(&["to"]), meta_optional: list(&["from", "why"]) };
        Launching { parameterized: Some(Box::new(asks)), ..Launching::default() }
    }
    fn given(bytes: Option<usize>, meta: &[(&str, &str)]) -> DispatchParameters {
        DispatchParameters {
            payload: bytes.map(|bytes| DispatchPayload { base64: "eA==".to_owned(), bytes }),
            meta: meta.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            token: None,
        }
    }

    #[test]
    fn a_dispatched_child_has_the_merged_metadata_and_counts_as_its_parent() {
        let parent = job(asks(PayloadRule::Optional));
        let child = parent.dispatched_child(given(Some(1), &[("to", "you")]), 7, "ab").unwrap();
        assert_eq!((child.id.as_str(), child.name.as_str()), ("mail/dispatch-7-ab", "mail/dispatch-7-ab"));
        assert_eq!((child.workload().as_str(), child.parent().unwrap().as_str()), ("mail", "mail"));
        let meta: Vec<(&str, &str)> = child.meta.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(meta, [("from", "me"), ("to", "you"), ("why", "")], "an optional key is there, empty");
        assert_eq!(child.launching.child.as_ref().unwrap().payload.as_deref(), Some("eA=="));
        assert!(!child.is_parent());
    }

    #[test]
    fn a_dispatch_is_refused_for_what_it_lacks_and_for_what_is_not_permitted() {
        let refused = |rule, bytes, meta: &[(&str, &str)]| {
            job(asks(rule)).dispatched_child(given(bytes, meta), 7, "ab").unwrap_err()
        };
        let to = [("to", "you")];
        assert_eq!(refused(PayloadRule::Required, None, &to), DispatchRefusal::PayloadMissing);
        assert_eq!(refused(PayloadRule::Forbidden, Some(1), &to), DispatchRefusal::PayloadForbidden);
        let bytes = MAX_PAYLOAD_BYTES + 1;
        assert_eq!(refused(PayloadRule::Optional, Some(bytes), &to), DispatchRefusal::PayloadTooLarge { bytes });
        assert_eq!(refused(PayloadRule::Optional, None, &[]), DispatchRefusal::MetaMissing(vec!["to".to_owned()]));
        let unknown = refused(PayloadRule::Optional, None, &[("to", "you"), ("x", "")]);
        assert_eq!(unknown, DispatchRefusal::MetaUnknown(vec!["x".to_owned()]));
        let plain = job(Launching::default()).dispatched_child(given(None, &[]), 7, "ab");
        assert_eq!(plain, Err(DispatchRefusal::NotParameterized));
    }

    #[test]
    fn a_dispatched_periodic_job_launches_children_that_keep_the_payload_and_the_workload() {
        let clock = Periodic {
            enabled: true,
            crons: vec!["@hourly".to_owned()],
            prohibit_overlap: false,
            time_zone: "UTC".to_owned(),
        };
        let both = Launching { periodic: Some(Box::new(clock)), ..asks(PayloadRule::Optional) };
        let parent = job(both);
        assert_eq!(parent.clock(), None, "a parameterized job is launched by requests alone");
        let child = parent.dispatched_child(given(Some(1), &[("to", "you")]), 7, "ab").unwrap();
        assert!(child.is_parent() && child.clock().is_some());
        let run = child.periodic_child(60);
        assert_eq!(run.id.as_str(), "mail/dispatch-7-ab/periodic-60");
        assert_eq!((run.workload().as_str(), run.parent().unwrap().as_str()), ("mail", "mail/dispatch-7-ab"));
        assert_eq!(run.launching.child.as_ref().unwrap().payload.as_deref(), Some("eA=="));
        assert!(!run.is_parent());
    }
}
