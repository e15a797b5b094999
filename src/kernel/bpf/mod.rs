//! What a program inside the kernel is made of: where its fields are ([`btf`]), its instructions ([`insn`]), and the programs that
//! this agent has: one measures ([`walk`]), two tell of what ends ([`ends`], [`exits`]), one closes devices ([`gate`]).
//!
//! Why instructions of our own and no compiled object: the program is a list of "follow this pointer, copy these bytes" that differs
//! from kernel to kernel. An object would need a compiler of another language to be made again, and its relocations would need the
//! same description of the kernel's types that is read here.

pub mod blocks;
pub mod btf;
pub mod ends;
pub mod exits;
pub mod gate;
pub mod insn;
pub mod walk;
