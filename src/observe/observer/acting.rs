//! Passes events to the lives at a path and carries out what follows.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::facts::ObserverFacts;
use super::{CgroupMeasures, MeasuredTask, ObserverThread};
use crate::model::task::ExitStatus;
use crate::model::units::Timestamp;
use crate::observe::exits::{self, EndReport, ExitFacts, KILLED};
use crate::observe::identity::{ExitRule, RecognisedTask, TaskNaming};
use crate::observe::journal::StartedTask;
use crate::observe::lives::{LifeAction, LifeEvent, LifeExits, MeasuredLife, step};
use crate::observe::observed_allocs::NewTask;
use crate::observe::runtime_queries::{LifeRef, QueryTarget, QueryTopic};
use crate::observe::{has_own_runtime, is_named_by_path, source};
use crate::telemetry::observed::EndMissed;

/// What the runtime reported, with what only the kernel did.
fn completed(reported: ExitFacts, is_victim: bool, recorded: Option<&ExitFacts>) -> ExitFacts {
    let status = match (reported.status, recorded) {
        (ExitStatus::Unknown(_), Some(recorded)) => recorded.status.clone(),
        (known, _) => known,
    };
    let finished_at = reported.finished_at.or(recorded.and_then(|recorded| recorded.finished_at));
    ExitFacts { oom: reported.oom || is_victim, status, finished_at, ..reported }
}

impl ObserverThread {
    pub(super) fn happens(&mut self, path: &str, event: LifeEvent<CgroupMeasures>) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let (path, lives) = self.lives.take(path);
            let (lives, actions) = step(lives, event, &ObserverFacts { work: self, path: &path });
            self.lives.put(Arc::clone(&path), lives);
            for action in actions {
                events.extend(self.act(&path, action));
            }
        }
    }

    /// Returns the event that follows at once.
    fn act(&mut self, path: &str, action: LifeAction<CgroupMeasures>) -> Option<LifeEvent<CgroupMeasures>> {
        match action {
            LifeAction::Listen => {
                self.scanner.listen(path);
                // It entered between the check and the watch: the kernel does not report it any more.
                return (self.scanner.has_processes(path) == Some(true)).then_some(LifeEvent::Occupied);
            }
            LifeAction::Watch { is_plain } => self.scanner.settle(path, is_plain),
            LifeAction::Measure(found) => self.shares.begins(found.user),
            LifeAction::Release { user } => self.shares.ends(user),
            LifeAction::QueryName { found, again } => {
                let found = found.map(|found| *found).or_else(|| Some(self.scanner.tree().identify(path)?.1))?;
                return (!self.query(path, found, QueryTopic::Name)).then_some(LifeEvent::NotQueued { again });
            }
            LifeAction::QueryExit { number, found, began_at, ended_at } => {
                let [began_at, ended_at] = [began_at, ended_at].map(|at| at.map(|at| self.wall(at)));
                let life = LifeRef { number, began_at, ended_at, removed_at: self.parts.clock.now() };
                let is_queued = self.query(path, *found, QueryTopic::Exit(life));
                return (!is_queued).then_some(LifeEvent::Exited { number, report: EndReport::Late });
            }
            LifeAction::Show { found, task, naming, inode } => self.begin_task(path, &found, &task, *naming, inode),
            LifeAction::Rename { found, naming } => self.rename(path, &found, *naming),
            LifeAction::Hide(found) => {
                self.shares.ends(found.user);
                self.parents.end(path, found.alloc_cgroup);
            }
            LifeAction::Cover => self.cover(path),
            LifeAction::End { life, facts } => self.end_task(path, facts, Some((&life.notes, life.found.ends_by))),
            LifeAction::Stop { life, facts, emptied_at } => self.stop_task(path, facts, emptied_at, &life),
            LifeAction::Add { task, raw, is_below: false } => task.reader.end(&raw, self.parts.clock.now()),
            LifeAction::Add { task, raw, is_below: true } => task.reader.end_below(&raw, self.parts.clock.now()),
            // The kernel's record reports it.
            LifeAction::Miss(EndMissed::Unseen) if self.parts.ends.is_some() => {}
            LifeAction::Miss(why) => self.parts.metrics.observed.missed(why, 1),
            LifeAction::DropRecovered => self.drop_recovered(path),
        }
        None
    }

    /// Returns whether its source will be queried.
    fn query(&mut self, path: &str, found: RecognisedTask, about: QueryTopic) -> bool {
        let can_answer = match about {
            QueryTopic::Name => !is_named_by_path(&found),
            QueryTopic::Exit(_) => has_own_runtime(&found),
        };
        let Some(source) = source(found.source).filter(|_| can_answer) else { return false };
        let directories = self.scanner.directories(path);
        self.runtime_queries.enqueue(source, QueryTarget { path: path.to_owned(), found, directories, about })
    }

    fn begin_task(
        &mut self,
        path: &str,
        found: &RecognisedTask,
        task: &MeasuredTask,
        naming: TaskNaming,
        inode: Option<u64>,
    ) {
        let config = &self.parts.config;
        let (source, alloc_cgroup, since, is_counted) = (found.source, found.alloc_cgroup, task.since, task.is_counted);
        let (labels, to_keep) = (config.chosen(&naming.labels), naming.clone());
        let (naming, rule) = config.ruled(source, alloc_cgroup, naming);
        let (reader, alloc_reader) = (Arc::clone(&task.reader), task.alloc_reader.clone());
        let container = found.container.clone();
        let new_task = NewTask {
            path: path.to_owned(),
            source,
            alloc_cgroup,
            naming,
            container,
            rule,
            labels,
            reader,
            alloc_reader,
            since,
        };
        let (id, change) = self.allocs.begin(new_task);
        if let (Some(inode), Some((task, earlier))) = (inode, self.allocs.earlier(path)) {
            let (alloc, task, workload) = (&id, &task, self.allocs.workload(path));
            let new_task = StartedTask { alloc, task, workload, source, path, inode, since, is_counted };
            self.journal.begins(new_task, to_keep, earlier);
        }
        self.changes.extend(change);
        self.touched.insert(id);
        if inode.is_some() {
            self.read_freezer(path);
        }
        self.parents.begin(path, alloc_cgroup, found.user);
    }

    fn rename(&mut self, path: &str, found: &RecognisedTask, naming: TaskNaming) {
        let config = &self.parts.config;
        let (labels, to_keep) = (config.chosen(&naming.labels), naming.clone());
        let (naming, rule) = config.ruled(found.source, found.alloc_cgroup, naming);
        self.touched.extend(self.allocs.rename(path, &naming, rule, labels));
        self.journal.renamed(path, self.allocs.workload(path), to_keep);
    }

    fn cover(&mut self, path: &str) {
        self.journal.ends(path);
        // The cgroup still exists.
        self.read_last(self.allocs.reader(path));
        self.read_last(self.allocs.alloc_reader(path));
        if let Some((id, change)) = self.allocs.cover(path, self.parts.clock.now()) {
            self.touched.insert(id);
            self.changes.extend(change);
        }
    }

    /// Its runtime keeps the cgroup, with its last values.
    fn stop_task(
        &mut self,
        path: &str,
        facts: Option<ExitFacts>,
        emptied_at: Instant,
        life: &MeasuredLife<CgroupMeasures>,
    ) {
        self.read_last(Some(&life.task.reader));
        let kills = life.task.reader.latest().and_then(|last| last.usage.oom_kills()).unwrap_or_default();
        let facts = facts.unwrap_or_else(|| exits::unknown("its runtime does not report the exit status", None));
        let oom = facts.oom || (kills > 0 && facts.status == ExitStatus::Code(KILLED));
        let ago = self.parts.clock.instant().saturating_duration_since(emptied_at).as_nanos();
        let emptied_at = self.parts.clock.now().0.saturating_sub(u64::try_from(ago).unwrap_or(u64::MAX));
        let finished_at = facts.finished_at.or(Some(Timestamp(emptied_at)));
        self.end_task(path, Some(ExitFacts { oom, finished_at, ..facts }), Some((&life.notes, life.found.ends_by)));
    }

    /// `recorded`: what the kernel reported, and whose exit is that of the task.
    pub(super) fn end_task(&mut self, path: &str, facts: Option<ExitFacts>, recorded: Option<(&LifeExits, ExitRule)>) {
        // The cgroup of a pod exists until its last container ends.
        self.read_last(self.allocs.alloc_reader(path));
        let is_whole = recorded.is_some_and(|(notes, _)| notes.is_whole);
        let recorded = recorded.and_then(|(notes, by)| notes.facts(by, |at| self.wall(at)));
        // The runtime's reply wins, but it may learn of an OOM kill later than of the exit.
        let victim = recorded.as_ref().is_some_and(|exit| exit.oom);
        let facts = facts.map(|reported| completed(reported, victim, recorded.as_ref())).or(recorded);
        if let Some(reader) = self.allocs.reader(path) {
            // The last reading is later than the end of the last process.
            let is_final = is_whole || reader.latest().is_some_and(|last| last.usage.processes() == Some(0));
            self.parts.metrics.observed.ended(is_final);
        }
        self.journal.ends(path);
        if let Some((id, change)) = self.allocs.end(path, facts, self.parts.clock.now()) {
            self.touched.insert(id);
            self.changes.extend(change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::task::ServiceResult;

    #[test]
    fn exit_facts_missing_from_the_runtime_come_from_the_kernel_record() {
        let of = |status, oom, finished_at, result| ExitFacts {
            status,
            oom,
            on_request: false,
            will_restart: false,
            result,
            finished_at,
        };
        let recorded = of(ExitStatus::Signal(15), false, Some(Timestamp(5)), None);
        let unknown = of(ExitStatus::Unknown(String::new()), false, None, Some(ServiceResult::Timeout));
        let expected = of(ExitStatus::Signal(15), false, Some(Timestamp(5)), Some(ServiceResult::Timeout));
        assert_eq!(completed(unknown, false, Some(&recorded)), expected);
        let known = of(ExitStatus::Code(3), false, Some(Timestamp(4)), Some(ServiceResult::ExitCode));
        assert_eq!(completed(known.clone(), false, Some(&recorded)), known);
        assert_eq!(completed(known.clone(), true, None), ExitFacts { oom: true, ..known });
    }
}
