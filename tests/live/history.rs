//! What has ended stays on record: over kills of the agent, when it is shown no more, and for each reader as much as is
//! his.
//!
//! Promise (Devices): Each end is in the history once, over kills of the agent and when its alloc is gone

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use serde_json::Value;

use crate::common::{Agent, AgentOptions, patience, unix, wait_for};

fn job(name: &str, command: &str, script: &str) -> String {
    format!(
        "job \"{name}\" {{\n type = \"batch\"\n group \"g\" {{\n reschedule {{\n attempts=0\n unlimited=false\n }}\n restart {{\n attempts = 0\n mode = \"fail\"\n }}\n task \"t\" {{\n \
         driver = \"raw_exec\"\n config {{\n command = \"{command}\"\n args = [\"-c\", \"{script}\"]\n }}\n resources {{\n memory = \
         256\n }}\n }}\n }}\n}}\n"
    )
}

fn ends(agent: &Agent, query: &str) -> Vec<Value> {
    let answer = unix(&agent.socket(), "GET", &format!("/v1/history{query}"), &[], b"");
    let answer = answer.expect("the agent answers");
    let answer: Value = serde_json::from_slice(&answer.body).expect("JSON");
    answer["ended"].as_array().unwrap_or_else(|| panic!("{answer}")).clone()
}

fn wait_for_ends(agent: &Agent, count: usize) -> Vec<Value> {
    wait_for("the ends", Duration::from_secs(20) * patience(), || {
        Some(ends(agent, "")).filter(|ends| ends.len() == count)
    })
}

#[test]
fn ended_alloc_is_in_the_history_once_over_kills_and_after_its_collection() {
    let env = [("ALLOSTAT_RETENTION", "0s"), ("ALLOSTAT_RETENTION_MAX", "0s")];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let mut agent = Agent::with(AgentOptions { env, ..AgentOptions::default() });
    agent.run(&job("good", "/bin/sh", "exit 0"));
    wait_for_ends(&agent, 1);
    agent.run(&job("bad", "/bin/sh", "exit 3"));
    let before = wait_for_ends(&agent, 2);
    assert!(before[0]["alloc"]["job"] == "bad" && before[1]["alloc"]["job"] == "good", "{before:?}");
    let bad = &before[0];
    assert_eq!((&bad["alloc"]["status"], &bad["ended_at"]), (&"failed".into(), &bad["alloc"]["finished_at"]));
    let task = &bad["stats"]["tasks"]["t"];
    assert!(task["usage"]["cpu_usage_ns"].as_u64().unwrap() > 0, "{bad}");
    assert!(task["time_in_state_ns"]["running"].as_u64().unwrap() > 0, "{bad}");
    assert_eq!(bad["alloc"]["tasks"]["t"]["last_exit"]["status"]["code"], 3);
    wait_for("both to be counted as written", Duration::from_secs(5) * patience(), || {
        let metrics = agent.metrics();
        let of = |outcome| metrics.u64("allostat_history_ends_total", &[("outcome", outcome)]);
        assert_eq!((of("lost"), metrics.u64("allostat_history_waiting_ends", &[])), (0, 0));
        (of("written") >= 2).then_some(())
    });

    for _ in 0..2 {
        agent.kill();
        // With the mode of a user's directory; all that stands in it by now is known to be ours.
        std::fs::set_permissions(agent.data_dir(), PermissionsExt::from_mode(0o755)).unwrap();
        agent.start_again();
        let mode = std::fs::metadata(agent.data_dir()).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o711, "no other user lists it");
    }
    agent.run(&job("later", "/bin/sh", "exit 0"));
    wait_for_ends(&agent, 3);
    wait_for("nothing of them to be shown", Duration::from_secs(20) * patience(), || {
        agent.cli(&["gc", "--all"]);
        agent.alloc_ids().is_empty().then_some(())
    });
    let mut after = ends(&agent, "");
    assert_eq!(after.remove(0)["alloc"]["job"], "later");
    assert_eq!(after, before, "as it was");
    let lines = fs::read_to_string(agent.data_dir().join("history/00000001.jsonl")).unwrap();
    assert_eq!(lines.lines().count(), 3, "each once: {lines}");

    let named = |query: &str| -> Vec<String> {
        ends(&agent, query).iter().map(|end| end["alloc"]["job"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(named("?failed"), ["bad"]);
    assert_eq!(named("?job=good&source=managed"), ["good"]);
    assert_eq!(named("?limit=1&since=1d"), ["later"]);
    assert_eq!(named("?until=1h").len() + named("?source=docker").len(), 0);
    let id = before[0]["alloc"]["id"].as_str().unwrap();
    assert_eq!(named(&format!("?id={}", &id[..8])), ["bad"]);
    let shown = agent.cli(&["history"]).ok();
    assert!(shown.lines().count() == 5 && shown.contains("exit 3") && shown.contains("total: 3 ends"), "{shown}");
    let shown = agent.cli(&["history", &id[..8]]).ok();
    assert!(["exit 3", "OF LIMIT", "no restarts allowed", id].iter().all(|word| shown.contains(word)), "{shown}");
    assert_eq!(agent.cli(&["history", "nobody"]).code, Some(66), "as of an alloc that is not there");
    for (query, place) in [("?since=soon", "since"), ("?source=me", "source"), ("?limit=0", "limit"), ("?of=x", "of")] {
        let answer = agent.get(&format!("/v1/history{query}"));
        assert!(answer.status == 400 && answer.text().contains(place), "{query}: {}", answer.text());
    }
    agent.stop();
}

/// Promise (Devices): Over HTTP an end has what its alloc had there, and no more
#[test]
fn history_over_http_has_only_what_the_alloc_answer_had() {
    let env = vec![("ALLOSTAT_TELEMETRY_PUBLIC".to_owned(), "read".to_owned())];
    let agent = Agent::with(AgentOptions { env, ..AgentOptions::default() });
    let over_tcp = |path: &str| -> Value {
        let answer = agent.get(path);
        serde_json::from_slice(&answer.body).unwrap_or_else(|_| panic!("{path}: {}", answer.text()))
    };
    agent.run(&job("secret", "/no/such/command", "password"));
    wait_for_ends(&agent, 1);
    agent.run(&job("bad", "/bin/sh", "exit 3"));
    let ends = wait_for_ends(&agent, 2);
    assert!(ends[1].to_string().contains("/no/such/command"), "a user of the socket sees it: {}", ends[1]);
    let over_http = over_tcp("/v1/history");
    assert!(!over_http.to_string().contains("/no/such"), "{over_http}");
    for end in over_http["ended"].as_array().unwrap() {
        let mut shown = over_tcp(&format!("/v1/allocs/{}", end["alloc"]["id"].as_str().unwrap()));
        let object = shown.as_object_mut().unwrap();
        ["exposed", "generation"].iter().for_each(|key| drop(object.remove(*key)));
        shown["tasks"]["t"].as_object_mut().unwrap().remove("event_counts");
        let events = end["alloc"]["tasks"]["t"]["events"].as_array().unwrap();
        assert!(!events.is_empty() && events.iter().all(|event| event["timestamp"].as_str().is_some()), "{end}");
        assert_eq!(end["alloc"], shown);
    }
    agent.stop();
}

#[test]
fn disabled_history_is_empty_and_the_answer_reports_so() {
    let env = vec![("ALLOSTAT_HISTORY_KEEP".to_owned(), "0s".to_owned())];
    let agent = Agent::with(AgentOptions { env, ..AgentOptions::default() });
    agent.run(&job("good", "/bin/sh", "exit 0"));
    let answer = agent.cli(&["history"]);
    assert!(answer.stderr.contains("history.keep is 0s"), "{answer:?}");
    assert!(!agent.data_dir().join("history").exists());
    assert!(agent.metrics().one("allostat_history_waiting_ends", &[]).is_none());
    agent.stop();
}
