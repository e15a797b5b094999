//! End records of the kernel: final values of a measured life, or a life that was never measured.

use super::notes::{LifeExits, bit};
use super::state::{
    HiddenReason, LifeAction, LifeTypes, MeasuredLife, PathFacts, RecordedLife, RemovalRecord, RemovedUnnamedLife,
    State,
};
use super::step::{LATE_REPLY, REPLY, SETTLED, Step};
use crate::observe::identity::RecognisedTask;
use crate::telemetry::observed::EndMissed;

/// Maximum number of lives at one path that wait for its name.
const MOST_QUEUED: usize = 200;
/// Maximum number of end records of cgroups below a life that is not measured.
const MOST_BELOW: usize = 1_000;

impl<M: LifeTypes, F: PathFacts<M>> Step<'_, M, F> {
    pub(super) fn record_below(&mut self, below: &str, record: RemovalRecord<M>, found: RecognisedTask) {
        let task = self.lives.all_measured_mut().next().map(|life| {
            life.notes.record_below(life.found.ends_by, below, &record.notes);
            life.task.clone()
        });
        if let Some(task) = task {
            return self.act(LifeAction::Add { task, raw: record.raw, is_below: true });
        }
        let is_of_ended = match &self.lives.state {
            State::Aside(HiddenReason::Stopped) => true,
            State::Absent
            | State::Empty { .. }
            | State::Aside(HiddenReason::Limit | HiddenReason::Excluded | HiddenReason::Undecided)
            | State::Naming { .. }
            | State::Shown(_)
            | State::Covered { .. } => false,
        };
        if is_of_ended || self.is_late_record(record.hierarchy) {
            return;
        }
        let life = self.gather(found);
        life.notes.record_below(life.found.ends_by, below, &record.notes);
        if life.records_below.len() < MOST_BELOW {
            life.records_below.push(record.raw);
        }
    }

    pub(super) fn record(&mut self, record: RemovalRecord<M>, found: RecognisedTask) {
        let Some(record) = self.add(record) else { return };
        if self.lives.stopped.as_ref().is_some_and(|stopped| self.facts.is_of_cgroup(&stopped.cgroup, &record.raw)) {
            return;
        }
        if self.lives.gathering.as_ref().is_some_and(|life| life.notes.has(record.hierarchy)) {
            // Of another life.
            self.finish_gathering();
        }
        if self.is_late_record(record.hierarchy) {
            if let Some((hierarchies, _)) = &mut self.lives.over {
                *hierarchies |= bit(record.hierarchy);
            }
            return;
        }
        self.lives.over = None;
        let life = self.gather(found);
        life.notes.record(record.hierarchy, &record.notes, record.is_whole);
        life.records.push(record);
    }

    /// Adds the record to the latest measured life that it can be of. Returns it instead if there is none.
    fn add(&mut self, record: RemovalRecord<M>) -> Option<RemovalRecord<M>> {
        let facts = self.facts;
        let is_its = |life: &&mut Box<MeasuredLife<M>>| {
            !life.notes.has(record.hierarchy) && facts.is_of(&life.task, &record.raw)
        };
        let Some(life) = self.lives.all_measured_mut().find(is_its) else { return Some(record) };
        life.notes.record(record.hierarchy, &record.notes, record.is_whole);
        let task = life.task.clone();
        self.act(LifeAction::Add { task, raw: record.raw, is_below: false });
        None
    }
    /// Of a life that has ended.
    fn is_late_record(&self, hierarchy: usize) -> bool {
        self.lives.over.is_some_and(|(hierarchies, _)| hierarchies & bit(hierarchy) == 0)
    }
    fn gather(&mut self, found: RecognisedTask) -> &mut RecordedLife<M> {
        let (settles, until) = (self.now + SETTLED, self.now + REPLY);
        let was_above = self.lives.above.is_some() || matches!(self.lives.state, State::Covered { .. });
        let life = self.lives.gathering.get_or_insert_with(|| {
            let (notes, records, records_below) = (LifeExits::default(), Vec::new(), Vec::new());
            Box::new(RecordedLife { found, notes, records, records_below, was_above, settles, until })
        });
        // A cgroup below which something ends all the time is not awaited for ever.
        life.settles = settles.min(life.until);
        life
    }
    fn finish_gathering(&mut self) {
        if let Some(life) = self.lives.gathering.take() {
            self.end_recorded_life(*life);
        }
    }

    /// A life that was not measured has ended.
    pub(super) fn end_recorded_life(&mut self, life: RecordedLife<M>) {
        let is_now = matches!(self.lives.state, State::Naming { .. } | State::Shown(_));
        if (is_now || self.lives.removed_unnamed.is_some())
            && let Some(measured) = self.lives.measured()
        {
            let is_its = |record: &RemovalRecord<M>| self.facts.is_of(&measured.task, &record.raw);
            // A record of an earlier life may come after the next one is measured.
            let is_there = measured.inode.is_some() && self.facts.inode() == measured.inode;
            if measured.notes.hierarchies & life.notes.hierarchies == 0 && (is_there || life.records.iter().all(is_its))
            {
                return self.add_late(life);
            }
            // A hierarchy had already reported the removal of the measured life, or that report was lost: it has ended
            // too, even if its removal has not been seen yet.
            self.leave();
        }
        if self.lives.removed_unnamed.is_some() {
            if self.lives.recorded.len() < MOST_QUEUED {
                self.lives.recorded.push_back(life);
            } else {
                self.act(LifeAction::Miss(EndMissed::Limit));
            }
            return;
        }
        let has_run = if life.found.is_plain() { life.notes.has_run_itself() } else { life.notes.has_run() };
        let is_foreign = !life.found.is_closed && (life.was_above || self.lives.removed_below.is_some());
        if !has_run || life.records.is_empty() || is_foreign {
            return;
        }
        let is_counted = self.lives.counted.take().is_some();
        match self.facts.measure(&life) {
            // The record has all of its usage, also what is in the totals.
            Ok(_) if is_counted => self.act(LifeAction::Miss(EndMissed::Limit)),
            Ok(task) => self.begin_late(life, task),
            Err(HiddenReason::Limit) => self.act(LifeAction::Miss(EndMissed::Limit)),
            Err(HiddenReason::Excluded | HiddenReason::Undecided | HiddenReason::Stopped) => {}
        }
    }

    fn begin_late(&mut self, life: RecordedLife<M>, task: M::Task) {
        let RecordedLife { found, notes, .. } = life;
        let query = Box::new(found.clone());
        self.act(LifeAction::Measure(query.clone()));
        let is_known = self.lives.name.is_some() || self.facts.is_named(&found);
        let life = Box::new(MeasuredLife { found, task, inode: None, notes });
        self.lives.removed_unnamed = Some(RemovedUnnamedLife { life, until: self.now + LATE_REPLY });
        if is_known {
            self.show_late(None);
        } else {
            self.act(LifeAction::QueryName { found: Some(query), again: false });
        }
    }

    /// The task was found in the meantime, when part of it still existed.
    fn add_late(&mut self, life: RecordedLife<M>) {
        if let Some(task) = self.lives.measured().map(|life| life.task.clone()) {
            for raw in life.records_below {
                self.act(LifeAction::Add { task: task.clone(), raw, is_below: true });
            }
        }
        for record in life.records {
            let _ = self.add(record);
        }
    }

    pub(super) fn gathered(&mut self, is_followed: bool) {
        let (now, facts) = (self.now, self.facts);
        let Some(life) = self.lives.gathering.as_mut().filter(|life| is_followed || life.settles <= now) else {
            return;
        };
        // On v1 a cgroup is removed hierarchy by hierarchy, with arbitrary delays in between.
        if is_followed || life.until <= now || !facts.exists() {
            self.finish_gathering();
        } else {
            life.settles = now + SETTLED;
        }
    }
}
