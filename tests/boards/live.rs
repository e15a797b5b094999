//! A real Prometheus scrapes a real agent that runs real tasks, and is asked every expression of every board and rule:
//! none may fail, none may come back empty. A name that is spelt right but never exported shows here.
//!
//! Promise (Code, boards and alerts): Every expression of the boards and series of the alerts is answered by a real
//! Prometheus
//! Promise (Code, boards and alerts): The GPU board shows the faults of five GPUs, and its alerts fire at once
//! Promise (Code, boards and alerts): Every expression of the cookbook is answered by a real Prometheus from a live
//! agent
//! Promise (Code, boards and alerts): An alloc is selected on boards by `job.group[index]`, as Grafana reads what
//! Prometheus answers

use std::path::Path;
use std::time::Duration;

use allostat::exporters::Selection;
use allostat::exporters::catalogue::family;
use allostat::model::metric::{Kind, MetricDesc};
use allostat::model::profile::Profile;

use crate::boards::files::{boards, documented, in_folder, list, rules, text};
use crate::boards::gpus::{self, Gpus};
use crate::boards::profiles::missing;
use crate::boards::promql::{Selector, names};
use crate::common::{Agent, Cgroups, Prometheus, can_have_network, counts_io, is_root, patience, wait_for, workload};

/// One alloc that gives every panel something to draw: memory below a limit, CPU at a quota, a leak that is OOM-killed
/// and restarted, an error exit that loops; GPUs that are at work and idle.
pub fn job() -> String {
    let task = |name: &str, args: &str, config: &str, resources: &str| {
        let command = workload().display().to_string();
        format!(
            "task \"{name}\" {{\n driver = \"raw_exec\"\n config {{\n command = {command:?}\n args = [{args}]\n {config}\n }}\n \
             resources {{\n {resources}\n }}\n kill_timeout = \"1s\"\n }}\n"
        )
    };
    // So that there is something to be shown of it.
    let io = if counts_io() { "" } else { "io_read_bps = 1000000000" };
    let tasks = [
        task(
            "steady",
            r#""touch", "32", "3600000""#,
            &format!("pids_limit = 64\n {io}"),
            &format!("memory = 128\n device {:?} {{}}", gpus::IDLE),
        ),
        task(
            "throttled",
            r#""burn", "3600000""#,
            "cpu_hard_limit = true",
            &format!("cpu = 250\n device {:?} {{}}", gpus::WORKING),
        ),
        task("leak", r#""touch", "100", "3600000""#, "", "memory = 32"),
        task("crash", r#""exit", "3""#, "", ""),
        task("networked", r#""network", "10", "1000", "3600000""#, "", ""),
    ];
    let restart = "restart {\n attempts = 10000\n interval = \"24h\"\n delay = \"500ms\"\n mode = \"delay\"\n }";
    format!("job \"board\" {{\n type = \"service\"\n group \"all\" {{\n {restart}\n {}\n }}\n}}\n", tasks.concat())
}

/// Its next launch is known, and is not due.
pub const NIGHTLY: &str = "job \"nightly\" {\n type = \"batch\"\n periodic {\n cron = \"0 3 1 1 *\"\n }\n group \"g\" {\n \
    task \"t\" {\n driver = \"raw_exec\"\n config {\n command = \"/bin/true\"\n }\n }\n }\n}\n";

/// A service whose check fails: nothing listens at its port. Another version is an update.
pub fn checked(version: u32) -> String {
    let (command, port) = (workload().display().to_string(), crate::common::free_address().port());
    format!(
        "job \"checked\" {{\n type = \"service\"\n meta {{\n version = \"{version}\"\n }}\n group \"g\" {{\n \
         update {{\n min_healthy_time = \"1s\"\n healthy_deadline = \"5s\"\n progress_deadline = \"0s\"\n }}\n service {{\n name = \"checked\"\n port = \"{port}\"\n \
         provider = \"nomad\"\n check {{\n name = \"alive\"\n type = \"tcp\"\n interval = \"1s\"\n timeout = \"1s\"\n }}\n }}\n task \"t\" {{\n \
         driver = \"raw_exec\"\n config {{\n command = {command:?}\n args = [\"hold\", \"3600000\"]\n }}\n }}\n }}\n}}\n"
    )
}

/// These alerts are due in this test; of the others, which need minutes or a broken host, each series is asked for.
const AT_ONCE: [&str; 10] = [
    "AllostatAgentDown",
    "TaskOomKilled",
    "TaskCrashLooping",
    "GpuLost",
    "GpuStuck",
    "GpuXidCritical",
    "GpuEccUncorrected",
    "GpuThermalThrottle",
    "GpuHeldButIdle",
    "GpuMemoryUnattributed",
];

/// One task ends on the kill signal, and one does not.
pub fn some_are_killed(agent: &Agent) {
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
    let id = wait_for("a job to run", Duration::from_secs(20) * patience(), || {
        list(&agent.json("/v1/allocs")["allocs"]).iter().find_map(ran)
    });
    agent.cli(&["stop", id.as_str().expect("an id")]).ok();
}

/// As Grafana would fill them in, for a scrape each second.
fn filled(expression: &str, alloc: &str) -> String {
    filled_for(expression, alloc, (".*", "board|killed|checked|nightly.*"))
}

/// The same for a source and workloads that were picked.
pub fn filled_for(expression: &str, alloc: &str, (source, workload): (&str, &str)) -> String {
    let values = [
        ("$__rate_interval_ms", "5000"),
        ("$__rate_interval", "5s"),
        ("$__range_s", "3600"),
        ("$__range", "1h"),
        ("$job", "allostat"),
        ("$instance", ".+"),
        ("$source", source),
        ("$workload", workload),
        // Of whichever host: `namesakes` chooses one.
        ("instance=\"$host\"", "instance=~\".+\""),
        ("\"chosen\", \" \", \"instance\", \"alloc_id\") and", "\"chosen\", \"\", \"alloc_id\") and"),
        ("$alloc_id", alloc),
        ("$alloc", alloc),
        ("$task", ".+"),
        ("$device", ".+"),
    ];
    let filled = values.iter().fold(expression.to_owned(), |text, (name, value)| text.replace(name, value));
    assert!(!filled.contains('$'), "a variable without a value: {filled}");
    filled
}

/// As users have it who set nothing.
#[test]
fn a_real_prometheus_answers_every_expression_from_a_live_agent() {
    answers_what_the_profile_has(Selection::default().profile);
}

#[test]
fn the_smallest_profile_answers_every_expression_that_is_not_listed_as_missing() {
    answers_what_the_profile_has(Profile::Lean);
}

fn answers_what_the_profile_has(profile: Profile) {
    if !is_root() {
        skip_test!("not-root");
    }
    let mut gpus = Gpus::install();
    let observed = Cgroups::new();
    let mut options = gpus.options(profile);
    let shown = format!("cgroup:{}/*", observed.parent);
    let appearance = [("ALLOSTAT_OBSERVE", "true"), ("ALLOSTAT_OBSERVE_INCLUDE", &*shown)];
    options.env.extend(appearance.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let agent = Agent::with(options);
    gpus.clear_faults(&agent);
    // The second target never answers: an agent that is down.
    let down = crate::common::free_address();
    let Some(prometheus) = Prometheus::start(&[agent.address, down], &in_folder("alerts", "yml")) else {
        skip_test!("no-prometheus")
    };
    // Tasks of others share a slice.
    let mut shares = observed.sleeper("slice/a");
    observed.limit("slice", 1 << 30, 64);
    // Scraped before the job comes, as in life: its counters are seen at 0 first.
    prometheus.wait_value("count(allostat_build_info)", |agents| agents >= 1.0);
    an_idle_agent_is_well(&prometheus, profile);
    agent.run(&job());
    let alloc = agent.alloc_ids().pop().expect("a job that was accepted must have an alloc");
    agent.run(NIGHTLY);
    agent.cli(&["periodic", "force", "nightly", "--detach"]).ok();
    for version in 1..=2 {
        agent.run(&checked(version));
    }
    gpus.go_to_work(pid_of(&agent, &alloc, "throttled"), pid_of(&agent, &alloc, "steady"));

    let mut requests: Vec<(String, String)> = Vec::new();
    for board in boards() {
        for panel in board.panels() {
            for target in list(&panel["targets"]) {
                let place = format!("{} / {} / {}", board.stem, text(panel, "title"), text(target, "refId"));
                requests.push((place, filled(text(target, "expr"), &alloc)));
            }
        }
        for mark in board.annotations() {
            requests.push((format!("{} / {}", board.stem, text(mark, "name")), filled(text(mark, "expr"), &alloc)));
        }
        for variable in board.variables().iter().filter(|v| text(v, "type") == "query") {
            let query = text(&variable["query"], "query");
            let place = format!("{} / ${}", board.stem, text(variable, "name"));
            let inner = |function: &str| query.strip_prefix(function).and_then(|rest| rest.strip_suffix(')'));
            if let Some(expression) = inner("query_result(") {
                requests.push((place, filled(expression, &alloc)));
                continue;
            }
            let inner = inner("label_values(").expect("label_values(..) or query_result(..)");
            let (series, label) = inner.rsplit_once(',').expect("a selector and a label");
            requests.push((place, format!("count by ({}) ({}) > 0", label.trim(), filled(series, &alloc))));
        }
    }
    for rule in rules().into_iter().filter(|rule| missing(&rule.expression, profile).is_empty()) {
        if AT_ONCE.contains(&rule.name.as_str()) {
            requests.push((rule.name, rule.expression));
        } else if rule.records {
            let selectors = names(&rule.expression).expect("the laws have read it").selectors;
            if selectors.iter().all(|s| is_stored_classically(s) && is_exposed_at_once(&s.name)) {
                requests.push((rule.name.clone(), rule.name));
            }
        } else {
            let selectors = names(&rule.expression).expect("the laws have read it").selectors;
            // Where zeros are left out, only what is the case is there.
            let bare = |desc: &MetricDesc| desc.zeros <= profile;
            let can_query = |s: &Selector| if family(&s.name).is_none_or(bare) { s.bare() } else { s.name.clone() };
            let is_here = |s: &&Selector| is_stored_classically(s) && is_on_this_machine(&s.name);
            requests.extend(selectors.iter().filter(is_here).map(|s| (rule.name.clone(), can_query(s))));
        }
    }
    requests.extend(documented());
    requests.retain(|(_, expression)| missing(expression, profile).is_empty());
    requests.retain(|(_, expression)| is_on_this_machine(expression));
    let has_network = can_have_network();
    requests.retain(|(_, expression)| has_network || !expression.contains("_task_network_"));
    let exposed_profile = format!("count(allostat_exposition_info{{profile=\"{}\"}})", profile.as_str());
    assert_eq!(prometheus.value(&exposed_profile), Some(1.0), "it says what it is");

    let limit = Duration::from_secs(90) * patience();
    let (mut progress, mut left) = (std::time::Instant::now(), requests.clone());
    loop {
        some_are_killed(&agent);
        // Until they are scraped. Of seconds is the window of what is asked: only what has not answered yet is asked
        // again.
        std::thread::sleep(Duration::from_secs(1));
        let count = left.len();
        left.retain(|(_, expression)| prometheus.query(expression).is_empty());
        if left.is_empty() {
            break;
        }
        if left.len() < count {
            progress = std::time::Instant::now();
        }
        let named = || left.iter().map(|(place, e)| format!("{place}: {e}")).collect::<Vec<_>>().join("\n");
        assert!(progress.elapsed() < limit, "{limit:?} without another series:\n{}", named());
    }
    for (place, expression) in &requests {
        for (labels, value) in prometheus.query(expression) {
            let value: f64 = value.parse().expect("Prometheus prints numbers");
            assert!(value.is_finite(), "{place}: {value} for {labels}");
        }
    }

    // What they say is what was made to happen.
    let about = |expression: &str| filled(expression, &alloc);
    let up_and_down = prometheus.value(&about("sum(up{job=~\"$job\"} == bool 0)"));
    assert_eq!(up_and_down, Some(1.0), "one agent does not answer");
    rules_are_healthy_and_fire(&prometheus, &alloc, &agent.address.to_string());
    if profile == Profile::Lean {
        shares.kill().expect("it sleeps");
        shares.wait().expect("our own child");
        agent.stop();
        return;
    }
    let code = "sum(allostat_workload_exit_codes_total{workload=~\"$workload\",task=\"crash\",code=\"3\"})";
    prometheus.wait_value(&about(code), |exits| exits >= 2.0);
    let throttled = "allostat_task_cpu_cfs_throttled_periods_total{alloc_id=\"$alloc\",task=\"throttled\"}";
    prometheus.wait_value(&about(throttled), |periods| periods > 0.0);

    what_is_picked_is_shown_by_its_name(&prometheus, &alloc);
    gpus_are_as_they_were_made(&prometheus);

    for feature in features() {
        let known = prometheus.value(&format!("count(allostat_capability{{feature=\"{feature}\"}})"));
        assert_eq!(known, Some(1.0), "a panel sends people to the capability {feature}");
    }
    shares.kill().expect("it sleeps");
    shares.wait().expect("our own child");
    agent.stop();
    drop(gpus);
}

/// This Prometheus stores buckets, and no histogram under the name of its family: `native` has one that does.
fn is_stored_classically(selector: &Selector) -> bool {
    family(&selector.name).is_none_or(|desc| desc.kind != Kind::Histogram || desc.name != selector.name)
}

/// No output is lost here.
fn is_exposed_at_once(name: &str) -> bool {
    !name.starts_with("allostat_workload_log_lost_bytes_")
}

/// Not every machine has software RAID, bonds or systemd, or tracks connections.
fn is_on_this_machine(name: &str) -> bool {
    let has_raid = || {
        let disks = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
        disks.into_iter().any(|disk| disk.path().join("md/degraded").exists())
    };
    match name {
        _ if name.contains("_host_raid_") => has_raid(),
        _ if name.contains("_host_failed_units") || name.contains("_host_unit_failed") => {
            Path::new("/run/systemd/system").exists()
        }
        _ if name.contains("_host_bonding_") => Path::new("/sys/class/net/bonding_masters").exists(),
        _ if name.contains("_host_conntrack_") => Path::new("/proc/sys/net/netfilter/nf_conntrack_count").exists(),
        _ if name.contains("_host_clock_") => allostat::host::timex::clock_accuracy().is_ok(),
        _ => true,
    }
}

pub fn pid_of(agent: &Agent, alloc: &str, task: &str) -> u32 {
    let pid = wait_for("its main process", Duration::from_secs(20) * patience(), || {
        agent.json(&format!("/v1/allocs/{alloc}"))["tasks"][task]["main"]["pid"].as_u64()
    });
    u32::try_from(pid).expect("a pid is one")
}

fn what_is_picked_is_shown_by_its_name(prometheus: &Prometheus, alloc: &str) {
    let picked = picked(prometheus, "board");
    // The value is the alloc and its host.
    let shown = picked.iter().find(|(value, _)| value.ends_with(alloc)).map(|(_, text)| text);
    assert!(shown.is_some_and(|text| text.starts_with("board.all[0]  127.0.0.1:")), "{picked:?}");
    assert!(picked.values().any(|text| text.contains("NVIDIA H100")), "{picked:?}");
}

/// Values by what is shown of them: a variable that asks for series picks a part of each by its pattern, out of the
/// line that Grafana makes of it.
pub fn picked(prometheus: &Prometheus, workloads: &str) -> std::collections::BTreeMap<String, String> {
    let mut picked = std::collections::BTreeMap::new();
    for board in boards() {
        for variable in board.variables() {
            let query = text(&variable["query"], "query");
            let inner = query.strip_prefix("query_result(").and_then(|rest| rest.strip_suffix(')'));
            let Some(inner) = inner else { continue };
            let pattern = text(variable, "regex").trim_matches('/');
            let pattern = regex::Regex::new(pattern).unwrap_or_else(|e| panic!("{}: {e}", board.stem));
            for (labels, value) in prometheus.query(&filled_for(inner, "none", (".*", workloads))) {
                let labels = labels.as_object().expect("labels").iter().filter(|(name, _)| *name != "__name__");
                let labels: Vec<String> = labels.map(|(name, value)| format!("{name}={value}")).collect();
                let line = format!("{{{}}} {value} 0", labels.join(","));
                let found = pattern.captures(&line).unwrap_or_else(|| panic!("{}: {line}", board.stem));
                picked.insert(found["value"].to_owned(), found["text"].to_owned());
            }
        }
    }
    picked
}

const GIB: f64 = 1_073_741_824.0;

/// What the board of GPUs says, in the numbers that they were given.
fn gpus_are_as_they_were_made(prometheus: &Prometheus) {
    let contains = |title: &str, at: usize| {
        let boards = boards();
        let board = boards.iter().find(|board| board.stem == "allostat-gpu").expect("it is one of ours");
        let panel = board.panels().into_iter().find(|panel| text(panel, "title") == title).expect("it is on the board");
        prometheus.query(&filled(text(&panel["targets"][at], "expr"), "none"))
    };
    let one = |title: &str, at: usize, labels: &[(&str, &str)]| {
        let all = contains(title, at);
        let mut found = all.iter().filter(|(of, _)| labels.iter().all(|(name, value)| of[name] == *value));
        let value = found.next().map(|(_, value)| value.clone());
        value.unwrap_or_else(|| panic!("{title}: none is {labels:?}: {all:?}")).parse::<f64>().expect("a number")
    };
    let works = [("model", "NVIDIA H100 80GB HBM3"), ("index", "0")];
    assert_eq!(one("GPUs that do not answer", 0, &[]), 1.0);
    assert_eq!(one("Hanging GPUs", 0, &[]), 1.0);
    assert_eq!(one("Held and idle", 0, &[]), 2.0, "their utilization is 0 in their profiles");
    assert_eq!(one("GPUs", 0, &[("index", "3")]), 0.0);
    let watts = one("Power by the energy counter", 0, &works);
    assert!((300.0..700.0).contains(&watts), "{watts} of 500 W");
    let watts = one("Power by workload", 0, &[("workload", "board")]);
    assert!((300.0..800.0).contains(&watts), "500 W and what the idle one draws: {watts}");
    assert_eq!(one("Memory without an owner", 0, &works), 4.0 * GIB);
    assert_eq!(one("Tasks on GPUs", 0, &[("task", "throttled"), works[0], works[1]]), 8.0 * GIB);
    assert_eq!(one("Tasks on GPUs", 0, &[("task", "steady"), ("gpu_instance_id", "2")]), GIB);
    assert_eq!(one("Allocs by GPU utilization", 0, &[("model", "Tesla T4"), ("reserved", "true")]), 0.0);
    assert_eq!(one("XID errors", 0, &[("xid", "79"), works[0], works[1]]), 1.0);
    assert_eq!(contains("MIG instances", 0).len(), 3);
    assert_eq!(one("Plugins", 0, &[("plugin", "nvidia")]), 1.0);
}

/// What a healthy agent without a single alloc says in the first row: every number is there, and none is red.
fn an_idle_agent_is_well(prometheus: &Prometheus, profile: Profile) {
    let mut seen = 0;
    for board in boards() {
        for panel in board.panels().into_iter().filter(|p| p["type"] == "stat" && p["gridPos"]["y"] == 1) {
            let expression = filled(text(&panel["targets"][0], "expr"), "none");
            if !missing(&expression, profile).is_empty() {
                continue;
            }
            let place = format!("{} / {}", board.stem, text(panel, "title"));
            let steps = list(&panel["fieldConfig"]["defaults"]["thresholds"]["steps"]);
            let worst = steps.last().and_then(|step| step["value"].as_f64()).expect("a last step");
            let accepts = |value: f64| match place.rsplit(" / ").next() {
                // Here one of two targets never answers.
                Some("Agents without data") => value == 1.0,
                // That of this host may be full.
                Some("Fullest disk") => (0.0..=1.0).contains(&value),
                _ => value < worst,
            };
            wait_for(&place, Duration::from_secs(30) * patience(), || {
                prometheus.value(&expression).filter(|v| accepts(*v))
            });
            seen += 1;
        }
    }
    assert!(seen >= 8, "each board begins with whether something is wrong: {seen}");
    // What is idle by design fires no alert; how full this machine is, and what its made-up GPUs went through, is
    // another matter. A pending alert would fire in some minutes; on a slow machine one may be pending for a moment.
    let alerts = "ALERTS{alertname!~\"AllostatAgentDown|Host.*|Gpu.*\"}";
    wait_for("no alert where nothing runs", Duration::from_secs(60) * patience(), || {
        prometheus.query(alerts).is_empty().then_some(())
    });
}

/// The capabilities that panels without data name as their reason.
fn features() -> Vec<String> {
    let texts = boards().iter().map(|b| b.json.to_string().replace('\\', "")).collect::<String>();
    let named = texts.split("allostat_capability{feature=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let found: std::collections::BTreeSet<String> = named.map(str::to_owned).collect();
    assert!(!found.is_empty(), "no panel names a capability");
    found.into_iter().collect()
}

/// Each rule was evaluated, and none failed.
pub fn rules_are_healthy(prometheus: &Prometheus) {
    are_evaluated(prometheus, rules().len());
}

/// So many rules.
pub fn are_evaluated(prometheus: &Prometheus, expected: usize) {
    wait_for("every rule to be evaluated without an error", Duration::from_secs(30) * patience(), || {
        let answer = prometheus.api("/api/v1/rules");
        let found: Vec<_> = list(&answer["data"]["groups"]).iter().flat_map(|group| list(&group["rules"])).collect();
        assert_eq!(found.len(), expected, "{answer}");
        found.iter().for_each(|rule| assert_ne!(rule["health"], "err", "{rule}"));
        found.iter().all(|rule| rule["health"] == "ok").then_some(())
    });
}

fn rules_are_healthy_and_fire(prometheus: &Prometheus, alloc: &str, instance: &str) {
    rules_are_healthy(prometheus);
    // This one waits for nothing, so it must fire by now, with the labels that people route by.
    wait_for("TaskOomKilled to fire for the leak", Duration::from_secs(30) * patience(), || {
        let answer = prometheus.api("/api/v1/alerts");
        let expected = serde_json::json!({
            "alertname": "TaskOomKilled", "severity": "warning", "job": "allostat", "instance": instance,
            "workload": "board", "task": "leak", "alloc_id": alloc,
        });
        list(&answer["data"]["alerts"]).iter().any(|a| a["labels"] == expected && a["state"] == "firing").then_some(())
    });
    wait_for("GpuXidCritical to fire for the GPU that fell off its bus", Duration::from_secs(30) * patience(), || {
        let answer = prometheus.api("/api/v1/alerts");
        let expected = serde_json::json!({
            "alertname": "GpuXidCritical", "severity": "critical", "job": "allostat", "instance": instance,
            "device_uuid": "GPU-fa4e0000-0000-4000-8000-000000000000", "index": "0", "model": "NVIDIA H100 80GB HBM3", "xid": "79",
        });
        list(&answer["data"]["alerts"]).iter().any(|a| a["labels"] == expected && a["state"] == "firing").then_some(())
    });
}
