//! The exposition, byte for byte: of fixture machines, read as an agent reads its host, and of made-up tasks in every
//! state. `ALLOSTAT_BLESS=1` writes the golden files again; the difference is read in review.
//!
//! Promise (Measured values): HELP of an alloc's family names its source: the alloc's cgroup, or the sum over its tasks

use crate::{by_python, openmetrics, otlp_points as otlp, protobuf, synthetic};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common as parsed;
use allostat::board::disk::DiskUse;
use allostat::board::{Board, BoardView, PublishedAlloc};
use allostat::collectors::{FdBudget, SamplingContext, TaskReader, host};
use allostat::exporters::Selection;
use allostat::exporters::otlp::HistogramAggregation;
use allostat::exporters::walk::{Filter, Head, HistogramPoint, Listener, OF_ALLOCS, OF_TASKS, Point, Walk};
use allostat::exporters::{self, Format, catalogue, prometheus};
use allostat::host::clock::Clock;
use allostat::host::hierarchy::Layout;
use allostat::host::roots::Roots;
use allostat::model::alloc::AllocSource;
use allostat::model::capability::Capability;
use allostat::model::event::EventKind;
use allostat::model::id::{AllocId, CgroupPath, GroupName, JobId, TaskName};
use allostat::model::job::Job;
use allostat::model::metric::{Exemplar, Kind, Life, Samples, Value};
use allostat::model::observed::{ObservedAlloc, ObservedTask, RestartCause, SelectedLabel};
use allostat::model::profile::Profile;
use allostat::model::task::{Exit, ExitStatus, LostOutput, Outcome, RestartReason, TaskState};
use allostat::model::text::{LONGEST_LABEL_PATH, LONGEST_LABEL_VALUE};
use allostat::model::totals::{NodeTotals, TaskTotals, Totals, observed_key};
use allostat::model::units::{Nanos, Timestamp};
use allostat::model::usage::{Field, Usage};
use allostat::snapshot::assemble::TickInputs;
use allostat::snapshot::{Parts, SharedScrapers, Snapshot, sampler};
use allostat::telemetry::Metrics;
use proptest::prelude::*;
use prost::Message;
use synthetic::{NOW, TaskReadings};

const ALLOC: &str = "6f1c2f3e-5b0a-4c1d-9a57-2d0c3b4a5e61";
const SECOND: u64 = 1_000_000_000;
const TEXTS: [Format; 2] = [Format::Text, Format::OpenMetrics];

/// A snapshot in one format, with a fresh registry: nothing in it depends on how fast this machine is.
fn encode(snapshot: &Snapshot, format: Format) -> String {
    encode_with(snapshot, format, Filter::default())
}

fn encode_with(snapshot: &Snapshot, format: Format, filter: Filter) -> String {
    let (metrics, filter) = (Metrics::new(), filter.without_process());
    text(prometheus::encode(&Walk::new(snapshot, &metrics, &filter), format))
}

fn encode_whole(snapshot: &Snapshot, metrics: &Metrics, format: Format) -> String {
    let filter = Filter::default().without_process();
    text(prometheus::encode(&Walk::new(snapshot, metrics, &filter), format))
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("an exposition must be text")
}

fn compare_with_golden(name: &str, snapshot: &Snapshot) {
    compare_with_golden_of(name, snapshot, &Metrics::new());
}

/// What every exporter makes of it, in all its formats.
fn compare_with_golden_of(name: &str, snapshot: &Snapshot, metrics: &Metrics) {
    let filter = Filter::default().without_process();
    let walk = Walk::new(snapshot, metrics, &filter);
    for (extension, bytes) in exporters::ALL.iter().flat_map(|exporter| (exporter.write)(&walk)) {
        let text = if extension == "otlp" { otlp::text(&bytes) } else { text(bytes) };
        if extension == "om" {
            openmetrics::check(&text).unwrap_or_else(|why| panic!("{name}: {why}"));
        }
        compare(&format!("{name}.{extension}"), &text);
    }
}

fn compare(name: &str, text: &str) {
    crate::common::golden(Path::new("tests/golden/exposition").join(name), text);
}

struct Stopped;

impl Clock for Stopped {
    fn now(&self) -> Timestamp {
        NOW
    }
    fn instant(&self) -> Instant {
        Instant::now()
    }
    fn since_boot(&self) -> Nanos {
        Nanos::ZERO
    }
}

/// One pass over a fixture machine, as the agent's sampler makes it.
fn machine(name: &str) -> Arc<Snapshot> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let roots = Roots::below(&root);
    let layout = Layout::detect(&roots).expect("a fixture has a mountinfo");
    let mode = layout.mode().as_str();
    let sampling = SamplingContext::new(roots, layout, FdBudget::of(1_000));
    let job = synthetic::job("shop", &["web", "sidecar"]);
    let running = |name| synthetic::task(name, TaskState::Running, Timestamp(NOW.0 - 90 * SECOND));
    let alloc = synthetic::alloc(ALLOC, &job, vec![running("web"), running("sidecar")]);
    let reader = |path: String| Arc::new(TaskReader::for_cgroup(&sampling, CgroupPath::new(path)));
    let board = Arc::new(Board::default());
    let published = PublishedAlloc {
        readers: ["web", "sidecar"].map(|task| Some(reader(format!("/allostat/{ALLOC}/{task}")))).to_vec(),
        alloc_reader: Some(reader(format!("/allostat/{ALLOC}"))),
        ..alloc
    };
    board.publish([published], |totals| known(totals, &job));
    let capabilities = vec![Capability::yes("cgroup"), Capability::no("example", "this one is always missing")];
    sampler::once(Parts {
        config: allostat::snapshot::Config::default(),
        board,
        devices: None,
        sampling,
        collectors: host(Vec::new()),
        info: synthetic::info(mode, capabilities),
        metrics: Arc::new(Metrics::new()),
        scrapers: Arc::new(SharedScrapers::default()),
        clock: Arc::new(Stopped),
    })
}

/// What the runner does when a job is submitted: its totals are there from the start.
fn known(totals: &mut Totals, job: &Job) {
    for task in &job.groups[0].tasks {
        totals.submitted(&job.id, &task.name, Timestamp(NOW.0 - 100 * SECOND - 7));
    }
}

macro_rules! machines {
    ($($test:ident: $name:literal,)*) => {$(
        #[test]
        fn $test() {
            compare_with_golden($name, &machine($name));
        }
    )*};
}

machines! {
    a_v1_machine_is_exposed_as_it_was: "v1",
    a_hybrid_machine_is_exposed_as_it_was: "hybrid",
    an_old_v2_machine_is_exposed_as_it_was: "v2-old",
    a_new_v2_machine_is_exposed_as_it_was: "v2-new",
    a_machine_without_pressure_is_exposed_as_it_was: "no-psi",
    a_machine_full_of_garbage_is_exposed_as_it_was: "garbage",
}

#[test]
fn an_agent_that_runs_nothing_exposes_its_counters_at_zero() {
    let mut assembler = synthetic::assembler(synthetic::info("v2", vec![]));
    let board = synthetic::board(vec![], Totals::default());
    compare_with_golden(
        "empty",
        &synthetic::tick(&mut assembler, &board, &TaskReadings::default(), Samples::default()),
    );
}

/// A running task, one that waits for its restart, one that ended; names that need escaping; the whole range of
/// numbers.
fn full() -> Arc<Snapshot> {
    let job = synthetic::job("shop", &["web", "log\\shipper"]);
    let mut web = synthetic::task("web", TaskState::Running, Timestamp(NOW.0 - 90 * SECOND - 1));
    web.user = Some("www \"data\"".into());
    web.restarts = [2, 1, 0, 0];
    web.time_in_state[TaskState::Backoff.index()] = Nanos(30 * SECOND + 500_000_000);
    web.base = Arc::new(Usage::from([(Field::cpu_usage_ns, 5), (Field::memory_peak_bytes, u64::MAX)]));
    let waiting = synthetic::task("log\\shipper", TaskState::Backoff, Timestamp(NOW.0 - SECOND));
    let running = synthetic::alloc("00000000-0000-4000-8000-000000000001", &job, vec![web, waiting]);

    let batch = synthetic::job("nightly\nbatch", &["step"]);
    let mut step = synthetic::task("step", TaskState::Dead, Timestamp(NOW.0 - 2 * SECOND));
    step.failed = true;
    step.finished_at = Some(Timestamp(NOW.0 - 2 * SECOND));
    step.base = Arc::new(synthetic::usage(1_000_000_000));
    let mut ended = synthetic::alloc("00000000-0000-4000-8000-000000000002", &batch, vec![step.clone()]);
    let identity = Arc::make_mut(&mut ended.identity);
    (identity.cgroup, identity.measured) = (None, allostat::model::alloc::Measured::Process);

    let mut totals = Totals::default();
    known(&mut totals, &job);
    known(&mut totals, &batch);
    let steps = totals.task_mut(&batch.id, &TaskName::from("step"));
    let usage = (*step.base).clone();
    let error = synthetic::exit(Outcome::Error, ExitStatus::Code(3), usage.clone());
    steps.add_exit(&error);
    let exemplar =
        Exemplar { alloc_id: ended.identity.id.clone(), event_id: Some(u64::MAX), value: Value::Int(1), at: NOW };
    steps.note_exit(&error, &exemplar);
    let lost_output = LostOutput { stdout_bytes: 7, stderr_bytes: 0 };
    let by_signal = synthetic::exit(Outcome::Signal, ExitStatus::Signal(11), Usage::default());
    steps.add_exit(&Exit { lost_output, ..by_signal });
    steps.add_event(allostat::model::event::EventKind::Terminated);
    totals.add_alloc_run(&batch.id, Outcome::Error, Nanos(7 * SECOND));
    let retired = TaskTotals { exits: [100, 0, 0, 2, 0, 0], usage, ..TaskTotals::default() };
    totals.node = Arc::new(NodeTotals { totals: retired, allocs: 102 });

    let mut readings = TaskReadings::default();
    readings.task(running.identity.id.as_str(), 0, synthetic::usage(40_000_000).with(Field::oom_kills, (1 << 53) + 1));
    readings.alloc(running.identity.id.as_str(), synthetic::usage(50_000_000));
    let devices = Arc::new(synthetic::devices::some([&running.identity, &ended.identity]));
    let board = synthetic::board(vec![Arc::new(running), Arc::new(ended)], totals);
    let mut assembler = synthetic::assembler(synthetic::info("hybrid", vec![]));
    synthetic::tick_of(&mut assembler, &board, &readings, TickInputs { devices, ..TickInputs::default() })
}

#[test]
fn tasks_in_every_state_are_exposed_as_they_were() {
    compare_with_golden_of("full", &full(), &exemplary(ALLOC).1);
}

fn selecting(selection: Selection) -> Filter {
    Filter::default().without_process().selecting(Arc::new(selection))
}

#[test]
fn each_profile_is_exposed_as_it_was() {
    let (snapshot, (_, metrics)) = (full(), exemplary(ALLOC));
    for profile in [Profile::Lean, Profile::Standard] {
        let filter = selecting(Selection::of(profile));
        let walk = Walk::new(&snapshot, &metrics, &filter);
        for (format, extension) in [(Format::Text, "prom"), (Format::OpenMetrics, "om")] {
            let name = format!("full-{}.{extension}", profile.as_str());
            compare(&name, &text(prometheus::encode(&walk, format)));
        }
    }
}

/// Promise (Measured values): Protocol buffers equal the text, series by series; each histogram has a native one of the
/// same observations
#[test]
fn protocol_buffers_are_as_they_were() {
    let (snapshot, (_, metrics)) = (full(), exemplary(ALLOC));
    let filter = selecting(Selection::default());
    let body = prometheus::encode(&Walk::new(&snapshot, &metrics, &filter), Format::Protobuf);
    compare("full-standard.pb", &protobuf::text(&protobuf::decode(&body)));
}

/// Each series with its value, and no other; to the last bit of what the text is read as.
#[test]
fn protobuf_has_the_series_and_values_of_the_text() {
    let (_, metrics) = exemplary(ALLOC);
    metrics.hook_took("task", "env", "prestart", Duration::from_micros(1_234));
    metrics.scraped("text", "gzip", 200, Duration::from_millis(3));
    for snapshot in ["v1", "v2-new", "hybrid"].map(machine).into_iter().chain([full()]) {
        let filter = Filter::default().without_process();
        let walk = Walk::new(&snapshot, &metrics, &filter);
        let encoded = protobuf::series(&protobuf::decode(&prometheus::encode(&walk, Format::Protobuf)));
        let written = parsed::Exposition::parse(&text(prometheus::encode(&walk, Format::Text))).samples;
        let written: BTreeMap<_, _> = written
            .into_iter()
            .map(|s| {
                let value = s.f64();
                ((s.name, s.labels), value)
            })
            .collect();
        assert!(written.len() > 300, "{}", written.len());
        for (series, value) in &written {
            assert_eq!(encoded.get(series), Some(value), "{series:?}");
        }
        assert_eq!(encoded.len(), written.len());
    }
}

#[test]
fn histograms_have_a_native_one_of_the_same_observations_beside_their_buckets() {
    let (snapshot, metrics) = exemplary(ALLOC);
    for millis in 1..=200 {
        metrics.hook_took("task", "env", "prestart", Duration::from_millis(millis));
        metrics.scraped("text", "gzip", 200, Duration::from_micros(10 * millis));
    }
    let filter = Filter::default().without_process();
    let families = protobuf::decode(&prometheus::encode(&Walk::new(&snapshot, &metrics, &filter), Format::Protobuf));
    let mut seen = 0;
    for family in families.iter().filter(|family| family.kind == 4) {
        for of in family.metrics.iter().map(|metric| metric.histogram.as_ref().unwrap()) {
            let mut counts: Vec<(i32, i64)> = Vec::new();
            let (mut number, mut deltas) = (0, of.deltas.iter());
            for span in &of.spans {
                number += span.offset;
                for _ in 0..span.length {
                    let before = counts.last().map_or(0, |(_, count)| *count);
                    counts.push((number, before + deltas.next().expect("a difference for each bucket")));
                    number += 1;
                }
            }
            assert!(deltas.next().is_none() && !of.spans.is_empty() && of.zero_threshold > 0.0, "{}", family.name);
            let inside = i64::try_from(of.count - of.zero_count).unwrap();
            assert_eq!(counts.iter().map(|(_, n)| n).sum::<i64>(), inside, "{}", family.name);
            assert_eq!(of.created.as_ref().map(|at| at.seconds), Some(1_767_323_045 - 1_000), "{}", family.name);
            // A native bucket lies within one of the others, but for those that have a bound in them.
            let upper = |number: i32| 2_f64.powf(f64::from(number) / 2_f64.powi(of.schema));
            for bucket in &of.buckets {
                let below: i64 = counts.iter().filter(|(n, _)| upper(*n) <= bucket.upper).map(|(_, n)| n).sum();
                let touched: i64 = counts.iter().filter(|(n, _)| upper(*n - 1) < bucket.upper).map(|(_, n)| n).sum();
                let zeros = i64::try_from(of.zero_count).unwrap();
                let cumulative = i64::try_from(bucket.cumulative).unwrap();
                assert!((below + zeros..=touched + zeros).contains(&cumulative), "{} <= {}", family.name, bucket.upper);
            }
            seen += usize::from(of.count > 0);
        }
    }
    // Starts, their three phases, kills; hooks; scrapes.
    assert_eq!(seen, 7);
}

/// Of `allostat_series` no two profiles say the same.
fn series_of(snapshot: &Snapshot, selection: Selection) -> BTreeMap<(String, BTreeMap<String, String>), String> {
    let (metrics, filter) = (Metrics::new(), selecting(selection));
    let body = text(prometheus::encode(&Walk::new(snapshot, &metrics, &filter), Format::Text));
    let samples = parsed::Exposition::parse(&body).samples.into_iter();
    let of_families = samples.filter(|s| !["allostat_series", "allostat_exposition_info"].contains(&s.name.as_str()));
    of_families.map(|s| ((s.name, s.labels), s.value)).collect()
}

/// Promise (Code, boards and alerts): A larger profile contains the smaller one, with the same values; ended allocs
/// keep its final series
#[test]
fn a_profile_has_what_the_smaller_one_has_and_no_value_is_another() {
    for snapshot in ["v1", "v2-old", "v2-new", "hybrid"].map(machine).into_iter().chain([full()]) {
        let [lean, standard, full] = Profile::ALL.map(|profile| series_of(&snapshot, Selection::of(profile)));
        assert!(lean.len() < standard.len() && standard.len() < full.len());
        for (smaller, larger) in [(&lean, &standard), (&standard, &full)] {
            for (series, value) in smaller {
                assert_eq!(larger.get(series), Some(value), "{series:?}");
            }
        }
    }
}

/// What who pays per series was promised.
const STANDARD: usize = 48;
const LEAN: usize = 12;

/// Promise (Code, boards and alerts): A task and its alloc have at most 48 series in the default profile, 12 in `lean`
#[test]
fn a_task_and_its_alloc_have_no_more_series_than_their_profile_promises() {
    let job = synthetic::job("shop", &["web"]);
    let mut busy = synthetic::task("web", TaskState::Running, Timestamp(NOW.0 - 90 * SECOND));
    // It was restarted, so that nothing of it is at 0 but what it never was.
    busy.time_in_state = [Nanos(1); TaskState::ALL.len()];
    busy.time_in_state[TaskState::Dead.index()] = Nanos::ZERO;
    let busy = synthetic::alloc(ALLOC, &job, vec![busy]);
    let mut readings = TaskReadings::default();
    // All that a kernel can report at once: it keeps a peak, or else one is sampled.
    let everything = || {
        let mut usage = synthetic::usage(40_000_000);
        usage.set(Field::memory_sampled_peak_bytes, None);
        usage
    };
    readings.task(ALLOC, 0, everything());
    readings.alloc(ALLOC, everything());
    let disk = [(AllocId::from(ALLOC), DiskUse { bytes: 1 << 20, until: Timestamp(u64::MAX) })];
    let board = synthetic::board(vec![Arc::new(busy)], Totals::default());
    let board = BoardView { disk: Arc::new(disk.into()), ..board };
    let mut assembler = synthetic::assembler(synthetic::info("v2", vec![]));
    let busy = synthetic::tick(&mut assembler, &board, &readings, Samples::default());
    for snapshot in ["v1", "v2-old", "v2-new", "hybrid"].map(machine).into_iter().chain([busy]) {
        for (profile, most) in [(Profile::Lean, LEAN), (Profile::Standard, STANDARD)] {
            let series = series_of(&snapshot, Selection::of(profile));
            let of = |task: Option<&str>| {
                let owner = |labels: &BTreeMap<String, String>| {
                    labels.contains_key("alloc_id") && labels.get("task").map(String::as_str) == task
                };
                series.keys().filter(|(_, labels)| owner(labels)).count()
            };
            let (alloc, task) = (of(None), of(Some("web")));
            assert!(alloc > 0 && task > 5, "{alloc}, {task}");
            assert!(alloc + task <= most, "{profile:?}: {alloc} of the alloc and {task} of its task");
        }
    }
}

/// The most series that stand in docs/profiles.md: of a task of a workload, of the workload itself; and of a GPU that a
/// task has.
const OF_WORKLOADS: [(Profile, usize, usize); 2] = [(Profile::Lean, 9, 15), (Profile::Standard, 48, 33)];
const OF_GPUS: [(Profile, usize); 2] = [(Profile::Lean, 1), (Profile::Standard, 12)];

/// Promise (Code, boards and alerts): A workload, its tasks and a GPU of a task have as many series as
/// `docs/profiles.md` states, and no more
#[test]
fn workload_has_no_more_series_than_its_profile_promises() {
    let (job, alloc) = (synthetic::job("shop", &["web"]), AllocId::from(ALLOC));
    let mut totals = Totals::default();
    known(&mut totals, &job);
    let web = totals.task_mut(&job.id, &TaskName::from("web"));
    for outcome in Outcome::ALL {
        web.add_exit(&synthetic::exit(outcome, ExitStatus::Unknown(String::new()), synthetic::usage(1_000)));
    }
    EventKind::ALL.iter().for_each(|kind| web.add_event(*kind));
    RestartReason::ALL.iter().for_each(|reason| web.add_restart(*reason));
    Outcome::ALL.iter().for_each(|outcome| totals.add_alloc_run(&job.id, *outcome, Nanos(SECOND)));
    let metrics = Metrics::new();
    metrics.durations.known(&job.id);
    metrics.task_started(&job.id, &alloc, [Duration::from_millis(4); 3], NOW);
    metrics.durations.killed(&job.id, &alloc, Duration::from_secs(400), NOW);
    let running = synthetic::task("web", TaskState::Running, Timestamp(NOW.0 - SECOND));
    let board = synthetic::board(vec![Arc::new(synthetic::alloc(ALLOC, &job, vec![running]))], totals);
    let mut readings = TaskReadings::default();
    readings.task(ALLOC, 0, synthetic::usage(40_000_000));
    let mut assembler = synthetic::assembler(synthetic::info("v2", vec![]));
    let snapshot = synthetic::tick(&mut assembler, &board, &readings, Samples::default());
    for (profile, of_a_task, of_its_own) in OF_WORKLOADS {
        let filter = selecting(Selection::of(profile));
        let body = text(prometheus::encode(&Walk::new(&snapshot, &metrics, &filter), Format::Text));
        let all = parsed::Exposition::parse(&body).samples;
        let of = |has_task: bool| {
            let owner = |labels: &BTreeMap<String, String>| {
                let is_its = labels.get("workload").is_some_and(|workload| workload == "shop");
                is_its && !labels.contains_key("alloc_id") && labels.contains_key("task") == has_task
            };
            all.iter().filter(|sample| owner(&sample.labels)).count()
        };
        assert_eq!((of(true), of(false)), (of_a_task, of_its_own), "{profile:?}: docs/profiles.md says otherwise");
    }
}

/// The bytes that stand in docs/security.md: what an observed task adds to a text body of the default profile, before
/// its workload ended with any exit code or signal, and after it ended with each of them.
const LARGEST_TASK: [usize; 2] = [150_000, 450_000];
/// So many labels fit into the budget of an alloc, 8 KiB.
const MOST_LABELS: usize = 39;

/// A pod of one task. Each text is as long as it may be, and has quotes, which are escaped.
fn with_longest_texts(n: usize, text: &str) -> PublishedAlloc {
    let mut published = synthetic::observed(text, &[text]);
    let identity = Arc::make_mut(&mut published.identity);
    identity.source = AllocSource::Kubernetes;
    (identity.namespace, identity.name) = (text.to_owned(), text.to_owned());
    (identity.workload, identity.group) = (Some(JobId::from(text)), Some(GroupName::from(text)));
    identity.cgroup = Some(CgroupPath::new(format!("/{n}{}", "\"".repeat(LONGEST_LABEL_PATH - 2))));
    let task = &mut identity.tasks[0];
    (task.driver, task.user, task.image) = (Some(text.to_owned()), Some(text.to_owned()), Some(text.to_owned()));
    let label = |at| SelectedLabel { key: String::new(), name: format!("label_{at:03}"), value: text.to_owned() };
    let task = ObservedTask { runs: true, since: Some(NOW), ..ObservedTask::default() };
    published.observed = Some(Arc::new(ObservedAlloc {
        labels: (0..MOST_LABELS).map(label).collect(),
        tasks: vec![Arc::new(task)],
        ..ObservedAlloc::default()
    }));
    published
}

/// Promise (Observed workloads): An observed task with the longest texts adds at most 450 kB to `/metrics`
#[test]
fn observed_task_with_the_longest_texts_adds_a_bounded_part_to_a_body() {
    let size = |count: usize, has_ended: bool| {
        let (mut readings, mut totals, mut allocs) = (TaskReadings::default(), Totals::default(), Vec::new());
        for n in 0..count {
            let text = format!("{n}{}", "\"".repeat(LONGEST_LABEL_VALUE - 1));
            readings.task(&text, 0, synthetic::usage(40_000_000));
            readings.alloc(&text, synthetic::usage(41_000_000));
            let workload = observed_key(AllocSource::Kubernetes, &JobId::from(text.as_str()));
            let ended = totals.task_mut(&workload, &TaskName::from(text.as_str()));
            let mut add = |outcome, status| ended.add_exit(&synthetic::exit(outcome, status, synthetic::usage(1_000)));
            Outcome::ALL.into_iter().for_each(|outcome| add(outcome, ExitStatus::Unknown(String::new())));
            if has_ended {
                (1..=u8::MAX).for_each(|code| add(Outcome::Error, ExitStatus::Code(code)));
                (1..=64).for_each(|signal| add(Outcome::Signal, ExitStatus::Signal(signal)));
            }
            RestartCause::ALL.into_iter().for_each(|cause| ended.add_restart_cause(cause));
            allocs.push(Arc::new(with_longest_texts(n, &text)));
        }
        let board = BoardView { observed: Arc::new(totals), ..synthetic::board(allocs, Totals::default()) };
        let mut assembler = synthetic::assembler(synthetic::info("v2", vec![Capability::yes("kernel_ends")]));
        let snapshot = synthetic::tick(&mut assembler, &board, &readings, Samples::default());
        encode_with(&snapshot, Format::Text, selecting(Selection::of(Profile::Standard))).len()
    };
    for (has_ended, most) in [false, true].into_iter().zip(LARGEST_TASK) {
        // Each family has its HELP already.
        let added = size(3, has_ended) - size(2, has_ended);
        assert!((most / 3..=most).contains(&added), "{added} bytes, at most {most}: docs/security.md says otherwise");
    }
}

#[test]
fn a_gpu_that_a_task_has_adds_no_more_series_than_its_profile_promises() {
    for (profile, most) in OF_GPUS {
        // By alloc and device; of its tasks the one with the most.
        let mut counts: BTreeMap<(String, String), BTreeMap<Option<String>, usize>> = BTreeMap::new();
        for (_, labels) in series_of(&full(), Selection::of(profile)).into_keys() {
            let Some((alloc, device)) = labels.get("alloc_id").zip(labels.get("device_uuid")) else { continue };
            let of = counts.entry((alloc.clone(), device.clone())).or_default();
            *of.entry(labels.get("task").cloned()).or_default() += 1;
        }
        let of_both = counts.values().map(|of| {
            let (alloc, tasks): (Vec<_>, Vec<_>) = of.iter().partition(|(task, _)| task.is_none());
            let task = tasks.into_iter().map(|(_, n)| *n).max().unwrap_or(0);
            task + alloc.into_iter().map(|(_, n)| *n).sum::<usize>()
        });
        assert_eq!(of_both.max(), Some(most), "{profile:?}: docs/profiles.md says otherwise: {counts:?}");
    }
}

/// What stays of one that has ended is what its profile has of what stays, and nothing that was not exposed while it
/// ran.
#[test]
fn ended_alloc_has_only_the_final_series_of_its_profile() {
    let whole = series_of(&full(), Selection::of(Profile::Full));
    for profile in Profile::ALL {
        let series = series_of(&full(), Selection::of(profile));
        let ended = |labels: &BTreeMap<String, String>| labels.get("alloc_id").is_some_and(|id| id.ends_with("0002"));
        let mut seen = 0;
        for (name, labels) in series.keys().filter(|(_, labels)| ended(labels)) {
            let desc = catalogue::find(name).unwrap_or_else(|| panic!("{name}"));
            assert!(desc.life == Life::Final && desc.profile <= profile, "{name} {labels:?}");
            seen += 1;
        }
        let retained = whole.iter().filter(|((_, labels), _)| ended(labels)).filter(|((name, _), value)| {
            let desc = catalogue::find(name).unwrap_or_else(|| panic!("{name}"));
            desc.profile <= profile && (desc.zeros <= profile || *value != "0")
        });
        assert_eq!(seen, retained.count(), "{profile:?}");
    }
}

/// Promise (Code, boards and alerts): Included and excluded families are present and absent, the body lists them, and
/// unknown ones are refused
#[test]
fn included_and_excluded_families_appear_in_the_body_and_its_exposition_info() {
    let all = |texts: &[&str]| catalogue::patterns(&texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>()).unwrap();
    let selection = Selection {
        profile: Profile::Lean,
        include: all(&["allostat_task_page_faults_total{kind=\"major\"}", "allostat_workload_events_total"]),
        exclude: all(&["allostat_task_state{state=~\"dead|pending\"}", "allostat_host_.*"]),
    };
    let body = encode_with(&full(), Format::Text, Filter::default().selecting(Arc::new(selection.clone())));
    let message = "allostat_exposition_info{profile=\"lean\",include=\"allostat_task_page_faults_total{kind=\\\"major\\\"},\
                allostat_workload_events_total\",exclude=\"allostat_task_state{state=~\\\"dead|pending\\\"},allostat_host_.*\"} 1\n";
    assert!(body.contains(message), "{body}");
    let series = series_of(&full(), selection);
    let values = |family: &str, label: &str| -> std::collections::BTreeSet<String> {
        series.keys().filter(|(name, _)| name == family).map(|(_, labels)| labels[label].clone()).collect()
    };
    assert_eq!(values("allostat_task_page_faults_total", "kind"), ["major".to_owned()].into());
    assert!(values("allostat_workload_events_total", "event").len() > 10, "asked for, so with its zeros");
    assert_eq!(values("allostat_task_state", "state"), ["running".to_owned(), "backoff".to_owned()].into());
    assert!(!series.keys().any(|(name, _)| name.starts_with("allostat_host_")));
}

/// Families of a body by name, with their TYPE.
fn families(text: &str) -> BTreeMap<String, String> {
    let types = text.lines().filter_map(|l| l.strip_prefix("# TYPE "));
    types.filter_map(|l| l.split_once(' ')).map(|(n, t)| (n.to_owned(), t.to_owned())).collect()
}

#[test]
fn every_family_of_a_body_is_in_the_catalogue_with_its_type() {
    for machine in ["v1", "v2-new", "hybrid"].map(machine).into_iter().chain([full()]) {
        for (name, kind) in families(&encode(&machine, Format::Text)) {
            let desc = catalogue::find(&name).unwrap_or_else(|| panic!("{name} is not in the catalogue"));
            let expected = if desc.kind == Kind::Info { Kind::Gauge } else { desc.kind };
            assert_eq!(kind, expected.as_str(), "{name}");
        }
    }
}

#[test]
fn text_and_openmetrics_have_the_same_samples() {
    let snapshot = full();
    let samples = |format| -> Vec<String> {
        let text = encode(&snapshot, format);
        // The bounds of buckets are spelled differently.
        let plain = text.lines().filter(|l| !l.starts_with('#') && !l.contains("le=\""));
        // Exemplars are OpenMetrics' alone, and so is since when a counter counts, which is counted among the series.
        let created = |l: &&str| {
            l.contains("_created{")
                || l.starts_with("allostat_series{family=\"_other\"")
                || catalogue::CATALOGUE
                    .iter()
                    .any(|d| d.created && l.starts_with(&format!("allostat_series{{family=\"{}\"", d.name)))
        };
        plain.filter(|l| !created(l)).map(|l| l.split(" # ").next().unwrap_or(l).to_owned()).collect()
    };
    assert_eq!(samples(Format::Text), samples(Format::OpenMetrics));
}

#[test]
fn openmetrics_names_its_families_without_the_suffix_and_ends() {
    let text = encode(&full(), Format::OpenMetrics);
    let families = families(&text);
    assert_eq!(families.get("allostat_task_cpu_usage_seconds").map(String::as_str), Some("counter"));
    assert_eq!(families.get("allostat_build").map(String::as_str), Some("info"));
    assert!(text.ends_with("# EOF\n"));
    assert!(!encode(&full(), Format::Text).contains("# EOF"));
}

/// Promise (Absent values and sums): Live series end with the task, final ones stay until delivered
#[test]
fn live_series_end_with_the_task_and_final_ones_remain() {
    let text = encode(&full(), Format::Text);
    let of_ended = |l: &&str| l.contains("000000000002") && !l.starts_with('#');
    let names: std::collections::BTreeSet<&str> =
        text.lines().filter(of_ended).filter_map(|l| l.split_once('{')).map(|(name, _)| name).collect();
    assert!(names.contains("allostat_task_memory_peak_bytes"), "{names:?}");
    assert!(names.contains("allostat_task_cpu_usage_seconds_total"));
    assert!(names.contains("allostat_task_state"));
    for name in names {
        let desc = catalogue::find(name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(desc.life, allostat::model::metric::Life::Final, "{name} is live, and the task is dead");
    }
}

#[test]
fn narrowed_body_holds_only_the_requested_families() {
    let snapshot = full();
    let narrow = |names: &[&str], sources: &[&str]| {
        let filter = Filter::new(names.iter().copied(), sources.iter().copied()).unwrap();
        families(&encode_with(&snapshot, Format::Text, filter)).into_keys().collect::<Vec<_>>()
    };
    let name = "allostat_task_oom_kills_total";
    assert_eq!(narrow(&[name], &[]), [name]);
    assert_eq!(narrow(&["allostat_task_oom_kills"], &["managed"]), [name]);
    assert!(narrow(&[name], &["host"]).is_empty());
    assert!(narrow(&[], &["agent"]).iter().all(|n| !n.starts_with("allostat_task_memory")));
}

#[test]
fn counters_with_closed_labels_are_born_at_zero_when_a_job_is_submitted() {
    let job = synthetic::job("shop", &["web"]);
    let mut totals = Totals::default();
    known(&mut totals, &job);
    let board = synthetic::board(vec![], totals);
    let mut assembler = synthetic::assembler(synthetic::info("v2", vec![]));
    let text =
        encode(&synthetic::tick(&mut assembler, &board, &TaskReadings::default(), Samples::default()), Format::Text);
    for outcome in Outcome::ALL.map(Outcome::as_str) {
        let line = format!(
            "allostat_workload_exits_total{{task=\"web\",workload=\"shop\",source=\"managed\",outcome=\"{outcome}\"}} 0\n"
        );
        assert!(text.contains(&line), "{line}");
        assert!(text.contains(&format!("allostat_node_task_exits_total{{outcome=\"{outcome}\"}} 0\n")));
    }
    assert!(text.contains("allostat_node_task_oom_kills_total 0\n"));
    assert!(text.contains("allostat_workload_run_seconds_total{workload=\"shop\",outcome=\"success\"} 0\n"));
    assert!(text.contains(
        "allostat_workload_events_total{task=\"web\",workload=\"shop\",source=\"managed\",event=\"terminated\"} 0\n"
    ));
    assert!(!text.contains("allostat_workload_exit_codes_total"), "no code is known before the first one");
}

/// What fails before the first scrape is first seen at 1: only this says that it was 0 before.
///
/// Promise (Short tasks): Failures before the first scrape count, at any scrape interval, and none twice
#[test]
fn lifecycle_counters_of_a_workload_have_created_samples_in_openmetrics() {
    let text = encode(&full(), Format::OpenMetrics);
    let lines: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
    let mut seen = std::collections::BTreeSet::new();
    for (at, line) in lines.iter().enumerate().filter(|(_, l)| l.split('{').next().unwrap().ends_with("_created")) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        assert_eq!(value, "1767322944.999999993", "the submission, to the last digit: {line}");
        let total = lines[at - 1].split(" # ").next().unwrap().rsplit_once(' ').unwrap().0;
        assert_eq!(total, series.replace("_created", "_total"), "beside its total");
        seen.insert(series.split('{').next().unwrap().to_owned());
    }
    let declared: std::collections::BTreeSet<String> =
        catalogue::CATALOGUE.iter().filter_map(|d| d.created_name()).collect();
    assert_eq!(seen, declared, "each family that is declared to have it, and no other");
    assert!(!encode(&full(), Format::Text).contains("_created"), "text 0.0.4 cannot");
    for name in declared {
        assert!(catalogue::family(&name).is_some_and(|d| d.created), "it is asked for by {name} too");
    }
}

/// A record of an agent that did not note it: whatever the allocs since then say, those counters are older.
#[test]
fn created_sample_is_absent_if_its_time_is_unknown() {
    let job = synthetic::job("shop", &["web"]);
    let task = TaskName::from("web");
    let mut totals = Totals::default();
    totals.add(&job.id, &task, &TaskTotals::default());
    totals.add(&job.id, &task, &TaskTotals { created: Some(NOW), ..TaskTotals::default() });
    totals.submitted(&job.id, &task, NOW);
    let mut assembler = synthetic::assembler(synthetic::info("v2", vec![]));
    let board = synthetic::board(vec![], totals);
    let snapshot = synthetic::tick(&mut assembler, &board, &TaskReadings::default(), Samples::default());
    let text = encode(&snapshot, Format::OpenMetrics);
    assert!(text.contains("allostat_workload_exits_total{") && !text.contains("_created"), "{text}");
}

/// It was retired and submitted again between two scrapes.
#[test]
fn created_sample_of_a_workload_that_was_submitted_again_is_the_later_time() {
    let (job, metrics) = (synthetic::job("shop", &["web"]), Metrics::new());
    let mut encoder = prometheus::Encoder::default();
    for (at, shown) in [(NOW, "1767323045.000000000"), (Timestamp(NOW.0 + 60_000_000_000), "1767323105.000000000")] {
        let mut totals = Totals::default();
        totals.submitted(&job.id, &TaskName::from("web"), at);
        let mut assembler = synthetic::assembler(synthetic::info("v2", vec![]));
        let board = synthetic::board(vec![], totals);
        let snapshot = synthetic::tick(&mut assembler, &board, &TaskReadings::default(), Samples::default());
        let filter = Filter::default();
        let (mut body, len) = encoder.encode(&Walk::new(&snapshot, &metrics, &filter), Format::OpenMetrics, Vec::new());
        body.truncate(len);
        let body = String::from_utf8(body).expect("the format is UTF-8");
        let created: Vec<&str> = body.lines().filter(|line| line.contains("_created{")).collect();
        assert!(!created.is_empty() && created.iter().all(|line| line.ends_with(&format!(" {shown}"))), "{created:?}");
    }
}

/// A workload with an exit of this alloc, and one start and one kill of it.
fn exemplary(alloc: &str) -> (Arc<Snapshot>, Metrics) {
    let (job, alloc) = (synthetic::job("shop", &["web"]), AllocId::from(alloc));
    let mut totals = Totals::default();
    known(&mut totals, &job);
    let exit = synthetic::exit(Outcome::Error, ExitStatus::Code(3), Usage::from([(Field::oom_kills, 2)]));
    let exemplar = Exemplar { alloc_id: alloc.clone(), event_id: Some(77), value: Value::Int(1), at: NOW };
    let web = totals.task_mut(&job.id, &TaskName::from("web"));
    web.add_exit(&exit);
    web.note_exit(&exit, &exemplar);
    web.add_escalation(Exemplar { event_id: None, ..exemplar.clone() });
    let metrics = Metrics::new();
    metrics.begins(Timestamp(NOW.0 - 1_000 * SECOND));
    metrics.durations.known(&job.id);
    let millis = Duration::from_millis;
    metrics.task_started(&job.id, &alloc, [millis(4), millis(7), millis(36)], NOW);
    metrics.durations.killed(&job.id, &alloc, Duration::from_secs(400), NOW);
    let mut assembler = synthetic::assembler(synthetic::info("v2", vec![]));
    let board = synthetic::board(vec![], totals);
    (synthetic::tick(&mut assembler, &board, &TaskReadings::default(), Samples::default()), metrics)
}

/// Those of exits and OOM kills name its event too; at most 128 code points.
///
/// Promise (Measured values): Counters and histograms over many allocs name the latest one as exemplar, and a real
/// Prometheus stores it
#[test]
fn aggregate_series_have_exemplars_of_the_latest_alloc_in_openmetrics_only() {
    let (snapshot, metrics) = exemplary(ALLOC);
    let text = encode_whole(&snapshot, &metrics, Format::Text);
    assert!(!text.contains(" # "), "text 0.0.4 knows no exemplars");
    let open = encode_whole(&snapshot, &metrics, Format::OpenMetrics);
    openmetrics::check(&open).unwrap();
    let owner = format!("{{alloc_id=\"{ALLOC}\",event_id=\"77\"}}");
    let alone = format!("{{alloc_id=\"{ALLOC}\"}}");
    for line in [
        r#"allostat_workload_exits_total{task="web",workload="shop",source="managed",outcome="error"} 1 # WHOSE 1 1767323045"#,
        r#"allostat_workload_exits_total{task="web",workload="shop",source="managed",outcome="oom"} 0"#,
        r#"allostat_workload_exit_codes_total{task="web",workload="shop",source="managed",code="3"} 1 # WHOSE 1 1767323045"#,
        r#"allostat_workload_oom_kills_total{task="web",workload="shop",source="managed"} 2 # WHOSE 2 1767323045"#,
        r#"allostat_workload_kill_escalations_total{task="web",workload="shop",source="managed"} 1 # ALONE 1 1767323045"#,
        r#"allostat_workload_given_up_total{task="web",workload="shop",source="managed"} 0"#,
        r#"allostat_workload_start_duration_seconds_bucket{workload="shop",le="0.05"} 1 # ALONE 0.047 1767323045"#,
        r#"allostat_workload_start_duration_seconds_bucket{workload="shop",le="0.1"} 1"#,
        r#"allostat_workload_start_duration_seconds_sum{workload="shop"} 0.047"#,
        r#"allostat_start_phase_duration_seconds_bucket{phase="setup",le="0.01"} 1"#,
        r#"allostat_start_phase_duration_seconds_count{phase="driver"} 1"#,
        r#"allostat_workload_kill_duration_seconds_bucket{workload="shop",le="300.0"} 0"#,
        r#"allostat_workload_kill_duration_seconds_bucket{workload="shop",le="+Inf"} 1 # ALONE 400 1767323045"#,
    ] {
        let line = format!("\n{}\n", line.replace("WHOSE", &owner).replace("ALONE", &alone));
        assert!(open.contains(&line), "{line}{open}");
    }
}

#[test]
fn exemplar_above_the_length_limit_is_shortened_or_left_out() {
    // Of 128 code points `alloc_id` takes 8 and `event_id` with its number 10.
    for (length, reported) in [(110, Some(true)), (111, Some(false)), (120, Some(false)), (121, None)] {
        let (snapshot, metrics) = exemplary(&"ä".repeat(length));
        let open = encode_whole(&snapshot, &metrics, Format::OpenMetrics);
        let families = openmetrics::check(&open).unwrap();
        let error =
            families["allostat_workload_exits"].samples.iter().find(|s| s.labels["outcome"] == "error").unwrap();
        let named_event = error.exemplar.as_ref().map(|e| e.labels.contains_key("event_id"));
        assert_eq!(named_event, reported, "{length}");
        assert!(error.exemplar.as_ref().is_none_or(|e| e.at == 1_767_323_045.0), "of the exit, not of the scrape");
    }
}

/// Promise (Measured values): `allostat_series` adds up to the number of exposed series
/// Promise (Measured values): `allostat_series` is at most 5% of a body and one row
#[test]
fn the_number_of_series_of_each_family_is_what_stands_there() {
    let (_, metrics) = exemplary(ALLOC);
    for (snapshot, format) in [full(), machine("hybrid")].into_iter().flat_map(|s| TEXTS.map(|f| (Arc::clone(&s), f))) {
        let text = encode_whole(&snapshot, &metrics, format);
        let mut counted: BTreeMap<String, u64> = BTreeMap::new();
        let mut family = String::new();
        for line in text.lines() {
            match line.strip_prefix("# TYPE ") {
                Some(typed) => {
                    let stem = typed.split(' ').next().unwrap();
                    catalogue::family(stem).map_or(stem, |desc| desc.name).clone_into(&mut family);
                }
                None if line.starts_with('#') => {}
                None => *counted.entry(family.clone()).or_default() += 1,
            }
        }
        let own = counted.remove("allostat_series").expect("it counts the others");
        let all: u64 = counted.values().sum();
        assert!(own <= 1 + all / 20, "{own} rows count {all} series");
        let (listed, rest): (Vec<_>, Vec<_>) = counted.into_iter().partition(|(_, n)| *n >= 20);
        let rest = ("_other".to_owned(), rest.iter().map(|(_, n)| n).sum());
        for (family, n) in listed.into_iter().chain([rest]) {
            assert!(text.contains(&format!("allostat_series{{family=\"{family}\"}} {n}\n")), "{family}: {n}");
        }
    }
}

/// The identity and use of an observed alloc are exposed; of its lifecycle nothing, which is not 0.
///
/// Promise (Measured values): An observed alloc has measures and no lifecycle, and changes no line of other allocs
#[test]
fn observed_alloc_has_measures_without_lifecycle_and_changes_no_other_line() {
    let (shop, mut readings) = (synthetic::job("shop", &["web"]), TaskReadings::default());
    let managed = Arc::new(synthetic::alloc(ALLOC, &shop, vec![synthetic::task("web", TaskState::Running, NOW)]));
    readings.task(ALLOC, 0, synthetic::usage(40_000_000));
    let observed = Arc::new(synthetic::observed("nginx.service", &["main"]));
    readings.task("nginx.service", 0, synthetic::usage(20_000_000));
    readings.alloc("nginx.service", synthetic::usage(30_000_000));
    let body = |allocs: Vec<Arc<PublishedAlloc>>, format| {
        let mut totals = Totals::default();
        known(&mut totals, &shop);
        let mut assembler = synthetic::assembler(synthetic::info("v2", vec![]));
        let board = synthetic::board(allocs, totals);
        encode(&synthetic::tick(&mut assembler, &board, &readings, Samples::default()), format)
    };
    for format in [Format::Text, Format::OpenMetrics] {
        let both = body(vec![Arc::clone(&observed), Arc::clone(&managed)], format);
        let of_observed = |line: &&str| line.contains("alloc_id=\"nginx.service\"");
        let lines: Vec<&str> = both.lines().filter(of_observed).collect();
        assert!(lines.iter().all(|line| !line.contains("workload=")), "its workload is not known");
        let names: std::collections::BTreeSet<&str> = lines.iter().filter_map(|l| Some(l.split_once('{')?.0)).collect();
        let measures = OF_TASKS.families.iter().chain(&*OF_ALLOCS.families).map(|f| f.desc.name);
        assert_eq!(names, measures.chain(["allostat_alloc_info", "allostat_task_info"]).collect());
        assert!(lines.iter().any(|line| line.contains("source=\"cgroup\"")));

        let alone = body(vec![Arc::clone(&managed)], format);
        let rest = |body: &str| -> Vec<String> {
            let retained = body.lines().filter(|l| !of_observed(l) && !l.starts_with("allostat_series{"));
            retained.map(str::to_owned).collect()
        };
        // With its headers: what only the observed one has a value of.
        let headers = |lines: Vec<String>| lines.into_iter().filter(|l| !l.starts_with('#')).collect::<Vec<_>>();
        assert_eq!(headers(rest(&both)), headers(rest(&alone)), "no count and no sum has it");
    }
    openmetrics::check(&body(vec![observed, managed], Format::OpenMetrics)).unwrap();
}

/// The labels of one series as `name=value`, sorted.
fn labels_of(body: &str, name: &str, alloc: &str) -> String {
    let all = parsed::Exposition::parse(body).samples;
    let one = all.into_iter().find(|s| s.name == name && s.labels.get("alloc_id").is_some_and(|id| id == alloc));
    let labels = one.unwrap_or_else(|| panic!("{name} of {alloc} in {body}")).labels;
    labels.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

/// Promise (Observed workloads): Pods and units have the labels of their own tools; an unnamed container has its ID as
/// workload
#[test]
fn pods_and_units_have_the_labels_that_other_metrics_of_them_have() {
    let of = |id: &str, source, workload: &str, namespace: &str, name: &str, cgroup: &str| {
        let mut published = synthetic::observed(id, &["app"]);
        let identity = Arc::make_mut(&mut published.identity);
        (identity.source, identity.namespace, identity.name) = (source, namespace.to_owned(), name.to_owned());
        identity.workload = (!workload.is_empty()).then(|| workload.into());
        identity.cgroup = Some(CgroupPath::from(cgroup));
        Arc::new(published)
    };
    let pod = of("k8s:shop/web-0", AllocSource::Kubernetes, "shop/web", "shop", "web-0", "/kubepods/pod1");
    let unit = of("systemd:a.service", AllocSource::Systemd, "a.service", "", "a.service", "/system.slice/a.service");
    let unnamed = of("docker:3f2a", AllocSource::Docker, "", "", "3f2a", "/docker/3f2a");
    let mut assembler = synthetic::assembler(synthetic::info("v2", vec![]));
    let board = synthetic::board(vec![pod, unit, unnamed], Totals::default());
    let body =
        encode(&synthetic::tick(&mut assembler, &board, &TaskReadings::default(), Samples::default()), Format::Text);
    assert_eq!(
        labels_of(&body, "allostat_alloc_info", "k8s:shop/web-0"),
        "aggregation=cgroup alloc_id=k8s:shop/web-0 alloc_ns=shop cgroup=/kubepods/pod1 measured=cgroup name=web-0 \
         namespace=shop node=host pod=web-0 source=kubernetes workload=shop/web"
    );
    assert_eq!(
        labels_of(&body, "allostat_task_info", "k8s:shop/web-0"),
        "alloc_id=k8s:shop/web-0 cgroup_version=v2 container=app namespace=shop node=host pod=web-0 task=app \
         workload=shop/web"
    );
    assert_eq!(
        labels_of(&body, "allostat_alloc_info", "systemd:a.service"),
        "aggregation=cgroup alloc_id=systemd:a.service cgroup=/system.slice/a.service measured=cgroup name=a.service \
         slice=system.slice source=systemd workload=a.service"
    );
    let unnamed = labels_of(&body, "allostat_task_info", "docker:3f2a");
    assert!(unnamed.ends_with("task=app workload=3f2a"), "never the empty text: {unnamed}");
}

fn one_task(id: &str, workload: &str, task: &str, usage: Usage) -> Arc<Snapshot> {
    let job = synthetic::job(workload, &[task]);
    let alloc = synthetic::alloc(id, &job, vec![synthetic::task(task, TaskState::Running, NOW)]);
    let mut readings = TaskReadings::default();
    readings.task(AllocId::from(id).as_str(), 0, usage);
    let board = synthetic::board(vec![Arc::new(alloc)], Totals::default());
    let mut assembler = synthetic::assembler(synthetic::info("v2", vec![]));
    synthetic::tick(&mut assembler, &board, &readings, Samples::default())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// From a reading to the text: bytes and counts to the last digit, nanoseconds to the last one.
    ///
    /// Promise (Absent values and sums): Any u64 survives from kernel text to exposition; no parser panics
    #[test]
    fn any_u64_comes_out_digit_for_digit(
        bytes: u64,
        kills in prop_oneof![Just(u64::MAX), Just((1 << 53) + 1), any::<u64>()],
        cpu: u64,
    ) {
        let usage = Usage::from([
            (Field::memory_usage_bytes, bytes),
            (Field::oom_kills, kills),
            (Field::cpu_usage_ns, cpu),
        ]);
        let snapshot = one_task("id", "shop", "web", usage);
        for format in TEXTS {
            let text = encode(&snapshot, format);
            let task = "{alloc_id=\"id\",task=\"web\",workload=\"shop\"}";
            let seconds = format!("{}.{:09}", cpu / SECOND, cpu % SECOND);
            let seconds = seconds.trim_end_matches('0').trim_end_matches('.');
            let lines = [
                format!("\nallostat_task_memory_usage_bytes{task} {bytes}\n"),
                format!("\nallostat_task_oom_kills_total{task} {kills}\n"),
                format!("\nallostat_task_cpu_usage_seconds_total{task} {seconds}\n"),
                format!("\nallostat_workload_oom_kills_total{} {kills}\n", "{task=\"web\",workload=\"shop\",source=\"managed\"}"),
            ];
            for line in lines {
                prop_assert!(text.contains(&line), "{} is missing", line);
            }
        }
    }

    /// Whatever names are: what a strict reader takes out is what was put in.
    #[test]
    fn any_name_survives_every_format(workload in ".{1,20}", task in "[\\PC\"\\\\\n]{1,12}") {
        let snapshot = one_task("id", &workload, &task, Usage::from([(Field::oom_kills, 1)]));
        let text = encode(&snapshot, Format::OpenMetrics);
        let families = openmetrics::check(&text).map_err(TestCaseError::fail)?;
        let labels = &families["allostat_task_oom_kills"].samples[0].labels;
        prop_assert_eq!(&labels["workload"], &workload);
        prop_assert_eq!(&labels["task"], &task);
        let (metrics, filter) = (Metrics::new(), Filter::default());
        let walk = Walk::new(&snapshot, &metrics, &filter);
        let families = protobuf::decode(&prometheus::encode(&walk, Format::Protobuf));
        let family = families.iter().find(|family| family.name == "allostat_task_oom_kills_total").unwrap();
        let names = |name: &str| family.metrics[0].labels.iter().find(|l| l.name == name).map(|l| l.value.clone());
        prop_assert_eq!((names("workload"), names("task")), (Some(workload), Some(task)));
    }
}

#[test]
fn the_kinds_of_a_body_are_those_of_the_catalogue_in_openmetrics_too() {
    let text = encode(&full(), Format::OpenMetrics);
    let families = openmetrics::check(&text).unwrap();
    for desc in catalogue::CATALOGUE.iter() {
        let stem = match desc.kind {
            Kind::Counter => desc.name.trim_end_matches("_total"),
            Kind::Info => desc.name.trim_end_matches("_info"),
            Kind::Gauge | Kind::Histogram => desc.name,
        };
        if let Some(family) = families.get(stem) {
            assert_eq!(family.kind, desc.kind.as_str(), "{}", desc.name);
        }
    }
}

/// Gathers a walk by subject, as an exporter does that sends a resource for each.
struct BySubject<'a> {
    walk: &'a Walk<'a>,
    series: BTreeMap<(String, BTreeMap<String, String>), String>,
    /// Of each row by its labels: when it was read and since when it counts.
    times: BTreeMap<String, (Option<Timestamp>, Option<Timestamp>)>,
}

impl BySubject<'_> {
    fn add(&mut self, head: &Head<'_>, row: usize, cell: &[(&str, &str)], suffix: &str, value: Value) {
        let subject = self.walk.subject(head.rows, row);
        self.times.insert(format!("{:?}", subject.labels), (subject.read_at, subject.since));
        let info = subject.info.iter().filter(|_| head.desc.kind == Kind::Info);
        let all = subject.labels.iter().chain(info).chain(cell).filter(|(_, value)| !value.is_empty());
        let labels = all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let value = match value {
            Value::Int(n) => n as f64,
            Value::Nanos(n) => n as f64 / 1e9,
            Value::Float(f) => f,
        };
        let earlier = self.series.insert((format!("{}{suffix}", head.desc.name), labels), format!("{value:.3}"));
        assert_eq!(earlier, None, "{} says a series twice", head.desc.name);
    }
}

impl Listener for BySubject<'_> {
    fn family<'p, C>(&mut self, head: &Head<'_>, rows: impl Iterator<Item = C>)
    where
        C: IntoIterator<Item = Option<Point<'p>>>,
    {
        for (row, cells) in rows.enumerate() {
            for (point, cell) in cells.into_iter().zip(head.cells) {
                point.into_iter().for_each(|point| self.add(head, row, cell, "", point.value));
            }
        }
    }
    fn histograms<'p, B>(&mut self, head: &Head<'_>, all: impl Iterator<Item = HistogramPoint<B>>)
    where
        B: IntoIterator<Item = (u64, Option<&'p Exemplar>)>,
    {
        for HistogramPoint { row, cell, buckets, sum, .. } in all {
            let count = Value::Int(buckets.into_iter().map(|(n, _)| n).sum());
            self.add(head, row, &head.cells[cell], "_count", count);
            self.add(head, row, &head.cells[cell], "_sum", sum);
        }
    }
}

/// What one exporter hears is what any other does, in whatever order it wants it.
#[test]
fn a_walk_gathered_by_subject_is_the_exposition_with_the_times_of_each_subject() {
    let (snapshot, (_, metrics)) = (full(), exemplary(ALLOC));
    let filter = Filter::default().without_process();
    let walk = Walk::new(&snapshot, &metrics, &filter);
    let mut received = BySubject { walk: &walk, series: BTreeMap::new(), times: BTreeMap::new() };
    walk.expose(&mut received);
    let body = text(prometheus::encode(&walk, Format::OpenMetrics));
    let samples = openmetrics::check(&body).unwrap().into_values().flat_map(|family| family.samples);
    let written: BTreeMap<_, _> = samples
        .filter(|s| !["allostat_series", "allostat_exposition_info"].contains(&s.name.as_str()))
        .filter(|s| !["_bucket", "_created"].iter().any(|end| s.name.ends_with(end)))
        .map(|s| ((s.name, s.labels), format!("{:.3}", s.value.parse::<f64>().unwrap())))
        .collect();
    assert!(written.len() > 300, "{}", written.len());
    assert_eq!(received.series, written);

    let web = r#"[("alloc_id", "00000000-0000-4000-8000-000000000001"), ("task", "web"), ("workload", "shop")]"#;
    assert_eq!(received.times[web], (Some(NOW), snapshot.allocs[0].identity.created_at));
    let workload = r#"[("task", "web"), ("workload", "shop"), ("source", "managed")]"#;
    assert_eq!(received.times[workload], (None, Some(Timestamp(NOW.0 - 100 * SECOND - 7))), "since it was submitted");
}

/// Whose a series is, what it is called there, and how points are distinguished: by the documents, and written down
/// once more.
fn in_otlp(sample: &parsed::Sample, metric: &str) -> (String, otlp::Attributes) {
    let label = |name: &str| sample.labels.get(name).cloned();
    let (instance, labels): (String, &[&str]) = match (label("alloc_id"), label("task")) {
        (Some(alloc), Some(task)) => (format!("{alloc}/{task}"), &["alloc_id", "task", "workload"]),
        (Some(alloc), None) => (alloc, &["alloc_id", "workload"]),
        (None, _) => {
            let of_host = ["allostat_host_", "allostat_device_"];
            let is_hosts = of_host.iter().any(|start| sample.name.starts_with(start));
            let source = if is_hosts && !sample.name.contains("_allocated_") { "host" } else { "agent" };
            let device = label("mig_uuid").or_else(|| label("device_uuid"));
            (format!("host/{}", device.as_deref().unwrap_or(source)), &[])
        }
    };
    let rest = sample.labels.iter().filter(|(name, _)| !labels.contains(&name.as_str()));
    let is_of_instance = sample.name.starts_with("allostat_mig_");
    let mut attributes: otlp::Attributes = rest
        .map(|(name, value)| {
            let peer = match (name.as_str(), metric) {
                ("device_uuid", _) if is_of_instance => "hw.parent",
                ("mig_uuid", _) if is_of_instance => "hw.id",
                ("state", "hw.status") => "hw.state",
                ("mode", _) => "cpu.mode",
                ("kind", m) if m.ends_with("paging.faults") => "system.paging.fault.type",
                ("interface", "system.network.packet.count") => "system.device",
                ("interface", _) => "network.interface.name",
                ("directory", _) => "allostat.directory",
                ("disk" | "device", _) => "system.device",
                ("mountpoint", _) => "system.filesystem.mountpoint",
                ("fstype", _) => "system.filesystem.type",
                ("device_uuid", _) => "hw.id",
                ("engine", "hw.gpu.utilization") => "hw.gpu.task",
                ("sensor", "hw.temperature") => "hw.sensor_location",
                ("threshold", "hw.temperature.limit") => "hw.limit_type",
                ("kind", "hw.errors") => "error.type",
                ("collector", "otel.sdk.metric_reader.collection.duration") => "otel.component.name",
                (own, _) => own,
            };
            (peer.to_owned(), value.clone())
        })
        .collect();
    let name = sample.name.as_str();
    let apart = [
        ("_io_read_bytes", "disk.io.direction", "read"),
        ("_io_written_bytes", "disk.io.direction", "write"),
        ("_io_reads", "operation", "read"),
        ("_io_writes", "operation", "write"),
        ("_device_nvlink_transmit", "network.io.direction", "transmit"),
        ("_device_nvlink_receive", "network.io.direction", "receive"),
        ("_device_pcie_transmit", "network.io.direction", "transmit"),
        ("_device_pcie_receive", "network.io.direction", "receive"),
        ("_network_receive", "network.io.direction", "receive"),
        ("_network_transmit", "network.io.direction", "transmit"),
        ("_swap_used", "system.paging.state", "used"),
        ("_host_mount_avail", "system.filesystem.state", "free"),
        ("_host_disk_read_bytes", "disk.io.direction", "read"),
        ("_host_disk_written_bytes", "disk.io.direction", "write"),
        ("_host_disk_reads_", "disk.io.direction", "read"),
        ("_host_disk_writes_", "disk.io.direction", "write"),
        ("_host_disk_read_seconds", "disk.io.direction", "read"),
        ("_host_disk_write_seconds", "disk.io.direction", "write"),
        ("_host_memory_used", "system.memory.state", "used"),
        ("_host_memory_free", "system.memory.state", "free"),
        ("_host_memory_cached", "system.memory.state", "cached"),
        ("_host_memory_buffers", "system.memory.state", "buffers"),
        ("_slab_reclaimable", "system.memory.linux.slab.state", "reclaimable"),
        ("_slab_unreclaimable", "system.memory.linux.slab.state", "unreclaimable"),
    ];
    attributes
        .extend(apart.iter().filter(|(part, ..)| name.contains(part)).map(|(_, k, v)| ((*k).into(), (*v).into())));
    if attributes.get("cpu.mode").is_some_and(|mode| mode == "irq") {
        attributes.insert("cpu.mode".into(), "interrupt".into());
    }
    // The documents' word for it, and which sensor is meant.
    let limit = attributes.get("hw.limit_type").map(String::as_str);
    let limits =
        [("slowdown", "high.degraded", "gpu"), ("shutdown", "high.critical", "gpu"), ("gpu_max", "max", "gpu")];
    let known = limits.iter().chain(&[("memory_max", "max", "memory")]).find(|(own, ..)| limit == Some(own));
    if let Some((_, limit, sensor)) = known {
        attributes.extend([("hw.limit_type".into(), (*limit).into()), ("hw.sensor_location".into(), (*sensor).into())]);
    }
    if ["hw.energy", "hw.errors", "hw.power", "hw.status"].contains(&metric) {
        let is_fpga = attributes["hw.id"].starts_with("fpga");
        attributes.insert("hw.type".into(), if is_fpga { "fpga" } else { "gpu" }.into());
    }
    (instance, attributes)
}

/// What an attribute with a list of values in the documents may say; where ours is another, the documents leave room
/// for it.
const CLOSED: &[(&str, &[&str])] = &[
    ("cpu.mode", &["user", "system", "nice", "idle", "iowait", "interrupt", "steal", "kernel"]),
    ("disk.io.direction", &["read", "write"]),
    ("network.io.direction", &["receive", "transmit"]),
    ("system.paging.fault.type", &["major", "minor"]),
    ("system.paging.state", &["free", "used"]),
    ("system.filesystem.state", &["free", "reserved", "used"]),
    ("system.memory.state", &["buffers", "cached", "free", "used"]),
    ("system.memory.linux.slab.state", &["reclaimable", "unreclaimable"]),
    ("hw.state", &["degraded", "failed", "needs_cleaning", "ok", "predicted_failure"]),
    ("hw.type", &["gpu"]),
    ("hw.gpu.task", &["decoder", "encoder", "general"]),
    (
        "hw.limit_type",
        &["critical", "degraded", "high.critical", "high.degraded", "low.critical", "low.degraded", "max", "throttled"],
    ),
];

/// Every state of the conventions is there, and they add up to the limit.
#[test]
fn otlp_states_of_file_systems_and_of_swap_are_all_there_and_add_up() {
    let mut assembler = synthetic::assembler(synthetic::info("v2", vec![]));
    let mut host = Samples::default();
    fn push(host: &mut Samples, name: &str, labels: &[&'static str], n: u64) {
        host.push_int(catalogue::find(name).expect("it is in the catalogue"), labels, n);
    }
    for (mount, [size, free, avail]) in [("/", [1_000, 300, 250]), ("/data", [50, 50, 50])] {
        let labels = [mount, "/dev/a", "ext4"];
        push(&mut host, "allostat_host_mount_size_bytes", &labels, size);
        push(&mut host, "allostat_host_mount_avail_bytes", &labels, avail);
        push(&mut host, "allostat_host_mount_free_bytes", &labels, free);
    }
    push(&mut host, "allostat_host_swap_used_bytes", &[], 7);
    push(&mut host, "allostat_host_swap_total_bytes", &[], 20);
    let board = synthetic::board(vec![], Totals::default());
    let snapshot = synthetic::tick(&mut assembler, &board, &TaskReadings::default(), host);
    let (metrics, filter) = (Metrics::new(), Filter::default());
    let walk = Walk::new(&snapshot, &metrics, &filter);
    let points = otlp::points(&otlp::decode(&pushed(&walk, HistogramAggregation::Explicit)));
    let states = |metric: &str, key: &str, mount: Option<&str>| -> BTreeMap<String, i64> {
        let is_it = |point: &&otlp::DataPoint| {
            point.metric == metric && point.attributes.get("system.filesystem.mountpoint").map(String::as_str) == mount
        };
        let read = |point: &otlp::DataPoint| match point.value {
            otlp::Value::Int(n) => (point.attributes[key].clone(), n),
            ref other => panic!("{other:?}"),
        };
        points.iter().filter(is_it).map(read).collect()
    };
    let expected = |all: &[(&str, i64)]| all.iter().map(|(k, n)| ((*k).to_owned(), *n)).collect::<BTreeMap<_, _>>();
    let of = |mount| states("system.filesystem.usage", "system.filesystem.state", Some(mount));
    assert_eq!(of("/"), expected(&[("used", 700), ("reserved", 50), ("free", 250)]));
    assert_eq!(of("/data"), expected(&[("used", 0), ("reserved", 0), ("free", 50)]));
    let swap = states("system.paging.usage", "system.paging.state", None);
    assert_eq!(swap, expected(&[("used", 7), ("free", 13)]));
}

/// Our own values of such attributes: interrupts that are put off, how busy the memory of a GPU is, and devices of
/// plugins.
const OWN_ATTRIBUTES: [(&str, &str); 3] = [("cpu.mode", "softirq"), ("hw.gpu.task", "memory"), ("hw.type", "fpga")];

/// Promise (Measured values): Attributes with an enumeration in the conventions use its values, or a few own ones
#[test]
fn attributes_with_a_closed_list_have_only_its_values() {
    let ((_, metrics), filter) = (exemplary(ALLOC), Filter::default());
    let points_of = |snapshot: &Snapshot| {
        let walk = Walk::new(snapshot, &metrics, &filter);
        otlp::points(&otlp::decode(&pushed(&walk, HistogramAggregation::Explicit)))
    };
    let points = [points_of(&full()), points_of(&machine("v1")), points_of(&machine("v2-new"))].concat();
    let mut closed = std::collections::BTreeSet::new();
    for (key, value) in points.iter().flat_map(|point| point.attributes.iter().chain(&point.resource)) {
        if let Some((_, list)) = CLOSED.iter().find(|(closed, _)| closed == key) {
            let is_own = OWN_ATTRIBUTES.contains(&(key.as_str(), value.as_str()));
            assert!(is_own || list.contains(&value.as_str()), "{key}={value}");
            closed.insert(key.clone());
        }
    }
    // No disk was recorded; what is said of one is one word, which stands beside its name.
    let expected = CLOSED.iter().map(|(key, _)| *key).filter(|key| *key != "system.filesystem.state");
    assert_eq!(closed, expected.map(str::to_owned).collect(), "each is exposed");
}

/// Where a store keeps nothing but the resource, it says what the device is; who has it is a point of the alloc's.
///
/// Promise (Measured values): A device is an OTLP resource with its model, vendor and driver; an alloc lists its
/// devices
#[test]
fn device_is_a_resource_and_its_alloc_names_it() {
    let (snapshot, metrics, filter) = (full(), Metrics::new(), Filter::default());
    let walk = Walk::new(&snapshot, &metrics, &filter);
    let points = otlp::points(&otlp::decode(&pushed(&walk, HistogramAggregation::Explicit)));
    let of = |device: &str| {
        let resource =
            points.iter().map(|point| &point.resource).find(|r| r.get("hw.id").is_some_and(|id| id == device));
        let mut resource = resource.expect(device).clone();
        resource.retain(|key, _| !key.starts_with("host."));
        resource.into_iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
    };
    let service = |id: &str| format!("service.instance.id=host/{id} service.name=allostat");
    let whole = "allostat.device.index=0 allostat.device.plugin=nvidia hw.id=GPU-0 hw.model=NVIDIA H100 hw.name=gpu0 \
                 hw.type=gpu hw.vendor=nvidia";
    assert_eq!(of("GPU-0"), format!("{whole} {}", service("GPU-0")));
    assert!(of("MIG-2-7").contains("hw.id=MIG-2-7 hw.parent=GPU-2 hw.type=gpu"), "{}", of("MIG-2-7"));

    let held: Vec<_> = points.iter().filter(|point| point.metric == "allostat.alloc.device.assigned").collect();
    let alloc = snapshot.allocs[0].identity.id.as_str();
    let by_first = held.iter().filter(|point| point.resource["service.instance.id"] == alloc);
    let shown: Vec<_> =
        by_first.map(|point| (point.attributes["hw.id"].as_str(), point.attributes["reserved"].as_str())).collect();
    assert_eq!(shown, [("GPU-0", "true"), ("GPU-2", "true")]);
    assert!(held.iter().all(|point| point.value == otlp::Value::Int(1)), "{held:?}");
}

/// A walk as a request, with these buckets of histograms.
fn pushed(walk: &Walk<'_>, aggregation: HistogramAggregation) -> Vec<u8> {
    let identity = exporters::otlp::HostIdentity::default();
    exporters::otlp::collect(walk, &identity, aggregation, &mut exporters::otlp::Endings::default()).encode_to_vec()
}

/// One snapshot in both: each series is a point with its value, and there is no other point.
///
/// Promise (Measured values): OTLP equals `/metrics` point by point: one resource each, with true times and start times
/// Promise (Measured values): Exponential OTLP histograms have the count and sum of the explicit ones, and deltas that
/// add up
#[test]
fn otlp_points_equal_the_exposition_one_by_one() {
    let (_, metrics) = exemplary(ALLOC);
    for snapshot in ["v1", "v2-new", "hybrid"].map(machine).into_iter().chain([full()]) {
        let filter = Filter::default();
        let walk = Walk::new(&snapshot, &metrics, &filter);
        let body = parsed::Exposition::parse(&text(prometheus::encode(&walk, Format::Text)));
        for aggregation in HistogramAggregation::ALL {
            assert_same_values(&snapshot, &body, otlp::points(&otlp::decode(&pushed(&walk, aggregation))));
        }
    }
}

/// The same bytes, read by the protocol library of another language.
///
/// Promise (Measured values): A Python reader with Google's gRPC receives point by point what `/metrics` exposes; rotel
/// accepts all of it
#[test]
fn python_reader_of_otlp_finds_each_point_of_the_exposition() {
    let (_, metrics) = exemplary(ALLOC);
    for snapshot in ["v1", "v2-new", "hybrid"].map(machine).into_iter().chain([full()]) {
        let filter = Filter::default();
        let walk = Walk::new(&snapshot, &metrics, &filter);
        let body = parsed::Exposition::parse(&text(prometheus::encode(&walk, Format::Text)));
        for aggregation in HistogramAggregation::ALL {
            let bytes = pushed(&walk, aggregation);
            let Some(peer) = by_python::read_by_python(&bytes) else { skip_test!("no-python") };
            let mut own = otlp::points(&otlp::decode(&bytes));
            for point in &mut own {
                point.exemplars.iter_mut().for_each(String::clear);
            }
            assert_eq!(peer, own);
            let is_exponential = |point: &&otlp::DataPoint| matches!(point.value, otlp::Value::Exponential { .. });
            assert_eq!(peer.iter().any(|t| is_exponential(&t)), aggregation == HistogramAggregation::Exponential);
            assert_same_values(&snapshot, &body, peer);
        }
    }
}

fn assert_same_values(snapshot: &Snapshot, body: &parsed::Exposition, mut points: Vec<otlp::DataPoint>) {
    // States that no family of the exposition has.
    let is_rest = |point: &otlp::DataPoint| {
        let state = |key: &str| point.attributes.get(key).map(String::as_str);
        matches!(state("system.filesystem.state"), Some("used" | "reserved"))
            || state("system.paging.state") == Some("free")
    };
    let rest = points.iter().filter(|point| is_rest(point)).count();
    points.retain(|point| !is_rest(point));
    let swaps = body.samples.iter().filter(|sample| sample.name == "allostat_host_swap_total_bytes").count();
    assert!(rest >= swaps, "{rest} states of {swaps} swap areas");
    use AllocSource::{Containerd, Docker, Kubernetes, Lxc, Podman};
    let is_container = |source| matches!(source, Containerd | Docker | Kubernetes | Lxc | Podman);
    let containers: Vec<&str> =
        snapshot.allocs.iter().map(|a| &a.identity).filter(|a| is_container(a.source)).map(|a| a.id.as_str()).collect();
    let mut compared = 0;
    for sample in &body.samples {
        let Some(desc) = catalogue::find(&sample.name).or_else(|| catalogue::family(&sample.name)) else {
            panic!("{} is not in the catalogue", sample.name)
        };
        let Some(twin) = desc.otlp.filter(|_| desc.name != "allostat_series") else { continue };
        let is_container = sample.labels.get("alloc_id").is_some_and(|id| containers.contains(&id.as_str()));
        let is_renamed = desc.labels.starts_with(&["alloc_id", "task"]) && !is_container;
        let renamed = twin.name.replacen("container.", "allostat.task.", 1);
        let metric = if is_renamed { renamed.as_str() } else { twin.name };
        let part = sample.name.strip_prefix(desc.name).filter(|_| desc.kind == Kind::Histogram);
        // Its buckets and its sum are one point, found by its count.
        if part.is_some_and(|part| part != "_count") {
            continue;
        }
        let (instance, attributes) = in_otlp(sample, metric);
        let found = points.iter().position(|point| {
            let same = point.metric == metric && point.attributes == attributes && point.unit == twin.unit;
            same && point.resource["service.instance.id"] == instance
        });
        let text = format!("{} of {instance} as {} {attributes:?}", sample.name, metric);
        let Some(found) = found else {
            // By mode instead; only while it runs.
            let by_mode = metric.ends_with("cpu.time") && !sample.labels.contains_key("mode");
            let of_running = ["container.uptime", "allostat.task.uptime"].contains(&metric);
            assert!(by_mode || of_running, "no point: {text}");
            continue;
        };
        let point = points.remove(found);
        compared += 1;
        let expected = sample.f64();
        match point.value {
            #[allow(clippy::cast_precision_loss)]
            otlp::Value::Int(n) => assert_eq!(n as f64, expected, "{text}"),
            otlp::Value::Float(n) if metric.ends_with(".uptime") => {
                #[allow(clippy::cast_precision_loss)]
                let at = point.at as f64 / 1e9;
                assert!((at - n - expected).abs() < 1e-3, "{text}: {n} s before {at} is not {expected}");
            }
            otlp::Value::Float(n) => {
                assert!((n - expected).abs() <= expected.abs() * 1e-15, "{text}: {n}, {expected}")
            }
            otlp::Value::Histogram { ref counts, sum, .. } | otlp::Value::Exponential { ref counts, sum, .. } => {
                let zeros = if let otlp::Value::Exponential { zeros, .. } = point.value { zeros } else { 0 };
                #[allow(clippy::cast_precision_loss)]
                let count = (zeros + counts.iter().sum::<u64>()) as f64;
                assert_eq!(count, expected, "{text}");
                let name = format!("{}_sum", desc.name);
                let of = |s: &&parsed::Sample| s.name == name && s.labels == sample.labels;
                assert_eq!(sum, body.samples.iter().find(of).expect("a sum").f64(), "{text}");
                buckets_are_the_same(body, &format!("{}_bucket", desc.name), sample, &point.value);
            }
            otlp::Value::Ended => panic!("{text} has ended"),
        }
        assert!(point.at <= snapshot.taken_at.0 && point.start <= point.at, "{point:?}");
    }
    assert!(compared > 100, "{compared}");
    assert_eq!(points, [], "what the exposition does not say");
}

/// Explicit ones have the classic bounds and counts. Of exponential ones, those whole below a classic bound count no
/// more than it does, and with the one that it cuts no less.
fn buckets_are_the_same(body: &parsed::Exposition, name: &str, count: &parsed::Sample, sent: &otlp::Value) {
    let of = |s: &&parsed::Sample| {
        let mut labels = s.labels.clone();
        labels.remove("le");
        s.name == name && labels == count.labels
    };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let classic: Vec<(f64, u64)> =
        body.samples.iter().filter(of).map(|s| (s.labels["le"].parse().expect("a number"), s.f64() as u64)).collect();
    match sent {
        otlp::Value::Histogram { bounds, counts, .. } => {
            let below = counts.iter().scan(0, |all, n| {
                *all += n;
                Some(*all)
            });
            let buckets: Vec<(f64, u64)> = bounds.iter().copied().chain([f64::INFINITY]).zip(below).collect();
            assert_eq!(buckets, classic, "{name} {:?}", count.labels);
        }
        otlp::Value::Exponential { scale, zeros, offset, counts, .. } => {
            let upper = |index: i32| 2_f64.powf(f64::from(index + 1) * 2_f64.powi(-scale));
            let numbered = || (*offset..).zip(counts);
            for (le, n) in classic {
                // Bounds that are the same to the last digit but one are the same.
                let whole = numbered().filter(|(i, _)| upper(*i) <= le * (1.0 + 1e-12)).map(|(_, n)| n).sum::<u64>();
                let touched =
                    numbered().filter(|(i, _)| upper(i - 1) < le * (1.0 - 1e-12)).map(|(_, n)| n).sum::<u64>();
                assert!((zeros + whole..=zeros + touched).contains(&n), "{name} {:?}: {n} up to {le}", count.labels);
            }
        }
        other => panic!("{name}: {other:?}"),
    }
}

/// Receivers go on with the last value until they get the end of a series.
///
/// Promise (Measured values): An OTLP series that ends gets one last point without a value (`NoRecordedValue`)
#[test]
fn series_that_is_no_longer_sent_ends_with_one_point_without_a_value() {
    let running = full();
    let (metrics, filter) = (Metrics::new(), Filter::new([], ["managed"]).unwrap());
    let mut endings = exporters::otlp::Endings::default();
    let mut send = |snapshot: &Snapshot| {
        let walk = Walk::new(snapshot, &metrics, &filter);
        let identity = exporters::otlp::HostIdentity::default();
        otlp::points(&exporters::otlp::collect(&walk, &identity, HistogramAggregation::Explicit, &mut endings))
    };
    let series = |point: &otlp::DataPoint| {
        (point.resource["service.instance.id"].clone(), point.metric.clone(), point.attributes.clone())
    };
    let ended = |all: &[otlp::DataPoint]| -> std::collections::BTreeSet<_> {
        all.iter().filter(|point| point.value == otlp::Value::Ended).map(series).collect()
    };
    let before = send(&running);
    assert_eq!(ended(&before), std::collections::BTreeSet::new(), "nothing was sent before");
    assert_eq!(ended(&send(&running)), std::collections::BTreeSet::new(), "it goes on");

    // One whose task has ended: what is used now goes, what stays stays.
    let mut later = (*running).clone();
    let mut alloc = (*later.allocs[0]).clone();
    let mut task = (*alloc.tasks[0]).clone();
    assert!(task.attempt.take().is_some(), "it runs");
    let name = alloc.identity.tasks[0].name.clone();
    alloc.tasks[0] = Arc::new(task);
    let id = alloc.identity.id.clone();
    later.allocs[0] = Arc::new(alloc);
    later.taken_at = Timestamp(running.taken_at.0 + 10 * SECOND);
    let after = send(&later);
    let removed = ended(&after);
    let has = |metric: &str| removed.contains(&(format!("{id}/{name}"), metric.to_owned(), otlp::Attributes::new()));
    assert!(has("allostat.task.memory.usage") && has("allostat.task.memory.working_set"), "{removed:?}");
    assert!(!has("allostat.task.memory.peak"), "a peak stays");
    let points = after.iter().filter(|point| point.value == otlp::Value::Ended);
    assert!(points.clone().count() == removed.len() && points.clone().all(|point| point.at == later.taken_at.0));
    assert_eq!(ended(&send(&later)), std::collections::BTreeSet::new(), "once");

    // And one that is shown no more ends whole.
    later.allocs.remove(0);
    let of_alloc =
        |(instance, ..): &&(String, _, _)| *instance == id.as_str() || instance.starts_with(&format!("{id}/"));
    let still: std::collections::BTreeSet<_> =
        before.iter().map(series).filter(|s| of_alloc(&s) && !removed.contains(s)).collect();
    assert!(still.len() > 50, "{}", still.len());
    assert_eq!(ended(&send(&later)), still);
    assert_eq!(ended(&send(&later)), std::collections::BTreeSet::new(), "once");
}
