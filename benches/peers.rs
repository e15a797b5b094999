//! What a series costs: the CPU of the whole agent with 1,000 tasks for each 1,000 series that it exposes, beside
//! node_exporter and process-exporter, at the same time on the same machine, all three scraped each 15 s.
//!
//! They do other things: node_exporter knows the host alone and works when it is asked; process-exporter looks at every
//! process when it is asked, here each as a group of its own; the agent reads each task once a second, with or without
//! a client.

#[path = "../tests/common/mod.rs"]
mod common;
mod shared;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Agent, Exposition, free_address, is_root, part, tcp, wait_for};
use shared::{HOLD, cpu, end, report, rss_bytes, start};

const TASKS: usize = 1000;
const EACH: Duration = Duration::from_secs(15);
const SCRAPES: u32 = 8;

fn main() {
    let parts = (part("prometheus-node-exporter"), part("prometheus-process-exporter"));
    let (Some(node), Some(process)) = parts else {
        println!("node_exporter and process-exporter are missing: cargo xtask bench gets them");
        return;
    };
    if !is_root() {
        println!("the agent's figures need root: cgroups");
        return;
    }
    let agent = Agent::start();
    start(&agent, TASKS, HOLD);
    let groups = agent.scratch().join("groups.yml");
    fs::write(&groups, "process_names:\n  - name: \"{{.PID}}\"\n    cmdline:\n    - '.+'\n")
        .expect("our own directory");
    let node = Peer::start(&node, |address| vec![format!("--web.listen-address={address}")]);
    let process = Peer::start(&process, |address| {
        vec![format!("-web.listen-address={address}"), format!("-config.path={}", groups.display())]
    });
    let all = [
        ("agent", agent.address, agent.pid()),
        ("node-exporter", node.address, node.pid()),
        ("process-exporter", process.address, process.pid()),
    ];
    // The first scrapes find out what there is.
    let mut series = [0.0; 3];
    for _ in 0..2 {
        for (count, (_, address, _)) in series.iter_mut().zip(all) {
            *count = scrape(address);
        }
        std::thread::sleep(EACH);
    }
    let (began, before) = (Instant::now(), all.map(|(.., pid)| cpu(pid)));
    for turn in 0..SCRAPES {
        std::thread::sleep((EACH * turn).saturating_sub(began.elapsed()));
        for (_, address, _) in all {
            let _ = scrape(address);
        }
    }
    std::thread::sleep((EACH * SCRAPES).saturating_sub(began.elapsed()));
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    let mut each = [0.0; 3];
    for (at, (name, _, pid)) in all.iter().enumerate() {
        let used = cpu(*pid).saturating_sub(before[at]).as_secs_f64() / minutes;
        each[at] = used * 1000.0 / (series[at] / 1000.0);
        report(&format!("peers/{name}-series"), series[at], "series", None);
        report(&format!("peers/{name}-cpu"), used, "CPU-s/min", None);
        #[allow(clippy::cast_precision_loss)] // Some tens of MiB.
        report(&format!("peers/{name}-rss"), rss_bytes(*pid) as f64 / f64::from(1 << 20), "MiB", None);
    }
    report("peers/node-exporter", each[1], "CPU-ms/min for each 1,000 series", None);
    report("peers/process-exporter", each[2], "CPU-ms/min for each 1,000 series", None);
    report(
        "peers/beside-node-exporter",
        each[0],
        "CPU-ms/min for each 1,000 series",
        Some((each[0] / each[1], "peers/node-exporter")),
    );
    report(
        "peers/beside-process-exporter",
        each[0],
        "CPU-ms/min for each 1,000 series",
        Some((each[0] / each[2], "peers/process-exporter")),
    );
    drop((node, process));
    end(agent);
}

/// How many series there are.
#[allow(clippy::cast_precision_loss)] // Some hundred thousands.
fn scrape(address: SocketAddr) -> f64 {
    let response = tcp(address, "GET", "/metrics", &[("User-Agent", "bench")], b"").expect("it must answer");
    assert_eq!(response.status, 200);
    Exposition::parse(response.text()).samples.len() as f64
}

/// Another exporter. Its script gives way to it, so that the child is the program.
struct Peer {
    child: Child,
    address: SocketAddr,
}

impl Peer {
    fn start(program: &Path, args: impl Fn(SocketAddr) -> Vec<String>) -> Peer {
        let address = free_address();
        let mut command = Command::new(program);
        command.args(args(address)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let peer = Peer { child: command.spawn().expect("it must start"), address };
        wait_for("it to serve", Duration::from_secs(20), || tcp(address, "GET", "/metrics", &[], b"").ok());
        peer
    }
    fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
