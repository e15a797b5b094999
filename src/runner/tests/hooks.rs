//! Whole allocs with observing hooks: the order of phases, and the effect of hooks that fail or hang.

use serde_json::json;

use super::*;
use crate::collectors::{FdBudget, SamplingContext, TaskReader};
use crate::host::roots::Roots;
use crate::model::alloc::ForcedOutcome;
use crate::model::id::CgroupPath;
use crate::runner::drivers::BoxFuture;
use crate::runner::hooks::{ExtraHooks, Hook, HookError, HookOutcome, HookPhase, OfAlloc, OfTask};
use crate::runner::{GcScope, RestartTarget, Wait};

/// Observed phases and their subjects; and the phase that fails or hangs.
#[derive(Default)]
struct PhaseLog {
    seen: std::sync::Mutex<Vec<String>>,
    fails: std::sync::Mutex<Option<HookPhase>>,
    hangs: std::sync::Mutex<Option<HookPhase>>,
    /// The task whose prestart hangs.
    hangs_for: std::sync::Mutex<Option<&'static str>>,
}

impl PhaseLog {
    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
    fn count(&self, what: &str) -> usize {
        self.seen.lock().unwrap().iter().filter(|s| *s == what).count()
    }
    fn before(&self, first: &str, second: &str) -> bool {
        let seen = self.seen.lock().unwrap();
        let place = |what: &str| seen.iter().position(|s| s == what);
        place(first).is_some() && place(first) < place(second)
    }
    async fn run_phase(&self, phase: HookPhase, target: &str) -> Result<HookOutcome, HookError> {
        self.seen.lock().unwrap().push(format!("{target}:{}", phase.as_str()));
        let its_start = phase == HookPhase::Prestart && *self.hangs_for.lock().unwrap() == Some(target);
        if its_start || *self.hangs.lock().unwrap() == Some(phase) {
            std::future::pending::<()>().await;
        }
        if *self.fails.lock().unwrap() == Some(phase) {
            Err(HookError::setup("it is broken"))
        } else {
            Ok(HookOutcome::Again)
        }
    }
}

struct LoggingHook(Arc<PhaseLog>);

impl Hook<OfAlloc> for LoggingHook {
    fn name(&self) -> &'static str {
        "looks"
    }
    fn phases(&self) -> &'static [HookPhase] {
        HookPhase::ALL
    }
    fn run<'a>(&'a self, phase: HookPhase, _: &'a mut OfAlloc) -> BoxFuture<'a, Result<HookOutcome, HookError>> {
        Box::pin(self.0.run_phase(phase, "alloc"))
    }
}

impl Hook<OfTask> for LoggingHook {
    fn name(&self) -> &'static str {
        "looks"
    }
    fn phases(&self) -> &'static [HookPhase] {
        HookPhase::ALL
    }
    fn run<'a>(&'a self, phase: HookPhase, subject: &'a mut OfTask) -> BoxFuture<'a, Result<HookOutcome, HookError>> {
        let target = subject.task().name.to_string();
        Box::pin(async move { self.0.run_phase(phase, &target).await })
    }
}

impl TestHost {
    async fn start_with(&self, log: &Arc<PhaseLog>) -> Handle {
        let hooks = ExtraHooks {
            alloc: vec![Box::new(LoggingHook(Arc::clone(log)))],
            task: vec![Box::new(LoggingHook(Arc::clone(log)))],
        };
        Handle::start_with(self.parts(), hooks).await.unwrap()
    }
}

/// A stop runs prekill, stop and postrun, nothing else; a stop after the end changes nothing and says so.
///
/// Promise (Task groups and lifecycle order): P-13.4, P-13.5 A stop is a request of its own and runs prekill, stop and
/// postrun, nothing else
/// Promise (Hooks of allocs and tasks): Each phase runs at its moment
#[tokio::test(start_paused = true)]
async fn each_phase_comes_at_its_moment_and_no_other() {
    let (host, log) = (TestHost::new(), Arc::new(PhaseLog::default()));
    let agent = host.start_with(&log).await;
    let id = submit(&agent, service("s")).await;
    until_state(&agent, &id, TaskState::Running).await;
    until("poststart", || log.count("main:poststart") == 1).await;
    assert_eq!(log.seen(), ["alloc:prerun", "main:prestart", "main:poststart"]);
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
    until("postrun", || log.count("alloc:postrun") == 1).await;
    assert_eq!(
        log.seen()[3..],
        ["alloc:prekill", "main:prekill", "main:exited", "main:stop", "alloc:postrun"],
        "ended in this order"
    );
    agent.collectable([id.clone()]);
    agent.collect(GcScope::One(id)).await.unwrap();
    assert_eq!(log.seen()[8..], ["alloc:destroy"]);
}

/// P-13.2, T-13.2.
///
/// Promise (Task groups and lifecycle order): P-13.2, T-13.2 A destroy that fails is reported, with what is left, and
/// the next agent continues it
#[tokio::test(start_paused = true)]
async fn failed_destroy_is_reported_removes_the_rest_and_the_next_agent_continues() {
    for hangs in [false, true] {
        let (host, log) = (TestHost::new(), Arc::new(PhaseLog::default()));
        let agent = host.start_with(&log).await;
        let id = submit(&agent, batch("b", 1, 0)).await;
        until_over(&agent, &id).await;
        until("cleared", || log.count("alloc:postrun") == 1).await;
        let broken = if hangs { &log.hangs } else { &log.fails };
        *broken.lock().unwrap() = Some(HookPhase::Destroy);
        agent.collectable([id.clone()]);
        let done = agent.collect(GcScope::One(id.clone())).await.unwrap();
        assert_eq!(done.removed.len(), 1, "forgotten");
        let [(of, why)] = &done.left[..] else { panic!("{:?}", done.left) };
        assert_eq!(*of, id);
        assert!(why.contains(if hangs { "did not end within" } else { "it is broken" }), "{why}");
        assert!(!host.data_dir.alloc(&id).exists(), "the other hooks did their part");
        assert_eq!(host.store.scan("tombstone/").unwrap().len(), 1);
        agent.shutdown();

        *broken.lock().unwrap() = None;
        let agent = host.start_with(&log).await;
        until("tried again", || host.store.scan("tombstone/").unwrap().is_empty()).await;
        assert_eq!(log.count("alloc:destroy"), 2);
        assert!(agent.board().get(&id).is_none(), "and does not come back");
    }
}

#[tokio::test(start_paused = true)]
async fn each_attempt_has_its_own_prestart_poststart_and_exited_and_one_stop_ends_them() {
    let (host, log) = (TestHost::new(), Arc::new(PhaseLog::default()));
    let agent = host.start_with(&log).await;
    let mut job = batch("b", 50, 1);
    job.groups[0].tasks[0].restart.attempts = 2;
    let id = submit(&agent, job).await;
    until_over(&agent, &id).await;
    until("postrun", || log.count("alloc:postrun") == 1).await;
    for (phase, times) in [("prestart", 3), ("poststart", 3), ("exited", 3), ("stop", 1), ("prekill", 0)] {
        assert_eq!(log.count(&format!("main:{phase}")), times, "{phase}");
    }
    assert_eq!(log.count("alloc:prekill"), 1, "when all tasks have ended by themselves too");
    assert_eq!(log.count("alloc:prerun"), 1);
}

/// An alloc whose setup fails fails as a whole: none of its tasks starts, and a restart retries. A failed setup under
/// running tasks ends none of them.
///
/// Promise (Hooks of allocs and tasks): An alloc that cannot be set up fails as a whole; set up again under running
/// tasks, a failure ends none
#[tokio::test(start_paused = true)]
async fn an_alloc_that_cannot_be_set_up_fails_as_a_whole_and_nothing_of_it_starts() {
    let (host, log) = (TestHost::new(), Arc::new(PhaseLog::default()));
    *log.fails.lock().unwrap() = Some(HookPhase::Prerun);
    let agent = host.start_with(&log).await;
    let mut two = service("s");
    let sibling = Task { name: "beside".into(), ..two.groups[0].tasks[0].clone() };
    two.groups[0].tasks.push(sibling);
    let id = submit(&agent, two).await;
    assert_eq!(until_over(&agent, &id).await, AllocState::Failed);
    let found = status_of(&agent, &id);
    assert_eq!(found.forced, Some(ForcedOutcome::SetupFailed));
    assert_eq!(found.description(), "it could not be set up");
    for task in &found.tasks {
        assert!(task.failed && task.last_exit().unwrap().status.never_ran());
        assert_eq!(events(task), ["Received", "Setup Failure"]);
    }
    assert_eq!(host.world.started(), 0);
    assert_eq!((log.count("main:prestart"), log.count("main:stop")), (0, 1));
    // The next agent knows the failure and does not retry.
    let agent = host.restart(agent).await;
    let found = status_of(&agent, &id);
    assert_eq!((found.state, found.forced), (AllocState::Failed, Some(ForcedOutcome::SetupFailed)));
    assert_eq!(events(&found.tasks[0]), ["Received", "Setup Failure"]);
}

#[tokio::test(start_paused = true)]
async fn an_alloc_that_could_not_be_set_up_can_be_restarted() {
    let (host, log) = (TestHost::new(), Arc::new(PhaseLog::default()));
    *log.fails.lock().unwrap() = Some(HookPhase::Prerun);
    let agent = host.start_with(&log).await;
    let id = submit(&agent, service("s")).await;
    assert_eq!(until_over(&agent, &id).await, AllocState::Failed);
    until("postrun", || log.count("alloc:postrun") == 1).await;
    *log.fails.lock().unwrap() = None;
    agent.restart(&id, RestartTarget::All).await.unwrap();
    until_state(&agent, &id, TaskState::Running).await;
    assert_eq!((log.count("alloc:prerun"), status_of(&agent, &id).forced), (2, None));
}

#[tokio::test(start_paused = true)]
async fn alloc_hooks_run_again_after_an_agent_restart_and_failure_ends_no_running_task() {
    let (host, log) = (TestHost::new(), Arc::new(PhaseLog::default()));
    let agent = host.start_with(&log).await;
    let id = submit(&agent, service("s")).await;
    until_state(&agent, &id, TaskState::Running).await;
    agent.shutdown();
    drop(agent);
    tokio::task::yield_now().await;
    *log.fails.lock().unwrap() = Some(HookPhase::Prerun);
    let agent = host.start_with(&log).await;
    until("prerun again", || log.count("alloc:prerun") == 2).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(main_task(&agent, &id).state, TaskState::Running);
    assert_eq!((log.count("main:prestart"), host.world.started()), (1, 1), "it was not started again");
}

#[tokio::test(start_paused = true)]
async fn a_prestart_that_fails_is_a_failed_start_for_the_policy() {
    let (host, log) = (TestHost::new(), Arc::new(PhaseLog::default()));
    *log.fails.lock().unwrap() = Some(HookPhase::Prestart);
    let agent = host.start_with(&log).await;
    let id = submit(&agent, service("s")).await;
    until_state(&agent, &id, TaskState::Backoff).await;
    assert!(events(&main_task(&agent, &id)).contains(&"Setup Failure"));
    *log.fails.lock().unwrap() = None;
    until_state(&agent, &id, TaskState::Running).await;
    assert_eq!((log.count("main:prestart"), host.world.started()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn failed_hooks_beside_a_task_are_reported_and_end_nothing() {
    for phase in [HookPhase::Poststart, HookPhase::Prekill, HookPhase::Exited, HookPhase::Stop] {
        let (host, log) = (TestHost::new(), Arc::new(PhaseLog::default()));
        *log.fails.lock().unwrap() = Some(phase);
        let agent = host.start_with(&log).await;
        let id = submit(&agent, service("s")).await;
        until_state(&agent, &id, TaskState::Running).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        agent.stop(&id, Wait::UntilEnded).await.unwrap();
        assert_eq!(until_over(&agent, &id).await, AllocState::Complete, "{phase:?}");
        until("reported", || events(&main_task(&agent, &id)).contains(&"Task hook failed")).await;
        let task = main_task(&agent, &id);
        let found = task.events.iter().find(|e| e.kind.text() == "Task hook failed").unwrap();
        assert_eq!((found.details["hook"].as_str(), found.details["phase"].as_str()), ("looks", phase.as_str()));
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_hooks_are_cancelled_at_their_deadline_in_every_phase() {
    for phase in HookPhase::ALL {
        let (host, log) = (TestHost::new(), Arc::new(PhaseLog::default()));
        *log.hangs.lock().unwrap() = Some(*phase);
        let agent = host.start_with(&log).await;
        let id = submit(&agent, service("s")).await;
        // However long the setup hangs, its task runs or has failed in the end.
        let task = || main_task(&agent, &id).state;
        until("it is through", || matches!(task(), TaskState::Running | TaskState::Backoff | TaskState::Dead)).await;
        if task() != TaskState::Dead {
            agent.stop(&id, Wait::UntilEnded).await.unwrap();
        }
        until_over(&agent, &id).await;
        agent.collectable([id.clone()]);
        agent.collect(GcScope::One(id.clone())).await.unwrap();
        assert!(agent.board().get(&id).is_none(), "{phase:?}");
    }
}

/// Promise (Durability and recovery): A task cancelled before its start, by its sibling or a stop, has the reason and
/// no failure
#[tokio::test(start_paused = true)]
async fn a_stop_calls_off_what_sets_up() {
    for phase in [HookPhase::Prerun, HookPhase::Prestart] {
        let (host, log) = (TestHost::new(), Arc::new(PhaseLog::default()));
        *log.hangs.lock().unwrap() = Some(phase);
        let agent = host.start_with(&log).await;
        let id = submit(&agent, service("s")).await;
        let what = if phase == HookPhase::Prerun { "alloc:prerun" } else { "main:prestart" };
        until(what, || log.count(what) == 1).await;
        let requested_at = tokio::time::Instant::now();
        agent.stop(&id, Wait::UntilEnded).await.unwrap();
        assert!(requested_at.elapsed() < Duration::from_secs(1), "{phase:?}: {:?}", requested_at.elapsed());
        assert_eq!(until_over(&agent, &id).await, AllocState::Complete);
        assert_eq!(host.world.started(), 0);
        let task = main_task(&agent, &id);
        let started: &[_] = if phase == HookPhase::Prerun { &[] } else { &["Task Setup", "Killing"] };
        assert_eq!(events(&task), [&["Received"], started, &["Killed"]].concat(), "no failure is reported");
        assert!(task.last_exit().is_none_or(|exit| exit.outcome == crate::model::task::Outcome::Killed));
        assert_eq!((task.failed, task.exit_counts), (false, [0; 6]));
    }
}

/// One hook fails while the other is being set up.
#[tokio::test(start_paused = true)]
async fn task_cancelled_for_its_sibling_reports_so_and_has_not_failed() {
    let (host, log) = (TestHost::new(), Arc::new(PhaseLog::default()));
    *log.hangs_for.lock().unwrap() = Some("slow");
    let agent = host.start_with(&log).await;
    let mut job = job("s", JobKind::Batch, &[("fails", json!({ "run_ms": 50, "exit_code": 1 })), ("slow", json!({}))]);
    job.groups[0].tasks[0].restart.attempts = 0;
    let id = submit(&agent, job).await;
    assert_eq!(until_over(&agent, &id).await, AllocState::Failed);
    let slow = Arc::clone(&status_of(&agent, &id).tasks[1]);
    assert_eq!(events(&slow), ["Received", "Task Setup", "Sibling Task Failed", "Killing", "Killed"]);
    let last = slow.events.back().unwrap();
    assert_eq!(last.message, "ended before it was started: the task fails beside it has failed");
    assert_eq!((slow.failed, slow.exit_counts, slow.restarts_total()), (false, [0; 6], 0));
    assert_eq!(host.world.started(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_exit_calls_off_what_comes_before_the_kill_signal() {
    let (host, log) = (TestHost::new(), Arc::new(PhaseLog::default()));
    *log.hangs.lock().unwrap() = Some(HookPhase::Prekill);
    let agent = host.start_with(&log).await;
    let mut job = service("s");
    job.groups[0].tasks[0].config = json!({ "run_ms": 20_000 }).as_object().unwrap().clone();
    let id = submit(&agent, job).await;
    until_state(&agent, &id, TaskState::Running).await;
    let began = tokio::time::Instant::now();
    // Its alloc's own prekill hangs until its deadline; then the task's.
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(61), "{:?}", began.elapsed());
    assert!(host.world.last().signals.lock().unwrap().is_empty(), "it had ended by itself");
}

#[tokio::test(start_paused = true)]
async fn prekill_of_the_alloc_runs_before_the_first_task_is_signalled() {
    let (host, log) = (TestHost::new(), Arc::new(PhaseLog::default()));
    let agent = host.start_with(&log).await;
    let mut job = service("s");
    job.groups[0].tasks[0].leader = true;
    job.groups[0].tasks[0].config = json!({ "run_ms": 100 }).as_object().unwrap().clone();
    job.groups[0].tasks[0].restart.attempts = 0;
    let sibling =
        Task { name: "beside".into(), leader: false, config: serde_json::Map::new(), ..job.groups[0].tasks[0].clone() };
    job.groups[0].tasks.push(sibling);
    let id = submit(&agent, job).await;
    until_over(&agent, &id).await;
    assert!(log.before("alloc:prekill", "beside:prekill"), "{:?}", log.seen());
    assert_eq!(log.count("alloc:prekill"), 1);
}

/// Fetches once, for all later starts.
struct FetchOnceHook(Arc<PhaseLog>);

impl Hook<OfTask> for FetchOnceHook {
    fn name(&self) -> &'static str {
        "fetches"
    }
    fn after(&self) -> &'static [&'static str] {
        &["task_dir"]
    }
    fn phases(&self) -> &'static [HookPhase] {
        &[HookPhase::Prestart]
    }
    fn run<'a>(&'a self, phase: HookPhase, _: &'a mut OfTask) -> BoxFuture<'a, Result<HookOutcome, HookError>> {
        Box::pin(async move {
            self.0.run_phase(phase, "fetched").await?;
            Ok(HookOutcome::Done(json!("what it fetched")))
        })
    }
    fn resume(&self, _: &mut OfTask, data: &Value) {
        self.0.seen.lock().unwrap().push(format!("again: {}", data.as_str().unwrap()));
    }
}

/// Promise (Hooks of allocs and tasks): A completed hook is not repeated by later starts or later agents
#[tokio::test(start_paused = true)]
async fn completed_hook_is_recorded_for_later_starts_and_later_agents() {
    let (host, log) = (TestHost::new(), Arc::new(PhaseLog::default()));
    let more = || ExtraHooks { task: vec![Box::new(FetchOnceHook(Arc::clone(&log)))], ..ExtraHooks::default() };
    let agent = Handle::start_with(host.parts(), more()).await.unwrap();
    let id = submit(&agent, service("s")).await;
    until_state(&agent, &id, TaskState::Running).await;
    agent.restart(&id, RestartTarget::Running).await.unwrap();
    until("a second attempt", || host.world.started() == 2 && main_task(&agent, &id).state == TaskState::Running).await;
    assert_eq!(log.seen(), ["fetched:prestart", "again: what it fetched"]);
    agent.shutdown();
    drop(agent);
    tokio::task::yield_now().await;
    let agent = Handle::start_with(host.parts(), more()).await.unwrap();
    agent.restart(&id, RestartTarget::Running).await.unwrap();
    until("a third attempt", || host.world.started() == 3).await;
    assert_eq!(log.count("fetched:prestart"), 1);
    assert_eq!(log.count("again: what it fetched"), 2);
}

/// Cgroups that are names only.
#[derive(Default)]
struct NamedCgroups(std::sync::Mutex<std::collections::BTreeSet<String>>);

impl crate::runner::AllocCgroups for NamedCgroups {
    fn create(&self, path: &CgroupPath) -> Result<(), String> {
        self.0.lock().unwrap().insert(path.to_string());
        Ok(())
    }
    fn exists(&self, path: &CgroupPath) -> bool {
        self.0.lock().unwrap().contains(path.as_str())
    }
    fn reader(&self, path: &CgroupPath) -> TaskReader {
        let layout = crate::host::hierarchy::Layout::detect(&Roots::default()).unwrap();
        let sampling = SamplingContext::new(Roots::default(), layout, FdBudget::of(0));
        TaskReader::for_alloc_cgroup(&sampling, path.clone())
    }
    fn counted(&self, _task: &crate::model::id::CgroupPath) -> crate::model::usage::Usage {
        crate::model::usage::Usage::default()
    }
    fn remove(&self, path: &CgroupPath) -> Result<(), String> {
        self.0.lock().unwrap().remove(path.as_str());
        Ok(())
    }
}

/// An agent may die before, during and after any of them: each hook of the agent in each of its phases, alone and
/// twice, before any setup and after the removal.
///
/// Promise (Hooks of allocs and tasks): Each built-in hook can run any phase twice and without its predecessor
#[tokio::test]
async fn our_own_hooks_bear_any_phase_twice_and_without_its_predecessor() {
    let host = TestHost::new();
    *host.world.has_processes.lock().unwrap() = true;
    let cgroups = Arc::new(NamedCgroups::default());
    let parts = crate::runner::Parts { cgroups: Some(Arc::clone(&cgroups) as _), ..host.parts() };
    let agent = Handle::start(parts).await.unwrap();
    let id = submit(&agent, batch("b", 1, 0)).await;
    until_over(&agent, &id).await;
    let alloc = agent.0.alloc(&id).unwrap();
    alloc.ended().wait_for(|ended| *ended).await.unwrap();
    let ctx = &alloc.ctx;
    for make in crate::runner::hooks::ALLOC {
        let hook = make();
        for phase in hook.phases() {
            let mut outcomes = Vec::new();
            for _ in 0..2 {
                ctx.data_dir.remove(&id).unwrap();
                for _ in 0..2 {
                    outcomes.push(hook.run(*phase, &mut alloc.subject()).await);
                    let mut collected = OfAlloc::collected(ctx, &id);
                    outcomes.push(hook.run(*phase, &mut collected).await);
                }
            }
            assert!(outcomes.iter().all(|o| *o == Ok(HookOutcome::Again)), "{} {phase:?}: {outcomes:?}", hook.name());
        }
    }
    for make in crate::runner::hooks::TASK {
        let hook = make();
        for phase in hook.phases() {
            ctx.data_dir.remove(&id).unwrap();
            let mut subject = alloc.subject_of(0);
            let alone = hook.run(*phase, &mut subject).await;
            assert_eq!(hook.run(*phase, &mut subject).await, alone, "{} {phase:?}", hook.name());
            // It names what it needs of other hooks and does not find.
            let misses = alone.is_err_and(|e| e.message.contains("not there yet"));
            assert_eq!(misses, hook.name() == "env", "{} {phase:?}", hook.name());
        }
    }
    // All together, set up twice and torn down twice: nothing is left.
    for phase in [HookPhase::Prerun, HookPhase::Prerun] {
        assert_eq!(alloc.hooks.alloc.run(phase, &mut alloc.subject()).await, []);
    }
    for _ in 0..2 {
        let mut subject = alloc.subject_of(0);
        assert_eq!(alloc.hooks.task.run(HookPhase::Prestart, &mut subject).await, []);
        assert!(subject.dirs.unwrap().local.is_dir() && subject.prepared.is_some());
    }
    for phase in [HookPhase::Postrun, HookPhase::Postrun, HookPhase::Destroy, HookPhase::Destroy] {
        assert_eq!(alloc.hooks.alloc.run(phase, &mut alloc.subject()).await, []);
    }
    assert!(!ctx.data_dir.alloc(&id).exists() && !ctx.data_dir.run(&id).exists());
    assert!(cgroups.0.lock().unwrap().is_empty());
}
