//! Allocs that others run: whose each cgroup is, and that they are found, named, measured and ended as our own are.

// What a test needs must be there.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
#[macro_use]
mod common;

mod containerd;
mod docker;
mod dropin;
mod ends;
mod inside;
mod live;
mod lives;
mod narrow;
mod network;
mod podman;
mod processes;
mod recorded;
mod restarts;
mod trees;
