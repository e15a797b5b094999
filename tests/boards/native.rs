//! A Prometheus that stores native histograms alone: no `_bucket` series exists, and every quantile of boards and
//! alerts has a value.

use std::time::Duration;

use crate::boards::files::{boards, list, rules, text};
use crate::boards::live::filled_for;
use crate::common::{Agent, Prometheus, is_root, patience, wait_for, workload};

/// Starts, runs its hooks and is killed when it is stopped.
fn job() -> String {
    let command = workload().display().to_string();
    format!(
        "job \"native\" {{\n type = \"batch\"\n group \"g\" {{\n task \"t\" {{\n driver = \"raw_exec\"\n kill_timeout = \"100ms\"\n \
         config {{\n command = {command:?}\n args = [\"stubborn\", \"3600000\"]\n }}\n }}\n }}\n}}\n"
    )
}

fn quantiles() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for board in boards() {
        for panel in board.panels() {
            let targets = list(&panel["targets"]).iter().filter(|t| text(t, "expr").contains("histogram_quantile"));
            let place =
                |t: &serde_json::Value| format!("{} / {} / {}", board.stem, text(panel, "title"), text(t, "refId"));
            found.extend(targets.map(|t| (place(t), filled_for(text(t, "expr"), "none", (".*", ".*")))));
        }
    }
    for rule in rules().into_iter().filter(|rule| rule.expression.contains("histogram_quantile")) {
        // The quantile, not whether it is high.
        let (quantile, _) = rule.expression.trim_end().rsplit_once('>').expect("an alert compares");
        found.push((rule.name, quantile.to_owned()));
    }
    found
}

#[test]
fn every_quantile_has_a_value_where_only_native_histograms_are_stored() {
    if !is_root() {
        skip_test!("not-root");
    }
    let agent = Agent::start();
    let Some(two) = Prometheus::start_with_native_histograms(&[agent.address]) else { skip_test!("no-prometheus") };
    let Some(three) = Prometheus::start_next(&["native-histograms"], agent.address, "") else {
        skip_test!("no-prometheus")
    };
    let servers = [&two, &three];
    for server in servers {
        server.wait_value("count(allostat_build_info)", |agents| agents >= 1.0);
    }
    let requests = quantiles();
    assert!(requests.len() >= 13, "{}", requests.len());
    let deadline = Duration::from_secs(120) * patience();
    wait_for("every quantile of both servers", deadline, || {
        agent.run(&job());
        for id in agent.alloc_ids() {
            agent.cli(&["stop", &id]);
        }
        let is_answered = |server: &Prometheus| {
            requests.iter().all(|(place, e)| {
                let found = server.query(e);
                let is_there = found.iter().any(|(_, value)| value.parse::<f64>().is_ok_and(f64::is_finite));
                if !is_there {
                    eprintln!("{place}: {e} has no value yet");
                }
                is_there
            })
        };
        servers.iter().all(|server| is_answered(server)).then_some(())
    });
    for server in servers {
        assert_eq!(server.query("count({__name__=~\"allostat_.*_bucket\"})"), [], "buckets are stored as well");
    }
    agent.stop();
}
