//! The single numbers of each board: one that counts shows what happened within the whole time range, not within the last minute.

use serde_json::Value;

use crate::boards::files::{boards, list, text};
use crate::boards::live::filled_for;
use crate::boards::promql::names;
use crate::common::{Promtool, test_dir};

/// An hour of a host on which each of these happened in its eleventh minute alone, and of one on which none did: name, labels, and the
/// values, one each half minute. Some series are born with the event, and go soon after it.
const HOUR: &[(&str, &str, &str, &str)] = &[
    ("up", "", "1x120", "1x120"),
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

/// The series of one of the two hosts.
fn body(happened: bool) -> String {
    let series = |(name, labels, eventful, quiet): &(&str, &str, &str, &str)| {
        let values = if happened { eventful } else { quiet };
        format!(
            "      - series: '{name}{{job=\"allostat\",instance=\"host-a:9740\",{labels}}}'\n        values: {values}\n"
        )
    };
    HOUR.iter().map(series).collect()
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
                // A share of the time is drawn over the range, and its highest is shown; all else is asked for once, at its end.
                let is_peak = panel["options"]["reduceOptions"]["calcs"] == serde_json::json!(["max"]);
                assert_ne!(Value::from(is_peak), target["instant"], "{place}: it shows its last step alone");
                let expression = filled_for(text(target, "expr"), "a", (".*", ".*")).replace("5s", "2m");
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
    assert!(verdict.ok, "{}", verdict.said);
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
