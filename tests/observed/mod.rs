//! Observed allocs: the source of each cgroup, and that they are found, named, measured and ended as managed ones are.

// What a test needs must be there.
#![allow(clippy::unwrap_used)]

mod commands;
mod containerd;
mod controllers;
mod defaults;
pub mod docker;
mod dropin;
mod empty;
mod ends;
mod history;
mod hostile;
mod image;
mod inside;
mod live;
mod lives;
mod names;
mod narrow;
mod neighbour;
mod network;
mod once;
mod parents;
mod podman;
mod processes;
mod pushed;
mod recorded;
mod restarts;
mod shedding;
pub mod situations;
mod spoofed;
mod started;
mod steps;
mod trees;
mod workloads;
