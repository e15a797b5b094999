//! What our programs are put together from: elements of maps, pointers that are followed, numbers that are read.
//!
//! All is read by `bpf_probe_read_kernel`, which takes any address.

use super::btf::{Btf, BtfError, Member};
use super::insn::{BpfProgram, Helper, JumpTo, Reg, Width};

/// Places on the stack.
pub(super) const KEY: i16 = -8;
pub(super) const SCRATCH: i16 = -16;
pub(super) const SUM: i16 = -24;

/// `R0` = the element of the map whose number is in `R1`.
pub(super) fn element(p: &mut BpfProgram, rows: i32, missing: JumpTo) {
    p.store(Width::W4, Reg::R10, KEY, Reg::R1);
    p.set_map(Reg::R1, rows);
    address_of(p, Reg::R2, KEY);
    p.call(Helper::MapLookup);
    p.if_zero(Reg::R0, missing);
}

/// `R9 = *(R9 + offset)`; 0 where that cannot be read.
pub(super) fn follow(p: &mut BpfProgram, offset: u32) {
    at_offset(p, offset);
    // The kernel writes zeros where it cannot read.
    copy_to_stack(p);
    p.load(Width::W8, Reg::R9, Reg::R10, SCRATCH);
}

/// 8 bytes from `R3` to the stack; `R0` is 0 if that could be done.
pub(super) fn copy_to_stack(p: &mut BpfProgram) {
    address_of(p, Reg::R1, SCRATCH);
    p.set(Reg::R2, 8);
    p.call(Helper::ProbeReadKernel);
}

/// From `R9 + from` into the row; `R0` is 0 if that could be done.
pub(super) fn copy_to_row(p: &mut BpfProgram, from: u32, size: u32, to: u32) {
    at_offset(p, from);
    p.copy(Reg::R1, Reg::R8);
    p.add(Reg::R1, i32::try_from(to).unwrap_or(i32::MAX));
    p.set(Reg::R2, i32::try_from(size).unwrap_or(i32::MAX));
    p.call(Helper::ProbeReadKernel);
}

/// `into` = the number of so many bytes at `base + offset`; 0 where that cannot be read.
pub(super) fn read_number(p: &mut BpfProgram, base: Reg, offset: u32, size: u32, into: Reg) {
    p.copy(Reg::R3, base);
    p.add(Reg::R3, i32::try_from(offset).unwrap_or(i32::MAX));
    p.set(Reg::R1, 0);
    p.store(Width::W8, Reg::R10, SCRATCH, Reg::R1);
    address_of(p, Reg::R1, SCRATCH);
    p.set(Reg::R2, i32::try_from(size).unwrap_or(i32::MAX));
    p.call(Helper::ProbeReadKernel);
    let width = if size == 4 { Width::W4 } else { Width::W8 };
    p.load(width, into, Reg::R10, SCRATCH);
}

/// `reg` = the address of a place on the stack.
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
    if is { Ok(member.offset) } else { Err(BtfError::Foreign(format!("{field} in struct {of}"))) }
}

/// Numbers of 8, 4 or 1 bytes.
pub(super) fn number(btf: &Btf<'_>, of: &str, field: &str) -> Result<Member, BtfError> {
    let member = btf.member(of, field)?;
    let width = member.size.checked_div(member.count).unwrap_or_default();
    let is = !member.is_pointer && matches!(width, 8 | 4 | 1) && member.offset % width == 0;
    if is { Ok(member) } else { Err(BtfError::Foreign(format!("{field} in struct {of}"))) }
}
