//! The agent may die after any of its writes: the next state is legal, and every process is started and counted once.
//!
//! Promise (Durability and recovery): A crash after any write of the runner: each start has one exit, nothing counts
//! twice

use serde_json::json;

use super::*;

/// After `writes` commits of the scenario every write fails, and then the agent dies.
async fn crash_after(writes: u64, config: Value, ran: Duration) -> u64 {
    let host = TestHost::new();
    let agent = host.start().await;
    let before = host.faults.commits();
    host.faults.fail_after(writes);
    let submitted = agent.submit(job("b", JobKind::Batch, &[("main", config)])).await;
    tokio::time::sleep(ran).await;
    let done = host.faults.commits() - before;
    host.faults.fail_writes(false);
    let agent = host.restart(agent).await;
    match submitted {
        Err(_) => assert!(agent.board().view().allocs.is_empty()),
        Ok(reply) => {
            until_over(&agent, &reply.allocs[0]).await;
            until("cleared", || host.world.undestroyed() == 0).await;
            let task = main_task(&agent, &reply.allocs[0]);
            let exits: u64 = task.exit_counts.iter().sum();
            assert_eq!(u64::try_from(host.world.started()).unwrap(), exits, "each start has its exit");
            assert_eq!(totals(&agent, "b").exits.iter().sum::<u64>(), exits);
            assert_eq!(task.base.cpu_usage_ns(), Some(exits * 1_000_000_000));
            assert_eq!(task.event_counts["started"], exits);
            assert_eq!(task.event_counts["received"], 1);
        }
    }
    done
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_any_write_of_a_batch_task_loses_and_doubles_nothing() {
    for writes in 0..5 {
        crash_after(writes, json!({ "run_ms": 50 }), Duration::from_millis(40)).await;
        crash_after(writes, json!({ "run_ms": 50 }), Duration::from_secs(5)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_any_write_of_a_crash_loop_loses_and_doubles_nothing() {
    for writes in 0..12 {
        let done = crash_after(writes, json!({ "run_ms": 50, "exit_code": 1 }), Duration::from_secs(200)).await;
        assert_eq!(done, writes.min(10), "one for the job, three for each of three attempts");
    }
}
