//! An assembler for eBPF (Linux `Documentation/bpf/standardization/instruction-set.rst`): the
//! instructions that our programs use, and labels to jump to.

use std::os::fd::{AsFd, AsRawFd};

/// One instruction as the kernel reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    code: u8,
    /// The destination in the low half, the source in the high half.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// `R0` is a call's result. `R1` to `R5` are its arguments, which it destroys; `R6` to `R9` outlive
/// it. `R10` is the end of the stack's 512 bytes.
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "numbers")]
#[repr(u8)]
pub(crate) enum Register {
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

/// End of the stack.
pub(crate) const STACK: Register = Register::R10;

/// Arithmetic on 64 bits.
#[derive(Clone, Copy)]
pub(crate) enum Operation {
    Add = 0x00,
    Subtract = 0x10,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Xor = 0xa0,
    Set = 0xb0,
}

/// Comparisons of unsigned numbers.
#[derive(Clone, Copy)]
pub(crate) enum Condition {
    Equal = 0x10,
    Greater = 0x20,
    /// The two have a bit in common.
    Meets = 0x40,
    NotEqual = 0x50,
    Less = 0xa0,
}

/// Width of an access to memory.
#[derive(Clone, Copy)]
pub(crate) enum Width {
    Word = 0x00,
    Half = 0x08,
    Byte = 0x10,
    Double = 0x18,
}

/// Functions of the kernel, with their numbers in `uapi/linux/bpf.h`.
#[derive(Clone, Copy)]
pub(crate) enum Helper {
    /// `map_lookup_elem`
    Lookup = 1,
    /// `ktime_get_ns`
    Now = 5,
    /// `skb_vlan_push`
    PushTag = 18,
    /// `redirect`
    Redirect = 23,
    /// `skb_load_bytes`
    Load = 26,
    /// `skb_change_type`
    ChangeType = 32,
    /// `redirect_map`
    RedirectMap = 51,
    /// `skb_load_bytes_relative`
    LoadRelative = 68,
    /// `redirect_peer`
    RedirectPeer = 155,
}

/// A jump target.
#[derive(Clone, Copy)]
pub(crate) struct Label(usize);

/// A program under construction.
#[derive(Default)]
pub(crate) struct Assembler {
    program: Vec<Instruction>,
    /// The place of each label.
    places: Vec<usize>,
    /// Jumps, and their targets.
    jumps: Vec<(usize, Label)>,
}

const LD_IMMEDIATE: u8 = 0x18;
const LOAD: u8 = 0x61;
const STORE: u8 = 0x63;
const STORE_IMMEDIATE: u8 = 0x62;
const ALU: u8 = 0x07;
const JUMP: u8 = 0x05;
/// `BPF_ATOMIC` with `BPF_DW`; the immediate 0 is addition.
const ATOMIC: u8 = 0xdb;
const COMPARE_EXCHANGE: i32 = 0xf1;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const TO_BIG_ENDIAN: u8 = 0xdc;
/// Says that the operand is a register, not the immediate.
const REGISTER: u8 = 0x08;
/// Says that the immediate is a map's descriptor, and stands for the map, or for its first value.
const MAP: u8 = 1;
const MAP_VALUE: u8 = 2;
/// Says that the immediate is the number of a function in the kernel's description of itself.
const KERNEL_FUNCTION: u8 = 2;

impl Assembler {
    /// `register = register OPERATION value`
    pub(crate) fn compute(&mut self, register: Register, operation: Operation, value: i32) {
        self.push(ALU | operation as u8, register as u8, 0, value);
    }

    /// `register = register OPERATION other`
    pub(crate) fn combine(&mut self, register: Register, operation: Operation, other: Register) {
        self.push(ALU | operation as u8 | REGISTER, pair(register, other), 0, 0);
    }

    /// `register = WIDTH at base + offset`
    pub(crate) fn load(&mut self, register: Register, width: Width, base: Register, offset: i16) {
        self.push(LOAD | width as u8, pair(register, base), offset, 0);
    }

    /// `register = big-endian half word at base + offset`, in the machine's order
    pub(crate) fn load_big_endian(&mut self, register: Register, base: Register, offset: i16) {
        self.load(register, Width::Half, base, offset);
        self.push(TO_BIG_ENDIAN, register as u8, 0, 16);
    }

    /// `WIDTH at base + offset = register`
    pub(crate) fn store(&mut self, width: Width, base: Register, offset: i16, register: Register) {
        self.push(STORE | width as u8, pair(base, register), offset, 0);
    }

    /// `WIDTH at base + offset = value`
    pub(crate) fn store_value(&mut self, width: Width, base: Register, offset: i16, value: i32) {
        self.push(STORE_IMMEDIATE | width as u8, base as u8, offset, value);
    }

    /// `double word at base + offset += register`, safe against other processors
    pub(crate) fn add_atomically(&mut self, base: Register, offset: i16, register: Register) {
        self.push(ATOMIC, pair(base, register), offset, 0);
    }

    /// `double word at base + offset = register` if it was `R0`, safe against other processors; `R0`
    /// is what it was.
    pub(crate) fn compare_exchange(&mut self, base: Register, offset: i16, register: Register) {
        self.push(ATOMIC, pair(base, register), offset, COMPARE_EXCHANGE);
    }

    /// `register = the map`, for a helper's argument
    pub(crate) fn map(&mut self, register: Register, map: impl AsFd) {
        let registers = register as u8 | MAP << 4;
        self.push(LD_IMMEDIATE, registers, 0, map.as_fd().as_raw_fd());
        self.push(0, 0, 0, 0);
    }

    /// `register = address of a byte of the map's only value`
    pub(crate) fn map_value(&mut self, register: Register, map: impl AsFd, byte: i32) {
        let registers = register as u8 | MAP_VALUE << 4;
        self.push(LD_IMMEDIATE, registers, 0, map.as_fd().as_raw_fd());
        self.push(0, 0, 0, byte);
    }

    /// Calls a function of the kernel.
    pub(crate) fn call(&mut self, helper: Helper) {
        self.push(CALL, 0, 0, helper as i32);
    }

    /// Calls the function of the kernel with this number in its own description
    /// ([`types`](crate::bpf::types)).
    pub(crate) fn call_described(&mut self, function: u32) {
        self.push(CALL, KERNEL_FUNCTION << 4, 0, function.cast_signed());
    }

    /// Ends the program; R0 is its result.
    pub(crate) fn exit(&mut self) {
        self.push(EXIT, 0, 0, 0);
    }

    /// Returns a new label, without a place yet.
    pub(crate) fn label(&mut self) -> Label {
        self.places.push(usize::MAX);
        Label(self.places.len() - 1)
    }

    /// Places the label here.
    pub(crate) fn place(&mut self, label: Label) {
        if let Some(place) = self.places.get_mut(label.0) {
            *place = self.program.len();
        }
    }

    /// Jumps to the label.
    pub(crate) fn jump(&mut self, label: Label) {
        self.jumps.push((self.program.len(), label));
        self.push(JUMP, 0, 0, 0);
    }

    /// Jumps to the label if `register CONDITION value`.
    pub(crate) fn jump_if(
        &mut self,
        register: Register,
        condition: Condition,
        value: i32,
        label: Label,
    ) {
        self.jumps.push((self.program.len(), label));
        self.push(JUMP | condition as u8, register as u8, 0, value);
    }

    /// Jumps to the label if `register CONDITION other`.
    pub(crate) fn jump_if_compared(
        &mut self,
        register: Register,
        condition: Condition,
        other: Register,
        label: Label,
    ) {
        self.jumps.push((self.program.len(), label));
        self.push(JUMP | condition as u8 | REGISTER, pair(register, other), 0, 0);
    }

    /// Returns the program, with the distance of each jump. `None`: a jump leads nowhere, or too
    /// far.
    pub(crate) fn finish(mut self) -> Option<Vec<Instruction>> {
        for (jump, label) in self.jumps {
            let place = *self.places.get(label.0)?;
            let distance = i64::try_from(place).ok()? - i64::try_from(jump).ok()? - 1;
            self.program.get_mut(jump)?.offset = i16::try_from(distance).ok()?;
        }
        Some(self.program)
    }

    fn push(&mut self, code: u8, registers: u8, offset: i16, immediate: i32) {
        self.program.push(Instruction { code, registers, offset, immediate });
    }
}

fn pair(destination: Register, source: Register) -> u8 {
    destination as u8 | (source as u8) << 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_lead_to_their_labels_both_ways() {
        let mut program = Assembler::default();
        let (back, forth) = (program.label(), program.label());
        program.place(back);
        program.compute(Register::R0, Operation::Set, 0);
        program.jump_if(Register::R0, Condition::Equal, 7, forth);
        program.jump(back);
        program.place(forth);
        program.exit();
        let offsets: Vec<_> = program.finish().unwrap().iter().map(|it| it.offset).collect();
        assert_eq!(offsets, [0, 1, -3, 0]);
        let mut nowhere = Assembler::default();
        let label = nowhere.label();
        nowhere.jump(label);
        assert_eq!(nowhere.finish(), None);
    }
}
