//! A real Prometheus, its promtool, and the OpenMetrics parser of Python's `prometheus_client`, as `cargo xtask test`
//! got them.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::ports::free_address;
use super::{http, patience, programs, wait_for};

/// A running server that scrapes its targets, each second by default. Ended on drop.
#[derive(Debug)]
pub struct Prometheus {
    child: Child,
    pub address: SocketAddr,
    dir: tempfile::TempDir,
}

impl Prometheus {
    /// `None` where there is no Prometheus: skip with `no-prometheus`. `rules` are files.
    #[track_caller]
    pub fn start(targets: &[SocketAddr], rules: &[PathBuf]) -> Option<Prometheus> {
        Prometheus::start_each(1, targets, rules)
    }

    /// One that scrapes each so many seconds.
    #[track_caller]
    pub fn start_each(seconds: u64, targets: &[SocketAddr], rules: &[PathBuf]) -> Option<Prometheus> {
        Prometheus::start_knowing(&["exemplar-storage"], seconds, targets, rules, "")
    }

    /// One that says more of how it scrapes, as YAML below the name of the job.
    #[track_caller]
    pub fn start_with(target: SocketAddr, more: &str) -> Option<Prometheus> {
        Prometheus::start_knowing(&["exemplar-storage"], 1, &[target], &[], more)
    }

    /// One that scrapes each so many seconds, and calls each target by a name of its own.
    #[track_caller]
    pub fn start_named(seconds: u64, targets: &[(SocketAddr, &str)], rules: &[PathBuf]) -> Option<Prometheus> {
        Prometheus::start_named_on(2, seconds, targets, rules)
    }

    /// The same of version 2 or 3.
    #[track_caller]
    pub fn start_named_on(
        major: u32,
        seconds: u64,
        targets: &[(SocketAddr, &str)],
        rules: &[PathBuf],
    ) -> Option<Prometheus> {
        let named = |(address, name): &(SocketAddr, &str)| {
            format!(
                "  - {{source_labels: [__address__], regex: {address:?}, target_label: instance, replacement: {name:?}}}\n",
                address = address.to_string()
            )
        };
        let more = format!("  relabel_configs:\n{}", targets.iter().map(named).collect::<String>());
        let addresses: Vec<SocketAddr> = targets.iter().map(|(address, _)| *address).collect();
        Prometheus::start_program(program_of(major)?, &["exemplar-storage"], seconds, &addresses, rules, &more)
    }

    /// One of version 2 or 3 that sends alerts to an Alertmanager.
    #[track_caller]
    pub fn start_alerting(
        major: u32,
        alertmanager: SocketAddr,
        targets: &[SocketAddr],
        rules: &[PathBuf],
    ) -> Option<Prometheus> {
        let more = format!("alerting: {{alertmanagers: [{{static_configs: [{{targets: [\"{alertmanager}\"]}}]}}]}}\n");
        Prometheus::start_program(program_of(major)?, &["exemplar-storage"], 1, targets, rules, &more)
    }

    /// One that sends on what it has. `to`: `remote_write`, as in its configuration.
    #[track_caller]
    pub fn start_writing(targets: &[SocketAddr], rules: &[PathBuf], to: &str) -> Option<Prometheus> {
        Prometheus::start_knowing(&["exemplar-storage"], 1, targets, rules, to)
    }

    /// VictoriaMetrics, which is asked by the same API; with what it scrapes, as Prometheus's own configuration.
    #[track_caller]
    pub fn start_victoria(scrape: &str) -> Option<Prometheus> {
        Some(Prometheus::victoria(programs::part("victoria-metrics")?, scrape))
    }

    /// A later one, which takes OTLP as well.
    #[track_caller]
    pub fn start_victoria_for_otlp(scrape: &str) -> Option<Prometheus> {
        Some(Prometheus::victoria(programs::part_of("victoria-metrics-otlp", "victoria-metrics")?, scrape))
    }

    /// vmalert, which evaluates rules on the series of a VictoriaMetrics, and writes alerts and recorded series back.
    /// It has Prometheus's API for rules and alerts.
    #[track_caller]
    pub fn start_vmalert(
        store: &Prometheus,
        alertmanager: Option<SocketAddr>,
        rules: &[PathBuf],
    ) -> Option<Prometheus> {
        let (dir, address) = (programs::test_dir(), free_address());
        let mut command = Command::new(programs::part_of("victoria-metrics-otlp", "vmalert")?);
        command.args(rules.iter().map(|rule| format!("-rule={}", rule.display())));
        let stores = ["datasource", "remoteWrite", "remoteRead"];
        command
            .args(stores.map(|purpose| format!("-{purpose}.url=http://{}", store.address)))
            .arg(
                alertmanager
                    .map_or_else(|| "-notifier.blackhole".to_owned(), |at| format!("-notifier.url=http://{at}")),
            )
            .arg("-evaluationInterval=1s")
            .arg("-remoteWrite.flushInterval=1s")
            // By itself it evaluates half a minute late, and takes what is five minutes old for a value of now.
            .arg("-rule.evalDelay=0s")
            .arg("-datasource.queryStep=20s")
            // The Alertmanager resolves an alert that it has not received for four times this.
            .arg("-rule.resendDelay=15s")
            .arg(format!("-httpListenAddr={address}"));
        Some(Prometheus::ready(command, address, dir, "/health"))
    }

    #[track_caller]
    fn victoria(program: PathBuf, scrape: &str) -> Prometheus {
        let (dir, address) = (programs::test_dir(), free_address());
        let config_file = dir.path().join("prometheus.yml");
        std::fs::write(&config_file, scrape).expect("the configuration must be writable");
        let mut command = Command::new(program);
        command
            .arg(format!("-promscrape.config={}", config_file.display()))
            // Rules are another program's of theirs, and a file that names some is refused otherwise.
            .arg("-promscrape.config.strictParse=false")
            .arg("-promscrape.fileSDCheckInterval=1s")
            .arg("-memory.allowedPercent=5")
            .arg(format!("-storageDataPath={}", dir.path().join("data").display()))
            .arg(format!("-httpListenAddr={address}"))
            // By itself it shows nothing of the last half minute.
            .arg("-search.latencyOffset=0s");
        Prometheus::ready(command, address, dir, "/health")
    }

    /// One that scrapes another page of theirs.
    #[track_caller]
    pub fn start_at(path: &str, targets: &[SocketAddr]) -> Option<Prometheus> {
        Prometheus::start_knowing(&["exemplar-storage"], 1, targets, &[], &format!("  metrics_path: {path}\n"))
    }

    /// The next one, 3, with features more.
    #[track_caller]
    pub fn start_next(features: &[&str], target: SocketAddr, more: &str) -> Option<Prometheus> {
        Prometheus::start_program(program_of(3)?, &[&["exemplar-storage"], features].concat(), 1, &[target], &[], more)
    }

    /// One that stores native histograms, and therefore asks for protocol buffers.
    #[track_caller]
    pub fn start_with_native_histograms(targets: &[SocketAddr]) -> Option<Prometheus> {
        Prometheus::start_knowing(&["exemplar-storage", "native-histograms"], 1, targets, &[], "")
    }

    #[track_caller]
    fn start_knowing(
        features: &[&str],
        seconds: u64,
        targets: &[SocketAddr],
        rules: &[PathBuf],
        more: &str,
    ) -> Option<Prometheus> {
        Prometheus::start_program(programs::part("prometheus")?, features, seconds, targets, rules, more)
    }

    #[track_caller]
    fn start_program(
        program: PathBuf,
        features: &[&str],
        seconds: u64,
        targets: &[SocketAddr],
        rules: &[PathBuf],
        more: &str,
    ) -> Option<Prometheus> {
        let quoted = |items: Vec<String>| items.iter().map(|i| format!("{i:?}")).collect::<Vec<_>>().join(", ");
        let config = format!(
            "global: {{scrape_interval: {seconds}s, scrape_timeout: 1s, evaluation_interval: 1s}}\nrule_files: [{}]\n\
             scrape_configs:\n- job_name: allostat\n  static_configs: [{{targets: [{}]}}]\n{more}",
            quoted(rules.iter().map(|r| r.display().to_string()).collect()),
            quoted(targets.iter().map(SocketAddr::to_string).collect()),
        );
        Some(Prometheus::start_configured(program, features, &config))
    }

    /// Version 3 or 2 with a configuration of its own.
    #[track_caller]
    pub fn start_version(major: u32, features: &[&str], config: &str) -> Option<Prometheus> {
        Some(Prometheus::start_configured(program_of(major)?, features, config))
    }

    #[track_caller]
    fn start_configured(program: PathBuf, features: &[&str], config: &str) -> Prometheus {
        let (dir, address) = (programs::test_dir(), free_address());
        let config_file = dir.path().join("prometheus.yml");
        std::fs::write(&config_file, config).expect("the configuration must be writable");
        let mut command = Command::new(program);
        command
            .arg(format!("--config.file={}", config_file.display()))
            .arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg(format!("--enable-feature={}", features.join(",")));
        Prometheus::ready(command, address, dir, "/-/ready")
    }

    /// Started, once it says at `path` that it is.
    #[track_caller]
    fn ready(mut command: Command, address: SocketAddr, dir: tempfile::TempDir, path: &str) -> Prometheus {
        let log = std::fs::File::create(dir.path().join("log")).expect("the log must be writable");
        let command =
            command.stdin(Stdio::null()).stdout(log.try_clone().expect("a descriptor must be left")).stderr(log);
        let child = command.spawn().expect("the server must start");
        let mut server = Prometheus { child, address, dir };
        wait_for("the server to be ready", Duration::from_secs(60) * patience(), || {
            if let Some(status) = server.child.try_wait().expect("our own child") {
                panic!("it ended with {status}:\n{}", server.log());
            }
            let ready = http::tcp(address, "GET", path, &[], b"").ok()?;
            (ready.status == 200).then_some(())
        });
        server
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// An instant query: `(labels, value)` of each series, `value` as Prometheus prints it.
    #[track_caller]
    pub fn query(&self, expression: &str) -> Vec<(serde_json::Value, String)> {
        let answer = self.api(&format!("/api/v1/query?query={}", encode(expression)));
        let result = answer["data"]["result"].as_array().unwrap_or_else(|| panic!("{expression}: {answer}")).clone();
        result
            .into_iter()
            .map(|series| {
                let value = series["value"][1].as_str().unwrap_or_else(|| panic!("no vector: {series}")).to_owned();
                (series["metric"].clone(), value)
            })
            .collect()
    }

    /// The one value of an expression; `None` where there is no series.
    #[track_caller]
    pub fn value(&self, expression: &str) -> Option<f64> {
        let series = self.query(expression);
        assert!(series.len() <= 1, "{expression} gives {} series: {series:?}", series.len());
        series.first().map(|(_, value)| value.parse().expect("Prometheus prints numbers"))
    }

    /// Exemplars that it stored of a series since it began: `(series, exemplar)`.
    #[track_caller]
    pub fn exemplars(&self, selector: &str) -> Vec<(serde_json::Value, serde_json::Value)> {
        let path = format!("/api/v1/query_exemplars?query={}&start=0&end=4000000000", encode(selector));
        let found = self.api(&path)["data"].as_array().expect("a list").clone();
        let of = |series: serde_json::Value| {
            let exemplars = series["exemplars"].as_array().expect("a list").clone();
            exemplars.into_iter().map(move |exemplar| (series["seriesLabels"].clone(), exemplar)).collect::<Vec<_>>()
        };
        found.into_iter().flat_map(of).collect()
    }

    /// GET of its API; an error there is the test's.
    #[track_caller]
    pub fn api(&self, path: &str) -> serde_json::Value {
        let response = http::tcp(self.address, "GET", path, &[], b"").expect("Prometheus must answer");
        let answer = response.json();
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        answer
    }

    /// Waits until the expression has a value that satisfies `check`. The first scrape takes 6 s: target discovery.
    #[track_caller]
    pub fn wait_value(&self, expression: &str, check: impl Fn(f64) -> bool) -> f64 {
        wait_for(expression, Duration::from_secs(60) * patience(), || {
            self.value(expression).filter(|value| check(*value))
        })
    }
}

fn program_of(major: u32) -> Option<PathBuf> {
    if major == 3 { programs::part_of("prometheus-3", "prometheus") } else { programs::part("prometheus") }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- Prometheus's log ---\n{}", self.log());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn encode(text: &str) -> String {
    text.bytes()
        .map(|b| match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' => char::from(b).to_string(),
            b => format!("%{b:02X}"),
        })
        .collect()
}

/// What a checking program said.
#[derive(Debug, Clone)]
pub struct Verdict {
    pub ok: bool,
    pub output: String,
}

/// `promtool`; `None` where it is missing: skip with `no-prometheus`.
#[derive(Debug)]
pub struct Promtool(PathBuf);

impl Promtool {
    pub fn find() -> Option<Promtool> {
        programs::part("promtool").map(Promtool)
    }
    #[track_caller]
    pub fn run(&self, args: &[&str], input: &[u8]) -> Verdict {
        feed(Command::new(&self.0).args(args), input)
    }
    /// `check metrics`: reads text 0.0.4.
    #[track_caller]
    pub fn check_metrics(&self, exposition: &[u8]) -> Verdict {
        self.run(&["check", "metrics"], exposition)
    }
}

/// Reads an OpenMetrics body with the parser of `prometheus_client`, which refuses what the standard refuses, and
/// prints the number of samples. `None` where it is missing: skip with `no-python`.
#[track_caller]
pub fn python_openmetrics(exposition: &[u8]) -> Option<Verdict> {
    let python = programs::part("python3")?;
    let program = "import sys\n\
                   from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse\n\
                   print(sum(len(f.samples) for f in parse(sys.stdin.buffer.read().decode())))\n";
    Some(feed(Command::new(python).args(["-c", program]), exposition))
}

/// Name and labels.
pub type NamedLabels = (String, BTreeMap<String, String>);

/// Every sample as a parser of `prometheus_client` reads it: `parser` of text, `openmetrics.parser`. `None` where it is
/// missing.
/// Errors: what it finds wrong.
#[track_caller]
pub fn python_parsed(parser: &str, exposition: &[u8]) -> Option<Result<Vec<NamedLabels>, String>> {
    let python = programs::part("python3")?;
    let program = format!(
        "import json, sys\n\
         from prometheus_client.{parser} import text_string_to_metric_families as parse\n\
         print(json.dumps([(s.name, s.labels) for f in parse(sys.stdin.buffer.read().decode()) for s in f.samples]))\n"
    );
    let verdict = feed(Command::new(python).args(["-c", &program]), exposition);
    let read = |text: &str| serde_json::from_str(text).map_err(|error| format!("{error}: {text}"));
    Some(if verdict.ok { read(&verdict.output) } else { Err(verdict.output) })
}

#[track_caller]
fn feed(command: &mut Command, input: &[u8]) -> Verdict {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
    let mut stdin = child.stdin.take().expect("piped");
    let input = input.to_vec();
    // Written from a thread: a program that answers before it has read everything must not stall us.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("our own child");
    writer.join().expect("the writer does not panic");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    Verdict { ok: output.status.success(), output: printed }
}
