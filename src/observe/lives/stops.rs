//! Lives that end while their runtime keeps the cgroup, by what the runtime reports.
//!
//! ```text
//! Shown ── no process ──► query ──► it runs: as before
//!                           │ ├───► its end: Stop, Aside
//!                           │ └───► refused, for three sweeps: Stop with an unknown end, Aside
//!                           ▲ at each sweep
//! ```

use std::time::{Duration, Instant};

use super::state::{EmptiedLife, HiddenReason, LifeAction, LifeTypes, PathFacts, State, StoppedLife};
use super::step::Step;
use crate::observe::exits::{EndReport, ExitFacts};

/// How long a runtime may not report a life that has no process: three sweeps.
const REFUSED_FOR: Duration = Duration::from_secs(20);
/// What was not seen to be empty for longer may have had a process: one sweep, and the time of an answer.
const SEEN_WITHIN: Duration = Duration::from_secs(15);

impl<M: LifeTypes, F: PathFacts<M>> Step<'_, M, F> {
    /// Its runtime may have stopped it.
    pub(super) fn emptied(&mut self) {
        match &self.lives.state {
            State::Shown(life) if life.found.may_outlive_its_end() => {
                let (number, found) = (self.facts.number(), Box::new(life.found.clone()));
                let is_seen = |seen: &EmptiedLife| self.now.saturating_duration_since(seen.last) < SEEN_WITHIN;
                let new = EmptiedLife { since: self.now, last: self.now, query: None, refused_since: None };
                let known = self.lives.emptied.filter(is_seen).unwrap_or(new);
                self.lives.emptied = Some(EmptiedLife { last: self.now, query: Some(number), ..known });
                self.act(LifeAction::QueryExit { number, found, began_at: None, ended_at: None });
            }
            // The cgroup of any other task exists as long as it runs.
            State::Shown(_)
            | State::Absent
            | State::Empty { .. }
            | State::Aside(_)
            | State::Naming { .. }
            | State::Covered { .. } => {}
        }
    }

    /// The answer of its runtime.
    pub(super) fn answered(&mut self, emptied: EmptiedLife, report: EndReport) {
        let refused_since = emptied.refused_since.unwrap_or(self.now);
        self.lives.emptied = match report {
            EndReport::Exit(facts) => {
                self.stopped(Some(facts), emptied.since);
                None
            }
            EndReport::Runs => None,
            EndReport::Late => Some(EmptiedLife { query: None, ..emptied }),
            EndReport::Refused if self.now.saturating_duration_since(refused_since) < REFUSED_FOR => {
                Some(EmptiedLife { query: None, refused_since: Some(refused_since), ..emptied })
            }
            EndReport::Refused => {
                self.stopped(None, emptied.since);
                None
            }
        };
    }

    fn stopped(&mut self, facts: Option<ExitFacts>, emptied_at: Instant) {
        match self.take() {
            State::Shown(life) => match life.inode.filter(|inode| self.facts.inode() == Some(*inode)) {
                Some(inode) => {
                    self.lives.counted = None;
                    self.act(LifeAction::Hide(Box::new(life.found.clone())));
                    let cgroup = self.facts.cgroup(&life.task);
                    self.lives.stopped = Some(StoppedLife { cgroup, inode, at: self.now });
                    self.act(LifeAction::Stop { life, facts, emptied_at });
                    self.lives.state = State::Aside(HiddenReason::Stopped);
                }
                // The answer is about the task of another cgroup.
                None => self.lives.state = State::Shown(life),
            },
            other @ (State::Absent
            | State::Empty { .. }
            | State::Aside(_)
            | State::Naming { .. }
            | State::Covered { .. }) => self.lives.state = other,
        }
    }

    pub(super) fn occupied(&mut self) {
        self.leave_stopped();
        match &self.lives.state {
            State::Aside(HiddenReason::Stopped) => {
                self.lives.state = State::Absent;
                self.count_from_now();
            }
            State::Absent
            | State::Empty { .. }
            | State::Aside(HiddenReason::Limit | HiddenReason::Excluded | HiddenReason::Undecided)
            | State::Naming { .. }
            | State::Shown(_)
            | State::Covered { .. } => {}
        }
        self.check_at(self.now);
    }

    /// A stopped life hides no other cgroup than its own, even if the removal of that was not reported.
    pub(super) fn leave_stopped(&mut self) {
        let is_own = |stopped: &StoppedLife<M>| self.facts.inode() == Some(stopped.inode);
        match &self.lives.state {
            State::Aside(HiddenReason::Stopped) if !self.lives.stopped.as_ref().is_some_and(is_own) => {
                self.lives.state = State::Absent;
                self.check_at(self.now);
            }
            State::Absent
            | State::Empty { .. }
            | State::Aside(_)
            | State::Naming { .. }
            | State::Shown(_)
            | State::Covered { .. } => {}
        }
    }
}
