//! What is known of a task that failed: its reason in words, and the last lines that it wrote, also after its alloc is
//! collected.

use std::time::Duration;

use crate::common::{Agent, AgentOptions, assert_contains, patience, wait_for};

fn job(name: &str, kind: &str, restarts: u32, script: &str) -> String {
    format!(
        "job \"{name}\" {{\n type = \"{kind}\"\n group \"g\" {{\n reschedule {{\n attempts = 0\n unlimited = false\n }}\n restart {{\n \
         attempts = {restarts}\n delay = \"1h\"\n interval = \"24h\"\n mode = \"fail\"\n }}\n task \"t\" {{\n driver = \"raw_exec\"\n config {{\n \
         command = \"/bin/sh\"\n args = [\"-c\", {script:?}]\n }}\n }}\n }}\n}}\n"
    )
}

fn run(agent: &Agent, job: &str) -> crate::common::Cli {
    let file = agent.scratch().join("job.hcl");
    std::fs::write(&file, job).expect("a job file can be written");
    agent.cli(&["run", file.to_str().expect("a path of ours is UTF-8")])
}

/// Promise (Devices): The last lines of stderr of a failed attempt are durable with its end, bounded, also after its
/// alloc is collected
/// Promise (Devices): Last output stays off plain TCP: in allocs, history and task rows
#[test]
fn last_output_of_a_failed_task_outlives_its_collection_and_is_absent_on_plain_tcp() {
    let env = [("ALLOSTAT_RETENTION", "0s"), ("ALLOSTAT_RETENTION_MAX", "0s")];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let mut agent = Agent::with(AgentOptions { env, ..AgentOptions::default() });
    let script = "i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo line $i >&2; done; printf '\\033[31mSECRET-WORD\\033[0m\\n' >&2; exit 3";
    let failed = run(&agent, &job("bad", "batch", 0, script));
    assert_eq!(failed.code, Some(3), "{}", failed.stderr);
    assert_contains(&failed.stdout, &["last lines of stderr of t:", "  line 40\n", "  SECRET-WORD\n"]);
    assert!(!failed.stdout.contains("  line 21\n") && failed.stdout.contains("  line 22\n"), "{}", failed.stdout);
    let good = run(&agent, &job("good", "batch", 0, "echo SECRET-OF-SUCCESS >&2"));
    assert!(!good.clone().ok().contains("SECRET-OF-SUCCESS"), "{}", good.stdout);
    let id = agent.json("/v1/allocs")["allocs"][0]["id"].as_str().expect("an id").to_owned();

    for again in [false, true] {
        if again {
            agent.kill();
            agent.start_again();
        }
        assert_contains(&agent.cli(&["status", "bad"]).ok(), &["exit 3", "  line 40\n", "  SECRET-WORD\n"]);
        let own = agent.json(&format!("/v1/allocs/{id}"));
        let output = &own["tasks"]["t"]["last_exit"]["last_output"];
        assert!(output["text"].as_str().is_some_and(|text| text.ends_with("line 40\nSECRET-WORD")), "{own}");
        assert_eq!((&output["cut"], &own["tasks"]["t"]["exits"][0]["last_output"]), (&true.into(), output));
        assert!(!agent.json("/v1/allocs").to_string().contains("last_output"), "one alloc at a time");
        for path in [format!("/v1/allocs/{id}"), "/v1/allocs".into(), "/v1/history".into(), "/v1/tasks".into()] {
            let text = agent.get(&path).text().to_owned();
            assert!(!text.contains("SECRET") && !text.contains("last_output"), "{path}: {text}");
        }
    }

    wait_for("both to be collected", Duration::from_secs(20) * patience(), || {
        agent.cli(&["gc", "--all"]);
        agent.alloc_ids().is_empty().then_some(())
    });
    assert_contains(&agent.cli(&["history", &id]).ok(), &["exit 3", "last lines of stderr of t:", "  SECRET-WORD\n"]);
    assert!(!agent.get("/v1/history").text().contains("SECRET"), "nor after that");
    agent.stop();
}

/// Each attempt has its own, and one that wrote nothing none of the attempt before.
///
/// Promise (Devices): `restart` ends when the next attempt runs, and fails if it does not
#[test]
fn last_output_is_of_the_last_attempt_and_status_shows_a_crash_loop() {
    let agent = Agent::start();
    let marker = agent.scratch().join("ran");
    let script = format!("if [ -e {0} ]; then exit 4; fi; echo FIRST-ATTEMPT >&2; touch {0}; exit 3", marker.display());
    let id = agent.run(&job("loops", "service", 3, &script)).trim().to_owned();
    let task = || agent.json(&format!("/v1/allocs/{id}"))["tasks"]["t"].clone();
    let limit = Duration::from_secs(20) * patience();
    let first = wait_for("its first end", limit, || Some(task()).filter(|task| task["state"] == "backoff"));
    assert_eq!(first["last_exit"]["last_output"]["text"], "FIRST-ATTEMPT", "{first}");
    assert_contains(&agent.cli(&["status"]).ok(), &["loops.g[0]", "exit 3, next in "]);
    let again = agent.cli(&["restart", "--all", &id]);
    let second = wait_for("its second end", limit, || {
        Some(task()).filter(|task| task["attempt"] == 2 && task["state"] == "backoff")
    });
    assert!(second["last_exit"].get("last_output").is_none(), "{second}");
    assert!(!second.to_string().contains("FIRST-ATTEMPT"), "one at a time: {second}");
    // The second attempt runs for a moment, in which it may be seen.
    match again.code {
        Some(0) => assert_contains(&again.stdout, &["Started", "restarted 1 alloc"]),
        Some(1) => assert_contains(&again.stderr, &["does not run: exit 4", "allostat status"]),
        code => panic!("{code:?}: {again:?}"),
    }
    let listed = agent.cli(&["status"]).ok();
    assert_contains(&listed, &["exit 4, next in "]);
    agent.stop();
}

/// Promise (Devices): `top --once`, `stats` and `status` have rates from one answer of the agent
#[test]
fn status_shows_cpu_and_memory_at_once_and_top_does_not_wait_for_a_second_reading() {
    let agent = Agent::start();
    agent.run(&job("busy", "service", 0, "while :; do :; done"));
    let limit = Duration::from_secs(20) * patience();
    let answer = |path: &str| agent.json(path);
    // Two ticks have read it: what was before comes with the answer.
    wait_for("a rate", limit, || {
        let table = answer("/v1/tasks?before=1");
        let tasks = table["tasks"].as_array().expect("rows").clone();
        tasks.iter().any(|task| task["before"]["usage"][0].as_u64().is_some()).then_some(())
    });
    let shown = agent.cli(&["status"]).ok();
    let row = shown.lines().find(|line| line.contains("busy.g[0]")).unwrap_or_default().to_owned();
    let cores = row.split_whitespace().find_map(|word| word.parse::<f64>().ok());
    assert!(cores.is_some_and(|cores| cores > 0.05), "{shown}");
    let top = agent.cli(&["top", "--once"]).ok();
    let row = top.lines().find(|line| line.contains("busy")).unwrap_or_default().to_owned();
    assert!(row.split_whitespace().any(|word| word.parse::<f64>().is_ok_and(|cores| cores > 0.05)), "{top}");
    let refused = agent.get("/v1/tasks?before=1&since=0");
    assert_eq!(refused.status, 400, "{}", refused.text());
    let node = agent.cli(&["node"]).ok();
    assert_contains(&node, &["agent", " cores, ", "load", "(1m, 5m, 15m)", " in use", "available ("]);
    agent.stop();
}

#[test]
fn gc_of_allocs_with_exposed_final_series_is_one_line_with_the_time() {
    let agent = Agent::start();
    for name in ["one", "two", "three"] {
        run(&agent, &job(name, "batch", 0, "true")).ok();
    }
    // `run` returns with the end of the task; its alloc ends a moment later.
    let gc = wait_for("the end of all allocs", Duration::from_secs(20) * patience(), || {
        let gc = agent.cli(&["gc", "--all"]);
        assert_eq!(gc.code, Some(0), "{gc:?}");
        (!gc.stdout.contains("has not ended")).then_some(gc)
    });
    assert_eq!(gc.stdout.lines().count(), 1, "{}", gc.stdout);
    assert_contains(
        &gc.stdout,
        &["kept 3 allocs: scrapers have not read all final series yet; removable in ", " at the latest\n"],
    );
    let one = agent.cli(&["gc", "one"]);
    assert_eq!(one.code, Some(1), "{one:?}");
    assert_contains(&one.stdout, &["final series are still exposed", "removable in "]);
    agent.stop();
}
