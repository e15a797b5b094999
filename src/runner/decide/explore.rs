//! Computes every possible end of an alloc, from what its tasks do by themselves and from the requests for it. It
//! explores all interleavings of the pure cores (`coordinator`, `step`, `restart`, the state of an alloc). Tests
//! compare real allocs with the result. Compiled with debug assertions only.
//!
//! A stopped agent does nothing, so what it misses is covered by the interleavings.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::coordinator::{self, Cause, DesiredState, TaskAction, View};
use super::restart::{AttemptOutcome, Decision, FinishReason, RestartTracker};
use super::step::{Action, State, StepEvent, step};
use crate::model::alloc::AllocState;
use crate::model::job::{Job, Task};
use crate::model::task::{Outcome, RestartReason, TaskStatus};
use crate::model::units::{Nanos, Steady, Timestamp};

/// What a task does without requests.
#[derive(Debug, Clone, Copy)]
pub enum Course {
    /// It keeps running.
    Runs,
    /// The outcomes of its attempts, in order. Further attempts end as the last one.
    Ends(&'static [Outcome]),
}

/// A request by a user.
#[derive(Debug, Clone, Copy)]
pub enum CourseRequest {
    Stop,
    /// Of the task at this index, once it runs.
    Restart(usize),
    RestartAll,
}

/// A request, and the tasks that run at that moment.
pub type Demand = (CourseRequest, &'static [usize]);

/// How an alloc ended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CourseEnd {
    pub state: AllocState,
    /// Exits of each task by outcome, in the order of `Outcome::ALL`.
    pub exits: Vec<[u64; 6]>,
}

/// Computes every end of an alloc of a job's first group. `scripts`: one for each task. `requests`: the requests in
/// order, each at any moment from when its tasks run.
///
/// Panics: if no event is possible before all tasks are dead.
pub fn ends(job: &Job, scripts: &[Course], requested: &[Demand]) -> BTreeSet<CourseEnd> {
    let tasks = &job.groups[0].tasks;
    assert_eq!(tasks.len(), scripts.len(), "one course for each task");
    let world = ExploredGroup { job, tasks, scripts, requests: requested };
    let (mut seen, mut ends) = (BTreeSet::new(), BTreeSet::new());
    let mut open = vec![ExploredState {
        tasks: tasks.iter().map(ExploredTask::new).collect(),
        requests_done: 0,
        stop: false,
        again: false,
    }];
    while let Some(life) = open.pop() {
        if !seen.insert(format!("{life:?}")) {
            continue;
        }
        if life.tasks.iter().all(|one| one.state == State::Dead) {
            ends.insert(life.end());
            continue;
        }
        let next = world.next(&life);
        assert!(!next.is_empty(), "no event is possible: {life:?}");
        open.extend(next);
    }
    ends
}

/// All events happen within one interval of every restart policy.
const NOW: Timestamp = Timestamp(1_000_000_000);

struct ExploredGroup<'a> {
    job: &'a Job,
    tasks: &'a [Task],
    scripts: &'a [Course],
    requests: &'a [Demand],
}

#[derive(Debug, Clone)]
struct ExploredState {
    tasks: Vec<ExploredTask>,
    /// Number of requests made.
    requests_done: usize,
    stop: bool,
    again: bool,
}

#[derive(Debug, Clone)]
struct ExploredTask {
    state: State,
    status: TaskStatus,
    tracker: RestartTracker,
    /// Its driver has started it.
    runs: bool,
}

impl ExploredTask {
    fn new(task: &Task) -> ExploredTask {
        let status = TaskStatus::new(task.name.clone(), task.driver.clone(), None, NOW);
        ExploredTask { state: State::Pending, status, tracker: RestartTracker::seeded(task.name.as_str()), runs: false }
    }
}

/// What happens to one task.
enum ExploredEvent {
    Step(StepEvent),
    /// Its attempt has ended.
    Ended(Outcome),
    /// Its start was cancelled.
    CalledOff,
}

impl ExploredState {
    fn end(&self) -> CourseEnd {
        let statuses: Vec<Arc<TaskStatus>> = self.tasks.iter().map(|one| Arc::new(one.status.clone())).collect();
        let exits = self.tasks.iter().map(|one| one.status.exit_counts).collect();
        CourseEnd { state: AllocState::derive(None, &statuses).0, exits }
    }

    fn desired_state(&self) -> DesiredState {
        match (self.stop, self.again) {
            (true, _) => DesiredState::Stop,
            (false, true) => DesiredState::Restart,
            (false, false) => DesiredState::Run,
        }
    }
}

impl ExploredGroup<'_> {
    /// All possible next states.
    fn next(&self, life: &ExploredState) -> Vec<ExploredState> {
        let mut next = Vec::new();
        // The cause of an end does not change its effect.
        let view = |(task, one): (&Task, &ExploredTask)| View::of(task, &one.status, None);
        let views: Vec<View> = self.tasks.iter().zip(&life.tasks).map(view).collect();
        for (at, action) in coordinator::decide(&views, life.desired_state()).into_iter().enumerate() {
            for happening in self.happenings(at, &life.tasks[at], action, life.again && !life.stop) {
                let mut after = life.clone();
                let no_more = coordinator::no_more(&views, at, life.desired_state());
                self.apply(at, &mut after.tasks[at], happening, no_more);
                // All tasks wait: continues as a new alloc.
                after.again &= !after.tasks.iter().all(|one| one.state == State::Pending);
                next.push(after);
            }
        }
        if let Some((desired_state, running)) = self.requests.get(life.requests_done)
            && running.iter().all(|at| life.tasks[*at].state == State::Running)
        {
            let mut after = life.clone();
            after.requests_done += 1;
            match desired_state {
                CourseRequest::Stop => after.stop = true,
                CourseRequest::RestartAll => after.again = true,
                CourseRequest::Restart(at) => {
                    self.apply(*at, &mut after.tasks[*at], ExploredEvent::Step(StepEvent::Restart), None)
                }
            }
            next.push(after);
        }
        next
    }

    fn happenings(&self, at: usize, one: &ExploredTask, action: TaskAction, again: bool) -> Vec<ExploredEvent> {
        use ExploredEvent::{CalledOff, Ended, Step};
        let mut all = Vec::new();
        match (one.state, action) {
            (State::Dead | State::Killing, _) | (State::Pending | State::Recalled, TaskAction::Recall) => {}
            (State::Pending, TaskAction::Start) => all.push(Step(StepEvent::Start)),
            (_, TaskAction::End(_)) => all.push(Step(StepEvent::Kill)),
            (_, TaskAction::Recall) => all.push(Step(StepEvent::Recall)),
            (_, TaskAction::Keep | TaskAction::Start) => {}
        }
        match (one.state, one.runs) {
            (State::Starting, _) => all.push(Step(StepEvent::Started)),
            (State::Backoff, _) => all.push(Step(StepEvent::BackoffOver)),
            (State::Dead, _) if again => all.push(Step(StepEvent::Recall)),
            // The start is cancelled, or the cancellation comes too late.
            (State::Killing | State::Recalled, false) => all.extend([Step(StepEvent::Started), CalledOff]),
            (State::Killing | State::Restarting | State::Recalled, true) => all.push(Ended(Outcome::Killed)),
            (State::Running, _) => match self.scripts[at] {
                Course::Runs => {}
                Course::Ends(outcomes) => {
                    let exits = usize::try_from(one.status.exit_counts.iter().sum::<u64>()).unwrap_or(usize::MAX);
                    all.push(Ended(outcomes[exits.min(outcomes.len() - 1)]));
                }
            },
            (State::Pending | State::Dead | State::Restarting, _) => {}
        }
        all
    }

    /// `no_more`: why the task is not restarted if it ends now.
    fn apply(&self, at: usize, one: &mut ExploredTask, happening: ExploredEvent, no_more: Option<Cause>) {
        let event = match happening {
            ExploredEvent::Step(event) => event,
            ExploredEvent::CalledOff => StepEvent::StartFailed(self.decide(at, one, Outcome::Killed, no_more)),
            ExploredEvent::Ended(outcome) => {
                let decision = self.decide(at, one, outcome, no_more);
                one.status.exit_counts[outcome.index()] += 1;
                one.runs = false;
                StepEvent::Exited(decision)
            }
        };
        if event == StepEvent::Started {
            (one.runs, one.status.started_at) = (true, Some(NOW));
        }
        let (state, action) = step(one.state, event);
        (one.state, one.status.state) = (state, state.shown());
        match action {
            Some(Action::Finish { failed }) => (one.status.failed, one.status.finished_at) = (failed, Some(NOW)),
            Some(Action::AwaitTurn) => {
                one.tracker.reset();
                one.status.failed = false;
                (one.status.started_at, one.status.finished_at) = (None, None);
                one.status.attempt = u32::from(one.status.exit_counts != [0; 6]);
            }
            Some(
                Action::Launch
                | Action::WaitToRestart { .. }
                | Action::SendKillSignal
                | Action::AwaitLaunch
                | Action::AwaitEnd
                | Action::ForceKill,
            )
            | None => {}
        }
    }

    fn decide(&self, at: usize, one: &mut ExploredTask, outcome: Outcome, no_more: Option<Cause>) -> Decision {
        let decision = if one.state == State::Killing {
            Decision::Finish { failed: false, why: FinishReason::Killed }
        } else if one.state.restarts() {
            Decision::Restart { delay: Nanos::ZERO, reason: RestartReason::Requested }
        } else {
            let on_success = self.tasks[at].restarts_on_success(self.job.kind);
            one.tracker.decide(
                &self.tasks[at].restart_policy(),
                on_success,
                AttemptOutcome::Exit(outcome),
                Steady(NOW.0),
            )
        };
        match (decision, no_more) {
            (Decision::Restart { .. }, Some(_)) => {
                one.state = step(one.state, StepEvent::Kill).0;
                Decision::Finish { failed: false, why: FinishReason::AllocEnds }
            }
            (decision, _) => decision,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Outcome::{Error, Success};

    fn group(kind: &str, attempts: u32, tasks: &[(&str, &str)]) -> Job {
        let task = |(name, head): &(&str, &str)| format!("task \"{name}\" {{\n driver = \"mock\"\n {head}\n}}\n");
        let tasks: String = tasks.iter().map(task).collect();
        let restart = format!("restart {{\n attempts = {attempts}\n interval = \"1h\"\n mode = \"fail\"\n}}");
        let text = format!("job \"j\" {{\n type = \"{kind}\"\n group \"g\" {{\n {restart}\n {tasks} }}\n}}");
        crate::jobspec::parse("j.hcl", &text).unwrap().job
    }

    /// The state, and the successes, errors and kills of each task.
    fn summary(ends: &BTreeSet<CourseEnd>) -> Vec<(AllocState, Vec<[u64; 3]>)> {
        let of = |exits: &[u64; 6]| [Success, Error, Outcome::Killed].map(|outcome| exits[outcome.index()]);
        ends.iter().map(|end| (end.state, end.exits.iter().map(of).collect())).collect()
    }

    #[test]
    fn exploration_of_one_task_without_requests_has_one_end() {
        let flaky = group("batch", 5, &[("try", "")]);
        let ends = ends(&flaky, &[Course::Ends(&[Error, Error, Success])], &[]);
        assert_eq!(summary(&ends), [(AllocState::Complete, vec![[1, 2, 0]])]);
        let broken = group("batch", 1, &[("bad", "")]);
        let ends = super::ends(&broken, &[Course::Ends(&[Error])], &[]);
        assert_eq!(summary(&ends), [(AllocState::Failed, vec![[0, 2, 0]])]);
    }

    #[test]
    fn task_beside_an_ended_leader_was_killed_or_never_started() {
        let clean = "lifecycle {\n hook = \"poststop\"\n}";
        let job = group("batch", 0, &[("main", "leader = true"), ("beside", ""), ("clean", clean)]);
        let ends = ends(&job, &[Course::Ends(&[Success]), Course::Runs, Course::Ends(&[Success])], &[]);
        let of = |sibling| (AllocState::Complete, vec![[1, 0, 0], [0, 0, sibling], [1, 0, 0]]);
        assert_eq!(summary(&ends), [of(0), of(1)]);
    }

    #[test]
    fn requested_restarts_start_again_and_a_stop_ends_all() {
        let job = group("service", 0, &[("init", "lifecycle {\n hook = \"prestart\"\n}"), ("serve", "")]);
        let requests: [Demand; 3] =
            [(CourseRequest::Restart(1), &[1]), (CourseRequest::RestartAll, &[1]), (CourseRequest::Stop, &[1])];
        let ends = ends(&job, &[Course::Ends(&[Success]), Course::Runs], &requests);
        // Stopped right after the request, during the restart, or after it.
        let of = |init, serve| (AllocState::Complete, vec![[init, 0, 0], [0, 0, serve]]);
        assert_eq!(summary(&ends), [of(1, 2), of(2, 3)]);
    }
}
