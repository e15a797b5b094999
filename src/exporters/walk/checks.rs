//! Health checks of managed allocs, row by row: those that are active.

use super::lifecycle::{CHECK_DURATION, CHECK_FAILURES, CHECK_RESTARTS, CHECK_STATUS};
use super::listener::{Families, Listener, SINGLE, by, int, plain};
use super::rows::{Rows, Walk};
use super::subject::RowSubject;
use crate::board::services::CheckView;
use crate::model::metric::Value;
use crate::model::service::CheckStatus;

pub static CHECK_ROWS: Rows = Rows::new(
    "allostat_check_",
    &["alloc_id", "workload", "service_name", "check"],
    |walk| walk.checks.len(),
    |walk, row| {
        let (alloc, check) = walk.checks[row];
        RowSubject {
            labels: vec![
                ("alloc_id", alloc.alloc_id.as_str()),
                ("workload", alloc.job.as_str()),
                ("service_name", &check.service),
                ("check", &check.name),
            ],
            ..RowSubject::default()
        }
    },
);

pub(super) fn walk(out: &mut Families<'_, impl Listener>, walk: &Walk<'_>) {
    let checks = || walk.checks.iter().map(|(_, check)| *check);
    let statuses = by("status", CheckStatus::ALL.map(CheckStatus::as_str));
    let status = |check: &CheckView| CheckStatus::ALL.map(|status| int(u64::from(check.status == status)));
    out.all(&CHECK_STATUS, &CHECK_ROWS, &statuses, checks().map(status));
    let took = |check: &CheckView| check.last_run.and_then(|run| plain(Value::Nanos(run.took.0)));
    out.all(&CHECK_DURATION, &CHECK_ROWS, SINGLE, checks().map(|check| [took(check)]));
    out.all(&CHECK_FAILURES, &CHECK_ROWS, SINGLE, checks().map(|check| [int(check.failures)]));
    out.all(&CHECK_RESTARTS, &CHECK_ROWS, SINGLE, checks().map(|check| [int(check.restarts)]));
}
