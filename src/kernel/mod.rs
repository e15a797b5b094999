//! Floor 0: kernel text to values. The path of a module mirrors the kernel's path.
//!
//! Every parser takes the bytes of one file and gives plain numbers, or a [`ParseError`] that names the file, the line
//! and what was expected there. None panics on any input, none allocates per number, none touches the machine.

pub mod bpf;
pub mod cgroup;
pub mod error;
pub mod pressure;
pub mod proc;
pub mod text;

pub use error::{ParseError, Parsed};
