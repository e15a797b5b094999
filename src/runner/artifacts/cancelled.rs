//! Cancels a download: from the task to the thread that blocks on it.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use crate::runner::wait_ends::{Ends, EndsWith};

/// Cancellation of a download. Concurrency: set once, from any thread.
#[derive(Debug, Default)]
pub struct Cancellation {
    is: AtomicBool,
    notify: Notify,
}

impl Cancellation {
    pub fn set(&self) {
        self.is.store(true, Ordering::Release);
        self.notify.notify_waiters();
        self.notify.notify_one();
    }
    pub fn is(&self) -> bool {
        self.is.load(Ordering::Acquire)
    }
    /// Returns when it is set.
    pub async fn wait(&self) {
        while !self.is() {
            // `set` leaves a permit for a later caller.
            self.notify.notified().ends_with(Ends::Sender).await;
        }
    }
}
