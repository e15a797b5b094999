//! Containers of a real Docker under an agent that knows nothing of them before: how soon each is measured and has its
//! name, and whether those of a blink have the peak that they reached and the end that Docker reports. Then containers
//! that an agent starts, in turn with `docker run` of the same, and what each costs the agent.
//!
//! A client asks all the while, as `allostat top` does.

#[path = "../tests/common/mod.rs"]
mod common;
mod shared;

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use common::{Agent, Docker, is_root, program, wait_for};
use shared::{cpu_per_minute, median, report, rss_bytes, submit};

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
    let agent = Agent::with(docker.driver());
    started(&docker, &agent);
    at_once(&docker, &agent);
    agent.stop();
}

/// A job of `count` allocs with a container each.
fn docker_job(name: &str, count: usize) -> String {
    format!(
        "job \"{name}\" {{\n group \"g\" {{\n count = {count}\n task \"main\" {{\n driver = \"docker\"\n config {{\n \
         image = \"bb:1\"\n network_mode = \"none\"\n command = \"sleep\"\n args = [\"3600\"]\n }}\n \
         kill_timeout = \"1s\"\n }}\n }}\n}}\n"
    )
}

fn running(agent: &Agent, job: &str) -> usize {
    let allocs = agent.json("/v1/allocs");
    let allocs = allocs["allocs"].as_array().into_iter().flatten();
    allocs.filter(|alloc| alloc["job"] == job && alloc["tasks"]["main"]["state"] == "running").count()
}

fn stop(docker: &Docker, agent: &Agent, job: &str) {
    agent.cli(&["stop", "--yes", job]).ok();
    wait_for("nothing of it to run", LONG, || (running(agent, job) == 0).then_some(()));
    docker.docker(&["container", "prune", "-f"]);
}

/// One after the other, ours and the engine's own client in turn.
fn started(docker: &Docker, agent: &Agent) {
    let (mut own, mut peer) = (Vec::new(), Vec::new());
    for n in 0..MANY {
        let name = format!("own-{n}");
        let began = Instant::now();
        docker.run(&["-d", "--name", &name, "bb:1", "sleep", "3600"]);
        peer.push(began.elapsed().as_secs_f64() * 1e3);
        docker.docker(&["rm", "-f", &name]);
        let job = format!("started-{n}");
        let began = Instant::now();
        submit(agent, &docker_job(&job, 1));
        while running(agent, &job) == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        own.push(began.elapsed().as_secs_f64() * 1e3);
        stop(docker, agent, &job);
    }
    let (own, peer) = (median(&mut own), median(&mut peer));
    report("containers/docker-run-p50", peer, "ms: docker run -d of the same, in the same rounds", None);
    let ratio = Some((own / peer, "containers/docker-run-p50"));
    report("containers/driver-started-p50", own, "ms, from its submission to running", ratio);
}

fn at_once(docker: &Docker, agent: &Agent) {
    const AT_ONCE: usize = 100;
    let program = program("docker").expect("it comes with its daemon");
    let began = Instant::now();
    let clients: Vec<_> = (0..AT_ONCE)
        .map(|n| {
            let mut command = docker.command(&program);
            command.args(["run", "-d", "--network=none", "--name", &format!("once-{n}"), "bb:1", "sleep", "3600"]);
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it must start")
        })
        .collect();
    for mut client in clients {
        assert!(client.wait().expect("it ends").success());
    }
    let peer = began.elapsed().as_secs_f64() * 1e3;
    let names: Vec<String> = (0..AT_ONCE).map(|n| format!("once-{n}")).collect();
    docker.docker(&[vec!["rm", "-f"], names.iter().map(String::as_str).collect()].concat());
    report("containers/docker-run-100-at-once", peer, "ms, until the last client has ended", None);

    let before = rss_bytes(agent.pid());
    let began = Instant::now();
    submit(agent, &docker_job("once", AT_ONCE));
    while running(agent, "once") < AT_ONCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    let own = began.elapsed().as_secs_f64() * 1e3;
    let ratio = Some((own / peer, "containers/docker-run-100-at-once"));
    report("containers/driver-100-at-once", own, "ms, from their submission to running", ratio);
    #[allow(clippy::cast_precision_loss)] // Bytes of a process.
    let each = rss_bytes(agent.pid()).saturating_sub(before) as f64 / 1024.0 / AT_ONCE as f64;
    report("containers/driver-memory", each, "KiB of the agent for each container", None);
    #[allow(clippy::cast_precision_loss)] // A hundred.
    let cpu = cpu_per_minute(agent.pid(), Duration::from_secs(10), || {}) / AT_ONCE as f64;
    report("containers/driver-cpu", cpu, "CPU-s/min of the agent for each container, without scrapes", None);
    stop(docker, agent, "once");
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
    let mut output = BufReader::new(client.stdout.take().expect("piped")).lines();
    assert_eq!(output.next().expect("a word").expect("text"), "begun");
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
        let output = docker.inspect(&name, "{{.State.ExitCode}}");
        let code = &over["tasks"][&name]["last_exit"]["status"]["code"];
        ends += f64::from(u8::from(output.parse::<u64>().is_ok_and(|reported| *code == reported)));
        let owner = format!("docker:{name}");
        let peak =
            agent.metrics().one("allostat_task_memory_peak_bytes", &[("alloc_id", &owner)]).map(|peak| peak.u64());
        peaks += f64::from(u8::from(peak.is_some_and(|peak| (200 * MIB..=230 * MIB).contains(&peak))));
    }
    report("containers/short-with-right-peak", peaks, "of 20 containers of 0.3 s that touch 200 MiB", None);
    report("containers/short-with-right-end", ends, "of 20, as `docker inspect` has it", None);
}
