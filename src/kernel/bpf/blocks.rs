//! Building blocks of the agent's BPF programs: map lookups, pointer chains, reads of numbers.
//!
//! Memory is read with `bpf_probe_read_kernel`, which accepts any address, or through a [`StructCast`].

use super::btf::{Btf, BtfError, BtfMember};
use super::insn::{BpfHelper, BpfProgram, JumpTo, Reg, Width};

/// Casts an address to a struct that starts with 8-byte numbers, so that the program can load from it directly. The
/// kernel guards such loads (6.2): an unreadable address gives 0 and never faults. A helper call per read would cost
/// several times as much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StructCast {
    /// `bpf_rdonly_cast`: free at run time; only the verifier uses it.
    cast: i32,
    structure: i32,
    bytes: u32,
}

impl StructCast {
    /// Errors: the kernel lacks the function or the struct.
    pub fn of(btf: &Btf<'_>) -> Result<StructCast, BtfError> {
        // A struct that contains only numbers.
        const NUMBERS: (&str, &str) = ("kernel_cpustat", "cpustat");
        let foreign = || BtfError::Unsupported(format!("struct {}", NUMBERS.0));
        let id = |id: u32| i32::try_from(id).map_err(|_| foreign());
        let numbers = number(btf, NUMBERS.0, NUMBERS.1)?;
        if numbers.offset != 0 || numbers.size != 8 * numbers.count {
            return Err(foreign());
        }
        let (cast, structure) = (id(btf.function("bpf_rdonly_cast")?)?, id(btf.structure(NUMBERS.0)?)?);
        Ok(StructCast { cast, structure, bytes: numbers.size })
    }

    /// `R0` = address `R9 + offset`, typed for loads.
    fn cast(self, p: &mut BpfProgram, offset: u32) {
        p.copy(Reg::R1, Reg::R9);
        p.add(Reg::R1, i32::try_from(offset).unwrap_or(i32::MAX));
        self.cast_r1(p);
    }
    /// As `cast`, for the address in `R1`.
    fn cast_r1(self, p: &mut BpfProgram) {
        p.set(Reg::R2, self.structure);
        p.call_function(self.cast);
    }
}

/// How a program reads kernel memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryAccess {
    /// With a helper function, the only way on 6.1.
    Checked,
    Direct(StructCast),
}

impl MemoryAccess {
    /// `R9 = *(R9 + offset)`; 0 if unreadable.
    pub(super) fn follow(self, p: &mut BpfProgram, offset: u32) {
        match self {
            MemoryAccess::Checked => follow(p, offset),
            MemoryAccess::Direct(lens) => {
                lens.cast(p, offset);
                p.load(Width::W8, Reg::R9, Reg::R0, 0);
            }
        }
    }

    /// Copies from `R9 + from` into the row, with the same alignment to 8 bytes.
    pub(super) fn copy_to_row(self, p: &mut BpfProgram, [from, size, to]: [u32; 3], missing: JumpTo) {
        let lens = match self {
            MemoryAccess::Checked => {
                copy_to_row(p, from, size, to);
                p.if_not_zero(Reg::R0, missing);
                return;
            }
            MemoryAccess::Direct(lens) => lens,
        };
        // Copies whole words; the bytes before and after belong to the same struct, and the row has room for them.
        let (begin, row, end) = (from - from % 8, to - to % 8, (from + size).next_multiple_of(8));
        for at in (begin..end).step_by(8) {
            let inside = (at - begin) % lens.bytes;
            if inside == 0 {
                lens.cast(p, at);
            }
            p.load(Width::W8, Reg::R1, Reg::R0, i16::try_from(inside).unwrap_or(i16::MAX));
            p.store(Width::W8, Reg::R8, i16::try_from(row + at - begin).unwrap_or(i16::MAX), Reg::R1);
        }
    }

    /// `R1` = the per-CPU number at `R9 + processor`.
    pub(super) fn number_of(self, p: &mut BpfProgram, processor: u64, missing: JumpTo) {
        match self {
            MemoryAccess::Checked => {
                p.set_wide(Reg::R3, processor);
                p.add_reg(Reg::R3, Reg::R9);
                copy_to_stack(p);
                p.if_not_zero(Reg::R0, missing);
                p.load(Width::W8, Reg::R1, Reg::R10, SCRATCH);
            }
            MemoryAccess::Direct(lens) => {
                p.set_wide(Reg::R1, processor);
                p.add_reg(Reg::R1, Reg::R9);
                lens.cast_r1(p);
                p.load(Width::W8, Reg::R1, Reg::R0, 0);
            }
        }
    }
}

/// Stack slots.
pub(super) const KEY: i16 = -8;
pub(super) const SCRATCH: i16 = -16;
pub(super) const SUM: i16 = -24;

/// `R0` = address of the map element with the index in `R1`.
pub(super) fn element(p: &mut BpfProgram, rows: i32, missing: JumpTo) {
    p.store(Width::W4, Reg::R10, KEY, Reg::R1);
    p.set_map(Reg::R1, rows);
    address_of(p, Reg::R2, KEY);
    p.call(BpfHelper::MapLookup);
    p.if_zero(Reg::R0, missing);
}

/// `R9 = *(R9 + offset)`; 0 if unreadable.
pub(super) fn follow(p: &mut BpfProgram, offset: u32) {
    at_offset(p, offset);
    // The helper writes zeros if it cannot read.
    copy_to_stack(p);
    p.load(Width::W8, Reg::R9, Reg::R10, SCRATCH);
}

/// Copies 8 bytes from `R3` to the stack; `R0` is 0 on success.
pub(super) fn copy_to_stack(p: &mut BpfProgram) {
    address_of(p, Reg::R1, SCRATCH);
    p.set(Reg::R2, 8);
    p.call(BpfHelper::ProbeReadKernel);
}

/// Copies from `R9 + from` into the row; `R0` is 0 on success.
pub(super) fn copy_to_row(p: &mut BpfProgram, from: u32, size: u32, to: u32) {
    at_offset(p, from);
    p.copy(Reg::R1, Reg::R8);
    p.add(Reg::R1, i32::try_from(to).unwrap_or(i32::MAX));
    p.set(Reg::R2, i32::try_from(size).unwrap_or(i32::MAX));
    p.call(BpfHelper::ProbeReadKernel);
}

/// `into` = the number of `size` bytes at `base + offset`; 0 if unreadable.
pub(super) fn read_number(p: &mut BpfProgram, base: Reg, offset: u32, size: u32, into: Reg) {
    p.copy(Reg::R3, base);
    p.add(Reg::R3, i32::try_from(offset).unwrap_or(i32::MAX));
    p.set(Reg::R1, 0);
    p.store(Width::W8, Reg::R10, SCRATCH, Reg::R1);
    address_of(p, Reg::R1, SCRATCH);
    p.set(Reg::R2, i32::try_from(size).unwrap_or(i32::MAX));
    p.call(BpfHelper::ProbeReadKernel);
    let width = if size == 4 { Width::W4 } else { Width::W8 };
    p.load(width, into, Reg::R10, SCRATCH);
}

/// `reg` = address of a stack slot.
pub(super) fn address_of(p: &mut BpfProgram, reg: Reg, slot: i16) {
    p.copy(reg, Reg::R10);
    p.add(reg, i32::from(slot));
}

pub(super) fn at_offset(p: &mut BpfProgram, offset: u32) {
    p.copy(Reg::R3, Reg::R9);
    p.add(Reg::R3, i32::try_from(offset).unwrap_or(i32::MAX));
}

pub(super) fn pointer(btf: &Btf<'_>, of: &str, field: &str) -> Result<u32, BtfError> {
    let member = btf.member(of, field)?;
    let is = member.is_pointer && member.count == 1;
    if is { Ok(member.offset) } else { Err(BtfError::Unsupported(format!("{field} in struct {of}"))) }
}

/// As [`pointer`], to a given struct.
pub(super) fn pointer_to(btf: &Btf<'_>, of: &str, field: &str, structure: &str) -> Result<u32, BtfError> {
    let (offset, is) = (pointer(btf, of, field)?, btf.points_to(of, field, structure)?);
    if is { Ok(offset) } else { Err(BtfError::Unsupported(format!("{field} in struct {of}"))) }
}

/// A field of 8-, 4- or 1-byte numbers.
pub(super) fn number(btf: &Btf<'_>, of: &str, field: &str) -> Result<BtfMember, BtfError> {
    let member = btf.member(of, field)?;
    let width = member.size.checked_div(member.count).unwrap_or_default();
    let is = !member.is_pointer && matches!(width, 8 | 4 | 1) && member.offset % width == 0;
    if is { Ok(member) } else { Err(BtfError::Unsupported(format!("{field} in struct {of}"))) }
}
