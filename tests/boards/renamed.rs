//! Former names of metrics: a table for people, and rules that record them from the new ones for one release.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use allostat::exporters::catalogue;
use allostat::exporters::renamed::SCHEMA_1;
use allostat::model::metric::Kind;

use crate::boards::files::{Rule, in_folder, read, root, rules};
use crate::common::{Agent, AgentOptions, Prometheus, golden_part, is_root, patience, wait_for, workload};

pub const FILE: &str = "alerts/schema-1.yml";
const BEGIN: &str = "<!-- made from the catalogue: begin -->\n";
const END: &str = "<!-- end -->\n";

/// Old and new name of each series that a Prometheus has of a family, stored natively or with buckets.
fn series(old: &str, new: &str) -> Vec<(String, String)> {
    let desc = catalogue::find(new).expect("a family of today");
    let both = |suffix: &str| (format!("{old}{suffix}"), format!("{new}{suffix}"));
    let mut all = vec![both("")];
    if desc.kind == Kind::Histogram {
        all.extend(["_bucket", "_sum", "_count"].map(both));
    }
    let created = |name: &str| format!("{}_created", name.strip_suffix("_total").unwrap_or(name));
    all.extend(desc.created_name().map(|name| (created(old), name)));
    all
}

fn recorded() -> Vec<Rule> {
    rules().into_iter().filter(|rule| rule.file.ends_with(FILE)).collect()
}

#[test]
fn the_page_of_fleets_has_each_old_name_with_its_new_one() {
    let mut made = String::from("| schema 1 | schema 2 |\n|---|---|\n");
    for (old, new) in SCHEMA_1 {
        writeln!(made, "| `{old}` | `{new}` |").expect("a text can be written");
    }
    golden_part("docs/fleet.md", (BEGIN, END), &made);
}

#[test]
fn every_series_of_a_renamed_family_is_recorded_under_its_old_name() {
    let expected: BTreeSet<(String, String)> = SCHEMA_1.iter().flat_map(|(old, new)| series(old, new)).collect();
    // What is recorded of many has a colon in its name.
    let found = recorded().into_iter().filter(|rule| !rule.name.contains(':')).map(|rule| (rule.name, rule.expression));
    assert_eq!(found.collect::<BTreeSet<_>>(), expected);
}

/// What is copied from the documentation has names of today.
#[test]
fn old_metric_names_occur_only_in_the_migration_docs() {
    let folders =
        [("docs", "md"), ("docs/runbooks", "md"), ("dashboards", "json"), ("alerts", "yml"), ("deploy", "yml")];
    for path in folders.iter().flat_map(|(folder, ending)| in_folder(folder, ending)) {
        if path.ends_with("docs/fleet.md") || path.ends_with(FILE) {
            continue;
        }
        for (old, _) in SCHEMA_1 {
            let stem = old.strip_suffix("_total").unwrap_or(old);
            assert!(!read(&path).contains(stem), "{}: {old}", path.display());
        }
    }
}

/// Fails, and has to be killed when it is stopped.
fn job() -> String {
    let task = |name: &str, does: &str| {
        let command = workload().display().to_string();
        format!(
            "task \"{name}\" {{\n driver = \"raw_exec\"\n kill_timeout = \"100ms\"\n config {{\n command = {command:?}\n \
             args = [{does}]\n }}\n }}\n"
        )
    };
    let tasks = [task("stubborn", r#""stubborn", "3600000""#), task("crash", r#""exit", "3""#)].concat();
    let restart = "restart {\n attempts = 2\n interval = \"1h\"\n delay = \"10ms\"\n mode = \"delay\"\n }";
    format!("job \"renamed\" {{\n type = \"batch\"\n group \"g\" {{\n {restart}\n {tasks} }}\n}}\n")
}

/// Under both names there are the same labels and, as nothing happens any more, the same values.
fn is_recorded(server: &Prometheus, rule: &Rule) -> bool {
    let (old, new) = (&rule.name, &rule.expression);
    // Counted: a native histogram is no value that the API gives as a number.
    let differs = |expression: String| !server.query(&format!("count({expression})")).is_empty();
    let is_there = !server.query(&format!("count({new})")).is_empty();
    // A histogram that is stored natively has no value to be compared.
    let differ = format!("({new} != {old}) or ({old} != {new}) or ({new} unless {old}) or ({old} unless {new})");
    let is_same = is_there && !differs(differ);
    if !is_same {
        eprintln!("{old} is not yet {new}");
    }
    is_same
}

/// Promise (Code, boards and alerts): Former names of metrics are recorded with the labels and values of the new ones,
/// on Prometheus 2 and 3
#[test]
fn a_real_prometheus_has_the_old_names_with_labels_and_values_of_the_new_ones() {
    if !is_root() {
        skip_test!("not-root");
    }
    let env = vec![("ALLOSTAT_PROFILE".to_owned(), "full".to_owned())];
    let agent = Agent::with(AgentOptions { env, ..AgentOptions::default() });
    let Some(two) = Prometheus::start(&[agent.address], &[root().join(FILE)]) else { skip_test!("no-prometheus") };
    let config = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{:?}]\nscrape_configs:\n\
         - {{job_name: allostat, static_configs: [{{targets: [\"{}\"]}}]}}\n",
        root().join(FILE).display().to_string(),
        agent.address
    );
    let Some(native) = Prometheus::start_version(3, &["native-histograms"], &config) else {
        skip_test!("no-prometheus")
    };
    two.wait_value("count(allostat_build_info{schema=\"2\"})", |agents| agents == 1.0);
    agent.run(&job());
    two.wait_value("sum(allostat_workload_exit_codes_total{code=\"3\"})", |exits| exits >= 2.0);
    let alloc = agent.alloc_ids().pop().expect("a job that was accepted must have an alloc");
    agent.cli(&["stop", &alloc]).ok();

    // One server has buckets and times of creation, the other one native histograms; nothing is lost of any output.
    let is_native = |rule: &Rule| catalogue::find(&rule.expression).is_some_and(|desc| desc.kind == Kind::Histogram);
    let (of_native, of_two): (Vec<Rule>, Vec<Rule>) =
        recorded().into_iter().filter(|rule| !rule.name.contains("log_lost")).partition(is_native);
    assert_eq!(of_native.len(), 3);
    assert!(of_two.len() > 20, "{}", of_two.len());
    for (server, rules) in [(&two, of_two), (&native, of_native)] {
        wait_for("the old names", Duration::from_secs(60) * patience(), || {
            let left = rules.iter().filter(|rule| !rule.name.contains(':') && !is_recorded(server, rule)).count();
            (left == 0).then_some(())
        });
    }
    agent.stop();
}
