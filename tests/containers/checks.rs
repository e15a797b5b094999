//! Script checks of containers: the engine runs them.

use super::{alloc_of, job, long, over};
use crate::common::{Agent, Docker, is_root, wait_for};

#[test]
fn script_check_of_a_container_runs_in_it_and_one_that_hangs_is_begun_once() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let agent = Agent::with(docker.driver());
    let check = |name: &str, script: &str| {
        format!(
            "check {{\n name = \"{name}\"\n type = \"script\"\n command = \"sh\"\n args = [\"-c\", \"{script}\"]\n interval = \"1s\"\n \
             timeout = \"2s\"\n }}\n"
        )
    };
    let both = [check("inside", "echo of $NOMAD_TASK_NAME; test -d /secrets"), check("hangs", "sleep 77")].concat();
    agent.run(&job("probed", "service", "sleep 1000", &format!("service {{\n{both}}}")));
    let checks = wait_for("two checks", long(), || {
        let alloc = alloc_of(&agent, "probed")?;
        let checks = alloc["checks"].as_array()?.clone();
        (checks[0]["status"] == "passing" && checks[1]["runs"].as_u64() > Some(2)).then_some(checks)
    });
    assert_eq!(checks[0]["output"], "of main");
    assert_eq!(checks[1]["status"], "critical", "{checks:?}");
    let id = alloc_of(&agent, "probed").expect("it runs")["id"].as_str().expect("an ID").to_owned();
    let running = docker.docker(&["top", &format!("main-{id}")]);
    let text = String::from_utf8_lossy(&running.stdout).into_owned();
    // A shell may stand beside it.
    assert!((1..=2).contains(&text.matches("sleep 77").count()), "{text}");
    agent.cli(&["stop", &id]).ok();
    wait_for("its end", long(), || over(&agent, "probed"));
    assert_eq!(docker.containers(), Vec::<String>::new());
    agent.stop();
}
