//! Alerts all the way: an agent with tasks and GPUs that fail, Prometheus or vmalert with our rules, a real
//! Alertmanager, and a webhook that listens.
//!
//! Promise (Code, boards and alerts): Ten alerts reach a webhook through a real Alertmanager, with labels and texts;
//! each resolves afterwards
//! Promise (Code, boards and alerts): The same ten alerts fire and resolve on Prometheus 3, and in a store that is only
//! pushed to

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use allostat::exporters::Selection;
use serde_json::{Value, json};

use crate::boards::files::{list, read, root, text};
use crate::boards::gpus::Gpus;
use crate::boards::live::{checked, job, pid_of};
use crate::boards::pushed::{Source, pushed_to};
use crate::common::{
    Agent, Prometheus, free_address, is_root, part, part_file, patience, test_dir, wait_for, workload,
};

/// The received messages, in their order. Concurrency: one thread for each connection of the Alertmanager.
#[derive(Debug, Clone)]
struct Webhook {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Value>>>,
}

impl Webhook {
    fn listen() -> Webhook {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port must be free");
        let hook = Webhook { address: listener.local_addr().expect("it is bound"), received: Arc::default() };
        let received = Arc::clone(&hook.received);
        // Ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let received = Arc::clone(&received);
                std::thread::spawn(move || serve(stream, &received));
            }
        });
        hook
    }
    /// The first message about an alert with these labels, among others that it has.
    fn of(&self, alert: &str, status: &str, labels: &Labels<'_>) -> Option<Value> {
        let is_it = |one: &&Value| {
            let has_all = labels.iter().all(|(label, value)| one["labels"][label] == *value);
            one["labels"]["alertname"] == alert && one["status"] == status && has_all
        };
        self.received.lock().expect("no thread panics with it").iter().find(is_it).cloned()
    }
}

/// Each request is JSON with the alerts of a group.
fn serve(stream: TcpStream, received: &Mutex<Vec<Value>>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let message: Value = serde_json::from_slice(&body).expect("the Alertmanager writes JSON");
        received.lock().expect("no thread panics with it").extend(list(&message["alerts"]).iter().cloned());
        reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()?;
    }
}

/// Ended on drop.
struct Alertmanager {
    child: Child,
    address: SocketAddr,
    _directory: tempfile::TempDir,
}

/// Debian's reads its templates below /usr/share, wherever it lies itself: its own are laid over that, for itself
/// alone.
fn with_its_own_share(share: &Path) -> Command {
    const LAY: &str = r#"mount -t overlay overlay -o "lowerdir=$0:/usr/share" /usr/share && exec "$@""#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", LAY]).arg(share);
    command
}

impl Alertmanager {
    /// One that hands each alert on by itself, at once. `None`: there is none.
    fn start(webhook: SocketAddr) -> Option<Alertmanager> {
        let (program, share) = (part("prometheus-alertmanager")?, part_file("alertmanager", "usr/share")?);
        let (directory, address) = (test_dir(), free_address());
        let config = directory.path().join("alertmanager.yml");
        let text = format!(
            "route: {{receiver: hook, group_by: ['...'], group_wait: 1s, group_interval: 1s, repeat_interval: 1h}}\n\
             receivers: [{{name: hook, webhook_configs: [{{url: 'http://{webhook}/', send_resolved: true}}]}}]\n"
        );
        std::fs::write(&config, text).expect("our own directory");
        let log = std::fs::File::create(directory.path().join("log")).expect("our own directory");
        let child = with_its_own_share(&share)
            .arg(program)
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.path={}", directory.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--cluster.listen-address=")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a descriptor must be left"))
            .stderr(log)
            .spawn()
            .expect("the Alertmanager must start");
        let manager = Alertmanager { child, address, _directory: directory };
        wait_for("the Alertmanager to be ready", Duration::from_secs(60) * patience(), || {
            let ready = crate::common::tcp(address, "GET", "/-/ready", &[], b"").ok()?;
            (ready.status == 200).then_some(())
        });
        Some(manager)
    }
}

impl Drop for Alertmanager {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A job that fails for good after so many restarts.
pub fn failing(id: &str, restarts: u32) -> String {
    let command = workload().display().to_string();
    let task = format!(
        "task \"t\" {{\n driver = \"raw_exec\"\n config {{\n command = {command:?}\n args = [\"exit\", \"3\"]\n }}\n }}\n"
    );
    let restart =
        format!("restart {{\n attempts = {restarts}\n interval = \"1h\"\n delay = \"10ms\"\n mode = \"fail\"\n }}");
    format!("job {id:?} {{\n type = \"batch\"\n group \"g\" {{\n {restart}\n {task} }}\n}}\n")
}

/// Rules that wait for minutes, and windows that end within minutes; of these an end is waited for.
const SHORTER: [(&str, &str, &str); 13] = [
    ("AllostatAgentDown", "for: 5m", "for: 2s"),
    ("AllostatPushMissing", "for: 5m", "for: 2s"),
    ("CheckFailing", "for: 5m", "for: 2s"),
    ("TaskCrashLooping", "[15m]", "[30s]"),
    ("TaskCrashLooping", "for: 5m", "for: 1s"),
    ("GpuThermalThrottle", "[5m]", "[20s]"),
    ("GpuThermalThrottle", "for: 10m", "for: 1s"),
    ("TaskOomKilled", "[10m]", "[20s]"),
    ("TaskOomKilled", "offset 10m", "offset 20s"),
    ("TaskOomKilled", "< 600", "< 20"),
    ("GpuXidCritical", "< 300", "< 20"),
    ("JobUpdateFailed", "[15m]", "[30s]"),
    ("GpuEccUncorrected", "[15m]", "[20s]"),
];

/// Our rules, but for those spans: how long after its last cause an alert ends is proven by the rule tests, in
/// promtool's time.
fn shorter(text: &str) -> String {
    let mut rules: Vec<String> = text.split_inclusive("      - alert: ").map(str::to_owned).collect();
    for (name, from, to) in SHORTER {
        let rule = rules.iter_mut().find(|rule| rule.starts_with(&format!("{name}\n"))).expect(name);
        // Its expression comes first, its texts after its labels.
        let (expression, rest) = rule.split_once("        labels:\n").expect("it has labels");
        assert!(expression.contains(from), "{name} has no {from}");
        *rule = format!("{}        labels:\n{rest}", expression.replace(from, to));
    }
    rules.concat()
}

/// Names and values.
type Labels<'a> = [(&'a str, &'a str)];

fn signal(agent: &Agent, signal: &str) {
    let sent = Command::new("kill").args([signal, &agent.pid().to_string()]).status().expect("there is a kill");
    assert!(sent.success(), "{signal}");
}

/// On a telephone, and without the expression, it states what is wrong where, and what to do first.
fn is_readable(message: &Value, labels: &Labels<'_>) {
    let name = text(&message["labels"], "alertname");
    assert_eq!(message["annotations"]["runbook_url"], json!(format!("docs/runbooks/{name}.md")));
    for key in ["summary", "description", "runbook"] {
        let output = text(&message["annotations"], key);
        let is_torn = ["{{", "<no value>", "%!", "NaN", "  "].iter().any(|part| output.contains(part));
        assert!(output.len() > 20 && !is_torn && output.ends_with('.'), "{name}: {key}: {output}");
    }
    let output =
        format!("{} {}", text(&message["annotations"], "summary"), text(&message["annotations"], "description"));
    // Of what: each label that it is about, and its host.
    let host = message["labels"]["instance"].as_str().expect("an alert on a host");
    for value in labels.iter().map(|(_, value)| *value).chain([host]) {
        assert!(output.contains(value), "{name} does not name {value}: {output}");
    }
    assert!(text(&message["annotations"], "summary").len() <= 160, "{name}: {output}");
}

#[test]
fn ten_alerts_come_to_a_webhook_and_each_is_taken_back_when_its_cause_is_over() {
    if let Err(reason) = ten_alerts_fire_and_resolve(Source::Scraped(2)) {
        skip_test!(reason);
    }
}

#[test]
fn ten_alerts_on_prometheus_3_come_to_a_webhook_and_resolve() {
    if let Err(reason) = ten_alerts_fire_and_resolve(Source::Scraped(3)) {
        skip_test!(reason);
    }
}

#[test]
fn ten_alerts_on_pushed_data_come_to_a_webhook_and_resolve() {
    if let Err(reason) = ten_alerts_fire_and_resolve(Source::Pushed) {
        skip_test!(reason);
    }
}

/// Errors: why it cannot be tried here.
fn ten_alerts_fire_and_resolve(source: Source) -> Result<(), &'static str> {
    if !is_root() {
        return Err("not-root");
    }
    let lays = |share: std::path::PathBuf| with_its_own_share(&share).arg("true").status().is_ok_and(|s| s.success());
    if part_file("alertmanager", "usr/share").is_some_and(|share| !lays(share)) {
        return Err("cannot-mount");
    }
    let webhook = Webhook::listen();
    let manager = Alertmanager::start(webhook.address).ok_or("no-prometheus")?;
    let directory = test_dir();
    let rules = [directory.path().join("allostat.yml"), root().join("alerts/recording.yml")];
    std::fs::write(&rules[0], shorter(&read(&root().join("alerts/allostat.yml")))).expect("our own directory");
    let mut gpus = Gpus::install();
    let mut options = gpus.options(Selection::default().profile);
    let (store, agent) = match source {
        Source::Scraped(major) => {
            let agent = Agent::with(options);
            let started = Prometheus::start_alerting(major, manager.address, &[agent.address], &rules);
            (started.ok_or("no-prometheus")?, agent)
        }
        Source::Pushed => {
            let store = Prometheus::start_victoria_for_otlp("scrape_configs: []\n").ok_or("no-prometheus")?;
            options.config += &pushed_to(&store, "host-a");
            (store, Agent::with(options))
        }
    };
    let _vmalert = match source {
        Source::Scraped(_) => None,
        Source::Pushed => {
            Some(Prometheus::start_vmalert(&store, Some(manager.address), &rules).ok_or("no-prometheus")?)
        }
    };
    gpus.clear_faults(&agent);
    store.wait_value("count(allostat_build_info)", |agents| agents >= 1.0);
    agent.run(&job());
    let alloc = agent.alloc_ids().pop().expect("a job that was accepted must have an alloc");
    gpus.go_to_work(pid_of(&agent, &alloc, "throttled"), pid_of(&agent, &alloc, "steady"));
    agent.run(&failing("hopeless", 1));
    agent.run(&failing("once", 0));
    // Its second version is an update that fails, and its check fails all the time.
    for version in 1..=2 {
        agent.run(&checked(version));
    }

    let (host, silent) = match source {
        Source::Scraped(_) => (agent.address.to_string(), "AllostatAgentDown"),
        Source::Pushed => ("host-a".to_owned(), "AllostatPushMissing"),
    };
    let gpu = [("index", "0"), ("model", "NVIDIA H100 80GB HBM3")];
    let leak = [("workload", "board"), ("task", "leak"), ("alloc_id", &*alloc)];
    let crash = [("workload", "board"), ("task", "crash"), ("alloc_id", &*alloc)];
    let expected: [(&str, &str, &Labels<'_>); 9] = [
        ("TaskOomKilled", "warning", &leak),
        ("TaskCrashLooping", "warning", &crash),
        ("TaskRestartsUsedUp", "critical", &[("workload", "hopeless")]),
        ("JobFailed", "warning", &[("workload", "once")]),
        ("JobUpdateFailed", "warning", &[("workload", "checked")]),
        ("CheckFailing", "warning", &[("workload", "checked"), ("check", "alive")]),
        ("GpuXidCritical", "critical", &gpu),
        ("GpuEccUncorrected", "critical", &gpu),
        ("GpuThermalThrottle", "warning", &gpu),
    ];
    for (name, severity, labels) in expected {
        let message = wait_for(name, Duration::from_secs(60) * patience(), || webhook.of(name, "firing", labels));
        assert_eq!(message["labels"]["severity"], severity, "{message}");
        assert_eq!(message["labels"]["instance"], json!(host), "{message}");
        is_readable(&message, labels);
    }

    // An agent that does not answer for some scrapes, and pushes nothing: what has failed for good is not resolved.
    let its = [("instance", &*host)];
    signal(&agent, "-STOP");
    let message = wait_for(silent, Duration::from_secs(90) * patience(), || webhook.of(silent, "firing", &its));
    signal(&agent, "-CONT");
    assert_eq!(message["labels"]["severity"], "critical", "{message}");
    is_readable(&message, &its);
    wait_for(&format!("{silent} to be taken back"), Duration::from_secs(60) * patience(), || {
        webhook.of(silent, "resolved", &its)
    });
    for (goes_on, workload) in [("JobFailed", "once"), ("TaskRestartsUsedUp", "hopeless")] {
        let message = webhook.of(goes_on, "resolved", &[("workload", workload)]);
        assert_eq!(message, None, "{goes_on}: it has failed still");
    }

    // Submitted again, without the fault; those that leak, crash and are checked are stopped; the GPU has no more
    // errors.
    agent.run(&failing("hopeless", 1).replace("\"3\"", "\"0\""));
    agent.run(&failing("once", 0).replace("\"3\"", "\"0\""));
    let allocs = agent.json("/v1/allocs");
    let is_over = |of: &&Value| of["id"] == *alloc || (of["job"] == "checked" && of["status"] == "running");
    for of in list(&allocs["allocs"]).iter().filter(is_over) {
        agent.cli(&["stop", text(of, "id")]).ok();
    }
    gpus.rest();
    for (name, severity, labels) in expected {
        let message = wait_for(&format!("{name} to be taken back"), Duration::from_secs(90) * patience(), || {
            webhook.of(name, "resolved", labels)
        });
        assert_eq!(message["labels"]["severity"], severity, "{message}");
    }
    agent.stop();
    Ok(())
}
