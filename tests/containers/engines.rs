//! An engine that dies, hangs and comes back under running tasks.

use std::time::Duration;

use super::{alloc_of, job, logs, long, over};
use crate::common::{Agent, Docker, is_root, wait_for};

fn driver_health(agent: &Agent) -> Option<String> {
    let node = agent.json("/v1/node");
    let driver = node["drivers"].as_array()?.iter().find(|driver| driver["name"] == "docker")?;
    Some(driver["health"].as_str()?.to_owned())
}

#[test]
fn an_engine_that_is_killed_and_comes_back_loses_no_task() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(mut docker) = Docker::start() else { skip_test!("no-docker") };
    let agent = Agent::with(docker.driver());
    let again =
        job("stays", "service", "echo up; sleep 1000", "").replace("attempts = 0", "attempts = 5\n delay = \"1s\"");
    agent.run(&again);
    let running = |agent: &Agent, attempts: usize| {
        let alloc = alloc_of(agent, "stays").filter(|alloc| alloc["tasks"]["main"]["state"] == "running")?;
        (logs(agent, &alloc).matches("up\n").count() >= attempts).then_some(alloc)
    };
    wait_for("the container", long(), || running(&agent, 1));
    docker.kill();
    wait_for("the driver to be unhealthy", long(), || (driver_health(&agent)? != "healthy").then_some(()));
    // What is to start waits for it.
    agent.run(&job("waits", "batch", "exit 3", ""));
    docker.start_again();
    // An engine without live restore ends what ran; the restart policy starts it again.
    let alloc = wait_for("its second attempt", long(), || running(&agent, 2));
    assert_eq!(alloc["tasks"]["main"]["exits"].as_array().map(Vec::len), Some(1), "{alloc}");
    let waited = wait_for("the one that waited", long(), || over(&agent, "waits"));
    assert_eq!(waited["tasks"]["main"]["last_exit"]["status"]["code"], 3, "{waited}");
    assert_eq!(docker.containers().len(), 1);
    agent.stop();
    assert_eq!(docker.containers(), Vec::<String>::new());
}

#[test]
fn under_an_engine_that_hangs_a_container_is_ended_all_the_same() {
    use rustix::process::Signal;
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let agent = Agent::with(docker.driver());
    agent.run(&job("stuck", "service", "echo up; sleep 1000", "kill_timeout = \"1s\""));
    let (alloc, pid) = wait_for("the container", long(), || {
        let alloc = alloc_of(&agent, "stuck").filter(|alloc| logs(&agent, alloc).contains("up"))?;
        let pid = alloc["tasks"]["main"]["main"]["pid"].as_u64()?;
        Some((alloc, pid))
    });
    docker.signal(Signal::STOP);
    let requested = agent.request("POST", &format!("/v1/allocs/{}/stop", alloc["id"].as_str().unwrap()), "");
    assert!(requested.status < 300, "{}", requested.text());
    let removed = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        (stat.is_empty() || stat.contains(") Z")).then_some(())
    };
    wait_for("the kernel to have ended it", long() + Duration::from_secs(60), removed);
    docker.signal(Signal::CONT);
    wait_for("its end", long(), || over(&agent, "stuck"));
    wait_for("nothing to be left", long(), || docker.containers().is_empty().then_some(()));
    agent.stop();
}

#[test]
fn hanging_engine_makes_its_driver_unhealthy_and_running_containers_continue() {
    use rustix::process::Signal;
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let agent = Agent::with(docker.driver());
    agent.run(&job("stays", "service", "echo up; sleep 1000", ""));
    let alloc = wait_for("the container", long(), || {
        let alloc = alloc_of(&agent, "stays").filter(|alloc| alloc["tasks"]["main"]["state"] == "running")?;
        logs(&agent, &alloc).contains("up").then_some(alloc)
    });
    let name = format!("main-{}", alloc["id"].as_str().expect("an ID"));
    let started = docker.inspect(&name, "{{.State.StartedAt}}");
    docker.signal(Signal::STOP);
    wait_for("the driver to be unhealthy", long(), || (driver_health(&agent)? == "unhealthy").then_some(()));
    agent.run(&job("waits", "batch", "exit 3", ""));
    wait_for("the reason of its wait", long(), || {
        let alloc = alloc_of(&agent, "waits")?;
        let events = alloc["tasks"]["main"]["events"].to_string();
        events.contains("waiting for its driver docker, which is unhealthy").then_some(())
    });
    assert_eq!(alloc_of(&agent, "stays").expect("it runs")["tasks"]["main"]["state"], "running");
    docker.signal(Signal::CONT);
    wait_for("the driver to be healthy", long(), || (driver_health(&agent)? == "healthy").then_some(()));
    let waited = wait_for("the one that waited", long(), || over(&agent, "waits"));
    assert_eq!(waited["tasks"]["main"]["last_exit"]["status"]["code"], 3, "{waited}");
    let retained = alloc_of(&agent, "stays").expect("it runs");
    assert_eq!(
        (&retained["tasks"]["main"]["state"], &retained["tasks"]["main"]["attempt"]),
        (&"running".into(), &1.into())
    );
    assert_eq!(docker.inspect(&name, "{{.State.StartedAt}}"), started, "it was never started again");
    agent.stop();
    assert_eq!(docker.containers(), Vec::<String>::new());
}
