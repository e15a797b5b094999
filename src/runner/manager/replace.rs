//! Reschedules failed allocs: they are replaced by new ones, as the `reschedule` of their group says.
//!
//! ```text
//! failed, cleaned up ─► its policy's delay ─► the new alloc and the old one's `next`: one batch ─► the new one runs
//!                                    └─ a stop, a submission of its job, a restart: it is not replaced
//! ```
//! The time follows from the record of the failed alloc, so after a restart of the agent only the rest of the delay
//! applies. The batch is the only step: the alloc is replaced exactly when it is durable.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Manager;
use super::owner::UnownedAlloc;
use crate::model::event::EventKind;
use crate::model::units::Steady;
use crate::runner::alloc::{Alloc, AwaitedReplacement, RestoredRecords};
use crate::runner::persistence::record;
use crate::runner::wait_ends::{Ends, EndsWith};
use crate::store::{Batch, StoreError};

/// Maximum wait for any deadline: the host may be suspended meanwhile, and timers do not count that.
const RECHECK: Duration = Duration::from_secs(30);
/// Delay before writing a replacement is retried.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(30);

impl Manager {
    /// For an ended alloc: replaces it when that is due. Returns at once if it is not to be replaced.
    pub async fn replace_when_due(self: &Arc<Self>, alloc: &Arc<Alloc>) {
        let Some(awaited) = alloc.awaited_replacement() else {
            if let Some(attempts) = alloc.exhausted() {
                let message = format!("not rescheduled: its policy allows {attempts} in its interval");
                report(alloc, EventKind::NotRescheduling, &message, &[]).await;
            }
            return;
        };
        let AwaitedReplacement { failed_at, delay, attempt } = awaited;
        let message = format!("rescheduling in {:.1?} (attempt {attempt})", delay.as_duration());
        let details = [("delay_ns", delay.0.to_string()), ("attempt", attempt.to_string())];
        report(alloc, EventKind::Rescheduling, &message, &details).await;
        let now = self.ctx.line.now();
        // At most the whole delay: the wall clock may have gone back over a reboot.
        let due = now.plus(delay.saturating_sub(now.since(failed_at)));
        let mut pause = RETRY_FIRST;
        // After a restart of the whole alloc, its next owner handles its next failure.
        while alloc.awaited_replacement() == Some(awaited) {
            let now = self.ctx.line.now();
            // An abandoned task may still run: a replacement must not run beside it.
            let is_removed = alloc.first_that_may_run().is_none();
            if due > now || !is_removed {
                wait(alloc, due, now).await;
                continue;
            }
            let Err(error) = self.replace(alloc).await else { return };
            tracing::error!(alloc_id = %alloc.id, %error, "failed to persist the replacement of an alloc; retrying");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_MOST);
        }
    }

    /// Cancels the replacement of failed allocs that are stopped. Returns why that is not recorded.
    pub async fn cancel_replacements(&self, allocs: &[Arc<Alloc>]) -> Option<StoreError> {
        if !allocs.iter().any(|alloc| alloc.awaits_replacement()) {
            return None;
        }
        // Held, so that none of them is replaced meanwhile.
        let _ledger = self.ledger().await;
        let awaiting: Vec<_> = allocs.iter().filter(|alloc| alloc.awaits_replacement()).collect();
        let mut batch = Batch::default();
        for alloc in &awaiting {
            alloc.request_stop();
            alloc.put(&mut batch);
        }
        let saved = if batch.is_empty() { Ok(()) } else { self.ctx.journal.commit(batch).await };
        awaiting.iter().for_each(|alloc| alloc.apply_stop());
        saved.err()
    }

    /// Errors: the write fails; nothing has happened.
    async fn replace(self: &Arc<Self>, old: &Arc<Alloc>) -> Result<(), StoreError> {
        let mut ledger = self.ledger().await;
        if self.closed.load(Ordering::SeqCst) {
            return std::future::pending().ends_with(Ends::Caller).await;
        }
        let Some(awaited) = old.awaited_replacement() else { return Ok(()) };
        let Some(tracker) = old.tracker_of_next(awaited) else { return Ok(()) };
        let (group, waits_for) = (old.group(), vec![old.id.clone()]);
        let serial = ledger.next_serial();
        let mut record = self.new_record(&old.job, group, old.index(), old.version, serial, waits_for);
        record.reschedule = Some(Box::new(tracker));
        old.set_predecessor(&mut record, group);
        let (id, key) = (record.id.clone(), record::alloc_key(&record.id));
        let mut batch = Batch::default();
        record::put(&mut batch, key, &record);
        let restored = RestoredRecords { record, tasks: group.tasks.iter().map(|_| None).collect() };
        let Some(new) = self.make(Arc::clone(&old.job), restored) else { return Ok(()) };
        new.receive();
        let numbers = new.put_tasks(&mut batch);
        let created = UnownedAlloc::new(Arc::new(new));
        let new_keys: Vec<String> = batch.writes.iter().map(|(key, _)| key.clone()).collect();
        old.replaced_by(id.clone(), &mut batch);
        if let Err(error) = self.ctx.journal.commit(batch).await {
            old.not_replaced();
            self.take_back(new_keys, std::slice::from_ref(old));
            created.discard();
            return Err(error);
        }
        tracing::info!(alloc_id = %old.id, replacement = %id, attempt = awaited.attempt, "alloc rescheduled");
        ledger.count_new(&self.ctx, &old.job, 1, created.alloc().created_at());
        self.ctx.board.publish([], |totals| totals.add_reschedules(old.job.workload(), 1));
        old.appear();
        created.alloc().show(&numbers);
        self.enter(created);
        Ok(())
    }
}

async fn report(alloc: &Arc<Alloc>, kind: EventKind, message: &str, details: &[(&str, String)]) {
    for save in alloc.report_rescheduling(kind, message, details) {
        if let Err(error) = alloc.shown(save).await {
            tracing::error!(alloc_id = %alloc.id, %error, "failed to persist an event of an alloc");
        }
    }
}

async fn wait(alloc: &Alloc, due: Steady, now: Steady) {
    let left = due.since(now).as_duration();
    // A change that prevents the replacement later reports its own event, as a stop does.
    let left = if left.is_zero() { RECHECK } else { left.min(RECHECK) };
    tokio::select! {
        () = alloc.changes() => {}
        () = tokio::time::sleep(left) => {}
    }
}
