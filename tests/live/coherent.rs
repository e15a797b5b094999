//! One body is of one pass: what an alloc shows is never below what its tasks show beside it, in any of ten thousand
//! bodies that are fetched while real tasks begin, end, crash and are started again.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::common::{Agent, AgentOptions, Exposition, how_many, patience, place, wait_for, workload};
use crate::live::work::{Work, lacks};

/// Of task and alloc alike, and no limit: what was allowed says nothing of what was used. `full` of several tasks is no
/// part of theirs: where one waits and another runs, the alloc does not.
const NOT_COMPARED: [&str; 8] = [
    "memory_limit_bytes",
    "memory_high_bytes",
    "memory_reservation_bytes",
    "memory_available_bytes",
    "cpu_limit_cores",
    "cpu_shares",
    "cpu_weight",
    "cpuset_cpus",
];
/// Of all families that an alloc has as the sum over its tasks, whatever its cgroup.
const SUMS: [&str; 13] = [
    "processes",
    "open_fds",
    "oom_kills_total",
    "memory_limit_hits_total",
    "page_faults_total",
    "cpu_seconds_total",
    "cpu_cfs_periods_total",
    "io_read_bytes_total",
    "io_written_bytes_total",
    "io_discarded_bytes_total",
    "io_reads_total",
    "io_writes_total",
    "pids_limit_hits_total",
];
/// Gone with the attempt.
const LIVE: [&str; 4] = ["memory_usage_bytes", "memory_rss_bytes", "memory_working_set_bytes", "pids_current"];
/// Used now, or counted: of a whole it is at least what its parts have together.
const WHOLES: [&str; 5] =
    ["memory_usage_bytes", "memory_rss_bytes", "memory_cache_bytes", "pids_current", "cpu_usage_seconds_total"];

/// Two tasks in one alloc; one of them ends and begins again.
fn pair() -> String {
    let task = |name: &str, args: &str| {
        format!(
            "task \"{name}\" {{\n driver = \"raw_exec\"\n config {{\n command = {:?}\n args = [{args}]\n }}\n }}\n",
            workload().display().to_string()
        )
    };
    format!(
        "job \"pair\" {{\n type = \"service\"\n group \"pair\" {{\n restart {{\n attempts = 100000\n interval = \"24h\"\n \
         delay = \"100ms\"\n mode = \"delay\"\n }}\n {}{} }}\n}}\n",
        task("steady", "\"touch\", \"24\", \"600000\""),
        task("short", "\"touch\", \"24\", \"300\"")
    )
}

/// One connection that is kept: the next body is there as soon as it is asked for.
struct Scraper {
    to: TcpStream,
    from: BufReader<TcpStream>,
}

impl Scraper {
    fn of(agent: &Agent) -> Scraper {
        let to = TcpStream::connect(agent.address).expect("the agent listens");
        to.set_read_timeout(Some(Duration::from_secs(60) * patience())).expect("not zero");
        let from = BufReader::new(to.try_clone().expect("a descriptor must be left"));
        Scraper { to, from }
    }
    fn body(&mut self) -> String {
        self.to.write_all(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").expect("the agent reads");
        let (mut length, mut body) = (None, Vec::new());
        loop {
            let line = self.line();
            match line.split_once(": ") {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.parse().ok(),
                None if line.is_empty() => break,
                Some(_) | None => {}
            }
        }
        if let Some(length) = length {
            self.append(&mut body, length);
        } else {
            // Chunk by chunk; the last one is empty.
            while let chunk = usize::from_str_radix(&self.line(), 16).expect("a chunk has a length")
                && chunk > 0
            {
                self.append(&mut body, chunk);
                assert_eq!(self.line(), "", "a chunk ends with its length");
            }
            assert_eq!(self.line(), "", "the end of all chunks");
        }
        String::from_utf8(body).expect("UTF-8")
    }
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("the agent answers");
        line.trim_end().to_owned()
    }
    fn append(&mut self, body: &mut Vec<u8>, length: usize) {
        let begin = body.len();
        body.resize(begin + length, 0);
        self.from.read_exact(&mut body[begin..]).expect("the whole body");
    }
}

/// Lines of tasks and allocs: `(stem, labels besides whose it is)` of an alloc, and of its tasks by name.
#[derive(Default)]
struct Alloc<'a> {
    own: BTreeMap<(&'a str, Vec<&'a str>), f64>,
    tasks: BTreeMap<&'a str, BTreeMap<(&'a str, Vec<&'a str>), f64>>,
}

fn is_managed(line: &str) -> bool {
    line.starts_with("allostat_alloc_") || line.starts_with("allostat_task_")
}

fn allocs<'a>(lines: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, Alloc<'a>> {
    let mut allocs: BTreeMap<&str, Alloc<'_>> = BTreeMap::new();
    for line in lines {
        let Some((name, rest)) = line.split_once('{') else { continue };
        let Some((labels, value)) = rest.rsplit_once("} ") else { continue };
        let (mut id, mut task, mut remaining) = ("", "", Vec::new());
        for label in labels.split(',') {
            match label.split_once('=') {
                Some(("alloc_id", value)) => id = value,
                Some(("task", value)) => task = value,
                Some(("kind" | "mode" | "resource", _)) => remaining.push(label),
                _ => {}
            }
        }
        if id.is_empty() {
            continue;
        }
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
        let alloc = allocs.entry(id).or_default();
        match (name.strip_prefix("allostat_alloc_"), name.strip_prefix("allostat_task_")) {
            (Some(stem), _) => _ = alloc.own.insert((stem, remaining), value),
            (None, Some(stem)) => _ = alloc.tasks.entry(task).or_default().insert((stem, remaining), value),
            (None, None) => {}
        }
    }
    allocs
}

/// What of one body contradicts the rest of it.
fn contradictions(allocs: &BTreeMap<&str, Alloc<'_>>) -> Vec<String> {
    let mut found = Vec::new();
    for (id, alloc) in allocs {
        let keys: BTreeSet<_> = alloc.tasks.values().flat_map(|t| t.keys()).collect();
        for key in keys.into_iter().filter(|(stem, _)| !NOT_COMPARED.contains(stem)) {
            let Some(own) = alloc.own.get(key) else { continue };
            let several = alloc.tasks.len() > 1;
            if several && key.1.contains(&"kind=\"full\"") {
                continue;
            }
            let parts: Vec<f64> = alloc.tasks.values().filter_map(|t| t.get(key)).copied().collect();
            let (highest, sum) = (parts.iter().copied().fold(0.0, f64::max), parts.iter().sum::<f64>());
            // Seconds are printed to the nanosecond and added here as floats.
            let sibling = |a: f64, b: f64| (a - b).abs() > 1e-6;
            if *own < highest && sibling(*own, highest) {
                found.push(format!("{id} {key:?}: the alloc {own}, a task {highest}"));
            }
            if SUMS.contains(&key.0) && sibling(*own, sum) {
                found.push(format!("{id} {key:?}: the alloc {own}, the sum {sum}"));
            }
            if WHOLES.contains(&key.0) && *own < sum && sibling(*own, sum) {
                found.push(format!("{id} {key:?}: the alloc {own}, its tasks together {sum}"));
            }
        }
        for stem in LIVE {
            let key = (stem, Vec::new());
            let (of_alloc, of_task) =
                (alloc.own.contains_key(&key), alloc.tasks.values().any(|t| t.contains_key(&key)));
            if of_alloc != of_task {
                found.push(format!("{id} {stem}: of the alloc {of_alloc}, of a task {of_task}"));
            }
        }
    }
    found
}

/// Promise (Measured values): In each body an alloc is not below its tasks, and their live series begin and end
/// together
#[test]
fn in_ten_thousand_bodies_no_alloc_is_below_its_tasks_and_both_come_and_go_together() {
    if let Some(reason) = lacks("memory") {
        skip_test!(reason);
    }
    // An emulated processor is some twenty times as slow: less goes on there, and less is read of it.
    let host = place() == "host";
    let (tick, of_each, expected) =
        if host { ("200ms", 3, how_many(500, 10_000)) } else { ("1s", 1, how_many(20, 60)) };
    let config = format!("telemetry {{\n tick = \"{tick}\"\n}}\n");
    let agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    for n in 0..of_each {
        Work::looping(&format!("short-{n}"), &["touch", "48", "300"]).run(&agent);
    }
    for n in 0..of_each {
        Work::looping(&format!("crash-{n}"), &["exit", "3"]).run(&agent);
    }
    agent.run(&pair());
    let limit = Duration::from_secs(120) * patience();
    let (started_at, mut scraper, mut before) = (Instant::now(), Scraper::of(&agent), String::new());
    let (mut bodies, mut distinct, mut with_live) = (0, 0, 0);
    // However fast they come: what the tasks go through in 30 s is in them. However slowly: then fewer have to do.
    let least = Duration::from_secs(if host { how_many(6, 30) as u64 } else { 5 });
    while (bodies < expected && started_at.elapsed() < limit) || started_at.elapsed() < least {
        let body = scraper.body();
        bodies += 1;
        let lines: String = body.lines().filter(|line| is_managed(line)).flat_map(|line| [line, "\n"]).collect();
        if lines == before {
            // Of the same snapshot: the next one is waited for, not missed.
            std::thread::sleep(Duration::from_micros(500));
            continue;
        }
        let allocs = allocs(lines.lines());
        let found = contradictions(&allocs);
        assert!(found.is_empty(), "body {bodies}, the {distinct}th of its kind:\n{}", found.join("\n"));
        distinct += 1;
        with_live += allocs.values().filter(|a| a.own.contains_key(&("memory_usage_bytes", Vec::new()))).count();
        before = lines;
    }
    println!("{bodies} bodies in {:?}, {distinct} of them distinct, {with_live} live allocs", started_at.elapsed());
    let least = if host { how_many(50, 500) } else { how_many(3, 10) };
    assert!(distinct > least && with_live > least, "{distinct} distinct bodies, {with_live} live allocs in them");
    agent.stop();
}

/// Promise (Measured values): Page faults of an alloc are those of its tasks, to the last one, over restarts too
#[test]
fn alloc_page_faults_equal_those_of_its_only_task_over_restarts() {
    if let Some(reason) = lacks("memory") {
        skip_test!(reason);
    }
    let agent = Agent::start();
    let work = Work {
        restart: "attempts = 3\n interval = \"24h\"\n delay = \"100ms\"\n mode = \"fail\"".into(),
        ..Work::batch("faults", &["exit", "3"])
    };
    let ended = work.run(&agent);
    let running = Work::batch("held", &["touch", "20", "600000"]).run(&agent);
    running.ready();
    ended.wait_dead();
    let metrics = running.fresh_metrics();
    for alloc in [&ended, &running] {
        for kind in ["minor", "major"] {
            let task = [("alloc_id", alloc.id.as_str()), ("task", alloc.task.as_str()), ("kind", kind)];
            let whole = [("alloc_id", alloc.id.as_str()), ("kind", kind)];
            let faults = metrics.u64("allostat_task_page_faults_total", &task);
            assert_eq!(metrics.u64("allostat_alloc_page_faults_total", &whole), faults, "{kind} of {}", alloc.task);
            assert!(kind == "major" || faults > 0, "{} ran", alloc.task);
        }
    }
    let stats = agent.json(&format!("/v1/allocs/{}/stats", ended.id));
    assert_eq!(stats["usage"]["page_faults_minor"], stats["tasks"]["faults"]["usage"]["page_faults_minor"]);
    agent.stop();
}

#[test]
fn oldest_sample_metric_covers_a_sleeping_task_while_the_sampler_runs() {
    if let Some(reason) = lacks("memory") {
        skip_test!(reason);
    }
    let agent = Agent::start();
    let asleep = Work::batch("asleep", &["touch", "4", "600000"]).run(&agent);
    asleep.ready();
    let age = |metrics: &Exposition, name: &str| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64();
        now - metrics.f64(name, &[("collector", "task")])
    };
    // It is looked at every 9 s: once in that time it is some seconds old.
    let (shown, oldest, last) = wait_for("a value of 4 s ago", Duration::from_secs(20) * patience(), || {
        // It may have said that it is ready before its start was shown.
        let shown_now = || {
            let stats = agent.json(&format!("/v1/allocs/{}/stats", asleep.id));
            Some(stats["tasks"]["asleep"]["age_ms"].as_f64()? / 1e3)
        };
        let shown = shown_now()?;
        let metrics = agent.metrics();
        // It was read again between the two: they show two readings.
        if shown_now()? < shown {
            return None;
        }
        metrics.one("allostat_collector_oldest_sample_timestamp_seconds", &[("collector", "task")])?;
        let oldest = age(&metrics, "allostat_collector_oldest_sample_timestamp_seconds");
        let last = age(&metrics, "allostat_collector_last_sample_timestamp_seconds");
        assert!(oldest + 0.1 >= shown, "the API shows {shown} s, the metric {oldest} s");
        // Passes went on since it was read.
        (shown > 4.0 && last + 2.0 < oldest).then_some((shown, oldest, last))
    });
    assert!(oldest - last < 10.0, "{oldest} s, where {shown} s were shown, and the last pass was {last} s ago");
    agent.stop();
}
