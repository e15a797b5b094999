//! Whatever a cgroup, a task or a job may be called: every format says it, and a strict reader gets it back.
//!
//! `ALLOSTAT_FUZZ_CASES` is how many names; each body has a hundred of them. Python's `prometheus_client` reads some of
//! the bodies.
//!
//! Promise (Observed workloads): Names with newlines too are escaped in every format

// Compiled into the library for its own tests, and here.
#[path = "../src/model/fuzzed.rs"]
#[allow(dead_code)]
mod fuzzed;

use crate::{openmetrics, protobuf, synthetic};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::common::{Exposition, python_parsed};
use allostat::exporters::walk::{Filter, Walk};
use allostat::exporters::{Format, prometheus};
use allostat::model::metric::Samples;
use allostat::model::totals::Totals;
use allostat::telemetry::Metrics;
use fuzzed::{Fuzz, each_of, variable};
use synthetic::TaskReadings;

const FAMILIES: [&str; 3] = ["allostat_alloc_info", "allostat_task_info", "allostat_task_memory_usage_bytes"];
/// Of one body.
const NAMES: usize = 100;

/// What people and kernels call cgroups: units escaped by systemd, ids of containers, and whatever else is no slash and
/// no zero.
const PIECES: [&str; 26] = [
    "nginx.service",
    "user@1000.service",
    "dev-disk-by\\x2duuid",
    "\\",
    "\\\\",
    "\\n",
    "\"",
    "\"}",
    "{a=\"b\"}",
    ",",
    "=",
    " ",
    "# HELP ",
    "# EOF",
    "\n",
    "\r\n",
    "kubepods-burstable-pod",
    "0f3c9a",
    "..",
    "日本語",
    "é",
    "\u{1F600}",
    "\\xff",
    "\u{efff}",
    " 1 ",
    "le=\"+Inf\"",
];

fn name(fuzz: &mut Fuzz) -> String {
    if fuzz.one_in(2) { fuzz.text(24) } else { fuzz.pieces(&PIECES, 6) }
}

/// `id` and task of each alloc of a body, as its readers are to find them.
type Pairs = BTreeSet<(String, String)>;

fn pairs<'l>(all: impl Iterator<Item = &'l BTreeMap<String, String>>) -> Pairs {
    let of = |labels: &BTreeMap<String, String>, name: &str| labels.get(name).cloned().unwrap_or_default();
    all.map(|labels| (of(labels, "alloc_id"), of(labels, "task"))).collect()
}

/// Promise (Absent values and sums): Any name of a cgroup or task is valid in each format, by Python's
/// `prometheus_client` too
#[test]
fn any_name_comes_back_out_of_every_format_and_no_line_is_malformed() {
    let names = variable("ALLOSTAT_FUZZ_CASES").unwrap_or(2_000);
    let bodies = names.div_ceil(NAMES as u64);
    let (mut body, mut read_by_python) = (0, 0);
    let metrics = Metrics::new();
    let filter = Filter::new(FAMILIES, []).expect("names of families");
    each_of("bodies of a hundred names", bodies, |fuzz| {
        let mut readings = TaskReadings::default();
        let (mut allocs, mut expected) = (Vec::new(), Pairs::new());
        for n in 0..NAMES / 2 {
            // IDs differ as they were given: by a number and what is no digit.
            let (id, task) = (format!("{n} {}", name(fuzz)), name(fuzz));
            readings.task(&id, 0, synthetic::usage(1_000));
            allocs.push(Arc::new(synthetic::observed(&id, &[&task])));
            expected.insert((id, task));
        }
        let mut assembler = synthetic::assembler(synthetic::info("v2", Vec::new()));
        let board = synthetic::board(allocs, Totals::default());
        let snapshot = synthetic::tick(&mut assembler, &board, &readings, Samples::default());
        let walk = Walk::new(&snapshot, &metrics, &filter);
        let write = |format| prometheus::encode(&walk, format);
        let [text, open] =
            [Format::Text, Format::OpenMetrics].map(|format| String::from_utf8(write(format)).expect("text is UTF-8"));

        const USED: &str = "allostat_task_memory_usage_bytes";
        assert!(text.ends_with('\n') && text.split_terminator('\n').all(|line| !line.is_empty()), "a line is a line");
        let parsed = Exposition::parse(&text);
        assert_eq!(
            pairs(parsed.samples.iter().filter(|sample| sample.name == USED).map(|sample| &sample.labels)),
            expected
        );
        let families = openmetrics::check(&open).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(pairs(families[USED].samples.iter().map(|sample| &sample.labels)), expected);
        let of = |family: &protobuf::Family| -> Vec<BTreeMap<String, String>> {
            let pair = |label: &protobuf::Label| (label.name.clone(), label.value.clone());
            family.metrics.iter().map(|metric| metric.labels.iter().map(pair).collect()).collect()
        };
        let messages = protobuf::decode(&write(Format::Protobuf));
        let used = messages.iter().find(|family| family.name == USED).map(of).expect("the family");
        assert_eq!(pairs(used.iter()), expected);

        // A process for each: some of few, one in 250 of many.
        if body % 250 == 0 || bodies <= 40 && body < 2 {
            for (format, parser) in [(&text, "parser"), (&open, "openmetrics.parser")] {
                let Some(samples) = python_parsed(parser, format.as_bytes()) else { break };
                let samples = samples.unwrap_or_else(|why| panic!("{why}\n{format}"));
                let used = samples.iter().filter(|(name, _)| name == USED).map(|(_, labels)| labels);
                assert_eq!(pairs(used), expected, "as Python reads it");
                read_by_python += 1;
            }
        }
        body += 1;
    });
    println!("{} names, {read_by_python} bodies read by prometheus_client", bodies * NAMES as u64);
    if read_by_python == 0 {
        skip_test!("no-python");
    }
}
