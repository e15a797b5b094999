//! What stands before the rooms are furnished: the servers answer from the moment that they are bound, and say so.

use std::sync::{Arc, OnceLock};

use super::http::Origin;
use super::response_budget::UnsentBudget;
use super::{ApiContext, Config, Gate};

/// Concurrency: any thread; opened once.
pub struct ServerState {
    pub config: Config,
    pub(super) gate: Gate,
    context: OnceLock<Arc<ApiContext>>,
    readers: Arc<UnsentBudget>,
    operators: Arc<UnsentBudget>,
}

impl ServerState {
    /// Closed: `/healthz` answers, everything else says that the agent is not ready.
    pub fn new(config: Config, gate: Gate) -> Arc<ServerState> {
        Arc::new(ServerState {
            config,
            gate,
            context: OnceLock::new(),
            readers: Arc::default(),
            operators: Arc::default(),
        })
    }
    /// What ran before is restored: from now on everything is answered.
    pub fn open(&self, context: Arc<ApiContext>) {
        let _ = self.context.set(context);
    }
    /// What its answers count in.
    pub(super) fn unsent(&self, origin: Origin) -> &Arc<UnsentBudget> {
        if origin.may_act() { &self.operators } else { &self.readers }
    }
    pub(super) fn context(&self) -> Option<&Arc<ApiContext>> {
        self.context.get()
    }
}
