//! A store that agents push to with `names = "prometheus"` has what a scrape has: one real agent, one real
//! VictoriaMetrics that scrapes it and is pushed to, and every expression of boards, rules and documentation asked of
//! both halves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use allostat::model::profile::Profile;
use serde_json::Value;

use crate::boards::alertmanager::failing;
use crate::boards::files::{documented, read, root, rules};
use crate::boards::gpus::Gpus;
use crate::boards::live::{NIGHTLY, are_evaluated, checked, filled_for, job, pid_of, some_are_killed};
use crate::boards::namesakes::of_boards;
use crate::common::{Agent, AgentOptions, Cgroups, Prometheus, is_root, patience, wait_for};

/// Who has the series of agents, and evaluates the rules.
#[derive(Debug, Clone, Copy)]
pub enum Source {
    /// A Prometheus of this version, which scrapes them.
    Scraped(u32),
    /// A VictoriaMetrics that they push to, and vmalert.
    Pushed,
}

/// The name of the agent's scrape job, and that of what it pushes.
const SCRAPED: &str = "scraped-allostat";
const PUSHED: &str = "allostat";

/// The documented settings of a store.
fn documented_settings(store: &str) -> String {
    let page = read(&root().join("docs/fleet.md"));
    let (_, section) = page.split_once(&format!("\n### {store}\n")).expect("each store has a section");
    let (_, block) = section.split_once("```hcl\n").expect("with the settings of the agent");
    block.split_once("```").expect("the block ends").0.to_owned()
}

/// The documented settings of an agent that pushes to this VictoriaMetrics each second, as a further destination: that
/// of the options of tests never answers. `instance`: what the store calls the host.
pub fn pushed_to(store: &Prometheus, instance: &str) -> String {
    let settings = documented_settings("VictoriaMetrics");
    assert!(settings.contains("HOST:8428"), "{settings}");
    let begin = format!(
        "otlp {{\n resource_attributes = \"service.instance.id={instance}\"\n destination \"store\" {{\n interval = \"1s\"\n"
    );
    let settings = settings.replace("HOST:8428", &store.address.to_string());
    settings.replace("otlp {", &begin).replace("\n}\n", "\n}\n}\n")
}

/// A series without the labels that distinguish the halves.
fn apart(labels: &Value) -> (String, String) {
    let mut labels = labels.as_object().expect("labels").clone();
    let job = labels.remove("job").map_or_else(String::new, |job| job.as_str().expect("a text").to_owned());
    labels.remove("instance");
    (job, Value::Object(labels).to_string())
}

/// Series of both halves, scraped and pushed.
type Halves = [BTreeMap<String, String>; 2];

fn halves(found: Vec<(Value, String)>) -> Halves {
    let mut halves = Halves::default();
    for (labels, value) in found {
        let (job, series) = apart(&labels);
        match job.as_str() {
            SCRAPED => drop(halves[0].insert(series, value)),
            PUSHED => drop(halves[1].insert(series, value)),
            // Of all hosts together.
            _ => {}
        }
    }
    halves
}

/// What a board shows for one job, whether its result has the job or not.
fn shown(store: &Prometheus, expression: &str, job: &str) -> BTreeMap<String, String> {
    let expression = expression.replace(&format!("\"{PUSHED}\""), &format!("{job:?}"));
    store.query(&expression).into_iter().map(|(labels, value)| (apart(&labels).1, value)).collect()
}

/// Of every scraped target, and of no pushed one; and how many series there are of each family.
fn is_of_one_half(series: &str) -> bool {
    let is_named = |name: &&str| series.contains(&format!("\"__name__\":\"{name}"));
    // VictoriaMetrics scrapes text, which has no creation times.
    ["up\"", "scrape_", "allostat_series\""].iter().any(is_named) || series.contains("_created\"")
}

/// What does not change from one second to the next.
fn is_constant(series: &str) -> bool {
    ["_info\"", "_limit_bytes\"", "_limit_cores\"", "_capability\"", "_total_bytes\""]
        .iter()
        .any(|ending| series.contains(ending))
}

/// Both halves have the same series by name and labels, and the same values where they stand still.
fn is_the_same(store: &Prometheus) -> Result<usize, String> {
    let mut found = halves(store.query(&format!("{{job=~\"{SCRAPED}|{PUSHED}\"}}")));
    let created = found[1].keys().filter(|series| series.contains("_created\"")).count();
    found.iter_mut().for_each(|half| half.retain(|series, _| !is_of_one_half(series)));
    let [scraped, pushed] = found;
    let names = |of: &BTreeMap<String, String>| of.keys().cloned().collect::<BTreeSet<_>>();
    let (all, all_pushed) = (names(&scraped), names(&pushed));
    let differ: Vec<_> = all.symmetric_difference(&all_pushed).take(12).collect();
    if !differ.is_empty() {
        return Err(format!("{} scraped, {} pushed; in one alone: {differ:#?}", scraped.len(), pushed.len()));
    }
    if created < 10 {
        return Err(format!("{created} creation times are pushed"));
    }
    let wrong: Vec<_> = scraped.iter().filter(|(series, v)| is_constant(series) && pushed[*series] != **v).collect();
    if wrong.is_empty() { Ok(scraped.len()) } else { Err(format!("other values: {wrong:?}")) }
}

/// Promise (Code, boards and alerts): vmalert evaluates every alert on pushed data, and those that fire are on the
/// boards
#[test]
fn vmalert_evaluates_every_alert_on_pushed_data_and_writes_back_what_fires() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(store) = Prometheus::start_victoria_for_otlp("scrape_configs: []\n") else { skip_test!("no-prometheus") };
    let file = root().join("alerts/allostat.yml");
    let count = rules().iter().filter(|rule| rule.file == file.display().to_string()).count();
    let Some(vmalert) = Prometheus::start_vmalert(&store, None, &[file]) else { skip_test!("no-prometheus") };
    let agent = Agent::with(AgentOptions { config: pushed_to(&store, "host-a"), ..AgentOptions::default() });
    agent.run(&failing("once", 0));
    // As the board of the fleet counts them.
    let firing = "count(ALERTS{alertname=\"JobFailed\",alertstate=\"firing\",workload=\"once\",\
                  job=~\".*allostat.*\",instance=\"host-a\"})";
    store.wait_value(firing, |alerts| alerts == 1.0);
    are_evaluated(&vmalert, count);
    agent.stop();
}

#[test]
fn boards_and_rules_see_the_same_in_a_victoria_metrics_that_was_pushed_to() {
    if !is_root() {
        skip_test!("not-root");
    }
    // The scrape finds the agent by a file that is written when its address is known.
    let directory = crate::common::test_dir();
    let targets = directory.path().join("targets.json");
    std::fs::write(&targets, "[]").expect("our own directory");
    let scrape = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: {SCRAPED}\n  file_sd_configs: [{{files: [{:?}]}}]\n",
        targets.display().to_string()
    );
    let Some(store) = Prometheus::start_victoria_for_otlp(&scrape) else { skip_test!("no-prometheus") };
    let (mut gpus, observed) = (Gpus::install(), Cgroups::new());
    let mut options = gpus.options(Profile::Standard);
    let shown_alone = format!("cgroup:{}/*", observed.parent);
    let appearance = [("ALLOSTAT_OBSERVE", "true"), ("ALLOSTAT_OBSERVE_INCLUDE", &*shown_alone)];
    options.env.extend(appearance.map(|(name, value)| (name.to_owned(), value.to_owned())));
    // The queue of the destination that never answers is on the boards.
    options.config += &pushed_to(&store, "host-a");
    let agent = Agent::with(options);
    gpus.clear_faults(&agent);
    std::fs::write(&targets, format!("[{{\"targets\":[\"{}\"]}}]", agent.address)).expect("our own directory");
    let mut shares = observed.sleeper("slice/a");
    observed.limit("slice", 1 << 30, 64);
    for half in [SCRAPED, PUSHED] {
        store.wait_value(&format!("count(allostat_build_info{{job={half:?}}})"), |agents| agents == 1.0);
    }
    agent.run(&job());
    let alloc = agent.alloc_ids().pop().expect("it was accepted");
    agent.run(NIGHTLY);
    agent.cli(&["periodic", "force", "nightly", "--detach"]).ok();
    for version in 1..=2 {
        agent.run(&checked(version));
    }
    gpus.go_to_work(pid_of(&agent, &alloc, "throttled"), pid_of(&agent, &alloc, "steady"));
    some_are_killed(&agent);

    let limit = Duration::from_secs(120) * patience();
    let mut why = String::new();
    let series = wait_for("the same series in both halves", limit, || {
        is_the_same(&store)
            .map_err(|error| {
                if error != why {
                    eprintln!("{error}");
                    why = error;
                }
            })
            .ok()
    });
    assert!(series > 700, "{series}");

    let of_boards = of_boards().into_iter().map(|(place, e)| (place, filled_for(&e, &alloc, (".*", ".*"))));
    let answered = all_agree("boards", of_boards.collect(), |expression| {
        let [scraped, pushed] = [SCRAPED, PUSHED].map(|half| shown(&store, expression, half));
        // Of a family with creation times the number of series differs; the highest of one moment are not those of
        // the next.
        let is_of_some = expression.contains("topk(") || expression.contains("bottomk(");
        let is_alike = scraped.keys().eq(pushed.keys())
            || (is_of_some && scraped.len() == pushed.len())
            || expression.contains("allostat_series{");
        (is_alike, !pushed.is_empty())
    });
    assert!(answered > 200, "{answered}");
    let of_rules = rules().into_iter().map(|rule| (rule.name, rule.expression));
    let answered = all_agree("rules", of_rules.chain(documented()).collect(), |expression| {
        let [scraped, pushed] = halves(store.query(expression));
        // A scraped host has `up`, a pushed one creation times, and a topk is one list of both.
        let is_of_one = ["up{", "_created", "topk("].iter().any(|word| expression.contains(word));
        let is_alike = is_of_one || scraped.keys().eq(pushed.keys());
        (is_alike, !pushed.is_empty())
    });
    assert!(answered > 20, "{answered}");

    agent.cli(&["stop", &alloc]).ok();
    for half in [SCRAPED, PUSHED] {
        let running = format!("count(allostat_task_pids_current{{job={half:?},alloc_id={alloc:?}}})");
        wait_for(&format!("the end of {running}"), limit, || store.query(&running).is_empty().then_some(()));
    }
    shares.kill().expect("it sleeps");
    shares.wait().expect("our own child");
    gpus.rest();
    agent.stop();
}

/// Asks again what does not agree yet, since both halves come at their own pace; gives how many have series.
fn all_agree(what: &str, all: Vec<(String, String)>, agrees: impl Fn(&str) -> (bool, bool)) -> usize {
    let (mut left, mut answered) = (all, 0);
    let limit = Duration::from_secs(60) * patience();
    wait_for(&format!("{what} to agree"), limit, || {
        let count = left.len();
        left.retain(|(_, expression)| {
            let (agree, has_series) = agrees(expression);
            answered += usize::from(agree && has_series);
            !agree
        });
        if left.len() < count {
            eprintln!("{what} that differ: {left:#?}");
        }
        left.is_empty().then_some(())
    });
    answered
}
