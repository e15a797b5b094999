//! Floor 3: runs allocs. One owner per task, pure decisions, one board where everything is published.
//!
//! ```text
//! wishes ──► Handle (manager) ──► alloc ◄── task: its owner ──► launch ──► drivers
//!                │                  │                │
//!            journal ◄──────────────┴────────────────┘ durable first
//!                                   │
//!                                 board, events ──► snapshot, API
//! hooks: what happens around an alloc and a task, in phases
//! pure: step (task states), restart (policy), outcome, restore::plan
//! ```

mod alloc;
pub mod board;
pub mod broadcaster;
mod cgroups;
mod context;
mod coordinator;
pub mod datadir;
pub mod drivers;
pub mod events;
#[cfg(debug_assertions)]
#[doc(hidden)]
pub mod foresee;
mod gc;
mod hooks;
pub mod journal;
mod launch;
mod ledger;
mod manager;
mod marks;
mod orphans;
mod outcome;
mod owner;
mod record;
mod restart;
mod restore;
mod samples;
mod steady;
mod step;
mod task;
#[cfg(test)]
mod tests;
mod watchers;
mod whereabouts;
mod wishes;

pub use cgroups::HostCgroups;
pub use context::{AllocCgroups, Config, Drivers, Parts};
pub use gc::{Collect, Collected, Fill, GcConfig};
pub use manager::{Handle, RunnerError, SubmitReply, Wait};
pub use orphans::{Fate, Orphan};
pub use restore::RestoreError;
pub use watchers::{Stray, Watchers};
pub use wishes::Restarted;
