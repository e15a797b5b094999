//! Floor 3: runs allocs. One owner per task, pure decisions, one board where everything is published.
//!
//! Its shelf, from the top: each room uses those below it. `tests/house` compares the `use` lines with this drawing.
//!
//! ```text
//! manager/   the set of allocs: Handle, Manager; owner, placing, wishes, gc, ledger, restore, orphans, watchers
//! task/      one owner per task: begin, launch, kill, exit, late
//! alloc/     what the owners of one alloc's tasks share: cell, edit, placing, show, again, end
//! hooks/     what happens around an alloc and a task, in phases; on plain subjects
//! ground     what all of these stand on: clock, journal, data directory, board, drivers
//! devices    what is asked of who keeps the devices
//! ports      the ports of this node that allocs hold
//! networks   the network namespaces of allocs
//! cni        networks by CNI plugins
//! drivers/   how a task is started, recovered, stopped
//! cores      which alloc has which cores for its tasks alone
//! cgroups    the cgroups of allocs
//! settings   limits and budgets
//! events     numbered, kept, read along
//! kept/      what outlives the agent: record, journal, samples, steady, datadir
//! decide/    pure: step, periodic, restart, coordinator, outcome, wish, placement, plan, limits, whose
//! places     few at once: what may block
//! ```
//! ```text
//! wishes ──► Handle (manager) ──► alloc ◄── task: its owner ──► launch ──► drivers
//!                │                  │                │
//!            journal ◄──────────────┴────────────────┘ durable first
//!                                   │
//!                                 board, events ──► snapshot, API
//! ```

mod alloc;
mod cgroups;
mod cni;
mod cores;
mod decide;
mod devices;
pub mod drivers;
pub mod events;
mod ground;
mod hooks;
mod kept;
mod manager;
mod networks;
mod places;
mod ports;
mod settings;
mod task;
#[cfg(test)]
mod tests;

pub use cgroups::{AllocCgroups, HostCgroups};
#[cfg(debug_assertions)]
#[doc(hidden)]
pub use decide::foresee;
pub use decide::limits::{Fill, GcConfig};
pub use devices::DeviceKeeper;
pub use ground::{Drivers, Parts};
pub use kept::{datadir, journal};
pub use manager::{
    AwaitedPort, Collect, Collected, Fate, Handle, LaunchedChild, LaunchingJob, Orphan, Restarted, RestoreError,
    RunnerError, StoppedJob, Stray, SubmitReply, Unplaced, Wait, Watchers,
};
pub use networks::{AllocNetworks, HostNetworks};
pub use ports::{HostPorts, PortsInUse, UnknownHostNetwork};
pub use settings::{Config, HostNetwork, NetworkConfig, bridge_subnet, interface_name};
