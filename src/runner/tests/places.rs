//! Blocking work has few permits, and kills have their own. The clock is real where threads are blocked, because they
//! stop the paused one.
//!
//! Promise (Durability and recovery): Hanging launches delay no kill; a hanging kill does not delay abandonment

use serde_json::json;

use super::*;
use crate::model::task::ExitStatus;
use crate::runner::Wait;

const GRACE: Duration = Duration::from_millis(50);

async fn deaf(agent: &Handle, config: Value) -> AllocId {
    let mut job = job("s", JobKind::Service, &[("main", config)]);
    job.groups[0].tasks[0].kill_timeout = GRACE;
    let id = submit(agent, job).await;
    until_state(agent, &id, TaskState::Running).await;
    id
}

/// Blocks until this is dropped.
struct OccupiedPermits(Vec<std::sync::mpsc::Sender<()>>);

impl OccupiedPermits {
    /// One in every permit for blocking work, and as many that wait for one.
    async fn everywhere(agent: &Handle) -> OccupiedPermits {
        let mut senders = Vec::new();
        for _ in 0..8 {
            let (sender, held) = std::sync::mpsc::channel::<()>();
            let ctx = Arc::clone(&agent.0.ctx);
            tokio::spawn(async move { ctx.blocking.block(move || held.recv().is_ok()).await });
            senders.push(sender);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        OccupiedPermits(senders)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_launches_do_not_block_kills() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = deaf(&agent, json!({ "deaf": 1 })).await;
    let hanging = OccupiedPermits::everywhere(&agent).await;
    let blocked = agent.0.ctx.blocking.block(|| ());
    assert!(tokio::time::timeout(GRACE, blocked).await.is_err(), "every place is taken");
    agent.stop(&id, Wait::No).await.unwrap();
    let killed = until("killed by force", || *host.world.last().signals.lock().unwrap() == ["SIGINT", "force"]);
    tokio::time::timeout(Duration::from_secs(300), killed).await.expect("a kill needs none of those places");
    assert_eq!(hanging.0.len(), 8, "nothing was let go before");
    drop(hanging);
    until_over(&agent, &id).await;
}

#[tokio::test(start_paused = true)]
async fn hanging_kill_does_not_delay_abandonment() {
    let mut host = TestHost::new();
    host.config.kill_budget = Duration::from_millis(200);
    let agent = host.start().await;
    let hang = Duration::from_secs(4);
    let id = deaf(&agent, json!({ "deaf": 1, "unkillable": 1, "kill_ms": hang.as_millis() })).await;
    let requested_at = tokio::time::Instant::now();
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
    let took = requested_at.elapsed();
    assert!(took >= GRACE + host.config.kill_budget && took < hang, "{took:?}");
    let task = main_task(&agent, &id);
    assert!(task.failed);
    assert!(matches!(task.last_exit().unwrap().status, ExitStatus::Unknown(_)));
    host.world.last().end(ExitStatus::Signal(9));
}
