//! Containers and agents that die: they are found again with all that they said.

use super::{alloc_of, job, logs, long, over};
use crate::common::{Agent, Docker, is_root, wait_for};

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
    let said = logs(&agent, &alloc);
    let numbers: Vec<u64> = said.lines().filter_map(|line| line.strip_prefix("line ")?.parse().ok()).collect();
    let last: u64 = said.lines().find_map(|line| line.strip_prefix("last ")?.parse().ok()).expect("its last line");
    assert_eq!(numbers, (1..=last).collect::<Vec<_>>());
    assert_eq!(docker.containers(), Vec::<String>::new());
    agent.stop();
}

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
    // One of somebody else is left alone.
    docker.run(&["-d", "--name", "other", "bb:1", "sleep", "1000"]);
    agent.start_again();
    wait_for("its end", long(), || (docker.containers().len() == 1).then_some(()));
    assert_eq!(docker.inspect("other", "{{.State.Running}}"), "true");
    wait_for("its cgroups to go", long(), || agent.cgroups_left().is_empty().then_some(()));
    agent.stop();
}

#[test]
fn twenty_containers_at_once_all_end_and_leave_nothing() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let agent = Agent::with(docker.driver());
    agent.run(&job("many", "batch", "echo done; exit 0", "").replace("group \"g\" {", "group \"g\" {\n count = 20"));
    let ended = || {
        let allocs = agent.json("/v1/allocs");
        // What other tests run on this host is observed beside them.
        let all: Vec<_> = allocs["allocs"].as_array()?.iter().filter(|alloc| alloc["job"] == "many").cloned().collect();
        let complete = all.iter().filter(|alloc| alloc["status"] == "complete").count();
        (complete == 20).then_some(all)
    };
    for alloc in wait_for("all ends", long(), ended) {
        assert_eq!(logs(&agent, &alloc), "done\n", "{alloc}");
    }
    assert_eq!(docker.containers(), Vec::<String>::new());
    agent.stop();
}
