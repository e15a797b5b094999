//! What happens around allocs and tasks. A new hook: its file, and its line in [`ALLOC`] or [`TASK`].
//!
//! ```text
//! alloc  prerun ─► (its tasks) ─► prekill ─► (they end) ─► postrun ─► destroy
//! task   prestart ─► (starts) ─► poststart ─► prekill ─► (ends) ─► exited ─► stop
//! ```
//! A hook says what it needs of others; the order follows from that ([`Suite::order`]), and what takes down goes the
//! other way round. Each runs under a deadline, can be called off, and may be run again and without its predecessor, in
//! every phase: an agent may die between any two of them. What an alloc's owner decides from its clock
//! (`max_run_duration`, the delays before a kill) is no hook: it is pure, and goes on by itself after a restart
//! (`decide::desired`, `task::kill`).

mod alloc_dir;
mod artifact;
mod cgroup;
mod devices;
mod dispatch;
mod env;
mod frame;
mod migrate;
mod migrate_remote;
mod network;
mod ports;
mod stats;
mod subject;
mod suite;
mod task_dir;
mod template;
#[cfg(test)]
mod tests;
mod validate;
mod volumes;

use std::sync::Arc;
use std::time::Duration;

#[cfg(test)]
pub use self::frame::HookOutcome;
pub use self::frame::{FailedHook, Hook, HookError, HookPhase};
pub use self::subject::{AllocSpec, OfAlloc, OfTask};
pub use self::suite::{OrderError, Suite};
use crate::telemetry::Metrics;

type Make<S> = fn() -> Box<dyn Hook<S>>;

/// Every hook of allocs.
pub static ALLOC: &[Make<OfAlloc>] = &[
    || Box::new(alloc_dir::AllocDir),
    || Box::new(migrate::MigrateHook),
    || Box::new(migrate_remote::MigrateRemoteHook),
    || Box::new(ports::PortsHook),
    || Box::new(cgroup::CgroupHook),
    || Box::new(network::AllocNetworkHook),
    || Box::new(stats::StatsHook),
];

/// Every hook of tasks.
pub static TASK: &[Make<OfTask>] = &[
    || Box::new(validate::ValidateHook),
    || Box::new(task_dir::TaskDir),
    || Box::new(devices::DevicesHook),
    || Box::new(dispatch::DispatchPayloadHook),
    || Box::new(artifact::ArtifactsHook),
    || Box::new(template::TemplatesHook),
    || Box::new(env::EnvironmentHook),
    || Box::new(volumes::VolumesHook),
];

/// The hooks of one agent.
pub struct Hooks {
    pub alloc: Suite<OfAlloc>,
    pub task: Suite<OfTask>,
}

/// For an event's details: `env=1200 devices=800`, nanoseconds.
pub fn hook_times(took: &[(&'static str, Duration)]) -> String {
    let times: Vec<String> = took.iter().map(|(name, took)| format!("{name}={}", took.as_nanos())).collect();
    times.join(" ")
}

/// Hooks beyond our own: what tests look with.
#[derive(Default)]
pub struct ExtraHooks {
    pub alloc: Vec<Box<dyn Hook<OfAlloc>>>,
    pub task: Vec<Box<dyn Hook<OfTask>>>,
}

impl Hooks {
    /// Errors: they cannot be brought into an order; ours can.
    pub fn new(metrics: &Arc<Metrics>, more: ExtraHooks) -> Result<Hooks, OrderError> {
        let alloc = ALLOC.iter().map(|make| make()).chain(more.alloc).collect();
        let task = TASK.iter().map(|make| make()).chain(more.task).collect();
        Ok(Hooks { alloc: Suite::new(alloc, Arc::clone(metrics))?, task: Suite::new(task, Arc::clone(metrics))? })
    }
}
