//! Containers of a real Docker under an agent that knows nothing of them before: how soon each is measured and has its name, and whether those
//! of a blink have the peak that they reached and the end that Docker tells.
//!
//! Somebody asks all the while, as `allostat top` does.

#[path = "../tests/common/mod.rs"]
mod common;
mod shared;

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use common::{Agent, Docker, is_root, program, wait_for};
use shared::{median, report};

const MANY: usize = 20;
const LONG: Duration = Duration::from_secs(120);
const MIB: u64 = 1 << 20;

fn main() {
    if !is_root() {
        println!("containers need root");
        return;
    }
    let Some(docker) = Docker::start() else {
        println!("Docker is missing: cargo xtask bench gets it");
        return;
    };
    let agent = Agent::with(docker.observed("docker"));
    found(&docker, &agent);
    short(&docker, &agent);
    agent.stop();
}

/// One after the other, not in step with ticks.
fn found(docker: &Docker, agent: &Agent) {
    let (mut measured, mut named): (Vec<f64>, Vec<f64>) = (0..MANY).map(|n| until_found(docker, agent, n)).unzip();
    let since = "from the first word of its process";
    report("containers/measured-p50", median(&mut measured), &format!("ms, {since} to its shown usage"), None);
    report("containers/measured", measured[MANY - 1], "ms, the slowest of 20", None);
    report("containers/named-p50", median(&mut named), &format!("ms, {since} to its shown name"), None);
    report("containers/named", named[MANY - 1], "ms, the slowest of 20", None);
}

/// Milliseconds until something of Docker's is measured that was not there before, and until that has the name.
fn until_found(docker: &Docker, agent: &Agent, n: usize) -> (f64, f64) {
    let before = measured_ids(agent);
    let name = format!("found-{n}");
    let mut command = docker.command(&program("docker").expect("it comes with its daemon"));
    command.args(["run", "--network=none", "--name", &name, "bb:1", "sh", "-c", "echo begun; sleep 60"]);
    let mut client = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it must start");
    let mut said = BufReader::new(client.stdout.take().expect("piped")).lines();
    assert_eq!(said.next().expect("a word").expect("text"), "begun");
    let began = Instant::now();
    let id = format!("docker:{name}");
    let (mut measured, mut named) = (None, None);
    wait_for("its values and its name", LONG, || {
        let (now, at) = (measured_ids(agent), began.elapsed().as_secs_f64() * 1e3);
        measured = measured.or_else(|| now.iter().any(|id| !before.contains(id)).then_some(at));
        named = named.or_else(|| now.contains(&id).then_some(at));
        measured.zip(named)
    });
    docker.docker(&["rm", "-f", &name]);
    let _ = client.wait();
    (measured.expect("waited for"), named.expect("waited for"))
}

/// Those whose memory is shown.
fn measured_ids(agent: &Agent) -> Vec<String> {
    let all: Value = agent.json("/v1/stats");
    let allocs = all["allocs"].as_array().into_iter().flatten();
    let measured = allocs.filter(|alloc| alloc["usage"]["memory_usage_bytes"].is_u64());
    measured.filter_map(|alloc| Some(alloc["id"].as_str()?.to_owned())).collect()
}

/// Each touches 200 MiB 0.2 s after its start and ends, with a code of its own.
fn short(docker: &Docker, agent: &Agent) {
    let script =
        |n: usize| format!("sleep 0.2; dd if=/dev/zero of=/dev/null bs=200M count=1 2>/dev/null; exit {}", n % 4);
    for n in 0..MANY {
        docker.run(&["--name", &format!("short-{n}"), "bb:1", "sh", "-c", &script(n)]);
    }
    let (mut peaks, mut ends) = (0.0, 0.0);
    for n in 0..MANY {
        let name = format!("short-{n}");
        let over: Value = wait_for("its end", LONG, || {
            let over: Value = agent.json(&format!("/v1/allocs/docker:{name}"));
            Some(over).filter(|alloc| !alloc["finished_at"].is_null())
        });
        let said = docker.inspect(&name, "{{.State.ExitCode}}");
        let code = &over["tasks"][&name]["last_exit"]["status"]["code"];
        ends += f64::from(u8::from(said.parse::<u64>().is_ok_and(|said| *code == said)));
        let whose = format!("docker:{name}");
        let peak =
            agent.metrics().one("allostat_task_memory_peak_bytes", &[("alloc_id", &whose)]).map(|peak| peak.u64());
        peaks += f64::from(u8::from(peak.is_some_and(|peak| (200 * MIB..=230 * MIB).contains(&peak))));
    }
    report("containers/short-with-right-peak", peaks, "of 20 containers of 0.3 s that touch 200 MiB", None);
    report("containers/short-with-right-end", ends, "of 20, as `docker inspect` has it", None);
}
