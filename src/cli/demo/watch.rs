//! Reads the API and keeps what the screen shows.

use std::collections::{HashSet, VecDeque};

use super::screen::{BatchSums, DemoScene};
use crate::cli::api_types::EventPage;
use crate::cli::connect::AgentConnection;
use crate::cli::exit::CliError;
use crate::cli::follow;
use crate::cli::output::{Paint, Style};
use crate::cli::top::{RateFrame, RateRow, TaskFeed};
use crate::model::event::EventKind;

const BATCH_JOB: &str = "short";
/// Tasks of the batch that stand in the table: the newest.
const SHOWN_BATCH: usize = 5;
const MAX_EVENTS: usize = 200;

pub struct DemoWatch {
    pub scene: DemoScene,
    since: u64,
    events: VecDeque<String>,
    /// Ended batch tasks that are counted.
    counted: HashSet<(String, String)>,
    batch_runs: bool,
}

impl DemoWatch {
    pub fn new(head: Vec<(String, Style)>) -> DemoWatch {
        DemoWatch {
            scene: DemoScene { head, ..DemoScene::default() },
            since: 0,
            events: VecDeque::new(),
            counted: HashSet::new(),
            batch_runs: false,
        }
    }

    pub fn batch_runs(&self) -> bool {
        self.batch_runs
    }

    /// New events, as lines. Of the batch only the ends: they are many.
    pub fn events(&mut self, agent: &mut AgentConnection, paint: Paint) -> Result<Vec<String>, CliError> {
        let page: EventPage = agent.get(&format!("/v1/events?since={}", self.since))?;
        self.since = page.next;
        let selected = page.events.iter().filter(|event| {
            let is_end = event.kind == EventKind::Terminated;
            is_end || event.workload.as_ref().is_none_or(|job| job.as_str() != BATCH_JOB)
        });
        let lines: Vec<String> = selected.map(|event| follow::line(event, follow::now(), paint)).collect();
        self.events.extend(lines.iter().cloned());
        while self.events.len() > MAX_EVENTS {
            self.events.pop_front();
        }
        self.scene.events = self.events.iter().cloned().collect();
        Ok(lines)
    }

    pub fn refresh(&mut self, tasks: &mut TaskFeed) -> Result<(), CliError> {
        let frame = tasks.poll()?;
        self.take(frame);
        Ok(())
    }

    /// Counts the batch. Only its newest tasks stay in the table.
    fn take(&mut self, mut frame: RateFrame) {
        let is_batch = |row: &RateRow| row.workload == BATCH_JOB;
        self.batch_runs = frame.rows.iter().any(|row| is_batch(row) && !row.is_over());
        for row in frame.rows.iter().filter(|row| is_batch(row) && row.is_over()) {
            if self.counted.insert(row.key.clone()) {
                let BatchSums { done, cpu_seconds, peak } = &mut self.scene.batches;
                *done += 1;
                *cpu_seconds = match (*cpu_seconds, row.cpu_seconds) {
                    (Some(all), Some(one)) => Some(all + one),
                    (all, one) => all.or(one),
                };
                *peak = (*peak).max(row.memory_peak);
            }
        }
        let mut batch: Vec<_> = frame.rows.iter().filter(|row| is_batch(row)).map(|row| row.since).collect();
        batch.sort_unstable_by_key(|since| std::cmp::Reverse(*since));
        let oldest = batch.get(SHOWN_BATCH - 1).copied().flatten();
        let mut room = SHOWN_BATCH;
        frame.rows.retain(|row| {
            if !is_batch(row) {
                return true;
            }
            let is_shown = room > 0 && row.since >= oldest;
            room -= usize::from(is_shown);
            is_shown
        });
        self.scene.tasks = frame;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::top::testing::row;
    use crate::model::units::Timestamp;

    #[test]
    fn ended_tasks_of_the_batch_count_once_and_the_newest_five_are_shown() {
        let batch = |n: u64, state: &str| RateRow {
            key: (format!("alloc-{n}"), "t".into()),
            state: state.into(),
            since: Some(Timestamp(n)),
            cpu_seconds: Some(0.5),
            memory_peak: Some(n),
            ..row(&format!("short-{n}"), "managed", BATCH_JOB)
        };
        let frame = |last: &str| {
            let mut rows: Vec<RateRow> = (1..8).map(|n| batch(n, "dead")).collect();
            rows.extend([batch(8, last), row("web", "managed", "demo")]);
            RateFrame { rows, ..RateFrame::default() }
        };
        let mut watch = DemoWatch::new(Vec::new());
        watch.take(frame("running"));
        assert!(watch.batch_runs());
        assert_eq!(watch.scene.batches, BatchSums { done: 7, cpu_seconds: Some(3.5), peak: Some(7) });
        let shown: Vec<&str> = watch.scene.tasks.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(shown, ["short-4", "short-5", "short-6", "short-7", "short-8", "web"]);
        watch.take(frame("dead"));
        assert!(!watch.batch_runs());
        assert_eq!(watch.scene.batches, BatchSums { done: 8, cpu_seconds: Some(4.0), peak: Some(8) });
    }
}
