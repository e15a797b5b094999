//! An alloc's predecessor and replacement: whether it is replaced after a failure, and whose data it takes over.

use std::sync::Arc;

use super::{Alloc, Inner};
use crate::model::alloc::{Desired, Lineage};
use crate::model::event::EventKind;
use crate::model::id::AllocId;
use crate::model::job::TaskGroup;
use crate::model::reschedule::ReschedulePolicy;
use crate::model::units::{Nanos, Steady};
use crate::runner::alloc::show::Save;
use crate::runner::decide::reschedule::{Replacement, RescheduleTracker, Rescheduling};
use crate::runner::persistence::record::AllocRecord;
use crate::store::Batch;

/// Maximum number of allocs in a row whose data may be taken over: those in between ended before they could move it.
const MOST_SOURCES: usize = 16;

/// A failed alloc that is to be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AwaitedReplacement {
    pub failed_at: Steady,
    pub delay: Nanos,
    pub attempt: u64,
}

/// An end of an alloc. Two are equal while it was not started again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndStamp {
    generation: u64,
    attempts: Vec<u32>,
}

impl Alloc {
    fn policy(&self) -> Option<ReschedulePolicy> {
        self.group().reschedule_policy(self.job.kind)
    }

    /// What follows from its failure. `None`: it has not failed by itself, or it was replaced.
    fn rescheduling(&self, inner: &Inner) -> Option<(Rescheduling, Steady)> {
        let record = &inner.record;
        let finished = record.finished.as_ref()?;
        let failed = record.failed_setup.is_some() || inner.cells.iter().any(|cell| cell.record.status.failed);
        if !failed || record.desired == Desired::Stop || record.expired || record.next.is_some() {
            return None;
        }
        let failed_at = finished.ended.unwrap_or_else(|| self.ctx.line.of_wall(finished.at));
        Some((record.reschedule.as_ref()?.next(self.policy().as_ref(), failed_at), failed_at))
    }

    fn awaited(&self, inner: &Inner) -> Option<AwaitedReplacement> {
        match self.rescheduling(inner)? {
            (Rescheduling::After { delay, attempt }, failed_at) => {
                Some(AwaitedReplacement { failed_at, delay, attempt })
            }
            (Rescheduling::Exhausted { .. } | Rescheduling::Never, _) => None,
        }
    }

    /// When it is replaced. `None`: it is not.
    pub fn awaited_replacement(&self) -> Option<AwaitedReplacement> {
        self.awaited(&self.lock())
    }
    pub fn awaits_replacement(&self) -> bool {
        self.awaited_replacement().is_some()
    }
    /// The number of replacements that its policy allows, if they are exhausted.
    pub fn exhausted(&self) -> Option<u64> {
        match self.rescheduling(&self.lock())? {
            (Rescheduling::Exhausted { attempts }, _) => Some(attempts),
            (Rescheduling::After { .. } | Rescheduling::Never, _) => None,
        }
    }

    /// The alloc that replaced it.
    pub fn next(&self) -> Option<AllocId> {
        self.lock().record.next.clone()
    }
    /// The alloc that it replaces.
    pub fn previous(&self) -> Option<AllocId> {
        self.lock().record.previous.clone()
    }
    /// Of an alloc that has ended: which end that is.
    pub fn end_stamp(&self) -> EndStamp {
        let inner = self.lock();
        let attempts = inner.cells.iter().map(|cell| cell.record.status.attempt).collect();
        EndStamp { generation: inner.generation, attempts }
    }
    /// The allocs whose data it takes over, newest first.
    pub fn data_from(&self) -> Vec<AllocId> {
        self.lock().record.data_from.clone()
    }

    /// The tracker of an alloc that replaces it now.
    pub fn tracker_of_next(&self, awaited: AwaitedReplacement) -> Option<RescheduleTracker> {
        let (policy, tracker) = (self.policy()?, self.lock().record.reschedule.clone()?);
        let (at, time) = (self.ctx.line.now(), self.ctx.clock.now());
        let replacement = Replacement { replaced: self.id.clone(), at, time, delay: awaited.delay };
        Some(tracker.after(replacement, &policy))
    }

    /// Sets the predecessor of its replacement, and the allocs whose data it takes over. An alloc that never started
    /// has no data of its own yet.
    pub fn set_predecessor(&self, new: &mut AllocRecord, group: &TaskGroup) {
        new.previous = Some(self.id.clone());
        if group.ephemeral_disk.moves() {
            new.data_from = std::iter::once(self.id.clone()).chain(self.data_from()).take(MOST_SOURCES).collect();
        }
        if group.ephemeral_disk.migrate {
            // Still to be fetched.
            new.migrate_from.clone_from(&self.lock().record.migrate_from);
        }
    }

    pub(super) fn lineage(&self, inner: &Inner, over: bool) -> Lineage {
        let record = &inner.record;
        let awaited = self.awaited(inner).filter(|_| over);
        let at = record.finished.as_ref().zip(awaited).map(|(finished, awaited)| finished.at.plus(awaited.delay));
        Lineage {
            previous: record.previous.clone(),
            next: record.next.clone(),
            reschedules: record.reschedule.as_ref().map_or(0, |tracker| tracker.count()),
            reschedule_at: at,
        }
    }

    /// The message of the `Received` event.
    pub(super) fn received_as(&self) -> String {
        let inner = self.lock();
        let attempt = inner.record.reschedule.as_ref().map_or(0, |tracker| tracker.count());
        match &inner.record.previous {
            Some(previous) if attempt > 0 => {
                format!("task received: replaces alloc {}, which failed (attempt {attempt})", previous.short())
            }
            Some(_) | None => "task received".to_owned(),
        }
    }

    /// Reports on each failed task, once in the life of the alloc, whether the alloc is rescheduled.
    pub fn report_rescheduling(&self, kind: EventKind, message: &str, details: &[(&str, String)]) -> Vec<Save> {
        {
            let mut inner = self.lock();
            if std::mem::replace(&mut inner.record.reschedule_reported, true) {
                return Vec::new();
            }
        }
        let setup_failed = self.failed_setup().is_some();
        let of = |at: &usize| setup_failed || self.status(*at).failed;
        let failed: Vec<usize> = (0..self.group().tasks.len()).filter(of).collect();
        failed.iter().for_each(|at| self.edit(*at, |edit| edit.event(kind, message, details)));
        failed.into_iter().map(|at| self.save(at)).collect()
    }
    /// Reports the result of a job update on each task, dead ones included.
    pub fn report_update(self: &Arc<Self>, kind: EventKind, message: &str, status: &str) {
        for at in 0..self.group().tasks.len() {
            self.edit(at, |edit| edit.event(kind, message, &[("status", status.to_owned())]));
            self.save_aside(at);
        }
    }
    /// It starts again: the reports of its end belong to the life before.
    pub(super) fn forget_report(inner: &mut Inner) {
        inner.record.reschedule_reported = false;
    }

    /// Records that it is replaced.
    pub fn replaced_by(&self, next: AllocId, batch: &mut Batch) {
        self.lock().record.next = Some(next);
        self.put(batch);
    }
    /// The replacement was refused.
    pub fn not_replaced(&self) {
        self.lock().record.next = None;
    }
}
