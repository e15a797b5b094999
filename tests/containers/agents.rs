//! Containers and agents that die: they are found again with all that they said.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use super::{alloc_of, job, logs, long, over};
use crate::common::{Agent, Docker, Random, how_many, is_root, wait_for};

/// Promise (Durability and recovery): A container outlives its agent; no line of its output is lost or repeated
#[test]
fn a_container_outlives_its_agent_and_no_line_of_its_output_is_lost_or_comes_twice() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let mut agent = Agent::with(docker.driver());
    let script =
        "i=0; while [ ! -e /local/end ]; do i=$((i+1)); echo line $i; busybox usleep 10000; done; echo last $i; exit 5";
    agent.run(&job("talks", "batch", script, ""));
    let alloc = wait_for("its first line", long(), || {
        alloc_of(&agent, "talks").filter(|alloc| logs(&agent, alloc).contains("line 3"))
    });
    let id = alloc["id"].as_str().unwrap().to_owned();
    let started = docker.inspect(&format!("main-{id}"), "{{.State.StartedAt}}");
    let lines = |agent: &Agent| logs(agent, &alloc).lines().count();
    for _ in 0..4 {
        agent.kill();
        let before = lines(&agent);
        agent.start_again();
        wait_for("more lines", long(), || (lines(&agent) > before + 5).then_some(()));
    }
    assert_eq!(docker.inspect(&format!("main-{id}"), "{{.State.StartedAt}}"), started, "it was never started twice");
    // It ends while no agent is there.
    agent.kill();
    std::fs::write(agent.data_dir().join("alloc").join(&id).join("main/local/end"), "").unwrap();
    wait_for("the container to end", long(), || {
        (docker.inspect(&format!("main-{id}"), "{{.State.Status}}") == "exited").then_some(())
    });
    agent.start_again();
    let alloc = wait_for("its end", long(), || over(&agent, "talks"));
    assert_eq!(alloc["tasks"]["main"]["last_exit"]["status"]["code"], 5, "{alloc}");
    let output = logs(&agent, &alloc);
    let numbers: Vec<u64> = output.lines().filter_map(|line| line.strip_prefix("line ")?.parse().ok()).collect();
    let last: u64 = output.lines().find_map(|line| line.strip_prefix("last ")?.parse().ok()).expect("its last line");
    assert_eq!(numbers, (1..=last).collect::<Vec<_>>());
    assert_eq!(docker.containers(), Vec::<String>::new());
    agent.stop();
}

/// Promise (Durability and recovery): A container without a record is ended; one of another owner is left alone
#[test]
fn a_container_that_no_record_names_is_ended_by_the_next_agent() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let mut agent = Agent::with(docker.driver());
    agent.run(&job("lost", "service", "sleep 1000", ""));
    wait_for("the container", long(), || {
        alloc_of(&agent, "lost").filter(|alloc| alloc["tasks"]["main"]["state"] == "running")
    });
    agent.kill();
    std::fs::remove_dir_all(agent.data_dir().join("state")).unwrap();
    // A container of another owner is left alone.
    docker.run(&["-d", "--name", "other", "bb:1", "sleep", "1000"]);
    agent.start_again();
    wait_for("its end", long(), || (docker.containers().len() == 1).then_some(()));
    assert_eq!(docker.inspect("other", "{{.State.Running}}"), "true");
    agent.wait_without_cgroups(long());
    agent.stop();
}

/// Services go on as they are, batch jobs end as they would have, and nothing is started twice or left.
///
/// Promise (Durability and recovery): Agents killed at random moments lose no container and start none twice
#[test]
fn agents_killed_at_random_moments_lose_no_container_and_start_none_twice() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let (mut random, seed) = Random::seeded();
    let mut agent = Agent::with(docker.driver());
    let count = |name: &str, kind: &str, script: &str, count: usize| {
        job(name, kind, script, "kill_timeout = \"1s\"")
            .replace("group \"g\" {", &format!("group \"g\" {{\n count = {count}"))
    };
    agent.run(&count("stays", "service", "echo up; sleep 1000", 3));
    let of_job = |agent: &Agent, job: &str| -> Vec<Value> {
        let allocs = agent.json("/v1/allocs");
        let of_job = |alloc: &&Value| alloc["job"] == job;
        allocs["allocs"].as_array().expect("a list").iter().filter(of_job).cloned().collect()
    };
    let stay = wait_for("the services", long(), || {
        let all = of_job(&agent, "stays");
        (all.len() == 3 && all.iter().all(|alloc| alloc["tasks"]["main"]["state"] == "running")).then_some(all)
    });
    let names: Vec<String> =
        stay.iter().map(|alloc| format!("main-{}", alloc["id"].as_str().expect("its ID"))).collect();
    let started = || names.iter().map(|name| docker.inspect(name, "{{.State.StartedAt}}")).collect::<Vec<_>>();
    let before = started();
    let kills = how_many(4, 50);
    for kill in 0..kills {
        let script = "i=0; while [ $i -lt 20 ]; do i=$((i+1)); echo line $i; busybox usleep 20000; done; exit 7";
        agent.run(&count(&format!("ends-{kill}"), "batch", script, 2));
        std::thread::sleep(Duration::from_millis(random.below(1_500)));
        agent.kill();
        agent.start_again();
    }
    for kill in 0..kills {
        let job = format!("ends-{kill}");
        let all = wait_for("all ends", long(), || {
            let all = of_job(&agent, &job);
            let ended = all.iter().filter(|alloc| !alloc["finished_at"].is_null()).count();
            (ended == 2).then_some(all)
        });
        for alloc in all {
            let id = alloc["id"].as_str().expect("its ID");
            let alloc = agent.json(&format!("/v1/allocs/{id}"));
            let task = &alloc["tasks"]["main"];
            let ended = (&task["last_exit"]["status"]["code"], task["exits"].as_array().map(Vec::len));
            assert_eq!(ended, (&7.into(), Some(1)), "ALLOSTAT_SEED={seed}, {job}: {alloc}");
            let output = logs(&agent, &alloc);
            // A message that an agent was writing when it was killed may come twice.
            let lines: BTreeSet<&str> = output.lines().filter(|line| line.starts_with("line ")).collect();
            assert!(
                (1..=20).all(|n| lines.contains(format!("line {n}").as_str())),
                "ALLOSTAT_SEED={seed}, {job}: {output}"
            );
        }
    }
    assert_eq!(started(), before, "ALLOSTAT_SEED={seed}: a service was started twice");
    wait_for("the containers of those that ended to go", long(), || (docker.containers().len() == 3).then_some(()));
    agent.cli(&["stop", "--all"]).ok();
    wait_for("nothing to be left", long(), || docker.containers().is_empty().then_some(()));
    agent.wait_without_cgroups(long());
    agent.stop();
}

/// Promise (Durability and recovery): Thirty containers at once (100 at full size) all end, with their output, and
/// leave nothing
#[test]
fn containers_at_once_all_end_and_leave_nothing() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let agent = Agent::with(docker.driver());
    let many = how_many(30, 100);
    let count = format!("group \"g\" {{\n count = {many}");
    agent.run(&job("many", "batch", "echo done; exit 0", "").replace("group \"g\" {", &count));
    let ended = || {
        let allocs = agent.json("/v1/allocs");
        // What other tests run on this host is observed beside them.
        let all: Vec<_> = allocs["allocs"].as_array()?.iter().filter(|alloc| alloc["job"] == "many").cloned().collect();
        let complete = all.iter().filter(|alloc| alloc["status"] == "complete").count();
        (complete == many).then_some(all)
    };
    for alloc in wait_for("all ends", long(), ended) {
        assert_eq!(logs(&agent, &alloc), "done\n", "{alloc}");
    }
    wait_for("nothing to be left", long(), || docker.containers().is_empty().then_some(()));
    agent.wait_without_cgroups(long());
    agent.stop();
}
