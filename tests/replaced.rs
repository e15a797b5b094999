//! Failed allocs are rescheduled by a real agent, which may be killed at any time; what they wrote goes to their
//! replacements.

use std::time::Duration;

use serde_json::Value;

use crate::common::{Agent, patience, wait_for};

const LIMIT: Duration = Duration::from_secs(60);

/// A service that runs a script and is not restarted in its place. `group`: more of its group.
fn job(name: &str, script: &str, reschedule: &str, group: &str) -> String {
    format!(
        "job \"{name}\" {{\n group \"g\" {{\n {group}\n restart {{\n attempts = 0\n mode = \"fail\"\n }}\n reschedule {{\n {reschedule}\n \
         }}\n task \"t\" {{\n driver = \"raw_exec\"\n config {{\n command = \"/bin/sh\"\n args = [\"-c\", {script:?}]\n }}\n }}\n \
         }}\n}}\n"
    )
}
const FAST: &str = "delay = \"5s\"\n delay_function = \"constant\"\n unlimited = true";
const SLOW: &str = "delay = \"1h\"\n max_delay = \"1h\"\n unlimited = true";

/// The allocs of a job, in the order of creation.
fn allocs(agent: &Agent, job: &str) -> Vec<Value> {
    let mut all = agent.json("/v1/allocs")["allocs"].as_array().expect("a list").clone();
    all.retain(|alloc| alloc["job"] == job);
    all.sort_by_key(|alloc| alloc["reschedules"].as_u64().unwrap_or(0));
    all
}
fn run(agent: &Agent, words: &[&str], job: &str) -> String {
    let file = agent.scratch().join("job.hcl");
    std::fs::write(&file, job).expect("a job file can be written");
    agent.cli(&[words, &[file.to_str().expect("a path of ours is UTF-8")]].concat()).ok()
}
fn submit(agent: &Agent, job: &str) {
    run(agent, &["run", "--detach"], job);
}
fn failed(agent: &Agent, job: &str) -> Value {
    wait_for("it to fail", LIMIT * patience(), || {
        allocs(agent, job).into_iter().next_back().filter(|alloc| alloc["reschedule_at"].is_u64())
    })
}
fn ids(allocs: &[Value]) -> Vec<&str> {
    allocs.iter().map(|alloc| alloc["id"].as_str().expect("an ID")).collect()
}

#[test]
fn failed_alloc_is_rescheduled_once_by_an_agent_that_was_killed_during_the_delay() {
    let mut agent = Agent::start();
    // Each life leaves a line, outside of what is moved.
    let lives = agent.scratch().join("lives");
    let script =
        format!("echo $NOMAD_ALLOC_ID >>{}; [ $(wc -l <{0}) -gt 1 ] && exec sleep 600; exit 7", lives.display());
    submit(&agent, &job("falls", &script, FAST, ""));
    let first = failed(&agent, "falls");
    let due = first["reschedule_at"].as_u64().expect("a moment");
    let status = agent.cli(&["status", "falls"]).ok();
    assert!(status.contains("reschedule in ") && status.contains("(attempt 1)"), "{status}");
    for _ in 0..2 {
        agent.kill();
        agent.start_again();
    }
    let same = agent.json(&format!("/v1/allocs/{}", first["id"].as_str().expect("an ID")));
    assert!(same["reschedule_at"].as_u64().is_none_or(|at| at == due), "{same}");
    let chain = wait_for("its replacement", LIMIT * patience(), || {
        let all = allocs(&agent, "falls");
        all.last().is_some_and(|alloc| alloc["status"] == "running").then_some(all)
    });
    assert_eq!(chain.len(), 2, "{chain:?}");
    assert_eq!((&chain[0]["next_alloc"], &chain[1]["previous_alloc"]), (&chain[1]["id"], &chain[0]["id"]));
    assert_eq!((&chain[0]["name"], &chain[1]["name"]), (&"falls.g[0]".into(), &"falls.g[0]".into()));
    assert!(chain[1]["created_at"].as_u64() >= Some(due), "not before its time");
    let lived = std::fs::read_to_string(&lives).expect("both wrote");
    assert_eq!(lived.lines().collect::<Vec<_>>(), ids(&chain), "each ran once");
    let counted =
        || agent.metrics().one("allostat_workload_reschedules_total", &[("workload", "falls")]).map(|s| s.u64());
    wait_for("the counter", LIMIT * patience(), || (counted() == Some(1)).then_some(()));
    let metrics = agent.metrics();
    let removed = metrics.one("allostat_workload_failed_allocs", &[("workload", "falls"), ("reason", "other")]);
    assert_eq!(removed.map(|sample| sample.u64()), Some(0), "it has not failed for good");
    agent.cli(&["stop", "--job", "falls"]).ok();
    agent.stop();
}

#[test]
fn stop_of_a_job_with_an_alloc_due_for_rescheduling_cancels_it_over_a_kill() {
    let mut agent = Agent::start();
    submit(&agent, &job("waits", "exit 7", SLOW, ""));
    let first = failed(&agent, "waits");
    let stopped = agent.cli(&["stop", "--job", "waits"]).ok();
    assert!(stopped.contains("stopped 1 alloc"), "{stopped}");
    agent.kill();
    agent.start_again();
    let after = agent.json(&format!("/v1/allocs/{}", first["id"].as_str().expect("an ID")));
    assert_eq!((&after["reschedule_at"], &after["desired"]), (&Value::Null, &"stop".into()));
    let again = agent.cli(&["stop", "waits"]).ok();
    assert!(again.contains("had ended already"), "{again}");
    agent.stop();
}

#[test]
fn run_of_a_batch_job_waits_for_the_replacement_and_exits_with_its_result() {
    let agent = Agent::start();
    let lives = agent.scratch().join("lives");
    let script = format!("echo x >>{}; [ $(wc -l <{0}) -gt 1 ] && exit 0; exit 7", lives.display());
    let once = "attempts = 1\n interval = \"1h\"\n delay = \"5s\"\n delay_function = \"constant\"\n unlimited = false";
    let job = job("retried", &script, once, "").replacen("{\n", "{\n type = \"batch\"\n", 1);
    let text = run(&agent, &["run"], &job);
    assert!(text.contains("rescheduling in 5.0s (attempt 1)") && text.contains("complete"), "{text}");
    assert_eq!(allocs(&agent, "retried").len(), 2);
    agent.stop();
}

#[test]
fn replacement_takes_over_the_data_of_the_alloc_before_it_over_a_kill() {
    let mut agent = Agent::start();
    let sticky = "ephemeral_disk {\n sticky = true\n }";
    let script = "echo x >>local/lives; echo x >>$NOMAD_ALLOC_DIR/data/lives; [ $(wc -l <local/lives) -gt 1 ] && exec sleep 600; exit 7";
    submit(&agent, &job("keeps", script, FAST, sticky));
    failed(&agent, "keeps");
    agent.kill();
    agent.start_again();
    let lives = |alloc: &Value, path: &str| {
        let dir = agent.data_dir().join("alloc").join(alloc["id"].as_str().expect("an ID"));
        std::fs::read_to_string(dir.join(path)).map_or(0, |text| text.lines().count())
    };
    let running = |count: usize| {
        wait_for("its replacement", LIMIT * patience(), || {
            let all = agent.json("/v1/allocs")["allocs"].as_array().expect("a list").clone();
            let last = all.iter().find(|alloc| alloc["status"] == "running" && alloc["job"] == "keeps")?.clone();
            (lives(&last, "t/local/lives") == count).then_some(last)
        })
    };
    let second = running(2);
    assert_eq!(lives(&second, "alloc/data/lives"), 2);
    // A changed job too.
    submit(&agent, &job("keeps", script, FAST, sticky).replace("group", "meta {\n n = 1\n }\n group"));
    let third = running(3);
    assert_eq!((&third["previous_alloc"], lives(&third, "alloc/data/lives")), (&second["id"], 3));
    let metrics = agent.metrics();
    let moved = metrics.one("allostat_migrations_total", &[("outcome", "moved")]);
    assert_eq!(moved.map(|sample| sample.u64()), Some(2));
    agent.cli(&["stop", "--all"]).ok();
    agent.stop();
}
