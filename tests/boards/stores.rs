//! Other stores than Prometheus take what the examples in deploy/ send: a real VictoriaMetrics, by its own scraping and
//! by remote write.
//!
//! Promise (Code, boards and alerts): The examples for Prometheus serve VictoriaMetrics too, by its own scraping and by
//! remote write

use std::collections::BTreeSet;
use std::time::Duration;

use crate::boards::files::{read, root};
use crate::common::{Agent, Prometheus, is_root, patience, wait_for, workload};

/// Its usage is exposed to the last digit, and changes no more.
fn some_work(agent: &Agent) -> (String, f64) {
    let command = workload().display().to_string();
    agent.run(&format!(
        "job \"done\" {{\n type = \"batch\"\n group \"g\" {{\n task \"t\" {{\n driver = \"raw_exec\"\n config {{\n command = {command:?}\n \
         args = [\"burn\", \"300\"]\n }}\n }}\n }}\n}}\n"
    ));
    let labels = [("workload", "done"), ("task", "t")];
    wait_for("its end", Duration::from_secs(60) * patience(), || {
        let exits =
            agent.metrics().f64("allostat_workload_exits_total", &[labels[0], labels[1], ("outcome", "success")]);
        (exits == 1.0).then_some(())
    });
    let used = agent.metrics().f64("allostat_workload_cpu_usage_seconds_total", &labels);
    assert!(used > 0.0, "{used}");
    ("allostat_workload_cpu_usage_seconds_total{job=\"allostat\",workload=\"done\",task=\"t\"}".to_owned(), used)
}

#[test]
fn victoria_metrics_scrapes_agents_by_the_example_for_prometheus_as_it_is() {
    if !is_root() {
        skip_test!("not-root");
    }
    let agent = Agent::start();
    let example = read(&root().join("deploy/prometheus.yml"));
    let scrape = example.replace("127.0.0.1:9740", &agent.address.to_string()).replace("interval: 15s", "interval: 1s");
    let Some(victoria) = Prometheus::start_victoria(&scrape) else { skip_test!("no-prometheus") };
    let (requested, used) = some_work(&agent);
    victoria.wait_value(&requested, |value| value.to_bits() == used.to_bits());
    // Each family of the page is there.
    wait_for("all families", Duration::from_secs(30) * patience(), || {
        let page = agent.metrics();
        let exposed: BTreeSet<&str> = page.samples.iter().map(|sample| sample.name.as_str()).collect();
        let stored = victoria.query("count by (__name__) ({job=\"allostat\",__name__=~\"allostat_.+\"})");
        let stored: BTreeSet<&str> = stored.iter().filter_map(|(labels, _)| labels["__name__"].as_str()).collect();
        let missing: Vec<_> =
            exposed.iter().filter(|name| name.starts_with("allostat_") && !stored.contains(*name)).collect();
        eprintln!("not in the store yet: {missing:?}");
        (missing.is_empty() && stored.len() > 100).then_some(())
    });
    agent.stop();
}

#[test]
fn prometheus_remote_write_sends_to_victoria_metrics_no_series_by_alloc() {
    if !is_root() {
        skip_test!("not-root");
    }
    let agent = Agent::start();
    let Some(victoria) = Prometheus::start_victoria("scrape_configs: []\n") else { skip_test!("no-prometheus") };
    let example = read(&root().join("deploy/prometheus-remote-write.yml"));
    let (_, remote) = example.split_once("\nremote_write:\n").expect("it writes on");
    let url = "http://mimir.example/api/v1/push\n    headers:\n      X-Scope-OrgID: example\n";
    assert!(remote.contains(url));
    let remote = remote.replace(url, &format!("http://{}/api/v1/write\n", victoria.address));
    let rules = [root().join("alerts/recording.yml")];
    let started = Prometheus::start_writing(&[agent.address], &rules, &format!("remote_write:\n{remote}"));
    let Some(prometheus) = started else { skip_test!("no-prometheus") };
    let (requested, used) = some_work(&agent);
    victoria.wait_value(&requested, |value| value.to_bits() == used.to_bits());
    // Recorded each half minute.
    victoria.wait_value("instance_state:allostat_allocs:sum{state=\"complete\"}", |allocs| allocs == 1.0);
    // The boards list jobs and hosts by it.
    victoria.wait_value("count(allostat_build_info)", |agents| agents == 1.0);
    let by_alloc = "count({__name__=~\"allostat_(task|alloc)_.+\",alloc_id!=\"\"})";
    assert!(prometheus.value(by_alloc).is_some_and(|series| series > 10.0));
    assert_eq!(victoria.value(by_alloc), None);
    agent.stop();
}
