//! Disk usage of the directories of allocs.

use super::*;
use crate::model::units::Timestamp;
use crate::runner::disk::{Rounds, StopSign};

#[tokio::test(start_paused = true)]
async fn alloc_disk_usage_is_measured_after_its_end_and_removed_with_the_alloc() {
    let mut host = TestHost::new();
    host.config.gc.max_terminal = 0;
    let agent = host.start().await;
    let id = submit(&agent, service("s")).await;
    until_state(&agent, &id, TaskState::Running).await;
    let board = Arc::clone(agent.board());
    let mut rounds = Rounds::new(Arc::clone(&board), Arc::clone(&host.data_dir), Arc::clone(&host.clock) as _);
    let stop = StopSign::default();
    assert!(rounds.one(&stop));
    let of = |id: &AllocId| board.view().disk.get(id).copied();
    let version = board.version();
    let empty = of(&id).expect("it was measured");
    assert!(empty.until < Timestamp(u64::MAX), "a running alloc is measured again");
    std::fs::write(host.data_dir.alloc(&id).join("alloc/data/file"), vec![1; 1 << 20]).unwrap();
    assert!(rounds.one(&stop));
    assert_eq!((of(&id), board.version()), (Some(empty), version), "not before its time");
    agent.stop(&id, crate::runner::Wait::UntilEnded).await.unwrap();
    assert!(rounds.one(&stop));
    let last = of(&id).expect("it was measured at its end");
    assert!(last.bytes >= empty.bytes + (1 << 20) && last.until == Timestamp(u64::MAX), "{empty:?} {last:?}");
    agent.collectable([id.clone()]);
    until("collected", || agent.board().get(&id).is_none()).await;
    assert!(rounds.one(&stop));
    assert_eq!(of(&id), None);
}
