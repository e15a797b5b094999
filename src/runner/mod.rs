//! Floor 3: runs allocs. One owner per task, pure decisions, one board where everything is published.
//!
//! Its shelf, from the top: each room uses those below it. `tests/house` compares the `use` lines with this drawing.
//!
//! ```text
//! snapshot_archive  the directory of an alloc as a tar archive
//! disk       what the directories of allocs have on the disk
//! manager/   the set of allocs: Handle, Manager; owner, placing, requests, gc, ledger, restore, orphans, watchers
//! task/      one owner per task: begin, launch, kill, exit, late
//! checks/    services of an alloc that runs, their checks, its health: address, status, health, resolve, probe
//! templates/ re-renders the templates of running tasks, and acts on changes
//! alloc/     what the owners of one alloc's tasks share: cell, edit, placing, show, restart, end
//! hooks/     what happens around an alloc and a task, in phases; on plain subjects
//! migration/ the data of an alloc of another agent: the archive, the way here, the way to its place
//! artifacts/ what is fetched for a task: downloads, repositories, archives, and the way to their destination
//! context    what all of these stand on: clock, journal, data directory, board, drivers
//! devices    what is asked of who keeps the devices
//! ports      the ports of this node that allocs hold
//! rendering/ renders templates: what they read, the key tree, the record for the next agent
//! drivers/   how a task is started, recovered, stopped
//! networks   the network namespaces of allocs
//! cni        networks by CNI plugins
//! cores      cores reserved for the tasks of allocs
//! cgroups    the cgroups of allocs
//! settings   limits and budgets
//! persistence/ what outlives the agent: record, journal, samples, steady_clock, datadir
//! decide/    pure: step, periodic, restart, coordinator, outcome, desired, placement, volumes, plan, limits, ownership
//! blocking_pool limits concurrent blocking work
//! wait_ends  what ends a wait without a deadline
//! ```
//! ```text
//! requests ──► Handle (manager) ──► alloc ◄── task: its owner ──► launch ──► drivers
//!                  │                  │                │
//!              journal ◄──────────────┴────────────────┘ durable first
//!                                     │
//!                                   board, events ──► snapshot, API
//! ```

mod alloc;
mod artifacts;
mod blocking_pool;
mod cgroups;
mod checks;
mod cni;
mod context;
mod cores;
mod decide;
mod devices;
mod disk;
pub mod drivers;
mod hooks;
mod manager;
mod migration;
mod networks;
mod persistence;
mod ports;
mod rendering;
mod settings;
mod snapshot_archive;
mod task;
mod templates;
#[cfg(test)]
mod tests;
mod wait_ends;

pub use artifacts::{ArtifactOrder, ArtifactScope, fetch as fetch_artifact};
pub use cgroups::{AllocCgroups, HostCgroups};
pub use context::{Drivers, Parts, fill_of};
#[cfg(debug_assertions)]
#[doc(hidden)]
pub use decide::explore;
pub use decide::limits::{Fill, GcConfig};
pub use devices::DeviceKeeper;
pub use disk::DiskWatcher;
pub use manager::{
    AwaitedPort, DataRefusal, ExecNote, Fate, GcResult, GcScope, Handle, LaunchedChild, LaunchingJob, Orphan,
    RestartTarget, RestoreError, RunnerError, StoppedJob, Stray, SubmitReply, UnplacedAllocs, Wait, Watchers,
};
pub use migration::{MigrationScope, fetch as fetch_migration, has_data, write_migration};
pub use networks::{AllocNetworks, HostNetworks};
pub use persistence::{datadir, journal};
pub use ports::{HostPorts, PortsInUse, UnknownHostNetwork};
#[doc(hidden)]
pub use rendering::KeyTree;
pub use settings::{
    ArtifactConfig, Config, HostNetwork, MigrationConfig, MigrationPeer, NetworkConfig, PeerToken, TemplateConfig,
    bridge_subnet, interface_name,
};
pub use snapshot_archive::write_snapshot;
