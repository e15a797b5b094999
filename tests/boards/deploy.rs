//! Files in deploy/ for other programs, checked by what defines their format: Kubernetes by its types, Nomad's job by
//! the agent's parser, the collector by its rule that pipelines name existing components. And the arithmetic of
//! docs/fleet.md, by the figures of docs/profiles.md.
//!
//! Promise (Code, boards and alerts): The DaemonSet, the Nomad job, the collector and Prometheus's configurations are
//! valid for their programs

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use allostat::exporters::catalogue::CATALOGUE;
use allostat::model::job::JobKind;
use allostat::model::service::ServicePort;
use serde_json::Value;

use crate::boards::files::{boards, list, read, root, text};
use crate::boards::schema::{compiled, packages};
use crate::common::{golden_part, test_dir};

/// Where the type of a kind is.
const KINDS: [(&str, &str, &str); 2] = [("Namespace", "v1", "core/v1"), ("DaemonSet", "apps/v1", "apps/v1")];

/// The documents of a file, by the package `yaml`.
pub fn documents(packages: &Path, file: &str) -> Vec<Value> {
    const READ: &str = "const { parseAllDocuments } = require('yaml'); const { readFileSync } = require('fs');
        const all = parseAllDocuments(readFileSync(process.argv[1], 'utf8'), { merge: true });
        for (const one of all) if (one.errors.length) throw one.errors[0];
        console.log(JSON.stringify(all.map((one) => one.toJS())));";
    let mut node = Command::new("node");
    node.args(["-e", READ]).arg(root().join(file)).current_dir(packages).stdin(Stdio::null());
    let output = node.output().expect("who has npm has node");
    assert!(output.status.success(), "{file}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("it writes JSON")
}

/// The one object of a kind.
pub fn of_kind(objects: &[Value], kind: &str) -> Value {
    let found: Vec<&Value> = objects.iter().filter(|object| object["kind"] == kind).collect();
    let [one] = found[..] else { panic!("{} of {kind}", found.len()) };
    one.clone()
}

#[test]
fn kubernetes_objects_match_their_published_types() {
    let Some(packages) = packages() else { skip_test!("no-npm") };
    let source = |object: &Value| {
        let is_it =
            |(kind, version, _): &&(&str, &str, &str)| object["kind"] == *kind && object["apiVersion"] == *version;
        let (kind, _, path) = KINDS.iter().find(is_it).unwrap_or_else(|| panic!("what is it? {object}"));
        format!("import type {{ {kind} }} from \"kubernetes-types/{path}\";\nexport const it: {kind} = {object:#};\n")
    };
    let objects = documents(&packages, "deploy/kubernetes.yml");
    let names: Vec<String> = (0..objects.len()).map(|n| format!("object{n}")).collect();
    let all: Vec<(&str, String)> = names.iter().map(String::as_str).zip(objects.iter().map(source)).collect();
    assert_eq!(all.len(), 2);
    let message = compiled(&packages, &all);
    assert!(message.is_empty(), "{message}");
    // It would say so.
    let mut wrong = objects[1].clone();
    wrong["spec"]["template"]["spec"]["hostPid"] = true.into();
    assert!(compiled(&packages, &[("wrong", source(&wrong))]).contains("'\"hostPid\"'"));
    // Each variable of its container is a setting.
    let pod = &objects[1]["spec"]["template"]["spec"];
    let config = read(&root().join("tests/golden/config/default.hcl"));
    for variable in list(&pod["containers"][0]["env"]).iter().map(|variable| text(variable, "name")) {
        assert!(variable == "NODE_IP" || config.contains(&format!("({variable})")), "{variable} is no setting");
    }
}

/// As it stands: the type `system` too.
#[test]
fn the_nomad_job_is_one() {
    let job = read(&root().join("deploy/allostat.nomad.hcl"));
    let directory = test_dir();
    let check = |name: &str, job: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, job).expect("our own directory");
        let output = Command::new(crate::common::allostat()).arg("check").arg(path).output().expect("it must start");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (is_right, printed) = check("system.hcl", &job);
    assert!(is_right && !printed.contains("error:"), "{printed}");
    let (is_right, printed) = check("service.hcl", &job.replace("\"system\"", "\"systme\""));
    assert!(!is_right && printed.matches("error:").count() == 1 && printed.contains("`type`"), "{printed}");
}

/// Prometheus finds the service by its name, and the agent starts with what the job gives to it.
///
/// Promise (Code, boards and alerts): The Nomad job registers the service that the Consul example finds; its agent
/// accepts each setting
#[test]
fn nomad_job_registers_the_scraped_service_and_its_agent_takes_each_setting() {
    let job = allostat::jobspec::parse("allostat.nomad.hcl", &read(&root().join("deploy/allostat.nomad.hcl")));
    let job = job.unwrap_or_else(|problems| panic!("{problems}")).job;
    assert_eq!(job.kind, JobKind::System);
    let [group] = &job.groups[..] else { panic!("{} groups", job.groups.len()) };
    let [service] = &group.services[..] else { panic!("{} services", group.services.len()) };
    assert_eq!((&*service.name, &service.tags[..]), ("allostat", &["metrics".to_owned()][..]));
    let scrape = read(&root().join("deploy/prometheus-consul.yml"));
    assert!(scrape.contains(&format!("services: [{}]\n", service.name)), "{scrape}");
    let Some(ServicePort::Label(label)) = &service.port else { panic!("{:?}", service.port) };
    let ports = &group.network.as_ref().expect("it has a network").ports;
    let port = ports.iter().find(|port| port.label == *label).and_then(|port| port.fixed).expect("a static port");
    let [task] = &group.tasks[..] else { panic!("{} tasks", group.tasks.len()) };
    assert!(task.env["ALLOSTAT_LISTEN"].ends_with(&format!(":{port}")), "{:?}", task.env);

    let config = read(&root().join("tests/golden/config/default.hcl"));
    for variable in task.env.keys() {
        assert!(config.contains(&format!("({variable})")), "{variable} is no setting");
    }
    let args = task.config["args"].as_array().expect("a list").iter().map(|arg| arg.as_str().expect("a text"));
    let mut agent = Command::new(crate::common::allostat());
    agent.args(args).arg("--print-config").env_clear().envs(&task.env).stdin(Stdio::null());
    let output = agent.output().expect("it must start");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(printed.contains("\"/var/lib/allostat\"") && printed.contains(&task.env["ALLOSTAT_LISTEN"]), "{printed}");
    // It would say so.
    agent.env("ALLOSTAT_TELEMETRY_PUBLIC", "metrix");
    assert!(!agent.output().expect("it must start").status.success());
}

#[test]
fn the_pipelines_of_the_collector_name_what_is_there_and_its_filter_what_is_sent() {
    let Some(packages) = packages() else { skip_test!("no-npm") };
    let config = documents(&packages, "deploy/otel-collector.yml").pop().expect("one document");
    let defined = |what: &str| config[what].as_object().map(|all| all.keys().cloned().collect()).unwrap_or_default();
    let mut used = BTreeSet::new();
    let pipelines = config["service"]["pipelines"].as_object().expect("pipelines");
    for sent in ["metrics", "logs", "traces"] {
        assert!(pipelines.contains_key(sent), "agents with this endpoint send {sent}");
    }
    for pipeline in pipelines.values() {
        for what in ["receivers", "processors", "exporters"] {
            let there: BTreeSet<String> = defined(what);
            for name in list(&pipeline[what]) {
                assert!(there.contains(name.as_str().expect("a name")), "{what}: {name}");
                used.insert(name.to_string());
            }
        }
    }
    // What answers before the store has it loses what the store refuses: the agents would count it as delivered.
    assert!(!defined("processors").iter().any(|name: &String| name.starts_with("batch")), "it answers too early");
    for (name, exporter) in config["exporters"].as_object().expect("exporters") {
        assert_eq!(exporter["sending_queue"]["enabled"], false, "{name}: agents have a queue that outlives everybody");
    }
    let all = ["receivers", "processors", "exporters"].map(|what| defined(what).len()).iter().sum::<usize>();
    assert_eq!(used.len(), all, "each is used");
    for condition in list(&config["processors"]["filter/lean"]["metrics"]["metric"]) {
        let name = condition.as_str().expect("a condition").split('"').nth(1).expect("a name");
        let name = name.trim_start_matches('^').trim_end_matches('$').replace("\\\\.", ".");
        // What `container.*` is for a container is `allostat.task.*` for another task.
        let of_container = name.strip_prefix("allostat.task.").map(|rest| format!("container.{rest}"));
        let is_sent = |sent: &str| {
            sent == name || of_container.as_deref() == Some(sent) || (name.ends_with('.') && sent.starts_with(&name))
        };
        let found = CATALOGUE.iter().filter_map(|desc| desc.otlp).any(|otlp| is_sent(otlp.name));
        assert!(found, "{condition} leaves out nothing");
    }
}

/// Grafana says nothing of a file that it does not understand: boards are missing then.
///
/// Promise (Code, boards and alerts): Grafana's provisioning files name the boards' folder and the server that scrapes,
/// at its interval
#[test]
fn grafana_finds_the_boards_and_the_server_that_scrapes() {
    let Some(packages) = packages() else { skip_test!("no-npm") };
    let of = |what: &str| {
        let file = format!("deploy/grafana/provisioning/{what}/allostat.yml");
        let document = documents(&packages, &file).pop().expect("one document");
        assert_eq!(document["apiVersion"], 1, "{file}");
        document
    };
    let sources = of("datasources");
    let source = &sources["datasources"][0];
    assert_eq!((text(source, "type"), text(source, "access")), ("prometheus", "proxy"));
    assert!(text(source, "url").starts_with("http://") && text(source, "uid") == "allostat", "{source}");
    // Where the rates of boards begin: the interval of the example that scrapes.
    let scrape = read(&root().join("deploy/prometheus.yml"));
    let interval = text(&source["jsonData"], "timeInterval");
    assert!(scrape.contains(&format!("scrape_interval: {interval}\n")), "{interval} is not what is scraped");
    let boards = of("dashboards");
    let provider = &boards["providers"][0];
    assert_eq!((text(provider, "type"), provider["allowUiUpdates"].as_bool()), ("file", Some(false)));
    let path = text(&provider["options"], "path");
    assert!(path.starts_with('/'), "{path} is not absolute");
}

/// The command is run as its reader would, in a copy of `dashboards/`.
///
/// Promise (Code, boards and alerts): The documented command sets the address of the runbooks on each board that links
/// to them
#[test]
fn documented_command_sets_the_runbook_address_of_every_board() {
    let page = read(&root().join("deploy/README.md"));
    let command = page.lines().find(|line| line.starts_with("sed -i ")).expect("the page has the command");
    let copy = test_dir();
    for board in boards() {
        std::fs::write(copy.path().join(board.path.file_name().expect("a file")), &board.text).expect("our directory");
    }
    let command = command.replace("URL", "https://runbooks.internal/allostat");
    let status = Command::new("sh").args(["-c", &command]).current_dir(copy.path()).status().expect("there is a sh");
    assert!(status.success(), "{command}: {status}");
    let sentence = page.split("`Runbooks at` on the ").nth(1).and_then(|rest| rest.split_once(" boards")).expect("one");
    let mut seen = 0;
    for board in boards() {
        let changed = read(&copy.path().join(board.path.file_name().expect("a file")));
        assert!(!changed.contains("//example.com/"), "{} still links to example.com", board.stem);
        if board.variables().iter().any(|variable| text(variable, "name") == "runbooks") {
            assert!(changed.contains("https://runbooks.internal/allostat"), "{}", board.stem);
            let name = board.stem.trim_start_matches("allostat-");
            assert!(sentence.0.split(' ').any(|word| word == name), "{name} is not named: {}", sentence.0);
            seen += 1;
        }
    }
    assert_eq!(seen, 2);
}

const BEGIN: &str = "<!-- made from docs/profiles.md: begin -->\n";
const END: &str = "<!-- end -->\n";

/// 1 million as people write it.
fn short(number: f64) -> String {
    let (value, unit) = match number {
        n if n >= 1e9 => (n / 1e9, " billion"),
        n if n >= 1e6 => (n / 1e6, " million"),
        n => (n / 1e3, ",000"),
    };
    if unit == ",000" || value >= 100.0 { format!("{value:.0}{unit}") } else { format!("{value:.1}{unit}") }
}

fn bytes(number: f64) -> String {
    let (value, unit) = if number >= 1e12 { (number / 1e12, "TB") } else { (number / 1e9, "GB") };
    if value >= 100.0 { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") }
}

/// `1,371`
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let parts: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|part| std::str::from_utf8(part).unwrap_or("")).collect();
    parts.join(",")
}

/// 16.6 MB as people write it.
fn size(number: f64) -> String {
    match number {
        n if n >= 1e9 => format!("{:.1} GB", n / 1e9),
        n if n >= 1e6 => format!("{:.1} MB", n / 1e6),
        n => format!("{:.0} kB", n / 1e3),
    }
}

/// Bodies and series are what the benchmark `encode` measured; a scrape each 15 s is 5,760 of them a day.
///
/// Promise (Code, boards and alerts): Costs of profiles and fleets are computed from the figures of one host
#[test]
fn profile_costs_in_the_docs_are_generated_from_the_figures() {
    const BEGIN: &str = "<!-- made from docs/figures.tsv: begin -->\n";
    let figures = read(&root().join("docs/figures.tsv"));
    let figure = |tasks: &str, profile: &str, what: &str| -> f64 {
        let name = format!("encode\tprofile/{profile}/{tasks}/{what}\t");
        let row = figures.lines().find_map(|line| line.strip_prefix(&name)).unwrap_or_else(|| panic!("no {name}"));
        row.split('\t').next().and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name}{row}"))
    };
    let mut made = String::from(
        "| tasks | profile | series in all | body | gzip | samples a day | sent a day, gzip | sent a day, plain |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for tasks in ["10", "100", "1000"] {
        for profile in ["lean", "standard", "full"] {
            let of = |what: &str| figure(tasks, profile, what);
            let (series, body, gzip) = (of("series"), of("body"), of("gzip"));
            let (samples, sent) = (series * 5_760.0 / 1e6, [gzip, body].map(|bytes| size(bytes * 5_760.0)));
            let tasks = grouped(tasks.parse().expect("a number"));
            writeln!(
                made,
                "| {tasks} | `{profile}` | {} | {} | {} | {samples:.1} million | {} | {} |",
                grouped(series),
                size(body),
                size(gzip),
                sent[0],
                sent[1]
            )
            .expect("a text can be written");
        }
    }
    golden_part("docs/profiles.md", (BEGIN, END), &made);
}

/// Series of a host are those that were measured there; a scrape each 15 s is 5,760 samples of each a day, of 1 to 2
/// bytes on disk.
#[test]
fn the_arithmetic_of_fleets_is_made_from_the_figures_of_profiles() {
    let figures = read(&root().join("docs/profiles.md"));
    let mut made = String::from(
        "| tasks a host | profile | series a host | of 100 hosts | samples a day | on disk a day | of 10,000 hosts | samples a day | on disk a day |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for row in figures.lines().filter(|line| ["| 10 |", "| 100 |"].iter().any(|begin| line.starts_with(begin))) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let series: f64 = cells[3].replace(',', "").parse().expect("series in all");
        write!(made, "| {} | {} | {} |", cells[1], cells[2], cells[3]).expect("a text can be written");
        for hosts in [100.0, 10_000.0] {
            let all = series * hosts;
            let samples = all * 5_760.0;
            let disk = format!("{} to {}", bytes(samples), bytes(samples * 2.0));
            write!(made, " {} | {} | {disk} |", short(all), short(samples)).expect("a text can be written");
        }
        made.push('\n');
    }
    assert_eq!(made.lines().count(), 8, "the figures were not found");
    golden_part("docs/fleet.md", (BEGIN, END), &made);
}

/// `systemd-analyze verify` of Debian's systemd 252, by the loader and the libraries of its own packages. Each thing
/// that it says is one too many.
fn verified(unit: &str, is_user: bool) -> Option<String> {
    let root = crate::common::part_file("systemd", "usr/bin/systemd-analyze")?.ancestors().nth(3)?.to_owned();
    let libraries = root.join("usr/lib/x86_64-linux-gnu");
    let (directory, own) = (test_dir(), libraries.join("systemd"));
    let file = directory.path().join("allostat.service");
    std::fs::write(&file, unit).expect("our own directory");
    let mut analyze = Command::new(libraries.join("ld-linux-x86-64.so.2"));
    analyze.arg("--library-path").arg(format!("{}:{}", libraries.display(), own.display()));
    analyze.arg(root.join("usr/bin/systemd-analyze")).arg("verify").args(is_user.then_some("--user")).arg(&file);
    analyze.env("XDG_RUNTIME_DIR", directory.path()).env("HOME", directory.path()).stdin(Stdio::null());
    let output = analyze.output().expect("it must start");
    let printed = [output.stdout, output.stderr].concat();
    Some(String::from_utf8_lossy(&printed).into_owned() + if output.status.success() { "" } else { "refused" })
}

/// Promise (Code, boards and alerts): `systemd-analyze verify` reports nothing for the units
#[test]
fn systemd_verifies_the_units_without_warnings() {
    for (file, program) in [
        ("allostat.service", "/usr/local/bin/allostat"),
        ("allostat-observe.service", "/usr/local/bin/allostat"),
        ("allostat-user.service", "%h/.local/bin/allostat"),
    ] {
        let unit = read(&root().join("deploy").join(file));
        assert!(unit.contains(&format!("ExecStart={program} ")), "{file}");
        // That one is there.
        let unit = unit.replace(program, &crate::common::allostat().display().to_string());
        let is_user = file.contains("user");
        let Some(text) = verified(&unit, is_user) else { skip_test!("no-systemd") };
        assert_eq!(text, "", "{file}");
        // It would say so.
        let wrong = verified(&unit.replace("\nRestart=", "\nRestrat="), is_user).expect("it is there");
        assert!(wrong.contains("Unknown key 'Restrat'"), "{file}: {wrong}");
    }
}

/// The agent sheds load above 80% of the limit, which must leave room for the figure that units and runbook state.
#[test]
fn systemd_units_limit_memory_above_the_documented_need() {
    let runbook = read(&root().join("docs/runbooks/AllostatSheddingLoad.md"));
    for file in ["allostat.service", "allostat-observe.service", "allostat-user.service"] {
        let unit = read(&root().join("deploy").join(file));
        let limits: Vec<&str> = unit.lines().filter_map(|line| line.strip_prefix("MemoryMax=")).collect();
        let [limit] = limits[..] else { panic!("{file}: one limit, not {limits:?}") };
        let limit: f64 = limit.strip_suffix('M').expect("in MiB").parse().expect("a number");
        let stated = unit.lines().find_map(|line| line.strip_prefix("# 5,000 observed workloads take some "));
        let stated = stated.unwrap_or_else(|| panic!("{file}: why so much?")).split(" MiB").next().expect("a number");
        let figure = format!("5,000 observed workloads take some {stated} MiB");
        assert!(runbook.replace("\n  ", " ").contains(&figure), "{file}: the runbook has another figure");
        let need: f64 = stated.parse().expect("a number");
        assert!(limit * 0.8 >= 2.0 * need, "{file}: {limit} MiB for {need} MiB of 5,000 workloads");
        assert!(limit <= 1_024.0, "{file}: {limit} MiB limits nothing");
    }
}
