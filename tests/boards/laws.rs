//! What holds for every board and every rule, read as they lie there.
//!
//! Promise (Code, boards and alerts): Every metric, label and closed label value on a board or in an alert is in the
//! catalogue
//! Promise (Code, boards and alerts): Annotations of OOM kills, restarts and failures come from the chosen hosts, and
//! are present

use std::collections::{BTreeMap, BTreeSet};

use allostat::collectors::ErrorReason;
use allostat::collectors::measures;
use allostat::devices::measures::DEVICE;
use allostat::exporters::catalogue::CATALOGUE;
use allostat::kernel::proc::stat::MODES as CPU_MODES;
use allostat::model::alloc::AllocState;
use allostat::model::metric::Kind;
use allostat::model::observed::RestartCause;
use allostat::model::profile::Profile;
use allostat::model::service::CheckStatus;
use allostat::model::task::{Outcome, RestartReason, TaskState};
use allostat::model::update::UpdateState;
use allostat::snapshot::failed::FailureCounts;
use allostat::telemetry::durations::StartPhase;
use allostat::telemetry::launches::LaunchOutcome;
use allostat::telemetry::metrics::{DropReason, FoundAs, WatchedBy};
use allostat::telemetry::migrations::MigrationOutcome;
use allostat::telemetry::otlp::LossReason;
use serde_json::Value;

use crate::boards::files::{Board, alerts, boards, documented, list, rules, text};
use crate::boards::promql::{Names, names};

/// An expression of a board or a rule, with the place that names it in a failure.
pub struct Expression {
    place: String,
    pub text: String,
    pub names: Names,
}

fn expression(place: String, text: &str) -> Expression {
    let names = names(text).unwrap_or_else(|e| panic!("{place}: {e}: {text}"));
    assert!(!names.selectors.is_empty(), "{place}: no metric in {text:?}");
    Expression { place, text: text.to_owned(), names }
}

pub fn of_panel(board: &Board, panel: &Value) -> Vec<Expression> {
    let place = |target: &Value| format!("{} / {} / {}", board.stem, text(panel, "title"), text(target, "refId"));
    list(&panel["targets"]).iter().map(|t| expression(place(t), text(t, "expr"))).collect()
}

fn of_mark(board: &Board, mark: &Value) -> Expression {
    expression(format!("{} / {}", board.stem, text(mark, "name")), text(mark, "expr"))
}

fn everything() -> Vec<Expression> {
    let boards = boards();
    let panels = boards.iter().flat_map(|b| b.panels().into_iter().flat_map(|p| of_panel(b, p)));
    let marks = boards.iter().flat_map(|board| board.annotations().map(move |mark| of_mark(board, mark)));
    let rules = rules().into_iter().map(|r| expression(r.name, &r.expression));
    let documented = documented().into_iter().map(|(file, text)| expression(file, &text));
    panels.chain(marks).chain(rules).chain(documented).collect()
}

/// What Prometheus adds to every series.
const ADDED: [&str; 2] = ["job", "instance"];

/// The labels of a metric by the catalogue; Prometheus's own `up` has none but those that are added, what is recorded
/// none but those of what it is made of.
fn labels_of(name: &str) -> Option<Vec<&'static str>> {
    if let Some(rule) = rules().into_iter().find(|rule| rule.records && rule.name == name) {
        let made_of = expression(rule.name, &rule.expression).names.selectors;
        return Some(made_of.iter().filter_map(|selector| labels_of(&selector.name)).flatten().collect());
    }
    let family = |name: &str| CATALOGUE.iter().find(|d| d.name == name);
    if name == "up" {
        return Some(ADDED.to_vec());
    }
    // Prometheus's own, with the labels of whatever alerts.
    if name == "ALERTS" {
        return Some([&ADDED[..], &["alertname", "alertstate", "severity", "workload", "task", "alloc_id"]].concat());
    }
    let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| {
        let desc = family(name.strip_suffix(suffix)?).filter(|d| d.kind == Kind::Histogram)?;
        Some([desc.labels, if *suffix == "_bucket" { &["le"] } else { &[] }].concat())
    });
    // One that is stored natively has the name of its family.
    let plain = family(name).map(|d| d.labels.to_vec());
    let created = CATALOGUE.iter().find(|d| d.created_name().as_deref() == Some(name)).map(|d| d.labels.to_vec());
    plain.or(histogram).or(created).map(|own| [own, ADDED.to_vec()].concat())
}

#[test]
fn every_metric_and_label_named_is_in_the_catalogue() {
    let mut wrong = Vec::new();
    for Expression { place, names, .. } in everything() {
        let mut all = BTreeSet::new();
        for selector in &names.selectors {
            let Some(labels) = labels_of(&selector.name) else {
                wrong.push(format!("{place}: there is no metric {}", selector.name));
                continue;
            };
            for (label, _, _) in selector.matchers.iter().filter(|(l, _, _)| !labels.contains(&l.as_str())) {
                wrong.push(format!("{place}: {} has no label {label}", selector.name));
            }
            all.extend(labels);
        }
        for label in names.grouping.iter().filter(|l| !all.contains(l.as_str())) {
            wrong.push(format!("{place}: no metric there has the label {label}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A misspelt value matches nothing, or with `!=` everything, without an error.
#[test]
fn every_label_value_of_a_closed_list_is_in_that_list() {
    let mut known: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let of_tasks = measures().flat_map(|measure| measure.cells).flat_map(|cell| cell.labels);
    let of_devices = DEVICE.iter().flat_map(|measure| measure.cells).flat_map(|cell| cell.labels);
    for (label, value) in of_tasks.chain(of_devices) {
        known.entry(label).or_default().insert(value);
    }
    known.entry("state").or_default().extend(TaskState::ALL.map(TaskState::as_str));
    known.entry("state").or_default().extend(AllocState::ALL.map(AllocState::as_str));
    known.entry("outcome").or_default().extend(Outcome::ALL.map(Outcome::as_str));
    known.entry("outcome").or_default().extend(FoundAs::ALL.map(FoundAs::as_str));
    known.entry("reason").or_default().extend(RestartReason::ALL.map(RestartReason::as_str));
    known.entry("reason").or_default().extend(RestartCause::ALL.map(RestartCause::as_str));
    known.entry("reason").or_default().extend(ErrorReason::ALL.map(ErrorReason::as_str));
    known.entry("reason").or_default().extend(FailureCounts::REASONS);
    known.entry("reason").or_default().extend(DropReason::ALL.map(DropReason::as_str));
    known.entry("reason").or_default().extend(LossReason::ALL.map(LossReason::as_str));
    known.entry("outcome").or_default().extend(LaunchOutcome::ALL.map(LaunchOutcome::as_str));
    known.entry("outcome").or_default().extend(MigrationOutcome::ALL.map(MigrationOutcome::as_str));
    known.entry("outcome").or_default().extend(UpdateState::ALL.map(UpdateState::as_str));
    known.entry("status").or_default().extend(CheckStatus::ALL.map(CheckStatus::as_str));
    known.entry("profile").or_default().extend(Profile::ALL.map(Profile::as_str));
    known.entry("mode").or_default().extend(CPU_MODES);
    known.entry("watched_by").or_default().extend(WatchedBy::ALL.map(WatchedBy::as_str));
    known.entry("phase").or_default().extend(StartPhase::ALL.map(StartPhase::as_str));
    let mut seen = 0;
    for Expression { place, names, .. } in everything() {
        for (label, operator, value) in names.selectors.iter().flat_map(|s| &s.matchers).filter(|m| !m.2.contains('$'))
        {
            let Some(values) = known.get(label.as_str()) else { continue };
            seen += 1;
            // A regular expression of ours is a list of words.
            let words = if operator.ends_with('~') { value.split('|').collect() } else { vec![value.as_str()] };
            for word in words {
                assert!(values.contains(word), "{place}: {label}{operator}{value:?}: {word:?} is none of {values:?}");
            }
        }
    }
    assert!(seen > 0, "no label value was checked");
}

/// Keys in order, two spaces, one newline at the end: a board saved by Grafana and brought into this form differs only
/// where it was changed. `ALLOSTAT_BLESS=1` writes it.
#[test]
fn every_board_is_stored_in_the_one_normal_form() {
    fn sorted(value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                let ordered: BTreeMap<&String, Value> = map.iter().map(|(k, v)| (k, sorted(v))).collect();
                Value::Object(ordered.into_iter().map(|(k, v)| (k.clone(), v)).collect())
            }
            Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
            other => other.clone(),
        }
    }
    for board in boards() {
        let normal = serde_json::to_string_pretty(&sorted(&board.json)).unwrap() + "\n";
        if std::env::var_os("ALLOSTAT_BLESS").is_some() {
            std::fs::write(&board.path, &normal).unwrap();
        } else {
            assert!(normal == board.text, "{} is not normal: ALLOSTAT_BLESS=1 rewrites it", board.path.display());
        }
    }
}

#[test]
fn every_board_has_a_unique_fixed_uid_a_title_the_tag_and_a_supported_schema() {
    let mut uids = BTreeSet::new();
    for board in boards() {
        let json = &board.json;
        assert_eq!(text(json, "uid"), board.stem, "the uid is the file's name, so that links hold");
        assert!(uids.insert(board.stem.clone()));
        assert!(!text(json, "title").is_empty() && !text(json, "description").is_empty(), "{}", board.stem);
        assert!(list(&json["tags"]).contains(&"allostat".into()), "{}", board.stem);
        assert!((39..=41).contains(&json["schemaVersion"].as_u64().unwrap()), "{}", board.stem);
        assert!(json["id"].is_null(), "{}: an id belongs to one Grafana", board.stem);
    }
}

#[test]
fn every_panel_has_a_description_a_unit_and_a_meaning_of_no_data() {
    for board in boards() {
        let mut ids = BTreeSet::new();
        for panel in board.panels() {
            let place = format!("{} / {}", board.stem, text(panel, "title"));
            let defaults = &panel["fieldConfig"]["defaults"];
            assert!(!text(panel, "title").is_empty(), "{place}: no title");
            assert!(text(panel, "description").len() > 20, "{place}: no description");
            assert!(!text(defaults, "unit").is_empty(), "{place}: no unit");
            assert!(text(defaults, "noValue").len() > 10, "{place}: does not say what no data means");
            assert!(ids.insert(panel["id"].as_u64().unwrap_or_else(|| panic!("{place}: no id"))), "{place}: id twice");
            assert!(!list(&panel["targets"]).is_empty(), "{place}: asks nothing");
            let mut refs = BTreeSet::new();
            for target in list(&panel["targets"]) {
                assert!(refs.insert(text(target, "refId")), "{place}: refId twice");
                assert!(!text(target, "legendFormat").is_empty(), "{place}: no legend");
                assert_ne!(target["instant"], target["range"], "{place}: either instant or range");
                assert_eq!(target["format"] == "table", panel["type"] == "table", "{place}: format");
            }
        }
    }
}

/// PSI has both kinds: only the description says which of them a panel is meant to show.
#[test]
fn panel_of_one_kind_of_pressure_describes_that_kind() {
    let mut seen = 0;
    for board in boards() {
        for panel in board.panels() {
            let requests = of_panel(&board, panel);
            let pressure =
                requests.iter().flat_map(|a| &a.names.selectors).filter(|s| s.name.contains("_pressure_stall_"));
            let kinds: BTreeSet<Option<&str>> = pressure
                .map(|s| s.matchers.iter().find(|m| m.0 == "kind").map(|(_, _, value)| value.as_str()))
                .collect();
            let description = text(panel, "description");
            let contains = |word| description.split(|c: char| !c.is_alphabetic()).any(|other| other == word);
            let expected = match kinds.iter().collect::<Vec<_>>()[..] {
                [Some("some")] => (true, false),
                [Some("full")] => (false, true),
                _ => continue,
            };
            seen += 1;
            assert_eq!((contains("some"), contains("all")), expected, "{} / {}", board.stem, text(panel, "title"));
        }
    }
    assert!(seen > 1, "no panel was checked");
}

/// What Grafana calls the values of a table: of several questions, which it merges, by their letters.
pub fn value_columns(panel: &Value) -> Vec<String> {
    let steps: Vec<&str> = list(&panel["transformations"]).iter().map(|step| text(step, "id")).collect();
    match list(&panel["targets"]) {
        [_] => {
            assert_eq!(steps, ["organize"], "{}", text(panel, "title"));
            vec!["Value".to_owned()]
        }
        several => {
            assert_eq!(steps, ["merge", "organize"], "{}", text(panel, "title"));
            several.iter().map(|target| format!("Value #{}", text(target, "refId"))).collect()
        }
    }
}

/// A table names its columns once more, and so do the links in it.
#[test]
fn table_columns_are_labels_of_their_queries() {
    for board in boards() {
        for panel in board.panels().into_iter().filter(|p| p["type"] == "table") {
            let requests = of_panel(&board, panel);
            let labels = requests.iter().flat_map(|a| &a.names.selectors).filter_map(|s| labels_of(&s.name)).flatten();
            let values = value_columns(panel);
            let columns = labels.chain(["Time", "__name__"]).chain(values.iter().map(String::as_str));
            let columns: BTreeSet<&str> = columns.collect();
            let options = &list(&panel["transformations"]).last().expect("it orders its columns")["options"];
            for key in ["excludeByName", "indexByName", "renameByName"] {
                for column in options[key].as_object().unwrap().keys() {
                    assert!(columns.contains(column.as_str()), "{}: {key} {column}", text(panel, "title"));
                }
            }
            for used in panel.to_string().split("__data.fields.").skip(1).filter_map(|rest| rest.split('}').next()) {
                assert!(columns.contains(used), "{}: a link uses {used}", text(panel, "title"));
            }
        }
    }
}

#[test]
fn panels_do_not_lie_on_each_other() {
    for board in boards() {
        let mut taken = BTreeMap::new();
        for panel in list(&board.json["panels"]) {
            let side = |key: &str| panel["gridPos"][key].as_u64().unwrap_or_else(|| panic!("{panel}: no {key}"));
            assert!(side("x") + side("w") <= 24, "{}: wider than the grid", text(panel, "title"));
            for cell in
                (side("x")..side("x") + side("w")).flat_map(|x| (side("y")..side("y") + side("h")).map(move |y| (x, y)))
            {
                if let Some(other) = taken.insert(cell, text(panel, "title")) {
                    panic!("{}: {:?} and {other:?} both lie at {cell:?}", board.stem, text(panel, "title"));
                }
            }
        }
    }
}

#[test]
fn every_board_queries_the_chosen_data_source_and_uses_each_of_its_variables() {
    for board in boards() {
        let variables: BTreeSet<&str> = board.variables().iter().map(|v| text(v, "name")).collect();
        assert!(board.variables().iter().any(|v| text(v, "name") == "datasource" && text(v, "type") == "datasource"));
        let source = serde_json::json!({"type": "prometheus", "uid": "${datasource}"});
        for panel in board.panels() {
            let all = list(&panel["targets"]).iter().chain([panel]);
            all.for_each(|requests| {
                assert_eq!(requests["datasource"], source, "{} / {}", board.stem, text(panel, "title"))
            });
        }
        for variable in board.variables().iter().filter(|v| text(v, "type") == "query") {
            assert_eq!(variable["datasource"], source, "{}", text(variable, "name"));
            assert_eq!(variable["refresh"], 2, "{}: follows the time range", text(variable, "name"));
        }
        for name in variables.iter().filter(|name| **name != "datasource") {
            let ways = [format!("\"${name}\""), format!("\\\"${name}\\\""), format!("\"${{{name}}}/")];
            let used = ways.iter().any(|way| board.text.contains(way));
            assert!(used, "{}: ${name} is defined and not used", board.stem);
        }
        for used in everything_after_dollar(&board) {
            assert!(variables.contains(used.as_str()), "{}: ${used} is used and not defined", board.stem);
        }
    }
}

/// The variables in the expressions of a board, Grafana's own left out.
fn everything_after_dollar(board: &Board) -> BTreeSet<String> {
    let panels = board.panels().into_iter().flat_map(|p| of_panel(board, p)).map(|e| e.text);
    let queries = board.variables().iter().map(|v| text(v, "definition").to_owned() + text(&v["query"], "query"));
    let all: Vec<String> = panels.chain(queries).collect();
    all.iter()
        .flat_map(|text| text.split('$').skip(1))
        .map(|rest| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>())
        .filter(|name| !name.starts_with("__"))
        .collect()
}

/// A counter, or a series of a histogram: these are counters too.
fn counts(name: &str) -> bool {
    let of_histogram = |suffix: &str| {
        let stem = name.strip_suffix(suffix);
        stem.is_some_and(|stem| CATALOGUE.iter().any(|d| d.name == stem && d.kind == Kind::Histogram))
    };
    name.ends_with("_total") || ["_bucket", "_sum", "_count", ""].into_iter().any(of_histogram)
}

/// The rules of Grafana's dashboard-linter that concern expressions.
#[test]
fn every_panel_filters_by_job_and_instance_and_rates_counters_over_the_interval() {
    for board in boards() {
        for panel in board.panels() {
            for (requested, target) in of_panel(&board, panel).iter().zip(list(&panel["targets"])) {
                for selector in &requested.names.selectors {
                    let place = format!("{}: {}", requested.place, selector.name);
                    assert!(selector.has("job", "=~", "$job"), "{place}: no job matcher");
                    let of_one = selector.has("instance", "=", "$host") && selector.has("alloc_id", "=", "$alloc_id");
                    assert!(of_one || selector.has("instance", "=~", "$instance"), "{place}: no instance matcher");
                    let rated = selector.inside.iter().any(|f| matches!(f.as_str(), "rate" | "increase" | "irate"));
                    let counter = counts(&selector.name);
                    assert!(!rated || counter, "{place}: rate() of what is no counter");
                    // Against what it was when the window began, which its `_created` says where nothing else does.
                    let created = CATALOGUE.iter().find(|d| d.name == selector.name).and_then(|d| d.created_name());
                    // All of one workload's task were created together: one that has none asks another's.
                    let is_its = |name: &str| created.as_ref().map_or(name.ends_with("_created"), |own| name == own);
                    let risen = requested.names.selectors.iter().any(|s| is_its(&s.name));
                    // A total of the whole life is a value of now, never a line.
                    let bare = counter && !rated && !risen;
                    assert!(!bare || target["instant"] == true, "{place}: a bare counter over time");
                    let window = selector.window.as_deref();
                    let is_free = |w: &str| w == "$__rate_interval" || (w == "$__range" && target["instant"] == true);
                    assert!(window.is_none_or(is_free), "{place}: a fixed window {window:?}");
                }
            }
        }
    }
}

/// Marks of what happened: of the chosen hosts, by name, and not at 0.
#[test]
fn every_annotation_filters_by_job_and_instance_and_names_its_event() {
    let mut seen = BTreeSet::new();
    for board in boards() {
        for mark in board.annotations() {
            let requested = of_mark(&board, mark);
            let place = &requested.place;
            assert!(seen.insert(place.clone()), "{place}: twice");
            let created = |name: &str| name.ends_with("_created");
            let risen = requested.names.selectors.iter().any(|selector| created(&selector.name));
            assert_eq!(
                mark["datasource"],
                serde_json::json!({"type": "prometheus", "uid": "${datasource}"}),
                "{place}"
            );
            assert!(text(mark, "textFormat").contains("{{") && requested.text.ends_with("> 0"), "{place}");
            for selector in &requested.names.selectors {
                let of_one = selector.has("instance", "=", "$host") && selector.has("alloc_id", "=", "$alloc_id");
                let of_chosen = of_one || selector.has("instance", "=~", "$instance");
                assert!(selector.has("job", "=~", "$job") && of_chosen, "{place}");
                // As panels take counters.
                assert!(!counts(&selector.name) || risen || selector.inside.iter().any(|f| f == "increase"), "{place}");
            }
        }
    }
    for board in ["allostat-fleet", "allostat-allocs", "allostat-task"] {
        for happened in ["OOM kills", "Restarts", "Failures"] {
            assert!(seen.contains(&format!("{board} / {happened}")), "{board} does not mark {happened}");
        }
    }
}

#[test]
fn links_between_boards_carry_data_source_instance_alloc_and_time() {
    fn links<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("url").and_then(Value::as_str).filter(|url| !url.is_empty()));
                map.values().for_each(|v| links(v, found));
            }
            Value::Array(items) => items.iter().for_each(|v| links(v, found)),
            _ => {}
        }
    }
    let boards = boards();
    for board in &boards {
        let mut found = Vec::new();
        links(&board.json, &mut found);
        assert!(!found.is_empty(), "{}: leads nowhere", board.stem);
        for url in found {
            // Out of Grafana: to the page of an alert, wherever the user's copy of the runbooks is.
            if url == "${runbooks}/${__data.fields.alertname}.md" {
                continue;
            }
            let uid = url.strip_prefix("/d/").and_then(|rest| rest.split(['/', '?']).next()).unwrap_or_default();
            assert!(boards.iter().any(|b| b.stem == uid), "{}: {url} leads to no board of ours", board.stem);
            assert!(url.contains("${__url_time_range}"), "{}: {url} loses the time range", board.stem);
            let defines = |board: &Board, name: &str| board.variables().iter().any(|v| text(v, "name") == name);
            let all = ["datasource", "job", "instance", "source", "workload", "alloc", "task"];
            for variable in all {
                let handed_on = url.contains(&format!("${{{variable}:queryparam}}"));
                let carried = handed_on || url.contains(&format!("var-{variable}="));
                // Grafana leaves what it does not know as it stands.
                assert!(defines(board, variable) || !handed_on, "{}: {url} has no {variable}", board.stem);
                assert!(!defines(board, variable) || carried, "{}: {url} loses {variable}", board.stem);
            }
        }
        for link in list(&board.json["links"]) {
            assert!(link["keepTime"] == true && link["includeVars"] == true, "{}: {link}", board.stem);
        }
    }
}

/// What a user opens a board for: titles of rows and panels, and the boards to which it leads.
const REQUIRED: &[(&str, &[&str], &[&str])] = &[
    (
        "allostat-fleet",
        &[
            "Alerts",
            "CPU of workloads",
            "Memory of workloads",
            "Hosts",
            "Busiest hosts by CPU",
            "Fullest hosts by memory",
            "Pressure of hosts",
            "Fullest file systems",
            "Busiest disks",
        ],
        &["allostat-allocs", "allostat-host", "allostat-task", "${runbooks}"],
    ),
    (
        "allostat-host",
        &[
            "Alerts",
            "CPU by mode",
            "Load",
            "Pressure",
            "Memory",
            "Swap",
            "Throughput of disks",
            "Queue of disks",
            "Space of file systems",
            "Network errors and drops",
            "Limits, clock and failures",
            "Top tasks by memory / limit",
        ],
        &["allostat-allocs", "allostat-task", "${runbooks}"],
    ),
    (
        "allostat-allocs",
        &["Identity", "Memory by task, with peak and limit", "State of its tasks"],
        &["allostat-task", "allostat-gpu"],
    ),
    (
        "allostat-task",
        &["Memory against its limit", "CPU against its limit", "Throttled share"],
        &["allostat-lifecycle"],
    ),
    ("allostat-gpu", &["GPUs", "Memory by task", "Allocs by GPU utilization", "XID errors"], &["allostat-allocs"]),
    (
        "allostat-agent",
        &["Age of samples by collector", "Queue of each collector", "Latency of a scrape, p99"],
        &["allostat-allocs"],
    ),
    (
        "allostat-lifecycle",
        &[
            "Tasks by state",
            "Start latency",
            "Kill latency",
            "Slowest hooks, p99",
            "Failing checks",
            "Updates of jobs",
            "Periodic jobs",
            "Data moved to replacements",
            "Fullest alloc directories",
            "Drivers",
            "Artifact downloads",
        ],
        &["allostat-allocs"],
    ),
];

/// Promise (Code, boards and alerts): Each board has the expected rows and panels, and links to the others
#[test]
fn each_board_has_what_people_come_for_and_leads_on() {
    for (stem, titles, ways) in REQUIRED {
        let board =
            boards().into_iter().find(|board| board.stem == *stem).unwrap_or_else(|| panic!("there is no {stem}"));
        for title in *titles {
            assert!(board.text.contains(&format!("\"title\": {title:?}")), "{stem} has no {title:?}");
        }
        for way in *ways {
            let to_board = format!("\"/d/{way}/");
            assert!(
                board.text.contains(&to_board) || board.text.contains(&format!("\"{way}/")),
                "{stem} leads not to {way}"
            );
        }
        // Users do not know IDs of allocs: an alloc is picked by its name.
        if let Some(alloc) = board.variables().iter().find(|variable| text(variable, "name") == "alloc") {
            assert!(
                text(alloc, "regex").contains("?<text>") && alloc["query"].to_string().contains("name"),
                "{stem}: {alloc}"
            );
        }
    }
}

#[test]
fn every_alert_has_a_severity_a_summary_and_a_runbook() {
    let mut seen = BTreeSet::new();
    for rule in alerts() {
        assert!(seen.insert(rule.name.clone()), "{} twice", rule.name);
        let value = |key: &str| {
            let line = rule.lines.iter().find_map(|l| l.trim().strip_prefix(&format!("{key}:")));
            line.map(str::trim).unwrap_or_else(|| panic!("{}: no {key}", rule.name)).to_owned()
        };
        assert!(matches!(value("severity").as_str(), "critical" | "warning" | "info"), "{}", rule.name);
        for key in ["summary", "description", "runbook"] {
            assert!(!value(key).is_empty(), "{}: empty {key}", rule.name);
        }
    }
}

/// A histogram is stored with buckets, natively, or both, by the settings of each Prometheus.
///
/// Promise (Code, boards and alerts): Quantiles of boards and alerts have values where only native histograms are
/// stored
#[test]
fn every_quantile_is_computed_from_classic_and_from_native_histograms() {
    let mut seen = 0;
    for Expression { place, names, text } in everything() {
        // Each of them is recorded by itself under its former name.
        if !text.contains("histogram_quantile") {
            continue;
        }
        let selectors = || names.selectors.iter();
        for classic in selectors().filter(|s| s.name.ends_with("_bucket")) {
            let native = classic.name.trim_end_matches("_bucket");
            let is_twin = |s: &&crate::boards::promql::Selector| {
                s.name == native && s.matchers == classic.matchers && s.window == classic.window
            };
            assert_eq!(selectors().filter(is_twin).count(), 1, "{place}: {native} is asked for its buckets alone");
            assert!(text.contains(") or histogram_quantile(") || text.contains("\nor\nhistogram_quantile("), "{place}");
            seen += 1;
        }
    }
    assert!(seen >= 13, "{seen} quantiles");
}

/// A legend of many lines is read as a table: what a line reached, and where it is now.
///
/// Promise (Code, boards and alerts): A graph's legend is a table with max and last; all of a variable is one pattern
#[test]
fn every_graph_has_a_legend_that_is_a_table_with_max_and_last() {
    for board in boards() {
        for panel in board.panels().into_iter().filter(|p| p["type"] == "timeseries") {
            let place = format!("{} / {}", board.stem, text(panel, "title"));
            let legend = &panel["options"]["legend"];
            assert_eq!((&legend["displayMode"], &legend["showLegend"]), (&"table".into(), &true.into()), "{place}");
            assert_eq!(legend["calcs"], serde_json::json!(["max", "lastNotNull"]), "{place}");
            // Three lines of many are seen without scrolling: those that matter.
            assert_eq!((&legend["sortBy"], &legend["sortDesc"]), (&"Max".into(), &true.into()), "{place}");
        }
    }
}

/// All of many values is one short pattern, and has what ended before the time range began.
#[test]
fn every_variable_of_many_values_has_a_pattern_for_all_of_them() {
    let patterns = [
        ("job", ".*allostat.*"),
        ("instance", ".+"),
        ("source", ".*"),
        ("workload", ".*"),
        ("task", ".+"),
        ("device", ".+"),
    ];
    for board in boards() {
        for variable in board.variables().iter().filter(|v| v["includeAll"] == true) {
            let name = text(variable, "name");
            let expected = patterns.iter().find(|(known, _)| *known == name).map(|(_, pattern)| *pattern);
            assert_eq!(variable["allValue"].as_str(), expected, "{}: ${name}", board.stem);
        }
        let failures = board.annotations().filter(|mark| text(mark, "name") == "Failures");
        failures.for_each(|mark| assert_eq!(mark["enable"], false, "{}: many vertical lines", board.stem));
    }
}
