//! Totals of observed workloads: where they start, what is persisted, and when they are forgotten.

use std::time::{Duration, Instant};

use super::ObserverThread;
use crate::model::id::{JobId, TaskName};
use crate::observe::earlier_agent;
use crate::observe::journal::{EarlierUsage, ObservedJournal, RecordedTask};
use crate::observe::lives::{LifeEvent, RecoveredLife};
use crate::observe::observed_allocs::TotalsChange;
use crate::observe::processes::ProcessGroups;
use crate::observe::texts::ChangedTextCounts;

/// How long, and for how many workloads, totals are kept after the last task ended.
const RETAINED_FOR: Duration = Duration::from_secs(86_400);
const MAX_RETAINED: usize = 1_000;

impl ObserverThread {
    pub(super) fn count(&mut self) {
        let ChangedTextCounts { length, characters, budget } = self.allocs.texts.take();
        self.parts.metrics.observed.texts(length, characters, budget);
        let left_out = self.lives.over_limit().count() as u64;
        let left_out = left_out + self.processes.as_ref().map_or(0, ProcessGroups::left_out);
        self.parts.metrics.observed.there_are(self.allocs.by_source(), left_out, self.parents.left_out() as u64);
    }

    /// Continues from the state of an earlier agent.
    pub(super) fn resume(&mut self) {
        let (journal, EarlierUsage { workloads, tasks }) = ObservedJournal::open(self.parts.keep.take());
        self.journal = journal;
        // Published together with the running tasks: without those the sum would drop.
        let earlier = |(workload, task, totals)| TotalsChange::Earlier(workload, task, totals);
        self.changes.extend(workloads.into_iter().map(earlier));
        for (path, mut task) in tasks {
            if !self.journal.is_of_this_boot(&task) || self.scanner.inode(&path) != Some(task.inode) {
                self.end_unseen(task);
                continue;
            }
            let is_counted = task.is_counted;
            if is_counted {
                self.count_unseen(&mut task);
            }
            self.allocs.remember(task.alloc.clone(), task.task.clone(), task.earlier.clone());
            let recovered = RecoveredLife { naming: task.naming.clone(), since: task.since, is_counted };
            self.happens(&path, LifeEvent::Recovered(Box::new(recovered)));
            self.journal.recovers(task);
        }
    }

    /// A task of an earlier agent is not shown any more, as fewer fit, or it is excluded now.
    pub(super) fn drop_recovered(&mut self, path: &str) {
        let Some(mut task) = self.journal.take_recovered(path) else { return };
        if self.scanner.inode(path) != Some(task.inode) {
            return self.end_unseen(task);
        }
        self.count_unseen(&mut task);
        self.allocs.set_aside(task.alloc, task.task, task.earlier, self.parts.clock.now());
    }

    fn count_unseen(&mut self, task: &mut RecordedTask) {
        self.changes.extend(earlier_agent::count_unseen(task));
        self.journal.write_task(task);
    }

    fn end_unseen(&mut self, task: RecordedTask) {
        let (alloc, name) = (task.alloc.clone(), task.task.clone());
        self.journal.drop_task(&task.path);
        let (earlier, change) = earlier_agent::ended_unseen(task, self.parts.clock.now());
        self.changes.extend(change);
        self.allocs.remember(alloc, name, earlier);
    }

    pub(super) fn keep_usage(&mut self) {
        let allocs = &self.allocs;
        self.journal.note_usage(|path| allocs.reader(path)?.latest().map(|last| last.usage));
        self.journal.commit();
    }

    pub(super) fn forget_totals(&mut self, now: Instant) {
        for key in self.allocs.keys().collect::<Vec<_>>() {
            self.seen.insert(key, now);
        }
        let mut old: Vec<(Instant, (JobId, TaskName))> = self.seen.iter().map(|(key, at)| (*at, key.clone())).collect();
        old.sort_unstable();
        let too_many = old.len().saturating_sub(MAX_RETAINED);
        let is_old = |(n, (at, _)): &(usize, (Instant, _))| {
            *at < now && (*n < too_many || now.saturating_duration_since(*at) > RETAINED_FOR)
        };
        let removed: Vec<_> = old.into_iter().enumerate().filter(is_old).map(|(_, (_, key))| key).collect();
        if !removed.is_empty() {
            self.seen.retain(|key, _| !removed.contains(key));
            self.parts.board.observe([], &[], |totals| {
                removed.iter().for_each(|key| drop(totals.workloads.remove(key)));
            });
            removed.iter().for_each(|key| self.journal.forget(key));
        }
    }
}
