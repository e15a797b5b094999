//! A new alloc takes over the data of an alloc of another agent: `allostat run --migrate-from PEER/ALLOC`.
//!
//! ```text
//! the old alloc runs, or an outage ─► retried until migrate.deadline ─┐
//! refused, hostile, too large, no room ───────────────────────────────┴─► on_failure: fail | start_empty
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::frame::{Hook, HookError, HookOutcome, HookPhase};
use super::subject::{AllocSpec, OfAlloc};
use crate::model::event::EventKind;
use crate::model::id::TaskName;
use crate::model::migration::{MigrationFailure, MigrationSource};
use crate::model::units::Nanos;
use crate::runner::artifacts::Cancellation;
use crate::runner::drivers::BoxFuture;
use crate::runner::migration::{
    FetchedData, MigrationError, MigrationScope, ReportInterruption, fetch, install, is_fetched,
};
use crate::telemetry::migrations::MigrationOutcome;

/// The setting has its own bound, in days: this is for what that does not cover.
const ENDS_WITHIN: Duration = Duration::from_secs(8 * 86_400);
/// Between attempts.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MOST: Duration = Duration::from_secs(15);

pub struct MigrateRemoteHook;

impl Hook<OfAlloc> for MigrateRemoteHook {
    fn name(&self) -> &'static str {
        "migrate_remote"
    }
    fn after(&self) -> &'static [&'static str] {
        &["migrate"]
    }
    fn phases(&self) -> &'static [HookPhase] {
        &[HookPhase::Prerun]
    }
    fn deadline(&self, _: HookPhase) -> Duration {
        ENDS_WITHIN
    }
    fn run<'a>(&'a self, _: HookPhase, subject: &'a mut OfAlloc) -> BoxFuture<'a, Result<HookOutcome, HookError>> {
        Box::pin(async move {
            let (Some(source), Some(spec)) = (subject.migrate_from.clone(), &subject.spec) else {
                return Ok(HookOutcome::Again);
            };
            let began = Instant::now();
            let outcome = match take_over(subject, spec, &source).await {
                Ok((moved, data)) => {
                    let message = took_over(&source, moved, data, began.elapsed());
                    subject.events.push((EventKind::Migration, message));
                    MigrationOutcome::Moved
                }
                Err(NotMigrated { why, may_start_empty }) => {
                    subject.ctx.metrics.migrations.ended(MigrationOutcome::Failed);
                    let starts = may_start_empty && source.on_failure == MigrationFailure::StartEmpty;
                    let what = if starts { "its tasks start with empty directories" } else { "the alloc fails" };
                    let message = format!("migration failed: alloc {source}: {why}; {what}");
                    subject.events.push((EventKind::Migration, message.clone()));
                    if starts {
                        subject.migrate_from = None;
                        return Ok(HookOutcome::Again);
                    }
                    return Err(HookError::setup(message));
                }
            };
            subject.ctx.metrics.migrations.ended(outcome);
            subject.migrate_from = None;
            Ok(HookOutcome::Again)
        })
    }
}

fn took_over(source: &MigrationSource, moved: usize, data: Option<FetchedData>, took: Duration) -> String {
    let noun = if moved == 1 { "directory" } else { "directories" };
    let what = match data {
        Some(FetchedData { entries, bytes, resumed }) => {
            let interrupted = match resumed {
                0 => String::new(),
                1 => ", interrupted once".to_owned(),
                times => format!(", interrupted {times} times"),
            };
            let seconds = took.as_secs_f64();
            format!("{moved} {noun}, {entries} entries, {:.1} MiB in {seconds:.1} s{interrupted}", mib(bytes))
        }
        None => "it was received before the agent restarted".to_owned(),
    };
    format!("took over the data of alloc {source}: {what}")
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

struct NotMigrated {
    why: String,
    /// Nothing of the data is in its place.
    may_start_empty: bool,
}

impl NotMigrated {
    fn nothing(why: impl Into<String>) -> NotMigrated {
        NotMigrated { why: why.into(), may_start_empty: true }
    }
}

/// Dropped with the hook, it ends the transfer.
struct TransferGuard(Arc<Cancellation>);

impl Drop for TransferGuard {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// How many directories, and what was received. No data: an agent before this one received it.
async fn take_over(
    subject: &OfAlloc,
    spec: &AllocSpec,
    source: &MigrationSource,
) -> Result<(usize, Option<FetchedData>), NotMigrated> {
    let ctx = &subject.ctx;
    let tasks: Vec<(TaskName, Option<String>)> =
        spec.group().tasks.iter().map(|task| (task.name.clone(), task.user.clone())).collect();
    let names: Vec<TaskName> = tasks.iter().map(|(name, _)| name.clone()).collect();
    let cancel = TransferGuard(Arc::default());
    let due = source.submitted.unwrap_or(subject.began).plus(Nanos::from_duration(ctx.config.migration.deadline));
    let left = due.since(ctx.line.now()).as_duration();
    let scope = Arc::new(MigrationScope {
        config: ctx.config.migration.clone(),
        alloc_dir: ctx.data_dir.alloc(&subject.id),
        tasks: names.clone(),
        cancelled: Arc::clone(&cancel.0),
        until: Instant::now() + left,
        on_interruption: interruption_events(spec, source),
    });
    let (data_dir, id) = (Arc::clone(&ctx.data_dir), subject.id.clone());
    let built = ctx.blocking.block(move || data_dir.build_to_take_over(&id, &names)).await;
    let built = built.map_err(NotMigrated::nothing)?;
    built.map_err(|e| NotMigrated::nothing(format!("cannot make its directories: {e}")))?;
    let data = if is_fetched(&scope) { None } else { Some(fetched(subject, spec, source, &scope).await?) };
    let placed = Arc::clone(&scope);
    let (data_dir, id) = (Arc::clone(&ctx.data_dir), subject.id.clone());
    let work = move || {
        let moved = install(&placed)?;
        for (name, user) in &tasks {
            super::migrate::give(&data_dir, &id, &[name.as_str(), "local"], user.as_deref());
        }
        Ok(moved)
    };
    let half = |why: String| NotMigrated { why, may_start_empty: false };
    // Renames and a sync: not behind the transfers of other allocs.
    let moved = ctx.removals.block(work).await.and_then(|moved| moved).map_err(half)?;
    Ok((moved, data))
}

/// Reports that a transfer broke off and goes on.
fn interruption_events(spec: &AllocSpec, source: &MigrationSource) -> ReportInterruption {
    let (emit, source) = (Arc::clone(&spec.emit), source.clone());
    Box::new(move |bytes, why| {
        let came = mib(bytes);
        emit(
            EventKind::Migration,
            format!("migration of alloc {source} was interrupted after {came:.1} MiB: {why}; it goes on from there"),
        );
    })
}

/// Tries until it is there, or cannot come.
async fn fetched(
    subject: &OfAlloc,
    spec: &AllocSpec,
    source: &MigrationSource,
    scope: &Arc<MigrationScope>,
) -> Result<FetchedData, NotMigrated> {
    (spec.emit)(EventKind::Migration, format!("migrating the data of alloc {source}"));
    let (mut pause, mut last) = (RETRY_FIRST, String::new());
    loop {
        let (of, on) = (source.clone(), Arc::clone(scope));
        let done = subject.ctx.migrations.block(move || fetch(&of, &on)).await.map_err(NotMigrated::nothing)?;
        let why = match done {
            Ok(data) => return Ok(data),
            Err(MigrationError::Final(why)) => return Err(NotMigrated::nothing(why)),
            Err(MigrationError::Cancelled) => return Err(NotMigrated::nothing("cancelled")),
            Err(MigrationError::Retry(why)) => why,
        };
        let left = scope.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(NotMigrated::nothing(format!("not done within migrate.deadline: {why}")));
        }
        if why != last {
            (spec.emit)(EventKind::Migration, format!("migration of alloc {source} waits: {why}; retrying"));
            last = why;
        }
        tokio::time::sleep(pause.min(left)).await;
        pause = (pause * 2).min(RETRY_MOST);
    }
}
