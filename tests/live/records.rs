//! What foreign signals and writes do to supervisors while their tasks run.

use crate::common::Agent;
use crate::live::survive::{main_pid, parent};
use crate::live::work::Work;

/// SIGSTOP of supervisors, by a user who meant the tasks: they end as requested, within their time.
#[test]
fn a_stopped_supervisor_makes_no_stop_slow_and_no_task_that_may_still_run() {
    let agent = Agent::start();
    let run = |id, work, timeout: &str| {
        Work { task: format!("kill_timeout = {timeout:?}"), ..Work::batch(id, &[work, "600000"]) }.run(&agent)
    };
    // Of one that obeys it is not needed.
    let (obeys, deaf) = (run("obeys", "hold", "30s"), run("deaf", "stubborn", "1s"));
    for alloc in [&obeys, &deaf] {
        alloc.ready();
        let supervisor = parent(main_pid(alloc)).expect("it runs");
        let stopped = std::process::Command::new("kill").args(["-STOP", &supervisor.to_string()]).status();
        assert!(stopped.is_ok_and(|status| status.success()));
    }
    for (alloc, signal) in [(&obeys, 2), (&deaf, 9)] {
        agent.cli(&["stop", &alloc.id]).ok();
        alloc.wait_dead();
        let shown = agent.json(&format!("/v1/allocs/{}", alloc.id));
        assert!(shown.get("may_run").is_none(), "{shown}");
        assert_eq!(shown["tasks"][alloc.task.as_str()]["last_exit"]["status"]["signal"], signal, "{shown}");
        assert_eq!(alloc.exits("killed"), 1, "{shown}");
    }
    agent.stop();
}
