//! Services of an alloc that runs: listed while their tasks run, checked meanwhile, and what follows from that.
//!
//! ```text
//! the alloc's owner ── follow ──► which services run ──► ServiceBoard ──► API, metrics, SD
//!                                   │ one task of the runtime for each check that is active
//!                                   ▼
//!                     run ──► RunVerdict ──► CheckTracker ──► status, restart (Alloc::restart_failed)
//!                                           └──► HealthTracker: is the alloc healthy
//! ```
//! One owner: [`ServiceOwner`], which the alloc's owner asks after each change. The state that checks write to is
//! behind one lock, and what they bring of an attempt that has ended is dropped by its number.

mod address;
mod health;
mod probe;
mod resolve;
mod status;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use self::health::{HealthFacts, HealthTracker, HealthVerdict, NotYet, TaskFacts, UnhealthyReason};
use self::resolve::{ProbePlan, ServiceResolver};
use self::status::CheckTracker;
use super::alloc::Alloc;
use super::context::AbortOnDrop;
use crate::board::services::{AllocHealth, AllocServices, CheckRun, CheckView, ServiceInstance};
use crate::jobspec::quantity::format_duration;
use crate::model::alloc::Desired;
use crate::model::id::AllocId;
use crate::model::job::Task;
use crate::model::service::{CheckStatus, HealthBasis, Service, ServiceCheck};
use crate::model::task::TaskState;
use crate::model::text::log_text;
use crate::model::units::{Nanos, Steady};
use crate::runner::wait_ends::{Ends, EndsWith};
use crate::telemetry::lock;

/// The first runs of checks that begin together are spread over so much.
const SPREAD: Duration = Duration::from_secs(1);

/// The attempt that a service or a check belongs to: that of its task; 0 of a group that runs. `None`: nothing runs.
type GateAttempt = Option<u32>;

/// So many checks of one alloc run at once: those of another do not wait behind a backend that hangs.
const AT_ONCE: usize = 16;
/// A run ends by then, whatever its `timeout` is.
const LONGEST_RUN: Duration = Duration::from_secs(600);

/// Owns the services of one alloc. Dropped, its checks end and nothing of it is listed.
pub struct ServiceOwner {
    alloc: Arc<Alloc>,
    shared: Arc<AllocChecks>,
    /// Of each check its task of the runtime.
    running: Vec<Option<AbortOnDrop<()>>>,
    tracker: HealthTracker,
    deadline: Option<Steady>,
}

struct AllocChecks {
    alloc_id: AllocId,
    state: Mutex<State>,
    /// [`AT_ONCE`].
    places: Semaphore,
}

struct State {
    /// Of each service of the group: what of it runs, and how it is listed.
    services: Vec<(GateAttempt, Option<Arc<ServiceInstance>>)>,
    checks: Vec<CheckCell>,
    health: AllocHealth,
    reason: String,
    /// Its owner is gone: a run that ends in this moment publishes nothing.
    is_closed: bool,
}

struct CheckCell {
    /// Of its service in the group, and its own there.
    place: (usize, usize),
    gate: GateAttempt,
    /// Grows with each beginning: what an earlier run brings is dropped.
    generation: u64,
    tracker: CheckTracker,
    /// Since when its task runs, or the check restarted it.
    since: Instant,
    /// Shared with what was published: copied when it changes next.
    view: Arc<CheckView>,
}

impl ServiceOwner {
    /// `None`: its group has no services and no rule of health.
    pub fn new(alloc: &Arc<Alloc>) -> Option<ServiceOwner> {
        let group = alloc.group();
        let rule = group.health.filter(|rule| rule.basis != HealthBasis::Manual);
        if group.services.is_empty() && rule.is_none() {
            return None;
        }
        let now = alloc.ctx.clock.now();
        let mut checks = Vec::new();
        for (of, service) in group.services.iter().enumerate() {
            for (at, check) in service.checks.iter().enumerate() {
                let tracker = CheckTracker::new(check);
                let view = CheckView {
                    service: service.name.clone(),
                    name: check.name.clone(),
                    kind: check.probe.as_str(),
                    task: check.task.clone(),
                    status: tracker.status(),
                    status_since: now,
                    is_active: false,
                    output: String::new(),
                    last_run: None,
                    failures: 0,
                    runs: 0,
                    restarts: 0,
                };
                let since = Instant::now();
                let view = Arc::new(view);
                checks.push(CheckCell { place: (of, at), gate: None, generation: 0, tracker, since, view });
            }
        }
        let known = alloc.health();
        let health = match (rule, known) {
            (None, _) => AllocHealth::Unchecked,
            (Some(_), Some(true)) => AllocHealth::Healthy,
            (Some(_), Some(false)) => AllocHealth::Unhealthy,
            (Some(_), None) => AllocHealth::Pending,
        };
        let services = group.services.iter().map(|_| (None, None)).collect();
        let state = State { services, checks, health, reason: String::new(), is_closed: false };
        let shared = Arc::new(AllocChecks {
            alloc_id: alloc.id.clone(),
            state: Mutex::new(state),
            places: Semaphore::new(AT_ONCE),
        });
        let running = lock(&shared.state).checks.iter().map(|_| None).collect();
        let owner = ServiceOwner {
            alloc: Arc::clone(alloc),
            shared,
            running,
            tracker: HealthTracker::default(),
            deadline: None,
        };
        owner.shared.publish(alloc);
        Some(owner)
    }

    /// After each change of the alloc; returns when to call it again.
    pub fn follow(&mut self, runs: bool, now: Steady) -> Option<Steady> {
        let ends = !runs || self.alloc.desired() == Desired::Stop;
        self.gate(ends);
        self.judge(now)
    }

    /// Begins what begins, ends what ends.
    fn gate(&mut self, ends: bool) {
        let alloc = Arc::clone(&self.alloc);
        let group = alloc.group();
        let mut changed = false;
        let mut begins = Vec::new();
        {
            let mut state = lock(&self.shared.state);
            let state = &mut *state;
            for (service, (gate, instance)) in group.services.iter().zip(&mut state.services) {
                let new = if ends { None } else { gate_of_service(&alloc, service) };
                if new != *gate {
                    *gate = new;
                    *instance = new.and_then(|_| listed(&alloc, service));
                    changed = true;
                }
            }
            for (at, cell) in state.checks.iter_mut().enumerate() {
                let (of, place) = cell.place;
                let check = &group.services[of].checks[place];
                let new = state.services[of].0.and_then(|gate| gate_of_check(&alloc, check, gate));
                if new == cell.gate {
                    continue;
                }
                cell.gate = new;
                cell.generation += 1;
                cell.begin(check, &alloc);
                changed = true;
                self.running[at] = None;
                if new.is_some() {
                    begins.push((at, cell.generation));
                }
            }
        }
        for (at, generation) in begins {
            self.begin(at, generation);
        }
        if changed {
            self.shared.publish(&self.alloc);
        }
    }

    fn begin(&mut self, at: usize, generation: u64) {
        let (of, place) = lock(&self.shared.state).checks[at].place;
        let service = &self.alloc.group().services[of];
        let resolver = ServiceResolver::new(&self.alloc, task_at(&self.alloc, service));
        {
            let mut state = lock(&self.shared.state);
            let view = Arc::make_mut(&mut state.checks[at].view);
            view.service = resolver.name(service);
            view.name = resolver.check_name(&service.checks[place]);
        }
        let run = CheckRunner {
            alloc: Arc::clone(&self.alloc),
            shared: Arc::clone(&self.shared),
            at,
            generation,
            check: service.checks[place].clone(),
            plan: resolver.probe_plan(service, &service.checks[place]),
        };
        self.running[at] = Some(AbortOnDrop(tokio::spawn(run.run())));
    }

    /// Whether the alloc is healthy, until that is decided.
    fn judge(&mut self, now: Steady) -> Option<Steady> {
        let rule = self.alloc.group().health?;
        let facts = {
            let state = lock(&self.shared.state);
            if state.health != AllocHealth::Pending {
                return None;
            }
            let group = self.alloc.group();
            let check = |cell: &CheckCell| {
                let check = &group.services[cell.place.0].checks[cell.place.1];
                (check.on_update, cell.view.status)
            };
            HealthFacts { tasks: task_facts(&self.alloc), checks: state.checks.iter().map(check).collect() }
        };
        // An agent that was away for longer gives it the time that it would have had.
        let span = Nanos::from_duration(rule.healthy_deadline);
        let began = self.alloc.began();
        let deadline = *self
            .deadline
            .get_or_insert_with(|| if began.plus(span) > now { began.plus(span) } else { now.plus(span) });
        let (health, reason, again) = match self.tracker.judge(&rule, &facts, deadline, now) {
            HealthVerdict::Pending(again, missing) => (AllocHealth::Pending, not_started(missing), again),
            HealthVerdict::Healthy => (AllocHealth::Healthy, String::new(), None),
            HealthVerdict::Unhealthy(UnhealthyReason::TaskFailed) => {
                (AllocHealth::Unhealthy, "a task has failed".to_owned(), None)
            }
            HealthVerdict::Unhealthy(UnhealthyReason::Deadline) => {
                let deadline = format_duration(rule.healthy_deadline);
                (AllocHealth::Unhealthy, format!("not healthy within healthy_deadline ({deadline})"), None)
            }
        };
        let is_new = {
            let mut state = lock(&self.shared.state);
            let is_new = state.health != health || state.reason != reason;
            (state.health, state.reason) = (health, reason.clone());
            is_new
        };
        if is_new {
            self.shared.publish(&self.alloc);
        }
        if health != AllocHealth::Pending {
            self.alloc.decide_health(health == AllocHealth::Healthy, &reason);
        }
        again
    }
}

impl Drop for ServiceOwner {
    fn drop(&mut self) {
        self.running.clear();
        let mut state = lock(&self.shared.state);
        state.is_closed = true;
        self.alloc.ctx.board.services.remove(&self.alloc.id);
    }
}

impl CheckCell {
    /// It runs from now on, or not any more: of its runs before nothing counts.
    fn begin(&mut self, check: &ServiceCheck, alloc: &Alloc) {
        self.tracker = CheckTracker::new(check);
        self.since = Instant::now();
        Arc::make_mut(&mut self.view).is_active = self.gate.is_some();
        self.set_status(alloc);
    }
    fn set_status(&mut self, alloc: &Alloc) {
        if self.view.status != self.tracker.status() {
            let view = Arc::make_mut(&mut self.view);
            (view.status, view.status_since) = (self.tracker.status(), alloc.ctx.clock.now());
        }
    }
}

impl AllocChecks {
    fn publish(&self, alloc: &Alloc) {
        let mut state = lock(&self.state);
        let state = &mut *state;
        if state.is_closed {
            return;
        }
        let mut worst = vec![None; state.services.len()];
        for cell in state.checks.iter().filter(|cell| cell.view.is_active) {
            let of: &mut Option<CheckStatus> = &mut worst[cell.place.0];
            *of = of.iter().copied().chain([cell.view.status]).max_by_key(|status| badness(*status));
        }
        let instances = state.services.iter_mut().zip(worst).filter_map(|((_, instance), status)| {
            let instance = instance.as_mut()?;
            if instance.status != status {
                Arc::make_mut(instance).status = status;
            }
            Some(Arc::clone(instance))
        });
        let services = AllocServices {
            alloc_id: self.alloc_id.clone(),
            alloc_name: alloc.name(),
            job: alloc.job.id.clone(),
            group: alloc.group().name.clone(),
            health: state.health,
            health_reason: state.reason.clone(),
            instances: instances.collect(),
            checks: state.checks.iter().map(|cell| Arc::clone(&cell.view)).collect(),
        };
        alloc.ctx.board.services.publish(services);
    }
}

fn badness(status: CheckStatus) -> u8 {
    match status {
        CheckStatus::Passing => 0,
        CheckStatus::Pending => 1,
        CheckStatus::Warning => 2,
        CheckStatus::Critical => 3,
    }
}

/// A check that is active, for as long as its task runs.
struct CheckRunner {
    alloc: Arc<Alloc>,
    shared: Arc<AllocChecks>,
    at: usize,
    generation: u64,
    check: ServiceCheck,
    plan: ProbePlan,
}

impl CheckRunner {
    async fn run(self) {
        let spread = self.check.interval.min(SPREAD);
        tokio::time::sleep(share(&self.alloc.id, &self.check.name, spread)).await;
        loop {
            let Ok(own) = self.shared.places.acquire().ends_with(Ends::Permit).await else { return };
            let Ok(place) = self.alloc.ctx.checks.acquire().ends_with(Ends::Permit).await else { return };
            let began = Instant::now();
            let task = self.check.task.as_ref().and_then(|task| self.alloc.task_at(task.as_str()));
            let task = task.or_else(|| (self.alloc.group().tasks.len() == 1).then_some(0));
            let attempt = task.and_then(|task| self.alloc.attempt(task));
            let found = probe::run(&self.plan, attempt, self.check.timeout.min(LONGEST_RUN)).await;
            drop((place, own));
            if !self.take(found, began.elapsed()) {
                return;
            }
            tokio::time::sleep(self.check.interval).await;
        }
    }

    /// Whether it goes on.
    fn take(&self, found: probe::CheckResult, took: Duration) -> bool {
        let (taken, status) = {
            let mut state = lock(&self.shared.state);
            let cell = &mut state.checks[self.at];
            if cell.generation != self.generation {
                return false;
            }
            let taken = cell.tracker.take(&self.check, found.verdict, cell.since.elapsed());
            let status = cell.tracker.status();
            let view = Arc::make_mut(&mut cell.view);
            view.output = found.output;
            view.runs += 1;
            view.failures += u64::from(found.verdict != status::RunVerdict::Pass);
            view.last_run = Some(CheckRun { at: self.alloc.ctx.clock.now(), took: Nanos::from_duration(took) });
            cell.set_status(&self.alloc);
            if taken.restarts {
                Arc::make_mut(&mut cell.view).restarts += 1;
                cell.begin(&self.check, &self.alloc);
            }
            (taken, status)
        };
        self.shared.publish(&self.alloc);
        if taken.is_new_status {
            let output = lock(&self.shared.state).checks[self.at].view.output.clone();
            tracing::info!(
                alloc_id = %self.alloc.id, check = log_text(&self.check.name), status = status.as_str(),
                output = log_text(&output), "health check changed"
            );
            self.alloc.wake();
        }
        if taken.restarts {
            self.restart();
        }
        true
    }

    /// Its task, or all tasks of the group that run: by their restart policy.
    fn restart(&self) {
        let alloc = &self.alloc;
        let named = self.check.task.as_ref().and_then(|task| alloc.task_at(task.as_str()));
        let message = format!("healthcheck: check {:?} unhealthy", self.check.name);
        let all = 0..alloc.group().tasks.len();
        let restarted: Vec<usize> = all
            .filter(|at| named.is_none_or(|named| named == *at))
            .filter(|at| alloc.restart_failed(*at, &message, "check"))
            .collect();
        for at in restarted {
            // Not here: this check ends with its task.
            let alloc = Arc::clone(alloc);
            let ctx = Arc::clone(&alloc.ctx);
            ctx.see_to(async move {
                if let Err(error) = alloc.shown(alloc.save(at)).await {
                    tracing::error!(alloc_id = %alloc.id, %error, "failed to persist a restart by a health check");
                }
                alloc.wake_task(at);
            });
        }
    }
}

/// Of `most`, the same for one check each time: checks of many allocs do not start together.
fn share(alloc: &AllocId, check: &str, most: Duration) -> Duration {
    let bytes = alloc.as_str().bytes().chain(check.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    most.mul_f64((hash % 1000) as f64 / 1000.0)
}

fn task_at(alloc: &Alloc, service: &Service) -> Option<usize> {
    service.task.as_ref().and_then(|task| alloc.task_at(task.as_str()))
}

/// A task's service is there while its task runs; a group's while one of its main tasks does.
fn gate_of_service(alloc: &Alloc, service: &Service) -> GateAttempt {
    match task_at(alloc, service) {
        Some(at) => running_attempt(alloc, at),
        None => {
            let tasks = &alloc.group().tasks;
            let mut mains = (0..tasks.len()).filter(|at| tasks[*at].lifecycle.is_none());
            mains.any(|at| running_attempt(alloc, at).is_some()).then_some(0)
        }
    }
}

fn gate_of_check(alloc: &Alloc, check: &ServiceCheck, of_service: u32) -> GateAttempt {
    match check.task.as_ref().and_then(|task| alloc.task_at(task.as_str())) {
        Some(at) => running_attempt(alloc, at),
        None => Some(of_service),
    }
}

fn running_attempt(alloc: &Alloc, at: usize) -> GateAttempt {
    let status = alloc.status(at);
    (status.state == TaskState::Running).then_some(status.attempt)
}

fn task_facts(alloc: &Alloc) -> Vec<TaskFacts> {
    let tasks = alloc.group().tasks.iter().enumerate();
    let facts = |(at, task): (usize, &Task)| {
        let status = alloc.status(at);
        let (state, failed, attempt) = (status.state, status.failed, status.attempt);
        TaskFacts { lifecycle: task.lifecycle, state, failed, attempt }
    };
    tasks.map(facts).collect()
}

fn listed(alloc: &Alloc, service: &Service) -> Option<Arc<ServiceInstance>> {
    match ServiceResolver::new(alloc, task_at(alloc, service)).instance(service) {
        Ok(instance) => Some(Arc::new(instance)),
        Err(why) => {
            let (service, why) = (log_text(&service.name), log_text(&why));
            let (service, why) = (alloc.job.sensitive.hide(&service), alloc.job.sensitive.hide(&why));
            tracing::warn!(alloc_id = %alloc.id, %service, %why, "service is not listed");
            None
        }
    }
}

fn not_started(missing: NotYet) -> String {
    match missing {
        NotYet::Tasks => "waiting for tasks to run".to_owned(),
        NotYet::Checks { passing, of } => format!("{passing} of {of} checks pass"),
        NotYet::Time => "waiting for min_healthy_time".to_owned(),
    }
}
