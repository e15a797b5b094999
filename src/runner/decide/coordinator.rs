//! Decides which task of an alloc starts and which one ends, from the current states of all its tasks alone. Nothing
//! else is remembered, so a restored alloc continues from the states of its tasks.
//!
//! ```text
//! prestart ──all succeeded, sidecars run──► main ──all have started──► poststart
//!    └───────────── all tasks but poststop are dead, for whatever reason ────────────► poststop
//! ```
//! Tasks are stopped by rank: leader, then the other tasks, then sidecars. Each rank waits until the previous one is
//! dead; then the poststop tasks run.

use serde::{Deserialize, Serialize};

use crate::model::job::{Lifecycle, LifecycleHook, Task};
use crate::model::task::{TaskState, TaskStatus};
use crate::model::units::Timestamp;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    Prestart,
    PrestartSidecar,
    Main,
    /// A main task whose end also ends the other tasks.
    Leader,
    Poststart,
    PoststartSidecar,
    Poststop,
}

impl Role {
    pub fn of(task: &Task) -> Role {
        match task.lifecycle {
            None if task.leader => Role::Leader,
            None => Role::Main,
            Some(Lifecycle { hook: LifecycleHook::Prestart, sidecar: false }) => Role::Prestart,
            Some(Lifecycle { hook: LifecycleHook::Prestart, sidecar: true }) => Role::PrestartSidecar,
            Some(Lifecycle { hook: LifecycleHook::Poststart, sidecar: false }) => Role::Poststart,
            Some(Lifecycle { hook: LifecycleHook::Poststart, sidecar: true }) => Role::PoststartSidecar,
            Some(Lifecycle { hook: LifecycleHook::Poststop, sidecar: _ }) => Role::Poststop,
        }
    }

    /// Stop order of live tasks. Poststop tasks are not stopped.
    fn rank(self) -> u8 {
        match self {
            Role::Leader => 0,
            Role::Prestart | Role::Main | Role::Poststart => 1,
            Role::PrestartSidecar | Role::PoststartSidecar => 2,
            Role::Poststop => 3,
        }
    }
    fn is_sidecar(self) -> bool {
        matches!(self, Role::PrestartSidecar | Role::PoststartSidecar)
    }
    fn is_main(self) -> bool {
        matches!(self, Role::Main | Role::Leader)
    }
}

/// Progress of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskStage {
    /// Not started yet.
    Waiting,
    /// Before its first run.
    Starting,
    /// Running, or has run and may run again.
    Ran,
    Dead,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    pub role: Role,
    pub stage: TaskStage,
    pub failed: bool,
    /// Time of death. The earliest of several failures is the cause.
    pub ended_at: Option<Timestamp>,
    /// Whether it was ever started.
    pub started: bool,
    /// Why its end was requested, if it was.
    pub end_cause: Option<Cause>,
}

impl View {
    pub fn of(task: &Task, status: &TaskStatus, requested: Option<Cause>) -> View {
        let stage = match status.state {
            TaskState::Pending => TaskStage::Waiting,
            TaskState::Dead => TaskStage::Dead,
            TaskState::Starting | TaskState::Running | TaskState::Backoff | TaskState::Killing => {
                // A task whose start failed and is retried has not run yet.
                if status.started_at.is_some() { TaskStage::Ran } else { TaskStage::Starting }
            }
        };
        // After a restart of the whole alloc, earlier attempts count as started.
        let started = status.started_at.is_some() || stage == TaskStage::Starting || status.attempt > 0;
        View {
            role: Role::of(task),
            stage,
            failed: status.failed,
            ended_at: status.finished_at,
            started,
            end_cause: requested,
        }
    }
    /// The view of a task in recovery: neither running nor dead, whatever its record says. No task that waits for
    /// either may start, and the task itself is not started.
    pub fn unknown(self) -> View {
        View { stage: TaskStage::Starting, started: true, ..self }
    }
}

/// The desired state of the alloc as a whole, derived from requests and its deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DesiredState {
    Run,
    /// Restart of the whole alloc: all tasks end in stop order, then start from the beginning.
    Restart,
    Stop,
    /// `max_run_duration` has passed: poststop tasks do not run either.
    Expire,
    /// Setup failed: no task ever starts.
    SetupFailed,
}

/// Why a task has to end. The number is the index of the task in the group that is the cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    Stopped,
    Expired,
    LeaderDead(usize),
    SiblingFailed(usize),
    /// Only sidecars are left.
    MainsDead,
    /// A poststop task of an alloc in which no task ever started.
    NothingRan,
    /// Setup of the alloc failed.
    SetupFailed,
}

impl Cause {
    /// Text for users. `name` returns the name of the task at an index.
    pub fn text(self, name: impl Fn(usize) -> String) -> String {
        match self {
            Cause::Stopped => "its alloc is stopped".to_owned(),
            Cause::Expired => "the max_run_duration of its alloc is over".to_owned(),
            Cause::LeaderDead(at) => format!("its leader {} has ended", name(at)),
            Cause::SiblingFailed(at) => format!("the task {} beside it has failed", name(at)),
            Cause::MainsDead => "the tasks that it runs beside have ended".to_owned(),
            Cause::NothingRan => "nothing of its alloc was ever started".to_owned(),
            Cause::SetupFailed => "its alloc could not be set up".to_owned(),
        }
    }
    /// The `reason` of the event.
    pub fn label(self) -> &'static str {
        match self {
            Cause::Stopped => "stopped",
            Cause::Expired => "max_run_duration",
            Cause::LeaderDead(_) => "leader_dead",
            Cause::SiblingFailed(_) => "sibling_failed",
            Cause::MainsDead => "main_tasks_dead",
            Cause::NothingRan => "nothing_ran",
            Cause::SetupFailed => "setup_failed",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskAction {
    /// No change: the task waits, keeps running, or is dead.
    Keep,
    Start,
    /// End the attempt, then wait to be started again in lifecycle order.
    Recall,
    End(Cause),
}

/// Returns one action per task, in the order of the tasks.
pub fn decide(tasks: &[View], desired_state: DesiredState) -> Vec<TaskAction> {
    let cause = cause(tasks, desired_state);
    let rest_dead = tasks.iter().all(|t| t.role == Role::Poststop || t.stage == TaskStage::Dead);
    let anything_ran = tasks.iter().any(|t| t.role != Role::Poststop && t.started);
    let live =
        tasks.iter().filter(|t| t.role != Role::Poststop && matches!(t.stage, TaskStage::Starting | TaskStage::Ran));
    let turn = live.map(|t| t.role.rank()).min();
    let action = |task: &View| match (task.stage, task.role) {
        (TaskStage::Dead, _) => TaskAction::Keep,
        // A poststop task that already runs may finish.
        (TaskStage::Waiting, _) | (TaskStage::Starting | TaskStage::Ran, Role::Poststop)
            if desired_state == DesiredState::Restart =>
        {
            TaskAction::Keep
        }
        (TaskStage::Starting | TaskStage::Ran, role) if desired_state == DesiredState::Restart => {
            if Some(role.rank()) == turn { TaskAction::Recall } else { TaskAction::Keep }
        }
        (TaskStage::Waiting | TaskStage::Starting | TaskStage::Ran, Role::Poststop)
            if desired_state >= DesiredState::Expire =>
        {
            TaskAction::End(if desired_state == DesiredState::SetupFailed {
                Cause::SetupFailed
            } else {
                Cause::Expired
            })
        }
        (TaskStage::Waiting, Role::Poststop) if !rest_dead => TaskAction::Keep,
        (TaskStage::Waiting, Role::Poststop) if anything_ran => TaskAction::Start,
        (TaskStage::Waiting, Role::Poststop) => TaskAction::End(Cause::NothingRan),
        (TaskStage::Starting | TaskStage::Ran, Role::Poststop) => TaskAction::Keep,
        (TaskStage::Waiting, role) => match cause {
            Some(cause) => TaskAction::End(cause),
            None if gate_is_open(tasks, role) => TaskAction::Start,
            None => TaskAction::Keep,
        },
        (TaskStage::Starting | TaskStage::Ran, role) => match cause {
            Some(cause) if Some(role.rank()) == turn => TaskAction::End(cause),
            Some(_) | None => TaskAction::Keep,
        },
    };
    tasks.iter().map(action).collect()
}

/// Why an ended task is not restarted: its alloc ends or has expired, even if the task has not received the action yet.
pub fn no_more(tasks: &[View], at: usize, desired_state: DesiredState) -> Option<Cause> {
    match (tasks[at].role, desired_state) {
        (Role::Poststop, DesiredState::Expire) => Some(Cause::Expired),
        (Role::Poststop, DesiredState::SetupFailed) => Some(Cause::SetupFailed),
        (Role::Poststop, DesiredState::Run | DesiredState::Restart | DesiredState::Stop) => None,
        (_, _) => cause(tasks, desired_state),
    }
}

/// Whether all tasks but poststop tasks are ending or have ended.
pub fn ends(tasks: &[View], desired_state: DesiredState) -> bool {
    cause(tasks, desired_state).is_some()
        || tasks.iter().all(|t| t.role == Role::Poststop || t.stage == TaskStage::Dead)
}

/// Why all tasks but poststop tasks have to end, if they do.
fn cause(tasks: &[View], desired_state: DesiredState) -> Option<Cause> {
    match desired_state {
        DesiredState::SetupFailed => return Some(Cause::SetupFailed),
        DesiredState::Expire => return Some(Cause::Expired),
        DesiredState::Stop => return Some(Cause::Stopped),
        DesiredState::Restart => return None,
        DesiredState::Run => {}
    }
    let dead = |t: &View| t.stage == TaskStage::Dead;
    // A failed leader counts as a failed sibling. A leader that succeeded takes precedence over a failed sibling. A
    // leader that was ended because of a failure is not the cause.
    if let Some(leader) = tasks.iter().position(|t| t.role == Role::Leader && dead(t) && !t.failed) {
        let failure = tasks[leader].end_cause.filter(|requested| matches!(requested, Cause::SiblingFailed(_)));
        return Some(failure.unwrap_or(Cause::LeaderDead(leader)));
    }
    let failed = tasks.iter().enumerate().filter(|(_, t)| t.role != Role::Poststop && dead(t) && t.failed);
    if let Some((culprit, _)) = failed.min_by_key(|(at, t)| (t.ended_at, *at)) {
        return Some(Cause::SiblingFailed(culprit));
    }
    let mut work = tasks.iter().filter(|t| t.role != Role::Poststop && !t.role.is_sidecar()).peekable();
    // A group of sidecars alone has no main tasks to wait for: the sidecars are its work.
    (work.peek().is_some() && work.all(dead)).then_some(Cause::MainsDead)
}

fn gate_is_open(tasks: &[View], role: Role) -> bool {
    let has_run = |t: &View| matches!(t.stage, TaskStage::Ran | TaskStage::Dead);
    let prestart_over = || {
        tasks.iter().all(|t| match t.role {
            Role::Prestart => t.stage == TaskStage::Dead,
            Role::PrestartSidecar => has_run(t),
            Role::Main | Role::Leader | Role::Poststart | Role::PoststartSidecar | Role::Poststop => true,
        })
    };
    match role {
        Role::Prestart | Role::PrestartSidecar => true,
        Role::Main | Role::Leader => prestart_over(),
        Role::Poststart | Role::PoststartSidecar => {
            prestart_over() && tasks.iter().filter(|t| t.role.is_main()).all(has_run)
        }
        Role::Poststop => false,
    }
}

/// Promise (Task groups and lifecycle order): P-B5 No order of exits, stops and restarts breaks the order of a group or
/// hangs: every group of up to four
#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    const ROLES: [Role; 7] = [
        Role::Prestart,
        Role::PrestartSidecar,
        Role::Main,
        Role::Leader,
        Role::Poststart,
        Role::PoststartSidecar,
        Role::Poststop,
    ];

    fn fresh(role: Role) -> View {
        View { role, stage: TaskStage::Waiting, failed: false, ended_at: None, started: false, end_cause: None }
    }
    fn ran(role: Role) -> View {
        View { stage: TaskStage::Ran, started: true, ..fresh(role) }
    }
    fn dead(role: Role, failed: bool) -> View {
        View { stage: TaskStage::Dead, started: true, failed, ended_at: Some(Timestamp(1)), ..fresh(role) }
    }

    #[test]
    fn mains_wait_for_the_success_of_prestart_and_for_its_sidecars_to_run() {
        use Role::{Main, Prestart, PrestartSidecar};
        use TaskAction::{Keep, Start};
        let all = [fresh(Prestart), fresh(PrestartSidecar), fresh(Main)];
        assert_eq!(decide(&all, DesiredState::Run), [Start, Start, Keep]);
        let sidecar_missing = [dead(Prestart, false), fresh(PrestartSidecar), fresh(Main)];
        assert_eq!(decide(&sidecar_missing, DesiredState::Run), [Keep, Start, Keep]);
        let ready = [dead(Prestart, false), ran(PrestartSidecar), fresh(Main)];
        assert_eq!(decide(&ready, DesiredState::Run), [Keep, Keep, Start]);
        let failed = [dead(Prestart, true), ran(PrestartSidecar), fresh(Main)];
        let cause = TaskAction::End(Cause::SiblingFailed(0));
        assert_eq!(decide(&failed, DesiredState::Run), [Keep, cause, cause]);
    }

    #[test]
    fn task_in_recovery_is_neither_dead_nor_running_and_ends_by_rank() {
        use Role::{Leader, Main, Poststart, Poststop, PrestartSidecar};
        for recorded in [fresh(Main), ran(Main), View { stage: TaskStage::Starting, ..ran(Main) }] {
            let of = |role| View { role, ..recorded }.unknown();
            assert_eq!(decide(&[of(Main), fresh(Poststart)], DesiredState::Run), [TaskAction::Keep; 2]);
            assert_eq!(decide(&[of(PrestartSidecar), fresh(Main)], DesiredState::Run), [TaskAction::Keep; 2]);
            assert_eq!(decide(&[of(Main), fresh(Poststop)], DesiredState::Run), [TaskAction::Keep; 2]);
            let stopped = TaskAction::End(Cause::Stopped);
            assert_eq!(decide(&[of(Leader), ran(Main)], DesiredState::Stop), [stopped, TaskAction::Keep]);
            assert_eq!(decide(&[of(Main), ran(Main)], DesiredState::Stop), [stopped; 2]);
        }
    }

    #[test]
    fn a_leader_that_ended_well_outranks_a_failed_sibling_and_one_that_failed_is_one() {
        use Role::{Leader, Main};
        let both = [dead(Main, true), dead(Leader, false), ran(Main)];
        assert_eq!(decide(&both, DesiredState::Run)[2], TaskAction::End(Cause::LeaderDead(1)));
        let failed = [ran(Main), dead(Leader, true)];
        assert_eq!(decide(&failed, DesiredState::Run)[0], TaskAction::End(Cause::SiblingFailed(1)));
    }

    #[test]
    fn a_leader_that_was_ended_for_a_failure_is_not_the_culprit() {
        use Role::{Leader, Main, PrestartSidecar};
        let ended = View { end_cause: Some(Cause::SiblingFailed(0)), ..dead(Leader, false) };
        let tasks = [dead(PrestartSidecar, true), ended, ran(Main)];
        assert_eq!(decide(&tasks, DesiredState::Run)[2], TaskAction::End(Cause::SiblingFailed(0)));
        assert_eq!(no_more(&tasks, 2, DesiredState::Run), Some(Cause::SiblingFailed(0)));
    }

    #[test]
    fn sibling_failure_names_the_first_failed_task() {
        let late = View { ended_at: Some(Timestamp(9)), ..dead(Role::Main, true) };
        let tasks = [late, dead(Role::Main, true), ran(Role::Main)];
        assert_eq!(decide(&tasks, DesiredState::Run)[2], TaskAction::End(Cause::SiblingFailed(1)));
    }

    #[test]
    fn stop_ends_leader_then_mains_then_sidecars_and_poststop_runs_last() {
        use Role::{Leader, Main, PoststartSidecar, Poststop};
        use TaskAction::{End, Keep, Start};
        let stopped = End(Cause::Stopped);
        let mut tasks = [ran(PoststartSidecar), ran(Main), ran(Leader), fresh(Poststop)];
        assert_eq!(decide(&tasks, DesiredState::Stop), [Keep, Keep, stopped, Keep]);
        tasks[2] = dead(Leader, false);
        assert_eq!(decide(&tasks, DesiredState::Stop), [Keep, stopped, Keep, Keep]);
        tasks[1] = dead(Main, false);
        assert_eq!(decide(&tasks, DesiredState::Stop), [stopped, Keep, Keep, Keep]);
        tasks[0] = dead(PoststartSidecar, false);
        assert_eq!(decide(&tasks, DesiredState::Stop), [Keep, Keep, Keep, Start]);
        tasks[3] = ran(Poststop);
        assert_eq!(decide(&tasks, DesiredState::Stop), [Keep; 4], "poststop tasks are not stopped");
        assert_eq!(decide(&tasks, DesiredState::Expire)[3], End(Cause::Expired));
    }

    #[test]
    fn sidecars_alone_are_ended_when_the_work_is_done_and_only_then() {
        use Role::{Main, PoststartSidecar, PrestartSidecar};
        let done = [ran(PrestartSidecar), dead(Main, false), fresh(PoststartSidecar)];
        let end = TaskAction::End(Cause::MainsDead);
        assert_eq!(decide(&done, DesiredState::Run), [end, TaskAction::Keep, end]);
        assert_eq!(decide(&[ran(PrestartSidecar), ran(Main)], DesiredState::Run), [TaskAction::Keep; 2]);
        assert_eq!(decide(&[ran(PrestartSidecar)], DesiredState::Run), [TaskAction::Keep], "no main tasks");
    }

    #[test]
    fn poststop_does_not_run_after_nothing() {
        let tasks = [View { stage: TaskStage::Dead, ..fresh(Role::Main) }, fresh(Role::Poststop)];
        assert_eq!(decide(&tasks, DesiredState::Stop)[1], TaskAction::End(Cause::NothingRan));
    }

    /// All groups of up to four tasks, in every relevant order of roles, with at most one leader.
    fn groups() -> Vec<Vec<Role>> {
        let mut all = vec![Vec::new()];
        let mut groups = Vec::new();
        for _ in 0..4 {
            let next: Vec<Vec<Role>> = all
                .iter()
                .flat_map(|group: &Vec<Role>| {
                    let from = group.last().copied();
                    ROLES.into_iter().filter(move |role| from.is_none_or(|f| f <= *role)).map(|role| {
                        let mut group = group.clone();
                        group.push(role);
                        group
                    })
                })
                .filter(|group| group.iter().filter(|r| **r == Role::Leader).count() < 2)
                .collect();
            groups.extend(next.iter().cloned());
            all = next;
        }
        groups
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    struct GroupTask {
        stage: TaskStage,
        failed: bool,
        started: bool,
        /// Since the last restart of the whole alloc.
        ran: bool,
    }

    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    struct State {
        desired_state: DesiredState,
        /// It was restarted once; a second restart would repeat the same states.
        again: bool,
        tasks: Vec<GroupTask>,
    }

    impl State {
        fn new(tasks: usize) -> State {
            let fresh = GroupTask { stage: TaskStage::Waiting, failed: false, started: false, ran: false };
            State { desired_state: DesiredState::Run, again: false, tasks: vec![fresh; tasks] }
        }
        fn with(&self, at: usize, one: GroupTask) -> State {
            let mut next = self.clone();
            next.tasks[at] = one;
            // All tasks wait: continues as a new alloc.
            if next.desired_state == DesiredState::Restart && next.tasks.iter().all(|t| t.stage == TaskStage::Waiting) {
                next.desired_state = DesiredState::Run;
                next.tasks.iter_mut().for_each(|t| t.ran = false);
            }
            next
        }
        /// The states after each request that is possible now.
        fn requested(&self) -> Vec<State> {
            let may = |desired_state: DesiredState| match desired_state {
                DesiredState::Restart => {
                    self.desired_state == DesiredState::Run && !self.again && self.tasks.iter().any(|t| t.started)
                }
                DesiredState::Stop | DesiredState::Expire => self.desired_state < desired_state,
                DesiredState::Run | DesiredState::SetupFailed => false,
            };
            let requests = [DesiredState::Restart, DesiredState::Stop, DesiredState::Expire]
                .into_iter()
                .filter(|desired_state| may(*desired_state));
            requests
                .map(|desired_state| State {
                    desired_state,
                    again: self.again || desired_state == DesiredState::Restart,
                    ..self.clone()
                })
                .collect()
        }
    }

    fn views(group: &[Role], state: &State) -> Vec<View> {
        let view = |(role, one): (&Role, &GroupTask)| {
            let ended_at = (one.stage == TaskStage::Dead).then_some(Timestamp(1));
            View { role: *role, stage: one.stage, failed: one.failed, ended_at, started: one.started, end_cause: None }
        };
        group.iter().zip(&state.tasks).map(view).collect()
    }

    /// What can happen to a task: its action is applied, or it exits by itself.
    fn follow(desired_state: DesiredState, action: TaskAction, one: GroupTask) -> Vec<GroupTask> {
        let dead = |failed| GroupTask { stage: TaskStage::Dead, failed, ..one };
        let waiting = GroupTask { stage: TaskStage::Waiting, failed: false, ..one };
        let mut next = match (one.stage, action) {
            (TaskStage::Waiting, TaskAction::Start) => {
                vec![GroupTask { stage: TaskStage::Starting, started: true, ran: true, ..one }]
            }
            (TaskStage::Waiting, TaskAction::End(_)) => vec![dead(false)],
            (TaskStage::Waiting, TaskAction::Keep | TaskAction::Recall) => vec![],
            // During a restart of the alloc, a dead task waits again.
            (TaskStage::Dead, _) if desired_state == DesiredState::Restart => vec![waiting],
            (TaskStage::Dead, _) => vec![],
            (TaskStage::Starting, _) => vec![GroupTask { stage: TaskStage::Ran, ..one }, dead(true), dead(false)],
            (TaskStage::Ran, _) => vec![dead(true), dead(false)],
        };
        if action == TaskAction::Recall {
            next.push(waiting);
        }
        next
    }

    /// Explores every reachable state, for every order of exits. A stop, an expiry or (up to three tasks) a restart of
    /// the alloc may come at any moment.
    #[test]
    fn no_order_of_exits_hangs_starts_too_early_or_forgets_poststop() {
        let (mut states, mut recalls) = (0, 0);
        for group in groups() {
            // A restart multiplies the states of four tasks: the property test below samples those.
            let first = State { again: group.len() > 3, ..State::new(group.len()) };
            let mut seen = HashSet::from([first.clone()]);
            let mut open = vec![first];
            while let Some(state) = open.pop() {
                let tasks = views(&group, &state);
                let actions = decide(&tasks, state.desired_state);
                check(&tasks, &state, &actions);
                recalls += actions.iter().filter(|action| **action == TaskAction::Recall).count();
                let each = actions.iter().zip(&state.tasks).enumerate();
                let followed = each.flat_map(|(at, (action, now))| {
                    follow(state.desired_state, *action, *now)
                        .into_iter()
                        .map(|next| state.with(at, next))
                        .collect::<Vec<_>>()
                });
                open.extend(followed.chain(state.requested()).filter(|next| seen.insert(next.clone())));
            }
            states += seen.len();
        }
        assert!(states > 200_000 && recalls > 5_000, "too few: {states} states, {recalls} recalls");
    }

    fn check(tasks: &[View], state: &State, actions: &[TaskAction]) {
        let desired_state = state.desired_state;
        let context = || format!("{state:?} {tasks:?} -> {actions:?}");
        let live = |t: &View| matches!(t.stage, TaskStage::Starting | TaskStage::Ran);
        let has_run = |t: &View| matches!(t.stage, TaskStage::Ran | TaskStage::Dead);
        let all = |role: Role, holds: &dyn Fn(&View) -> bool| tasks.iter().filter(|t| t.role == role).all(holds);
        let all_dead = tasks.iter().all(|t| t.stage == TaskStage::Dead);
        let moves = actions.iter().any(|o| *o != TaskAction::Keep) || tasks.iter().any(live);
        // During a restart of the alloc, a dead task waits again without an action.
        assert!(all_dead || moves || desired_state == DesiredState::Restart, "no state can follow: {}", context());
        for (task, action) in tasks.iter().zip(actions) {
            let rest = || tasks.iter().filter(|t| t.role != Role::Poststop);
            let is_turn = || !rest().any(|t| live(t) && t.role.rank() < task.role.rank());
            match (action, task.role) {
                (TaskAction::Start, Role::Poststop) => {
                    assert!(rest().all(|t| t.stage == TaskStage::Dead), "{}", context());
                    assert!(matches!(desired_state, DesiredState::Run | DesiredState::Stop), "{}", context());
                }
                (TaskAction::Start, role) => {
                    assert!(task.stage == TaskStage::Waiting && desired_state == DesiredState::Run, "{}", context());
                    assert!(!rest().any(|t| t.stage == TaskStage::Dead && t.failed), "{}", context());
                    if !matches!(role, Role::Prestart | Role::PrestartSidecar) {
                        let succeeded = |t: &View| t.stage == TaskStage::Dead && !t.failed;
                        assert!(
                            all(Role::Prestart, &succeeded) && all(Role::PrestartSidecar, &has_run),
                            "{}",
                            context()
                        );
                    }
                    if matches!(role, Role::Poststart | Role::PoststartSidecar) {
                        assert!(all(Role::Main, &has_run) && all(Role::Leader, &has_run), "{}", context());
                    }
                }
                (TaskAction::End(cause), Role::Poststop) => {
                    assert!(matches!(cause, Cause::Expired | Cause::NothingRan), "{}", context());
                    assert!(*cause == Cause::Expired || !live(task), "{}", context());
                }
                (TaskAction::End(cause), role) => {
                    assert!(desired_state != DesiredState::Restart, "a restart ends no task: {}", context());
                    assert!(!live(task) || is_turn(), "{}", context());
                    let is_requested = matches!(cause, Cause::Stopped | Cause::Expired);
                    assert_eq!(is_requested, desired_state != DesiredState::Run, "{}", context());
                    // The work is not over while a task other than a sidecar may still run.
                    let work = || rest().filter(|t| !t.role.is_sidecar());
                    let over = *cause != Cause::MainsDead || work().all(|t| t.stage == TaskStage::Dead);
                    assert!(over && (*cause != Cause::MainsDead || role.is_sidecar()), "{}", context());
                }
                (TaskAction::Recall, role) => {
                    assert!(
                        desired_state == DesiredState::Restart && role != Role::Poststop,
                        "no restart was requested: {}",
                        context()
                    );
                    assert!(live(task) && is_turn(), "{}", context());
                }
                (TaskAction::Keep, Role::Poststop) => {}
                // Live tasks that block a restart are recalled by rank.
                (TaskAction::Keep, _) => {
                    assert!(desired_state != DesiredState::Restart || !live(task) || !is_turn(), "{}", context())
                }
            }
            assert!(
                task.stage != TaskStage::Dead || *action == TaskAction::Keep,
                "a dead task gets no action: {}",
                context()
            );
        }
        let mut each = tasks.iter().zip(&state.tasks);
        if all_dead
            && matches!(desired_state, DesiredState::Run | DesiredState::Stop)
            && each.clone().any(|(t, one)| t.role != Role::Poststop && one.ran)
        {
            let skipped = each.any(|(t, one)| t.role == Role::Poststop && !one.ran);
            assert!(!skipped, "a poststop task never ran: {}", context());
        }
    }

    proptest! {
        /// Groups too large to explore exhaustively.
        #[test]
        fn a_stopped_alloc_ends_however_many_tasks_it_has(
            roles in proptest::collection::vec(0..ROLES.len(), 1..12),
            choices in proptest::collection::vec((0..64_usize, 0..3_usize), 200),
            stop_after in 0..40_usize,
            again_after in 0..40_usize,
        ) {
            let mut leaders = 0;
            let group: Vec<Role> = roles.into_iter().map(|at| ROLES[at]).filter(|role| {
                leaders += usize::from(*role == Role::Leader);
                *role != Role::Leader || leaders == 1
            }).collect();
            let mut state = State::new(group.len());
            for (step, (which, how)) in choices.into_iter().enumerate() {
                if step == again_after && state.tasks.iter().any(|t| t.stage != TaskStage::Dead) {
                    let restart = |s: &State| s.desired_state == DesiredState::Restart;
                    state = state.requested().into_iter().find(restart).unwrap_or(state);
                }
                if step == stop_after {
                    state.desired_state = DesiredState::Stop;
                }
                let tasks = views(&group, &state);
                let actions = decide(&tasks, state.desired_state);
                check(&tasks, &state, &actions);
                let possible: Vec<(usize, Vec<GroupTask>)> = (0..group.len())
                    .map(|at| (at, follow(state.desired_state, actions[at], state.tasks[at])))
                    .filter(|(_, next)| !next.is_empty())
                    .collect();
                let Some((at, next)) = possible.get(which % possible.len().max(1)) else { break };
                state = state.with(*at, next[how % next.len()]);
            }
            prop_assert!(state.tasks.iter().all(|t| t.stage == TaskStage::Dead), "{group:?} {state:?}");
        }
    }
}
