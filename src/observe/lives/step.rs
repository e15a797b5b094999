//! What each event does in each state. Where the state decides what an event does, the match names every state: a new
//! one stops the build here. A condition on one state alone is no such match.

use std::time::{Duration, Instant};

use super::notes::LifeExits;
use super::state::{
    CheckOutcome, EndingLife, HiddenReason, LifeAction, LifeEvent, LifeTypes, Lives, MeasuredLife, NameRetry,
    PathFacts, RecoveredLife, RemovedUnnamedLife, State,
};
use crate::model::alloc::AllocSource;
use crate::model::units::Timestamp;
use crate::observe::exits::{EndReport, ExitFacts};
use crate::observe::identity::{AllocCgroupRule, TaskNaming};
use crate::observe::query_queue::{END_IS_AWAITED, ENGINE_IS_AWAITED};
use crate::telemetry::observed::EndMissed;

/// A runtime creates a container's cgroups in sequence; after this time all of them exist.
pub(super) const SETTLED: Duration = Duration::from_millis(20);
/// How long a task may wait for its name before it is shown.
pub(super) const REPLY: Duration = END_IS_AWAITED;
/// How long an end may wait for its exit status. The thread of its source replies within this time, with nothing if
/// need be.
const EXIT_REPLY: Duration = ENGINE_IS_AWAITED.saturating_add(END_IS_AWAITED);
/// An ended life waits longer for its name, because without the name it would be another alloc than the lives before
/// and after it.
pub(super) const LATE_REPLY: Duration = Duration::from_secs(10);
/// The first pause before a source is queried again.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// How long an ended life is remembered.
const REMEMBERED: Duration = Duration::from_secs(10);
/// How long a name is remembered: Docker waits up to a minute before it restarts a container.
const NAME_REMEMBERED: Duration = Duration::from_secs(120);

/// The next state, and what is to be done, in this order.
pub(in crate::observe) fn step<M: LifeTypes>(
    mut lives: Lives<M>,
    event: LifeEvent<M>,
    facts: &impl PathFacts<M>,
) -> (Lives<M>, Vec<LifeAction<M>>) {
    let mut out = Vec::new();
    let mut step = Step { lives: &mut lives, facts, out: &mut out, now: facts.now() };
    match event {
        LifeEvent::Made(created_at) => step.made(created_at),
        LifeEvent::Removed => step.removed(),
        LifeEvent::NoTask => step.no_task(),
        // It may still stand in a hierarchy: what remains of it is not a new one.
        LifeEvent::Vanished => step.leave(),
        LifeEvent::Grew => step.lives.made = None,
        LifeEvent::Above(inode) => step.lives.above = Some(step.lives.above.unwrap_or(inode)),
        LifeEvent::RemovedBelow => step.lives.removed_below = Some(step.now),
        LifeEvent::Checked(verdict) => step.checked(verdict),
        LifeEvent::Occupied => step.occupied(),
        LifeEvent::Recovered(recovered) => step.recovered(recovered),
        LifeEvent::Record { below: Some(below), record, found } => step.record_below(&below, record, *found),
        LifeEvent::Record { below: None, record, found } => step.record(record, *found),
        LifeEvent::Gathered { is_followed } => step.gathered(is_followed),
        LifeEvent::Renamed => step.query_again(),
        LifeEvent::Emptied => step.emptied(),
        LifeEvent::Named(naming) => step.named(naming.map(|naming| *naming)),
        LifeEvent::NotQueued { again } => step.not_queued(again),
        LifeEvent::Exited { number, report } => step.exited(number, report),
        LifeEvent::Due => step.due(),
        LifeEvent::Sweep => step.sweep(),
    }
    (lives, out)
}

/// One event applied to the lives at one path.
pub(super) struct Step<'a, M: LifeTypes, F> {
    pub(super) lives: &'a mut Lives<M>,
    pub(super) facts: &'a F,
    pub(super) out: &'a mut Vec<LifeAction<M>>,
    pub(super) now: Instant,
}

impl<M: LifeTypes, F: PathFacts<M>> Step<'_, M, F> {
    pub(super) fn take(&mut self) -> State<M> {
        std::mem::take(&mut self.lives.state)
    }
    pub(super) fn act(&mut self, action: LifeAction<M>) {
        self.out.push(action);
    }

    fn made(&mut self, created_at: Option<Timestamp>) {
        // Another cgroup was created at the path, so the first one was removed.
        if self.lives.leaving.take().is_some() {
            self.leave();
            match &self.lives.state {
                State::Empty { .. } | State::Aside(_) => self.lives.state = State::Absent,
                State::Absent | State::Naming { .. } | State::Shown(_) | State::Covered { .. } => {}
            }
        } else {
            self.leave_stopped();
        }
        self.lives.made = created_at.map(|at| self.lives.made.unwrap_or(at));
        if created_at.is_none() && !self.facts.is_scanned() {
            return self.act(LifeAction::Miss(EndMissed::Unseen));
        }
        self.check_at(self.now + SETTLED);
    }
    /// What is not measured is checked then.
    pub(super) fn check_at(&mut self, at: Instant) {
        match &self.lives.state {
            State::Absent | State::Empty { .. } | State::Covered { .. } => self.lives.check_at = Some(at),
            State::Aside(_) | State::Naming { .. } | State::Shown(_) => {}
        }
    }

    fn removed(&mut self) {
        (self.lives.made, self.lives.above) = (None, None);
        self.lives.leaving = Some(self.now);
        let is_unchecked = match &self.lives.state {
            State::Absent => self.lives.check_at.is_some(),
            State::Empty { .. } | State::Aside(_) | State::Naming { .. } | State::Shown(_) | State::Covered { .. } => {
                false
            }
        };
        if is_unchecked && !self.facts.is_scanned() {
            self.lives.check_at = None;
            self.act(LifeAction::Miss(EndMissed::Unseen));
        }
    }

    fn no_task(&mut self) {
        self.lives.leaving = None;
        // It may have been created again before this was seen.
        self.lives.check_at = self.lives.check_at.filter(|at| *at > self.now);
        match &self.lives.state {
            State::Empty { .. } | State::Aside(_) => self.lives.state = State::Absent,
            State::Naming { .. } | State::Shown(_) => self.leave(),
            State::Absent | State::Covered { .. } => {}
        }
    }

    /// The measured cgroup is no task any more.
    pub(super) fn leave(&mut self) {
        match self.take() {
            State::Naming { life, .. } => {
                self.lives.removed_unnamed = Some(RemovedUnnamedLife { life, until: self.now + LATE_REPLY });
                self.use_known_name();
            }
            State::Shown(life) => self.hide(life),
            idle @ (State::Absent | State::Empty { .. } | State::Aside(_) | State::Covered { .. }) => {
                self.lives.state = idle;
            }
        }
    }

    /// A life on the board is over, or its cgroup is no task any more.
    pub(super) fn hide(&mut self, life: Box<MeasuredLife<M>>) {
        (self.lives.counted, self.lives.emptied) = (None, None);
        self.act(LifeAction::Hide(Box::new(life.found.clone())));
        if let Some(inode) = life.inode.filter(|inode| self.facts.inode() == Some(*inode)) {
            self.act(LifeAction::Cover);
            if let State::Absent = self.lives.state {
                self.lives.state = State::Covered { inode };
            }
        } else if life.found.has_reported_end() {
            let (number, found) = (self.facts.number(), Box::new(life.found.clone()));
            let (began_at, ended_at) = (life.notes.first_start(), life.notes.last_at());
            self.act(LifeAction::QueryExit { number, found, began_at, ended_at });
            self.lives.ending = Some(EndingLife { life, number, until: self.now + EXIT_REPLY });
        } else {
            self.end(life, None);
        }
    }

    pub(super) fn end(&mut self, life: Box<MeasuredLife<M>>, facts: Option<ExitFacts>) {
        self.remember_end(&life.notes);
        self.act(LifeAction::End { life, facts });
    }
    fn remember_end(&mut self, notes: &LifeExits) {
        if *notes != LifeExits::default() {
            self.lives.over = Some((notes.hierarchies, self.now));
        }
    }
    /// Another life is to be shown: the wait for the exit status of the one before ends.
    fn end_before(&mut self) {
        if let Some(ending) = self.lives.ending.take() {
            self.end(ending.life, None);
        }
    }

    fn recovered(&mut self, recovered: Box<RecoveredLife>) {
        if recovered.is_counted {
            self.count_from_now();
        }
        self.lives.recovered = Some(recovered);
    }
    /// The cgroup at the path was counted before.
    pub(super) fn count_from_now(&mut self) {
        self.lives.counted = self.facts.inode().map(|inode| (inode, self.now));
    }
    /// It is not shown now. If it is later, it counts from then on: its earlier usage must not leave the totals.
    fn drop_recovered(&mut self) {
        self.count_from_now();
        self.act(LifeAction::DropRecovered);
    }

    /// Result of a check.
    fn checked(&mut self, verdict: CheckOutcome<M>) {
        if self.lives.state.life().is_some() || self.lives.removed_unnamed.is_some() {
            return;
        }
        self.lives.check_at = None;
        match verdict {
            CheckOutcome::Excluded => self.lives.state = State::Aside(HiddenReason::Excluded),
            CheckOutcome::NoRoom => self.lives.state = State::Aside(HiddenReason::Limit),
            CheckOutcome::Empty { has_run } => {
                if !matches!(self.lives.state, State::Empty { .. }) {
                    self.act(LifeAction::Listen);
                }
                self.lives.state = State::Empty { has_run };
                // A second check confirms that the usage is not that of a removed child cgroup whose record is still
                // to come.
                self.lives.check_at = has_run.then(|| self.now + SETTLED);
            }
            CheckOutcome::Unreadable => {}
            CheckOutcome::Ready(life) => self.begin(life),
        }
    }

    fn begin(&mut self, life: Box<MeasuredLife<M>>) {
        self.lives.retry = None;
        self.act(LifeAction::Watch { is_plain: life.found.is_plain() });
        self.act(LifeAction::Measure(Box::new(life.found.clone())));
        let is_named = self.facts.is_named(&life.found);
        if !is_named {
            self.act(LifeAction::QueryName { found: Some(Box::new(life.found.clone())), again: false });
        }
        self.lives.state = State::Naming { life, until: self.now + REPLY };
        // Without it the total of its workload would drop until its name is known again. A name from the path is known
        // already.
        let recovered = self.lives.recovered.take().map(|recovered| recovered.naming);
        if recovered.is_some() || is_named {
            self.show_now(recovered.clone().filter(|_| !is_named));
        }
        if recovered.is_some() && matches!(self.lives.state, State::Aside(_)) {
            self.drop_recovered();
        }
        // It is counted under that name.
        if let Some(naming) = recovered.filter(|naming| naming.workload.is_some())
            && matches!(self.lives.state, State::Shown(_))
            && self.facts.has_room_for_name()
        {
            self.lives.name = Some(Box::new((naming, self.now)));
        }
    }

    /// Shows the cgroup at the path, if it waits for its name, with the best known one.
    fn show_now(&mut self, naming: Option<TaskNaming>) {
        match self.take() {
            State::Naming { mut life, .. } => {
                self.end_before();
                let is_shown = self.show(&mut life, naming, false);
                self.lives.state = is_shown.map_or_else(State::Aside, |()| State::Shown(life));
            }
            other @ (State::Absent
            | State::Empty { .. }
            | State::Aside(_)
            | State::Shown(_)
            | State::Covered { .. }) => {
                self.lives.state = other;
            }
        }
    }

    /// Shows the ended life that waits for its name, and after it those that waited for that.
    pub(super) fn show_late(&mut self, naming: Option<TaskNaming>) {
        let Some(RemovedUnnamedLife { mut life, .. }) = self.lives.removed_unnamed.take() else { return };
        self.end_before();
        match self.show(&mut life, naming, true) {
            Ok(()) => self.hide(life),
            Err(why) => {
                self.remember_end(&life.notes);
                if why == HiddenReason::Limit {
                    self.act(LifeAction::Miss(EndMissed::Limit));
                }
            }
        }
        std::mem::take(&mut self.lives.recorded).into_iter().for_each(|life| self.end_recorded_life(life));
        // Another cgroup may have the path by now.
        let soon = self.now + SETTLED;
        self.lives.check_at = Some(self.lives.check_at.map_or(soon, |at| at.min(soon)));
    }

    fn show(
        &mut self,
        life: &mut MeasuredLife<M>,
        naming: Option<TaskNaming>,
        is_removed: bool,
    ) -> Result<(), HiddenReason> {
        let remembered = self.lives.name.as_ref().map(|known| known.0.clone());
        // No further information will come.
        let is_complete = remembered.is_some() || self.facts.is_named(&life.found);
        let naming = naming.or(remembered).unwrap_or_else(|| life.found.naming.clone());
        if let Err(why) = self.facts.admits(&life.found, &naming) {
            self.act(LifeAction::Release { user: life.found.user });
            let is_undecided = why == HiddenReason::Excluded && !is_complete;
            return Err(if is_undecided { HiddenReason::Undecided } else { why });
        }
        life.found.follow_name(&naming);
        if naming.source == Some(AllocSource::Nomad) {
            // Tasks of Nomad allocs in Docker containers: nothing shows that they share an alloc's cgroup.
            life.found.alloc_cgroup = AllocCgroupRule::None;
        }
        let inode = life.inode.filter(|_| !is_removed);
        let (found, naming) = (Box::new(life.found.clone()), Box::new(naming));
        self.act(LifeAction::Show { found, task: life.task.clone(), naming, inode });
        Ok(())
    }

    /// An ended life need not wait if its name and the exit of the preceding life are known.
    fn use_known_name(&mut self) {
        let is_known = self.lives.ending.as_ref().is_none_or(|ending| ending.life.notes.has_run());
        if is_known && self.lives.name.is_some() {
            self.show_late(None);
        }
    }

    /// It may have another name now.
    fn query_again(&mut self) {
        match &self.lives.state {
            State::Shown(life) => {
                let found = Some(Box::new(life.found.clone()));
                self.act(LifeAction::QueryName { found, again: true });
            }
            // It is queried, or not shown under a name.
            State::Naming { .. } | State::Absent | State::Empty { .. } | State::Aside(_) | State::Covered { .. } => {}
        }
    }

    fn named(&mut self, naming: Option<TaskNaming>) {
        // A renamed container stays in the workload in which it is counted.
        let counted = self.lives.name.as_ref().and_then(|known| known.0.workload.clone());
        let naming = naming.map(|naming| TaskNaming { workload: counted.or(naming.workload), ..naming });
        match &naming {
            Some(naming) => {
                self.lives.retry = None;
                if self.lives.name.is_some() || self.facts.has_room_for_name() {
                    self.lives.name = Some(Box::new((naming.clone(), self.now)));
                }
            }
            None => self.retry_later(),
        }
        let waits = self.waiting().map(|life| self.facts.is_named_late(&life.found));
        match (waits, naming) {
            // Its source may still report it.
            (Some(true), None) | (None, None) => {}
            (Some(_), naming) if self.lives.removed_unnamed.is_some() => self.show_late(naming),
            (Some(_), naming) => self.show_now(naming),
            (None, Some(naming)) => self.named_late(naming),
        }
    }
    /// The life that waits for its name.
    fn waiting(&self) -> Option<&MeasuredLife<M>> {
        let is_naming = matches!(self.lives.state, State::Naming { .. });
        self.lives.measured().filter(|_| is_naming || self.lives.removed_unnamed.is_some())
    }

    /// The name arrived after the task was shown or set aside.
    fn named_late(&mut self, naming: TaskNaming) {
        match self.take() {
            // Checked again as if it were new.
            State::Aside(HiddenReason::Undecided) => self.check_at(self.now),
            State::Shown(life) if !self.facts.keeps(&life.found, &naming) => {
                // It still runs, but is excluded now; this is not its end.
                self.hide(life);
                self.lives.state = State::Aside(HiddenReason::Excluded);
            }
            other @ (State::Absent
            | State::Empty { .. }
            | State::Aside(_)
            | State::Naming { .. }
            | State::Shown(_)
            | State::Covered { .. }) => {
                self.lives.state = other;
                // An ended one has its name until its exit status is known.
                let found = self.lives.all_measured_mut().next().map(|life| {
                    life.found.follow_name(&naming);
                    life.found.clone()
                });
                if let Some(found) = found
                    && self.facts.keeps(&found, &naming)
                {
                    self.act(LifeAction::Rename { found: Box::new(found), naming: Box::new(naming) });
                }
            }
        }
    }

    fn retry_later(&mut self) {
        let first = NameRetry { next: self.now + FIRST_PAUSE, pause: FIRST_PAUSE };
        self.lives.retry.get_or_insert(first);
    }

    fn not_queued(&mut self, again: bool) {
        if again {
            // The queue was full: soon, without backoff.
            self.lives.retry = None;
            return self.retry_later();
        }
        match &self.lives.state {
            State::Naming { .. } => {
                self.retry_later();
                self.show_now(None);
            }
            State::Shown(_) => self.retry_later(),
            State::Absent | State::Empty { .. } | State::Aside(_) | State::Covered { .. } => self.show_late(None),
        }
    }

    fn exited(&mut self, number: u64, report: EndReport) {
        // A late reply belongs to an earlier life.
        if let Some(ending) = self.lives.ending.take_if(|ending| ending.number == number) {
            self.end(ending.life, report.facts());
            self.use_known_name();
        } else if let Some(emptied) = self.lives.emptied.filter(|emptied| emptied.query == Some(number)) {
            self.answered(emptied, report);
        }
    }

    fn due(&mut self) {
        let now = self.now;
        if self.lives.retry.is_some_and(|retry| retry.next <= now) {
            self.retry();
        }
        match &self.lives.state {
            State::Naming { until, .. } if *until <= now => self.show_now(None),
            State::Naming { .. }
            | State::Absent
            | State::Empty { .. }
            | State::Aside(_)
            | State::Shown(_)
            | State::Covered { .. } => {}
        }
        if self.lives.removed_unnamed.as_ref().is_some_and(|late| late.until <= now) {
            self.show_late(None);
        }
        // The cgroup at the path is measured after it. Those above have been checked.
        if let Some(late) = &self.lives.removed_unnamed
            && self.lives.check_at.is_some_and(|at| at <= now)
        {
            self.lives.check_at = Some(late.until);
        }
        if self.lives.ending.as_ref().is_some_and(|ending| ending.until <= now) {
            self.end_before();
            self.use_known_name();
        }
    }

    /// Queries the name again.
    fn retry(&mut self) {
        let waiting = self.waiting();
        let (is_there, found) = match &self.lives.state {
            State::Shown(life) => (true, Some(Some(life.found.clone()))),
            State::Aside(HiddenReason::Undecided) => (true, Some(None)),
            // The reply to the query of the first check may still come.
            State::Absent | State::Empty { .. } | State::Aside(_) | State::Naming { .. } | State::Covered { .. } => {
                let late = waiting.filter(|life| self.facts.is_named_late(&life.found));
                (waiting.is_some(), late.map(|life| Some(life.found.clone())))
            }
        };
        let now = self.now;
        self.lives.retry = self.lives.retry.filter(|_| is_there).map(|NameRetry { pause, .. }| {
            let pause = pause * 2;
            NameRetry { next: now + pause, pause }
        });
        if let Some(found) = found {
            self.act(LifeAction::QueryName { found: found.map(Box::new), again: true });
        }
    }

    /// Forgets what is over.
    fn sweep(&mut self) {
        self.leave_stopped();
        let (now, lives) = (self.now, &mut *self.lives);
        let is_young = |at: Instant, span: Duration| now.saturating_duration_since(at) < span;
        // Excluded tasks end too, and their runtime may have forgotten them by then.
        let is_there = lives.is_task();
        if let Some(known) = &mut lives.name {
            if is_there {
                known.1 = now;
            }
            if !is_young(known.1, NAME_REMEMBERED) {
                lives.name = None;
            }
        }
        lives.over = lives.over.filter(|(_, at)| is_young(*at, REMEMBERED));
        lives.removed_below = lives.removed_below.filter(|at| is_young(*at, REMEMBERED));
        if let Some(stopped) = &mut lives.stopped {
            if matches!(lives.state, State::Aside(HiddenReason::Stopped)) {
                stopped.at = now;
            }
            if !is_young(stopped.at, REMEMBERED) {
                lives.stopped = None;
            }
        }
        // Its end record may come after its removal.
        lives.counted = lives.counted.and_then(|(inode, at)| {
            let at = if self.facts.inode() == Some(inode) { now } else { at };
            is_young(at, REMEMBERED).then_some((inode, at))
        });
        if lives.made.is_some() || lives.above.is_some() || matches!(lives.state, State::Covered { .. }) {
            let inode = self.facts.inode();
            lives.made = lives.made.filter(|_| inode.is_some());
            lives.above = lives.above.filter(|was| was.is_some() && *was == inode);
            if matches!(&lives.state, State::Covered { inode: was } if Some(*was) != inode) {
                lives.state = State::Absent;
            }
        }
        if lives.recovered.take().is_some() {
            self.drop_recovered();
        }
    }
}
