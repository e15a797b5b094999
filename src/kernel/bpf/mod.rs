//! BPF programs of the agent: field offsets ([`btf`]), instructions ([`insn`]), and the programs: sampling ([`walk`]),
//! end records ([`ends`], [`exits`]), device access ([`gate`]).
//!
//! The agent generates instructions instead of loading a compiled object: a program is a list of "follow this pointer,
//! copy these bytes" that differs between kernels. An object would need a second compiler in the build, and its
//! relocations would need the same BTF.

pub mod blocks;
pub mod btf;
pub mod ends;
pub mod exits;
pub mod gate;
pub mod insn;
pub mod walk;
