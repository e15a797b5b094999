//! A scrape of an agent with 1,000 real tasks, beside nginx serving the same bytes from a file: one run, one load
//! generator (wrk, one connection), one after the other and twice, so that drift shows. Text 0.0.4 first, then each
//! other format as its readers ask for it, beside nginx with the bytes of that one.

#[path = "../tests/common/mod.rs"]
mod common;
mod shared;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{Agent, Response, is_root, part, wait_for};
use shared::{HOLD, cpu, end, report, start};

const TASKS: usize = 1000;
const SECONDS: u32 = 10;

/// All but the default, and how they are asked for.
const FORMATS: [(&str, &str); 3] = [
    ("text-1.0.0", "text/plain;version=1.0.0"),
    ("openmetrics", "application/openmetrics-text;version=1.0.0"),
    ("protobuf", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"),
];

fn main() {
    let (Some(nginx), Some(wrk)) = (part("nginx"), part("wrk")) else {
        println!("nginx and wrk are missing: cargo xtask bench gets them");
        return;
    };
    if !is_root() {
        println!("the agent's figures need root: cgroups");
        return;
    }
    let agent = Agent::start();
    start(&agent, TASKS, HOLD);
    let body = agent.get("/metrics").body;
    #[allow(clippy::cast_precision_loss)] // Some megabytes.
    let bytes = body.len() as f64;
    report("scrape/body", bytes, "bytes", None);

    let peer = Nginx::start(&nginx, &agent.scratch().join("nginx"), &body);
    let load = |address: SocketAddr, header: Option<&str>, pid: u32| Load::run(&wrk, address, header, pid);
    // Once each to warm up; then in turns, the better of two of each.
    load(agent.address, None, agent.pid());
    load(peer.address, None, peer.worker());
    let own = Load::better(&(0..2).map(|_| load(agent.address, None, agent.pid())).collect::<Vec<_>>());
    let peer_load = Load::better(&(0..2).map(|_| load(peer.address, None, peer.worker())).collect::<Vec<_>>());
    report("scrape/p50", own.p50_ms, "ms", Some((own.p50_ms / peer_load.p50_ms, "nginx, same bytes")));
    report("scrape/nginx-p50", peer_load.p50_ms, "ms", None);
    report("scrape/p99", own.p99_ms, "ms", Some((own.p99_ms / peer_load.p99_ms, "nginx, same bytes")));
    report("scrape/nginx-p99", peer_load.p99_ms, "ms", None);
    report("scrape/cpu", own.cpu_ms, "CPU-ms per scrape", Some((own.cpu_ms / peer_load.cpu_ms, "nginx, same bytes")));
    report("scrape/nginx-cpu", peer_load.cpu_ms, "CPU-ms per scrape", None);
    // As Prometheus asks; a loopback peer gets identity all the same.
    let gzip = load(agent.address, Some("Accept-Encoding: gzip"), agent.pid());
    report("scrape/accepting-gzip-p50", gzip.p50_ms, "ms (a loopback peer gets identity)", None);
    drop(peer);
    for (format, accept) in FORMATS {
        let requested = format!("Accept: {accept}");
        let body = as_format(&agent, accept).body;
        let peer = Nginx::start(&nginx, &agent.scratch().join(format), &body);
        let own = || load(agent.address, Some(&requested), agent.pid());
        let load_of_peer = || load(peer.address, None, peer.worker());
        let _ = (own(), load_of_peer());
        let (own, peer_load) = (Load::better(&[own(), own()]), Load::better(&[load_of_peer(), load_of_peer()]));
        let name = |what: &str| format!("scrape/{format}-{what}");
        #[allow(clippy::cast_precision_loss)] // Some megabytes.
        let bytes = body.len() as f64;
        report(&name("body"), bytes, "bytes", None);
        for (what, own, peer_cost, unit) in [
            ("p50", own.p50_ms, peer_load.p50_ms, "ms"),
            ("p99", own.p99_ms, peer_load.p99_ms, "ms"),
            ("cpu", own.cpu_ms, peer_load.cpu_ms, "CPU-ms per scrape"),
        ] {
            report(&name(what), own, unit, Some((own / peer_cost, "nginx, same bytes")));
        }
    }
    end(agent);
}

/// A body in this format, and no other.
fn as_format(agent: &Agent, accept: &str) -> Response {
    let response =
        common::tcp(agent.address, "GET", "/metrics", &[("Accept", accept)], b"").expect("the agent must answer");
    let kind = response.header("content-type").unwrap_or_default().replace(' ', "");
    assert!(response.status == 200 && kind.starts_with(accept), "{accept} was asked for, and {kind} came");
    response
}

/// What one run of wrk found.
#[derive(Clone, Copy)]
struct Load {
    p50_ms: f64,
    p99_ms: f64,
    /// CPU time of the serving process per request, its other work in these seconds included.
    cpu_ms: f64,
}

impl Load {
    fn run(wrk: &Path, address: SocketAddr, header: Option<&str>, pid: u32) -> Load {
        let before = cpu(pid);
        let mut command = Command::new(wrk);
        command.args(["-t1", "-c1", &format!("-d{SECONDS}s"), "--latency"]);
        command.args(header.iter().flat_map(|header| ["-H", header]));
        let output = command.arg(format!("http://{address}/metrics")).output().expect("wrk must start");
        let used = cpu(pid).saturating_sub(before);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!printed.contains("Non-2xx"), "{printed}");
        let requests = printed.lines().find_map(|line| line.trim().split_once(" requests in")?.0.parse::<f64>().ok());
        let requests = requests.unwrap_or_else(|| panic!("wrk said nothing of requests: {printed}"));
        let percentile = |which: &str| {
            let line = printed.lines().find_map(|line| line.trim().strip_prefix(which)).map(str::trim);
            line.and_then(milliseconds).unwrap_or_else(|| panic!("wrk said nothing of {which}: {printed}"))
        };
        Load { p50_ms: percentile("50%"), p99_ms: percentile("99%"), cpu_ms: used.as_secs_f64() * 1000.0 / requests }
    }
    fn better(runs: &[Load]) -> Load {
        let least = |of: fn(&Load) -> f64| runs.iter().map(of).fold(f64::INFINITY, f64::min);
        Load { p50_ms: least(|l| l.p50_ms), p99_ms: least(|l| l.p99_ms), cpu_ms: least(|l| l.cpu_ms) }
    }
}

/// `812.00us`, `1.02ms`, `1.20s`.
fn milliseconds(text: &str) -> Option<f64> {
    let units = [("us", 0.001), ("ms", 1.0), ("s", 1000.0)];
    units.iter().find_map(|(unit, factor)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * factor))
}

/// One worker that serves one file from memory of the page cache.
struct Nginx {
    master: Child,
    address: SocketAddr,
}

impl Nginx {
    /// In a directory of its own.
    fn start(program: &Path, dir: &Path, body: &[u8]) -> Nginx {
        fs::create_dir_all(dir.join("html")).expect("the scratch directory must be writable");
        fs::write(dir.join("html/metrics"), body).expect("the file to serve must be writable");
        let address = common::free_address();
        let at = dir.display();
        let config = format!(
            "daemon off; user root; worker_processes 1; pid {at}/pid; error_log {at}/error.log;\n\
             events {{ worker_connections 64; }}\n\
             http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000; default_type text/plain;\n\
             client_body_temp_path {at}/t1; proxy_temp_path {at}/t2; fastcgi_temp_path {at}/t3; uwsgi_temp_path {at}/t4;\n\
             scgi_temp_path {at}/t5; server {{ listen {address}; root {at}/html; }} }}\n"
        );
        fs::write(dir.join("nginx.conf"), config).expect("the configuration must be writable");
        let mut command = Command::new(program);
        command.arg("-c").arg(dir.join("nginx.conf")).args(["-e", &format!("{at}/error.log")]);
        let master = command.stdin(Stdio::null()).spawn().expect("nginx must start");
        let nginx = Nginx { master, address };
        wait_for("nginx to serve", Duration::from_secs(10), || {
            let response = common::tcp(address, "GET", "/metrics", &[], b"").ok()?;
            (response.body == body).then_some(())
        });
        nginx
    }
    /// The child of the master.
    fn worker(&self) -> u32 {
        let master = self.master.id();
        let processes = fs::read_dir("/proc").expect("/proc must be there").flatten();
        let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let parent = |pid: u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<u32>().ok()
        };
        pids.find(|pid| parent(*pid) == Some(master)).expect("nginx must have its worker")
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // SIGTERM to the master ends the worker too; SIGKILL would leave it.
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.master),
            rustix::process::Signal::TERM,
        );
        let _ = self.master.wait();
    }
}
