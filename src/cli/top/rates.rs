//! Two readings into what is used each second. Pure.
//!
//! ```text
//! task table of an epoch ──► beside the reading before ──► a row: values of now, rates between the two
//! ```
//! A rate needs two readings that differ in time; until there are two it is absent. A cgroup that sleeps is read
//! seldom, but each tick sees that it slept: so CPU time that a reading brings was used since the tick before it, not
//! since the reading before it.

use std::collections::{BTreeMap, HashMap};

use super::curves::{Curves, both};
use super::reply::{HostReply, OnDevices, TaskReply, TaskTable};
use crate::cli::api_types::{ExitRow, short};
use crate::cli::output::printable;
use crate::model::units::Timestamp;
use crate::model::usage::Usage;

/// Whose it is: alloc and task.
pub type RowKey = (String, String);

/// Growth of memory: bytes in an hour.
pub type GrowthByTask = HashMap<RowKey, f64>;

/// A task as it is now. Absent is `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct RateRow {
    pub key: RowKey,
    /// Under which people know it; made fit for a terminal.
    pub name: String,
    pub source: String,
    pub workload: String,
    /// Empty: not known.
    pub state: String,
    pub since: Option<Timestamp>,
    pub cpu_cores: Option<f64>,
    pub cpu_limit_cores: Option<f64>,
    pub cpu_seconds: Option<f64>,
    /// Of its periods; absent where it has no quota, or rested.
    pub throttled: Option<f64>,
    /// The working set; what is not measured by cgroup has a sum of resident sets.
    pub memory: Option<u64>,
    pub memory_usage: Option<u64>,
    pub memory_limit: Option<u64>,
    pub memory_peak: Option<u64>,
    /// Bytes in an hour, by the hour that the agent keeps.
    pub growth: Option<f64>,
    pub swap: Option<u64>,
    pub oom_kills: Option<u64>,
    pub faults: Option<f64>,
    /// Shares of time in which some of it waited: for CPU, memory, I/O.
    pub pressure: [Option<f64>; 3],
    /// Bytes a second.
    pub read: Option<f64>,
    pub written: Option<f64>,
    /// The same, over a network of its own.
    pub received: Option<f64>,
    pub sent: Option<f64>,
    pub pids: Option<u64>,
    pub restarts: Option<u64>,
    pub exit: Option<ExitRow>,
    pub device_memory: Option<u64>,
    pub device_busy: Option<f64>,
}

impl RateRow {
    pub fn is_over(&self) -> bool {
        self.state == "dead"
    }
    /// Something of it can use something at this moment.
    pub fn lives(&self) -> bool {
        lives(&self.state)
    }
    pub fn cpu_of_limit(&self) -> Option<f64> {
        ratio(self.cpu_cores?, self.cpu_limit_cores?)
    }
    #[allow(clippy::cast_precision_loss)] // for the eye
    pub fn memory_of_limit(&self) -> Option<f64> {
        ratio(self.memory? as f64, self.memory_limit? as f64)
    }
}

/// Only what runs uses anything; not what waits between two attempts, before the first or after the last. An unknown
/// state counts as running.
fn lives(state: &str) -> bool {
    matches!(state, "running" | "killing" | "")
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

/// What all tasks share, as it is now.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostNow {
    pub name: String,
    pub cpus: u64,
    pub busy_cores: Option<f64>,
    pub memory_used: Option<u64>,
    pub memory_total: Option<u64>,
    pub swap_used: Option<u64>,
    pub received: Option<f64>,
    pub sent: Option<f64>,
    pub pressure: [Option<f64>; 3],
}

/// Everything that a screen shows of a moment.
#[derive(Debug, Clone, Default)]
pub struct RateFrame {
    pub epoch: u64,
    pub taken_at: Timestamp,
    pub host: HostNow,
    /// In the agent's order.
    pub rows: Vec<RateRow>,
    pub has_devices: bool,
}

impl RateFrame {
    /// Cores that the host uses and no row has: outside of every cgroup that is shown, and the kernel's own. `None`:
    /// either is not known, or it is less than two looks at different moments differ by.
    pub fn elsewhere_cores(&self) -> Option<f64> {
        let rows: f64 = self.rows.iter().filter(|row| row.lives()).map(|row| row.cpu_cores).sum::<Option<f64>>()?;
        Some(self.host.busy_cores? - rows).filter(|cores| *cores >= 0.1)
    }
}

#[derive(Debug)]
struct PreviousSample {
    at: Timestamp,
    usage: Usage,
    rates: TaskRates,
    curves: Curves,
    epoch: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct TaskRates {
    cpu_cores: Option<f64>,
    throttled: Option<f64>,
    pressure: [Option<f64>; 3],
    read: Option<f64>,
    written: Option<f64>,
    received: Option<f64>,
    sent: Option<f64>,
    faults: Option<f64>,
}

/// Remembers the reading before.
#[derive(Debug, Default)]
pub struct RateTracker {
    seen: HashMap<RowKey, PreviousSample>,
    host: Option<(Timestamp, HostReply)>,
    host_rates: HostNow,
    growth: GrowthByTask,
    epoch: u64,
    ticked_at: Timestamp,
}

impl RateTracker {
    /// Of a newer table, or the same again.
    pub fn frame(&mut self, table: &TaskTable, devices: &BTreeMap<RowKey, OnDevices>) -> RateFrame {
        if table.epoch < self.epoch {
            // Another agent: what this one knows of the time before is nothing that it read.
            *self = RateTracker::default();
        }
        let fields = table.known_fields();
        if let Some(before) = table.before.as_ref().filter(|_| self.epoch == 0) {
            self.ticked_at = before.ticked_at;
            self.host = Some((before.ticked_at, before.host.clone()));
        }
        let is_new = table.epoch != self.epoch;
        let rows = table.tasks.iter().map(|task| {
            let on = devices.get(&(task.alloc_id.clone(), task.task.clone())).copied().unwrap_or_default();
            let before = task.before.as_ref().map(|before| (before.at, before.usage(&fields)));
            self.row(task, before, task.usage(&fields), on, table, is_new)
        });
        let rows = rows.collect();
        self.seen.retain(|_, seen| seen.epoch == table.epoch);
        let host = self.host(table);
        (self.epoch, self.ticked_at) = (table.epoch, table.ticked_at());
        RateFrame { epoch: table.epoch, taken_at: table.taken_at, host, rows, has_devices: table.devices > 0 }
    }

    /// For the frames from now on.
    pub fn grow(&mut self, growth: GrowthByTask) {
        self.growth = growth;
    }

    pub fn curves(&self, key: &RowKey) -> Option<&Curves> {
        self.seen.get(key).map(|seen| &seen.curves)
    }

    /// `before`: what the agent read of it before; what was seen here comes first.
    fn row(
        &mut self,
        task: &TaskReply,
        before: Option<(Timestamp, Usage)>,
        usage: Usage,
        on: OnDevices,
        table: &TaskTable,
        is_new: bool,
    ) -> RateRow {
        let epoch = table.epoch;
        let key = (task.alloc_id.clone(), task.task.clone());
        let runs = lives(&task.state);
        // Without a cgroup of its own the driver reports when it likes, or it is read at each tick.
        let last_tick = if task.measured == "cgroup" { self.ticked_at } else { Timestamp(0) };
        let mut row = row(task, key.clone(), &usage, on);
        row.growth = self.growth.get(&key).copied().filter(|_| runs);
        if let Some(at) = task.sampled_at {
            let by_cgroup = task.measured == "cgroup";
            // Read before its tick began: that tick saw that it slept.
            let slept = before.is_some() && by_cgroup && at < table.ticked_at();
            let seen = self.seen.entry(key).or_insert_with(|| {
                let (at, usage) = before.unwrap_or_else(|| (at, usage.clone()));
                PreviousSample { at, usage, rates: TaskRates::default(), curves: Curves::default(), epoch }
            });
            if slept && at > seen.at {
                seen.rates =
                    TaskRates { cpu_cores: usage.cpu_usage_ns().map(|_| 0.0), ..rates(seen, at, &usage, last_tick) };
                (seen.at, seen.usage) = (at, usage);
            } else if at > seen.at {
                seen.rates = rates(seen, at, &usage, last_tick);
                (seen.at, seen.usage) = (at, usage);
            } else if seen.epoch != epoch && by_cgroup && usage.cpu_usage_ns().is_some() {
                // Not read again: the tick saw that it slept.
                seen.rates.cpu_cores = Some(0.0);
            }
            seen.epoch = epoch;
            // What has ended uses nothing; what it used last is no rate of now.
            let rates = if runs { seen.rates } else { TaskRates::default() };
            row.cpu_cores = rates.cpu_cores;
            row.throttled = rates.throttled;
            row.pressure = rates.pressure;
            (row.read, row.written, row.faults) = (rates.read, rates.written, rates.faults);
            (row.received, row.sent) = (rates.received, rates.sent);
            if is_new {
                seen.curves.remember(table.taken_at, point(&row));
            }
        }
        row
    }

    fn host(&mut self, table: &TaskTable) -> HostNow {
        let (now, at) = (&table.host, table.ticked_at());
        if let Some((before_at, before)) = self.host.as_ref().filter(|(before, _)| *before < at) {
            let time = at.since(*before_at).0;
            let rate = |get: fn(&HostReply) -> Option<u64>| per_second(get(before), get(now), time);
            let share = |get: fn(&HostReply) -> Option<u64>| per_nano(get(before), get(now), time);
            let waits = |get: fn(&HostReply) -> Option<u64>| share(get).map(|share| share.min(1.0));
            self.host_rates = HostNow {
                busy_cores: share(|h| h.cpu_busy_ns),
                received: rate(|h| h.network_receive_bytes),
                sent: rate(|h| h.network_transmit_bytes),
                pressure: [
                    waits(|h| h.pressure_cpu_some_ns),
                    waits(|h| h.pressure_memory_some_ns),
                    waits(|h| h.pressure_io_some_ns),
                ],
                ..HostNow::default()
            };
        }
        if self.host.as_ref().is_none_or(|(before, _)| *before < at) {
            self.host = Some((at, now.clone()));
        }
        HostNow {
            name: printable(&now.hostname),
            cpus: now.cpus,
            memory_used: now
                .memory_total_bytes
                .zip(now.memory_available_bytes)
                .map(|(all, free)| all.saturating_sub(free)),
            memory_total: now.memory_total_bytes,
            swap_used: now.swap_used_bytes,
            ..self.host_rates.clone()
        }
    }
}

/// Of its curves.
#[allow(clippy::cast_precision_loss)] // for the eye
fn point(row: &RateRow) -> [Option<f64>; 3] {
    [row.cpu_cores, row.memory.map(|bytes| bytes as f64), both(row.read, row.written)]
}

/// What grew by so much in so many nanoseconds. A counter that fell is another one.
#[allow(clippy::cast_precision_loss)] // for the eye
fn per_nano(before: Option<u64>, now: Option<u64>, time: u64) -> Option<f64> {
    let grown = now?.checked_sub(before?)?;
    (time > 0).then(|| grown as f64 / time as f64)
}

fn per_second(before: Option<u64>, now: Option<u64>, time: u64) -> Option<f64> {
    per_nano(before, now, time).map(|rate| rate * 1e9)
}

#[allow(clippy::cast_precision_loss)] // for the eye
fn rates(before: &PreviousSample, at: Timestamp, now: &Usage, last_tick: Timestamp) -> TaskRates {
    let old = &before.usage;
    let time = at.since(before.at).0;
    let awake = at.since(before.at.max(last_tick.min(at))).0;
    // The kernel adds up what waited each two seconds or so: more than all of the time between two looks.
    let share = |get: fn(&Usage) -> Option<u64>| per_nano(get(old), get(now), time).map(|share| share.min(1.0));
    let rate = |get: fn(&Usage) -> Option<u64>| per_second(get(old), get(now), time);
    let grown = |get: fn(&Usage) -> Option<u64>| get(now)?.checked_sub(get(old)?);
    // While it rests there are no periods, and no share of them.
    let periods = grown(|u| u.cpu_cfs_periods()).filter(|periods| *periods > 0);
    TaskRates {
        cpu_cores: per_nano(old.cpu_usage_ns(), now.cpu_usage_ns(), if awake > 0 { awake } else { time }),
        throttled: periods.zip(grown(|u| u.cpu_cfs_throttled_periods())).map(|(all, some)| some as f64 / all as f64),
        pressure: [
            share(|u| u.pressure_cpu_some_ns()),
            share(|u| u.pressure_memory_some_ns()),
            share(|u| u.pressure_io_some_ns()),
        ],
        read: rate(|u| u.io_read_bytes()),
        written: rate(|u| u.io_written_bytes()),
        received: rate(|u| u.network_receive_bytes()),
        sent: rate(|u| u.network_transmit_bytes()),
        faults: rate(|u| u.page_faults_major()),
    }
}

/// Without its rates.
#[allow(clippy::cast_precision_loss)] // for the eye
fn row(task: &TaskReply, key: RowKey, usage: &Usage, on: OnDevices) -> RateRow {
    let runs = lives(&task.state);
    let quota = usage.cpu_quota_us().zip(usage.cpu_period_us()).filter(|(_, period)| *period > 0);
    let now = |value: Option<u64>| value.filter(|_| runs);
    RateRow {
        name: name(task),
        source: printable(&task.source),
        workload: printable(&task.job),
        state: printable(&task.state),
        since: task.state_since,
        cpu_cores: None,
        cpu_limit_cores: quota.map(|(quota, period)| quota as f64 / period as f64),
        cpu_seconds: usage.cpu_usage_ns().map(|ns| ns as f64 / 1e9),
        throttled: None,
        memory: now(usage.memory_working_set_bytes().or(usage.memory_rss_bytes())),
        memory_usage: now(usage.memory_usage_bytes()),
        memory_limit: usage.memory_limit_bytes(),
        memory_peak: usage.memory_peak_bytes().or(usage.memory_sampled_peak_bytes()).or(usage.max_rss_bytes()),
        growth: None,
        swap: now(usage.memory_swap_bytes()),
        oom_kills: usage.oom_kills(),
        faults: None,
        pressure: [None; 3],
        read: None,
        written: None,
        received: None,
        sent: None,
        pids: now(usage.pids_current().or(usage.processes())),
        restarts: task.restarts,
        exit: task.last_exit.clone(),
        device_memory: on.memory_bytes,
        device_busy: on.busy_ratio,
        key,
    }
}

/// An observed task is named by its ID, which says whose it is; a managed one by its job, its task and its ID.
fn name(task: &TaskReply) -> String {
    let own = |id: &str| match task.job.is_empty() {
        true => format!("{id}/{}", task.task),
        false if task.job == task.task => format!("{} {id}", task.job),
        false => format!("{}/{} {id}", task.job, task.task),
    };
    let name = match task.alloc_id.contains(':') {
        true if task.of > 1 => format!("{}/{}", task.alloc_id, task.task),
        true => task.alloc_id.clone(),
        false => own(short(&task.alloc_id)),
    };
    printable(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn cores_outside_all_rows_are_shown_if_the_host_and_all_rows_are_known() {
        let with = |busy_cores, rows: &[(&str, Option<f64>)]| {
            let row = |(state, cpu_cores): &(&str, Option<f64>)| RateRow {
                state: (*state).to_owned(),
                cpu_cores: *cpu_cores,
                ..super::super::testing::row("a", "docker", "w")
            };
            let frame = RateFrame {
                host: HostNow { busy_cores, ..HostNow::default() },
                rows: rows.iter().map(row).collect(),
                ..RateFrame::default()
            };
            frame.elsewhere_cores().map(|cores| format!("{cores:.1}"))
        };
        let rows = [("running", Some(0.5)), ("running", Some(0.25)), ("dead", None)];
        assert_eq!(with(Some(2.0), &rows).as_deref(), Some("1.2"));
        assert_eq!(with(Some(2.0), &[]).as_deref(), Some("2.0"));
        assert_eq!(with(None, &rows), None);
        assert_eq!(with(Some(2.0), &[("running", None), ("running", Some(0.1))]), None);
        assert_eq!(with(Some(0.8), &rows), None, "looks differ by that much");
        assert_eq!(with(Some(0.5), &rows), None);
    }

    /// An answer of that second, in which one task was read at `at` seconds and has used so many milliseconds of CPU.
    fn table(second: u64, at: u64, cpu_ms: Option<u64>, more: &str) -> TaskTable {
        let cpu = cpu_ms.map_or("null".to_owned(), |ms| (ms * 1_000_000).to_string());
        let text = format!(
            r#"{{"epoch":{second},"taken_at":{},"devices":0,"fields":["cpu_usage_ns","of_tomorrow","cpu_cfs_periods","cpu_cfs_throttled_periods"],
              "tasks":[{{"alloc_id":"docker:a","source":"docker","job":"","task":"t","of":1,"measured":"cgroup","state":"running",
              "sampled_at":{},"usage":[{cpu},5,{second}0,{second}]{more}}}]}}"#,
            second * SECOND,
            at * SECOND,
        );
        serde_json::from_str(&text).unwrap()
    }

    fn cores(tracker: &mut RateTracker, table: &TaskTable) -> Option<f64> {
        tracker.frame(table, &BTreeMap::new()).rows[0].cpu_cores
    }

    #[test]
    fn a_rate_is_of_two_readings_and_stands_until_the_next_one() {
        let mut tracker = RateTracker::default();
        assert_eq!(cores(&mut tracker, &table(1, 1, Some(100), "")), None, "one reading");
        assert_eq!(cores(&mut tracker, &table(1, 1, Some(100), "")), None, "the same reading again");
        assert_eq!(cores(&mut tracker, &table(2, 2, Some(400), "")), Some(0.3));
        assert_eq!(cores(&mut tracker, &table(2, 2, Some(400), "")), Some(0.3), "looked at twice");
        assert_eq!(cores(&mut tracker, &table(3, 3, Some(400), "")), Some(0.0));
        assert_eq!(cores(&mut tracker, &table(4, 4, Some(300), "")), None, "a counter never falls");
        assert_eq!(cores(&mut tracker, &table(5, 5, None, "")), None);
    }

    #[test]
    fn sleeping_task_that_wakes_used_its_cpu_time_since_the_previous_tick() {
        let mut tracker = RateTracker::default();
        // Read at its first second only: each tick saw that it slept.
        assert_eq!(cores(&mut tracker, &table(1, 1, Some(0), "")), None);
        for second in 2..9 {
            assert_eq!(cores(&mut tracker, &table(second, 1, Some(0), "")), Some(0.0));
        }
        assert_eq!(cores(&mut tracker, &table(9, 9, Some(500), "")), Some(0.5), "and not 0.06");
        let driven = |second, at, ms| table(second, at, Some(ms), r#","measured_":0"#);
        let mut by_driver = driven(1, 1, 0);
        by_driver.tasks[0].measured = "none".to_owned();
        let mut tracker = RateTracker::default();
        cores(&mut tracker, &by_driver);
        let mut later = driven(6, 6, 500);
        later.tasks[0].measured = "none".to_owned();
        let mut between = driven(5, 1, 0);
        between.tasks[0].measured = "none".to_owned();
        cores(&mut tracker, &between);
        assert_eq!(cores(&mut tracker, &later), Some(0.1), "a driver reports when it likes");
    }

    #[test]
    fn answers_between_two_ticks_make_no_second_shorter() {
        let mut tracker = RateTracker::default();
        let reply = |second: u64, after_ms: u64| {
            let mut table = table(second, second, Some(second * 200), "");
            table.ticked_at = Some(table.taken_at);
            table.taken_at = Timestamp(table.taken_at.0 + after_ms * 1_000_000);
            table.host.cpu_busy_ns = Some(second * SECOND);
            table.host.pressure_cpu_some_ns = Some(second * 2 * SECOND);
            table
        };
        tracker.frame(&reply(1, 0), &BTreeMap::new());
        for second in 2..5 {
            let frame = tracker.frame(&reply(second, 0), &BTreeMap::new());
            assert_eq!((frame.rows[0].cpu_cores, frame.host.busy_cores), (Some(0.2), Some(1.0)));
            assert_eq!(frame.host.pressure[0], Some(1.0), "of no time waits more than all of it");
            // Another task has come 0.9 s later, or gone.
            let between = tracker.frame(&reply(second, 900), &BTreeMap::new());
            assert_eq!((between.rows[0].cpu_cores, between.host.busy_cores), (Some(0.2), Some(1.0)));
        }
    }

    #[test]
    fn a_restarted_agent_has_no_reading_before() {
        let mut tracker = RateTracker::default();
        cores(&mut tracker, &table(8, 8, Some(100), ""));
        assert_eq!(cores(&mut tracker, &table(1, 9, Some(900), "")), None);
    }

    #[test]
    fn the_share_of_throttled_periods_is_of_those_between() {
        let mut tracker = RateTracker::default();
        tracker.frame(&table(1, 1, Some(0), ""), &BTreeMap::new());
        let row = tracker.frame(&table(3, 3, Some(0), ""), &BTreeMap::new()).rows.remove(0);
        assert_eq!(row.throttled, Some(0.1));
        let curves = tracker.curves(&row.key).unwrap();
        assert_eq!(curves.cpu_cores, [None, Some(0.0)]);
    }

    #[test]
    fn growth_is_that_of_the_retained_hour_and_absent_for_ended_or_unknown_tasks() {
        let key = ("docker:a".to_owned(), "t".to_owned());
        let grown = |table: &TaskTable, growth: &[f64]| {
            let mut tracker = RateTracker::default();
            growth.iter().for_each(|growth| tracker.grow(GrowthByTask::from([(key.clone(), *growth)])));
            tracker.frame(table, &BTreeMap::new()).rows[0].growth
        };
        let running = table(1, 1, Some(0), "");
        assert_eq!(grown(&running, &[]), None, "not known is not 0");
        assert_eq!(grown(&running, &[1024.0 * 1024.0, -5.0]), Some(-5.0), "the newest answer counts");
        let mut other = table(1, 1, Some(0), "");
        other.tasks[0].task = "u".to_owned();
        assert_eq!(grown(&other, &[7.0]), None, "of another task");
        let mut ended = table(1, 1, Some(0), "");
        ended.tasks[0].state = "dead".to_owned();
        assert_eq!(grown(&ended, &[7.0]), None);
    }

    #[test]
    fn ended_task_has_no_current_usage_and_foreign_names_are_escaped() {
        let mut tracker = RateTracker::default();
        tracker.frame(&table(1, 1, Some(0), ""), &BTreeMap::new());
        let mut ended = table(2, 2, Some(900), "");
        ended.tasks[0].state = "dead".to_owned();
        ended.tasks[0].alloc_id = "docker:a".to_owned();
        ended.tasks[0].source = "do\u{1b}[2Jcker".to_owned();
        let row = tracker.frame(&ended, &BTreeMap::new()).rows.remove(0);
        assert_eq!((row.cpu_cores, row.memory, row.cpu_seconds), (None, None, Some(0.9)));
        assert_eq!(row.source, "do\\u{1b}[2Jcker");
    }
}
