//! The `artifact` stanzas of a task: fetched before its first start, once; a failed fetch is the restart policy's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use super::env::{context_of, inherited};
use super::frame::{Hook, HookError, HookOutcome, HookPhase};
use super::subject::OfTask;
use crate::jobspec::interpolate::Resolver;
use crate::model::artifact::{ArtifactSource, TaskArtifact, redacted};
use crate::model::event::EventKind;
use crate::runner::artifacts::{
    ArtifactError, ArtifactOrder, ArtifactOutcome, ArtifactScope, Cancellation, FetchProgress, FetchedArtifact, fetch,
};
use crate::runner::drivers::BoxFuture;
use crate::runner::persistence::datadir::TaskDirs;
use crate::runner::rendering::TaskPaths;

/// Each download, each clone and each silence has its own bound: this is for what none of them covers.
const ARTIFACTS_DEADLINE: Duration = Duration::from_secs(24 * 3600);

const REPORT_AFTER: Duration = Duration::from_secs(10);
const REPORTS_BEFORE_BACKOFF: u32 = 6;

pub struct ArtifactsHook;

impl Hook<OfTask> for ArtifactsHook {
    fn name(&self) -> &'static str {
        "artifact"
    }
    fn after(&self) -> &'static [&'static str] {
        &["validate", "task_dir", "devices"]
    }
    fn phases(&self) -> &'static [HookPhase] {
        &[HookPhase::Prestart]
    }
    fn deadline(&self, _: HookPhase) -> Duration {
        ARTIFACTS_DEADLINE
    }
    fn run<'a>(&'a self, _: HookPhase, subject: &'a mut OfTask) -> BoxFuture<'a, Result<HookOutcome, HookError>> {
        Box::pin(async move {
            if subject.task().artifacts.is_empty() {
                return Ok(HookOutcome::Again);
            }
            let metrics = Arc::clone(&subject.ctx.metrics);
            let orders = orders(subject)?;
            // A tmpfs loses them with the power.
            let in_memory = subject.ctx.config.secrets_in_memory;
            let is_retained = !in_memory || !orders.iter().any(|order| is_in_secrets(order, subject));
            let count = orders.len();
            let noun = if count == 1 { "artifact" } else { "artifacts" };
            let names: Vec<String> = orders.iter().map(|order| order.source.shown()).collect();
            let message = format!("downloading {count} {noun}: {}", names.join(", "));
            (subject.emit)(EventKind::DownloadingArtifacts, message, &[]);
            let began = Instant::now();
            let mut bytes = 0_u64;
            let data = subject.ctx.data_dir.alloc(&subject.alloc_id);
            for order in orders {
                // Dropped with this hook, and it ends the download.
                let cancel = DownloadGuard(Arc::default());
                let progress = Arc::new(FetchProgress::new(Arc::clone(&metrics)));
                let artifact_scope = scope(subject, Arc::clone(&cancel.0), Arc::clone(&progress));
                let (metrics, name) = (Arc::clone(&metrics), order.source.shown());
                let work = move || counted(&order, &artifact_scope, &metrics);
                let emit = &subject.emit;
                let report = || {
                    let details = [("bytes", progress.received().to_string())];
                    emit(EventKind::DownloadingArtifacts, progress.shown(&name), &details);
                };
                let done = reporting(subject.ctx.artifacts.block(work), report).await.map_err(HookError::setup)?;
                bytes = bytes.saturating_add(done.map_err(failed)?.bytes);
            }
            // It is never fetched again: so it must be there after a loss of power.
            let synced = move || {
                rustix::fs::open(&data, rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty())
                    .and_then(rustix::fs::syncfs)
            };
            let synced = subject.ctx.artifacts.block(synced).await.map_err(HookError::setup)?;
            synced.map_err(|e| failed_because(format!("cannot write them to disk: {e}")))?;
            let seconds = began.elapsed().as_secs_f64();
            let rate = format!("{:.1} MiB in {seconds:.1} s", bytes as f64 / f64::from(1 << 20));
            let details = [("bytes", bytes.to_string()), ("seconds", format!("{seconds:.3}"))];
            (subject.emit)(EventKind::DownloadingArtifacts, format!("downloaded {count} {noun}: {rate}"), &details);
            Ok(if is_retained { HookOutcome::Done(json!({ "bytes": bytes })) } else { HookOutcome::Again })
        })
    }
}

/// Reports after 10 s, for a minute as often, and then after twice as long each time: a task retains its last events
/// alone.
async fn reporting<T>(fetching: impl Future<Output = T>, report: impl Fn()) -> T {
    let (mut pause, mut reported) = (REPORT_AFTER, 0_u32);
    tokio::pin!(fetching);
    loop {
        match tokio::time::timeout(pause, fetching.as_mut()).await {
            Ok(fetched) => return fetched,
            Err(_) => {
                report();
                reported += 1;
                pause = if reported < REPORTS_BEFORE_BACKOFF { pause } else { pause.saturating_mul(2) };
            }
        }
    }
}

struct DownloadGuard(Arc<Cancellation>);

impl Drop for DownloadGuard {
    fn drop(&mut self) {
        self.0.set();
    }
}

fn counted(
    order: &ArtifactOrder,
    scope: &ArtifactScope,
    metrics: &crate::telemetry::Metrics,
) -> Result<FetchedArtifact, HookFault> {
    let began = Instant::now();
    let done = fetch(order, scope);
    let outcome = done.as_ref().err().map_or(ArtifactOutcome::Success, |error| error.outcome);
    metrics.artifacts.fetched(outcome, done.as_ref().map_or(0, |fetched| fetched.bytes), began.elapsed());
    done.map_err(|error| HookFault { source: order.source.shown(), error })
}

struct HookFault {
    source: String,
    error: ArtifactError,
}

fn failed(HookFault { source, error }: HookFault) -> HookError {
    failed_because(format!("artifact {source}: {}", error.message))
}

fn failed_because(message: String) -> HookError {
    HookError { kind: EventKind::ArtifactFailed, message, recoverable: true }
}

/// Trying again changes nothing.
fn invalid(message: String) -> HookError {
    HookError { recoverable: false, ..failed_because(message) }
}

fn scope(subject: &OfTask, cancelled: Arc<Cancellation>, progress: Arc<FetchProgress>) -> ArtifactScope {
    let owner = subject.account.as_ref().filter(|_| rustix::process::geteuid().is_root());
    let inherited = |name: &str| subject.ctx.inherited.get(name).cloned();
    let home = subject.account.as_ref().map(|account| account.home.clone()).or_else(|| inherited("HOME"));
    ArtifactScope {
        config: subject.ctx.config.artifact.clone(),
        alloc_dir: subject.ctx.data_dir.alloc(&subject.alloc_id),
        task: subject.task().name.to_string(),
        owner: owner.map(|account| (account.uid, account.gid)),
        home: home.unwrap_or_else(|| "/".to_owned()),
        path: inherited("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".to_owned()),
        cancelled,
        progress,
    }
}

fn orders(subject: &OfTask) -> Result<Vec<ArtifactOrder>, HookError> {
    let Some(dirs) = subject.dirs.clone() else {
        return Err(HookError::setup("its directories are not there yet"));
    };
    let Some(driver) = subject.ctx.drivers.get(subject.task().driver.as_str()) else {
        return Err(HookError::setup("its driver is not there"));
    };
    let seen = driver.seen(&dirs);
    let inherited = inherited(subject, driver.as_ref());
    let resolver = context_of(subject, &seen, &inherited, Resolver::new);
    let places = TaskPaths { dirs, seen };
    let of = |at: usize, artifact: &TaskArtifact| {
        order(artifact, &places, &resolver)
            .map_err(|why| invalid(format!("artifact[{at}] {}: {why}", redacted(&artifact.source))))
    };
    subject.task().artifacts.iter().enumerate().map(|(at, artifact)| of(at, artifact)).collect()
}

fn is_in_secrets(order: &ArtifactOrder, subject: &OfTask) -> bool {
    let below = |dirs: &TaskDirs| {
        order.components.iter().fold(order.root.clone(), |path, name| path.join(name)).starts_with(&dirs.secrets)
    };
    subject.dirs.as_ref().is_some_and(below)
}

fn order(artifact: &TaskArtifact, places: &TaskPaths, resolver: &Resolver) -> Result<ArtifactOrder, String> {
    let text = |field: &str, template: &str| resolver.resolve(field, template).map_err(|e| e.to_string());
    let all = |stanza: &str, of: &std::collections::BTreeMap<String, String>| {
        let one = |(key, value): (&String, &String)| Ok((key.clone(), text(&format!("{stanza}.{key}"), value)?));
        of.iter().map(one).collect::<Result<Vec<_>, String>>()
    };
    let options = all("options", &artifact.options)?.into_iter().collect();
    let source = ArtifactSource::parse(&text("source", &artifact.source)?, &options)?;
    let destination = text("destination", &artifact.destination)?;
    let found = places.locate(&destination);
    let (root, components) = found.map_err(|why| format!("destination {destination}: {why}"))?;
    Ok(ArtifactOrder {
        source,
        mode: artifact.mode,
        headers: all("headers", &artifact.headers)?,
        insecure: artifact.insecure,
        root,
        components,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::time::{Instant, sleep};

    use super::*;

    /// Promise (Task groups and lifecycle order): A lasting download has events from 10 s on, fewer than 20 in a day
    #[tokio::test(start_paused = true)]
    async fn lasting_download_is_reported_after_ten_seconds_then_ever_less_often() {
        let (began, times) = (Instant::now(), Mutex::new(Vec::new()));
        let report = || times.lock().unwrap().push(began.elapsed().as_secs());
        reporting(sleep(ARTIFACTS_DEADLINE), report).await;
        let times = times.into_inner().unwrap();
        assert_eq!(times[..9], [10, 20, 30, 40, 50, 60, 80, 120, 200]);
        assert!(times.len() < 20, "{times:?}");
        let reported = Mutex::new(0);
        assert_eq!(reporting(async { 7 }, || *reported.lock().unwrap() += 1).await, 7);
        assert_eq!(reported.into_inner().unwrap(), 0, "a short one");
    }
}
