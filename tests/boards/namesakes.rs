//! Two hosts with workloads of the same names: an `alloc_id` such as `docker:web` is one host's, so that whatever goes
//! by it goes by `job` and `instance` too.
//!
//! Promise (Code, boards and alerts): Allocs of equal names on two hosts are joined and shown each by itself
//! Promise (Code, boards and alerts): `Alloc` on a board selects one alloc of one host, and its panels show that one
//! alone

use std::collections::BTreeSet;
use std::time::Duration;

use allostat::exporters::catalogue::CATALOGUE;
use allostat::model::profile::Profile;

use crate::boards::files::{boards, documented, in_folder, list, read, root, rules, text};
use crate::boards::gpus::Gpus;
use crate::boards::live::{filled_for, picked, rules_are_healthy};
use crate::boards::pushed::{Source, pushed_to};
use crate::common::{Agent, Cgroups, Prometheus, is_root, patience, wait_for};

/// Each join that a HELP text recommends.
fn joins() -> Vec<String> {
    let join = |help: &str| {
        let (_, rest) = help.split_once("join: ")?;
        rest.split('.').next().map(str::to_owned)
    };
    let found: Vec<String> = CATALOGUE.iter().filter_map(|desc| join(desc.help)).collect();
    assert!(found.len() >= 2, "{found:?}");
    found
}

/// The expressions of a board with the place of each.
pub fn of_boards() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for board in boards() {
        for panel in board.panels() {
            let place = |target: &serde_json::Value| {
                format!("{} / {} / {}", board.stem, text(panel, "title"), text(target, "refId"))
            };
            all.extend(list(&panel["targets"]).iter().map(|target| (place(target), text(target, "expr").to_owned())));
        }
        let mark = |mark: &serde_json::Value| {
            (format!("{} / {}", board.stem, text(mark, "name")), text(mark, "expr").to_owned())
        };
        all.extend(board.annotations().map(mark));
    }
    all
}

/// The labels after a word, as often as it stands there: `on (a, b)`.
fn labels_after<'a>(text: &'a str, word: &str) -> Vec<BTreeSet<&'a str>> {
    let pattern = regex::Regex::new(&format!(r"\b{word} ?\(([a-z_]+(?:, [a-z_]+)*)?\)")).expect("it is one");
    let labels = |found: regex::Captures<'a>| found.get(1).map_or("", |labels| labels.as_str()).split(", ").collect();
    pattern.captures_iter(text).map(labels).collect()
}

#[test]
fn every_join_and_every_sum_by_alloc_includes_job_and_instance() {
    let pages = [in_folder("docs", "md"), in_folder("docs/runbooks", "md"), vec![root().join("README.md")]].concat();
    let inline = pages.iter().flat_map(|path| {
        // What looks like an expression.
        let text = read(path);
        let lines = text.lines().filter(|line| line.contains("allostat_") || line.contains("by (")).map(str::to_owned);
        lines.map(|line| (path.display().to_string(), line)).collect::<Vec<_>>()
    });
    let expressions = of_boards().into_iter().chain(rules().into_iter().map(|rule| (rule.name, rule.expression)));
    let all =
        expressions.chain(documented()).chain(joins().into_iter().map(|join| ("HELP".to_owned(), join))).chain(inline);
    let bare = regex::Regex::new(r"\b(sum|min|max|count|avg)\(").expect("it is one");
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for (place, expression) in all {
        let is_host_s = |labels: &BTreeSet<&str>| labels.contains("job") && labels.contains("instance");
        for labels in labels_after(&expression, "on") {
            seen += 1;
            if !is_host_s(&labels) {
                wrong.push(format!("{place}: on {labels:?} in {expression}"));
            }
        }
        let of_one_alloc = expression.contains("alloc_id=\"$alloc_id\"");
        for labels in labels_after(&expression, "by") {
            if (of_one_alloc || labels.contains("alloc_id")) && !is_host_s(&labels) {
                wrong.push(format!("{place}: by {labels:?} in {expression}"));
            }
        }
        if of_one_alloc && bare.is_match(&expression) {
            wrong.push(format!("{place}: hosts are added up in {expression}"));
        }
    }
    assert!(seen > 50, "{seen}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn two_agents_with_equal_names_are_joined_and_shown_each_by_itself() {
    if !is_root() {
        skip_test!("not-root");
    }
    if !are_shown_each_by_itself(Source::Scraped(2)) {
        skip_test!("no-prometheus");
    }
}

#[test]
fn two_agents_with_equal_names_are_joined_and_shown_each_by_itself_on_prometheus_3() {
    if !is_root() {
        skip_test!("not-root");
    }
    if !are_shown_each_by_itself(Source::Scraped(3)) {
        skip_test!("no-prometheus");
    }
}

#[test]
fn two_agents_with_equal_names_are_joined_and_shown_each_by_itself_on_pushed_data() {
    if !is_root() {
        skip_test!("not-root");
    }
    if !are_shown_each_by_itself(Source::Pushed) {
        skip_test!("no-prometheus");
    }
}

/// False: there is no such server.
fn are_shown_each_by_itself(source: Source) -> bool {
    let (mut gpus, observed) = (Gpus::install(), Cgroups::new());
    let shown = format!("cgroup:{}/*", observed.parent);
    let rule_files = in_folder("alerts", "yml");
    let store = match source {
        Source::Scraped(_) => None,
        Source::Pushed => match Prometheus::start_victoria_for_otlp("scrape_configs: []\n") {
            Some(store) => Some(store),
            None => return false,
        },
    };
    let agents = ["host-a", "host-b"].map(|host| {
        let mut options = gpus.options(Profile::Standard);
        let appearance = [("ALLOSTAT_OBSERVE", "true"), ("ALLOSTAT_OBSERVE_INCLUDE", &*shown)];
        options.env.extend(appearance.map(|(name, value)| (name.to_owned(), value.to_owned())));
        options.config += &store.as_ref().map_or_else(String::new, |store| pushed_to(store, host));
        Agent::with(options)
    });
    agents.iter().take(1).for_each(|agent| gpus.clear_faults(agent));
    let hosts = [(agents[0].address, "host-a"), (agents[1].address, "host-b")];
    // With what evaluates its rules, where that is another program.
    let started = match (source, store) {
        (Source::Scraped(major), _) => {
            Prometheus::start_named_on(major, 1, &hosts, &rule_files).map(|prometheus| (prometheus, None))
        }
        (Source::Pushed, Some(store)) => {
            Prometheus::start_vmalert(&store, None, &rule_files).map(|vmalert| (store, Some(vmalert)))
        }
        (Source::Pushed, None) => None,
    };
    let Some((prometheus, vmalert)) = started else { return false };
    let mut shared = observed.sleeper("web");
    observed.limit("web", 1 << 30, 64);
    let id = format!("cgroup:{}/web", observed.parent);
    prometheus.wait_value(&format!("count(allostat_task_memory_working_set_bytes{{alloc_id={id:?}}})"), |n| n == 2.0);
    prometheus.wait_value("count(count by (instance) (allostat_device_info))", |n| n == 2.0);

    // What HELP recommends, on what two hosts have under one name.
    for (join, family) in joins().iter().map(|join| {
        let family =
            if join.contains("device_uuid") { "allostat_device_up" } else { "allostat_task_memory_working_set_bytes" };
        (join, family)
    }) {
        let joined = prometheus.query(&format!("{family} {join}"));
        assert_eq!(joined.len(), prometheus.query(family).len(), "{join}");
    }
    let all = (".*", ".*");
    for (_, expression) in documented() {
        prometheus.query(&expression);
    }
    wait_for("panels of the alloc, with both hosts", Duration::from_secs(60) * patience(), || {
        let mut answered = 0;
        for (place, expression) in of_boards() {
            let found = prometheus.query(&filled_for(&expression, &id, all));
            if !expression.contains("alloc_id=\"$alloc_id\"") || found.is_empty() {
                continue;
            }
            let hosts: BTreeSet<&str> = found.iter().filter_map(|(labels, _)| labels["instance"].as_str()).collect();
            assert!(found.iter().all(|(labels, _)| labels["instance"].is_string()), "{place}: {found:?}");
            answered += usize::from(hosts.len() == 2);
        }
        (answered >= 20).then_some(())
    });
    // It is picked once for each host, and then shown of that one alone.
    agents[1].run(&crate::boards::live::job());
    let own = agents[1].alloc_ids().pop().expect("it was accepted");
    prometheus.wait_value(&format!("count(allostat_alloc_info{{alloc_id={own:?}}})"), |n| n == 1.0);
    let picked = picked(&prometheus, ".*");
    for host in ["host-a", "host-b"] {
        assert!(picked[&format!("{host} {id}")].ends_with(&format!("  {host}")), "{picked:?}");
        one_of_one_host_is_shown(&prometheus, host, &id);
    }
    assert!(picked.contains_key(&format!("host-b {own}")) && !picked.contains_key(&format!("host-a {own}")));
    rules_are_healthy(vmalert.as_ref().unwrap_or(&prometheus));
    // What a person is called for is on one host; recorded totals of workloads are of all hosts.
    for rule in rules() {
        let found = prometheus.query(&rule.expression);
        let is_of_a_host = |labels: &serde_json::Value| labels["instance"].is_string() && labels["job"].is_string();
        assert!(rule.records || found.iter().all(|(labels, _)| is_of_a_host(labels)), "{}: {found:?}", rule.name);
    }
    shared.kill().expect("it sleeps");
    shared.wait().expect("our own child");
    gpus.rest();
    agents.into_iter().for_each(Agent::stop);
    true
}

/// The hidden variables are the alloc and its host, and no panel of it has a series of another host.
fn one_of_one_host_is_shown(prometheus: &Prometheus, host: &str, id: &str) {
    let mut seen = 0;
    for board in boards() {
        let hidden = |name: &str| board.variables().iter().find(|v| text(v, "name") == name);
        let Some(variables) = hidden("host").zip(hidden("alloc_id")) else { continue };
        for (variable, expected) in [(variables.0, host), (variables.1, id)] {
            let query = text(&variable["query"], "query").replace("$alloc", &format!("{host} {id}"));
            let inner = query.strip_prefix("query_result(").and_then(|rest| rest.strip_suffix(')'));
            let found = prometheus.query(&inner.expect("it asks for series").replace("$job", ".+"));
            let label = if expected == host { "instance" } else { "alloc_id" };
            let values: Vec<&str> = found.iter().filter_map(|(labels, _)| labels[label].as_str()).collect();
            assert_eq!(values, [expected], "{}: ${}", board.stem, text(variable, "name"));
        }
    }
    for (place, expression) in of_boards() {
        if !expression.contains("instance=\"$host\"") {
            continue;
        }
        let chosen = expression.replace("\"$host\"", &format!("{host:?}"));
        for (labels, _) in prometheus.query(&filled_for(&chosen, id, (".*", ".*"))) {
            assert_eq!(labels["instance"], host, "{place}");
            seen += 1;
        }
    }
    assert!(seen >= 20, "{seen} series of {host}");
}
