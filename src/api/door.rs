//! What stands before the rooms are furnished: the servers answer from the moment that they are bound, and say so.

use std::sync::{Arc, OnceLock};

use super::{Config, Context, Gate};

/// Concurrency: any thread; opened once.
pub struct Door {
    pub config: Config,
    pub(super) gate: Gate,
    context: OnceLock<Arc<Context>>,
}

impl Door {
    /// Closed: `/healthz` answers, everything else says that the agent is not ready.
    pub fn new(config: Config, gate: Gate) -> Arc<Door> {
        Arc::new(Door { config, gate, context: OnceLock::new() })
    }
    /// What ran before is restored: from now on everything is answered.
    pub fn open(&self, context: Arc<Context>) {
        let _ = self.context.set(context);
    }
    pub(super) fn context(&self) -> Option<&Arc<Context>> {
        self.context.get()
    }
}
