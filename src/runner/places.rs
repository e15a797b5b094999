//! Few at once: what may block, so that it makes no crowd of threads; and the line before their places.

use std::cell::Cell;

use tokio::sync::Semaphore;

/// Limits the number of concurrent blocking calls. Later callers wait in line; a caller that stops waiting leaves the
/// line.
pub struct BlockingPool(Semaphore);

impl BlockingPool {
    pub fn new(places: usize) -> BlockingPool {
        BlockingPool(Semaphore::new(places))
    }

    /// Does what may block where that disturbs nobody. Errors: it panicked, or the runtime is shutting down.
    pub async fn block<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
        // Ends: whoever has a place leaves it, at the deadline of its hook or call at the latest, or its caller gives up.
        let _place = in_line(self.0.acquire()).await.map_err(|e| e.to_string())?;
        tokio::task::spawn_blocking(work).await.map_err(|e| format!("an internal error: {e}"))
    }
}

tokio::task_local! {
    /// Whether the hook that runs stands in line for a place that others have.
    pub static IN_LINE: Cell<bool>;
}

/// Waits for one of few places. That is not a hook's own doing: its deadline begins when it has one, so that ten thousand at once
/// take their time and none of them fails.
pub async fn in_line<T>(place: impl Future<Output = T>) -> T {
    struct Stands;
    impl Drop for Stands {
        fn drop(&mut self) {
            let _ = IN_LINE.try_with(|stands| stands.set(false));
        }
    }
    // Whoever waits for no hook's sake has none to tell.
    let _ = IN_LINE.try_with(|stands| stands.set(true));
    let _stands = Stands;
    // Ends: whoever has a place leaves it, at its own deadline at the latest, or the caller gives up.
    place.await
}
