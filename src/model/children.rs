//! Jobs that launch others, and the children that they launch. Pure.

use super::id::JobId;
use super::job::Job;
use super::launching::{ChildJob, DispatchParameters, DispatchRefusal, JobLaunching, Periodic};

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
        let launching = JobLaunching { periodic: None, ..self.launching.clone() };
        self.child(format!("{}/periodic-{at}", self.id), launching)
    }

    /// The child of a dispatch at a second of the Unix epoch. `unique`: distinguishes it from others of that second.
    ///
    /// Errors: the parameters are not those that the job asks for.
    pub fn dispatched_child(&self, given: DispatchParameters, at: u64, unique: &str) -> Result<Job, DispatchRefusal> {
        let Some(parameters) = &self.launching.parameterized else { return Err(DispatchRefusal::NotParameterized) };
        parameters.check(&given)?;
        let launching = JobLaunching { parameterized: None, ..self.launching.clone() };
        let mut child = self.child(format!("{}/dispatch-{at}-{unique}", self.id), launching);
        for key in &parameters.meta_optional {
            child.meta.entry(key.clone()).or_default();
        }
        child.meta.extend(given.meta);
        if let Some(of) = &mut child.launching.child {
            of.payload = given.payload.map(|payload| payload.base64);
            of.token = given.token;
        }
        Ok(child)
    }

    fn child(&self, id: String, launching: JobLaunching) -> Job {
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
            launching: JobLaunching { child: Some(Box::new(child)), ..launching },
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::model::job::{JobKind, PlacementRules};
    use crate::model::launching::{DispatchPayload, MAX_PAYLOAD_BYTES, Parameterized, PayloadRule};

    fn job(launching: JobLaunching) -> Job {
        Job {
            id: "mail".into(),
            name: "Mail".to_owned(),
            kind: JobKind::Batch,
            namespace: String::new(),
            region: String::new(),
            datacenters: Vec::new(),
            node_pool: Job::ANY_POOL.to_owned(),
            meta: BTreeMap::from([("from".to_owned(), "me".to_owned())]),
            placing: PlacementRules::default(),
            launching,
            groups: Vec::new(),
            sensitive: Default::default(),
        }
    }
    fn launching(payload: PayloadRule) -> JobLaunching {
        let list = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
        let parameters = Parameterized { payload, meta_required: list(&["to"]), meta_optional: list(&["from", "why"]) };
        JobLaunching { parameterized: Some(Box::new(parameters)), ..JobLaunching::default() }
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
        let parent = job(launching(PayloadRule::Optional));
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
            job(launching(rule)).dispatched_child(given(bytes, meta), 7, "ab").unwrap_err()
        };
        let to = [("to", "you")];
        assert_eq!(refused(PayloadRule::Required, None, &to), DispatchRefusal::PayloadMissing);
        assert_eq!(refused(PayloadRule::Forbidden, Some(1), &to), DispatchRefusal::PayloadForbidden);
        let bytes = MAX_PAYLOAD_BYTES + 1;
        assert_eq!(refused(PayloadRule::Optional, Some(bytes), &to), DispatchRefusal::PayloadTooLarge { bytes });
        assert_eq!(refused(PayloadRule::Optional, None, &[]), DispatchRefusal::MetaMissing(vec!["to".to_owned()]));
        let unknown = refused(PayloadRule::Optional, None, &[("to", "you"), ("x", "")]);
        assert_eq!(unknown, DispatchRefusal::MetaUnknown(vec!["x".to_owned()]));
        let plain = job(JobLaunching::default()).dispatched_child(given(None, &[]), 7, "ab");
        assert_eq!(plain, Err(DispatchRefusal::NotParameterized));
    }

    #[test]
    fn dispatched_periodic_job_launches_children_with_its_payload_and_workload() {
        let clock = Periodic {
            enabled: true,
            crons: vec!["@hourly".to_owned()],
            prohibit_overlap: false,
            time_zone: "UTC".to_owned(),
        };
        let both = JobLaunching { periodic: Some(Box::new(clock)), ..launching(PayloadRule::Optional) };
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
