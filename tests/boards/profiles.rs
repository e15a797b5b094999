//! Boards and alerts in each profile: what a profile leaves out is listed in docs/profiles.md with every panel and
//! alert that would need it, and no alert that is not listed there misses anything.
//!
//! Promise (Code, boards and alerts): The default profile has everything that boards, alerts and examples use; what
//! `lean` lacks is listed

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use allostat::exporters::Selection;
use allostat::exporters::catalogue::{self, CATALOGUE};
use allostat::model::metric::MetricDesc;
use allostat::model::profile::Profile;
use allostat::{snapshot, telemetry};

use crate::boards::alertmanager::failing;
use crate::boards::files::{Rule, boards, documented, in_folder, list, read, rules, text};
use crate::boards::promql::names;
use crate::boards::renamed::FILE as FORMER;
use crate::common::{
    Agent, AgentOptions, Promtool, Sample, golden_part, how_many, is_root, patience, tcp, test_dir, wait_for,
};

/// The families that an expression needs and a profile does not have.
pub fn missing(expression: &str, profile: Profile) -> BTreeSet<&'static str> {
    let named = names(expression).expect("the laws have read it").selectors;
    let families = named.iter().filter_map(|selector| catalogue::family(&selector.name));
    let own = families.filter(|desc| desc.profile > profile).map(|desc| desc.name);
    // A recorded series has the name of no family: it is computed from others.
    let is_named = |rule: &Rule| rule.records && named.iter().any(|selector| selector.name == rule.name);
    let recorded = rules().into_iter().filter(|rule| expression.contains(':') && is_named(rule));
    own.chain(recorded.flat_map(|rule| missing(&rule.expression, profile))).collect()
}

/// Each panel, alert and example by its name, with what it needs and does not get.
fn all_missing(profile: Profile) -> BTreeMap<String, BTreeSet<&'static str>> {
    let mut all: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    let mut note = |place: String, expression: &str| {
        let missing = missing(expression, profile);
        if !missing.is_empty() {
            all.entry(place).or_default().extend(missing);
        }
    };
    for board in boards() {
        for panel in board.panels() {
            let targets = list(&panel["targets"]).iter();
            targets.for_each(|t| note(format!("{}: {}", board.stem, text(panel, "title")), text(t, "expr")));
        }
        for mark in board.annotations() {
            note(format!("{}: marks of {}", board.stem, text(mark, "name")), text(mark, "expr"));
        }
        for variable in board.variables().iter().filter(|v| text(v, "type") == "query") {
            let families = CATALOGUE.iter().filter(|desc| text(&variable["query"], "query").contains(desc.name));
            families.for_each(|desc| note(format!("{}: ${}", board.stem, text(variable, "name")), desc.name));
        }
    }
    // Former names are missing wherever the new ones are.
    let today = rules().into_iter().filter(|rule| !rule.file.ends_with(FORMER));
    today.for_each(|rule| note(format!("alert {}", rule.name), &rule.expression));
    for (file, expression) in documented() {
        let file = file.rsplit('/').next().expect("a name").to_owned();
        note(format!("{file}: `{expression}`"), &expression);
    }
    all
}

#[test]
fn the_default_profile_has_every_family_of_every_board_alert_and_example() {
    assert_eq!(Selection::default().profile, Profile::Standard);
    for profile in [Profile::Standard, Profile::Full] {
        assert_eq!(all_missing(profile), BTreeMap::new(), "{profile:?}");
    }
}

const BEGIN: &str = "<!-- made from the boards and the catalogue: begin -->\n";
const END: &str = "<!-- end -->\n";

/// Where a name belongs, and the name: the rules, a board with a panel, a page (all its examples together).
fn group_of(place: &str) -> (&str, &str) {
    if let Some(rule) = place.strip_prefix("alert ") {
        return ("rules", rule);
    }
    let (group, name) = place.split_once(": ").expect("a board or a page comes first");
    (group, if group.ends_with(".md") { "" } else { name })
}

/// `allostat-host: Load; cookbook.md; rules: A; B`
fn grouped(places: &[String]) -> String {
    let mut groups: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (group, name) in places.iter().map(|place| group_of(place)) {
        groups.entry(group).or_default().insert(name);
    }
    let one = |(group, names): (&str, BTreeSet<&str>)| {
        let names = names.into_iter().collect::<Vec<_>>().join("; ");
        if names.is_empty() { group.to_owned() } else { format!("{group}: {names}") }
    };
    groups.into_iter().map(one).collect::<Vec<_>>().join("; ")
}

#[test]
fn panels_missing_from_a_smaller_profile_are_documented() {
    let mut places: BTreeMap<BTreeSet<&str>, Vec<String>> = BTreeMap::new();
    for (place, families) in all_missing(Profile::Lean) {
        places.entry(families).or_default().push(place);
    }
    let mut made = String::from("| `lean` has no | so these are empty |\n|---|---|\n");
    for (families, places) in places {
        let families: Vec<String> = families.iter().map(|name| format!("`{name}`")).collect();
        writeln!(made, "| {} | {} |", families.join(", "), grouped(&places)).expect("a text can be written");
    }
    golden_part("docs/profiles.md", (BEGIN, END), &made);
}

#[test]
fn missing_panels_are_grouped_by_board_and_examples_by_page() {
    let places = ["alert B", "alert a:b", "allostat-host: Load", "cookbook.md: `x`", "cookbook.md: `y: z`"];
    let places = places.map(str::to_owned);
    assert_eq!(grouped(&places), "allostat-host: Load; cookbook.md; rules: B; a:b");
}

/// What a profile does to what an agent shows: no series of other families, none at 0 where these are left out.
fn as_exposed(input: &str, profile: Profile) -> String {
    let mut out = String::new();
    let mut current: Option<&MetricDesc> = None;
    for line in input.lines() {
        if let Some(series) = line.trim().strip_prefix("- series:") {
            let name = series.trim().split('{').next().unwrap_or_default().trim_matches('\'');
            current = catalogue::family(name);
        }
        let is_input = ["- series:", "values:"].iter().any(|word| line.trim().starts_with(word));
        match (current, line.split_once("values:")) {
            (Some(desc), _) if is_input && desc.profile > profile => {}
            (Some(desc), Some((indent, values))) if is_input && desc.zeros > profile => {
                let values = values.trim().trim_matches('\'');
                writeln!(out, "{indent}values: '{}'", without_zeros(values)).expect("a text can be written");
            }
            _ => writeln!(out, "{line}").expect("a text can be written"),
        }
    }
    out
}

/// `0x2 1x1 0x1` as `_ _ _ 1 1 stale _`: what is not shown any more, Prometheus marks as stale.
fn without_zeros(values: &str) -> String {
    let mut shown: Vec<String> = Vec::new();
    let mut was_there = false;
    for token in values.split_whitespace() {
        // `a+bxn` and `axn` are n + 1 values, `_xn` is n.
        let (start, times) = token.split_once('x').map_or((token, None), |(start, n)| (start, n.parse::<u32>().ok()));
        if start == "_" || start == "stale" {
            shown.extend((0..times.unwrap_or(1)).map(|_| start.to_owned()));
            was_there = false;
            continue;
        }
        let sign = start[1..].find(['+', '-']).map(|at| at + 1);
        let (first, step) = sign.map_or((start, "0"), |at| start.split_at(at));
        let number = |text: &str| text.parse::<f64>().unwrap_or_else(|_| panic!("{token} of {values}"));
        let (first, step) = (number(first), number(step));
        for n in 0..=times.unwrap_or(0) {
            let value = first + f64::from(n) * step;
            shown.push(match (value == 0.0, was_there) {
                (true, true) => "stale".to_owned(),
                (true, false) => "_".to_owned(),
                (false, _) => value.to_string(),
            });
            was_there = value != 0.0;
        }
    }
    shown.join(" ")
}

#[test]
fn inputs_of_rule_tests_become_what_a_profile_shows_of_them() {
    assert_eq!(without_zeros("0x2 1x1 0x1 _x2 3"), "_ _ _ 1 1 stale _ _ _ 3");
    assert_eq!(without_zeros("0+60x2 stale"), "_ 60 120 stale");
    assert_eq!(without_zeros("4-2x2"), "4 2 stale");
    let input = "      - series: 'allostat_workload_events_total{job=\"a\"}'\n        values: '0 1'\n      - series: \
                 allostat_task_state{job=\"a\"}\n        values: 0 1\n      - eval_time: 1m\n";
    let lean = "      - series: allostat_task_state{job=\"a\"}\n        values: '_ 1'\n      - eval_time: 1m\n";
    assert_eq!(as_exposed(input, Profile::Lean), lean);
    assert_eq!(as_exposed(input, Profile::Full), input);
    for path in in_folder("alerts/tests", "yml") {
        assert_eq!(as_exposed(&read(&path), Profile::Full), read(&path), "{}", path.display());
    }
}

/// Every firing and every silent case of every alert, with what each profile exposes of its input; in the gate with all
/// of it. Each case is evaluated with the rules that its file names alone, which takes a fifth of the time of
/// `rules::the_rule_tests_pass`.
///
/// Promise (Code, boards and alerts): Every alert fires and stays silent in each profile as with everything exposed
#[test]
fn every_alert_fires_or_is_silent_in_each_profile_as_in_the_full_one() {
    let Some(promtool) = Promtool::find() else { skip_test!("no-prometheus") };
    let mut profiles = Profile::ALL;
    profiles.sort_by_key(|profile| *profile != Profile::Full);
    // promtool runs its tests one after the other on one processor.
    std::thread::scope(|scope| {
        for profile in profiles.into_iter().take(how_many(1, Profile::ALL.len())) {
            let promtool = &promtool;
            scope.spawn(move || fires_as_in_the_whole(promtool, profile));
        }
    });
}

fn fires_as_in_the_whole(promtool: &Promtool, profile: Profile) {
    let directory = test_dir();
    // Those that are listed as missing: what is recorded of what is not there.
    let is_removed = |rule: &Rule| !missing(&rule.expression, profile).is_empty();
    let (removed, there): (Vec<Rule>, Vec<Rule>) = rules().into_iter().partition(is_removed);
    let mut tests = Vec::new();
    for path in in_folder("alerts/tests", "yml") {
        let test = read(&path);
        if removed.iter().any(|rule| test.contains(&rule.name)) {
            continue;
        }
        let alerts = test.lines().filter_map(|line| line.trim().strip_prefix("alertname: "));
        alerts.for_each(|name| assert!(there.iter().any(|rule| rule.name == name), "{}: no {name}", path.display()));
        let place = directory.path().join(path.file_stem().expect("a file"));
        std::fs::create_dir_all(place.join("tests")).expect("our own directory");
        for path in in_folder("alerts", "yml") {
            let of_file = there.iter().filter(|rule| Path::new(&rule.file) == path);
            let rules = only_named(&read(&path), of_file, &test);
            std::fs::write(place.join(path.file_name().expect("a file")), rules).expect("our own directory");
        }
        let place = place.join("tests").join(path.file_name().expect("a file"));
        std::fs::write(&place, as_exposed(&test, profile)).expect("our own directory");
        tests.push(place.display().to_string());
    }
    let all: Vec<&str> = ["test", "rules"].into_iter().chain(tests.iter().map(String::as_str)).collect();
    let verdict = promtool.run(&all, b"");
    assert!(verdict.ok, "{profile:?}: {}", verdict.output);
}

/// A file of rules with those alone that a test names: promtool evaluates all that it loads at each of some thousand
/// moments.
fn only_named<'a>(file: &str, rules: impl Iterator<Item = &'a Rule>, test: &str) -> String {
    let (head, _) = file.split_once("    rules:\n").expect("a group has rules");
    let mut out = format!("{head}    rules:\n");
    for rule in rules.filter(|rule| test.contains(&rule.name)) {
        let kind = if rule.records { "record" } else { "alert" };
        writeln!(out, "      - {kind}: {}\n{}", rule.name, rule.lines.join("\n")).expect("a text can be written");
    }
    out
}

/// Whether a family is about the agent, and about no workload of it.
fn is_of_the_agent(desc: &MetricDesc) -> bool {
    let counted = snapshot::agent::METRICS.iter().copied().chain(telemetry::metrics::descriptors());
    let of_exposition = ["allostat_build_info", "allostat_exposition_info", "allostat_series"];
    let is_of_workloads = ["workload", "alloc_id", "task"].iter().any(|label| desc.labels.contains(label));
    !is_of_workloads && (of_exposition.contains(&desc.name) || counted.into_iter().any(|own| own.name == desc.name))
}

/// Most series of an agent about itself before it has run a task, and once every hook has run. The test prints both
/// counts; a number here and in `docs/profiles.md` is a count with a small margin for other hosts.
const ABOUT_ITSELF_BEFORE_TASKS: u32 = 660;
const ABOUT_ITSELF_WITH_TASKS: u32 = 940;
/// A documented number may be this far above the count, so that growth is noticed.
const ABOUT_ITSELF_MARGIN: u32 = 80;

fn is_just_below(count: u32, documented: u32) -> bool {
    (documented - ABOUT_ITSELF_MARGIN..=documented).contains(&count)
}

/// Promise (Code, boards and alerts): The agent has as many series about itself as `docs/profiles.md` states, whatever
/// it runs
#[test]
fn agent_has_at_most_the_documented_number_of_series_about_itself() {
    if !is_root() {
        skip_test!("not-root");
    }
    let page = read(Path::new("docs/profiles.md"));
    let row = page.lines().find_map(|line| line.strip_prefix("| the agent about itself | ")).expect("a row");
    let documented = format!(
        "at most {ABOUT_ITSELF_BEFORE_TASKS} before it has run a task and {ABOUT_ITSELF_WITH_TASKS} afterwards, whatever it runs: "
    );
    assert!(row.starts_with(&documented), "{documented:?} is not the beginning of {row:?}");
    // What that is of a body, by the figures of the benchmark.
    let figures = read(Path::new("docs/figures.tsv"));
    for tasks in ["100", "1000"] {
        let name = format!("encode\tprofile/standard/{tasks}/series\t");
        let series = figures.lines().find_map(|line| line.strip_prefix(&name)).expect("a figure");
        let series: f64 = series.split('\t').next().and_then(|number| number.parse().ok()).expect("a number");
        let share = 100.0 * f64::from(ABOUT_ITSELF_WITH_TASKS) / series;
        let tasks = if tasks == "1000" { "1,000" } else { tasks };
        assert!(
            row.contains(&format!("{share:.0}% of a body with {tasks}"))
                || row.contains(&format!("{share:.0}% with {tasks}")),
            "{share:.1}% with {tasks}: {row}"
        );
    }

    let env = vec![("ALLOSTAT_PROFILE".to_owned(), "standard".to_owned())];
    let agent = Agent::with(AgentOptions { env, ..AgentOptions::default() });
    let about_itself = || -> BTreeSet<String> {
        let of_the_agent = |sample: &&Sample| catalogue::family(&sample.name).is_some_and(is_of_the_agent);
        let metrics = agent.metrics();
        metrics.samples.iter().filter(of_the_agent).map(|s| format!("{} {:?}", s.name, s.labels)).collect()
    };
    let wait_for_ends = |expected: usize| {
        wait_for("the ends of all", Duration::from_secs(60) * patience(), || {
            let allocs = agent.json("/v1/allocs");
            let ended = list(&allocs["allocs"]).iter().filter(|of| of["status"] == "failed").count();
            (ended == expected).then_some(())
        });
    };
    let number = |count: usize| u32::try_from(count).expect("some hundred");
    // Every format has been served, so that its durations are known.
    for accept in [
        "application/openmetrics-text",
        "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
    ] {
        let answer = tcp(agent.address, "GET", "/metrics", &[("accept", accept)], b"").expect("it answers");
        assert_eq!(answer.status, 200);
    }
    let before = number(about_itself().len());
    for n in 0..10 {
        agent.run(&failing(&format!("more-{n}"), u32::from(n == 0)));
    }
    wait_for_ends(10);
    let with_many = about_itself();
    let of_jobs: Vec<_> = with_many.iter().filter(|row| row.contains("more-")).collect();
    assert!(of_jobs.is_empty(), "series of the agent name jobs: {of_jobs:#?}");
    // Hooks whose phase has not come yet, such as the removal of an alloc, will have durations as well.
    let rows = |name: &str| with_many.iter().filter(|row| row.starts_with(name)).count();
    let hooks = rows("allostat_hook_failures_total ");
    let (durations, ran) = (rows("allostat_hook_duration_seconds"), rows("allostat_hook_duration_seconds_count "));
    assert!((1..=hooks).contains(&ran), "{ran} of {hooks} hooks have run");
    let in_all = number(with_many.len() + (hooks - ran) * (durations / ran));
    println!("series of the agent about itself: {before} before tasks, {in_all} once every hook has run");
    assert!(is_just_below(before, ABOUT_ITSELF_BEFORE_TASKS), "{before}: document it with a small margin");
    assert!(is_just_below(in_all, ABOUT_ITSELF_WITH_TASKS), "{in_all}: document it with a small margin");
    agent.stop();
}
