//! The alerts, judged by promtool: the rules themselves, their tests, and the example scrape configuration.

use crate::common::{Promtool, test_dir};
use crate::files::{alerts, in_folder, read, root, rules};
use crate::skip_test;

#[test]
fn promtool_finds_nothing_in_the_rules() {
    let Some(promtool) = Promtool::find() else { skip_test!("no-prometheus") };
    for path in in_folder("alerts", "yml") {
        let verdict = promtool.run(&["check", "rules", &path.display().to_string()], b"");
        assert!(verdict.ok, "{}: {}", path.display(), verdict.said);
        // Our own reader of rule files must not miss one that promtool sees.
        let found = rules().iter().filter(|r| r.file == path.display().to_string()).count();
        assert!(verdict.said.contains(&format!("{found} rules found")), "we read {found}: {}", verdict.said);
    }
}

#[test]
fn the_rule_tests_pass() {
    let Some(promtool) = Promtool::find() else { skip_test!("no-prometheus") };
    let tests: Vec<String> = in_folder("alerts/tests", "yml").iter().map(|path| path.display().to_string()).collect();
    let all: Vec<&str> = ["test", "rules"].into_iter().chain(tests.iter().map(String::as_str)).collect();
    let verdict = promtool.run(&all, b"");
    assert!(verdict.ok, "{}", verdict.said);
}

/// A rule test that names no alert proves nothing.
#[test]
fn every_alert_has_a_test_that_fires_and_one_that_stays_silent() {
    let tests: Vec<String> = in_folder("alerts/tests", "yml").iter().map(|path| read(path)).collect();
    for rule in alerts() {
        let mine = format!("alertname: {}\n", rule.name);
        let cases: Vec<&str> =
            tests.iter().flat_map(|text| text.split("- eval_time:")).filter(|case| case.contains(&mine)).collect();
        let silent = cases.iter().filter(|case| case.contains("exp_alerts: []")).count();
        assert!(silent > 0, "{} has no silent case", rule.name);
        assert!(silent < cases.len(), "{} has no firing case", rule.name);
    }
}

/// Who is called out of bed for one must be told when it is over: in one of its tests it is silent after it fired.
#[test]
fn every_alert_has_a_test_in_which_it_ends() {
    let tests: Vec<String> = in_folder("alerts/tests", "yml").iter().map(|path| read(path)).collect();
    let groups: Vec<&str> = tests.iter().flat_map(|text| text.split("\n  - name:")).collect();
    let missing: Vec<String> = alerts()
        .into_iter()
        .filter(|rule| !groups.iter().any(|group| ends(group, &rule.name)))
        .map(|rule| rule.name)
        .collect();
    assert_eq!(missing, Vec::<String>::new(), "they never end");
}

/// In their order in time: somewhere it fires, and later it does not.
fn ends(group: &str, alert: &str) -> bool {
    let mine = format!("alertname: {alert}\n");
    let cases = group.split("- eval_time:").skip(1).filter(|case| case.contains(&mine));
    let mut fires = cases.map(|case| !case.contains("exp_alerts: []"));
    fires.any(|fires| fires) && fires.any(|fires| !fires)
}

#[test]
fn every_recorded_series_has_a_test_with_its_values() {
    let tests: String = in_folder("alerts/tests", "yml").iter().map(|path| read(path)).collect();
    for rule in rules().into_iter().filter(|rule| rule.records) {
        assert!(tests.contains(&format!("- labels: '{}{{", rule.name)), "{} has no case with a value", rule.name);
    }
}

#[test]
fn every_input_series_of_the_rule_tests_has_job_and_instance() {
    for path in in_folder("alerts/tests", "yml") {
        for line in read(&path).lines().filter(|line| line.trim().starts_with("- series:")) {
            assert!(line.contains("job=\"") && line.contains("instance=\""), "{}: {line}", path.display());
        }
    }
}

#[test]
fn promtool_accepts_the_example_scrape_configurations() {
    let Some(promtool) = Promtool::find() else { skip_test!("no-prometheus") };
    // Checked where they lie, so that the rule files that they name are found.
    for path in ["deploy/prometheus.yml", "deploy/prometheus-remote-write.yml"].map(|path| root().join(path)) {
        let verdict = promtool.run(&["check", "config", &path.display().to_string()], b"");
        assert!(verdict.ok, "{}", verdict.said);
    }
    // Debian's Prometheus is built without Kubernetes: all but how the pods are found.
    let text = read(&root().join("deploy/prometheus-kubernetes.yml"));
    let (before, rest) = text.split_once("    kubernetes_sd_configs:\n").expect("it asks Kubernetes");
    let (_, after) = rest.split_once("    relabel_configs:\n").expect("and names what it finds");
    let directory = test_dir();
    let path = directory.path().join("prometheus.yml");
    std::fs::write(&path, format!("{before}    relabel_configs:\n{after}")).expect("our own directory");
    let verdict = promtool.run(&["check", "config", &path.display().to_string()], b"");
    assert!(verdict.ok, "{}", verdict.said);
}
