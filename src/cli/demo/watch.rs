//! Reads the API and keeps what the screen shows.

use std::collections::{HashMap, HashSet, VecDeque};

use super::screen::{Batches, MeasuredBy, Row, Scene, safe};
use crate::cli::connect::Agent;
use crate::cli::exit::CliError;
use crate::cli::follow;
use crate::cli::output::Paint;
use crate::cli::shape::{AllocList, AllocRow, EventPage, StatsReply, TaskStats};
use crate::model::units::Timestamp;
use crate::model::usage::Usage;

const BATCH_JOB: &str = "short";
/// Ended batch tasks that stand in the table.
const SHOWN_BATCH: usize = 5;
const KEPT_EVENTS: usize = 200;

pub struct Watch {
    pub view: Scene,
    since: u64,
    events: VecDeque<String>,
    /// Two readings of each task, for rates.
    readings: HashMap<(String, String), (Reading, Option<Reading>)>,
    /// Ended batch allocs that are counted.
    counted: HashSet<String>,
    batch_runs: bool,
}

#[derive(Debug, Clone)]
struct Reading {
    at: Timestamp,
    usage: Usage,
}

impl Watch {
    pub fn new(head: Vec<String>, measured: MeasuredBy) -> Watch {
        Watch {
            view: Scene { head, measured, ..Scene::default() },
            since: 0,
            events: VecDeque::new(),
            readings: HashMap::new(),
            counted: HashSet::new(),
            batch_runs: false,
        }
    }

    pub fn batch_runs(&self) -> bool {
        self.batch_runs
    }

    /// New events, as lines. Of the batch only the ends: they are many.
    pub fn events(&mut self, agent: &mut Agent, paint: Paint) -> Result<Vec<String>, CliError> {
        let page: EventPage = agent.get(&format!("/v1/events?since={}", self.since))?;
        self.since = page.next;
        let wanted = page.events.iter().filter(|e| {
            let end = e.kind == crate::model::event::EventKind::Terminated;
            end || e.workload.as_ref().is_none_or(|job| job.as_str() != BATCH_JOB)
        });
        let lines: Vec<String> = wanted.map(|e| follow::line(e, follow::now(), paint)).collect();
        self.events.extend(lines.iter().cloned());
        while self.events.len() > KEPT_EVENTS {
            self.events.pop_front();
        }
        self.view.events = self.events.iter().cloned().collect();
        Ok(lines)
    }

    pub fn look(&mut self, agent: &mut Agent) -> Result<(), CliError> {
        let list: AllocList = agent.get("/v1/allocs")?;
        let (batch, services): (Vec<AllocRow>, Vec<AllocRow>) =
            list.allocs.into_iter().partition(|a| a.job == BATCH_JOB);
        self.batch_runs = batch.iter().any(|a| !a.is_over());
        let mut rows = Vec::new();
        let newest = batch.len().saturating_sub(SHOWN_BATCH);
        for (at, alloc) in batch.iter().enumerate() {
            let fresh = alloc.is_over() && !self.counted.contains(&alloc.id);
            if at < newest && !fresh {
                continue;
            }
            let stats: StatsReply = agent.get(&format!("/v1/allocs/{}/stats", alloc.id))?;
            if fresh {
                self.count(alloc, &stats);
            }
            if at >= newest {
                self.rows(alloc, &stats, &mut rows);
            }
        }
        let mut all = Vec::new();
        for alloc in &services {
            let stats: StatsReply = agent.get(&format!("/v1/allocs/{}/stats", alloc.id))?;
            self.rows(alloc, &stats, &mut all);
        }
        all.extend(rows);
        self.view.rows = all;
        Ok(())
    }

    fn count(&mut self, alloc: &AllocRow, stats: &StatsReply) {
        self.counted.insert(alloc.id.clone());
        let Batches { tasks, done, cpu_ns, peak } = &mut self.view.batches;
        for task in stats.tasks.values() {
            *tasks += 1;
            *done += 1;
            *cpu_ns = match (*cpu_ns, task.usage.cpu_usage_ns()) {
                (Some(a), Some(b)) => Some(a + b),
                (a, b) => a.or(b),
            };
            *peak = (*peak).max(task.usage.memory_peak_bytes());
        }
    }

    fn rows(&mut self, alloc: &AllocRow, stats: &StatsReply, rows: &mut Vec<Row>) {
        for (name, task) in &alloc.tasks {
            let empty = TaskStats::default();
            let now = stats.tasks.get(name).unwrap_or(&empty);
            let key = (alloc.id.clone(), name.clone());
            let (cpu_cores, throttled) = if task.state == "running" { self.rates(key, now) } else { (None, None) };
            let usage = &now.usage;
            let (working_set, peak) = match self.view.measured {
                MeasuredBy::Cgroup => {
                    (usage.memory_working_set_bytes(), usage.memory_peak_bytes().or(usage.memory_sampled_peak_bytes()))
                }
                MeasuredBy::Process => (usage.memory_rss_bytes(), usage.max_rss_bytes()),
            };
            rows.push(Row {
                alloc: alloc.short().to_owned(),
                task: safe(name),
                state: task.state.clone(),
                cpu_cores,
                cpu_ns: usage.cpu_usage_ns(),
                throttled,
                working_set,
                limit: usage.memory_limit_bytes(),
                peak,
                restarts: task.restarts,
                last_exit: task.last_exit.as_ref().map(|e| e.outcome.as_str().to_owned()),
            });
        }
    }

    /// Cores in use and the share of throttled periods, between the last two readings that differ.
    fn rates(&mut self, key: (String, String), now: &TaskStats) -> (Option<f64>, Option<f64>) {
        let Some(at) = now.sampled_at else { return (None, None) };
        let reading = Reading { at, usage: now.usage.clone() };
        let entry = self.readings.entry(key).or_insert_with(|| (reading.clone(), None));
        if entry.0.at < reading.at {
            *entry = (reading, Some(entry.0.clone()));
        }
        let (new, Some(old)) = (&entry.0, &entry.1) else { return (None, None) };
        rates(old, new)
    }
}

#[allow(clippy::cast_precision_loss)] // for the eye
fn rates(old: &Reading, new: &Reading) -> (Option<f64>, Option<f64>) {
    let delta = |get: fn(&Usage) -> Option<u64>| get(&new.usage)?.checked_sub(get(&old.usage)?);
    let time = new.at.since(old.at).0;
    let cores = delta(|u| u.cpu_usage_ns()).filter(|_| time > 0).map(|ns| ns as f64 / time as f64);
    // While it rests there are no periods, and no share of them.
    let periods = delta(|u| u.cpu_cfs_periods()).filter(|p| *p > 0);
    let throttled = periods.zip(delta(|u| u.cpu_cfs_throttled_periods())).map(|(all, some)| some as f64 / all as f64);
    (cores, throttled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::usage::Field;

    fn reading(at_ms: u64, cpu_ms: u64, periods: Option<(u64, u64)>) -> Reading {
        let mut usage = Usage::from([(Field::cpu_usage_ns, cpu_ms * 1_000_000)]);
        usage.set(Field::cpu_cfs_periods, periods.map(|p| p.0));
        usage.set(Field::cpu_cfs_throttled_periods, periods.map(|p| p.1));
        Reading { at: Timestamp(at_ms * 1_000_000), usage }
    }

    #[test]
    fn rates_are_differences_of_two_readings() {
        let (cores, throttled) = rates(&reading(0, 0, Some((0, 0))), &reading(1000, 300, Some((10, 9))));
        assert_eq!((cores, throttled), (Some(0.3), Some(0.9)));
    }

    #[test]
    fn no_quota_no_share_and_no_time_no_rate() {
        assert_eq!(rates(&reading(0, 0, None), &reading(1000, 5, None)).1, None);
        assert_eq!(rates(&reading(5, 1, None), &reading(5, 2, None)).0, None);
        assert_eq!(rates(&reading(0, 9, None), &reading(1000, 2, None)).0, None, "a counter never falls");
        let idle = rates(&reading(0, 0, Some((5, 5))), &reading(1000, 0, Some((5, 5))));
        assert_eq!(idle, (Some(0.0), None));
    }
}
