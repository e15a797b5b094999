//! The disk below a running agent: what is taken away from it, and a disk that refuses.

use std::time::Duration;

use crate::common::{Agent, counters, none_fell, patience, wait_for};
use crate::live::work::{Alloc, Work};

/// The state database is moved away, and back again: what could not be kept is not taken on, and what runs goes on.
#[test]
fn a_state_database_that_is_moved_away_takes_nothing_on_until_it_is_back() {
    let mut agent = Agent::start();
    let state = agent.data_dir().join("state");
    let away = agent.data_dir().join("away");
    let (held, looping, before);
    {
        let hold = Work::batch("held", &["hold", "600000"]).run(&agent);
        hold.ready();
        let lives = Work::looping("looping", &["burn", "60"]).run(&agent);
        lives.wait_exits("success", 2);
        std::fs::rename(&state, &away).expect("our own");
        wait_for("it to be noticed", Duration::from_secs(10) * patience(), || {
            (agent.metrics().u64("allostat_state_db_write_failures_total", &[]) > 0).then_some(())
        });
        let text = "it was removed from";
        assert!(agent.log().contains(text), "{}", agent.log());
        let refused = agent.request("POST", "/v1/jobs", &Work::batch("more", &["hold", "1"]).hcl());
        assert!(refused.status == 500 && refused.text().contains(text), "{}", refused.text());
        std::fs::rename(&away, &state).expect("our own");
        lives.wait_exits("success", lives.exits("success") + 2);
        (held, looping, before) = (hold.id.clone(), lives.id.clone(), counters(&agent.metrics()));
    }
    agent.kill();
    agent.start_again();
    none_fell(&before, &counters(&agent.metrics()), "over a database that was moved");
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
