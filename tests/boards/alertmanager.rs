//! Alerts all the way: an agent with tasks and GPUs that fail, Prometheus with our rules, a real Alertmanager, and a webhook that listens.

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
use crate::boards::live::{job, pid_of};
use crate::common::{
    Agent, Prometheus, free_address, is_root, part, part_file, patience, test_dir, wait_for, workload,
};

/// What was told, in its order. Concurrency: one thread for each connection of the Alertmanager.
#[derive(Debug, Clone)]
struct Webhook {
    address: SocketAddr,
    told: Arc<Mutex<Vec<Value>>>,
}

impl Webhook {
    fn listen() -> Webhook {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port must be free");
        let hook = Webhook { address: listener.local_addr().expect("it is bound"), told: Arc::default() };
        let told = Arc::clone(&hook.told);
        // Ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let told = Arc::clone(&told);
                std::thread::spawn(move || serve(stream, &told));
            }
        });
        hook
    }
    fn of(&self, alert: &str, status: &str) -> Option<Value> {
        let told = self.told.lock().expect("nobody panics with it");
        told.iter().find(|one| one["labels"]["alertname"] == alert && one["status"] == status).cloned()
    }
}

/// Each request is JSON with the alerts of a group.
fn serve(stream: TcpStream, told: &Mutex<Vec<Value>>) -> Option<()> {
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
        told.lock().expect("nobody panics with it").extend(list(&message["alerts"]).iter().cloned());
        reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()?;
    }
}

/// Ended on drop.
struct Alertmanager {
    child: Child,
    address: SocketAddr,
    _directory: tempfile::TempDir,
}

/// Debian's reads its templates below /usr/share, wherever it lies itself: its own are laid over that, for itself alone.
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

/// Rules whose windows end within minutes; of these an end is waited for.
const SHORTER: [(&str, &str, &str); 5] = [
    ("TaskOomKilled", "[10m]", "[20s]"),
    ("TaskOomKilled", "offset 10m", "offset 20s"),
    ("TaskOomKilled", "< 600", "< 20"),
    ("GpuXidCritical", "< 300", "< 20"),
    ("GpuEccUncorrected", "[15m]", "[20s]"),
];

/// Our rules, but for those windows: how long after its last cause an alert ends is proven by the rule tests, in promtool's time.
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

#[test]
fn five_alerts_come_to_a_webhook_and_each_is_taken_back_when_its_cause_is_over() {
    if !is_root() {
        skip_test!("not-root");
    }
    let lays = |share: std::path::PathBuf| with_its_own_share(&share).arg("true").status().is_ok_and(|s| s.success());
    if part_file("alertmanager", "usr/share").is_some_and(|share| !lays(share)) {
        skip_test!("cannot-mount");
    }
    let webhook = Webhook::listen();
    let Some(manager) = Alertmanager::start(webhook.address) else { skip_test!("no-prometheus") };
    let mut gpus = Gpus::install();
    let agent = Agent::with(gpus.options(Selection::default().profile));
    gpus.are_mended(&agent);
    let directory = test_dir();
    let rules = [directory.path().join("allostat.yml"), root().join("alerts/recording.yml")];
    std::fs::write(&rules[0], shorter(&read(&root().join("alerts/allostat.yml")))).expect("our own directory");
    let Some(prometheus) = Prometheus::start_telling(manager.address, &[agent.address], &rules) else {
        skip_test!("no-prometheus")
    };
    prometheus.wait_value("count(allostat_build_info)", |agents| agents >= 1.0);
    agent.run(&job());
    let alloc = agent.alloc_ids().pop().expect("a job that was accepted must have an alloc");
    gpus.go_to_work(pid_of(&agent, &alloc, "throttled"), pid_of(&agent, &alloc, "steady"));
    agent.run(&failing("hopeless", 1));
    agent.run(&failing("once", 0));

    let gpu = [("index", "0"), ("model", "NVIDIA H100 80GB HBM3")];
    let expected: [(&str, &str, &Labels<'_>); 5] = [
        ("TaskOomKilled", "warning", &[("workload", "board"), ("task", "leak"), ("alloc_id", &alloc)]),
        ("TaskRestartsUsedUp", "critical", &[("workload", "hopeless")]),
        ("JobFailed", "warning", &[("workload", "once")]),
        ("GpuXidCritical", "critical", &gpu),
        ("GpuEccUncorrected", "critical", &gpu),
    ];
    for (name, severity, labels) in expected {
        let told = wait_for(name, Duration::from_secs(60) * patience(), || webhook.of(name, "firing"));
        assert_eq!(told["labels"]["severity"], severity, "{told}");
        assert_eq!(told["labels"]["instance"], json!(agent.address.to_string()), "{told}");
        for (label, value) in labels {
            assert_eq!(told["labels"][label], *value, "{told}");
        }
        assert_eq!(told["annotations"]["runbook_url"], json!(format!("docs/runbooks/{name}.md")));
        for key in ["summary", "description", "runbook"] {
            let said = text(&told["annotations"], key);
            assert!(said.len() > 20 && !said.contains("{{") && !said.contains("<no value>"), "{name}: {key}: {said}");
        }
    }
    for goes_on in ["JobFailed", "TaskRestartsUsedUp"] {
        assert!(webhook.of(goes_on, "resolved").is_none(), "{goes_on}: it has failed still");
    }

    // Submitted anew, and mended; the one that leaks is stopped; the GPU has no more errors.
    agent.run(&failing("hopeless", 1).replace("\"3\"", "\"0\""));
    agent.run(&failing("once", 0).replace("\"3\"", "\"0\""));
    agent.cli(&["stop", &alloc]).ok();
    gpus.rest();
    for (name, severity, labels) in expected {
        let told = wait_for(&format!("{name} to be taken back"), Duration::from_secs(90) * patience(), || {
            webhook.of(name, "resolved")
        });
        assert_eq!(told["labels"]["severity"], severity, "{told}");
        for (label, value) in labels {
            assert_eq!(told["labels"][label], *value, "{told}");
        }
    }
    agent.stop();
}
