//! Port searches take a thread for up to seconds: one at a time, in a place of their own. So they occupy none of the
//! places that all other hooks need.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{NAMED, PortKeeper};
use crate::runner::places::BlockingPool;

/// Limit of the look-up of programs, with its wait for the place. On a host with many processes a port's program has no
/// name then.
const NAMING: Duration = Duration::from_secs(1);

pub struct Searches {
    /// For tests of ports, which exclude one another anyway.
    tests: BlockingPool,
    /// For look-ups of programs: no test waits behind them.
    names: BlockingPool,
}

impl Searches {
    pub fn new() -> Searches {
        Searches { tests: BlockingPool::new(1), names: BlockingPool::new(1) }
    }
}

impl PortKeeper {
    /// Runs tests of ports on a thread, one caller at a time. They go on if the caller stops waiting.
    ///
    /// Errors: they panicked, or the runtime is shutting down.
    pub async fn search<T: Send + 'static>(
        self: &Arc<Self>,
        tests: impl FnOnce(&Arc<PortKeeper>) -> T + Send + 'static,
    ) -> Result<T, String> {
        let keeper = Arc::clone(self);
        self.searches.tests.block(move || tests(&keeper)).await
    }

    /// The programs that use ports at these addresses. `None`: not found in time, or not looked up: only those of the
    /// first few ports are.
    pub async fn programs(self: &Arc<Self>, at: Vec<SocketAddr>) -> Vec<Option<String>> {
        let unnamed = vec![None; at.len()];
        if at.is_empty() {
            return unnamed;
        }
        let (until, in_use) = (Instant::now() + NAMING, Arc::clone(&self.in_use));
        let look_up = move || {
            let named = at.iter().take(NAMED).map(|at| in_use.user(*at, until));
            named.chain(at.iter().skip(NAMED).map(|_| None)).collect()
        };
        match tokio::time::timeout(NAMING, self.searches.names.block(look_up)).await {
            Ok(Ok(named)) => named,
            Ok(Err(_)) | Err(_) => unnamed,
        }
    }
}
