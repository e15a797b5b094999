//! Floor 0: kernel text to values. The path of a module mirrors the kernel's path.
//!
//! Every parser takes the bytes of one file and gives plain numbers, or a [`ParseError`] that names the file, the line
//! and what was expected there. A row, key or device that a parser does not know costs only itself and is no error: kernels and drivers
//! add them. A known one whose value is not what is documented costs its own value and is an error; so is a file without any known row.
//! None panics on any input, none allocates per number, none touches the machine.

pub mod bpf;
pub mod cgroup;
pub mod error;
#[cfg(test)]
mod odd_rows;
pub mod pressure;
pub mod proc;
pub mod text;

pub use error::{ParseError, Parsed};
