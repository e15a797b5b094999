//! Periodic and parameterized jobs on a real agent: launches of each second, a killed agent, payloads, names with
//! slashes.

// Its helpers are test code too: a step that fails must end the test.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::{Agent, assert_contains, patience, wait_for};

const LIMIT: Duration = Duration::from_secs(40);

fn job(id: &str, head: &str, script: &str, task: &str) -> String {
    format!(
        "job {id:?} {{\n  type = \"batch\"\n  {head}\n  group \"g\" {{\n    restart {{\n      attempts = 0\n      \
         mode = \"fail\"\n    }}\n    task \"t\" {{\n      driver = \"raw_exec\"\n      config {{\n        \
         command = \"/bin/sh\"\n        args = [\"-c\", {script:?}]\n      }}\n      {task}\n    }}\n  }}\n}}\n"
    )
}

fn submit(agent: &Agent, text: &str) -> crate::common::Cli {
    let file = agent.scratch().join("job.hcl");
    std::fs::write(&file, text).unwrap();
    agent.cli(&["run", file.to_str().unwrap()])
}

fn children(agent: &Agent, parent: &str) -> Vec<Value> {
    agent.json(&format!("/v1/jobs/{parent}"))["children"].as_array().cloned().unwrap_or_default()
}

#[test]
fn a_job_of_each_second_is_launched_shown_and_stopped_and_its_children_run_on() {
    let agent = Agent::start();
    let head = "periodic {\n    crons = [\"* * * * * * *\"]\n  }";
    let submitted = submit(&agent, &job("backup/db", head, "echo \"$NOMAD_JOB_ID of $NOMAD_JOB_PARENT_ID\"", "")).ok();
    assert_contains(&submitted, &["job backup/db: next launch ", " UTC ("]);
    let all = wait_for("three children that are over", LIMIT * patience(), || {
        let all = children(&agent, "backup%2Fdb");
        (all.len() >= 3 && all.iter().filter(|child| child["status"] == "complete").count() >= 2).then_some(all)
    });
    let ids: Vec<&str> = all.iter().map(|child| child["id"].as_str().unwrap()).collect();
    let second = |id: &str| id.strip_prefix("backup/db/periodic-").unwrap().parse::<u64>().unwrap();
    assert!(ids.windows(2).all(|two| second(two[0]) > second(two[1])), "the newest first: {ids:?}");
    let first = ids.last().unwrap();
    assert_eq!(agent.cli(&["logs", first]).ok(), format!("{first} of backup/db\n"));
    assert_contains(&agent.cli(&["status", "backup/db"]).ok(), &["* * * * * * * (UTC)", "next launch", first]);
    assert_contains(&agent.cli(&["status"]).ok(), &["LAUNCHING JOB", "backup/db"]);
    let metrics = agent.metrics();
    let of = [("workload", "backup/db")];
    assert!(metrics.u64("allostat_periodic_launches_total", &[of[0], ("outcome", "launched")]) >= 3);
    assert!(metrics.one("allostat_periodic_next_launch_timestamp_seconds", &of).is_some());
    for sample in metrics.all("allostat_workload_exits_total", &[]) {
        assert!(!sample.labels["workload"].starts_with("backup/db/"), "a child is no workload of its own: {sample:?}");
    }
    assert!(metrics.u64("allostat_workload_exits_total", &[of[0], ("outcome", "success")]) >= 2);
    let stopped = agent.cli(&["stop", "backup/db"]).ok();
    assert_contains(&stopped, &["job backup/db: stopped, no further launches"]);
    assert_eq!(agent.get("/v1/jobs/backup%2Fdb").status, 404);
    let metrics = agent.metrics();
    assert_eq!(metrics.one("allostat_periodic_next_launch_timestamp_seconds", &of).map(|sample| sample.f64()), None);
    agent.stop();
}

/// At any moment: between the decision and the record, between the record and the start, after it.
///
/// Promise (Input validation): A periodic job is launched once per due time, whatever dies between decision and start
#[test]
fn an_agent_that_is_killed_again_and_again_starts_no_child_twice() {
    let mut agent = Agent::start();
    let log = agent.scratch().join("launches");
    let head = "periodic {\n    cron = \"* * * * * * *\"\n  }";
    submit(&agent, &job("tick", head, &format!("echo \"$NOMAD_JOB_ID\" >> {}", log.display()), "")).ok();
    let lines = || std::fs::read_to_string(&log).unwrap_or_default().lines().map(str::to_owned).collect::<Vec<_>>();
    for round in 0..6_u64 {
        let before = lines().len();
        wait_for("a launch", LIMIT * patience(), || (lines().len() > before).then_some(()));
        // Another part of the second each time: what is launched then is in another state.
        let until = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let into = 40 + 160 * round;
        wait_for("its part of a second", LIMIT * patience(), || {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            (now > until && u64::from(now.subsec_millis()) >= into).then_some(())
        });
        agent.kill();
        agent.start_again();
    }
    let before = lines().len();
    wait_for("launches of the last agent", LIMIT * patience(), || (lines().len() >= before + 2).then_some(()));
    agent.cli(&["stop", "--all", "--yes"]).ok();
    let mut counts = BTreeMap::new();
    for line in lines() {
        *counts.entry(line).or_insert(0) += 1;
    }
    assert!(counts.values().all(|count| *count == 1), "started twice: {counts:?}");
    agent.stop();
}

/// Promise (Input validation): A dispatch's payload is written beneath the task's directory, before each start
#[test]
fn a_dispatch_brings_payload_and_metadata_and_ends_with_the_result_of_its_child() {
    let agent = Agent::start();
    let head =
        "parameterized {\n    payload = \"required\"\n    meta_required = [\"to\"]\n    meta_optional = [\"why\"]\n  }";
    let script = "echo \"$NOMAD_META_to:$NOMAD_META_why:${TO}\"; cat local/in/letter; exit 3";
    let task = "env {\n        TO = \"${NOMAD_META_to}\"\n      }\n      dispatch_payload {\n        file = \"in/letter\"\n      }";
    let submitted = submit(&agent, &job("mail", head, script, task)).ok();
    assert_contains(&submitted, &["job mail: `allostat dispatch mail` launches it"]);
    assert!(agent.alloc_ids().is_empty());
    let letter = agent.scratch().join("letter");
    std::fs::write(&letter, "dear you\n").unwrap();
    let letter = letter.to_str().unwrap();
    let sent = agent.cli(&["dispatch", "--meta", "to=you", "mail", letter]);
    assert_eq!(sent.code, Some(3), "{}", sent.stderr);
    assert_contains(&sent.stdout, &["job mail/dispatch-", "launched, 1 alloc"]);
    let child = children(&agent, "mail")[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(agent.cli(&["logs", &child]).ok(), "you::you\ndear you\n");
    for (args, why) in [
        (vec!["dispatch", "--meta", "to=you", "mail"], "requires a payload"),
        (vec!["dispatch", "mail", letter], "lacks required metadata: to"),
        (vec!["dispatch", "--meta", "to=you", "--meta", "x=y", "mail", letter], "does not permit: x"),
        (vec!["dispatch", "--meta", "to=you", "male", letter], "no job \"male\""),
        (vec!["periodic", "force", "mail"], "is not periodic"),
    ] {
        let refused = agent.cli(&args);
        assert_ne!(refused.code, Some(0), "{args:?}");
        assert_contains(&refused.stderr, &[why]);
    }
    let large = agent.scratch().join("large");
    std::fs::write(&large, vec![b'x'; (16 << 10) + 1]).unwrap();
    let refused = agent.cli(&["dispatch", "--meta", "to=you", "mail", large.to_str().unwrap()]);
    assert_eq!(refused.code, Some(65), "{}", refused.stderr);
    let whole = json!({ "Payload": "eA==", "Meta": { "to": "api" }, "IdempotencyToken": "" }).to_string();
    let answer = agent.request("POST", "/v1/jobs/mail/dispatch", &whole);
    assert_eq!(answer.status, 201);
    for (body, field) in [
        (json!({ "Payload": "no base64", "Meta": { "to": "api" } }), "Payload"),
        (json!({ "Payload": "eA==" }), "Meta"),
        (json!({ "Payload": "eA==", "Meta": { "to": "api" }, "JobID": "other" }), "JobID"),
    ] {
        let refused = agent.request("POST", "/v1/jobs/mail/dispatch", &body.to_string());
        assert_eq!(refused.status, 400);
        let refused: Value = serde_json::from_slice(&refused.body).unwrap();
        assert_eq!(refused["field"], field, "{refused}");
    }
    for (action, body) in [("dispatch", whole.as_str()), ("periodic/force", ""), ("stop", "")] {
        let refused = agent.request("POST", &format!("/v1/jobs/male/{action}"), body);
        assert_eq!(refused.status, 404, "{action}");
        let refused: Value = serde_json::from_slice(&refused.body).unwrap();
        assert_eq!((&refused["code"], &refused["field"]), (&"not_found".into(), &"id".into()), "{refused}");
    }
    agent.cli(&["stop", "--all", "--yes"]).ok();
    agent.stop();
}

#[test]
fn forced_launch_waits_for_its_child_and_a_restarted_agent_retains_the_job() {
    let mut agent = Agent::start();
    let head =
        "periodic {\n    cron = \"@yearly\"\n    time_zone = \"Europe/Berlin\"\n    prohibit_overlap = true\n  }";
    submit(&agent, &job("report", head, "echo done", "")).ok();
    let forced = agent.cli(&["periodic", "force", "report"]).ok();
    assert_contains(&forced, &["job report/periodic-", "complete"]);
    agent.kill();
    agent.start_again();
    let shown = agent.cli(&["status", "report"]).ok();
    assert_contains(
        &shown,
        &["@yearly (Europe/Berlin)", "overlap", "next launch", "last launch", "0 running, 1 retained"],
    );
    agent.cli(&["stop", "report"]).ok();
    agent.stop();
}
