//! The page at `/` with a real agent, and in a real Chromium where there is one.

// What a test needs must be there.
#![allow(clippy::unwrap_used)]

mod altered;
mod browser;
mod devtools;
mod hostile;

use std::time::Duration;

use crate::common::{Agent, AgentOptions, patience, tcp, wait_for};

const LONG: Duration = Duration::from_secs(60);
const JOB: &str = "job \"shop\" {\n group \"g\" {\n task \"steady\" {\n driver = \"raw_exec\"\n config {\n command = \"/bin/sh\"\n \
                   args = [\"-c\", \"while :; do :; done\"]\n }\n }\n }\n}\n";

/// With one busy task, and a point of it each five seconds.
fn agent() -> (Agent, String) {
    let config = "history {\n  series_interval = \"5s\"\n}\n".to_owned();
    let agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    agent.run(JOB);
    let id = agent.alloc_ids()[0].clone();
    (agent, id)
}

fn points(agent: &Agent, id: &str, field: &str) -> Vec<f64> {
    let history = tcp(agent.address, "GET", &format!("/v1/allocs/{id}/history"), &[], b"").unwrap().json();
    let values = history["tasks"]["steady"][field].as_array().cloned().unwrap_or_default();
    values.iter().filter_map(serde_json::Value::as_f64).collect()
}

/// Promise (Devices): The last hour of each task is kept without a viewer; at its end it leaves the series
#[test]
fn task_history_of_an_hour_is_recorded_without_a_viewer_and_ends_with_the_task() {
    let (agent, id) = agent();
    let cores = wait_for("two points with a rate", LONG * patience(), || {
        let cores = points(&agent, &id, "cpu_cores");
        (cores.len() >= 2).then_some(cores)
    });
    assert!(cores.iter().all(|cores| *cores > 0.01), "it is busy: {cores:?}");
    let series = agent.json("/v1/history/series");
    let row = &series["tasks"].as_array().unwrap()[0];
    assert_eq!((row["alloc_id"].as_str(), row["task"].as_str()), (Some(&*id), Some("steady")));
    assert_eq!(series["interval_ns"], 5_000_000_000_u64);
    assert!(series["host"]["memory_bytes"].as_array().is_some_and(|points| !points.is_empty()), "{series}");
    let gauges = agent.get("/metrics?name[]=allostat_history_series_bytes").text().to_owned();
    assert!(gauges.lines().any(|line| line.starts_with("allostat_history_series_bytes ")), "{gauges}");
    agent.request("POST", &format!("/v1/allocs/{id}/stop"), "");
    wait_for("it to leave the series", LONG * patience(), || {
        let series = agent.json("/v1/history/series");
        let none_of_it = |row: &serde_json::Value| row["alloc_id"] != *id;
        series["tasks"].as_array().unwrap().iter().all(none_of_it).then_some(())
    });
    assert!(points(&agent, &id, "cpu_cores").len() >= 2, "its own history stays");
    agent.stop();
}

#[test]
fn last_hour_without_a_budget_is_refused_with_the_reason() {
    let config = "history {\n  series_max_bytes = 0\n}\n".to_owned();
    let agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    let refused = tcp(agent.address, "GET", "/v1/history/series", &[], b"").unwrap();
    assert_eq!(refused.status, 409);
    assert!(refused.text().contains("history.series_max_bytes is 0"), "{}", refused.text());
    agent.stop();
}
