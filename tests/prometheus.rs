//! A real Prometheus scrapes a real agent that runs real tasks: what it stores is what the kernel and the API say, and
//! neither promtool nor another language's OpenMetrics parser finds anything wrong with the text.

#[path = "live/work.rs"]
#[allow(dead_code, reason = "the live tests use all of it")]
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{
    Agent, AgentOptions, Exposition, Prometheus, Promtool, Response, is_root, patience, python_openmetrics, tcp,
    wait_for,
};
use work::{MIB, Work, assert_near, fresh_metrics};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0";

fn scrape(agent: &Agent, accept: &str) -> Response {
    let response = tcp(agent.address, "GET", "/metrics", &[("Accept", accept)], b"").expect("the agent must answer");
    assert_eq!(response.status, 200, "{}", response.text());
    response
}

/// A task that holds memory, one that burnt CPU and ended well, one that failed, one that was killed by a signal.
fn some_life(agent: &Agent) -> Vec<work::Alloc<'_>> {
    let kinds: [(&str, &[&str]); 4] = [
        ("holds", &["touch", "64", "3600000"]),
        ("burns", &["burn", "300"]),
        ("fails", &["exit", "3"]),
        ("signalled", &["kill-self", "15"]),
    ];
    let allocs: Vec<_> = kinds.iter().map(|(id, args)| Work::batch(id, args).run(agent)).collect();
    allocs[0].ready();
    for alloc in &allocs[1..] {
        alloc.wait_dead();
    }
    allocs
}

/// Promise (Measured values): `promtool check metrics` and the OpenMetrics parser of `prometheus_client` report nothing
#[test]
fn promtool_finds_nothing_wrong_with_the_metrics_of_real_tasks() {
    let Some(promtool) = Promtool::find() else { skip_test!("no-prometheus") };
    let agent = Agent::start();
    let allocs = some_life(&agent);
    fresh_metrics(&agent);
    let text = scrape(&agent, "text/plain");
    let verdict = promtool.check_metrics(&text.body);
    assert!(verdict.ok && verdict.output.trim().is_empty(), "promtool says:\n{}", verdict.output);
    let exposition = Exposition::parse(text.text());
    assert!(exposition.one("allostat_task_state", &[("alloc_id", &allocs[0].id), ("state", "running")]).is_some());
    agent.stop();
}

#[test]
fn the_open_metrics_parser_of_prometheus_client_finds_nothing_wrong() {
    let agent = Agent::start();
    let _allocs = some_life(&agent);
    fresh_metrics(&agent);
    let response = scrape(&agent, OPEN_METRICS);
    let kind = response.header("content-type").unwrap_or_default().to_owned();
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
    let Some(verdict) = python_openmetrics(&response.body) else {
        agent.stop();
        skip_test!("no-python")
    };
    assert!(verdict.ok, "prometheus_client says:\n{}", verdict.output);
    let lines = response.text().lines().filter(|line| !line.starts_with('#') && !line.is_empty()).count();
    assert_eq!(verdict.output.trim().parse::<usize>().ok(), Some(lines), "it must have read every sample");
    agent.stop();
}

/// Promise (Measured values): Both formats carry the same samples
#[test]
fn both_formats_carry_the_same_samples() {
    let agent = Agent::start();
    let _allocs = some_life(&agent);
    // A body of one format between two of the other: tried until no tick lies between them. The agent's own counters of
    // scrapes differ of course, a histogram's `le` is a float in OpenMetrics, and only that says since when a counter
    // counts.
    let samples = |accept: &str| -> BTreeSet<String> {
        let exposition = Exposition::parse(scrape(&agent, accept).text());
        let tasks = |s: &&crate::common::Sample| {
            let own = ["allostat_task_", "allostat_alloc_", "allostat_workload_"];
            let alike = !s.labels.contains_key("le") && !s.name.ends_with("_created");
            alike && own.iter().any(|start| s.name.starts_with(start))
        };
        exposition.samples.iter().filter(tasks).map(|s| format!("{}{:?} {}", s.name, s.labels, s.f64())).collect()
    };
    let (text, open) = wait_for("two bodies of one snapshot", Duration::from_secs(20) * patience(), || {
        let (first, open, second) = (samples("text/plain"), samples(OPEN_METRICS), samples("text/plain"));
        (first == second).then_some((first, open))
    });
    assert!(!text.is_empty());
    let differing: Vec<_> = text.symmetric_difference(&open).collect();
    assert!(differing.is_empty(), "only in one of the formats: {differing:#?}");
    agent.stop();
}

/// Promise (Measured values): The values that Prometheus stored equal the kernel's and the API's
#[test]
fn prometheus_stores_the_values_of_the_kernel_and_the_api() {
    if !is_root() {
        skip_test!("not-root");
    }
    let agent = Agent::start();
    let Some(prometheus) = Prometheus::start(&[agent.address], &[]) else { skip_test!("no-prometheus") };
    prometheus.wait_value("up{job=\"allostat\"}", |up| up == 1.0);

    let holder = Work::batch("holder", &["touch", "200", "3600000"]).run(&agent);
    let burner = Work::batch("burner", &["burn", "500"]).run(&agent);
    let held = holder.ready()["bytes"].as_u64().expect("the workload says how much it holds");
    assert_eq!(held, 200 * MIB);
    burner.wait_dead();

    // What is used now: the kernel's own number, asked for past the code under test.
    let selector = format!("{{alloc_id=\"{}\",task=\"holder\"}}", holder.id);
    let stored =
        prometheus.wait_value(&format!("allostat_task_memory_usage_bytes{selector}"), |v| v >= 200.0 * 1048576.0);
    let kernel = holder.kernel_u64("memory", "memory.usage_in_bytes", "memory.current");
    // An idle holder: pages of its libraries may still come and go.
    assert_near("memory usage in Prometheus and in the kernel", whole(stored), kernel, MIB);

    // What was used in all, of a task that is gone: Prometheus, /metrics and the API agree to the last digit.
    let name = "allostat_task_cpu_usage_seconds_total";
    let selector = format!("{{alloc_id=\"{}\",task=\"burner\"}}", burner.id);
    // Prometheus may have a sample of the task while it ran as well.
    let is_as_shown = |seconds: f64| (seconds - agent.metrics().f64(name, &burner.labels())).abs() < f64::EPSILON;
    let stored = prometheus.wait_value(&format!("{name}{selector}"), |seconds| seconds > 0.0 && is_as_shown(seconds));
    // 500 ms of wall time on a machine with other work: it cannot have had more than one core.
    assert!(stored < 0.6, "one thread burnt for 500 ms, {stored} s were counted");

    // Live series go within a tick of the end; final ones stay.
    agent.cli(&["stop", &holder.id]).ok();
    let selector = format!("{{alloc_id=\"{}\",task=\"holder\"}}", holder.id);
    wait_for("the usage of an ended task to go", Duration::from_secs(15) * patience(), || {
        prometheus.value(&format!("allostat_task_memory_usage_bytes{selector}")).is_none().then_some(())
    });
    let peak = prometheus.value(&format!("allostat_task_memory_peak_bytes{selector}")).expect("a peak is final");
    assert!(peak >= 200.0 * 1048576.0, "{peak}");
    agent.stop();
}

/// What stands between a server and an agent, and notes what the agent calls its answers.
struct Between {
    address: SocketAddr,
    kinds: Arc<Mutex<BTreeSet<String>>>,
}

/// Asks for `accept` whatever it is asked for itself, if so: servers of today ask for other formats first.
fn between(agent: SocketAddr, accept: Option<&'static str>) -> Between {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let kinds = Arc::<Mutex<BTreeSet<String>>>::default();
    let recorded = kinds.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (mut requests, mut chunk) = (Vec::new(), [0; 4096]);
            while !requests.windows(4).any(|end| end == b"\r\n\r\n") {
                match stream.read(&mut chunk) {
                    Ok(n) if n > 0 => requests.extend_from_slice(&chunk[..n]),
                    _ => break,
                }
            }
            let requested = String::from_utf8_lossy(&requests).into_owned();
            let its_own = requested.lines().find_map(|line| line.strip_prefix("Accept: "));
            let Some(accept) = accept.or(its_own) else { continue };
            let Ok(answer) = tcp(agent, "GET", "/metrics", &[("Accept", accept)], b"") else { continue };
            let kind = answer.header("content-type").unwrap_or_default();
            let head = format!(
                "HTTP/1.1 {} x\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                answer.status,
                answer.body.len()
            );
            if answer.status == 200 {
                recorded.lock().expect("not poisoned").insert(kind.to_owned());
            }
            let _ = stream.write_all(&[head.as_bytes(), &answer.body].concat());
        }
    });
    Between { address, kinds }
}

/// What a server stored of all that has ended, where nothing moves any more; of a histogram there is one series in the
/// one, and many in the other.
fn stored_of_what_has_ended(server: &Prometheus) -> BTreeMap<String, String> {
    let ended = "{__name__=~\"allostat_(task|workload)_.*\",\
                 __name__!~\".*(_bucket|_sum|_count|_created|duration_seconds|time_in_state.*)\",task!~\"holds.*\"}";
    let own = |mut labels: serde_json::Value| {
        // Its own name of the target, which is another's address for one of them.
        labels.as_object_mut().expect("labels").remove("instance");
        labels.to_string()
    };
    server.query(ended).into_iter().map(|(labels, value)| (own(labels), value)).collect()
}

/// Each server reads a format of its own, two of them are the next Prometheus: they store the same, and only those that
/// asked for protocol buffers have native histograms, whose quantiles lie in the buckets of the others.
///
/// Promise (Measured values): Real Prometheus 2 and 3 store the same from each format; native histograms agree
#[test]
fn servers_store_equal_values_from_each_format_and_native_histograms_from_protobuf() {
    if !is_root() {
        skip_test!("not-root");
    }
    let agent = Agent::start();
    let Some(texts) = Prometheus::start(&[agent.address], &[]) else { skip_test!("no-prometheus") };
    let Some(natives) = Prometheus::start_with_native_histograms(&[agent.address]) else { skip_test!("no-prometheus") };
    let old = between(agent.address, Some("text/plain;version=0.0.4"));
    let Some(olds) = Prometheus::start(&[old.address], &[]) else { skip_test!("no-prometheus") };
    let new = between(agent.address, None);
    let only = "  scrape_protocols: [PrometheusText1.0.0]\n";
    let Some(changes) = Prometheus::start_next(&[], new.address, only) else { skip_test!("no-prometheus") };
    let next = between(agent.address, None);
    let Some(nexts) = Prometheus::start_next(&["native-histograms"], next.address, "") else {
        skip_test!("no-prometheus")
    };
    let servers = [&texts, &natives, &olds, &changes, &nexts];
    let _allocs = some_life(&agent);
    for number in 0..6 {
        let held = Work::batch(&format!("holds-{number}"), &["hold", "3600000"]).run(&agent);
        held.ready();
        agent.cli(&["stop", &held.id]).ok();
    }
    for server in servers {
        server.wait_value("count(allostat_task_state{state=\"dead\"} == 1)", |dead| dead == 9.0);
    }
    // Each asks for its own.
    for format in ["openmetrics", "text", "protobuf"] {
        let scraped = format!("sum(allostat_scrapes_total{{format=\"{format}\",code=\"200\"}})");
        texts.wait_value(&scraped, |scrapes| scrapes > 1.0);
    }
    let kinds = |between: &Between| between.kinds.lock().unwrap().iter().cloned().collect::<Vec<_>>();
    assert_eq!(kinds(&old), ["text/plain; version=0.0.4; charset=utf-8"]);
    assert_eq!(kinds(&new), ["text/plain; version=1.0.0; charset=utf-8; escaping=allow-utf-8"]);
    let protobuf = kinds(&next);
    assert!(protobuf.len() == 1 && protobuf[0].starts_with("application/vnd.google.protobuf"), "{protobuf:?}");

    wait_for("all to have scraped the end", Duration::from_secs(30) * patience(), || {
        let all = servers.map(stored_of_what_has_ended);
        (all[0].len() > 100 && all.iter().all(|stored| *stored == all[0])).then_some(())
    });
    for native in [&natives, &nexts] {
        for (family, least) in [("workload_start", 10), ("workload_kill", 6), ("hook", 40), ("scrape", 8)]
            .map(|(of, n)| (format!("allostat_{of}_duration_seconds"), n))
        {
            its_quantiles_lie_in_the_buckets(&family, least, native, &texts);
        }
    }
    agent.stop();
}

/// Quantiles of a native histogram, beside the classic buckets that another server stored of the same family.
fn its_quantiles_lie_in_the_buckets(family: &str, least: u64, native: &Prometheus, classic: &Prometheus) {
    assert_eq!(native.value(&format!("count({family}_bucket)")), None, "it is stored natively alone");
    let is_of_scrapes = family.contains("scrape");
    // Hooks of what has ended may still be at work; each scrape is one more.
    let total = wait_for("both to have counted alike", Duration::from_secs(30) * patience(), || {
        let natively = native.value(&format!("sum(histogram_count({family}))"))?;
        let in_buckets = classic.value(&format!("sum({family}_count)"))?;
        let alike = (natively - in_buckets).abs() < if is_of_scrapes { in_buckets / 4.0 } else { 0.5 };
        (natively >= least as f64 && alike).then_some(in_buckets)
    });
    let mut buckets: Vec<(f64, f64)> = classic
        .query(&format!("sum by (le) ({family}_bucket)"))
        .iter()
        .map(|(labels, n)| {
            let number = |text: &str| text.parse().expect("a number");
            (number(labels["le"].as_str().expect("a bound")), number(n))
        })
        .collect();
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    for quantile in [0.1, 0.5, 0.9, 0.99_f64] {
        let answer = native.value(&format!("histogram_quantile({quantile}, sum({family}))")).expect("it has some");
        let bounds = |share: f64| {
            let at = buckets.iter().position(|(_, n)| *n >= total * share).expect("the last holds all");
            (at.checked_sub(1).map_or(0.0, |before| buckets[before].0), buckets[at].0)
        };
        // A native bucket may reach over the edge of a classic one. A rank that falls on an observation (0.9 of 10) may
        // be rounded up to the next one: Prometheus counts from the top from the median on. The counts of scrapes are
        // not of one moment.
        let (factor, off) = (2_f64.powf(0.125), if is_of_scrapes { 0.25 } else { 1e-6 });
        let (lower, upper) = (bounds((quantile - off).max(0.0)).0, bounds((quantile + off).min(1.0)).1);
        assert!(
            answer >= lower / factor && answer <= upper * factor,
            "{family}: {quantile} is {answer}, not in ({lower}, {upper}]"
        );
    }
}

/// What has ended is gone after a second for who has it: a server that comes each fifteen seconds still gets all of it.
///
/// Promise (Measured values): Prometheus servers with different intervals all receive final series, which then end for
/// all
#[test]
fn servers_that_come_at_different_paces_all_get_what_is_final_and_then_see_it_go() {
    if !is_root() {
        skip_test!("not-root");
    }
    let config = "telemetry {\n retention = \"1s\"\n retention_max = \"90s\"\n}\n".to_owned();
    let agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    // From one address they are distinguished by what they call themselves and ask for.
    let Some(often) = Prometheus::start_next(&[], agent.address, "") else { skip_test!("no-prometheus") };
    let Some(seldom) = Prometheus::start_each(15, &[agent.address], &[]) else { skip_test!("no-prometheus") };
    for server in [&often, &seldom] {
        server.wait_value("up{job=\"allostat\"}", |up| up == 1.0);
    }
    const TASKS: u64 = 8;
    // They end all through two of its intervals.
    let ended: Vec<_> = (0..TASKS)
        .map(|number| {
            let alloc = Work::batch(&format!("brief-{number}"), &["touch", "32", "1"]).run(&agent);
            alloc.wait_dead();
            std::thread::sleep(Duration::from_secs(3));
            alloc
        })
        .collect();
    let all = |server: &Prometheus, family: &str| -> BTreeMap<String, String> {
        let all = server.query(&format!("last_over_time({family}[5m])"));
        all.into_iter().map(|(labels, value)| (labels["alloc_id"].to_string(), value)).collect()
    };
    for family in ["allostat_task_memory_peak_bytes", "allostat_task_cpu_usage_seconds_total"] {
        let (first, second) = wait_for("both to have all that is final", Duration::from_secs(60) * patience(), || {
            let (first, second) = (all(&often, family), all(&seldom, family));
            (first.len() == ended.len() && second.len() == ended.len()).then_some((first, second))
        });
        assert_eq!(first, second, "{family}");
        let least = if family.contains("peak") { 32.0 * 1048576.0 } else { 0.001 };
        assert!(first.values().all(|value| value.parse::<f64>().unwrap() >= least), "{first:?}");
    }
    let removed = "count(allostat_task_memory_peak_bytes)";
    for server in [&often, &seldom] {
        wait_for("what both have to go", Duration::from_secs(60) * patience(), || {
            server.value(removed).is_none().then_some(())
        });
    }
    agent.stop();
}

/// Promise (Short tasks): Short tasks reach Prometheus exactly once
#[test]
fn short_tasks_reach_prometheus_exactly_once() {
    if !is_root() {
        skip_test!("not-root");
    }
    const TASKS: usize = 200;
    let agent = Agent::start();
    let Some(prometheus) = Prometheus::start(&[agent.address], &[]) else { skip_test!("no-prometheus") };
    prometheus.wait_value("up{job=\"allostat\"}", |up| up == 1.0);
    for number in 0..TASKS {
        let hcl = Work::batch(&format!("short-{number}"), &["hold", "1"]).hcl();
        let response = agent.request("POST", "/v1/jobs", &hcl);
        assert_eq!(response.status / 100, 2, "{}", response.text());
    }
    let count =
        prometheus.wait_value("sum(allostat_workload_exits_total{outcome=\"success\"})", |n| whole(n) == TASKS as u64);
    assert_eq!(whole(count), TASKS as u64);
    let dead = "count(count by (alloc_id) (allostat_task_state{state=\"dead\"} == 1))";
    prometheus.wait_value(dead, |n| whole(n) == TASKS as u64);
    let burnt = "count(allostat_task_cpu_usage_seconds_total > 0)";
    assert_eq!(prometheus.value(burnt).map(whole), Some(TASKS as u64), "each with its CPU seconds");
    let peaks = "count(allostat_task_memory_peak_bytes > 0)";
    assert_eq!(prometheus.value(peaks).map(whole), Some(TASKS as u64), "each with its peak");
    agent.stop();
}

/// The recipe of docs/reading.md for what rose within the last so many seconds, with the labels of one series.
fn risen(workload: &str, seconds: u64) -> String {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reading.md")).expect("our own page");
    let start = "allostat_workload_exits_total - (";
    let line = page.lines().find(|line| line.starts_with(start)).expect("the page has the recipe");
    let window = line.replace("15m", &format!("{seconds}s")).replace("900", &seconds.to_string());
    format!(
        "sum(({window}) and on (workload, outcome) allostat_workload_exits_total{{workload=\"{workload}\",outcome=\"error\"}})"
    )
}

/// Of an instant query at this time: one of [`first_at`].
fn value_at(prometheus: &Prometheus, expression: &str, at: f64) -> Option<String> {
    let answer = prometheus.api(&format!("/api/v1/query?time={at:.3}&query={}", encoded(expression)));
    answer["data"]["result"][0]["value"][1].as_str().map(str::to_owned)
}

/// When this server first scraped the value of a series.
fn first_at(prometheus: &Prometheus, series: &str, value: &str) -> f64 {
    let answer = prometheus.api(&format!("/api/v1/query?query={}", encoded(&format!("{series}[1h]"))));
    let all = answer["data"]["result"].as_array().expect("a list");
    let [one] = &all[..] else { panic!("one series: {answer}") };
    let mut samples = one["values"].as_array().expect("its samples").iter();
    let first = samples.find(|sample| sample[1] == value).unwrap_or_else(|| panic!("no {value}: {answer}"));
    first[0].as_f64().expect("a time")
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Three failures within the first scrape interval: the series is first seen at 3, and `increase()` says 0.
#[test]
fn failures_before_the_first_scrape_are_counted_once_at_any_scrape_interval() {
    let agent = Agent::start();
    let fails = |id: &str| {
        let restart = "attempts = 2\n interval = \"1m\"\n delay = \"10ms\"\n mode = \"fail\"";
        Work { restart: restart.into(), ..Work::batch(id, &["exit", "3"]) }.run(&agent).wait_dead();
    };
    fails("old");
    let old_since = std::time::Instant::now();
    let start = |seconds| Prometheus::start_each(seconds, &[agent.address], &[]);
    let (Some(each_5), Some(each_15)) = (start(5), start(15)) else { skip_test!("no-prometheus") };
    let exits =
        |workload: &str| format!("sum(allostat_workload_exits_total{{workload=\"{workload}\",outcome=\"error\"}})");
    for prometheus in [&each_5, &each_15] {
        prometheus.wait_value(&exits("old"), |n| whole(n) == 3);
    }
    fails("early");
    for prometheus in [&each_5, &each_15] {
        prometheus.wait_value(&exits("early"), |n| whole(n) == 3);
        assert_eq!(prometheus.value(&risen("early", 3_600)), Some(3.0), "the first ones too");
        // Submitted within the window, and failed in it, before there was a Prometheus.
        assert_eq!(prometheus.value(&risen("old", 3_600)), Some(3.0));
    }
    // A server that comes later, to a counter that is older than what it asks for: it saw nothing rise.
    const WINDOW: u64 = 20;
    std::thread::sleep(Duration::from_secs(WINDOW + 1).saturating_sub(old_since.elapsed()));
    let late = start(5).expect("it was there a moment ago");
    late.wait_value(&exits("old"), |n| whole(n) == 3);
    assert_eq!(late.value(&risen("old", WINDOW)), Some(0.0), "no burst where a scraper begins");
    assert_eq!(each_5.value(&risen("old", WINDOW)), Some(0.0));
    std::thread::sleep(Duration::from_secs(2 * WINDOW + 1).saturating_sub(old_since.elapsed()));
    fails("old");
    for prometheus in [&late, &each_5, &each_15] {
        prometheus.wait_value(&exits("old"), |n| whole(n) == 6);
        // Evaluated at the first scrape that saw all of them. Twice as long: a server that scrapes each 15 s may have
        // one sample alone within 20 s.
        let at = first_at(prometheus, "allostat_workload_exits_total{workload=\"old\",outcome=\"error\"}", "6");
        let within = value_at(prometheus, &risen("old", 2 * WINDOW), at);
        assert_eq!(within.as_deref(), Some("3"), "those of the window, no others");
    }
    // The moment is the submission's, and a restart of the agent does not move it.
    let created = |prometheus: &Prometheus| {
        prometheus.value("max(allostat_workload_exits_created{workload=\"old\",outcome=\"error\"})")
    };
    let before = created(&each_5).expect("it is exposed");
    let began = each_5.value("process_start_time_seconds").expect("of the first agent");
    let mut agent = agent;
    agent.terminate();
    agent.start_again();
    // A server that scraped in between has no value until it scrapes the agent that was started again.
    for (prometheus, which) in [(&each_5, "each_5"), (&late, "late")] {
        prometheus.wait_value("process_start_time_seconds", |again| again > began);
        assert_eq!(created(prometheus), Some(before), "one and the same to every server: {which}");
    }
    agent.stop();
}

/// From a number about many allocs to one of them, and to the event about it.
#[test]
fn a_real_prometheus_stores_the_exemplars() {
    let agent = Agent::start();
    let Some(prometheus) = Prometheus::start(&[agent.address], &[]) else { skip_test!("no-prometheus") };
    prometheus.wait_value("up{job=\"allostat\"}", |up| up == 1.0);
    let failing = Work::batch("fails", &["exit", "3"]).run(&agent);
    let stopped = Work::batch("stopped", &["hold", "3600000"]).run(&agent);
    stopped.ready();
    agent.cli(&["stop", &stopped.id]).ok();
    let stored = |selector: &str| {
        wait_for(selector, Duration::from_secs(30) * patience(), || {
            let mut found = prometheus.exemplars(selector);
            assert!(found.len() <= 1, "one alloc, one exemplar, however often it is scraped: {found:?}");
            found.pop().map(|(_, exemplar)| exemplar)
        })
    };
    let exit = stored("allostat_workload_exits_total{workload=\"fails\",outcome=\"error\"}");
    assert_eq!((&exit["labels"]["alloc_id"], exit["value"].as_str()), (&failing.id.clone().into(), Some("1")));
    let number: u64 = exit["labels"]["event_id"].as_str().and_then(|n| n.parse().ok()).expect("an event's number");
    let event = agent.json(&format!("/v1/events?since={}", number - 1))["events"][0].clone();
    assert_eq!((&event["seq"], &event["kind"]), (&number.into(), &"Terminated".into()), "{event}");
    assert_eq!(event["alloc_id"], failing.id.as_str());
    let code = stored("allostat_workload_exit_codes_total{workload=\"fails\",code=\"3\"}");
    assert_eq!(code["labels"], exit["labels"]);
    for histogram in ["start", "kill"] {
        let name = format!("allostat_workload_{histogram}_duration_seconds");
        let exemplar = stored(&format!("{name}_bucket{{workload=\"stopped\"}}"));
        assert_eq!(exemplar["labels"]["alloc_id"], stopped.id.as_str(), "{name}: {exemplar}");
        let value: f64 = exemplar["value"].as_str().and_then(|v| v.parse().ok()).expect("a number");
        // A store has the exemplar a moment before the samples of its scrape: one observation is shown as it was.
        prometheus.wait_value(&format!("{name}_sum{{workload=\"stopped\"}}"), |sum| (value - sum).abs() < 1e-9);
    }
    agent.stop();
}

/// Counts and bytes come as floats from Prometheus; these are far below 2^53.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole(value: f64) -> u64 {
    assert!((0.0..9e15).contains(&value), "{value}");
    value as u64
}
