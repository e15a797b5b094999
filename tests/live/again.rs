//! A requested restart, on real processes: a new one, the same log, and counters that go on.

use std::time::Duration;

use crate::common::{Agent, AgentOptions, Sample, patience, wait_for};
use crate::live::work::Work;

fn pid(agent: &Agent, id: &str) -> Option<u64> {
    agent.json(&format!("/v1/allocs/{id}"))["tasks"].as_object()?.values().next()?["main"]["pid"].as_u64()
}

/// Promise (Durability and recovery): A requested restart: exactly one new attempt at once, over a SIGKILL and a crash
/// at any write too
#[test]
fn restart_starts_a_new_process_retains_the_log_and_no_counter_falls() {
    let mut agent = Agent::start();
    let id = {
        let alloc = Work::batch("again", &["burn", "120000"]).run(&agent);
        alloc.ready();
        alloc.id
    };
    let labels = [("workload", "again"), ("task", "again")];
    let cpu = |agent: &Agent| agent.metrics().f64("allostat_workload_cpu_usage_seconds_total", &labels);
    let requested = |agent: &Agent| {
        let labels = [("alloc_id", id.as_str()), ("task", "again"), ("reason", "requested")];
        agent.metrics().u64("allostat_task_restarts_total", &labels)
    };
    let limit = Duration::from_secs(15) * patience();
    let new_process =
        |agent: &Agent, old: u64| wait_for("a new process", limit, || pid(agent, &id).filter(|new| *new != old));
    let first = wait_for("its pid", limit, || pid(&agent, &id));
    wait_for("a reading", limit, || {
        Some(agent.metrics().one("allostat_workload_cpu_usage_seconds_total", &labels)?.f64()).filter(|s| *s > 0.0)
    });
    assert_eq!(requested(&agent), 0, "born at 0");
    let before = cpu(&agent);
    assert_eq!(agent.cli(&["restart", "--detach", &id, "again"]).ok(), "restarting again\n");
    let second = new_process(&agent, first);
    assert!(!std::path::Path::new(&format!("/proc/{first}")).exists(), "never two at once");
    wait_for("both lines in one log", limit, || {
        let log = agent.request("GET", &format!("/v1/allocs/{id}/logs/again?stream=stdout"), "");
        (log.text().matches("ready ").count() == 2).then_some(())
    });
    wait_for("the restart in the metrics", limit, || (requested(&agent) == 1).then_some(()));
    let after = cpu(&agent);
    assert!(after >= before, "{before}, then {after}");

    // The agent dies right after the request: the next one finishes it, once.
    agent.cli(&["restart", "--detach", &id]).ok();
    agent.kill();
    agent.start_again();
    let third = new_process(&agent, second);
    assert!(!std::path::Path::new(&format!("/proc/{second}")).exists());
    assert!(cpu(&agent) >= after);
    assert_eq!(requested(&agent), 2);

    // Ended by itself, from a foreign signal: with --all it lives again.
    agent.cli(&["signal", "--signal", "SIGKILL", &id]).ok();
    wait_for("its end", limit, || pid(&agent, &id).is_none().then_some(()));
    let refused = agent.cli(&["restart", &id, "again"]);
    assert!(refused.code != Some(0) && refused.stderr.contains("is not running (dead)"), "{}", refused.stderr);
    agent.cli(&["restart", "--all", &id]).ok();
    new_process(&agent, third);
    assert!(cpu(&agent) >= after);
    agent.stop();
}

#[test]
fn gc_removes_directories_and_cgroups_and_moves_the_counters() {
    let config = "telemetry {\n retention = \"1s\"\n retention_max = \"2s\"\n}\n".to_owned();
    let agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    let live = Work::batch("lives", &["hold", "120000"]).run(&agent);
    live.ready();
    let done = Work::batch("ended", &["burn", "300"]).run(&agent);
    done.wait_dead();
    let cpu = || {
        let labels = [("workload", "ended"), ("task", "ended")];
        agent.metrics().f64("allostat_workload_cpu_usage_seconds_total", &labels)
    };
    let (before, exits) = (cpu(), done.exits("success"));
    let dirs = ["alloc", "run"].map(|kind| agent.data_dir().join(kind).join(&done.id));
    assert!(dirs[0].exists() && before > 0.0 && exits == 1);

    let retained = agent.cli(&["gc", &live.id]);
    assert!(retained.code == Some(1) && retained.stdout.contains("it has not ended"), "{retained:?}");
    let limit = Duration::from_secs(20) * patience();
    let text = wait_for("its series to have had their time", limit, || {
        let cli = agent.cli(&["gc", &done.id]);
        (cli.code == Some(0)).then_some(cli.stdout)
    });
    assert_eq!(text, format!("removed {} (requested)\n", &done.id[..8]));
    assert!(dirs.iter().all(|dir| !dir.exists()), "its directories are gone");
    assert_eq!(agent.request("GET", &format!("/v1/allocs/{}", live.id), "").status, 200);
    wait_for("it to be off the list", limit, || {
        (agent.request("GET", &format!("/v1/allocs/{}", done.id), "").status == 404).then_some(())
    });
    let cgroups = agent.cgroups.left();
    assert!(!cgroups.iter().any(|path| path.to_string_lossy().contains(&done.id)), "{cgroups:?}");
    assert!(cpu() >= before, "what it used is in its workload's totals");
    assert_eq!(done.exits("success"), exits);
    assert_eq!(agent.metrics().u64("allostat_allocs_collected_total", &[("reason", "requested")]), 1);
    let output = agent.cli(&["gc", "--all"]).ok();
    assert_eq!(output, format!("{} has not ended\nnothing to remove\n", &live.id[..8]), "it still runs");
    drop((live, done));
    agent.stop();
}

#[test]
fn series_left_out_by_the_churn_limit_are_counted_and_shown() {
    let config = "telemetry {\n churn_limit = 1\n}\n".to_owned();
    let agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    let left_out = || {
        let body = agent.metrics();
        body.u64("allostat_series_dropped_total", &[("scope", "alloc"), ("reason", "churn")])
    };
    Work { group: "count = 1".into(), ..Work::batch("many", &["hold", "120000"]) }.run(&agent).ready();
    assert_eq!(left_out(), 0);
    Work { group: "count = 5".into(), ..Work::batch("many", &["hold", "120000"]) }.run(&agent);
    let limit = Duration::from_secs(20) * patience();
    wait_for("what is left out to be counted", limit, || (left_out() >= 3).then_some(()));
    let body = agent.metrics();
    let own = |sample: &&Sample| sample.labels["alloc_id"] != "_overflow";
    let shown = body.all("allostat_task_state", &[("state", "running")]).into_iter().filter(own).count();
    assert!((1..5).contains(&shown), "{shown}");
    agent.stop();
}

#[test]
fn allocs_that_came_and_went_leave_the_agent_no_descriptor() {
    let config = "telemetry {\n retention = \"0s\"\n retention_max = \"0s\"\n}\n".to_owned();
    let agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    let limit = Duration::from_secs(20) * patience();
    let come_and_go = || {
        let serves = Work { kind: "service", ..Work::batch("serves", &["hold", "120000"]) }.run(&agent);
        Work::batch("ends", &["burn", "1"]).run(&agent);
        serves.ready();
        agent.cli(&["restart", &serves.id]).ok();
        wait_for("the restart", limit, || {
            let task = &agent.json(&format!("/v1/allocs/{}", serves.id))["tasks"]["serves"];
            (task["attempt"] == 2 && task["state"] == "running").then_some(())
        });
        agent.cli(&["stop", "--all"]).ok();
        wait_for("all to be collected", limit, || {
            agent.cli(&["gc", "--all"]);
            agent.alloc_ids().is_empty().then_some(())
        });
    };
    let open = || {
        let fds = std::fs::read_dir(format!("/proc/{}/fd", agent.pid())).expect("it runs");
        let names = fds.flatten().filter_map(|fd| std::fs::read_link(fd.path()).ok());
        let mut names: Vec<_> = names.map(|name| name.display().to_string()).collect();
        names.sort();
        names
    };
    // Whatever is opened once for all is open then.
    come_and_go();
    let before = open();
    (0..3).for_each(|_| come_and_go());
    let began = std::time::Instant::now();
    while open().len() > before.len() {
        assert!(began.elapsed() < limit, "open before: {before:#?}\nopen now: {:#?}", open());
        std::thread::sleep(Duration::from_millis(20));
    }
    agent.stop();
}
