//! Pictures of the boards: three agents, and one of them never answers, run real tasks for some minutes, a real
//! Prometheus scrapes them, and the page in `xtask/pictures` draws each board by Grafana's own components in a real
//! browser; the agent's page, `top` and the demo beside them. No test: `cargo xtask pictures` runs it.
//!
//! A second Prometheus scrapes the same agents under the names of twenty hosts, for the boards of many hosts: fleet,
//! lifecycle, GPUs and agents.
//!
//! ```text
//! ALLOSTAT_PICTURES          where the page and its packages are
//! ALLOSTAT_PICTURES_OUT      where pictures go
//! ALLOSTAT_PICTURES_SECONDS  so long the agents work before
//! ALLOSTAT_PICTURES_HOLD     set: everything runs on until a line comes on standard input; what draws again is printed
//! ALLOSTAT_PICTURES_HOSTS    so many hosts has the fleet
//! ```

#[path = "../common/mod.rs"]
mod common;
#[path = "../boards/gpus.rs"]
mod gpus;
mod jobs;
mod sink;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use allostat::model::profile::Profile;
use serde_json::{Value, json};

use crate::common::{Agent, AgentOptions, Cgroups, Prometheus, allostat, free_address, is_root, wait_for};
use crate::gpus::Gpus;

const SCRAPED_EACH_SECONDS: u64 = 2;
/// Twenty targets have some twenty thousand series.
const FLEET_SCRAPED_EACH_SECONDS: u64 = 5;
/// Of this machine no name is on a picture.
const HOST: &str = "web-1";
const BATCH_EACH: Duration = Duration::from_secs(6);

/// What is drawn of each board, and what is empty on it because nothing here can show it.
fn pictures() -> Vec<(&'static str, Value, &'static [&'static str])> {
    vec![
        ("allostat-fleet", json!({}), &[]),
        ("allostat-host", json!({"instance": "web-1"}), &[]),
        ("allostat-allocs", json!({"alloc": "shop."}), &["Devices of the alloc", "Network"]),
        (
            "allostat-task",
            json!({"alloc": "shop.", "task": "resizer"}),
            &["Exit codes and signals", "GPU memory", "GPU utilization"],
        ),
        ("allostat-lifecycle", json!({}), &[]),
        ("allostat-gpu", json!({}), &[]),
        ("allostat-agent", json!({}), &[]),
    ]
}

fn main() -> ExitCode {
    let of = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (Some(page), Some(out)) = (of("ALLOSTAT_PICTURES"), of("ALLOSTAT_PICTURES_OUT")) else {
        eprintln!("this is run by `cargo xtask pictures`");
        return ExitCode::from(2);
    };
    assert!(is_root(), "limits and peaks are what boards are about: only root has them");
    if std::fs::read_to_string("/proc/sys/kernel/hostname").expect("Linux has it").trim() != HOST {
        return on_a_host_of_its_own();
    }
    let seconds = of("ALLOSTAT_PICTURES_SECONDS").map_or(480, |text| text.parse().expect("a number of seconds"));
    let hosts: u32 = of("ALLOSTAT_PICTURES_HOSTS").map_or(20, |text| text.parse().expect("a number of hosts"));

    let collector = sink::start();
    let mut gpus = Gpus::install();
    let observed = Cgroups::new();
    let mut web = Agent::with(AgentOptions { env: environment(Some(collector), &observed), ..AgentOptions::default() });
    let node = Agent::with(gpus.options(Profile::Full));
    gpus.clear_faults(&node);
    let silent = free_address();
    let named = [(web.address, "web-1:9740"), (node.address, "gpu-1:9740"), (silent, "web-2:9740")];
    let prometheus = Prometheus::start_named(SCRAPED_EACH_SECONDS, &named, &rules()).expect("Prometheus is there");
    prometheus.wait_value("count(allostat_build_info)", |agents| agents >= 2.0);
    let fleet = fleet_of(hosts, web.address, node.address, silent);
    let fleet = Prometheus::start_version(2, &["exemplar-storage"], &fleet).expect("Prometheus is there");
    fleet.wait_value("count(allostat_build_info)", |agents| agents >= f64::from(hosts - 1));

    println!("working for {seconds} s ...");
    let began = Instant::now();
    let mut backup = run_observed_work(&observed);
    web.run(&jobs::shop());
    web.run(&jobs::mail());
    web.run(&jobs::sync());
    web.run(&jobs::rotate());
    let closed = free_address().port();
    web.run(&jobs::services(1, web.address.port(), closed));
    node.run(&jobs::training());
    let alloc = node.alloc_ids().pop().expect("a job that was accepted must have an alloc");
    gpus.go_to_work(pid_of(&node, &alloc, "train"), pid_of(&node, &alloc, "notebook"));
    let half = Duration::from_secs(seconds / 2);
    let mut restarted = false;
    let mut next = Instant::now();
    let mut runs = 0;
    while began.elapsed() < Duration::from_secs(seconds) {
        if Instant::now() >= next {
            next += BATCH_EACH;
            runs += 1;
            web.run(&jobs::nightly());
            if runs % 4 == 0 {
                web.run(&jobs::import());
            }
            node.run(&jobs::ended_by_hand());
            stop_those_ended_by_hand(&node);
        }
        gpus.work_at(training_at(began.elapsed()));
        if !restarted && began.elapsed() > half {
            // An upgrade: tasks run on.
            web.terminate();
            web.start_again();
            web.run(&jobs::services(2, web.address.port(), closed));
            restarted = true;
        }
        std::thread::sleep(Duration::from_millis(200));
    }

    let now =
        u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis()).expect("fits");
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let board = |(stem, chosen, empty): &(&str, Value, &[&str])| {
        // The README shows one alloc, without the overview above it.
        let cut =
            (*stem == "allostat-allocs").then(|| json!({"file": root.join("docs/board.png"), "from": 26, "to": 55}));
        let (server, every) = match *stem {
            "allostat-fleet" | "allostat-lifecycle" | "allostat-gpu" | "allostat-agent" => {
                (&fleet, FLEET_SCRAPED_EACH_SECONDS)
            }
            _ => (&prometheus, SCRAPED_EACH_SECONDS),
        };
        let file = root.join("dashboards").join(format!("{stem}.json"));
        let server = format!("http://{}", server.address);
        json!({"file": file, "chosen": chosen, "empty": empty, "cut": cut, "prometheus": server, "every": every})
    };
    let page_of_the_agent = json!({
        "file": root.join("docs/page.png"), "url": format!("http://{}/", web.address), "width": 1400, "height": 690,
        "seconds": 10, "columns": ["throttled", "io"],
    });
    let requested = json!({
        "out": out, "from": now - seconds * 1000, "to": now, "boards": pictures().iter().map(board).collect::<Vec<_>>(),
        "screens": screens(&web), "pages": [page_of_the_agent],
    });
    let mut draw = Command::new("node");
    draw.arg("draw.mjs").arg(requested.to_string()).current_dir(&page);
    let drawn = draw.status().expect("node is there");
    if of("ALLOSTAT_PICTURES_HOLD").is_some() {
        println!("\nit runs on until a line comes; to draw again, in {page}:\nnode draw.mjs '{requested}'");
        let _ = std::io::stdin().read_line(&mut String::new());
    }
    let _ = backup.kill().and_then(|()| backup.wait());
    web.stop();
    node.stop();
    if drawn.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Again, where the machine has the name of the first host: in a namespace of its own.
fn on_a_host_of_its_own() -> ExitCode {
    let own = std::env::current_exe().expect("it is running");
    let mut again = Command::new("unshare");
    again.args(["--uts", "sh", "-c", "printf %s \"$0\" > /proc/sys/kernel/hostname && exec \"$1\"", HOST]).arg(own);
    let ended = again.status().expect("util-linux is there");
    if ended.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The configuration of a Prometheus that has the agents under so many names: a quarter has GPUs, one never answers.
fn fleet_of(hosts: u32, web: SocketAddr, node: SocketAddr, silent: SocketAddr) -> String {
    let quoted: Vec<String> = rules().iter().map(|file| format!("{:?}", file.display().to_string())).collect();
    let gpus = hosts / 4;
    let target = |number: u32| {
        let (address, name) = match number {
            number if number <= gpus => (node, format!("gpu-{number}")),
            number if number == hosts => (silent, format!("web-{}", number - gpus)),
            number => (web, format!("web-{}", number - gpus)),
        };
        format!("  - {{targets: [\"{address}\"], labels: {{instance: \"{name}:9740\"}}}}\n")
    };
    format!(
        "global: {{scrape_interval: {FLEET_SCRAPED_EACH_SECONDS}s, scrape_timeout: 2s, evaluation_interval: 10s}}\n\
         rule_files: [{}]\nscrape_configs:\n- job_name: allostat\n  static_configs:\n{}",
        quoted.join(", "),
        (1..=hosts).map(target).collect::<String>()
    )
}

/// Programs on terminals, beside the boards.
fn screens(agent: &Agent) -> Value {
    let program = allostat().display().to_string();
    let screen = |name: &str, command: String, rows: u32, seconds: u32| {
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
        json!({"file": file, "command": command, "columns": 132, "rows": rows, "seconds": seconds})
    };
    let top = format!("env ALLOSTAT_ADDR=unix:{} {program} top", agent.socket().display());
    json!([screen("top.png", top, 22, 8), screen("demo.png", format!("{program} demo"), 36, 25)])
}

fn rules() -> Vec<PathBuf> {
    ["allostat.yml", "recording.yml"]
        .map(|file| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("alerts").join(file))
        .into()
}

/// Of observed workloads it sees what is made here, and nothing else of this machine.
fn environment(collector: Option<SocketAddr>, observed: &Cgroups) -> Vec<(String, String)> {
    let endpoint = collector.map(|address| ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}")));
    let all = [
        ("OTEL_METRIC_EXPORT_INTERVAL", "2000".to_owned()),
        ("ALLOSTAT_CGROUP_PEAK_WINDOW_V1", "true".to_owned()),
        ("ALLOSTAT_OBSERVE", "true".to_owned()),
        ("ALLOSTAT_OBSERVE_INCLUDE", format!("cgroup:{}/*", observed.parent)),
    ];
    all.into_iter().chain(endpoint).map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A cgroup that no agent of ours has made.
fn run_observed_work(observed: &Cgroups) -> std::process::Child {
    observed.make("nightly.slice/backup");
    observed.limit("nightly.slice", 8 << 20, 1);
    let script = "while true; do head -c 8000000 /dev/urandom | gzip -1 > /dev/null; sleep 2; done";
    let child = Command::new("sh").args(["-c", script]).spawn().expect("there is a shell");
    observed.place("nightly.slice/backup", child.id());
    child
}

/// In percent: steps of half a minute, and a little less while each is checked.
fn training_at(since: Duration) -> u32 {
    let step = since.as_secs() % 30;
    if step < 24 { 88 + u32::try_from(since.as_secs() * 7 % 10).unwrap_or(0) } else { 25 }
}

fn pid_of(agent: &Agent, alloc: &str, task: &str) -> u32 {
    let pid = wait_for("its main process", Duration::from_secs(20), || {
        agent.json(&format!("/v1/allocs/{alloc}"))["tasks"][task]["main"]["pid"].as_u64()
    });
    u32::try_from(pid).expect("a pid is one")
}

fn stop_those_ended_by_hand(agent: &Agent) {
    let running =
        |alloc: &Value| (alloc["job"] == "migrate" && alloc["status"] == "running").then(|| alloc["id"].clone());
    let id = wait_for("a job to run", Duration::from_secs(20), || {
        agent.json("/v1/allocs")["allocs"].as_array().expect("a list").iter().find_map(running)
    });
    agent.cli(&["stop", id.as_str().expect("an id")]).ok();
}
