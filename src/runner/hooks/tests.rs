//! The frame, with hooks made for it. What the phases are called for is tested with whole allocs
//! (`runner::tests::hooks`).

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::frame::{DEADLINE, HookSubject};
use super::*;
use crate::model::event::EventKind;
use crate::runner::blocking_pool::in_line;
use crate::runner::drivers::BoxFuture;

/// What a subject saw, and what is recorded of it.
#[derive(Default)]
struct SubjectLog {
    ran: Vec<(&'static str, HookPhase)>,
    resumed: Vec<(String, Value)>,
    done: BTreeMap<String, Value>,
    /// As an alloc does.
    records_nothing: bool,
}

impl HookSubject for SubjectLog {
    const RUNNER: &'static str = "test";
    fn done(&self, hook: &str) -> Option<Value> {
        self.done.get(hook).cloned()
    }
    fn set_done(&mut self, hook: &'static str, data: Value) -> bool {
        if !self.records_nothing {
            self.done.insert(hook.to_owned(), data);
        }
        !self.records_nothing
    }
}

#[derive(Clone, Copy)]
enum HookBehaviour {
    Nothing,
    Fails,
    Hangs,
    LeavesAndHangs,
    Panics,
    IsDone,
}

struct ScriptedHook {
    name: &'static str,
    after: &'static [&'static str],
    does: HookBehaviour,
}

impl Hook<SubjectLog> for ScriptedHook {
    fn name(&self) -> &'static str {
        self.name
    }
    fn after(&self) -> &'static [&'static str] {
        self.after
    }
    fn phases(&self) -> &'static [HookPhase] {
        HookPhase::ALL
    }
    fn deadline(&self, _: HookPhase) -> Duration {
        Duration::from_secs(7)
    }
    fn run<'a>(
        &'a self,
        phase: HookPhase,
        subject: &'a mut SubjectLog,
    ) -> BoxFuture<'a, Result<HookOutcome, HookError>> {
        Box::pin(async move {
            subject.ran.push((self.name, phase));
            match self.does {
                HookBehaviour::Nothing => Ok(HookOutcome::Again),
                HookBehaviour::Fails => Err(HookError { kind: EventKind::FailedValidation, ..HookError::setup("no") }),
                HookBehaviour::Hangs => std::future::pending().await,
                HookBehaviour::LeavesAndHangs => {
                    let _ = tokio::time::timeout(Duration::from_secs(1), in_line(std::future::pending::<()>())).await;
                    std::future::pending().await
                }
                HookBehaviour::Panics => panic!("a hook that panics"),
                HookBehaviour::IsDone => Ok(HookOutcome::Done(json!({ "of": self.name }))),
            }
        })
    }
    fn resume(&self, subject: &mut SubjectLog, data: &Value) {
        subject.resumed.push((self.name.to_owned(), data.clone()));
    }
}

fn hook(name: &'static str, after: &'static [&'static str], does: HookBehaviour) -> Box<dyn Hook<SubjectLog>> {
    Box::new(ScriptedHook { name, after, does })
}

fn suite(hooks: Vec<Box<dyn Hook<SubjectLog>>>) -> Suite<SubjectLog> {
    Suite::new(hooks, Arc::default()).unwrap()
}

fn three(middle: HookBehaviour) -> Suite<SubjectLog> {
    suite(vec![
        hook("c", &["b"], HookBehaviour::Nothing),
        hook("b", &["a"], middle),
        hook("a", &[], HookBehaviour::Nothing),
    ])
}

async fn ran(suite: &Suite<SubjectLog>, phase: HookPhase) -> (Vec<&'static str>, Vec<FailedHook>) {
    let mut seen = SubjectLog::default();
    let failed = suite.run(phase, &mut seen).await;
    assert!(seen.ran.iter().all(|(_, at)| *at == phase));
    (seen.ran.into_iter().map(|(name, _)| name).collect(), failed)
}

/// Promise (Hooks of allocs and tasks): P-B3 The order follows from what each hook needs, is acyclic, and teardown is
/// its reverse
#[tokio::test]
async fn hooks_set_up_after_their_needs_and_tear_down_in_reverse() {
    let suite = three(HookBehaviour::Nothing);
    assert_eq!(suite.order(), ["a", "b", "c"]);
    for phase in [HookPhase::Prerun, HookPhase::PreTaskRestart, HookPhase::Prestart, HookPhase::Poststart] {
        assert_eq!(ran(&suite, phase).await.0, ["a", "b", "c"], "{phase:?}");
    }
    for phase in [HookPhase::Prekill, HookPhase::Exited, HookPhase::Stop, HookPhase::Postrun, HookPhase::Destroy] {
        assert_eq!(ran(&suite, phase).await.0, ["c", "b", "a"], "{phase:?}");
    }
}

#[test]
fn hook_order_that_is_impossible_is_refused_by_name() {
    let refused = |hooks| Suite::<SubjectLog>::new(hooks, Arc::default()).err().unwrap().to_string();
    let circle = vec![
        hook("a", &["b"], HookBehaviour::Nothing),
        hook("b", &["a"], HookBehaviour::Nothing),
        hook("x", &[], HookBehaviour::Nothing),
    ];
    assert_eq!(refused(circle), "the hooks a, b wait for one another");
    let unknown = refused(vec![hook("a", &["z"], HookBehaviour::Nothing)]);
    assert_eq!(unknown, "the hook a must come after z, which does not exist");
    let twice = refused(vec![hook("a", &[], HookBehaviour::Nothing), hook("a", &[], HookBehaviour::Nothing)]);
    assert_eq!(twice, "there are two hooks called a");
}

/// Each runs under a deadline and can be called off; a panic, a failure and a hang end what sets up and nothing else,
/// and are counted.
///
/// Promise (Hooks of allocs and tasks): Each hook runs under a deadline and can be cancelled; its failure ends the
/// setup and nothing else
#[tokio::test(start_paused = true)]
async fn a_failure_ends_what_sets_up_and_nothing_else() {
    for (does, text) in [
        (HookBehaviour::Fails, "no"),
        (HookBehaviour::Hangs, "b did not end within 7s"),
        (HookBehaviour::Panics, "an internal error: the hook panicked"),
    ] {
        let suite = three(does);
        for phase in HookPhase::ALL {
            let (names, failed) = ran(&suite, *phase).await;
            let expected: &[&str] = match phase {
                HookPhase::Prerun | HookPhase::Prestart => &["a", "b"],
                phase if phase.takes_down() => &["c", "b", "a"],
                _ => &["a", "b", "c"],
            };
            assert_eq!(names, expected, "{phase:?}");
            let [one] = &failed[..] else { panic!("{failed:?}") };
            assert_eq!((one.hook, one.phase, one.failure.message.as_str()), ("b", *phase, text));
            let counted = suite.metrics.hook_failures("test", "b", phase.as_str());
            assert_eq!(counted, 1, "{phase:?}");
        }
    }
}

/// Stands in line for a place, and works.
struct QueueingHook {
    places: Arc<tokio::sync::Semaphore>,
    works: Duration,
}

impl Hook<SubjectLog> for QueueingHook {
    fn name(&self) -> &'static str {
        "patient"
    }
    fn phases(&self) -> &'static [HookPhase] {
        HookPhase::ALL
    }
    fn run<'a>(&'a self, _: HookPhase, _: &'a mut SubjectLog) -> BoxFuture<'a, Result<HookOutcome, HookError>> {
        Box::pin(async move {
            let _place = in_line(self.places.acquire()).await;
            tokio::time::sleep(self.works).await;
            Ok(HookOutcome::Again)
        })
    }
}

/// A hook's deadline begins when it has a place to work in: however many start at once, none fails for having waited.
///
/// Promise (Hooks of allocs and tasks): A hook's deadline begins when it gets a worker
#[tokio::test(start_paused = true)]
async fn a_deadline_begins_when_there_is_a_place() {
    for (works, late) in [(DEADLINE - Duration::from_secs(2), false), (DEADLINE + Duration::from_secs(2), true)] {
        let places = Arc::new(tokio::sync::Semaphore::new(0));
        let suite = suite(vec![Box::new(QueueingHook { places: Arc::clone(&places), works })]);
        let free = async {
            tokio::time::sleep(100 * DEADLINE).await;
            places.add_permits(1);
        };
        let ((_, failed), ()) = tokio::join!(ran(&suite, HookPhase::Prestart), free);
        let text: Vec<_> = failed.into_iter().map(|f| f.failure.message).collect();
        assert_eq!(text, if late { vec!["patient did not end within 30s"] } else { vec![] }, "{works:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn detached_hook_still_has_its_deadline() {
    let suite = suite(vec![Box::new(ScriptedHook { name: "hangs", after: &[], does: HookBehaviour::LeavesAndHangs })]);
    let ended = tokio::time::timeout(Duration::from_secs(10), ran(&suite, HookPhase::Prestart)).await;
    assert_eq!(ended.expect("it has a deadline").1.len(), 1);
}

#[tokio::test]
async fn completed_hook_is_resumed_and_not_repeated() {
    let suite = suite(vec![hook("fetch", &[], HookBehaviour::IsDone), hook("env", &["fetch"], HookBehaviour::Nothing)]);
    let mut seen = SubjectLog::default();
    for _ in 0..3 {
        assert_eq!(suite.run(HookPhase::Prestart, &mut seen).await, []);
    }
    let of = |name| seen.ran.iter().filter(|(n, _)| *n == name).count();
    assert_eq!((of("fetch"), of("env")), (1, 3));
    assert_eq!(seen.resumed, vec![("fetch".to_owned(), json!({ "of": "fetch" })); 2]);
    // Done is what sets up: what takes down runs every time.
    suite.run(HookPhase::Exited, &mut seen).await;
    assert_eq!(seen.ran.iter().filter(|(n, p)| *n == "fetch" && *p == HookPhase::Exited).count(), 1);
}

/// Promise (Durability and recovery): Subjects that a hook leaves without a record are a failure, not silence
#[tokio::test]
async fn hook_without_a_recorder_fails_with_that_reason() {
    let mut seen = SubjectLog { records_nothing: true, ..SubjectLog::default() };
    let failed = suite(vec![hook("fetch", &[], HookBehaviour::IsDone)]).run(HookPhase::Prestart, &mut seen).await;
    assert_eq!(failed[0].failure.message, "fetch: what a hook of tests leaves is recorded nowhere");
}

#[tokio::test(start_paused = true)]
async fn a_phase_that_is_called_off_begins_nothing_more() {
    static CALLED_OFF: Mutex<u32> = Mutex::new(0);
    struct DropCounter;
    impl Drop for DropCounter {
        fn drop(&mut self) {
            *CALLED_OFF.lock().unwrap() += 1;
        }
    }
    struct WaitingHook;
    impl Hook<SubjectLog> for WaitingHook {
        fn name(&self) -> &'static str {
            "waits"
        }
        fn phases(&self) -> &'static [HookPhase] {
            HookPhase::ALL
        }
        fn run<'a>(&'a self, _: HookPhase, _: &'a mut SubjectLog) -> BoxFuture<'a, Result<HookOutcome, HookError>> {
            Box::pin(async {
                let _guard = DropCounter;
                std::future::pending().await
            })
        }
    }
    let suite = suite(vec![Box::new(WaitingHook), hook("later", &["waits"], HookBehaviour::Nothing)]);
    let mut seen = SubjectLog::default();
    let run = suite.run(HookPhase::Prestart, &mut seen);
    assert!(tokio::time::timeout(Duration::from_millis(100), run).await.is_err());
    assert_eq!((*CALLED_OFF.lock().unwrap(), seen.ran.len()), (1, 0));
}

#[test]
fn built_in_hooks_run_in_the_order_of_their_needs() {
    let hooks = Hooks::new(&Arc::default(), ExtraHooks::default()).unwrap();
    assert_eq!(hooks.alloc.order(), ["alloc_dir", "migrate", "migrate_remote", "ports", "cgroup", "network", "stats"]);
    assert_eq!(
        hooks.task.order(),
        ["validate", "task_dir", "devices", "dispatch", "artifact", "template", "env", "volumes"]
    );
}

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

proptest! {
    /// Any needs: an order that meets all of them, or a circle that is named.
    #[test]
    fn hook_order_meets_every_need_or_names_a_cycle(
        needs in proptest::collection::vec(proptest::collection::btree_set(0..NAMES.len(), 0..3), NAMES.len()),
    ) {
        let hooks = needs.iter().enumerate().map(|(at, needs)| {
            let after: Vec<&'static str> = needs.iter().filter(|n| **n != at).map(|n| NAMES[*n]).collect();
            hook(NAMES[at], after.leak(), HookBehaviour::Nothing)
        });
        let place = |order: &[&str], at: usize| order.iter().position(|n| *n == NAMES[at]);
        match Suite::new(hooks.collect(), Arc::default()) {
            Ok(suite) => {
                let order = suite.order();
                for (at, needs) in needs.iter().enumerate() {
                    prop_assert!(needs.iter().filter(|n| **n != at).all(|n| place(&order, *n) < place(&order, at)));
                }
            }
            Err(OrderError::Circle(left)) => {
                // Each of them needs another of them.
                for name in &left {
                    let at = NAMES.iter().position(|n| n == name).unwrap();
                    prop_assert!(needs[at].iter().any(|n| *n != at && left.contains(&NAMES[*n])));
                }
            }
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}
