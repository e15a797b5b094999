//! A real Prometheus scrapes a real agent that runs real tasks, and is asked every expression of every board and rule:
//! none may fail, none may come back empty. A name that is spelt right but never exported shows here.

use std::time::Duration;

use crate::common::{Agent, Prometheus, is_root, wait_for, workload};
use crate::files::{boards, documented, in_folder, list, rules, text};
use crate::promql::names;
use crate::skip_test;

/// One alloc that gives every panel something to draw: memory below a limit, CPU at a quota, a leak that is OOM-killed
/// and restarted, an error exit that loops.
fn job() -> String {
    let task = |name: &str, args: &str, config: &str, resources: &str| {
        let command = workload().display().to_string();
        format!(
            "task \"{name}\" {{\n driver = \"raw_exec\"\n config {{\n command = {command:?}\n args = [{args}]\n {config}\n }}\n \
             resources {{\n {resources}\n }}\n kill_timeout = \"1s\"\n }}\n"
        )
    };
    let tasks = [
        task("steady", r#""touch", "32", "3600000""#, "", "memory = 128"),
        task("throttled", r#""burn", "3600000""#, "cpu_hard_limit = true", "cpu = 250"),
        task("leak", r#""touch", "100", "3600000""#, "", "memory = 32"),
        task("crash", r#""exit", "3""#, "", ""),
    ];
    let restart = "restart {\n attempts = 10000\n interval = \"24h\"\n delay = \"500ms\"\n mode = \"delay\"\n }";
    format!("job \"board\" {{\n type = \"service\"\n group \"all\" {{\n {restart}\n {}\n }}\n}}\n", tasks.concat())
}

/// These alerts are due in this test; of the others, which need minutes or a broken host, each series is asked for.
const AT_ONCE: [&str; 3] = ["AllostatAgentDown", "TaskOomKilled", "TaskCrashLooping"];

/// One that ends when it is told to, and one that does not.
fn some_are_killed(agent: &Agent) {
    let task = |name: &str, does: &str| {
        let command = workload().display().to_string();
        format!(
            "task \"{name}\" {{\n driver = \"raw_exec\"\n kill_timeout = \"100ms\"\n config {{\n command = {command:?}\n \
             args = [{does:?}, \"3600000\"]\n }}\n }}\n"
        )
    };
    let tasks = [task("hold", "hold"), task("stubborn", "stubborn")].concat();
    agent.run(&format!("job \"killed\" {{\n type = \"batch\"\n group \"all\" {{\n {tasks} }}\n}}\n"));
    let ran = |alloc: &serde_json::Value| {
        (alloc["job"] == "killed" && alloc["status"] == "running").then(|| alloc["id"].clone())
    };
    let id = wait_for("a job to run", Duration::from_secs(20), || {
        list(&agent.json("/v1/allocs")["allocs"]).iter().find_map(ran)
    });
    agent.cli(&["stop", id.as_str().expect("an id")]).ok();
}

/// As Grafana would fill them in, for a scrape each second.
fn filled(expression: &str, alloc: &str) -> String {
    let values = [
        ("$__rate_interval_ms", "5000"),
        ("$__rate_interval", "5s"),
        ("$job", "allostat"),
        ("$instance", ".+"),
        ("$workload", "board|killed"),
        ("$alloc", alloc),
    ];
    let filled = values.iter().fold(expression.to_owned(), |text, (name, value)| text.replace(name, value));
    assert!(!filled.contains('$'), "a variable without a value: {filled}");
    filled
}

#[test]
fn a_real_prometheus_answers_every_expression_from_a_live_agent() {
    if !is_root() {
        skip_test!("not-root");
    }
    let agent = Agent::start();
    // The second target never answers: an agent that is down.
    let down = crate::common::free_address();
    let Some(prometheus) = Prometheus::start(&[agent.address, down], &in_folder("alerts", "yml")) else {
        skip_test!("no-prometheus")
    };
    // Scraped before the job comes, as in life: its counters are seen at 0 first.
    prometheus.wait_value("count(allostat_build_info)", |agents| agents >= 1.0);
    an_idle_agent_is_well(&prometheus);
    agent.run(&job());
    let alloc = agent.alloc_ids().pop().expect("a job that was accepted must have an alloc");

    let mut asked: Vec<(String, String)> = Vec::new();
    for board in boards() {
        for panel in board.panels() {
            for target in list(&panel["targets"]) {
                let place = format!("{} / {} / {}", board.stem, text(panel, "title"), text(target, "refId"));
                asked.push((place, filled(text(target, "expr"), &alloc)));
            }
        }
        for variable in board.variables().iter().filter(|v| text(v, "type") == "query") {
            let query = text(&variable["query"], "query");
            let inner =
                query.strip_prefix("label_values(").and_then(|q| q.strip_suffix(')')).expect("label_values(..)");
            let (series, label) = inner.rsplit_once(',').expect("a selector and a label");
            let place = format!("{} / ${}", board.stem, text(variable, "name"));
            asked.push((place, format!("count by ({}) ({}) > 0", label.trim(), filled(series, &alloc))));
        }
    }
    for rule in rules() {
        if AT_ONCE.contains(&rule.name.as_str()) {
            asked.push((rule.name, rule.expression));
        } else {
            let selectors = names(&rule.expression).expect("the laws have read it").selectors;
            asked.extend(selectors.iter().map(|s| (rule.name.clone(), s.bare())));
        }
    }
    asked.extend(documented());

    let empty = |asked: &[(String, String)]| -> Vec<String> {
        asked.iter().filter(|(_, e)| prometheus.query(e).is_empty()).map(|(place, e)| format!("{place}: {e}")).collect()
    };
    let began = std::time::Instant::now();
    loop {
        some_are_killed(&agent);
        let unanswered = empty(&asked);
        if unanswered.is_empty() {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(90), "no series after 90 s:\n{}", unanswered.join("\n"));
        std::thread::sleep(Duration::from_secs(1));
    }
    for (place, expression) in &asked {
        for (labels, value) in prometheus.query(expression) {
            let value: f64 = value.parse().expect("Prometheus prints numbers");
            assert!(value.is_finite(), "{place}: {value} for {labels}");
        }
    }

    // What they say is what was made to happen.
    let about = |expression: &str| filled(expression, &alloc);
    let up_and_down = prometheus.value(&about("sum(up{job=~\"$job\"} == bool 0)"));
    assert_eq!(up_and_down, Some(1.0), "one agent does not answer");
    let code = "sum(allostat_task_exit_codes_total{workload=~\"$workload\",task=\"crash\",code=\"3\"})";
    prometheus.wait_value(&about(code), |exits| exits >= 2.0);
    let throttled = "allostat_task_cpu_cfs_throttled_periods_total{alloc_id=\"$alloc\",task=\"throttled\"}";
    prometheus.wait_value(&about(throttled), |periods| periods > 0.0);

    for feature in features() {
        let known = prometheus.value(&format!("count(allostat_capability{{feature=\"{feature}\"}})"));
        assert_eq!(known, Some(1.0), "a panel sends people to the capability {feature}");
    }
    rules_are_healthy_and_fire(&prometheus, &alloc, &agent.address.to_string());
    agent.stop();
}

/// What a healthy agent without a single alloc says in the first row: every number is there, and none is red.
fn an_idle_agent_is_well(prometheus: &Prometheus) {
    let mut seen = 0;
    for board in boards() {
        for panel in board.panels().into_iter().filter(|p| p["type"] == "stat" && p["gridPos"]["y"] == 1) {
            let expression = filled(text(&panel["targets"][0], "expr"), "none");
            let place = format!("{} / {}", board.stem, text(panel, "title"));
            let steps = list(&panel["fieldConfig"]["defaults"]["thresholds"]["steps"]);
            let worst = steps.last().and_then(|step| step["value"].as_f64()).expect("a last step");
            // Here one of two targets never answers.
            let wanted = |value: f64| if place.ends_with("Agents not scraped") { value == 1.0 } else { value < worst };
            wait_for(&place, Duration::from_secs(30), || prometheus.value(&expression).filter(|v| wanted(*v)));
            seen += 1;
        }
    }
    assert!(seen >= 12, "each board begins with whether something is wrong: {seen}");
}

/// The capabilities that panels without data name as their reason.
fn features() -> Vec<String> {
    let texts = boards().iter().map(|b| b.json.to_string().replace('\\', "")).collect::<String>();
    let named = texts.split("allostat_capability{feature=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let found: std::collections::BTreeSet<String> = named.map(str::to_owned).collect();
    assert!(!found.is_empty(), "no panel names a capability");
    found.into_iter().collect()
}

fn rules_are_healthy_and_fire(prometheus: &Prometheus, alloc: &str, instance: &str) {
    let expected = rules().len();
    wait_for("every rule to be evaluated without an error", Duration::from_secs(30), || {
        let answer = prometheus.api("/api/v1/rules");
        let found: Vec<_> = list(&answer["data"]["groups"]).iter().flat_map(|group| list(&group["rules"])).collect();
        assert_eq!(found.len(), expected, "{answer}");
        found.iter().for_each(|rule| assert_ne!(rule["health"], "err", "{rule}"));
        found.iter().all(|rule| rule["health"] == "ok").then_some(())
    });
    // This one waits for nothing, so it must fire by now, with the labels that people route by.
    wait_for("TaskOomKilled to fire for the leak", Duration::from_secs(30), || {
        let answer = prometheus.api("/api/v1/alerts");
        let wanted = serde_json::json!({
            "alertname": "TaskOomKilled", "severity": "warning", "job": "allostat", "instance": instance,
            "workload": "board", "task": "leak", "alloc_id": alloc,
        });
        list(&answer["data"]["alerts"]).iter().any(|a| a["labels"] == wanted && a["state"] == "firing").then_some(())
    });
}
