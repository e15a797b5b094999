//! In a container the agent may be the first process: a process that loses its parent becomes its child, and no other
//! reaps it.

use std::time::Duration;

use crate::host::process;

/// Between two checks: a child that is a zombie at two of them has no parent that waits for it.
const REAPED: Duration = Duration::from_secs(2);

/// For as long as the agent runs.
pub async fn reap() {
    let mut adopted = process::AdoptedChildren::default();
    let mut pause = tokio::time::interval(REAPED);
    loop {
        pause.tick().await;
        match adopted.reap() {
            Ok(0) => {}
            Ok(reaped) => tracing::debug!(reaped, "processes that had lost their parent were reaped"),
            Err(error) => tracing::warn!(%error, "cannot reap orphaned processes"),
        }
    }
}
