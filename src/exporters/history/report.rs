//! What each workload used: from the ends on record and from what runs. Truth first: what no record says is absent,
//! never 0.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

use super::location::History;
use super::tally::{OneUse, UsageTally, UseSums, WorkloadUse};
use crate::model::alloc::AllocSource;
use crate::model::device::GPU_KIND;
use crate::model::task::{Outcome, ShownState, TaskState};
use crate::model::units::{Nanos, Timestamp};
use crate::model::usage::Usage;
use crate::snapshot::{AllocView, Snapshot, TaskView};
use crate::store::lines;

/// So many rows at most; the rest is counted.
const MOST_ROWS: usize = 10_000;

/// Which workloads, and which ends of them.
#[derive(Debug, Clone, Default)]
pub struct ReportQuery {
    /// A job, its parent, or an observed workload.
    pub job: Option<String>,
    pub source: Option<AllocSource>,
    pub since: Timestamp,
    pub now: Timestamp,
}

/// `GET /v1/report`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct UsageReport {
    pub since: Timestamp,
    pub until: Timestamp,
    /// Of the oldest recorded end, independent of the query: nothing is known of the time before. Absent: no end is
    /// recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_record_at: Option<Timestamp>,
    /// Recorded ends that were counted, and allocs that run.
    pub ends: u64,
    pub running: u64,
    /// Records that this version cannot read.
    pub unread: u64,
    /// Rows above the most that are reported.
    pub omitted: u64,
    pub workloads: Vec<WorkloadUse>,
    pub totals: UseSums,
}

/// Rows by source, workload, group and task.
type Tallies = BTreeMap<[String; 4], UsageTally>;

impl UsageReport {
    /// Blocks on the disk. `history`: `None` where ends are not kept.
    ///
    /// Errors: the directory of the history cannot be read.
    pub fn read(history: Option<&History>, snapshot: &Snapshot, query: &ReportQuery) -> io::Result<UsageReport> {
        let mut report = UsageReport { since: query.since, until: query.now, ..UsageReport::default() };
        let mut tallies = Tallies::new();
        if let Some(history) = history {
            report.add_ends(history, query, &mut tallies)?;
            let oldest = lines::oldest(&history.dir)?;
            report.oldest_record_at =
                oldest.and_then(|line| serde_json::from_slice::<EndedAt>(&line).ok()).map(|end| end.ended_at);
        }
        for alloc in snapshot.allocs.iter().filter(|alloc| !alloc.ended) {
            report.add_running(alloc, snapshot, query, &mut tallies);
        }
        report.omitted = u64::try_from(tallies.len().saturating_sub(MOST_ROWS)).unwrap_or(u64::MAX);
        for ([source, workload, group, task], tally) in tallies.into_iter().take(MOST_ROWS) {
            let row = tally.finished(WorkloadUse { source, workload, group, task, ..WorkloadUse::default() });
            report.totals.add(&row.sums);
            report.workloads.push(row);
        }
        Ok(report)
    }

    fn add_ends(&mut self, history: &History, query: &ReportQuery, tallies: &mut Tallies) -> io::Result<()> {
        // The last record of an end counts.
        let mut known: HashSet<(String, Timestamp)> = HashSet::new();
        lines::newest_first(&history.dir, Some(query.since.as_system()), |line| {
            let Ok(end) = serde_json::from_slice::<ReportRecord<'_>>(line) else {
                self.unread += 1;
                return ControlFlow::Continue(());
            };
            let is_requested = end.ended_at >= query.since && end.ended_at <= query.now && end.alloc.is(query);
            if is_requested && known.insert((end.alloc.id.clone().into_owned(), end.ended_at)) {
                self.ends += 1;
                end.add(tallies);
            }
            ControlFlow::Continue(())
        })
    }

    fn add_running(&mut self, alloc: &AllocView, snapshot: &Snapshot, query: &ReportQuery, tallies: &mut Tallies) {
        let identity = &alloc.identity;
        let job = alloc.status.as_ref().map(|status| &status.job);
        let workload = job.map(|job| job.workload()).or(identity.workload.as_ref());
        let workload = workload.map_or(identity.name.as_str(), |workload| workload.as_str());
        let names = [Some(workload), job.map(|job| job.id.as_str()), Some(identity.name.as_str())];
        let is_requested = query.source.is_none_or(|source| source == identity.source)
            && query.job.as_ref().is_none_or(|requested| names.into_iter().flatten().any(|name| name == requested));
        if !is_requested {
            return;
        }
        self.running += 1;
        let devices = snapshot.devices.of_alloc(&identity.id);
        for (known, task) in alloc.tasks() {
            let is_gpu = |id| devices.devices.get(id).is_some_and(|view| view.kind.kind == GPU_KIND);
            let gpus = devices.of_task(&known.name).iter().filter(|of| !of.ended && is_gpu(&of.device)).count();
            let gpus = u64::try_from(gpus).unwrap_or(u64::MAX);
            let group = identity.group.as_ref().map_or("", |group| group.as_str());
            let key = [identity.source.as_str(), workload, group, known.name.as_str()].map(str::to_owned);
            tallies.entry(key).or_default().add(&of_view(task, snapshot, gpus));
        }
    }
}

/// Of a managed task all attempts of its alloc, of an observed one the life that goes on: those before are ends on
/// record.
fn of_view<'a>(task: &'a TaskView, snapshot: &Snapshot, gpus: u64) -> OneUse<'a> {
    let runs_now = matches!(task.state(), Some(ShownState::Running | ShownState::Paused));
    let at = snapshot.taken_at;
    if let Some(managed) = &task.managed {
        return OneUse {
            at,
            usage: &task.usage,
            ran: Some(managed.time_in(TaskState::Running, snapshot.steady_at)),
            exits: managed.status.exit_counts,
            failed: managed.status.failed,
            runs_now,
            gpus,
        };
    }
    let since = task.observed.as_ref().and_then(|observed| observed.since).filter(|_| runs_now);
    let usage = task.attempt.as_deref().unwrap_or(&task.usage);
    let exits = [0; Outcome::ALL.len()];
    OneUse { at, usage, ran: since.map(|since| snapshot.taken_at.since(since)), exits, failed: false, runs_now, gpus }
}

#[derive(Deserialize)]
struct EndedAt {
    ended_at: Timestamp,
}

/// What counts of a record.
#[derive(Deserialize)]
struct ReportRecord<'a> {
    ended_at: Timestamp,
    #[serde(borrow)]
    alloc: EndAlloc<'a>,
    #[serde(default)]
    stats: EndStats,
}

#[derive(Deserialize)]
struct EndAlloc<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    job: Cow<'a, str>,
    #[serde(borrow, default)]
    parent: Cow<'a, str>,
    #[serde(borrow, default)]
    group: Cow<'a, str>,
    #[serde(borrow)]
    source: Cow<'a, str>,
    #[serde(default)]
    created_at: Option<Timestamp>,
    #[serde(default)]
    tasks: BTreeMap<String, EndTask>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EndTask {
    failed: bool,
    exits_by_outcome: BTreeMap<String, u64>,
    /// The newest last.
    exits: Vec<EndExit>,
}

#[derive(Deserialize)]
struct EndExit {
    #[serde(default)]
    outcome: Option<Outcome>,
    #[serde(default)]
    started_at: Option<Timestamp>,
    finished_at: Timestamp,
    #[serde(default)]
    usage: Usage,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EndStats {
    tasks: BTreeMap<String, EndUse>,
    devices: BTreeMap<String, EndDevice>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EndUse {
    usage: Usage,
    time_in_state_ns: EndDwells,
    devices: BTreeMap<String, serde::de::IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EndDwells {
    running: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EndDevice {
    #[serde(rename = "type")]
    kind: String,
}

impl EndAlloc<'_> {
    fn is_managed(&self) -> bool {
        AllocSource::parse(&self.source) == Some(AllocSource::Managed)
    }
    /// Children of a job are kept under its name.
    fn workload(&self) -> &str {
        [&self.parent, &self.job, &self.name]
            .into_iter()
            .map(|name| &**name)
            .find(|name| !name.is_empty())
            .unwrap_or(&self.id)
    }
    fn is(&self, query: &ReportQuery) -> bool {
        let names = [self.workload(), &self.job, &self.name];
        query.source.is_none_or(|source| AllocSource::parse(&self.source) == Some(source))
            && query.job.as_ref().is_none_or(|requested| names.contains(&requested.as_str()))
    }
}

impl ReportRecord<'_> {
    fn add(&self, tallies: &mut Tallies) {
        let alloc = &self.alloc;
        let nothing = EndTask::default();
        for (name, used) in &self.stats.tasks {
            let task = alloc.tasks.get(name).unwrap_or(&nothing);
            let is_gpu = |id: &&String| self.stats.devices.get(*id).is_some_and(|device| device.kind == GPU_KIND);
            let gpus = u64::try_from(used.devices.keys().filter(is_gpu).count()).unwrap_or(u64::MAX);
            let mut exits = [0; Outcome::ALL.len()];
            let mut one = OneUse {
                at: self.ended_at,
                usage: &used.usage,
                ran: used.time_in_state_ns.running.map(Nanos),
                exits,
                failed: task.failed,
                runs_now: false,
                gpus,
            };
            if alloc.is_managed() {
                for outcome in Outcome::ALL {
                    exits[outcome.index()] = task.exits_by_outcome.get(outcome.as_str()).copied().unwrap_or(0);
                }
            } else if let Some(last) = task.exits.last() {
                // Its sums go on over all that had its name: this end is of one life.
                one.usage = &last.usage;
                one.ran = last.started_at.or(alloc.created_at).map(|began| last.finished_at.since(began));
                exits[last.outcome.unwrap_or(Outcome::Unknown).index()] = 1;
            } else {
                one.ran = None;
                exits[Outcome::Unknown.index()] = 1;
            }
            one.exits = exits;
            let key = [&*alloc.source, alloc.workload(), &*alloc.group, name].map(str::to_owned);
            tallies.entry(key).or_default().add(&one);
        }
    }
}

/// Promise (Devices): `report` counts each end once; what no record has is absent; it costs about one pass over the
/// records
#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use serde_json::{Value, json};

    use super::super::location::Config;
    use super::*;
    use crate::snapshot::agent::tests::info;
    use crate::store::lines::LineLog;

    const SECOND: u64 = 1_000_000_000;
    const MIB: u64 = 1 << 20;

    fn report(lines: &[Value], query: &ReportQuery) -> UsageReport {
        let dir = tempfile::tempdir().unwrap();
        let history = History::new(&Config::default(), dir.path()).unwrap();
        let lines: Vec<Vec<u8>> = lines.iter().map(|line| line.to_string().into_bytes()).collect();
        LineLog::new(&history.dir, history.limits).append(&lines).unwrap();
        UsageReport::read(Some(&history), &Snapshot::empty(Arc::new(info()), query.now), query).unwrap()
    }
    fn all() -> ReportQuery {
        ReportQuery { since: Timestamp(0), now: Timestamp(10_000 * SECOND), ..ReportQuery::default() }
    }

    /// Two attempts of a managed task: one was OOM killed.
    fn managed(id: &str, ended: u64, usage: &Value) -> Value {
        json!({
            "ended_at": ended * SECOND,
            "alloc": {
                "id": id, "name": "web.app[0]", "job": "web", "group": "app", "source": "managed", "status": "failed", "created_at": 0,
                "tasks": { "server": { "failed": true, "exits_by_outcome": { "oom": 1, "killed": 1 }, "exits": [] } },
            },
            "stats": {
                "tasks": { "server": { "usage": usage, "time_in_state_ns": { "running": 3_600 * SECOND }, "devices": { "GPU-1": {}, "nic": {} } } },
                "devices": { "GPU-1": { "type": "gpu" }, "nic": { "type": "nic" } },
            },
        })
    }
    fn used() -> Value {
        json!({ "cpu_usage_ns": 1_800 * SECOND, "memory_peak_bytes": 64 * MIB, "memory_limit_bytes": 64 * MIB, "oom_kills": 1,
                "cpu_cfs_periods": 100, "cpu_cfs_throttled_periods": 30, "cpu_quota_us": 100_000, "cpu_period_us": 100_000 })
    }

    #[test]
    fn runs_of_a_managed_task_are_added_up_with_a_suggestion() {
        let found = report(&[managed("a", 100, &used()), managed("b", 200, &used())], &all());
        assert_eq!((found.ends, found.workloads.len(), found.oldest_record_at), (2, 1, Some(Timestamp(100 * SECOND))));
        let row = &found.workloads[0];
        assert_eq!((row.workload.as_str(), row.group.as_str(), row.task.as_str()), ("web", "app", "server"));
        assert_eq!((row.sums.runs, row.sums.failures, row.sums.oom_kills), (4, 2, Some(2)));
        assert_eq!((row.sums.cpu_seconds, row.cpu_cores_average), (Some(3_600.0), Some(0.5)));
        assert_eq!((row.sums.memory_requested_gib_hours, row.sums.gpu_hours), (Some(0.125), Some(2.0)));
        let advice = row.memory_suggestion.unwrap();
        assert_eq!((advice.bytes, advice.reason.as_str()), (Some(96 * MIB), "oom_killed"));
        assert_eq!((row.memory_saved_bytes, row.cpu_suggested_cores), (Some(-(32 * MIB.cast_signed())), Some(1.5)));
        assert_eq!((found.totals.runs, found.totals.cpu_seconds), (4, Some(3_600.0)));
    }

    #[test]
    fn values_without_records_are_absent_and_counted_as_unmeasured() {
        let found = report(&[managed("a", 100, &json!({}))], &all());
        let row = &found.workloads[0];
        assert_eq!((row.sums.cpu_seconds, row.memory_peak_bytes, row.memory_request_bytes), (None, None, None));
        assert_eq!(
            (row.sums.oom_kills, row.sums.memory_requested_gib_hours, row.cpu_throttled_ratio),
            (None, None, None)
        );
        assert_eq!((row.sums.unmeasured, row.memory_suggestion.unwrap().bytes), (1, None));
        let text = serde_json::to_value(row).unwrap();
        for key in ["cpu_seconds", "memory_peak_bytes", "memory_saved_bytes", "oom_kills", "cpu_cores_average"] {
            assert!(text.get(key).is_none(), "{key}: {text}");
        }
    }

    #[test]
    fn an_end_counts_once_and_of_an_observed_one_only_its_last_life() {
        let exit = json!({ "outcome": "error", "started_at": 90 * SECOND, "finished_at": 100 * SECOND, "usage": { "cpu_usage_ns": SECOND } });
        let observed = json!({
            "ended_at": 100 * SECOND,
            "alloc": { "id": "docker:db", "name": "db", "job": "shop", "source": "docker", "tasks": { "db": { "exits": [exit] } } },
            "stats": { "tasks": { "db": { "usage": { "cpu_usage_ns": 500 * SECOND } } } },
        });
        let broken = json!({ "ended_at": "no" });
        let found = report(&[observed.clone(), observed, broken, managed("a", 100, &used())], &all());
        assert_eq!((found.ends, found.unread), (2, 1));
        let row = found.workloads.iter().find(|row| row.source == "docker").unwrap();
        assert_eq!((row.workload.as_str(), row.sums.runs, row.sums.failures), ("shop", 1, 1));
        assert_eq!((row.sums.cpu_seconds, row.sums.run_seconds), (Some(1.0), Some(10.0)));
    }

    #[test]
    fn usage_report_counts_only_ends_that_match_the_query() {
        let lines = [managed("a", 100, &used()), managed("b", 5_000, &used())];
        let count = |query: ReportQuery| report(&lines, &query).ends;
        assert_eq!(count(ReportQuery { since: Timestamp(4_000 * SECOND), ..all() }), 1);
        assert_eq!(count(ReportQuery { now: Timestamp(4_000 * SECOND), ..all() }), 1);
        assert_eq!(count(ReportQuery { job: Some("web".into()), ..all() }), 2);
        assert_eq!(count(ReportQuery { job: Some("other".into()), ..all() }), 0);
        assert_eq!(count(ReportQuery { source: Some(AllocSource::Docker), ..all() }), 0);
    }

    /// The floor is one pass over the same lines as trees of values.
    #[test]
    fn report_of_a_thousand_ends_costs_about_one_pass_over_their_records() {
        let dir = tempfile::tempdir().unwrap();
        let history = History::new(&Config::default(), dir.path()).unwrap();
        let lines: Vec<Vec<u8>> =
            (0..1_000).map(|n| managed(&format!("a{n}"), 100 + n, &used()).to_string().into_bytes()).collect();
        LineLog::new(&history.dir, history.limits).append(&lines).unwrap();
        let snapshot = Snapshot::empty(Arc::new(info()), all().now);
        let least = |pass: &dyn Fn()| {
            let timed = |_| {
                let began = Instant::now();
                pass();
                began.elapsed()
            };
            (0..5).map(timed).min().unwrap_or(Duration::MAX)
        };
        let floor = least(&|| lines.iter().for_each(|line| drop(serde_json::from_slice::<Value>(line).unwrap())));
        let taken = least(&|| assert_eq!(UsageReport::read(Some(&history), &snapshot, &all()).unwrap().ends, 1_000));
        assert!(taken < floor * 4 + Duration::from_millis(20), "{taken:?} beside {floor:?}");
    }
}
