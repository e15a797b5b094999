//! An agent that dies again and again, and what must hold all the same: at random moments under two hundred allocs
//! (`random`), and between any two writes of its state (`writes`).

// What kills it at a write, and the model that it is compared with, are compiled with debug assertions only.
#![cfg(debug_assertions)]
// Its helpers are test code too: a step that fails must end the test.
#![allow(clippy::unwrap_used)]

mod job;
mod random;
mod writes;
