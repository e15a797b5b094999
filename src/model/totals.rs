//! What ended attempts hand on: to their workload, and in the end to the node. Sums, which never fall.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::alloc::AllocSource;
use super::event::EventKind;
use super::id::{JobId, TaskName};
use super::metric::{Exemplar, Value};
use super::observed::RestartCause;
use super::task::{Exit, ExitStatus, LostOutput, Outcome, RestartReason, padded};
use super::text::label_value;
use super::units::{Nanos, Timestamp};
use super::usage::Usage;

/// What a workload's task (all its allocs together) used and went through.
///
/// `usage`, `exits`, `exit_codes`, `exit_signals` and `run_ns` are of *ended* attempts: `snapshot` adds the running
/// ones. `restarts` and `events` are counted when they happen, in running allocs too.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskTotals {
    /// When the first alloc with this task was submitted; `None`: totals came from an agent that did not record it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    pub usage: Usage,
    /// In the order of `Outcome::ALL`.
    pub exits: [u64; 6],
    /// By exit code of an error, by number of a signal.
    pub exit_codes: BTreeMap<u8, u64>,
    pub exit_signals: BTreeMap<u8, u64>,
    /// In the order of `RestartReason::ALL`.
    #[serde(deserialize_with = "padded")]
    pub restarts: [u64; 4],
    /// Restarts of observed tasks, in the order of `RestartCause::ALL`.
    #[serde(deserialize_with = "padded", skip_serializing_if = "is_nothing", rename = "begun_after")]
    pub restart_causes: [u64; 3],
    /// By event label.
    pub events: BTreeMap<String, u64>,
    /// Seconds that tasks ran, by outcome.
    pub run_ns: [u64; 6],
    pub kill_escalations: u64,
    #[serde(rename = "given_up")]
    pub abandoned: u64,
    #[serde(skip_serializing_if = "LostOutput::is_none")]
    pub lost_output: LostOutput,
    /// Of this agent's process alone: receivers have those of earlier ones.
    #[serde(skip)]
    pub latest: Option<Box<LatestExemplars>>,
}

/// Whose the latest of what [`TaskTotals`] counts was.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LatestExemplars {
    /// In the order of `Outcome::ALL`.
    pub exits: [Option<Exemplar>; 6],
    pub exit_codes: BTreeMap<u8, Option<Exemplar>>,
    pub exit_signals: BTreeMap<u8, Option<Exemplar>>,
    pub oom_kill: Option<Exemplar>,
    pub escalation: Option<Exemplar>,
    pub abandoned: Option<Exemplar>,
}

/// What workloads handed over 24 h after their last alloc; never falls.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeTotals {
    pub totals: TaskTotals,
    /// Allocs taken on in the agent's whole life, live ones included.
    pub allocs: u64,
}

impl TaskTotals {
    /// An attempt has ended. One that could not be started used what it used, and is no exit: its event and its restart
    /// count it.
    pub fn add_exit(&mut self, exit: &Exit) {
        self.usage.add_counters(&exit.usage);
        self.lost_output.add(exit.lost_output);
        if exit.status.never_ran() {
            return;
        }
        let outcome = exit.outcome.index();
        self.exits[outcome] = self.exits[outcome].saturating_add(1);
        match (&exit.status, exit.outcome) {
            (ExitStatus::Code(code), Outcome::Error) => *self.exit_codes.entry(*code).or_default() += 1,
            (ExitStatus::Signal(signal), Outcome::Signal) => *self.exit_signals.entry(*signal).or_default() += 1,
            // The other outcomes say all there is to say.
            (ExitStatus::Code(_) | ExitStatus::Signal(_) | ExitStatus::NotStarted(_) | ExitStatus::Unknown(_), _) => {}
        }
        if let Some(started_at) = exit.started_at {
            let ran = exit.finished_at.since(started_at).0;
            self.run_ns[outcome] = self.run_ns[outcome].saturating_add(ran);
        }
    }
    /// What one has used that has not ended.
    pub fn add_usage(&mut self, usage: &Usage) {
        self.usage.add_counters(usage);
    }
    /// Whose the exit was that was just added.
    pub fn note_exit(&mut self, exit: &Exit, exemplar: &Exemplar) {
        let latest = self.latest.get_or_insert_default();
        if let Some(kills) = exit.oom_kills.filter(|kills| *kills > 0) {
            Exemplar { value: Value::Int(kills), ..exemplar.clone() }.replace(&mut latest.oom_kill);
        }
        if exit.status.never_ran() {
            return;
        }
        exemplar.clone().replace(&mut latest.exits[exit.outcome.index()]);
        let number = match (&exit.status, exit.outcome) {
            (ExitStatus::Code(code), Outcome::Error) => latest.exit_codes.entry(*code).or_default(),
            (ExitStatus::Signal(signal), Outcome::Signal) => latest.exit_signals.entry(*signal).or_default(),
            (ExitStatus::Code(_) | ExitStatus::Signal(_) | ExitStatus::NotStarted(_) | ExitStatus::Unknown(_), _) => {
                return;
            }
        };
        exemplar.clone().replace(number);
    }
    pub fn add_escalation(&mut self, exemplar: Exemplar) {
        self.kill_escalations = self.kill_escalations.saturating_add(1);
        exemplar.replace(&mut self.latest.get_or_insert_default().escalation);
    }
    pub fn add_abandoned(&mut self, exemplar: Exemplar) {
        self.abandoned = self.abandoned.saturating_add(1);
        exemplar.replace(&mut self.latest.get_or_insert_default().abandoned);
    }
    pub fn add_restart(&mut self, reason: RestartReason) {
        self.restarts[reason.index()] = self.restarts[reason.index()].saturating_add(1);
    }
    /// Another runtime has started it again.
    pub fn add_restart_cause(&mut self, after: RestartCause) {
        self.restart_causes[after.index()] = self.restart_causes[after.index()].saturating_add(1);
    }
    pub fn add_event(&mut self, kind: EventKind) {
        *self.events.entry(kind.label().to_owned()).or_default() += 1;
    }
    /// All of another's on top of ours. Of two beginnings the earlier one; where one is not known, neither is that of
    /// both.
    pub fn merge(&mut self, other: &TaskTotals) {
        self.created = self.created.zip(other.created).map(|(sum, added)| sum.min(added));
        self.usage.add_counters(&other.usage);
        add_each(&mut self.exits, &other.exits);
        add_each(&mut self.restarts, &other.restarts);
        add_each(&mut self.restart_causes, &other.restart_causes);
        add_each(&mut self.run_ns, &other.run_ns);
        add_all(&mut self.exit_codes, &other.exit_codes);
        add_all(&mut self.exit_signals, &other.exit_signals);
        add_all(&mut self.events, &other.events);
        self.kill_escalations = self.kill_escalations.saturating_add(other.kill_escalations);
        self.abandoned = self.abandoned.saturating_add(other.abandoned);
        self.lost_output.add(other.lost_output);
    }
}

/// Of our own tasks nothing is noted of those of others.
fn is_nothing(counts: &[u64; 3]) -> bool {
    *counts == [0; 3]
}

/// Counts by a closed list.
pub fn add_each<const N: usize>(sum: &mut [u64; N], added: &[u64; N]) {
    sum.iter_mut().zip(added).for_each(|(sum, added)| *sum = sum.saturating_add(*added));
}

fn add_all<K: Ord + Clone>(sum: &mut BTreeMap<K, u64>, added: &BTreeMap<K, u64>) {
    added.iter().for_each(|(key, n)| *sum.entry(key.clone()).or_default() += n);
}

#[derive(Debug, Clone, Default)]
pub struct Totals {
    /// Each task of each job that was ever submitted and has not retired: there from the submission on, at 0.
    pub workloads: BTreeMap<(JobId, TaskName), Arc<TaskTotals>>,
    /// Seconds that ended allocs ran, by outcome (Outcome::ALL of the alloc's worst task), per workload.
    pub alloc_run: BTreeMap<JobId, [Nanos; 6]>,
    /// Failed allocs that were replaced, per workload.
    pub reschedules: BTreeMap<JobId, u64>,
    pub node: Arc<NodeTotals>,
}

/// The key of an observed workload's totals: `docker:web`. Runtimes may use the same name, and each has its own totals.
pub fn observed_key(source: AllocSource, workload: &JobId) -> JobId {
    JobId::new(format!("{}:{workload}", source.as_str()))
}

/// Source and name of such a key. Without a source: an earlier agent did not record it.
pub fn split_observed(key: &JobId) -> (Option<AllocSource>, JobId) {
    let parts = key.as_str().split_once(':').and_then(|(source, name)| Some((AllocSource::parse(source)?, name)));
    parts.map_or_else(|| (None, key.clone()), |(source, name)| (Some(source), JobId::from(name)))
}

impl Totals {
    /// Whether a job of this name was submitted, and has not retired.
    pub fn has(&self, job: &JobId) -> bool {
        let tasks = self.workloads.range((job.clone(), TaskName::from(""))..);
        tasks.map(|((of, _), _)| of).next() == Some(job)
    }
    /// A name beside those of jobs: an observed workload with the name of a managed job is shown as `<name>~observed`.
    pub fn name_without_conflict(&self, workload: &JobId) -> JobId {
        let names = std::iter::successors(Some(workload.clone()), |name| {
            Some(JobId::new(&*label_value(&format!("{name}~observed"))))
        });
        // A longer one is cut, and made distinct by a digest.
        names.take(16).find(|name| !self.has(name)).unwrap_or_else(|| JobId::new("~observed"))
    }
    pub fn task_mut(&mut self, job: &JobId, task: &TaskName) -> &mut TaskTotals {
        Arc::make_mut(self.workloads.entry((job.clone(), task.clone())).or_default())
    }
    /// The task of a new alloc: at 0, if it is the first one.
    pub fn submitted(&mut self, job: &JobId, task: &TaskName, at: Timestamp) {
        let new = || Arc::new(TaskTotals { created: Some(at), ..TaskTotals::default() });
        self.workloads.entry((job.clone(), task.clone())).or_insert_with(new);
    }
    /// On top of what is there of this task.
    pub fn add(&mut self, job: &JobId, task: &TaskName, more: &TaskTotals) {
        match self.workloads.entry((job.clone(), task.clone())) {
            Entry::Vacant(entry) => drop(entry.insert(Arc::new(more.clone()))),
            Entry::Occupied(mut entry) => Arc::make_mut(entry.get_mut()).merge(more),
        }
    }
    pub fn add_reschedules(&mut self, job: &JobId, more: u64) {
        let all = self.reschedules.entry(job.clone()).or_default();
        *all = all.saturating_add(more);
    }
    pub fn add_alloc_run(&mut self, job: &JobId, outcome: Outcome, ran: Nanos) {
        let run = &mut self.alloc_run.entry(job.clone()).or_default()[outcome.index()];
        *run = run.saturating_add(ran);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::usage::Field;

    #[test]
    fn key_of_an_observed_workload_has_its_source_and_any_name() {
        for name in ["web", "/batch", "docker:web", ":", ""] {
            let name = JobId::from(name);
            let key = observed_key(AllocSource::Podman, &name);
            assert_eq!(split_observed(&key), (Some(AllocSource::Podman), name));
        }
        for earlier in ["web", "shop/web", "unknown:web"] {
            assert_eq!(split_observed(&earlier.into()), (None, earlier.into()), "of an agent without sources");
        }
    }

    #[test]
    fn observed_workload_name_never_equals_a_job_name() {
        let mut totals = Totals::default();
        let sibling = |totals: &Totals, name: &str| totals.name_without_conflict(&JobId::from(name)).to_string();
        assert_eq!(sibling(&totals, "svc"), "svc");
        for (job, shown) in
            [("svc", "svc~observed"), ("svc~observed", "svc~observed~observed"), ("sv", "svc~observed~observed")]
        {
            totals.submitted(&JobId::from(job), &TaskName::from("t"), Timestamp(1));
            assert_eq!(sibling(&totals, "svc"), shown);
        }
        assert_eq!(sibling(&totals, "svd"), "svd");
        let long = "x".repeat(200);
        totals.submitted(&JobId::from(long.as_str()), &TaskName::from("t"), Timestamp(1));
        assert_eq!((sibling(&totals, &long).len(), sibling(&totals, &long) == long), (200, false));
    }

    #[test]
    fn merging_totals_adds_every_field() {
        let exit = Exit {
            attempt: 0,
            outcome: Outcome::Error,
            status: ExitStatus::Code(3),
            started_at: Some(Timestamp(10)),
            finished_at: Timestamp(15),
            oom_kills: Some(0),
            usage: Arc::new(Usage::from([(Field::cpu_usage_ns, 7), (Field::memory_peak_bytes, 9)])),
            lost_output: LostOutput { stdout_bytes: 3, stderr_bytes: 0 },
            last_output: None,
            result: None,
        };
        let mut one = TaskTotals { created: Some(Timestamp(7)), ..TaskTotals::default() };
        one.add_exit(&exit);
        one.add_restart(RestartReason::Policy);
        one.add_restart_cause(RestartCause::Failure);
        one.add_event(EventKind::Started);
        one.add_exit(&Exit { outcome: Outcome::Signal, status: ExitStatus::Signal(6), ..exit.clone() });
        (one.kill_escalations, one.abandoned) = (2, 3);
        let mut both = one.clone();
        both.merge(&TaskTotals { created: Some(Timestamp(5)), ..one.clone() });
        assert_eq!(both.created, Some(Timestamp(5)), "the earlier one");
        assert_eq!(both.usage, Usage::from([(Field::cpu_usage_ns, 28)]), "a peak is never summed");
        assert_eq!(both.exits, [0, 2, 2, 0, 0, 0]);
        assert_eq!(both.exit_codes, BTreeMap::from([(3, 2)]));
        assert_eq!(both.exit_signals, BTreeMap::from([(6, 2)]));
        assert_eq!((both.restarts, both.restart_causes), ([2, 0, 0, 0], [0, 2, 0]));
        assert_eq!(both.run_ns, [0, 10, 10, 0, 0, 0]);
        assert_eq!(both.lost_output.by_stream(), [12, 0]);
        assert_eq!(both.events, BTreeMap::from([("started".to_owned(), 2)]));
        assert_eq!((both.kill_escalations, both.abandoned), (4, 6));
    }
}
