//! The cgroup device program: decides which character devices the processes of a cgroup may open, read, write or
//! create.
//!
//! Source: `struct bpf_cgroup_dev_ctx` of include/uapi/linux/bpf.h (4.15): access and type in the first four bytes,
//! then major and minor number. Returns 1 to allow and 0 to deny.

use super::insn::{AssembleError, BpfProgram, Reg, Width};

/// The lower half of the first word is the type, the upper half the access.
const TYPE: i32 = 0xffff;
const CHARACTER: i32 = 2;
const TYPE_AT: i16 = 0;
const MAJOR_AT: i16 = 4;
const MINOR_AT: i16 = 8;

/// Allows everything except these devices (major, minor). Errors: too many devices for a jump (about 10,000).
pub fn all_but(closed: &[(u32, u32)]) -> Result<Vec<u64>, AssembleError> {
    let mut program = BpfProgram::default();
    let open = program.label();
    program.load(Width::W4, Reg::R2, Reg::R1, TYPE_AT);
    program.and(Reg::R2, TYPE);
    program.if_not(Reg::R2, CHARACTER, open);
    program.load(Width::W4, Reg::R3, Reg::R1, MAJOR_AT);
    program.load(Width::W4, Reg::R4, Reg::R1, MINOR_AT);
    for (major, minor) in closed {
        let next = program.label();
        // They have 12 and 20 bits, so both are positive.
        program.if_not(Reg::R3, major.cast_signed(), next);
        program.if_not(Reg::R4, minor.cast_signed(), next);
        program.set(Reg::R0, 0);
        program.exit();
        program.place(next);
    }
    program.place(open);
    program.set(Reg::R0, 1);
    program.exit();
    program.assemble()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_closed_device_costs_four_instructions() {
        let none = all_but(&[]).unwrap().len();
        assert_eq!(all_but(&[(195, 0), (195, 1)]).unwrap().len(), none + 8);
    }

    #[test]
    fn more_than_can_be_jumped_over_is_an_error() {
        let closed: Vec<_> = (0..10_000).map(|minor| (1, minor)).collect();
        assert_eq!(all_but(&closed), Err(AssembleError::TooFar));
    }
}
