//! Real tasks under real supervisors, through the driver alone: no agent. What the attempt says at its end is compared
//! with the kernel's own files, which stay until the attempt is destroyed. Runs with cgroup v1 and v2, and as PID 1's
//! child.

// Its helpers are test code too: a step that fails must end the test.
#![allow(clippy::unwrap_used)]

mod cgroups;
mod confined;
mod devices;
mod ends;
mod escapes;
mod failures;
mod killed;
mod laws;
mod logs;
mod recovery;
mod spawner;
mod world;
