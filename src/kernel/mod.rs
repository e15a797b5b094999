//! Parsers of kernel text (floor 0). Module paths mirror the kernel's paths.
//!
//! Every parser takes the bytes of one file and returns plain numbers, or a [`ParseError`] with file, line and expected
//! content. Unknown lines, keys and devices are ignored, because kernels and drivers add them. A known key with an
//! invalid value is an error and affects only its own value; a file without any known line is an error too. Parsers
//! never panic, allocate nothing per number, and do not access the host.

pub mod bpf;
pub mod cgroup;
pub mod error;
#[cfg(test)]
mod odd_rows;
pub mod pressure;
pub mod proc;
pub mod rtnetlink;
pub mod text;

pub use error::{ParseError, Parsed};
