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
mod cgroups;
mod decide;
pub mod drivers;
mod ground;
mod hooks;
mod kept;
mod manager;
mod shown;
mod task;
#[cfg(test)]
mod tests;

pub use cgroups::HostCgroups;
#[cfg(debug_assertions)]
#[doc(hidden)]
pub use decide::foresee;
pub use ground::{AllocCgroups, Config, Drivers, Parts};
pub use kept::{datadir, journal};
pub use manager::gc::{Collect, Collected, Fill, GcConfig};
pub use manager::orphans::{Fate, Orphan};
pub use manager::restore::RestoreError;
pub use manager::watchers::{Stray, Watchers};
pub use manager::wishes::Restarted;
pub use manager::{Handle, RunnerError, SubmitReply, Wait};
pub use shown::{board, broadcaster, events};
