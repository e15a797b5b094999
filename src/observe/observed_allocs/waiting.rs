//! Containers that wait for their restart by their runtime, while nothing of them runs.

use std::sync::Arc;

use super::{ObservedAllocs, TrackedAlloc, TrackedTask};
use crate::model::alloc::{AllocSource, TaskIdentity};
use crate::model::id::{AllocId, TaskName};
use crate::model::observed::{RestartCause, SelectedLabel};
use crate::model::units::{Nanos, Timestamp};
use crate::model::usage::Usage;
use crate::observe::exits::{ExitFacts, exit};
use crate::observe::identity::TaskNaming;
use crate::observe::texts::sanitize;

/// Between two lives of a container, by its daemon: at most a minute, and the time until it has handled the end.
const LONGEST_PAUSE: Nanos = Nanos(120_000_000_000);
/// A daemon has handled an end by then.
const LATE_END: Nanos = Nanos(5_000_000_000);

/// A container that waited when the agent started. Its last life was not seen.
#[derive(Debug)]
pub struct WaitingTask {
    /// Its ID.
    pub container: String,
    pub source: AllocSource,
    pub naming: TaskNaming,
    /// Index of the rule that set the workload.
    pub rule: Option<usize>,
    pub labels: Vec<SelectedLabel>,
    /// How its last life ended.
    pub last: ExitFacts,
}

impl ObservedAllocs {
    /// Shows a container that waits, unless it is shown already. Its last end is not counted: the agent did not see it.
    /// Returns its alloc.
    pub fn show_waiting(&mut self, waiting: WaitingTask, now: Timestamp) -> Option<AllocId> {
        let WaitingTask { container, source, naming, rule, labels, last } = waiting;
        let source = naming.source.unwrap_or(source);
        let id = AllocId::new(ObservedAllocs::id_of(source, &naming.native));
        // Its last life was seen, or another container has the name.
        if self.allocs.contains_key(&id) {
            return None;
        }
        self.by_source.take();
        let naming = sanitize(naming, &mut self.texts);
        let name = TaskName::from(naming.task.as_str());
        let key = (id.clone(), name.clone());
        let forgotten = self.forgotten.remove(&key).map(|(_, earlier)| earlier);
        let mut task = self.earlier.remove(&key).or(forgotten).map(TrackedTask::of).unwrap_or_default();
        let end = exit(Some(last), task.attempts, None, now, Arc::<Usage>::default());
        let shown = Arc::make_mut(&mut task.shown);
        (shown.runs, shown.is_paused, shown.will_restart) = (false, false, true);
        (shown.since, shown.ended) = (Some(end.finished_at), Some(RestartCause::of(&end)));
        task.container = Some(container);

        let mut alloc = TrackedAlloc::new(&id);
        let unnamed = TaskIdentity { name, driver: None, user: None, image: None };
        Arc::make_mut(&mut alloc.identity).tasks.push(unnamed);
        alloc.tasks.push(task);
        alloc.native.clone_from(&naming.native);
        alloc.labels = labels;
        alloc.ended_at = Some(end.finished_at);
        alloc.apply_names(0, source, &naming, rule);
        self.allocs.insert(id.clone(), alloc);
        Some(id)
    }

    /// Whether a task waits for its restart, or may: the runtime did not report it at its end.
    pub fn may_wait(&self, now: Timestamp) -> bool {
        let is_recent = |task: &TrackedTask| task.shown.since.is_some_and(|since| now.since(since) < LONGEST_PAUSE);
        let may_wait = |task: &TrackedTask| task.shown.will_restart || (task.is_unconfirmed && is_recent(task));
        self.allocs.values().flat_map(|alloc| &alloc.tasks).any(may_wait)
    }

    /// Applies a list of the containers that waited for their restart at that time. `waited`: whether the container
    /// with this ID was one of them. Returns the allocs that changed.
    pub fn set_waits(&mut self, at: Timestamp, waited: impl Fn(&str) -> bool) -> Vec<AllocId> {
        let mut changed = Vec::new();
        for (id, alloc) in &mut self.allocs {
            for task in &mut alloc.tasks {
                let is_unsettled = task.shown.will_restart || task.is_unconfirmed;
                let (Some(container), Some(since)) = (&task.container, task.shown.since) else { continue };
                if !is_unsettled || since >= at {
                    continue;
                }
                let waits = waited(container);
                // The daemon itself handles an end some time after it.
                task.is_unconfirmed &= !waits && at.since(since) < LATE_END;
                if task.shown.will_restart != waits {
                    Arc::make_mut(&mut task.shown).will_restart = waits;
                    changed.push(id.clone());
                }
            }
        }
        changed.dedup();
        changed
    }
}
