//! The agent's own counters and histograms, in a `prometheus` registry that our encoder renders with the snapshot.
//!
//! Readings of tasks and of the host never come here: they rise through the snapshot. Here is what happens between two
//! ticks and must be counted where it happens.

use std::sync::OnceLock;
use std::time::Duration;

use prometheus::proto::MetricFamily;
use prometheus::{Gauge, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use super::access::{self, Admission};
use super::artifacts::{self, ArtifactMetrics};
use super::durations::{ByWorkload, STARTS, StartPhase};
use super::execs::{self, ExecMetrics};
use super::history::{self, EndsOnRecord, RecentUse};
use super::images::{self, ImageMetrics};
use super::launches::{self, Launches};
use super::memory::{self, MemoryMetrics};
use super::migrations::{self, Migrations};
use super::observed::{self, ObservedMetrics};
use super::otlp::Push;
use super::ports::{self, PortMetrics};
use super::registered::{counter, counters, gauge, gauges, register};
use super::state_db::{
    self, STATE_DB_DEDUPED, STATE_DB_DURATION, STATE_DB_FAILURES, STATE_DB_QUARANTINED, STATE_DB_SIZE, STATE_DB_WRITES,
};
use super::templates::{self, TemplateMetrics};
use super::timings::Timings;
use super::updates::{self, JobUpdates};
use crate::model::id::{AllocId, JobId};
use crate::model::metric::{Kind, MetricDesc, families};
use crate::model::profile::Profile;
use crate::model::units::{Timestamp, Unit};
use crate::model::words;

/// How long a pass of a collector or an answer takes: 100 µs to 5 s.
const SHORT: &[f64] = &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0];
/// How long a durable write takes: 1 ms to 30 s.
const MEDIUM: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

families! {
pub static COLLECTOR_DURATION: MetricDesc = MetricDesc::new(
    "allostat_collector_duration_seconds",
    Kind::Histogram,
    Unit::Seconds,
    "Duration of one pass of a collector; task is one pass over all tasks and allocs.",
    &["collector"],
)
.from_profile(Profile::Standard)
.otlp("otel.sdk.metric_reader.collection.duration", "s");

pub static SKIPPED_TICKS: MetricDesc = MetricDesc::counter(
    "allostat_collector_skipped_ticks_total",
    Unit::None,
    "Sampling ticks skipped because the previous one took too long or the host was suspended.",
    &[],
)
.otlp("allostat.collector.skipped_ticks", "{tick}");

pub static CLOCK_STEPS: MetricDesc = MetricDesc::counter(
    "allostat_clock_steps_total",
    Unit::None,
    "Steps of the wall clock by more than 0.5 s, in either direction.",
    &[],
)
.otlp("allostat.clock.steps", "{step}");

pub static SCRAPE_DURATION: MetricDesc = MetricDesc::new(
    "allostat_scrape_duration_seconds",
    Kind::Histogram,
    Unit::Seconds,
    "Time from a /metrics request until its body is ready, without sending it.",
    &["format"],
)
.from_profile(Profile::Standard)
.otlp("allostat.scrape.duration", "s");

pub static SCRAPES: MetricDesc = MetricDesc::counter(
    "allostat_scrapes_total",
    Unit::None,
    "Answered /metrics requests by format, encoding and HTTP status code.",
    &["format", "encoding", "code"],
)
.otlp("allostat.scrapes", "{request}");

pub static SERIES_DROPPED: MetricDesc = MetricDesc::counter(
    "allostat_series_dropped_total",
    Unit::None,
    "Series dropped before every scraper read them (budget, unread), or folded into alloc_id=\"_overflow\" (churn).",
    &["scope", "reason"],
)
.otlp("allostat.series.dropped", "{series}");

pub static ALLOCS_COLLECTED: MetricDesc = MetricDesc::counter(
    "allostat_allocs_collected_total",
    Unit::None,
    "Ended allocs garbage-collected with their directories, by reason.",
    &["reason"],
)
.otlp("allostat.allocs.collected", "{alloc}");

pub static HOOK_DURATION: MetricDesc = MetricDesc::new(
    "allostat_hook_duration_seconds",
    Kind::Histogram,
    Unit::Seconds,
    "Duration of a hook in a phase of an alloc or task, including failed runs.",
    &["runner", "hook", "phase"],
)
.from_profile(Profile::Standard)
.absent_when("the hook has not run since the agent started")
.otlp("allostat.hook.duration", "s");

pub static START_PHASE_DURATION: MetricDesc = MetricDesc::new(
    "allostat_start_phase_duration_seconds",
    Kind::Histogram,
    Unit::Seconds,
    "Duration of the phases of task starts (prestart, setup, driver) since the agent started.",
    &["phase"],
)
.from_profile(Profile::Standard)
.otlp("allostat.start.phase.duration", "s");

pub static HOOK_FAILURES: MetricDesc = MetricDesc::counter(
    "allostat_hook_failures_total",
    Unit::None,
    "Hooks that failed or exceeded their deadline.",
    &["runner", "hook", "phase"],
)
.otlp("allostat.hook.failures", "{failure}");

pub static RESTORE_TASKS: MetricDesc = MetricDesc::gauge(
    "allostat_restore_tasks",
    Unit::None,
    "Tasks handled by recovery at the last agent start, by outcome.",
    &["outcome"],
)
.absent_when("the agent has not finished recovery")
.otlp("allostat.restore.tasks", "{task}");

pub static RESTORE_DURATION: MetricDesc = MetricDesc::gauge(
    "allostat_restore_duration_seconds",
    Unit::Seconds,
    "Time that the last agent start took to read its state and recover every task.",
    &[],
)
.absent_when("the agent has not finished recovery")
.otlp("allostat.restore.duration", "s");

pub static SUPERVISORS: MetricDesc = MetricDesc::gauge(
    "allostat_supervisors",
    Unit::None,
    "Supervisor processes of the agent's user on this host, by watcher (nobody, this_agent, another_agent).",
    &["watched_by"],
)
.from_source("/proc/PID/{cmdline,fd}")
.absent_when("the agent has not scanned yet, or cannot")
.otlp("allostat.supervisors", "{process}");

pub static DRIVER_HEALTHY: MetricDesc = MetricDesc::gauge(
    "allostat_driver_healthy",
    Unit::None,
    "1 if the driver can start tasks; 0 if starts wait for it (running tasks continue).",
    &["driver"],
)
.absent_when("the driver has not reported its health yet, or was not detected since the agent started")
.otlp("allostat.driver.healthy", "1");

pub static DRIVER_HEALTH_CHANGES: MetricDesc = MetricDesc::counter(
    "allostat_driver_health_changes_total",
    Unit::None,
    "Changes of the driver to healthy, unhealthy or undetected after its first report; each is an event.",
    &["driver"],
)
.otlp("allostat.driver.health.changes", "{change}");

pub static FINGERPRINT_FAILURES: MetricDesc = MetricDesc::counter(
    "allostat_fingerprint_failures_total",
    Unit::None,
    "Failed fingerprints of the host by reason (error, timeout, panic); the previous result is kept.",
    &["fingerprinter", "reason"],
)
.otlp("allostat.fingerprint.failures", "{failure}");

pub static EVENTS_MISSED: MetricDesc = MetricDesc::counter(
    "allostat_events_missed_total",
    Unit::None,
    "Events that readers of /v1/events missed because they were no longer retained.",
    &[],
)
.otlp("allostat.events.missed", "{event}");

pub static LINES_SUPPRESSED: MetricDesc = MetricDesc::counter(
    "allostat_log_lines_suppressed_total",
    Unit::None,
    "Warnings and errors suppressed because the same line had just been logged many times.",
    &[],
)
.otlp("allostat.log.lines_suppressed", "{line}");
}

/// Of all families that are gathered from the registry, or are timings of the agent as a whole.
pub fn descriptors() -> impl Iterator<Item = &'static MetricDesc> {
    let all = [
        METRICS,
        observed::METRICS,
        access::METRICS,
        artifacts::METRICS,
        execs::METRICS,
        history::METRICS,
        images::METRICS,
        memory::METRICS,
        launches::METRICS,
        migrations::METRICS,
        ports::METRICS,
        state_db::METRICS,
        templates::METRICS,
        updates::METRICS,
    ];
    all.into_iter().flatten().copied()
}

/// The descriptor of a gathered family.
pub fn descriptor(name: &str) -> Option<&'static MetricDesc> {
    descriptors().find(|d| d.name == name)
}

words! {
    /// Why series were withdrawn early, or never shown.
    pub enum DropReason {
        Budget = "budget",
        Unread = "unread",
        Churn = "churn",
    }
}

impl DropReason {
    fn scope(self) -> &'static str {
        match self {
            DropReason::Budget | DropReason::Unread => "final",
            DropReason::Churn => "alloc",
        }
    }
}

words! {
    /// Why an ended alloc was removed.
    pub enum GcReason {
        Count = "count",
        Age = "age",
        Requested = "requested",
        /// Want of room.
        Disk = "disk",
        /// Want of room, before everybody had its final series.
        DiskUnread = "disk_unread",
    }
}

words! {
    /// What a start of the agent found of a task that had not ended by its record, or that none of its records names.
    pub enum FoundAs {
        Reattached = "reattached",
        Ended = "ended",
        Lost = "lost",
        Failed = "failed",
        Restarted = "restarted",
        OrphanKilled = "orphan_killed",
    }
}

words! {
    /// Who sees to a supervisor on this host.
    pub enum WatchedBy {
        ThisAgent = "this_agent",
        AnotherAgent = "another_agent",
        NoAgent = "nobody",
    }
}

words! {
    /// Why a fingerprinter found nothing.
    pub enum FingerprintFailure {
        Error = "error",
        Timeout = "timeout",
        Panic = "panic",
    }
}

/// Concurrency: any thread; atomics and a short lock for labels.
pub struct Metrics {
    registry: Registry,
    began: OnceLock<Timestamp>,
    collector_duration: Timings,
    skipped_ticks: IntCounter,
    clock_steps: IntCounter,
    scrape_duration: Timings,
    scrapes: IntCounterVec,
    series_dropped: IntCounterVec,
    allocs_collected: IntCounterVec,
    hook_duration: Timings,
    hook_failures: IntCounterVec,
    driver_healthy: IntGaugeVec,
    driver_health_changes: IntCounterVec,
    fingerprint_failures: IntCounterVec,
    state_db_writes: IntCounter,
    state_db_deduped: IntCounter,
    state_db_failures: IntCounter,
    state_db_duration: Timings,
    start_phases: Timings,
    state_db_size: OnceLock<IntGauge>,
    restored: OnceLock<(IntGaugeVec, Gauge, IntGauge)>,
    supervisors: OnceLock<IntGaugeVec>,
    events_missed: IntCounter,
    lines_suppressed: IntCounter,
    /// How long tasks take to start and to die.
    pub durations: ByWorkload,
    /// Who was not let in.
    pub access: Admission,
    pub artifacts: ArtifactMetrics,
    pub images: ImageMetrics,
    pub ports: PortMetrics,
    /// Commands that users run in tasks.
    pub execs: ExecMetrics,
    /// Of observed allocs.
    pub observed: ObservedMetrics,
    /// Of periodic jobs.
    pub launches: Launches,
    /// Of jobs with an `update`.
    pub templates: TemplateMetrics,
    pub updates: JobUpdates,
    /// What has ended, as far as it is kept.
    pub ends: EndsOnRecord,
    pub recent: RecentUse,
    pub migrations: Migrations,
    memory: OnceLock<MemoryMetrics>,
    /// What is pushed to a collector.
    pub push: Push,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl Metrics {
    pub fn new() -> Metrics {
        let registry = Registry::new();
        let r = &registry;
        let metrics = Metrics {
            collector_duration: Timings::new(&COLLECTOR_DURATION, SHORT),
            skipped_ticks: counter(r, &SKIPPED_TICKS),
            clock_steps: counter(r, &CLOCK_STEPS),
            scrape_duration: Timings::new(&SCRAPE_DURATION, SHORT),
            scrapes: counters(r, &SCRAPES),
            series_dropped: counters(r, &SERIES_DROPPED),
            allocs_collected: counters(r, &ALLOCS_COLLECTED),
            hook_duration: Timings::new(&HOOK_DURATION, MEDIUM),
            hook_failures: counters(r, &HOOK_FAILURES),
            driver_healthy: gauges(r, &DRIVER_HEALTHY),
            driver_health_changes: counters(r, &DRIVER_HEALTH_CHANGES),
            fingerprint_failures: counters(r, &FINGERPRINT_FAILURES),
            state_db_writes: counter(r, &STATE_DB_WRITES),
            state_db_deduped: counter(r, &STATE_DB_DEDUPED),
            state_db_failures: counter(r, &STATE_DB_FAILURES),
            state_db_duration: Timings::new(&STATE_DB_DURATION, MEDIUM),
            start_phases: Timings::new(&START_PHASE_DURATION, &STARTS),
            state_db_size: OnceLock::new(),
            restored: OnceLock::new(),
            supervisors: OnceLock::new(),
            access: Admission::new(r),
            artifacts: ArtifactMetrics::new(r),
            images: ImageMetrics::new(r),
            ports: PortMetrics::new(r),
            execs: ExecMetrics::new(r),
            observed: ObservedMetrics::new(r),
            launches: Launches::new(r),
            templates: TemplateMetrics::new(r),
            updates: JobUpdates::new(r),
            ends: EndsOnRecord::new(r),
            recent: RecentUse::new(r),
            migrations: Migrations::new(r),
            memory: OnceLock::new(),
            events_missed: counter(r, &EVENTS_MISSED),
            lines_suppressed: counter(r, &LINES_SUPPRESSED),
            durations: ByWorkload::default(),
            push: Push::default(),
            began: OnceLock::new(),
            registry,
        };
        // Born at 0 as soon as the labels are known, so that the first increment is seen as one.
        for reason in DropReason::ALL {
            metrics.series_dropped(reason, 0);
        }
        for reason in GcReason::ALL {
            metrics.allocs_collected.with_label_values(&[reason.as_str()]);
        }
        metrics.state_db_duration.known(&[]);
        for phase in StartPhase::ALL {
            metrics.start_phases.known(&[phase.as_str()]);
        }
        metrics
    }

    /// A collector will run: its histogram is there from now on.
    pub fn collector_known(&self, collector: &str) {
        self.collector_duration.known(&[collector]);
    }
    pub fn collector_took(&self, collector: &str, took: Duration) {
        self.collector_duration.took(&[collector], took);
    }
    pub fn ticks_skipped(&self, ticks: u64) {
        self.skipped_ticks.inc_by(ticks);
    }
    pub fn clock_stepped(&self) {
        self.clock_steps.inc();
    }
    /// A format and encoding that `/metrics` can answer in: its successes are counted from 0.
    pub fn scrape_known(&self, format: &str, encoding: &str) {
        self.scrapes.with_label_values(&[format, encoding, "200"]);
        self.scrape_duration.known(&[format]);
    }
    /// One answer of `/metrics`. `took`: until the body was at hand.
    pub fn scraped(&self, format: &str, encoding: &str, code: u16, took: Duration) {
        self.scrapes.with_label_values(&[format, encoding, itoa::Buffer::new().format(code)]).inc();
        self.scrape_duration.took(&[format], took);
    }
    pub fn series_dropped(&self, reason: DropReason, series: u64) {
        self.series_dropped.with_label_values(&[reason.scope(), reason.as_str()]).inc_by(series);
    }
    pub fn alloc_collected(&self, reason: GcReason) {
        self.allocs_collected.with_label_values(&[reason.as_str()]).inc();
    }
    pub fn allocs_collected(&self, reason: GcReason) -> u64 {
        self.allocs_collected.with_label_values(&[reason.as_str()]).get()
    }
    /// An attempt runs. `phases`: what each took, in the order of [`StartPhase::ALL`]; their sum is the whole.
    pub fn task_started(
        &self,
        workload: &JobId,
        alloc_id: &AllocId,
        phases: [Duration; StartPhase::ALL.len()],
        at: Timestamp,
    ) {
        self.durations.started(workload, alloc_id, phases.iter().sum(), at);
        for (phase, took) in StartPhase::ALL.into_iter().zip(phases) {
            self.start_phases.took(&[phase.as_str()], took);
        }
    }
    /// A hook that may run: its failures are counted from 0. Its durations appear when it has run: a row of a histogram
    /// is a dozen series, and many agents only observe.
    pub fn hook_known(&self, runner: &str, hook: &str, phase: &str) {
        self.hook_failures.with_label_values(&[runner, hook, phase]);
    }
    pub fn hook_took(&self, runner: &str, hook: &str, phase: &str, took: Duration) {
        self.hook_duration.took(&[runner, hook, phase], took);
    }
    pub fn hook_failed(&self, runner: &str, hook: &str, phase: &str) {
        self.hook_failures.with_label_values(&[runner, hook, phase]).inc();
    }
    pub fn hook_failures(&self, runner: &str, hook: &str, phase: &str) -> u64 {
        self.hook_failures.with_label_values(&[runner, hook, phase]).get()
    }
    /// `healthy`: `None` where the driver has not been detected yet. `changed`: it was otherwise before.
    pub fn driver_is(&self, driver: &str, healthy: Option<bool>, changed: bool) {
        if let Some(healthy) = healthy {
            self.driver_healthy.with_label_values(&[driver]).set(i64::from(healthy));
        }
        self.driver_health_changes.with_label_values(&[driver]).inc_by(u64::from(changed));
    }
    /// A fingerprinter that will be asked: its failures are counted from 0.
    pub fn fingerprinter_known(&self, fingerprinter: &str) {
        for reason in FingerprintFailure::ALL {
            self.fingerprint_failures.with_label_values(&[fingerprinter, reason.as_str()]);
        }
    }
    pub fn fingerprint_failed(&self, fingerprinter: &str, reason: FingerprintFailure) {
        self.fingerprint_failures.with_label_values(&[fingerprinter, reason.as_str()]).inc();
    }
    pub fn fingerprint_failures(&self, fingerprinter: &str, reason: FingerprintFailure) -> u64 {
        self.fingerprint_failures.with_label_values(&[fingerprinter, reason.as_str()]).get()
    }
    pub fn state_db_written(&self, took: Duration) {
        self.state_db_writes.inc();
        self.state_db_duration.took(&[], took);
    }
    pub fn state_db_deduped(&self, records: u64) {
        self.state_db_deduped.inc_by(records);
    }
    pub fn state_db_failed(&self) {
        self.state_db_failures.inc();
    }
    /// Only for a store that has a size: the series is absent until this is called once.
    pub fn state_db_size(&self, bytes: u64) {
        let gauge = self.state_db_size.get_or_init(|| gauge(&self.registry, &STATE_DB_SIZE));
        gauge.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
    /// The agent's own memory: the series are absent until this is called once.
    pub fn memory(&self) -> &MemoryMetrics {
        self.memory.get_or_init(|| MemoryMetrics::new(&self.registry))
    }
    /// What a start has found so far: there are no such series before. `found`: tasks, in the order of
    /// [`FoundAs::ALL`].
    pub fn restored(&self, found: [u64; FoundAs::ALL.len()], took: Duration, quarantined: usize) {
        let whole = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let (tasks, duration, records) = self.restored.get_or_init(|| {
            let tasks = gauges(&self.registry, &RESTORE_TASKS);
            let duration = Gauge::new(RESTORE_DURATION.name, RESTORE_DURATION.help);
            let records = gauge(&self.registry, &STATE_DB_QUARANTINED);
            (tasks, register(&self.registry, duration), records)
        });
        for (outcome, n) in FoundAs::ALL.iter().zip(found) {
            tasks.with_label_values(&[outcome.as_str()]).set(whole(n));
        }
        duration.set(took.as_secs_f64());
        records.set(i64::try_from(quarantined).unwrap_or(i64::MAX));
    }
    /// Supervisors by who watches them, in the order of [`WatchedBy::ALL`]: there are no such series before.
    pub fn watchers(&self, counts: [u64; WatchedBy::ALL.len()]) {
        let supervisors = self.supervisors.get_or_init(|| gauges(&self.registry, &SUPERVISORS));
        for (watched_by, n) in WatchedBy::ALL.iter().zip(counts) {
            supervisors.with_label_values(&[watched_by.as_str()]).set(i64::try_from(n).unwrap_or(i64::MAX));
        }
    }
    /// A follower of the events got a notice that so many are missing.
    pub fn events_missed(&self, events: u64) {
        self.events_missed.inc_by(events);
    }
    pub fn events_missed_total(&self) -> u64 {
        self.events_missed.get()
    }
    pub fn lines_suppressed(&self, lines: u64) {
        self.lines_suppressed.inc_by(lines);
    }

    /// The agent's process begins: so do its histograms.
    pub fn begins(&self, at: Timestamp) {
        // Once: what came before has a beginning already.
        let _ = self.began.set(at);
    }
    /// When that was; `None`: it was not set.
    pub fn began(&self) -> Option<Timestamp> {
        self.began.get().copied()
    }

    /// How long its own work takes, sorted by name.
    pub fn timings(&self) -> [&Timings; 6] {
        let (push, store) = (&self.push.duration, &self.state_db_duration);
        [&self.collector_duration, &self.hook_duration, push, &self.scrape_duration, store, &self.start_phases]
    }
    /// Everything else, sorted by name: for the encoder.
    pub fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_and_histograms_with_known_labels_start_at_zero() {
        let metrics = Metrics::new();
        let timed = metrics.timings().into_iter().filter(|timings| !timings.all().is_empty()).map(|t| t.desc.name);
        let counted = metrics.gather();
        let names: Vec<&str> = counted.iter().map(|f| f.name()).chain(timed).collect();
        for desc in [&SERIES_DROPPED, &STATE_DB_DURATION, &STATE_DB_FAILURES, &CLOCK_STEPS] {
            assert!(names.contains(&desc.name), "{} is missing from the start", desc.name);
        }
    }

    #[test]
    fn in_memory_state_has_no_size_metric() {
        let metrics = Metrics::new();
        let has_size = |m: &Metrics| m.gather().iter().any(|f| f.name() == STATE_DB_SIZE.name);
        assert!(!has_size(&metrics));
        metrics.state_db_size(5);
        assert!(has_size(&metrics));
    }

    #[test]
    fn restore_metrics_are_absent_before_the_start_and_complete_after_it() {
        let metrics = Metrics::new();
        let tasks =
            |m: &Metrics| m.gather().iter().find(|f| f.name() == RESTORE_TASKS.name).map(|f| f.get_metric().len());
        assert_eq!(tasks(&metrics), None);
        metrics.restored([3, 0, 0, 1, 0, 0], Duration::from_millis(20), 2);
        assert_eq!(tasks(&metrics), Some(6), "also those that did not occur");
    }

    #[test]
    fn every_gathered_family_has_a_descriptor() {
        let metrics = Metrics::new();
        metrics.collector_known("x");
        metrics.hook_known("task", "env", "prestart");
        metrics.scraped("text", "gzip", 200, Duration::from_millis(1));
        metrics.state_db_size(1);
        metrics.restored([0; 6], Duration::ZERO, 0);
        metrics.watchers([0; 3]);
        metrics.driver_is("mock", Some(true), false);
        metrics.fingerprinter_known("cpu");
        metrics.observed.there_are(&std::collections::BTreeMap::new(), 0, 0);
        metrics.access.read(access::AccessFile::Tokens, true);
        metrics.ends.count_lines(0, 0, 0);
        metrics.recent.record_size(1, 0);
        metrics.launches.known(&"j".into());
        metrics.launches.next(&"j".into(), Some(1));
        metrics.launches.decided(&"j".into(), launches::LaunchOutcome::Launched, 1);
        metrics.updates.known(&"j".into());
        metrics.updates.runs(&"j".into(), true);
        metrics.memory().limited(1);
        let families = metrics.gather();
        let known = descriptors().count();
        let timed = metrics.timings().into_iter().filter(|timings| descriptor(timings.desc.name).is_some());
        assert_eq!(families.len() + timed.count(), known);
        for family in families {
            assert!(descriptor(family.name()).is_some(), "{}", family.name());
        }
    }
}
