//! What allocs have on the disk, with a real agent: host volumes in the roots of tasks, files of an alloc through the
//! API, disk usage.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Agent, AgentOptions, Mounted, Sample, assert_contains, is_root, patience, wait_for};

fn long() -> Duration {
    Duration::from_secs(60) * patience()
}

/// A group of one task which runs this script; `in_group` and `in_task` are lines.
fn job(kind: &str, driver: &str, script: &str, in_group: &str, in_task: &str) -> String {
    format!(
        r#"job "stored" {{
  type = "{kind}"
  group "g" {{
    restart {{
      attempts = 0
      mode     = "fail"
    }}
{in_group}
    task "t" {{
      driver = "{driver}"
      config {{
        command = "/bin/sh"
        args    = ["-c", {script:?}]
      }}
{in_task}
    }}
  }}
}}
"#
    )
}

fn volume(name: &str, more: &str) -> String {
    format!("volume \"{name}\" {{\n type = \"host\"\n source = \"{name}\"\n {more}\n}}\n")
}

fn mount(name: &str, destination: &str, more: &str) -> String {
    format!("volume_mount {{\n volume = \"{name}\"\n destination = \"{destination}\"\n {more}\n}}\n")
}

fn agent(volumes: &[String]) -> Agent {
    let config = format!("node {{\n  host_volumes = {volumes:?}\n}}\n");
    Agent::with(AgentOptions { config, ..AgentOptions::default() })
}

fn directory(top: &Path, name: &str) -> PathBuf {
    let path = top.join(name);
    std::fs::create_dir(&path).expect("a directory of the test's own");
    // Tasks of other users write there.
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).expect("its mode");
    path
}

fn ended(agent: &Agent) -> Value {
    wait_for("the alloc to end", long(), || {
        let id = agent.alloc_ids().pop()?;
        let alloc = agent.json(&format!("/v1/allocs/{id}"));
        (!alloc["finished_at"].is_null()).then_some(alloc)
    })
}

fn output(agent: &Agent) -> String {
    let id = agent.alloc_ids().pop().expect("one alloc");
    agent.cli(&["logs", &id]).stdout
}

/// Promise (Input validation): `exec` and `docker` tasks mount host volumes, read-only where settings, group or task
/// request it
#[test]
fn exec_task_mounts_host_volumes_and_read_only_ones_are_unchanged() {
    if !is_root() {
        skip_test!("not-root");
    }
    let top = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(top.path(), PermissionsExt::from_mode(0o755)).expect("its mode");
    let (data, certs) = (directory(top.path(), "data"), directory(top.path(), "certs"));
    std::fs::write(certs.join("ca"), "authority\n").expect("a file");
    let agent = agent(&[format!("data={}", data.display()), format!("certs={}:ro", certs.display())]);
    let script = "cat /certs/ca; echo written > /vol/t/out; for d in /certs /apart /alloc/in; do \
                  (echo x > $d/no) 2>/dev/null && echo wrote $d || echo refused $d; done";
    let group = [volume("data", ""), volume("certs", "read_only = true")].concat();
    let mounts = [
        mount("data", "/vol/${NOMAD_TASK_NAME}", ""),
        mount("certs", "certs", ""),
        mount("data", "/apart", "read_only = true"),
        mount("data", "/alloc/in", "read_only = true"),
    ]
    .concat();
    agent.run(&job("batch", "exec", script, &group, &mounts));
    let alloc = ended(&agent);
    assert_eq!(alloc["status"], "complete", "{alloc}");
    assert_eq!(output(&agent), "authority\nrefused /certs\nrefused /apart\nrefused /alloc/in\n");
    assert_eq!(std::fs::read_to_string(data.join("out")).expect("it was written"), "written\n");
    assert!(!data.join("no").exists() && !certs.join("no").exists());
    let node = agent.cli(&["node"]).ok();
    assert_contains(&node, &["HOST VOLUME", "certs", "read-only", data.to_str().expect("UTF-8")]);
    let answer = agent.get("/v1/node");
    let public = answer.text();
    assert!(public.contains("\"certs\"") && !public.contains(data.to_str().expect("UTF-8")), "{public}");
    agent.stop();
    assert!(data.join("out").exists(), "a volume outlives its allocs");
}

/// Promise (Input validation): A mount propagates by its `propagation_mode`
#[test]
fn late_host_mounts_reach_only_volume_mounts_with_propagation() {
    if !is_root() {
        skip_test!("not-root");
    }
    let top = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(top.path(), PermissionsExt::from_mode(0o755)).expect("its mode");
    let shared = directory(top.path(), "shared");
    let outer = Mounted::tmpfs(&shared).expect("root can mount: the driver exec needs it too");
    let late = directory(&shared, "late");
    let agent = agent(&[format!("data={}", shared.display())]);
    let script = "echo ready; until test -e /follows/late/file; do sleep 0.1; done; \
                  test -e /apart/late/file && echo leaked || echo apart";
    let mounts =
        [mount("data", "/follows", "propagation_mode = \"host-to-task\""), mount("data", "/apart", "")].concat();
    agent.run(&job("batch", "exec", script, &volume("data", ""), &mounts));
    wait_for("the task to be ready", long(), || {
        (!agent.alloc_ids().is_empty() && output(&agent).contains("ready")).then_some(())
    });
    let inner = Mounted::tmpfs(&late).expect("a second one");
    std::fs::write(late.join("file"), "").expect("a file");
    let alloc = ended(&agent);
    assert_eq!(output(&agent), "ready\napart\n", "{alloc}");
    agent.stop();
    drop(inner);
    drop(outer);
}

/// Promise (Input validation): An alloc waits for a host volume that this node does not declare; `run` and `plan` name
/// both and exit with 1
#[test]
fn missing_volume_waits_and_is_named_and_settings_place_it() {
    let top = tempfile::tempdir().expect("a directory");
    let data = directory(top.path(), "data");
    let mut agent = agent(&[format!("other={}:ro", data.display())]);
    let file = agent.scratch().join("job.hcl");
    let expected = job("service", "raw_exec", "sleep 600", &volume("data", ""), "");
    std::fs::write(&file, &expected).expect("a file");
    let file = file.to_str().expect("UTF-8").to_owned();
    let why = "volume data of group g: this node has no host volume \"data\"; it has other (node.host_volumes)";
    for command in [&["plan", &file][..], &["run", &file]] {
        let answer = agent.cli(command);
        assert_eq!(answer.code, Some(1), "{command:?}: {}", answer.stderr);
        assert!(answer.stderr.contains(why), "{command:?}: {}", answer.stderr);
    }
    let id = agent.alloc_ids().pop().expect("it waits");
    wait_for("its reason", long(), || {
        (agent.json(&format!("/v1/allocs/{id}"))["not_placed"][0]["reason"] == "host_volume").then_some(())
    });
    // What is read-only here is not for those that write.
    let written = expected.replace("\"data\"", "\"other\"");
    std::fs::write(&file, written).expect("a file");
    let answer = agent.cli(&["plan", &file]);
    assert_contains(&answer.stderr, &["host volume \"other\" is read-only on this node"]);
    agent.terminate();
    agent.configure(&format!("node {{\n  host_volumes = [\"data={}\"]\n}}\n", data.display()));
    agent.start_again();
    wait_for("its place", long(), || (agent.json(&format!("/v1/allocs/{id}"))["status"] == "running").then_some(()));
    agent.stop();
}

#[test]
fn raw_exec_task_with_a_mount_is_warned_of_and_fails_to_start() {
    let top = tempfile::tempdir().expect("a directory");
    let data = directory(top.path(), "data");
    let agent = agent(&[format!("data={}", data.display())]);
    let file = agent.scratch().join("job.hcl");
    std::fs::write(&file, job("batch", "raw_exec", "true", &volume("data", ""), &mount("data", "/data", "")))
        .expect("a file");
    let run = agent.cli(&["run", "--detach", file.to_str().expect("UTF-8")]);
    assert_contains(&run.stderr, &["warning", "volume_mount", "driver raw_exec does not support host volumes"]);
    let alloc = ended(&agent);
    assert_eq!(alloc["status"], "failed", "{alloc}");
    let events = agent.cli(&["events", alloc["id"].as_str().expect("an id")]).ok();
    assert_contains(&events, &["task driver \"raw_exec\" for \"t\" does not support host volumes"]);
    agent.stop();
}

#[test]
fn agent_refuses_a_host_volume_that_is_not_there() {
    let mut agent = Agent::to_start(AgentOptions {
        config: "node {\n  host_volumes = [\"data=/no/such/volume\"]\n}\n".to_owned(),
        ..AgentOptions::default()
    });
    agent.begin();
    let status = agent.ends();
    assert_eq!(status.code(), Some(73), "{}", agent.log());
    assert_contains(&agent.log(), &["node.host_volumes", "/no/such/volume"]);
}

/// Promise (Input validation): `fs` reads nothing outside of an alloc's directory and no secrets, whatever a task links
/// or swaps
#[test]
fn files_of_an_alloc_are_listed_and_read_but_its_secrets() {
    let agent = Agent::start();
    let script = "printf 'line\\n%.0s' 1 2 3 > local/file; echo SECRET > secrets/token; ln -s ../secrets/token local/hidden; \
                  ln -s /etc/passwd local/out; ln -s file local/link; mkfifo local/fifo; mv secrets/token local/../secrets/t; \
                  head -c 3000000 /dev/zero | tr '\\0' x > ../alloc/data/large";
    agent.run(&job("batch", "raw_exec", script, "", ""));
    let alloc = ended(&agent);
    assert_eq!(alloc["status"], "complete", "{alloc}");
    let fs = |action: &str, path: &str| agent.cli(&["fs", action, "stored", path]);
    let top = fs("ls", "/").ok();
    assert!(top.contains("alloc/") && top.contains("t/"), "{top}");
    let task = fs("ls", "t").ok();
    assert!(task.contains("local/") && !task.contains("secrets") && !task.contains("private"), "{task}");
    assert_eq!(fs("cat", "t/local/file").ok(), "line\nline\nline\n");
    assert_eq!(fs("cat", "t/local/link").ok(), "line\nline\nline\n");
    assert_eq!(fs("cat", "alloc/data/large").ok(), "x".repeat(3_000_000));
    assert_contains(&fs("stat", "t/local/link").ok(), &["/t/local/file", "15 B"]);
    for hidden in ["t/secrets/t", "t/local/hidden", "t/local/out", "t/local/../secrets/t", "../..", "t/private"] {
        for action in ["cat", "stat", "ls"] {
            let refused = fs(action, hidden);
            assert!(!refused.stdout.contains("SECRET") && !refused.stdout.contains("root:"), "{hidden}");
            assert!(matches!(refused.code, Some(77 | 66)), "{action} {hidden}: {refused:?}");
        }
    }
    assert_eq!(fs("cat", "t/local/fifo").code, Some(1), "at once");
    assert_eq!(fs("cat", "t/local/none").code, Some(66));
    let part = agent.try_get(&format!(
        "/v1/allocs/{}/fs/cat?path=t/local/file&offset=5&limit=4",
        alloc["id"].as_str().expect("an id")
    ));
    assert_eq!(part.expect("an answer").text(), "line");
    let id = alloc["id"].as_str().expect("an id");
    for what in ["ls", "stat", "cat"] {
        assert_eq!(agent.get(&format!("/v1/allocs/{id}/fs/{what}?path=t/local/file")).status, 403, "{what} over TCP");
    }
    agent.stop();
}

/// Promise (Input validation): The disk usage of each alloc is measured, links and holes not counted; unmeasured is
/// absent
#[test]
fn disk_usage_of_an_alloc_is_exported_beside_its_size() {
    let agent = Agent::start();
    let top = tempfile::tempdir().expect("a directory");
    std::fs::write(top.path().join("big"), vec![1; 64 << 20]).expect("a file");
    let script = format!(
        "head -c 20971520 /dev/urandom > local/big; ln -s {} local/way; truncate -s 1T local/hole; sleep 600",
        top.path().display()
    );
    agent.run(&job("service", "raw_exec", &script, "ephemeral_disk {\n size = \"128\"\n}", ""));
    let id = agent.alloc_ids().pop().expect("one alloc");
    let value = |family: &str| agent.metrics().one(family, &[("alloc_id", &id)]).map(Sample::f64);
    let used = wait_for("its disk usage", long() * 2, || {
        value("allostat_alloc_disk_used_bytes").filter(|used| *used >= 20_971_520.0)
    });
    assert!(used < 24_000_000.0, "neither links nor holes: {used}");
    assert_eq!(value("allostat_alloc_disk_size_bytes"), Some(134_217_728.0));
    agent.cli(&["stop", &id]).ok();
    wait_for("its size to go with it", long(), || value("allostat_alloc_disk_size_bytes").is_none().then_some(()));
    agent.stop();
}

#[test]
fn file_answers_never_have_secrets_while_a_task_swaps_its_paths() {
    let agent = Agent::start();
    let script = "mkdir local/a; echo inside > local/a/f; echo SECRET > secrets/f; ln -s ../secrets local/b; echo ready; \
                  while :; do mv -T local/a local/x; mv -T local/b local/a; mv -T local/x local/b; done";
    agent.run(&job("service", "raw_exec", script, "", ""));
    wait_for("the racer", long(), || (!agent.alloc_ids().is_empty() && output(&agent).contains("ready")).then_some(()));
    let id = agent.alloc_ids().pop().expect("one alloc");
    let outside = agent.scratch().join("outside");
    std::fs::write(&outside, "SECRET").expect("a file");
    let _ = symlink(&outside, agent.data_dir().join("alloc").join(&id).join("t/local/c"));
    let (started_at, mut read) = (Instant::now(), 0);
    // A racer that is alone on its processor may swap faster than files are read.
    while started_at.elapsed() < Duration::from_secs(5) || (read <= 10 && started_at.elapsed() < long()) {
        for path in ["t/local/a/f", "t/local/b/f", "t/local/c"] {
            let answer = agent.try_get(&format!("/v1/allocs/{id}/fs/cat?path={path}")).expect("an answer");
            assert!(!answer.text().contains("SECRET"), "{path}: {}", answer.text());
            read += usize::from(answer.status == 200);
        }
    }
    assert!(read > 10, "{read} files were read");
    agent.stop();
}
