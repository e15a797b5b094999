//! The single numbers of each board: one that counts shows what happened within the whole time range, not within the
//! last minute.
//!
//! Promise (Code, boards and alerts): A count on a board includes events from anywhere in the time range

use std::collections::BTreeSet;

use serde_json::Value;

use crate::boards::files::{boards, list, text};
use crate::boards::live::filled_for;
use crate::boards::promql::names;
use crate::common::{Promtool, test_dir};

/// Of every host.
const ALWAYS: &[(&str, &str)] = &[("up", "1x120"), ("allostat_build_info", "1x120")];

/// Of one whose agent has the default profile, and whose Prometheus evaluates the alerts.
const MEASURED: &[(&str, &str, &str)] = &[
    ("allostat_exposition_info", "profile=\"standard\"", "1x120"),
    ("allostat_capability", "feature=\"memory\"", "1x120"),
    ("job_instance:allostat_alerts:evaluated", "", "1x120"),
];

/// Of a GPU that works and counts neither memory errors nor the time of throttling.
const GPU: &[(&str, &str, &str)] = &[
    ("allostat_device_up", "device_uuid=\"GPU-1\"", "1x120"),
    ("allostat_device_stuck", "device_uuid=\"GPU-1\"", "0x120"),
    ("allostat_device_utilization_ratio", "device_uuid=\"GPU-1\",engine=\"general\"", "0.5x120"),
];

/// Numbers that are 0 where an agent has nothing to count, whatever its host is.
const ZERO_OF_NOTHING: &[&str] = &[
    "allostat-agent / Agents without data",
    "allostat-allocs / Agents without data",
    "allostat-fleet / Agents without data",
    "allostat-fleet / Failed for good",
    "allostat-host / Agents without data",
    "allostat-lifecycle / Abandoned tasks",
    "allostat-lifecycle / Failed for good",
    "allostat-lifecycle / Pending allocs",
    "allostat-lifecycle / Tasks in backoff",
    "allostat-lifecycle / Tasks stuck",
];

/// Those that are 0 where the alerts are evaluated, the profile has them, or the kernel counts them.
const ZERO_OF_MEASURED: &[&str] =
    &["allostat-fleet / Firing alerts", "allostat-fleet / OOM kills", "allostat-lifecycle / SIGKILL after timeout"];

/// Those that are 0 where there is a GPU.
const ZERO_OF_GPU: &[&str] = &[
    "allostat-gpu / Driver errors (XID)",
    "allostat-gpu / GPUs that do not answer",
    "allostat-gpu / Hanging GPUs",
    "allostat-gpu / Held and idle",
];

/// An hour of a host on which each of these happened in its eleventh minute alone, and of one on which none did: name,
/// labels, and the values, one each half minute. Some series are born with the event, and go soon after it.
const HOUR: &[(&str, &str, &str, &str)] = &[
    ("allostat_workload_oom_kills_total", "workload=\"w\",task=\"t\"", "_x20 1x30 stale", "0x120"),
    ("allostat_workload_oom_kills_created", "workload=\"w\",task=\"t\"", "_x20 600x30 stale", "0x120"),
    ("allostat_workload_kill_escalations_total", "workload=\"w\",task=\"t\"", "_x20 1x30 stale", "0x120"),
    ("allostat_workload_kill_escalations_created", "workload=\"w\",task=\"t\"", "_x20 600x30 stale", "0x120"),
    // Of a workload that is older than the hour: it counts from what it was.
    ("allostat_workload_oom_kills_total", "workload=\"old\",task=\"t\"", "7x120", "7x120"),
    ("allostat_workload_oom_kills_created", "workload=\"old\",task=\"t\"", "-9000x120", "-9000x120"),
    (
        "allostat_device_xid_last_timestamp_seconds",
        "device_uuid=\"GPU-1\",xid=\"13\"",
        "_x20 600x30 stale",
        "-9000x120",
    ),
    (
        "allostat_device_ecc_errors_total",
        "device_uuid=\"GPU-1\",kind=\"uncorrected\",counter=\"volatile\"",
        "0x20 1x99",
        "3x120",
    ),
    (
        "allostat_device_throttle_seconds_total",
        "device_uuid=\"GPU-1\",reason=\"hardware_thermal\"",
        "0x19 20 40x99",
        "9x120",
    ),
    ("allostat_host_pressure_stall_seconds_total", "resource=\"memory\",kind=\"full\"", "0x19 20 40x99", "9x120"),
    ("allostat_state_db_write_failures_total", "", "0x20 1x99", "4x120"),
    ("allostat_collector_errors_total", "collector=\"disk\",reason=\"io\"", "0x20 1x99", "4x120"),
    // Whole lives.
    (
        "allostat_task_restarts_total",
        "workload=\"w\",task=\"t\",alloc_id=\"a\",reason=\"policy\"",
        "0x20 1x99",
        "0x120",
    ),
    ("allostat_task_oom_kills_total", "workload=\"w\",task=\"t\",alloc_id=\"a\"", "0x20 1x99", "0x120"),
    ("allostat_workload_given_up_total", "workload=\"w\",task=\"t\"", "0x20 1x99", "0x120"),
];

/// A series of the one host.
fn series(name: &str, labels: &str, values: &str) -> String {
    format!(
        "      - series: '{name}{{job=\"allostat\",instance=\"host-a:9740\",{labels}}}'\n        values: {values}\n"
    )
}

fn bare() -> String {
    ALWAYS.iter().map(|(name, values)| series(name, "", values)).collect()
}

fn all(of: &[(&str, &str, &str)]) -> String {
    of.iter().map(|(name, labels, values)| series(name, labels, values)).collect()
}

/// One that measures everything, with or without an event.
fn body(happened: bool) -> String {
    let hour = HOUR
        .iter()
        .map(|(name, labels, eventful, quiet)| series(name, labels, if happened { eventful } else { quiet }));
    hour.chain([bare(), all(MEASURED), all(GPU)]).collect()
}

/// As it is asked in the hour.
fn query_of(target: &Value) -> String {
    filled_for(text(target, "expr"), "a", (".*", ".*")).replace("5s", "2m")
}

/// The counters of a number. A stall and a throttle are shown as shares of the time.
fn counters(target: &Value) -> Vec<String> {
    let named = names(text(target, "expr")).expect("the laws have read it").selectors;
    let counts = |name: &str| name.ends_with("_total") || name.ends_with("_last_timestamp_seconds");
    named.into_iter().map(|selector| selector.name).filter(|name| counts(name)).collect()
}

#[test]
fn each_number_that_counts_shows_an_event_of_fifty_minutes_ago_and_is_0_without_one() {
    let Some(promtool) = Promtool::find() else { skip_test!("no-prometheus") };
    let mut cases = [String::new(), String::new()];
    let mut seen = Vec::new();
    for board in boards() {
        for panel in board.panels().into_iter().filter(|panel| panel["type"] == "stat") {
            for target in list(&panel["targets"]) {
                let place = format!("{} / {}", board.stem, text(panel, "title"));
                let counted = counters(target);
                if counted.is_empty() {
                    continue;
                }
                for name in &counted {
                    assert!(HOUR.iter().any(|(known, ..)| known == name), "{place}: say what {name} was in that hour");
                }
                // A share of the time is drawn over the range, and its highest is shown; all else is asked for once, at
                // its end.
                let is_peak = panel["options"]["reduceOptions"]["calcs"] == serde_json::json!(["max"]);
                assert_ne!(Value::from(is_peak), target["instant"], "{place}: it shows its last step alone");
                let expression = query_of(target);
                for (happened, cases) in [false, true].into_iter().zip(&mut cases) {
                    let (at, value) = (if is_peak { "11m" } else { "1h" }, u8::from(happened));
                    *cases += &format!(
                        "      - eval_time: {at}\n        expr: 'sum(({expression}) > bool 0)'\n        exp_samples: [{{labels: '{{}}', value: {value}}}]\n"
                    );
                }
                seen.push(place);
            }
        }
    }
    assert!(seen.len() >= 10, "{seen:?}");
    let group = |(happened, cases): (bool, &String)| {
        format!("  - interval: 30s\n    input_series:\n{}    promql_expr_test:\n{cases}", body(happened))
    };
    let groups: String = [false, true].into_iter().zip(&cases).map(group).collect();
    let directory = test_dir();
    let file = directory.path().join("headlines.yml");
    std::fs::write(&file, format!("evaluation_interval: 30s\ntests:\n{groups}")).expect("our own directory");
    let verdict = promtool.run(&["test", "rules", &file.display().to_string()], b"");
    assert!(verdict.ok, "{}", verdict.output);
}

/// Nothing is known of GPUs on a host without one, of alerts where no rule is evaluated, of what a profile leaves out:
/// a 0 there would say that all is well. Where there is one and nothing happened, it is 0.
///
/// Promise (Code, boards and alerts): A number on a board is 0 where that is known, and absent on a host without GPUs,
/// rules or the profile
#[test]
fn headline_number_is_0_if_known_and_absent_if_unknown() {
    let Some(promtool) = Promtool::find() else { skip_test!("no-prometheus") };
    let lean = all(&[("allostat_exposition_info", "profile=\"lean\"", "1x120")]);
    let hosts: [(String, Vec<&[&str]>); 3] = [
        (bare() + &lean, vec![ZERO_OF_NOTHING]),
        (bare() + &all(MEASURED), vec![ZERO_OF_NOTHING, ZERO_OF_MEASURED]),
        (bare() + &all(MEASURED) + &all(GPU), vec![ZERO_OF_NOTHING, ZERO_OF_MEASURED, ZERO_OF_GPU]),
    ];
    let (mut groups, mut seen) = (String::new(), BTreeSet::new());
    for (body, zeros) in hosts {
        groups += &format!("  - interval: 30s\n    input_series:\n{body}    promql_expr_test:\n");
        for board in boards() {
            for panel in board.panels().into_iter().filter(|panel| panel["type"] == "stat") {
                let place = format!("{} / {}", board.stem, text(panel, "title"));
                let is_zero = zeros.iter().any(|some| some.contains(&place.as_str()));
                let expected = if is_zero { "[{labels: '{}', value: 0}]" } else { "[]" };
                for expression in list(&panel["targets"]).iter().map(query_of) {
                    groups += &format!(
                        "      - eval_time: 1h\n        expr: 'sum({expression})'\n        exp_samples: {expected}\n"
                    );
                }
                seen.insert(place);
            }
        }
    }
    let named = [ZERO_OF_NOTHING, ZERO_OF_MEASURED, ZERO_OF_GPU].concat();
    let unknown: Vec<_> = named.into_iter().filter(|place| !seen.contains(*place)).collect();
    assert_eq!(unknown, Vec::<&str>::new(), "no board has it");
    let directory = test_dir();
    let file = directory.path().join("zeros.yml");
    std::fs::write(&file, format!("evaluation_interval: 30s\ntests:\n{groups}")).expect("our own directory");
    let verdict = promtool.run(&["test", "rules", &file.display().to_string()], b"");
    assert!(verdict.ok, "{}", verdict.output);
}

/// What a title promises for the whole range is asked for over the range.
#[test]
fn a_number_takes_no_increase_over_the_last_step() {
    let mut wrong = Vec::new();
    for board in boards() {
        for panel in board.panels().into_iter().filter(|panel| panel["type"] == "stat") {
            for target in list(&panel["targets"]) {
                let named = names(text(target, "expr")).expect("the laws have read it").selectors;
                let last_step = named.iter().any(|s| s.window.as_deref() == Some("$__rate_interval"));
                if last_step && panel["options"]["reduceOptions"]["calcs"] != serde_json::json!(["max"]) {
                    wrong.push(format!("{} / {}", board.stem, text(panel, "title")));
                }
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}
