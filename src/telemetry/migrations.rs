//! What became of the data of allocs whose replacements were to take it over.

use prometheus::{IntCounterVec, Registry};

use super::registered::counters;
use crate::model::metric::{MetricDesc, families};
use crate::model::units::Unit;
use crate::model::words;

families! {
pub static MIGRATIONS: MetricDesc = MetricDesc::counter(
    "allostat_migrations_total",
    Unit::None,
    "Replacements that were to take over the data of an alloc (sticky ephemeral_disk), by outcome.",
    &["outcome"],
)
.otlp("allostat.migrations", "{alloc}");
}

words! {
    /// What became of the data of an alloc when another one took its place.
    pub enum MigrationOutcome {
        Moved = "moved",
        /// There was none.
        Nothing = "nothing",
        /// Some of it was not moved, or none of it fetched.
        Failed = "failed",
    }
}

/// Concurrency: any thread; atomics.
pub struct Migrations(IntCounterVec);

impl Migrations {
    pub(super) fn new(registry: &Registry) -> Migrations {
        let all = counters(registry, &MIGRATIONS);
        // Born at 0, so that the first increment is seen as one.
        for outcome in MigrationOutcome::ALL {
            all.with_label_values(&[outcome.as_str()]);
        }
        Migrations(all)
    }
    pub fn ended(&self, outcome: MigrationOutcome) {
        self.0.with_label_values(&[outcome.as_str()]).inc();
    }
}
