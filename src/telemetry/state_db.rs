//! Families of the state database.

use crate::model::metric::{Kind, MetricDesc, families};
use crate::model::units::Unit;

families! {
pub static STATE_DB_WRITES: MetricDesc = MetricDesc::counter(
    "allostat_state_db_writes_total",
    Unit::None,
    "Durable commits to the state database; a commit may hold many records.",
    &[],
)
.otlp("allostat.state_db.writes", "{write}");

pub static STATE_DB_DEDUPED: MetricDesc = MetricDesc::counter(
    "allostat_state_db_writes_deduped_total",
    Unit::None,
    "Records not written because the state database already holds the same bytes.",
    &[],
)
.otlp("allostat.state_db.writes.deduped", "{write}");

pub static STATE_DB_FAILURES: MetricDesc = MetricDesc::counter(
    "allostat_state_db_write_failures_total",
    Unit::None,
    "Failed commits to the state database, such as a full disk or an I/O error.",
    &[],
)
.otlp("allostat.state_db.write_failures", "{write}");

pub static STATE_DB_DURATION: MetricDesc = MetricDesc::new(
    "allostat_state_db_write_duration_seconds",
    Kind::Histogram,
    Unit::Seconds,
    "Duration of a durable commit to the state database, including the sync to disk.",
    &[],
)
.otlp("allostat.state_db.write.duration", "s");

pub static STATE_DB_SIZE: MetricDesc =
    MetricDesc::gauge("allostat_state_db_size_bytes", Unit::Bytes, "Size of the state database on disk.", &[])
        .absent_when("the state is kept in memory only")
        .otlp("allostat.state_db.size", "By");

pub static STATE_DB_QUARANTINED: MetricDesc = MetricDesc::gauge(
    "allostat_state_db_quarantined_records",
    Unit::None,
    "Unreadable state records set aside at this or an earlier start; `allostat node` lists them.",
    &[],
)
.absent_when("the agent has not finished recovery")
.otlp("allostat.state_db.quarantined", "{record}");
}
