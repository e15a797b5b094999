//! P-18.2: a node of agent → alloc → task → activity is cancelled. Everything below it ends within a tenth of a second,
//! and nothing beside it. In real time, on threads: the duration is measured.
//!
//! Promise (Task groups and lifecycle order): P-18.2 Cancelling a node of agent → alloc → task → activity ends all
//! below it and nothing beside it

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Instant;

use super::fake::ConstantFingerprint;
use super::*;
use crate::model::task::TaskHandle;
use crate::runner::Wait;
use crate::runner::decide::coordinator::TaskAction;
use crate::runner::drivers::{
    Attempt, AttemptEnd, BoxFuture, Driver, DriverError, EventSink, Fingerprint, Fingerprints, Health, RecoveryOutcome,
    StartRequest,
};
use crate::runner::hooks::{ExtraHooks, Hook, HookError, HookOutcome, HookPhase, OfAlloc, OfTask};
use crate::runner::task::{Beginning, own};

/// Runs forever, until its future is dropped.
#[derive(Clone, Default)]
struct Endless(Arc<Mutex<BTreeSet<String>>>);

impl Endless {
    fn block<T: 'static>(&self, what: String) -> BoxFuture<'static, T> {
        struct EndlessGuard(Endless, String);
        impl Drop for EndlessGuard {
            fn drop(&mut self) {
                self.0.0.lock().unwrap().remove(&self.1);
            }
        }
        let all = self.clone();
        Box::pin(async move {
            all.0.lock().unwrap().insert(what.clone());
            let _inside = EndlessGuard(all, what);
            std::future::pending().await
        })
    }
    /// The activities of an alloc, or of one of its tasks.
    fn of(&self, target: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|what| what.starts_with(target)).count()
    }
}

impl Driver for Endless {
    fn name(&self) -> &'static str {
        "endless"
    }
    fn check(&self, _: &Task) -> Result<(), DriverError> {
        Ok(())
    }
    fn fingerprint(&self) -> Box<dyn Fingerprints> {
        ConstantFingerprint::as_reported(Fingerprint::of(Health::Healthy, "pretends"))
    }
    fn prepare(&self, request: &StartRequest) -> Result<TaskHandle, DriverError> {
        Ok(request.handle("endless", &BootId("boot".to_owned()), None))
    }
    fn start(&self, request: StartRequest, handle: TaskHandle) -> BoxFuture<'_, Result<Arc<dyn Attempt>, DriverError>> {
        let target = format!("{}/{}/", request.alloc_id, request.task.name);
        if request.task.name.as_str() == "starts" {
            return self.block(format!("{target}start"));
        }
        let attempt = EndlessAttempt { all: self.clone(), handle, task_name: target };
        Box::pin(async { Ok(Arc::new(attempt) as Arc<dyn Attempt>) })
    }
    fn recover(&self, _: TaskHandle, _: EventSink) -> BoxFuture<'_, Result<RecoveryOutcome, DriverError>> {
        self.block("recover".to_owned())
    }
}

struct EndlessAttempt {
    all: Endless,
    handle: TaskHandle,
    task_name: String,
}

impl Attempt for EndlessAttempt {
    fn handle(&self) -> TaskHandle {
        self.handle.clone()
    }
    fn reader(&self) -> Option<Arc<crate::collectors::TaskReader>> {
        None
    }
    fn wait(&self) -> BoxFuture<'_, AttemptEnd> {
        self.all.block(format!("{}wait", self.task_name))
    }
    fn signal(&self, _: &str) -> BoxFuture<'_, Result<(), DriverError>> {
        self.all.block(format!("{}signal", self.task_name))
    }
    fn kill(&self) -> BoxFuture<'_, Result<(), DriverError>> {
        self.all.block(format!("{}kill", self.task_name))
    }
    fn destroy(&self) -> BoxFuture<'_, Result<(), DriverError>> {
        self.all.block(format!("{}destroy", self.task_name))
    }
}

impl Hook<OfAlloc> for Endless {
    fn name(&self) -> &'static str {
        "endless"
    }
    fn phases(&self) -> &'static [HookPhase] {
        &[HookPhase::Prerun]
    }
    fn run<'a>(&'a self, _: HookPhase, subject: &'a mut OfAlloc) -> BoxFuture<'a, Result<HookOutcome, HookError>> {
        let shown = subject.ctx.board.get(&subject.id);
        if shown.is_some_and(|alloc| lifecycle(&alloc).job.id.as_str() == "set-up") {
            return self.block(format!("{}/prerun", subject.id));
        }
        Box::pin(async { Ok(HookOutcome::Again) })
    }
}

impl Hook<OfTask> for Endless {
    fn name(&self) -> &'static str {
        "endless"
    }
    fn phases(&self) -> &'static [HookPhase] {
        &[HookPhase::Prestart]
    }
    fn run<'a>(&'a self, _: HookPhase, subject: &'a mut OfTask) -> BoxFuture<'a, Result<HookOutcome, HookError>> {
        let task = &subject.task().name;
        match task.as_str() {
            "prepares" => self.block(format!("{}/{task}/prestart", subject.alloc_id)),
            _ => Box::pin(async { Ok(HookOutcome::Again) }),
        }
    }
}

const IDLE: &str = "idle";

fn group(id: &str) -> Job {
    let mut job = job(id, JobKind::Service, &["starts", "waits", "prepares"].map(|name| (name, json!({}))));
    job.groups[0].tasks.iter_mut().for_each(|task| task.driver = "endless".to_owned());
    job
}

/// The duration from now on; a duration far above the limit fails at once.
async fn wait_for_removal(what: &str, mut is_removed: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !is_removed() {
        assert!(began.elapsed() < Duration::from_secs(120), "it goes on: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_below_a_node_that_is_cancelled_ends_within_a_tenth_of_a_second() {
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let mut took: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
    for _ in 0..5 {
        let nothing = alive();
        // Baseline: how long this machine takes to end an idle task now.
        let idle = tokio::spawn(std::future::pending::<()>());
        idle.abort();
        took.entry(IDLE).or_default().push(wait_for_removal("an idle task", || alive() <= nothing).await);
        let all = Endless::default();
        let host = TestHost::new();
        let mut parts = host.parts();
        parts.drivers.insert("endless", Arc::new(all.clone()));
        let hooks = ExtraHooks { alloc: vec![Box::new(all.clone())], task: vec![Box::new(all.clone())] };
        let agent = Handle::start_with(parts, hooks).await.unwrap();
        let mut follower = agent.events().follow(0);
        let following = tokio::spawn(async move { while follower.next(16).await.is_some() {} });
        let set_up = submit(&agent, group("set-up")).await;
        wait_for_removal("nothing of it has begun", || all.of(set_up.as_str()) == 1).await;

        let cancelled = submit(&agent, group("cancelled")).await;
        let retained = submit(&agent, group("kept")).await;
        let whole = |id: &AllocId| all.of(id.as_str()) == 3;
        wait_for_removal("not all of it has begun", || whole(&cancelled) && whole(&retained)).await;

        let owner = agent.0.allocs.owner(&cancelled).unwrap();
        owner.abort();
        let ended = wait_for_removal("of an alloc", || all.of(cancelled.as_str()) == 0 && owner.is_finished()).await;
        took.entry("alloc").or_default().push(ended);

        // The owners of tasks alone, without the alloc's owner: each with an activity.
        let alloc = agent.0.alloc(&cancelled).unwrap();
        for (at, name) in [(0, "starts"), (2, "prepares")] {
            assert_eq!(*alloc.action(at).borrow(), TaskAction::Start);
            let before = alive();
            let owner = tokio::spawn(own(Arc::clone(&alloc), at, Beginning::Recorded.known()));
            let target = format!("{cancelled}/{name}");
            wait_for_removal("it has not begun", || all.of(&target) == 1).await;
            owner.abort();
            took.entry("task")
                .or_default()
                .push(wait_for_removal(name, || all.of(&target) == 0 && alive() <= before).await);
        }
        // At a settled moment: an owner that wakes up drops its wait and starts it again.
        wait_for_removal("something beside it has ended", || whole(&retained)).await;

        // Work for an alloc that is to stop.
        agent.stop(&set_up, Wait::No).await.unwrap();
        took.entry("hook").or_default().push(wait_for_removal("a hook", || all.of(set_up.as_str()) == 0).await);
        until_over(&agent, &set_up).await;
        // At a settled moment: an owner that wakes up drops its wait and starts it again.
        wait_for_removal("something beside it has ended", || whole(&retained)).await;

        agent.events().close();
        agent.shutdown();
        let is_removed = || all.0.lock().unwrap().is_empty() && following.is_finished() && alive() <= nothing;
        took.entry("agent").or_default().push(wait_for_removal("of the agent", is_removed).await);
    }
    // Other tests may load the machine: the shortest of five is what the end itself takes, all others include the
    // scheduler. An end that waits for something takes too long in each of them.
    took.values_mut().for_each(|took| took.sort_unstable());
    let most = Duration::from_millis(100) + took[IDLE][0] * 20;
    for (node, took) in took {
        assert!(took[0] < most, "{node}: {took:?}, and may take {most:?}");
    }
}
