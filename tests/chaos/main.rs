//! An agent that dies again and again, and what must hold all the same: at random moments under two hundred allocs
//! (`random`), and between any two writes of its state (`writes`).

// Its helpers are test code too: a step that fails must end the test.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
#[macro_use]
mod common;

mod job;
mod random;
mod writes;
