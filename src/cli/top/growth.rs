//! How fast the memory of each task grows, by the hour that the agent keeps: `GET /v1/history/series`.

use std::time::{Duration, Instant};

use serde::Deserialize;

use super::rates::GrowthByTask;
use crate::cli::connect::AgentConnection;

/// An hour does not change in a second.
const EACH: Duration = Duration::from_secs(30);

#[derive(Debug, Deserialize)]
struct SeriesReply {
    tasks: Vec<SeriesRow>,
}

#[derive(Debug, Deserialize)]
struct SeriesRow {
    alloc_id: String,
    task: String,
    memory_growth_bytes_per_hour: Option<f64>,
}

/// When it was asked for last.
#[derive(Debug, Default)]
pub struct GrowthFeed(Option<Instant>);

impl GrowthFeed {
    /// `None`: it was asked for a moment ago, or this agent keeps no hour.
    pub fn poll(&mut self, agent: &mut AgentConnection) -> Option<GrowthByTask> {
        if self.0.is_some_and(|requested_at| requested_at.elapsed() < EACH) {
            return None;
        }
        self.0 = Some(Instant::now());
        let reply: SeriesReply = agent.get("/v1/history/series").ok()?;
        Some(by_task(reply))
    }
}

fn by_task(reply: SeriesReply) -> GrowthByTask {
    let growth = |row: SeriesRow| Some(((row.alloc_id, row.task), row.memory_growth_bytes_per_hour?));
    reply.tasks.into_iter().filter_map(growth).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_without_growth_in_the_answer_has_none() {
        let body = r#"{"interval_ns":1,"tasks":[{"alloc_id":"a","task":"t","memory_growth_bytes_per_hour":-1.5e6,"cpu_cores":[null]},
                       {"alloc_id":"b","task":"t"}]}"#;
        let growth = by_task(serde_json::from_str(body).unwrap());
        assert_eq!(growth, GrowthByTask::from([(("a".to_owned(), "t".to_owned()), -1.5e6)]));
    }
}
