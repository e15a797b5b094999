//! A day on which nothing moves: each alert is silent while the first values of one of its tests stand still.

use crate::boards::files::{Rule, alerts, in_folder, read};
use crate::boards::rules::samples;
use crate::common::{Promtool, test_dir};

/// Of a moment that stands still the age grows, so each series of such an alert is due in the end.
const GROWS_OLD: &[&str] = &["AllostatOtlpBacklog"];

/// The groups of tests with a case of the alert.
fn groups_of(alert: &str, files: &[String]) -> Vec<String> {
    let own = format!("alertname: {alert}\n");
    let of_file = |text: &String| -> Vec<String> {
        text.split("\n  - name:").skip(1).filter(|group| group.contains(&own)).map(str::to_owned).collect()
    };
    files.iter().flat_map(of_file).collect()
}

/// The group with the first value of each series for a day, and no alert.
fn held_for_a_day(group: &str, alert: &str) -> Option<String> {
    let (before, _) = group.split_once("    alert_rule_test:\n")?;
    let is_number = |value: &String| *value != "_" && *value != "stale";
    let line = |line: &str| match line.split_once("values: ") {
        Some((indent, values)) => {
            let first = samples(values).into_iter().find(is_number).unwrap_or_else(|| "_".to_owned());
            format!("{indent}values: {first}x1440\n")
        }
        None if line.trim_start().starts_with("interval: ") => "    interval: 1m\n".to_owned(),
        None => format!("{line}\n"),
    };
    let before: String = before.lines().map(line).collect();
    let case = |at: &str| format!("      - eval_time: {at}\n        alertname: {alert}\n        exp_alerts: []\n");
    Some(format!("  - name:{before}    alert_rule_test:\n{}{}", case("6h"), case("24h")))
}

/// One rule, which is a file of its own: the others would be evaluated for the whole day as well.
fn alone(rule: &Rule) -> String {
    format!("groups:\n  - name: one\n    rules:\n      - alert: {}\n{}\n", rule.name, rule.lines.join("\n"))
}

#[test]
fn every_alert_is_silent_for_a_day_on_which_nothing_moves() {
    let Some(promtool) = Promtool::find() else { skip_test!("no-prometheus") };
    let files: Vec<String> = in_folder("alerts/tests", "yml").iter().map(|path| read(path)).collect();
    let directory = test_dir();
    let (rules, test) = (directory.path().join("rule.yml"), directory.path().join("test.yml"));
    let write = |path: &std::path::Path, text: String| std::fs::write(path, text).expect("our own directory");
    let head = format!("rule_files:\n  - {}\nevaluation_interval: 1m\n\ntests:\n", rules.display());
    let is_silent = |group: &String, alert: &str| {
        let Some(held) = held_for_a_day(group, alert) else { return false };
        write(&test, format!("{head}{held}"));
        promtool.run(&["test", "rules", &test.display().to_string()], b"").ok
    };
    let fires: Vec<String> = alerts()
        .into_iter()
        .filter(|rule| {
            write(&rules, alone(rule));
            let verdict = promtool.run(&["check", "rules", &rules.display().to_string()], b"");
            assert!(verdict.ok, "{}: {}", rule.name, verdict.output);
            !groups_of(&rule.name, &files).iter().any(|group| is_silent(group, &rule.name))
        })
        .map(|rule| rule.name)
        .collect();
    assert_eq!(fires, GROWS_OLD, "each needs a test that begins with values of a healthy host");
}

#[test]
fn first_value_of_each_series_is_held() {
    let group = " a\n    interval: 15s\n    input_series:\n      - series: a{job=\"b\"}\n        values: _x3 2+1x9 stale\n    \
                 alert_rule_test:\n      - eval_time: 1m\n        alertname: A\n        exp_alerts:\n";
    let held = held_for_a_day(group, "A").unwrap();
    assert!(held.contains("interval: 1m\n") && held.contains("values: 2x1440\n"), "{held}");
    assert!(held.ends_with("eval_time: 24h\n        alertname: A\n        exp_alerts: []\n"), "{held}");
}
