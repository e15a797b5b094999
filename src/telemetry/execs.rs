//! What is counted of commands that users run in tasks.

use prometheus::{IntCounterVec, Registry};

use super::registered::counters;
use crate::model::metric::{MetricDesc, families};
use crate::model::units::Unit;
use crate::model::words;

families! {
pub static EXEC_SESSIONS: MetricDesc = MetricDesc::counter(
    "allostat_exec_sessions_total",
    Unit::None,
    "Ended exec sessions by outcome (completed, failed to start, disconnected, unknown exit).",
    &["outcome"],
)
.otlp("allostat.exec.sessions", "{session}");
}

words! {
    /// How an exec session ended.
    pub enum ExecOutcome {
        /// The command ended by itself, with whatever exit code.
        Completed = "completed",
        /// It did not start.
        Failed = "failed",
        /// The client or the agent went first: it was killed.
        Disconnected = "disconnected",
        /// How it ended is not known.
        Unknown = "unknown",
    }
}

/// Concurrency: any thread.
pub struct ExecMetrics {
    total: IntCounterVec,
}

impl ExecMetrics {
    pub(super) fn new(registry: &Registry) -> ExecMetrics {
        let total = counters(registry, &EXEC_SESSIONS);
        for outcome in ExecOutcome::ALL {
            total.with_label_values(&[outcome.as_str()]);
        }
        ExecMetrics { total }
    }
    pub fn ended(&self, outcome: ExecOutcome) {
        self.total.with_label_values(&[outcome.as_str()]).inc();
    }
    pub fn count(&self, outcome: ExecOutcome) -> u64 {
        self.total.with_label_values(&[outcome.as_str()]).get()
    }
}
