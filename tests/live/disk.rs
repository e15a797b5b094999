//! The disk below a running agent: what is taken away from it, and a disk that refuses.

use std::time::Duration;

use crate::common::{Agent, counters, none_fell, patience, wait_for};
use crate::work::{Alloc, Work, remove_under_use};

/// Somebody removes the state database, and the agent is killed a moment later: it was written again, whole.
#[test]
fn a_state_database_that_is_removed_is_written_again_before_the_next_agent_needs_it() {
    let mut agent = Agent::start();
    let state = agent.data_dir().join("state");
    let gone = || {
        remove_under_use(&state);
        wait_for("the database to be written again", Duration::from_secs(10) * patience(), || {
            state.join("log").exists().then_some(())
        });
    };
    let (held, looping, before);
    {
        let hold = Work::batch("held", &["hold", "600000"]).run(&agent);
        hold.ready();
        // Nothing is written meanwhile.
        gone();
        assert_eq!(agent.metrics().u64("allostat_state_db_write_failures_total", &[]), 0, "no write was lost");
        let lives = Work::looping("looping", &["burn", "60"]).run(&agent);
        lives.wait_exits("success", 2);
        gone();
        lives.wait_exits("success", lives.exits("success") + 2);
        (held, looping, before) = (hold.id.clone(), lives.id.clone(), counters(&agent.metrics()));
    }
    let said = agent.log().matches("the state database was removed under the agent").count();
    assert!(said >= 2, "it is said each time:\n{}", agent.log());
    agent.kill();
    agent.start_again();
    none_fell(&before, &counters(&agent.metrics()), "over a database that was removed");
    assert_eq!(agent.alloc_ids().len(), 2, "both are known");
    for outcome in ["failed", "lost"] {
        assert_eq!(agent.metrics().u64("allostat_restore_tasks", &[("outcome", outcome)]), 0, "{outcome}");
    }
    let lives = Alloc { agent: &agent, id: looping, task: "looping".into() };
    lives.wait_exits("success", lives.exits("success") + 1);
    let hold = Alloc { agent: &agent, id: held, task: "held".into() };
    agent.cli(&["stop", &hold.id]).ok();
    hold.wait_dead();
    assert_eq!(hold.exits("killed"), 1, "the same process, under the same supervisor");
    agent.stop();
}
