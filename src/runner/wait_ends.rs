//! What ends a wait that has no deadline of its own. Says it in the code, so that `tests/house` can demand it of each
//! `.await` of the runner, and does nothing at run time.

/// What ends a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// The deadline of the operation that it is a part of.
    Deadline,
    /// Its caller, which drops it: a branch of a `select`, a guard, a test's fault.
    Caller,
    /// The end of the process, container, stream or attempt that it is about, however long that runs.
    Subject,
    /// The sender of a channel, which always sends or is dropped.
    Sender,
    /// A holder of the permit or lock; each of them has a deadline.
    Permit,
    /// A response of the local disk.
    Disk,
    /// The agent, at its shutdown.
    Agent,
}

/// Waits without a deadline of their own.
pub trait EndsWith: Future + Sized {
    fn ends_with(self, _: Ends) -> Self {
        self
    }
}

impl<F: Future> EndsWith for F {}

/// Starts work that no owner holds.
pub fn spawn_until<F>(_: Ends, work: F) -> tokio::task::JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    tokio::spawn(work)
}
