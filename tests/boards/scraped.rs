//! Every scrape configuration and every relabelling of the documentation, run by real servers on the page of a real
//! agent.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use allostat::exporters::walk::lifecycle::METRICS;
use allostat::model::metric::Kind;

use crate::boards::files::{in_folder, read, root};
use crate::common::{Agent, AgentOptions, Prometheus, is_root, patience, test_dir, wait_for, workload};

const FILES: [&str; 5] =
    ["prometheus", "prometheus-remote-write", "prometheus-kubernetes", "prometheus-http-sd", "prometheus-consul"];
/// As the examples recommend.
const FEATURE: &str = "created-timestamp-zero-ingestion";
const KEY: &str = "always_scrape_classic_histograms: true";

/// As its head says: version 2 knows one line of it not. The rules are found from anywhere.
pub fn for_version(major: u32, example: &str) -> String {
    let lines = example.lines().filter(|line| major > 2 || line.trim() != KEY);
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    text.replace("../alerts/", &format!("{}/alerts/", root().display()))
}

/// The jobs that are there as a remark, too.
fn with_all_jobs(example: &str) -> String {
    let mut inside = false;
    let mut line = |line: &str| {
        inside = line.starts_with("  # - job_name:") || (inside && line.starts_with("  #   "));
        format!("{}\n", if inside { line.replacen("# ", "", 1) } else { line.to_owned() })
    };
    example.lines().map(&mut line).collect()
}

/// An example with an agent in place of its targets, scraped each second, nothing sent on.
fn at_work(file: &str, agent: &Agent, directory: &Path) -> String {
    let text = with_all_jobs(&read(&root().join(format!("deploy/{file}.yml"))));
    assert!(text.contains(&format!("--enable-feature={FEATURE}")), "{file}: is this flag not recommended any more?");
    let text = text.split("\nremote_write:\n").next().expect("a first part").replace("interval: 15s", "interval: 1s");
    let address = agent.address.to_string();
    let hosts = directory.join("hosts.json");
    let found = format!("[{{\"targets\":[{address:?}],\"labels\":{{\"host\":\"host-a\"}}}}]");
    std::fs::write(&hosts, found).expect("our own directory");
    let text = text
        .replace("127.0.0.1:9740", &address)
        .replace("/etc/prometheus/allostat/*.json", &hosts.display().to_string());
    // The labels of a discovered target stand here: Kubernetes and Consul are absent, and `boards::fleets` runs an
    // inventory.
    let discovery = ["kubernetes", "http", "consul"].map(|kind| format!("    {kind}_sd_configs:\n"));
    let Some((before, rest)) = discovery.iter().find_map(|key| text.split_once(key.as_str())) else { return text };
    let after = &rest[rest.find("    relabel_configs:").expect("it names what it finds")..];
    format!("{before}    static_configs:\n      - targets: [{address:?}]\n        labels: {META}\n{after}")
}

const META: &str = "{__meta_kubernetes_pod_label_app_kubernetes_io_name: allostat, __meta_kubernetes_pod_node_name: node-a, \
     __meta_consul_node: node-a}";

#[test]
fn scrape_examples_store_classic_histograms() {
    let mut scrapes = 0;
    for path in in_folder("deploy", "yml") {
        let text = read(&path);
        if text.lines().any(|line| line.trim() == "- job_name: allostat") {
            scrapes += 1;
            assert!(text.lines().any(|line| line.trim() == KEY), "{}: Prometheus 3 stores no bucket", path.display());
            let is_tried = FILES.iter().any(|name| path.ends_with(format!("deploy/{name}.yml")));
            assert!(is_tried, "{}: add it to FILES", path.display());
        }
    }
    assert_eq!(scrapes, FILES.len());
}

/// Promise (Code, boards and alerts): Each documented scrape configuration stores the buckets of all histograms on
/// Prometheus 2.42 and 3.5
#[test]
fn each_example_stores_the_buckets_of_all_histograms_on_prometheus_2_and_3() {
    if !is_root() {
        skip_test!("not-root");
    }
    let (agent, directory) = (Agent::start(), test_dir());
    agent.run(&job("stopped", "hold"));
    let mut servers = Vec::new();
    for file in FILES {
        let example = at_work(file, &agent, directory.path());
        for major in [2, 3] {
            let started = Prometheus::start_version(major, &[FEATURE], &for_version(major, &example));
            let Some(server) = started else { skip_test!("no-prometheus") };
            servers.push((format!("{file} on {major}"), server));
        }
    }
    let buckets = |name: &str| name.ends_with("_bucket");
    let page = agent.metrics();
    let shown: BTreeSet<&str> = page.samples.iter().map(|sample| sample.name.as_str()).filter(|n| buckets(n)).collect();
    assert!(shown.contains("allostat_workload_kill_duration_seconds_bucket"), "two alerts ask for it: {shown:?}");
    for (place, server) in &servers {
        server.wait_value("count(up{job=~\".*allostat.*\"} == 1)", |up| up == 1.0);
        assert_eq!(server.value("count(up == 0)"), None, "{place}: each job answers");
        wait_for(&format!("{place}: buckets of {shown:?}"), Duration::from_secs(30) * patience(), || {
            let stored = server.query("count by (__name__) ({job=~\".*allostat.*\",__name__=~\"allostat_.+_bucket\"})");
            let stored: BTreeSet<&str> = stored.iter().filter_map(|(labels, _)| labels["__name__"].as_str()).collect();
            shown.is_subset(&stored).then_some(())
        });
    }
    agent.stop();
}

/// What it is, where it stands, and itself as YAML.
struct Relabelling {
    kind: String,
    place: String,
    yaml: String,
}

/// Each `relabel_configs` and the like of the documentation, those in remarks too.
fn relabellings() -> Vec<Relabelling> {
    let mut found = Vec::new();
    for path in [in_folder("docs", "md"), in_folder("deploy", "yml"), vec![root().join("README.md")]].concat() {
        let text = read(&path);
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let kind = line.trim_start().trim_start_matches("# ").trim_start();
            let Some(kind) = kind.strip_suffix(':').filter(|kind| kind.ends_with("relabel_configs")) else { continue };
            let is_remark = line.trim_start().starts_with('#');
            let plain = |line: &str| if is_remark { line.replacen("# ", "", 1) } else { line.to_owned() };
            let begin = plain(line).find(kind).expect("it is there");
            let below = |line: &&&str| {
                let line = plain(line);
                line.len() > begin && line.as_bytes()[..=begin].iter().all(|c| *c == b' ')
            };
            let rules = lines[at + 1..].iter().take_while(below).filter(|line| is_remark || !line.contains(" # "));
            let rules: String = rules.map(|line| format!("    {}\n", &plain(line)[begin..])).collect();
            let yaml = format!("  {kind}:\n{rules}").replace("  write_relabel", "  metric_relabel");
            found.push(Relabelling { kind: kind.to_owned(), place: path.display().to_string(), yaml });
        }
    }
    found
}

fn job(name: &str, does: &str) -> String {
    let command = workload().display().to_string();
    format!(
        "job {name:?} {{\n type = \"batch\"\n group \"g\" {{\n task \"t\" {{\n driver = \"raw_exec\"\n kill_timeout = \"100ms\"\n config {{\n \
         command = {command:?}\n args = [{does:?}, \"3\"]\n }}\n }}\n }}\n}}\n"
    )
}

/// The workloads that the documented rules drop, and one that none does.
const WORKLOADS: [&str; 4] = ["my-batch-job", "nightly", "batch-one", "kept"];

/// Series of tasks and allocs that a job of the server has, each without what is the scrape's: by workload, with alloc
/// and without.
fn stored(server: &Prometheus, job: &str) -> (BTreeMap<String, BTreeSet<String>>, BTreeSet<String>) {
    let (mut by_alloc, mut totals) = (BTreeMap::<String, BTreeSet<String>>::new(), BTreeSet::new());
    let requested = format!("{{job={job:?},__name__=~\"allostat_(task|alloc|workload)_.+\"}}");
    for (mut labels, _) in server.query(&requested) {
        let of = labels.as_object_mut().expect("labels");
        for added in ["job", "instance"] {
            of.remove(added);
        }
        let series = labels.to_string();
        match (labels["alloc_id"].as_str(), labels["workload"].as_str()) {
            (Some(_), Some(workload)) => drop(by_alloc.entry(workload.to_owned()).or_default().insert(series)),
            _ => drop(totals.insert(series)),
        }
    }
    (by_alloc, totals)
}

/// Promise (Code, boards and alerts): Each documented relabelling keeps every total of a workload, and drops series
/// with an `alloc_id`
#[test]
fn documented_relabelling_retains_workload_totals_and_drops_single_allocs() {
    if !is_root() {
        skip_test!("not-root");
    }
    let env = vec![("ALLOSTAT_PROFILE".to_owned(), "full".to_owned())];
    let agent = Agent::with(AgentOptions { env, ..AgentOptions::default() });
    for name in WORKLOADS {
        agent.run(&job(name, "exit"));
    }
    let all = relabellings();
    let count = |kind: &str| all.iter().filter(|found| found.kind == kind).count();
    assert!(
        count("relabel_configs") >= 4 && count("metric_relabel_configs") >= 3 && count("write_relabel_configs") >= 1
    );
    let target =
        format!("static_configs: [{{targets: [\"{}\"], labels: {{host: host-a, {}}}]\n", agent.address, &META[1..]);
    let jobs = all.iter().enumerate().map(|(at, found)| {
        // One shard of many: here there is one target, which must be in it. And our own jobs have no namespace in their
        // names.
        let yaml = found.yaml.replace("regex: \"7\"", "regex: .+").replace("batch/", "batch-");
        format!("- job_name: job-{at}\n  {target}{yaml}")
    });
    let config = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: plain\n  {target}{}",
        jobs.collect::<String>()
    );
    let Some(server) = Prometheus::start_version(2, &[FEATURE], &config) else { skip_test!("no-prometheus") };
    let targets = all.len() as f64 + 1.0;
    server.wait_value("count(up == 1)", |up| up == targets);
    // Each total of what happened; those of usage depend on the kernel.
    let expected: BTreeSet<String> = METRICS
        .iter()
        .filter(|desc| desc.name.starts_with("allostat_workload_"))
        // Absent until output was lost.
        .filter(|desc| desc.name != "allostat_workload_log_lost_bytes_total")
        .map(|desc| if desc.kind == Kind::Histogram { format!("{}_count", desc.name) } else { desc.name.to_owned() })
        .collect();
    assert!(expected.len() >= 9, "{expected:?}");
    for (at, found) in all.iter().enumerate() {
        let (job, place) = (format!("job-{at}"), format!("{}\n{}", found.place, found.yaml));
        if found.kind == "relabel_configs" {
            let names = server.query(&format!("count by (instance) (up{{job={job:?}}})"));
            let is_named = !found.yaml.contains("target_label: instance");
            assert!(
                is_named || ["host-a", "node-a"].iter().any(|name| names[0].0["instance"] == *name),
                "{place}: {names:?}"
            );
            continue;
        }
        wait_for(&place, Duration::from_secs(30) * patience(), || {
            let ((all_allocs, all_totals), (allocs, totals)) = (stored(&server, "plain"), stored(&server, &job));
            let named = |name: &String| all_totals.iter().any(|series| series.contains(&format!("{name:?}")));
            let left_out: Vec<_> = all_totals.difference(&totals).take(3).collect();
            let removed: BTreeSet<&str> =
                all_allocs.keys().filter(|of| !allocs.contains_key(*of)).map(String::as_str).collect();
            let torn: Vec<_> =
                allocs.iter().filter(|(of, series)| all_allocs.get(*of) != Some(series)).map(|(of, _)| of).collect();
            let unseen: Vec<_> = expected.iter().filter(|name| !named(name)).collect();
            eprintln!(
                "{job}: no {unseen:?}; totals left out {left_out:?}, allocs left out of {removed:?}, in part of {torn:?}"
            );
            let is_right = if found.kind.starts_with("write") {
                allocs.is_empty()
            } else {
                torn.is_empty() && removed.len() == 1 && !removed.contains("kept")
            };
            (unseen.is_empty() && all_allocs.len() == WORKLOADS.len() && left_out.is_empty() && is_right).then_some(())
        });
    }
    agent.stop();
}
