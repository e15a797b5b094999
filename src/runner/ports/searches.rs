//! Port searches take a thread for up to seconds: one at a time, in a place of their own. So they occupy none of the
//! places that all other hooks need.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::runner::blocking_pool::BlockingPool;

/// Number of ports whose programs are looked up and named.
pub const NAMED: usize = 3;
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

    /// Runs tests of ports on a thread, one caller at a time. They go on if the caller stops waiting.
    ///
    /// Errors: they panicked, or the runtime is shutting down.
    pub async fn test<T: Send + 'static>(&self, tests: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
        self.tests.block(tests).await
    }

    /// Looks up programs until a deadline, one caller at a time. `None`: not found in time, or not looked up: only
    /// those of the first few ports are.
    pub async fn programs(
        &self,
        at: Vec<SocketAddr>,
        program: impl Fn(SocketAddr, Instant) -> Option<String> + Send + 'static,
    ) -> Vec<Option<String>> {
        let unnamed = vec![None; at.len()];
        if at.is_empty() {
            return unnamed;
        }
        let until = Instant::now() + NAMING;
        let resolve = move || {
            let named = at.iter().take(NAMED).map(|at| program(*at, until));
            named.chain(at.iter().skip(NAMED).map(|_| None)).collect()
        };
        match tokio::time::timeout(NAMING, self.names.block(resolve)).await {
            Ok(Ok(named)) => named,
            Ok(Err(_)) | Err(_) => unnamed,
        }
    }
}
