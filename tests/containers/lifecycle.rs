//! The life of a container, and what it sees and is limited by.

use serde_json::Value;

use super::{MIB, alloc_of, job, logs, long, over};
use crate::common::{Agent, Docker, Sample, is_root, wait_for};

/// Promise (Durability and recovery): A container has its limits, environment, mounts and logs, is shown once, and
/// leaves nothing behind
#[test]
fn a_container_has_its_limits_environment_mounts_and_logs_and_leaves_nothing() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let mut agent = Agent::with(docker.driver());
    let script = "busybox env; busybox id; echo shared > /alloc/data/x; echo own > /local/y; busybox grep -o '/secrets tmpfs' /proc/mounts; busybox ls -d /secrets; \
                  echo wrong >&2; sleep 1000";
    let more = "env { GREETING = \"hello ${NOMAD_TASK_NAME}\" }\n user = \"1234\"\n resources { memory = 64 }";
    agent.run(&job("seen", "service", script, more));
    let alloc = wait_for("the container to run", long(), || {
        alloc_of(&agent, "seen").filter(|alloc| alloc["tasks"]["main"]["state"] == "running")
    });
    let id = alloc["id"].as_str().unwrap().to_owned();
    let message =
        wait_for("its output", long(), || Some(logs(&agent, &alloc)).filter(|output| output.ends_with("\n/secrets\n")));
    let expected = [
        "NOMAD_ALLOC_DIR=/alloc",
        "NOMAD_TASK_DIR=/local",
        "NOMAD_SECRETS_DIR=/secrets",
        "GREETING=hello main",
        "/secrets tmpfs",
    ];
    for line in expected {
        assert!(message.lines().any(|found| found == line), "{line}: {message}");
    }
    assert!(message.contains("uid=1234 gid=0"), "{message}");
    // The agent's own environment is none of the image's.
    assert!(!message.contains("ALLOSTAT_"), "{message}");
    let own = agent.data_dir().join("alloc").join(&id);
    assert_eq!(std::fs::read_to_string(own.join("alloc/data/x")).unwrap(), "shared\n");
    assert_eq!(std::fs::read_to_string(own.join("main/local/y")).unwrap(), "own\n");
    // The two streams come from the engine on their own.
    let err = own.join("alloc/logs/main.stderr.0");
    let wrong = wait_for("what it wrote to standard error", long(), || {
        std::fs::read_to_string(&err).ok().filter(|text| !text.is_empty())
    });
    assert_eq!(wrong, "wrong\n");

    let name = format!("main-{id}");
    assert_eq!(
        docker.inspect(&name, "{{.HostConfig.Memory}} {{.HostConfig.MemorySwap}}"),
        format!("{} {}", 64 * MIB, 64 * MIB)
    );
    let labels = [("alloc_id", id.as_str())];
    let value = |family: &str| agent.metrics().one(family, &labels).map(Sample::f64);
    let limit = wait_for("its limit", long(), || value("allostat_task_memory_limit_bytes"));
    assert_eq!(limit, 67_108_864.0);
    let used = wait_for("its memory", long(), || value("allostat_task_memory_usage_bytes").filter(|used| *used > 0.0));
    assert!(used < limit);
    // It is a managed task, and no second time an observed one: not for the next agent either.
    let container = docker.inspect(&name, "{{.Id}}");
    for restarts in 0..2 {
        if restarts > 0 {
            agent.kill();
            agent.start_again();
            wait_for("the container to be recovered", long(), || {
                alloc_of(&agent, "seen").filter(|alloc| alloc["tasks"]["main"]["state"] == "running")
            });
        }
        // Once the observer shows one that started later, it has seen the other.
        let sibling = format!("sibling-{restarts}");
        docker.run(&["-d", "--name", &sibling, "bb:1", "sleep", "1000"]);
        let stranger = docker.inspect(&sibling, "{{.Id}}");
        let shows = |allocs: &Value, name: &str, id: &str| {
            let names = [format!("docker:{name}"), format!("docker:{}", &id[..12])];
            allocs["allocs"]
                .as_array()
                .unwrap()
                .iter()
                .any(|alloc| names.iter().any(|name| alloc["id"] == name.as_str()))
        };
        let allocs: Value = wait_for("the observed container", long(), || {
            Some(agent.json("/v1/allocs")).filter(|allocs| shows(allocs, &sibling, &stranger))
        });
        assert!(!shows(&allocs, &name, &container), "{allocs}");
        docker.docker(&["rm", "-f", &sibling]);
    }
    let node = agent.cli(&["node"]).ok();
    assert!(node.contains("driver.docker.version"), "{node}");

    agent.cli(&["stop", &id]).ok();
    let alloc = wait_for("its end", long(), || over(&agent, "seen"));
    let exit = &alloc["tasks"]["main"]["last_exit"];
    // A shell that waits for its child takes no notice of SIGTERM as process 1, so that it is ended by force.
    assert_eq!((&exit["outcome"], &exit["status"]["code"]), (&"killed".into(), &137.into()), "{alloc}");
    assert_eq!(docker.containers(), Vec::<String>::new());
    agent.stop();
}

#[test]
fn a_job_that_the_agent_does_not_allow_fails_with_the_name_of_the_setting() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let agent = Agent::with(docker.driver());
    let volume = job("v", "batch", "exit 0", "").replace("command ", "volumes = [\"/etc:/x\"]\n command ");
    let file = agent.scratch().join("v.hcl");
    std::fs::write(&file, &volume).unwrap();
    let checked = agent.cli(&["check", file.to_str().unwrap()]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    agent.run(&volume);
    let alloc = wait_for("its end", long(), || over(&agent, "v"));
    let events = alloc.to_string();
    assert!(events.contains("outside of the alloc directory: set docker.volumes_enabled"), "{events}");
    assert_eq!(docker.containers(), Vec::<String>::new());
    agent.stop();
}
