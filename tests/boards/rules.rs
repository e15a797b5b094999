//! The alerts, judged by promtool: the rules themselves, their tests, and the example scrape configuration.
//!
//! Promise (Code, boards and alerts): Host alerts as node-mixin has them fire, end, and are silent on a flat line
//! Promise (Code, boards and alerts): A GPU that is lost, hangs, is too hot, has errors, is held idle or has unowned
//! memory alerts
//! Promise (Code, boards and alerts): Each alert fires when it should, is silent when it should, with its exact labels

use crate::boards::files::{alerts, in_folder, read, root, rules};
use crate::boards::scraped::for_version;
use crate::common::{Promtool, test_dir};

#[test]
fn promtool_finds_nothing_in_the_rules() {
    let Some(promtool) = Promtool::find() else { skip_test!("no-prometheus") };
    for path in in_folder("alerts", "yml") {
        let verdict = promtool.run(&["check", "rules", &path.display().to_string()], b"");
        assert!(verdict.ok, "{}: {}", path.display(), verdict.output);
        // Our own reader of rule files must not miss one that promtool sees.
        let found = rules().iter().filter(|r| r.file == path.display().to_string()).count();
        assert!(verdict.output.contains(&format!("{found} rules found")), "we read {found}: {}", verdict.output);
    }
}

#[test]
fn the_rule_tests_pass() {
    let Some(promtool) = Promtool::find() else { skip_test!("no-prometheus") };
    let tests: Vec<String> = in_folder("alerts/tests", "yml").iter().map(|path| path.display().to_string()).collect();
    let all: Vec<&str> = ["test", "rules"].into_iter().chain(tests.iter().map(String::as_str)).collect();
    let verdict = promtool.run(&all, b"");
    assert!(verdict.ok, "{}", verdict.output);
}

/// A rule test that names no alert proves nothing.
#[test]
fn every_alert_has_a_firing_and_a_silent_test_case() {
    let tests: Vec<String> = in_folder("alerts/tests", "yml").iter().map(|path| read(path)).collect();
    for rule in alerts() {
        let own = format!("alertname: {}\n", rule.name);
        let cases: Vec<&str> =
            tests.iter().flat_map(|text| text.split("- eval_time:")).filter(|case| case.contains(&own)).collect();
        let silent = cases.iter().filter(|case| case.contains("exp_alerts: []")).count();
        assert!(silent > 0, "{} has no silent case", rule.name);
        assert!(silent < cases.len(), "{} has no firing case", rule.name);
    }
}

/// The user who is paged must be notified of the end: in one of its tests each alert is silent after it fired.
///
/// Promise (Code, boards and alerts): Each alert ends in one of its tests: silent after it fired
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
    let own = format!("alertname: {alert}\n");
    let cases = group.split("- eval_time:").skip(1).filter(|case| case.contains(&own));
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
    let directory = test_dir();
    let path = directory.path().join("prometheus.yml");
    for file in ["prometheus", "prometheus-remote-write", "prometheus-kubernetes"] {
        let text = read(&root().join(format!("deploy/{file}.yml")));
        // Debian's Prometheus is built without Kubernetes: all but how the pods are found.
        let text = match text.split_once("    kubernetes_sd_configs:\n") {
            Some((before, rest)) => format!("{before}{}", &rest[rest.find("    relabel_configs:").expect("names")..]),
            None => text,
        };
        std::fs::write(&path, for_version(2, &text)).expect("our own directory");
        let verdict = promtool.run(&["check", "config", &path.display().to_string()], b"");
        assert!(verdict.ok, "{file}: {}", verdict.output);
    }
}

/// Where a Prometheus has none of our series, or of a host only that it answers, no alert fires.
///
/// Promise (Code, boards and alerts): No alert fires because an agent restarts, or where its input is absent
#[test]
fn no_alert_fires_where_its_input_is_absent() {
    let Some(promtool) = Promtool::find() else { skip_test!("no-prometheus") };
    let group = |series: &str| {
        let cases = |at: &str| -> String {
            let case = |rule: &crate::boards::files::Rule| {
                format!("      - eval_time: {at}\n        alertname: {}\n        exp_alerts: []\n", rule.name)
            };
            // Where no agent is a target, that alone is due.
            let is_due = |rule: &&crate::boards::files::Rule| {
                series.contains("job=\"allostat\"") || !rule.expression.starts_with("absent(")
            };
            alerts().iter().filter(is_due).map(case).collect()
        };
        format!(
            "  - interval: 1m\n    input_series:\n      - series: {series}\n        values: 1x200\n    alert_rule_test:\n{}{}",
            cases("3m"),
            cases("3h")
        )
    };
    let rules = root().join("alerts/allostat.yml");
    let groups =
        ["up{job=\"allostat\",instance=\"host-a:9740\"}", "up{job=\"other\",instance=\"host-a:9100\"}"].map(group);
    let text = format!("rule_files:\n  - {}\nevaluation_interval: 1m\n\ntests:\n{}", rules.display(), groups.concat());
    let directory = test_dir();
    let file = directory.path().join("absent.yml");
    std::fs::write(&file, text).expect("our own directory");
    let verdict = promtool.run(&["test", "rules", &file.display().to_string()], b"");
    assert!(verdict.ok, "{}", verdict.output);
}

/// An agent that restarts is away for two scrapes, which ends all its series for as long, and goes on where it was:
/// what did not fire before does not fire for that.
#[test]
fn no_alert_fires_because_an_agent_restarts() {
    let Some(promtool) = Promtool::find() else { skip_test!("no-prometheus") };
    let (directory, mut cases) = (test_dir(), 0);
    let mut files = Vec::new();
    for path in in_folder("alerts/tests", "yml") {
        let text = read(&path);
        let (head, groups) = text.split_once("\n  - name:").expect("a file of tests has one");
        let rules = root().join("alerts/allostat.yml").display().to_string();
        let head = head.replace("../allostat.yml", &rules);
        let silent: Vec<String> = groups.split("\n  - name:").filter_map(restarted).collect();
        if silent.is_empty() {
            continue;
        }
        cases += silent.iter().map(|group| group.matches("- eval_time:").count()).sum::<usize>();
        let file = directory.path().join(path.file_name().expect("it is a file"));
        let text: String = silent.iter().map(|group| format!("\n  - name:{group}")).collect();
        std::fs::write(&file, format!("{head}{text}\n")).expect("our own directory");
        files.push(file.display().to_string());
    }
    assert!(cases > alerts().len(), "{cases} cases are too few to have one of each alert");
    let all: Vec<&str> = ["test", "rules"].into_iter().chain(files.iter().map(String::as_str)).collect();
    let verdict = promtool.run(&all, b"");
    assert!(verdict.ok, "{}", verdict.output);
}

/// What of a group of tests expects no alert, with series that two scrapes miss in the middle of their time. `None`:
/// nothing does.
fn restarted(group: &str) -> Option<String> {
    let group = group.split("\n    promql_expr_test:").next()?;
    let (before, cases) = group.split_once("    alert_rule_test:\n")?;
    let silent: Vec<&str> =
        cases.split("      - eval_time:").skip(1).filter(|case| case.contains("exp_alerts: []")).collect();
    let mut is_up = false;
    let lines = before.lines().map(|line| match line.split_once("values: ") {
        Some((indent, values)) => {
            let mut values = samples(values);
            let at = values.len() / 2;
            // The scraper records by itself that the target did not answer.
            let missed = if is_up { "0" } else { "stale" };
            values
                .iter_mut()
                .skip(at)
                .take(2)
                .filter(|value| *value != "_")
                .for_each(|value| *value = missed.to_owned());
            format!("{indent}values: {}\n", values.join(" "))
        }
        None => {
            is_up = line.contains("- series: up{");
            format!("{line}\n")
        }
    });
    let before: String = lines.collect();
    let cases: String = silent.iter().map(|case| format!("      - eval_time:{case}")).collect();
    (!silent.is_empty()).then(|| format!("{before}    alert_rule_test:\n{}", cases.trim_end()))
}

/// Promtool's short form of many values, each by itself.
pub fn samples(text: &str) -> Vec<String> {
    let number = |text: &str| text.parse::<f64>().unwrap_or_else(|_| panic!("{text} is no number"));
    let many = |word: &str| -> Vec<String> {
        let Some((first, times)) = word.split_once('x') else { return vec![word.to_owned()] };
        let times: u32 = times.parse().unwrap_or_else(|_| panic!("{word}: so often?"));
        if first == "_" {
            return (0..times).map(|_| "_".to_owned()).collect();
        }
        // A sign behind the first character, and not that of an exponent.
        let sign = first.char_indices().skip(1).find(|(at, c)| "+-".contains(*c) && !first[..*at].ends_with('e'));
        let (start, step) = match sign {
            Some((at, _)) => (number(&first[..at]), number(&first[at..])),
            None => (number(first), 0.0),
        };
        (0..=times).map(|n| format!("{}", start + step * f64::from(n))).collect()
    };
    text.split_whitespace().flat_map(many).collect()
}

#[test]
fn the_short_form_of_values_is_read_as_promtool_does() {
    assert_eq!(samples("_x2 1x1 1e2-5e1x2 stale 7"), ["_", "_", "1", "1", "100", "50", "0", "stale", "7"]);
}
