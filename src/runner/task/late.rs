//! Abandoned tasks: dead in the records, perhaps still running. Each agent kills them until no process is left. Until
//! then their alloc is neither restarted nor removed.

use std::sync::Arc;
use std::time::Duration;

use super::launch::{LaunchProgress, Launching, found};
use crate::runner::alloc::{Alloc, EndedAlloc};
use crate::runner::drivers::call::{self, RunningAttempt};
use crate::runner::wait_ends::{Ends, EndsWith};

/// Maximum pause between tries.
const LATE_PAUSE: Duration = Duration::from_secs(60);

/// Takes over the abandoned tasks that an earlier agent recorded for an alloc.
pub fn take_over(alloc: &Arc<Alloc>) {
    for at in (0..alloc.group().tasks.len()).filter(|at| alloc.may_run(*at)) {
        alloc.ctx.see_to(clear(Arc::clone(alloc), at, None, None));
    }
}

/// Returns when no process of the task is left. `launching`: a start that may still succeed.
pub(super) async fn clear(alloc: Arc<Alloc>, at: usize, attempt: Option<RunningAttempt>, launching: Option<Launching>) {
    let mut attempt = match launching {
        // Or with the driver's response; nothing else waits for this.
        Some(mut launching) => match (&mut launching.0).ends_with(Ends::Agent).await {
            Ok(Ok(LaunchProgress::Runs(attempt, _) | LaunchProgress::Found(attempt))) => Some(attempt),
            // Cancelled or refused: nothing runs.
            Ok(Err(failure)) if !failure.may_run => return over(&alloc, at).await,
            Ok(Ok(LaunchProgress::Ready(_) | LaunchProgress::Lost(_)) | Err(_)) | Err(_) => attempt,
        },
        None => attempt,
    };
    let (mut pause, mut text) = (call::KILL, String::new());
    while let Err(why) = end(&alloc, at, &mut attempt, pause).await {
        if why != text {
            tracing::warn!(alloc_id = %alloc.id, task = %alloc.task(at).name, why, "abandoned task may still run");
            text = why;
        }
        pause = (pause * 2).min(LATE_PAUSE);
    }
    over(&alloc, at).await;
}

/// One try, then waits `pause` or for a request if it failed. Errors: why the task may still run.
async fn end(
    alloc: &Arc<Alloc>,
    at: usize,
    attempt: &mut Option<RunningAttempt>,
    pause: Duration,
) -> Result<(), String> {
    let again = tokio::time::Instant::now() + pause;
    let tried = async {
        if attempt.is_none() {
            let Some(handle) = alloc.handle(at) else { return Ok(()) };
            *attempt = found(alloc, at, handle).await?;
        }
        let Some(running) = attempt else { return Ok(()) };
        let killed = running.kill().await;
        match tokio::time::timeout(pause, running.wait(alloc.ctx.clock.as_ref())).await {
            Ok(Ok(_)) => running.destroy().await.map_err(|e| e.to_string()),
            // The driver died while it waited: the task is recovered from it.
            Ok(Err(error)) => {
                *attempt = None;
                Err(error.to_string())
            }
            Err(_) => {
                Err(killed.map_or_else(|e| e.to_string(), |()| "it was killed by force and still runs".to_owned()))
            }
        }
    };
    let woken = async {
        alloc.woken(at).await;
        Err("a new try was requested".to_owned())
    };
    let result = tokio::select! { biased; result = tried => result, again = woken => return again };
    if result.is_err() {
        tokio::select! { () = tokio::time::sleep_until(again) => {}, () = alloc.woken(at) => {} }
    }
    result
}

/// Its alloc may have ended long ago, and could not clean up what this task held.
async fn over(alloc: &Arc<Alloc>, at: usize) {
    if let Some(ended) = EndedAlloc::of(alloc) {
        ended.clear().await;
    }
    alloc.mark_exited(at);
    alloc.free_devices(at);
}
