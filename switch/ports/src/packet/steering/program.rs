//! The steering program: which member of the fan-out group gets a frame.
//!
//! It runs in the kernel once a frame, before the frame is copied into a ring. For every frame it
//! computes the same hash as [`wire::parse`] and
//! [`Toeplitz::hash_flow`](wire::toeplitz::Toeplitz::hash_flow), so that a peer cannot craft a
//! frame without a defined queue: malformed IP has the hash 0.
//!
//! 1. Destination address and VLAN id give the vNIC (0, the default, if none has them).
//! 2. Addresses, and ports of TCP and UDP, give the hash; fragments have no ports.
//! 3. The vNIC's indirection table has 128 entries; the one at `hash % 128` is the queue. The frame
//!    is counted there.
//!
//! Three surprises. A received frame starts at its network header here, so the MAC header is read
//! relative to its own start. The outer tag is never in the frame. A second tag stands where the
//! network header should be.

#![allow(
    clippy::cast_possible_truncation,
    reason = "places in 40 bytes of stack and in 36 tables of 1 KiB"
)]

use crate::bpf;
use crate::bpf::assemble::{Assembler, Condition, Helper, Instruction, Label, Operation, Register};
use crate::bpf::assemble::{STACK, Width};
use crate::steering::ENTRIES;
use Condition::{Equal, Greater, Less, NotEqual};
use Operation::{Add, And, Set, ShiftLeft, ShiftRight, Xor};
use Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9};
use Width::{Byte, Half, Word};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Bytes of an input byte's table: a word for each value.
pub(super) const TABLE_BYTES: usize = 256 * 4;

/// Loads the program for these maps: the vNICs, their tables, their counts and the words of the
/// key.
///
/// # Errors
/// The kernel refuses the program, or this process may not load one.
pub(crate) fn load([vnics, tables, frames, key]: [BorrowedFd<'_>; 4]) -> io::Result<OwnedFd> {
    let maps = Maps { vnics, tables, frames, key };
    let program = assemble(&maps).ok_or(io::ErrorKind::InvalidInput)?;
    bpf::load(bpf::Kind::SocketFilter, &program)
}

/// The maps it reads.
struct Maps<'m> {
    /// Address and VLAN id (6 and 2 bytes, the id in the machine's order) to a vNIC's number.
    vnics: BorrowedFd<'m>,
    /// For each vNIC its indirection table, a byte an entry.
    tables: BorrowedFd<'m>,
    /// For each vNIC a count of frames for each entry, 8 bytes each.
    frames: BorrowedFd<'m>,
    /// For each of the hash's 36 input bytes, for each of its values, the word it adds; all of it
    /// is one value.
    key: BorrowedFd<'m>,
}

// Offsets in `struct __sk_buff`.
const LENGTH: i16 = 0;
const PROTOCOL: i16 = 16;
const TAG_PRESENT: i16 = 20;
const TAG: i16 = 24;

/// `BPF_HDR_START_MAC`.
const MAC_HEADER: i32 = 0;

// Stack layout: the key of the vNIC map, and what is read of the frame.
const STATION: i16 = -8;
const STATION_VLAN: i16 = STATION + 6;
const SHORT: i16 = -24;
const EXTENSION_KIND: i16 = -32;
const HEADER: i16 = -72;

// Registers that outlive calls.
const CONTEXT: Register = R6;
/// Offset behind the last byte: of the frame, later of the IP packet.
const END: Register = R7;
/// Offset of the next header from the frame's network header.
const OFFSET: Register = R8;
/// The resulting queue, once all reads are done.
const QUEUE: Register = R7;
/// The EtherType in the frame's byte order, later the hash.
const ETHERTYPE: Register = R9;
const HASH: Register = R9;

/// Converts an EtherType to the machine's reading of its bytes in a frame.
const fn as_it_stands(ethertype: u16) -> i32 {
    ethertype.to_be() as i32
}

const IPV4: i32 = as_it_stands(0x0800);
const IPV6: i32 = as_it_stands(0x86dd);
const TAGS: [i32; 2] = [as_it_stands(0x8100), as_it_stands(0x88a8)];

const TCP: i32 = 6;
const UDP: i32 = 17;
const FRAGMENT: i32 = 44;
const AUTHENTICATION: i32 = 51;
/// Headers with a known length: hop-by-hop, routing, fragment, authentication, destination.
const EXTENSIONS: [i32; 5] = [0, 43, FRAGMENT, AUTHENTICATION, 60];
/// Most extension headers walked, as many as `wire` walks.
const MOST_EXTENSIONS: usize = 8;

/// The tables of these input bytes are 32 KiB or more from the first: farther than a load's offset
/// reaches.
const FAR: usize = 32;

/// Assembles it; `None` only if a jump were too long.
fn assemble(maps: &Maps<'_>) -> Option<Vec<Instruction>> {
    let mut code = Assembler::default();
    let (steer, without_hash) = (code.label(), code.label());
    let mut program = Program { maps, code, steer, without_hash };
    program.station();
    program.tags();
    program.network();
    program.steer();
    program.code.finish()
}

struct Program<'p> {
    maps: &'p Maps<'p>,
    code: Assembler,
    /// Jumped to once the hash is known.
    steer: Label,
    /// Jumped to if the hash is 0.
    without_hash: Label,
}

impl Program<'_> {
    /// Writes the first half of the vNIC map's key: the destination address.
    fn station(&mut self) {
        let code = &mut self.code;
        code.combine(CONTEXT, Set, R1);
        code.load(END, Word, CONTEXT, LENGTH);
        code.compute(OFFSET, Set, 0);
        code.store_value(Half, STACK, STATION_VLAN, 0);
        code.compute(R2, Set, 0);
        code.combine(R3, Set, STACK);
        code.compute(R3, Add, STATION.into());
        code.compute(R4, Set, 6);
        code.compute(R5, Set, MAC_HEADER);
        code.combine(R1, Set, CONTEXT);
        // Never fails; if it did, the address would be zero, which no vNIC has.
        code.call(Helper::LoadRelative);
    }

    /// Steps over two tags at most, including the one beside the frame. The outer tag's id is the
    /// other half of the key.
    fn tags(&mut self) {
        let [in_frame, inner, cut, network] = [(); 4].map(|()| self.code.label());
        let code = &mut self.code;
        code.load(ETHERTYPE, Word, CONTEXT, PROTOCOL);
        code.load(R2, Word, CONTEXT, TAG_PRESENT);
        code.jump_if(R2, Equal, 0, in_frame);
        code.load(R2, Word, CONTEXT, TAG);
        code.compute(R2, And, 0xfff);
        code.store(Half, STACK, STATION_VLAN, R2);
        TAGS.iter().for_each(|&tag| code.jump_if(ETHERTYPE, Equal, tag, inner));
        code.jump(network);

        code.place(in_frame);
        let tagged = code.label();
        TAGS.iter().for_each(|&tag| code.jump_if(ETHERTYPE, Equal, tag, tagged));
        code.jump(network);
        code.place(tagged);
        self.read(SHORT, 4, cut);
        let code = &mut self.code;
        code.load_big_endian(R2, STACK, SHORT);
        code.compute(R2, And, 0xfff);
        code.store(Half, STACK, STATION_VLAN, R2);
        code.load(ETHERTYPE, Half, STACK, SHORT + 2);
        code.compute(OFFSET, Add, 4);
        TAGS.iter().for_each(|&tag| code.jump_if(ETHERTYPE, Equal, tag, inner));
        code.jump(network);

        // A frame that ends inside a tag belongs to VLAN 4095, which has no members.
        code.place(cut);
        code.store_value(Half, STACK, STATION_VLAN, 0xfff);
        code.jump(self.without_hash);

        code.place(inner);
        self.read(SHORT, 4, cut);
        self.code.load(ETHERTYPE, Half, STACK, SHORT + 2);
        self.code.compute(OFFSET, Add, 4);
        self.code.place(network);
    }

    fn network(&mut self) {
        let [ipv4, ipv6] = [(); 2].map(|()| self.code.label());
        self.code.jump_if(ETHERTYPE, Equal, IPV4, ipv4);
        self.code.jump_if(ETHERTYPE, Equal, IPV6, ipv6);
        self.code.jump(self.without_hash);
        self.code.place(ipv4);
        self.ipv4();
        self.code.place(ipv6);
        self.ipv6();
    }

    fn ipv4(&mut self) {
        self.read(HEADER, 20, self.without_hash);
        self.version(4);
        let code = &mut self.code;
        code.load(R1, Byte, STACK, HEADER);
        code.compute(R1, And, 15);
        code.compute(R1, ShiftLeft, 2);
        code.jump_if(R1, Less, 20, self.without_hash);
        code.load_big_endian(R2, STACK, HEADER + 2);
        code.jump_if_compared(R2, Less, R1, self.without_hash);
        code.combine(R2, Add, OFFSET);
        code.jump_if_compared(R2, Greater, END, self.without_hash);
        code.combine(END, Set, R2);
        code.combine(OFFSET, Add, R1);
        code.compute(HASH, Set, 0);
        self.hash(HEADER + 12, 0, 8);
        let code = &mut self.code;
        // More fragments follow, or this is not the first.
        code.load_big_endian(R1, STACK, HEADER + 6);
        code.compute(R1, And, 0x3fff);
        code.jump_if(R1, NotEqual, 0, self.steer);
        code.load(R1, Byte, STACK, HEADER + 9);
        self.transport(8);
    }

    fn ipv6(&mut self) {
        let transport = self.code.label();
        self.read(HEADER, 40, self.without_hash);
        self.version(6);
        let code = &mut self.code;
        code.compute(OFFSET, Add, 40);
        code.load_big_endian(R2, STACK, HEADER + 4);
        code.combine(R2, Add, OFFSET);
        code.jump_if_compared(R2, Greater, END, self.without_hash);
        code.combine(END, Set, R2);
        code.compute(HASH, Set, 0);
        self.hash(HEADER + 8, 0, 32);
        self.code.load(R1, Byte, STACK, HEADER + 6);
        for _ in 0..MOST_EXTENSIONS {
            self.extension(transport);
        }
        EXTENSIONS.iter().for_each(|&kind| self.code.jump_if(R1, Equal, kind, self.without_hash));
        self.code.place(transport);
        self.transport(32);
    }

    /// Steps over the IPv6 extension header with its number in R1, and leaves the next header's
    /// number there.
    fn extension(&mut self, transport: Label) {
        let [known, authentication, fragment, step] = [(); 4].map(|()| self.code.label());
        EXTENSIONS.iter().for_each(|&kind| self.code.jump_if(R1, Equal, kind, known));
        self.code.jump(transport);
        self.code.place(known);
        self.code.store(Word, STACK, EXTENSION_KIND, R1);
        self.fits(2);
        self.read(SHORT, 2, self.without_hash);
        let code = &mut self.code;
        code.load(R1, Word, STACK, EXTENSION_KIND);
        code.load(R2, Byte, STACK, SHORT + 1);
        code.jump_if(R1, Equal, FRAGMENT, fragment);
        code.jump_if(R1, Equal, AUTHENTICATION, authentication);
        code.compute(R2, Add, 1);
        code.compute(R2, ShiftLeft, 3);
        code.jump(step);
        code.place(authentication);
        code.compute(R2, Add, 2);
        code.compute(R2, ShiftLeft, 2);
        code.jump(step);
        code.place(fragment);
        code.compute(R2, Set, 8);
        code.place(step);
        code.combine(OFFSET, Add, R2);
        code.jump_if_compared(OFFSET, Greater, END, self.without_hash);
        code.jump_if(R1, Equal, FRAGMENT, self.steer);
        code.load(R1, Byte, STACK, SHORT);
    }

    /// Hashes the ports of TCP and UDP (R1 is the protocol); the first one is byte `place` of the
    /// hash's input.
    fn transport(&mut self, place: usize) {
        let [tcp, udp, ports] = [(); 3].map(|()| self.code.label());
        self.code.jump_if(R1, Equal, TCP, tcp);
        self.code.jump_if(R1, Equal, UDP, udp);
        self.code.jump(self.steer);

        self.code.place(tcp);
        self.fits(20);
        self.read(SHORT, 14, self.without_hash);
        let code = &mut self.code;
        code.load(R1, Byte, STACK, SHORT + 12);
        code.compute(R1, ShiftRight, 4);
        code.compute(R1, ShiftLeft, 2);
        code.jump_if(R1, Less, 20, self.without_hash);
        code.combine(R1, Add, OFFSET);
        code.jump_if_compared(R1, Greater, END, self.without_hash);
        code.jump(ports);

        code.place(udp);
        self.fits(8);
        self.read(SHORT, 8, self.without_hash);
        let code = &mut self.code;
        code.load_big_endian(R1, STACK, SHORT + 4);
        code.jump_if(R1, Less, 8, self.without_hash);
        code.combine(R1, Add, OFFSET);
        code.jump_if_compared(R1, Greater, END, self.without_hash);

        code.place(ports);
        self.hash(SHORT, place, 4);
        self.code.jump(self.steer);
    }

    /// Joins the paths with and without a hash: reads the vNIC's table at the hash.
    fn steer(&mut self) {
        let [found, none] = [(); 2].map(|()| self.code.label());
        let code = &mut self.code;
        code.place(self.without_hash);
        code.compute(HASH, Set, 0);
        code.place(self.steer);
        code.map(R1, self.maps.vnics);
        code.combine(R2, Set, STACK);
        code.compute(R2, Add, STATION.into());
        code.call(Helper::Lookup);
        code.compute(R1, Set, 0);
        code.jump_if(R0, Equal, 0, found);
        code.load(R1, Word, R0, 0);
        code.place(found);
        code.store(Word, STACK, SHORT, R1);
        code.compute(QUEUE, Set, 0);
        code.compute(HASH, And, ENTRIES as i32 - 1);
        self.row(self.maps.tables, none);
        let code = &mut self.code;
        code.combine(R0, Add, HASH);
        code.load(QUEUE, Byte, R0, 0);
        self.row(self.maps.frames, none);
        let code = &mut self.code;
        code.compute(HASH, ShiftLeft, 3);
        code.combine(R0, Add, HASH);
        code.compute(R1, Set, 1);
        code.add_atomically(R0, 0, R1);
        code.place(none);
        code.combine(R0, Set, QUEUE);
        code.exit();
    }

    /// Sets R0 to the value of the vNIC with its number on the stack.
    fn row(&mut self, map: BorrowedFd<'_>, otherwise: Label) {
        let code = &mut self.code;
        code.map(R1, map);
        code.combine(R2, Set, STACK);
        code.compute(R2, Add, SHORT.into());
        code.call(Helper::Lookup);
        code.jump_if(R0, Equal, 0, otherwise);
    }

    /// Copies `len` bytes at the offset to the stack, or jumps to `otherwise`.
    fn read(&mut self, to: i16, len: i32, otherwise: Label) {
        let code = &mut self.code;
        code.combine(R1, Set, CONTEXT);
        code.combine(R2, Set, OFFSET);
        code.combine(R3, Set, STACK);
        code.compute(R3, Add, to.into());
        code.compute(R4, Set, len);
        code.call(Helper::Load);
        code.jump_if(R0, NotEqual, 0, otherwise);
    }

    /// Gives up the hash unless the IP packet has `len` bytes at the offset.
    fn fits(&mut self, len: i32) {
        self.code.combine(R2, Set, OFFSET);
        self.code.compute(R2, Add, len);
        self.code.jump_if_compared(R2, Greater, END, self.without_hash);
    }

    fn version(&mut self, version: i32) {
        self.code.load(R1, Byte, STACK, HEADER);
        self.code.compute(R1, ShiftRight, 4);
        self.code.jump_if(R1, NotEqual, version, self.without_hash);
    }

    /// Adds bytes of the stack to the hash; the first one is byte `place` of its input.
    fn hash(&mut self, from: i16, place: usize, count: usize) {
        let base = if place < FAR { 0 } else { FAR };
        self.code.map_value(R1, self.maps.key, (base * TABLE_BYTES) as i32);
        for (at, byte) in (place - base..).zip(0..count) {
            let code = &mut self.code;
            code.load(R2, Byte, STACK, from + byte as i16);
            code.compute(R2, ShiftLeft, 2);
            code.combine(R2, Add, R1);
            code.load(R2, Word, R2, (at * TABLE_BYTES) as i16);
            code.combine(HASH, Xor, R2);
        }
    }
}
