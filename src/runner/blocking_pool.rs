//! Limits concurrent blocking work, and lets hooks wait for it outside of their deadline.

use std::cell::Cell;

use tokio::sync::Semaphore;

use crate::runner::wait_ends::{Ends, EndsWith};

/// Limits the number of concurrent blocking calls. Later callers wait in line; a caller that stops waiting leaves the
/// line.
pub struct BlockingPool(Semaphore);

impl BlockingPool {
    pub fn new(places: usize) -> BlockingPool {
        BlockingPool(Semaphore::new(places))
    }

    /// Runs blocking work on a thread for that. Errors: it panicked, or the runtime is shutting down.
    pub async fn block<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
        let _place = in_line(self.0.acquire()).ends_with(Ends::Permit).await.map_err(|e| e.to_string())?;
        tokio::task::spawn_blocking(work).await.map_err(|e| format!("an internal error: {e}"))
    }
}

tokio::task_local! {
    /// Whether the running hook waits for a permit that others hold.
    pub static IN_LINE: Cell<bool>;
}

/// Waits for a permit. The wait does not count for the deadline of a hook, which begins afterwards. So with ten
/// thousand hooks at once each takes longer, and none fails.
pub async fn in_line<T>(place: impl Future<Output = T>) -> T {
    struct InLineGuard;
    impl Drop for InLineGuard {
        fn drop(&mut self) {
            let _ = IN_LINE.try_with(|stands| stands.set(false));
        }
    }
    // Outside of a hook there is no such flag.
    let _ = IN_LINE.try_with(|stands| stands.set(true));
    let _stands = InLineGuard;
    place.ends_with(Ends::Permit).await
}
