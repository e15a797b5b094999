//! BPF instructions, as far as the agent's programs need them. Source:
//! Documentation/bpf/standardization/instruction-set.rst.

/// A register. `R0`: return value; `R1` to `R5`: arguments, undefined after a call; `R6` to `R9`: preserved; `R10`:
/// frame pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// Helper functions, by their numbers in `enum bpf_func_id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum BpfHelper {
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    /// Name of the current thread, at most 16 bytes.
    CurrentName = 16,
    /// 5.5: an unreadable address is an error and never a fault.
    ProbeReadKernel = 113,
    /// 5.5: copies a string including its terminating zero.
    ProbeReadKernelText = 115,
    /// 5.8: nanoseconds since boot, including suspend.
    SinceBoot = 125,
    /// 5.8: copies into a ring buffer; 0 on success.
    RingOutput = 130,
    /// 5.8: number of waiting bytes of a ring buffer, and other properties.
    RingQuery = 134,
    /// 5.19.
    MapLookupPerCpu = 195,
}

/// Width of a load or store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Width {
    W4 = 0x00,
    W8 = 0x18,
}

/// Target of a forward jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JumpTo(usize);

/// Why a program cannot be assembled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AssembleError {
    #[error("jump too long for a BPF instruction")]
    TooFar,
    #[error("jump without a target")]
    NoPlace,
}

/// A program under construction, in instruction order.
#[derive(Debug, Default)]
pub struct BpfProgram {
    code: Vec<u64>,
    /// The jumping instruction and its target.
    jumps: Vec<(usize, JumpTo)>,
    places: Vec<Option<usize>>,
}

const MEM: u8 = 0x60;

impl BpfProgram {
    fn push(&mut self, op: u8, dst: Reg, src: u8, offset: i16, immediate: i32) {
        let [offset0, offset1] = offset.to_ne_bytes();
        let [i0, i1, i2, i3] = immediate.to_ne_bytes();
        // On little-endian machines the destination is in the lower half of the byte, on others in the upper half.
        let registers = if cfg!(target_endian = "little") { src << 4 | dst as u8 } else { (dst as u8) << 4 | src };
        self.code.push(u64::from_ne_bytes([op, registers, offset0, offset1, i0, i1, i2, i3]));
    }

    /// `dst = src`
    pub fn copy(&mut self, dst: Reg, src: Reg) {
        self.push(0xbf, dst, src as u8, 0, 0);
    }
    /// `dst = number`
    pub fn set(&mut self, dst: Reg, number: i32) {
        self.push(0xb7, dst, 0, 0, number);
    }
    /// `dst += number`
    pub fn add(&mut self, dst: Reg, number: i32) {
        self.push(0x07, dst, 0, 0, number);
    }
    /// `dst &= number`
    pub fn and(&mut self, dst: Reg, number: i32) {
        self.push(0x57, dst, 0, 0, number);
    }
    /// `dst += src`
    pub fn add_reg(&mut self, dst: Reg, src: Reg) {
        self.push(0x0f, dst, src as u8, 0, 0);
    }
    /// `dst -= src`
    pub fn subtract_reg(&mut self, dst: Reg, src: Reg) {
        self.push(0x1f, dst, src as u8, 0, 0);
    }
    /// `dst *= number`
    pub fn multiply(&mut self, dst: Reg, number: i32) {
        self.push(0x27, dst, 0, 0, number);
    }
    /// `dst = number`, with all 64 bits.
    pub fn set_wide(&mut self, dst: Reg, number: u64) {
        self.wide(dst, 0, number);
    }
    /// `dst` = the map with this descriptor.
    pub fn set_map(&mut self, dst: Reg, map: i32) {
        self.wide(dst, 1, u64::from(map.cast_unsigned()));
    }
    fn wide(&mut self, dst: Reg, pseudo: u8, number: u64) {
        let half = |n: u64| i32::from_ne_bytes(u32::try_from(n & 0xffff_ffff).unwrap_or_default().to_ne_bytes());
        self.push(0x18, dst, pseudo, 0, half(number));
        self.push(0, Reg::R0, 0, 0, half(number >> 32));
    }
    /// `dst = *(src + offset)`
    pub fn load(&mut self, width: Width, dst: Reg, src: Reg, offset: i16) {
        self.push(MEM | width as u8 | 0x01, dst, src as u8, offset, 0);
    }
    /// `*(dst + offset) = src`
    pub fn store(&mut self, width: Width, dst: Reg, offset: i16, src: Reg) {
        self.push(MEM | width as u8 | 0x03, dst, src as u8, offset, 0);
    }
    pub fn call(&mut self, helper: BpfHelper) {
        self.push(0x85, Reg::R0, 0, 0, helper as i32);
    }
    /// Calls a kernel function (kfunc) by its BTF ID (5.13).
    pub fn call_function(&mut self, id: i32) {
        self.push(0x85, Reg::R0, 2, 0, id);
    }
    pub fn exit(&mut self) {
        self.push(0x95, Reg::R0, 0, 0, 0);
    }

    pub fn label(&mut self) -> JumpTo {
        self.places.push(None);
        JumpTo(self.places.len() - 1)
    }
    /// Sets the label to the next instruction.
    pub fn place(&mut self, label: JumpTo) {
        self.places[label.0] = Some(self.code.len());
    }
    /// Jumps if `reg` is 0.
    pub fn if_zero(&mut self, reg: Reg, to: JumpTo) {
        self.if_is(reg, 0, to);
    }
    /// Jumps if `reg` equals the number.
    pub fn if_is(&mut self, reg: Reg, number: i32, to: JumpTo) {
        self.jump(0x15, reg, number, to);
    }
    /// Jumps if `reg` is not 0.
    pub fn if_not_zero(&mut self, reg: Reg, to: JumpTo) {
        self.if_not(reg, 0, to);
    }
    /// Jumps if `reg` differs from the number.
    pub fn if_not(&mut self, reg: Reg, number: i32, to: JumpTo) {
        self.jump(0x55, reg, number, to);
    }
    /// Jumps if `a > b`, unsigned.
    pub fn if_more(&mut self, a: Reg, b: Reg, to: JumpTo) {
        self.jumps.push((self.code.len(), to));
        self.push(0x2d, a, b as u8, 0, 0);
    }
    /// Jumps.
    pub fn go(&mut self, to: JumpTo) {
        self.jump(0x05, Reg::R0, 0, to);
    }
    fn jump(&mut self, op: u8, reg: Reg, number: i32, to: JumpTo) {
        self.jumps.push((self.code.len(), to));
        self.push(op, reg, 0, 0, number);
    }

    /// Returns the encoded instructions. Errors: a jump cannot be encoded.
    pub fn assemble(mut self) -> Result<Vec<u64>, AssembleError> {
        for (at, JumpTo(label)) in self.jumps {
            let to = self.places.get(label).copied().flatten().ok_or(AssembleError::NoPlace)?;
            let far = to.checked_sub(at + 1).ok_or(AssembleError::NoPlace)?;
            let far = i16::try_from(far).map_err(|_| AssembleError::TooFar)?;
            let [far0, far1] = far.to_ne_bytes();
            let mut bytes = self.code[at].to_ne_bytes();
            (bytes[2], bytes[3]) = (far0, far1);
            self.code[at] = u64::from_ne_bytes(bytes);
        }
        Ok(self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(program: BpfProgram) -> Vec<[u8; 8]> {
        program.assemble().unwrap().into_iter().map(u64::to_le_bytes).collect()
    }

    /// The expected bytes are from the kernel's instruction set documentation.
    #[test]
    #[cfg(target_endian = "little")]
    fn instructions_are_written_as_the_kernel_reads_them() {
        let mut program = BpfProgram::default();
        program.copy(Reg::R6, Reg::R1);
        program.add(Reg::R2, -4);
        program.load(Width::W8, Reg::R1, Reg::R6, 8);
        program.store(Width::W4, Reg::R10, -4, Reg::R1);
        program.set_map(Reg::R1, 7);
        program.set_wide(Reg::R3, 0xffff_8880_0000_1234);
        program.call(BpfHelper::ProbeReadKernel);
        program.call_function(0x1234);
        program.and(Reg::R2, 0xffff);
        program.exit();
        let expected = [
            [0xbf, 0x16, 0, 0, 0, 0, 0, 0],
            [0x07, 0x02, 0, 0, 0xfc, 0xff, 0xff, 0xff],
            [0x79, 0x61, 8, 0, 0, 0, 0, 0],
            [0x63, 0x1a, 0xfc, 0xff, 0, 0, 0, 0],
            [0x18, 0x11, 0, 0, 7, 0, 0, 0],
            [0; 8],
            [0x18, 0x03, 0, 0, 0x34, 0x12, 0, 0],
            [0, 0, 0, 0, 0x80, 0x88, 0xff, 0xff],
            [0x85, 0, 0, 0, 113, 0, 0, 0],
            [0x85, 0x20, 0, 0, 0x34, 0x12, 0, 0],
            [0x57, 0x02, 0, 0, 0xff, 0xff, 0, 0],
            [0x95, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(bytes(program), expected);
    }

    #[test]
    fn a_jump_counts_from_the_instruction_after_it_and_needs_a_place() {
        let mut program = BpfProgram::default();
        let end = program.label();
        program.if_zero(Reg::R1, end);
        program.set(Reg::R0, 1);
        program.place(end);
        program.exit();
        let code = bytes(program);
        assert_eq!(i16::from_ne_bytes([code[0][2], code[0][3]]), 1);

        let mut program = BpfProgram::default();
        let nowhere = program.label();
        program.if_not_zero(Reg::R1, nowhere);
        assert_eq!(program.assemble(), Err(AssembleError::NoPlace));

        let mut program = BpfProgram::default();
        let end = program.label();
        program.if_zero(Reg::R1, end);
        (0..40_000).for_each(|_| program.set(Reg::R0, 1));
        program.place(end);
        assert_eq!(program.assemble(), Err(AssembleError::TooFar));
    }
}
