// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
//! The two programs of a carried port, as instructions.
//!
//! A packet socket sees a received frame before the interface's classifiers do. So the *judge*, the
//! filter of the port's packet socket, decides whether the kernel carries the frame, and leaves the
//! verdict in a slot of the processor; the *carrier*, a classifier of the interface, takes the
//! verdict and redirects the frame. The judge hides from the socket exactly what the carrier takes.
//! Both run for one frame after the other on one processor, and the judge writes the slot for each
//! frame, so a verdict is of the last frame judged. The carrier compares interface and length all
//! the same, and counts what does not match. A verdict that was not taken when the next frame is
//! judged means that the carrier is gone, as after the death of a process whose socket is kept: the
//! judge ends the lease.
//!
//! The judge carries a frame if all of this holds, and leaves it to the switch otherwise: it has no
//! tag, is unicast IPv4 without options and fragments or IPv6 without extension headers, is whole,
//! is TCP with ACK and without SYN, FIN, RST and URG, or UDP that is no train; as a train it ends
//! with its packet, and its segments are no smaller than TCP makes them; its flow has an entry
//! that is on, decided under the present generations of both ports; the lease has not run out;
//! each segment fits the receiving port's MTU; a checksum that is left to others is the transport
//! header's own; and a train is one of TCP over its IP version, with a checksum that is left to
//! others or that a driver vouches for.
//!
//! For the last two it reads the kernel's own description of the frame (see [`Claims`]). The kernel
//! permits that only to programs whose licence is compatible with the GPL: hence the first line.
//! Where it is not permitted all else holds, and flows from those who could lie stay with the
//! switch.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "places in a flow of 128 bytes and in 512 bytes of stack"
)]

use super::claims::{Claims, Summed};
use super::layout::{Flow, control, key};
use crate::bpf;
use crate::bpf::assemble::{Assembler, Condition, Helper, Instruction, Label, Operation, Register};
use crate::bpf::assemble::{STACK, Width};
use Condition::{Equal, Greater, Less, Meets, NotEqual};
use Operation::{Add, And, Set, ShiftLeft, ShiftRight, Subtract};
use Register::{R0, R1, R2, R3, R4, R6, R7, R8, R9};
use Width::{Byte, Double, Half, Word};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// The maps of the programs.
pub(super) struct Maps<'m> {
    /// Keys to places in `slots`.
    pub(super) flows: BorrowedFd<'m>,
    /// The flows, see [`Flow`].
    pub(super) slots: BorrowedFd<'m>,
    /// The generation of each port, 8 bytes each.
    pub(super) generations: BorrowedFd<'m>,
    /// One value, see [`control`].
    pub(super) control: BorrowedFd<'m>,
    /// For each processor the [`Verdict`].
    pub(super) verdict: BorrowedFd<'m>,
}

impl<'m> Maps<'m> {
    /// Makes it from descriptors in the order of the fields.
    pub(super) fn of([flows, slots, generations, control, verdict]: [BorrowedFd<'m>; 5]) -> Self {
        Maps { flows, slots, generations, control, verdict }
    }
}

/// The verdict's words.
pub(super) struct Verdict;

impl Verdict {
    const INTERFACE: i16 = 0;
    const LENGTH: i16 = 4;
    /// The flow's place plus 1; 0 leaves the frame to the switch.
    pub(super) const FLOW: i16 = 8;
    /// Bytes of all.
    pub(super) const SIZE: u32 = 16;
}

/// Offsets in `struct __sk_buff`.
pub(super) mod context {
    pub(in super::super) const LENGTH: i16 = 0;
    pub(in super::super) const KIND: i16 = 4;
    pub(in super::super) const MARK: i16 = 8;
    pub(in super::super) const TAG_PRESENT: i16 = 20;
    pub(in super::super) const INTERFACE: i16 = 40;
    pub(in super::super) const SEGMENTS: i16 = 164;
    pub(in super::super) const SEGMENT_SIZE: i16 = 176;
}

/// `PACKET_HOST`, without which the receiver's stack would drop the frame.
const FOR_THIS_HOST: i32 = 0;
/// `TCX_NEXT`: the frame goes on.
const NEXT: i32 = -1;
/// A filter's result that hides the frame from the socket, and one that shows all of it.
const HIDE: i32 = 0;
const SHOW: i32 = -1;

// The judge's stack: the flow's key, then the headers as far as they have a fixed length, placed so
// that addresses are aligned, then the transport header, a map's index, a flow's state, and the
// checksum's place.
const KEY: i16 = -(key::SIZE as i16);
const ETHERNET: i16 = KEY - 54;
const IP: i16 = ETHERNET + 14;
const TRANSPORT: i16 = ETHERNET - 26;
const INDEX: i16 = TRANSPORT - 8;
const EXPECTED: i16 = INDEX - 8;
/// Where the checksum belongs: the start of the transport header, and the field's place there.
const CHECKSUM: i16 = EXPECTED - 4;

const ETHERNET_LEN: i32 = 14;
const IPV4_LEN: i32 = 20;
const IPV6_LEN: i32 = 40;
const TCP: i32 = 6;
const UDP: i32 = 17;
/// Places of the checksum in the transport header.
const TCP_CHECKSUM: i32 = 16;
const UDP_CHECKSUM: i32 = 6;

/// The smallest MSS that Linux takes from a peer (`TCP_MIN_SND_MSS`). A station that asks for less
/// wants work of whoever cuts the train.
const SMALLEST_SEGMENT: i32 = 48;

/// Bits of TCP's flags.
const SYN_FIN_RST_URG: i32 = 0x27;
const ACK: i32 = 0x10;

/// Converts an EtherType to the machine's reading of its bytes in a frame.
const fn as_it_stands(ethertype: u16) -> i32 {
    ethertype.to_be() as i32
}

/// Loads the judge for these maps, in the order of [`Maps`].
///
/// # Errors
/// Fails if the kernel does not describe its frames, see [`Claims::of_kernel`], or the process lacks
/// CAP_BPF or CAP_PERFMON.
pub(crate) fn load_judge(maps: [BorrowedFd<'_>; 5]) -> io::Result<OwnedFd> {
    let claims = Claims::of_kernel()?;
    let judge = judge(Assembler::default(), &Maps::of(maps), Some(&claims));
    bpf::load_reader(bpf::Kind::SocketFilter, &judge.ok_or(io::ErrorKind::InvalidInput)?)
}

/// Loads a judge like [`load_judge`] that believes what is said about a frame, which takes no
/// CAP_PERFMON.
///
/// # Errors
/// Fails if the kernel refuses it.
pub(super) fn load_believing_judge(maps: [BorrowedFd<'_>; 5]) -> io::Result<OwnedFd> {
    let judge = judge(Assembler::default(), &Maps::of(maps), None);
    bpf::load(bpf::Kind::SocketFilter, &judge.ok_or(io::ErrorKind::InvalidInput)?)
}

/// Assembles the judge behind other instructions, which leave the context in `R1`. Without `claims`
/// it believes what is said about a frame. `None` only if a jump were too long.
pub(super) fn judge(
    mut code: Assembler,
    maps: &Maps<'_>,
    claims: Option<&Claims>,
) -> Option<Vec<Instruction>> {
    let (slow, known) = (code.label(), code.label());
    let mut judge = Judge { maps, code, slow, known };
    judge.check_last();
    judge.begin();
    judge.network();
    judge.transport();
    judge.find();
    judge.compare();
    claims.into_iter().for_each(|claims| judge.check(claims));
    judge.check_lease();
    judge.end();
    judge.code.finish()
}

/// The program under construction. `R6` is the context and `R7` the frame's length. `R8` is the
/// offset of the transport header, later the flow; `R9` the end of the IP packet, later that of the
/// headers.
struct Judge<'p> {
    maps: &'p Maps<'p>,
    code: Assembler,
    /// Jumped to if the frame is the switch's.
    slow: Label,
    /// Jumped to once addresses and protocol (`R1`) are read.
    known: Label,
}

const CONTEXT: Register = R6;
const LENGTH: Register = R7;
const OFFSET: Register = R8;
const FLOW: Register = R8;
/// The kernel's own description of the frame, once the flow is compared.
const FRAME: Register = R8;
const END: Register = R9;
const HEADERS: Register = R9;

impl Judge<'_> {
    /// Ends the lease if the last verdict was not taken: then there is no carrier.
    fn check_last(&mut self) {
        let taken = self.code.label();
        self.code.combine(CONTEXT, Set, R1);
        self.lookup_first(self.maps.verdict);
        let code = &mut self.code;
        code.load(R1, Word, R0, Verdict::FLOW);
        code.jump_if(R1, Equal, 0, taken);
        code.store_value(Word, R0, Verdict::FLOW, 0);
        self.lookup_first(self.maps.control);
        let code = &mut self.code;
        code.store_value(Double, R0, control::LEASE, 0);
        code.compute(R1, Set, 1);
        code.add_atomically(R0, control::UNMATCHED, R1);
        code.place(taken);
    }

    /// Begins the key: the interface and the stations. While no flow is carried there is no lease,
    /// and a frame costs next to nothing.
    fn begin(&mut self) {
        self.lookup_first(self.maps.control);
        let code = &mut self.code;
        code.load(R1, Double, R0, control::LEASE);
        code.jump_if(R1, Equal, 0, self.slow);
        code.load(LENGTH, Word, CONTEXT, context::LENGTH);
        code.load(R1, Word, CONTEXT, context::TAG_PRESENT);
        code.jump_if(R1, NotEqual, 0, self.slow);
        // No carrier would see it.
        code.load(R1, Word, CONTEXT, context::KIND);
        code.jump_if(R1, Equal, libc::PACKET_OUTGOING.into(), self.slow);
        for offset in (0..key::SIZE as i16).step_by(8) {
            code.store_value(Double, STACK, KEY + offset, 0);
        }
        code.load(R1, Word, CONTEXT, context::INTERFACE);
        code.store(Word, STACK, KEY + key::INTERFACE, R1);
        self.read_fixed(ETHERNET, 0, ETHERNET_LEN + IPV4_LEN);
        let code = &mut self.code;
        code.load(R1, Byte, STACK, ETHERNET);
        code.jump_if(R1, Meets, 1, self.slow);
        for offset in (0..12).step_by(2) {
            code.load(R1, Half, STACK, ETHERNET + offset);
            code.store(Half, STACK, KEY + key::STATIONS + offset, R1);
        }
    }

    fn network(&mut self) {
        let ipv6 = self.code.label();
        let code = &mut self.code;
        code.load(R1, Half, STACK, ETHERNET + 12);
        code.jump_if(R1, Equal, as_it_stands(0x86dd), ipv6);
        code.jump_if(R1, NotEqual, as_it_stands(0x0800), self.slow);
        self.ipv4();
        self.code.place(ipv6);
        self.ipv6();
        self.code.place(self.known);
    }

    fn ipv4(&mut self) {
        let code = &mut self.code;
        code.load(R1, Byte, STACK, IP);
        code.jump_if(R1, NotEqual, 0x45, self.slow);
        // All flags but "don't fragment", and the offset.
        code.load_big_endian(R1, STACK, IP + 6);
        code.jump_if(R1, Meets, 0xbfff, self.slow);
        code.load_big_endian(END, STACK, IP + 2);
        code.compute(END, Add, ETHERNET_LEN);
        code.jump_if_compared(END, Greater, LENGTH, self.slow);
        code.store_value(Byte, STACK, KEY + key::FAMILY, 4);
        for (from, to) in [(IP + 12, key::SOURCE), (IP + 16, key::DESTINATION)] {
            code.load(R1, Word, STACK, from);
            code.store(Word, STACK, KEY + to, R1);
        }
        code.compute(OFFSET, Set, ETHERNET_LEN + IPV4_LEN);
        code.load(R1, Byte, STACK, IP + 9);
        code.jump(self.known);
    }

    fn ipv6(&mut self) {
        self.read_fixed(ETHERNET, 0, ETHERNET_LEN + IPV6_LEN);
        let code = &mut self.code;
        code.load(R1, Byte, STACK, IP);
        code.compute(R1, ShiftRight, 4);
        code.jump_if(R1, NotEqual, 6, self.slow);
        code.load_big_endian(END, STACK, IP + 4);
        // A jumbogram's length is elsewhere.
        code.jump_if(END, Equal, 0, self.slow);
        code.compute(END, Add, ETHERNET_LEN + IPV6_LEN);
        code.jump_if_compared(END, Greater, LENGTH, self.slow);
        code.store_value(Byte, STACK, KEY + key::FAMILY, 6);
        for word in (0..32).step_by(8) {
            code.load(R1, Double, STACK, IP + 8 + word);
            code.store(Double, STACK, KEY + key::SOURCE + word, R1);
        }
        code.compute(OFFSET, Set, ETHERNET_LEN + IPV6_LEN);
        code.load(R1, Byte, STACK, IP + 6);
    }

    /// Reads the transport header (`R1` is the protocol), and leaves the end of the headers.
    fn transport(&mut self) {
        let [udp, ports, single] = [(); 3].map(|()| self.code.label());
        self.code.store(Byte, STACK, KEY + key::PROTOCOL, R1);
        self.code.jump_if(R1, Equal, UDP, udp);
        self.code.jump_if(R1, NotEqual, TCP, self.slow);
        self.read_at_offset(TRANSPORT, 20);
        let code = &mut self.code;
        code.load(R1, Byte, STACK, TRANSPORT + 13);
        code.jump_if(R1, Meets, SYN_FIN_RST_URG, self.slow);
        code.compute(R1, And, ACK);
        code.jump_if(R1, Equal, 0, self.slow);
        code.load(R1, Byte, STACK, TRANSPORT + 12);
        code.compute(R1, ShiftRight, 4);
        code.compute(R1, ShiftLeft, 2);
        code.jump_if(R1, Less, 20, self.slow);
        code.combine(R1, Add, OFFSET);
        code.jump_if_compared(R1, Greater, END, self.slow);
        // Bytes behind the packet would be cut into segments as well.
        code.load(R2, Word, CONTEXT, context::SEGMENT_SIZE);
        code.jump_if(R2, Equal, 0, single);
        code.jump_if(R2, Less, SMALLEST_SEGMENT, self.slow);
        code.jump_if_compared(END, NotEqual, LENGTH, self.slow);
        code.place(single);
        code.combine(HEADERS, Set, R1);
        code.store_value(Half, STACK, CHECKSUM + 2, TCP_CHECKSUM);
        code.jump(ports);

        code.place(udp);
        self.read_at_offset(TRANSPORT, 8);
        let code = &mut self.code;
        code.load(R1, Word, CONTEXT, context::SEGMENT_SIZE);
        code.jump_if(R1, NotEqual, 0, self.slow);
        code.load_big_endian(R1, STACK, TRANSPORT + 4);
        code.jump_if(R1, Less, 8, self.slow);
        code.combine(R1, Add, OFFSET);
        code.jump_if_compared(R1, Greater, END, self.slow);
        code.combine(HEADERS, Set, OFFSET);
        code.compute(HEADERS, Add, 8);
        code.store_value(Half, STACK, CHECKSUM + 2, UDP_CHECKSUM);

        code.place(ports);
        code.store(Half, STACK, CHECKSUM, OFFSET);
        code.load(R1, Word, STACK, TRANSPORT);
        code.store(Word, STACK, KEY + key::PORTS, R1);
    }

    /// Finds the flow that is on, and notes the time in one that is pending.
    fn find(&mut self) {
        let [pending, on] = [(); 2].map(|()| self.code.label());
        let code = &mut self.code;
        code.map(R1, self.maps.flows);
        code.combine(R2, Set, STACK);
        code.compute(R2, Add, KEY.into());
        code.call(Helper::Lookup);
        code.jump_if(R0, Equal, 0, self.slow);
        code.load(R1, Word, R0, 0);
        code.store(Word, STACK, INDEX, R1);
        // Kept for the verdict, beside the index that later lookups overwrite.
        code.store(Word, STACK, INDEX + 4, R1);
        self.lookup(self.maps.slots);
        let code = &mut self.code;
        code.combine(FLOW, Set, R0);
        code.load(R1, Double, FLOW, Flow::STATE);
        code.jump_if(R1, Equal, Flow::ON as i32, on);
        code.jump_if(R1, NotEqual, Flow::OFF as i32, pending);
        code.jump(self.slow);

        // The flow may be ended or be carried from now on meanwhile: that stays.
        code.place(pending);
        code.store(Double, STACK, EXPECTED, R1);
        code.call(Helper::Now);
        code.combine(R2, Set, R0);
        code.load(R0, Double, STACK, EXPECTED);
        code.compare_exchange(FLOW, Flow::STATE, R2);
        code.jump_if(R0, NotEqual, Flow::ON as i32, self.slow);
        code.place(on);
    }

    /// Compares the flow with the generations and the MTU.
    fn compare(&mut self) {
        for (port, generation) in
            [(Flow::FROM, Flow::FROM_GENERATION), (Flow::TO, Flow::TO_GENERATION)]
        {
            self.code.load(R1, Word, FLOW, port);
            self.code.store(Word, STACK, INDEX, R1);
            self.lookup(self.maps.generations);
            let code = &mut self.code;
            code.load(R1, Word, R0, 0);
            code.load(R2, Word, FLOW, generation);
            code.jump_if_compared(R1, NotEqual, R2, self.slow);
        }
        let [single, sized] = [(); 2].map(|()| self.code.label());
        let code = &mut self.code;
        code.load(R1, Word, CONTEXT, context::SEGMENT_SIZE);
        code.jump_if(R1, Equal, 0, single);
        code.combine(R1, Add, HEADERS);
        code.jump(sized);
        code.place(single);
        code.combine(R1, Set, LENGTH);
        code.place(sized);
        code.load(R2, Word, FLOW, Flow::LONGEST);
        code.jump_if_compared(R1, Greater, R2, self.slow);
    }

    /// Leaves a frame to the switch that says of its checksum or its train what is not so.
    fn check(&mut self, claims: &Claims) {
        let [finished, ipv6, train, agreed] = [(); 4].map(|()| self.code.label());
        let Summed { byte, mask, partial, right } = claims.summed;
        let code = &mut self.code;
        code.combine(R1, Set, CONTEXT);
        code.call_described(claims.cast);
        code.combine(FRAME, Set, R0);
        // Headers that lie in pages may change between here and the receiver.
        code.combine(R1, Set, LENGTH);
        code.load(R2, Word, FRAME, claims.paged);
        code.combine(R1, Subtract, R2);
        code.jump_if_compared(HEADERS, Greater, R1, self.slow);
        code.load(R1, Byte, FRAME, byte);
        code.compute(R1, And, mask);
        code.jump_if(R1, NotEqual, partial, finished);
        // Both are places behind `head`.
        code.load(R1, Half, FRAME, claims.checksum_start);
        code.load(R2, Half, FRAME, claims.mac_header);
        code.combine(R1, Subtract, R2);
        code.load(R2, Half, STACK, CHECKSUM);
        code.jump_if_compared(R1, NotEqual, R2, self.slow);
        code.load(R1, Half, FRAME, claims.checksum_offset);
        code.load(R2, Half, STACK, CHECKSUM + 2);
        code.jump_if_compared(R1, NotEqual, R2, self.slow);
        code.jump(train);
        code.place(finished);
        if !claims.has_bare_trains {
            code.jump_if(R1, Equal, right, train);
            code.load(R2, Word, CONTEXT, context::SEGMENT_SIZE);
            code.jump_if(R2, NotEqual, 0, self.slow);
        }

        code.place(train);
        code.load(R1, Word, CONTEXT, context::SEGMENT_SIZE);
        code.jump_if(R1, Equal, 0, agreed);
        code.load(R1, Double, FRAME, claims.head);
        code.load(R2, Word, FRAME, claims.end);
        code.combine(R1, Add, R2);
        code.compute(R2, Set, claims.shared.cast_signed());
        code.call_described(claims.cast_pointer);
        code.load(R1, Word, R0, claims.train_kind);
        code.load(R2, Byte, STACK, KEY + key::FAMILY);
        code.jump_if(R2, Equal, 6, ipv6);
        code.jump_if(R1, Meets, claims.not_ipv4, self.slow);
        code.jump(agreed);
        code.place(ipv6);
        code.jump_if(R1, Meets, claims.not_ipv6, self.slow);
        code.place(agreed);
    }

    fn check_lease(&mut self) {
        self.lookup_first(self.maps.control);
        let code = &mut self.code;
        code.load(R8, Double, R0, control::LEASE);
        code.call(Helper::Now);
        code.jump_if_compared(R0, Greater, R8, self.slow);
    }

    /// Writes the verdict, and hides the frame from the socket; or shows it.
    fn end(&mut self) {
        self.lookup_first(self.maps.verdict);
        let code = &mut self.code;
        code.load(R1, Word, CONTEXT, context::INTERFACE);
        code.store(Word, R0, Verdict::INTERFACE, R1);
        code.store(Word, R0, Verdict::LENGTH, LENGTH);
        code.load(R1, Word, STACK, INDEX + 4);
        code.compute(R1, Add, 1);
        code.store(Word, R0, Verdict::FLOW, R1);
        code.compute(R0, Set, HIDE);
        code.exit();

        // Of a socket in a group the filter keeps what the interface sends.
        let received = code.label();
        code.place(self.slow);
        code.load(R1, Word, CONTEXT, context::KIND);
        code.compute(R0, Set, SHOW);
        code.jump_if(R1, NotEqual, libc::PACKET_OUTGOING.into(), received);
        code.compute(R0, Set, HIDE);
        code.place(received);
        code.exit();
    }

    /// Copies `len` bytes at a fixed offset to the stack, or leaves the frame to the switch.
    fn read_fixed(&mut self, to: i16, offset: i32, len: i32) {
        self.code.compute(R2, Set, offset);
        self.read(to, len);
    }

    fn read_at_offset(&mut self, to: i16, len: i32) {
        self.code.combine(R2, Set, OFFSET);
        self.read(to, len);
    }

    fn read(&mut self, to: i16, len: i32) {
        let code = &mut self.code;
        code.combine(R1, Set, CONTEXT);
        code.combine(R3, Set, STACK);
        code.compute(R3, Add, to.into());
        code.compute(R4, Set, len);
        code.call(Helper::Load);
        code.jump_if(R0, NotEqual, 0, self.slow);
    }

    /// Sets `R0` to the first value of a map.
    fn lookup_first(&mut self, map: BorrowedFd<'_>) {
        self.code.store_value(Word, STACK, INDEX, 0);
        self.lookup(map);
    }

    fn lookup(&mut self, map: BorrowedFd<'_>) {
        lookup(&mut self.code, map, INDEX, self.slow);
    }
}

/// Sets `R0` to the value of the map whose index is on the stack.
fn lookup(code: &mut Assembler, map: BorrowedFd<'_>, index: i16, otherwise: Label) {
    code.map(R1, map);
    code.combine(R2, Set, STACK);
    code.compute(R2, Add, index.into());
    code.call(Helper::Lookup);
    code.jump_if(R0, Equal, 0, otherwise);
}

/// Assembles the carrier; `None` only if a jump were too long.
pub(super) fn carrier(maps: &Maps<'_>) -> Option<Vec<Instruction>> {
    /// On the carrier's stack.
    const INDEX: i16 = -8;
    let mut code = Assembler::default();
    let [next, unmatched, counted, peer] = [(); 4].map(|()| code.label());
    code.combine(CONTEXT, Set, R1);
    code.store_value(Word, STACK, INDEX, 0);
    lookup(&mut code, maps.verdict, INDEX, next);
    code.load(R8, Word, R0, Verdict::FLOW);
    code.jump_if(R8, Equal, 0, next);
    code.store_value(Word, R0, Verdict::FLOW, 0);
    code.load(LENGTH, Word, CONTEXT, context::LENGTH);
    code.load(R1, Word, R0, Verdict::LENGTH);
    code.jump_if_compared(R1, NotEqual, LENGTH, unmatched);
    code.load(R1, Word, R0, Verdict::INTERFACE);
    code.load(R2, Word, CONTEXT, context::INTERFACE);
    code.jump_if_compared(R1, NotEqual, R2, unmatched);
    code.compute(R8, Add, -1);
    code.store(Word, STACK, INDEX, R8);
    lookup(&mut code, maps.slots, INDEX, unmatched);
    code.combine(FLOW, Set, R0);

    code.compute(R1, Set, 1);
    code.add_atomically(FLOW, Flow::FRAMES, R1);
    code.add_atomically(FLOW, Flow::BYTES, LENGTH);
    code.load(R2, Word, CONTEXT, context::SEGMENTS);
    code.jump_if(R2, Less, 2, counted);
    code.add_atomically(FLOW, Flow::TRAINS, R1);
    code.add_atomically(FLOW, Flow::TRAIN_SEGMENTS, R2);
    code.place(counted);
    code.call(Helper::Now);
    code.store(Double, FLOW, Flow::SEEN, R0);
    code.combine(R1, Set, CONTEXT);
    code.compute(R2, Set, FOR_THIS_HOST);
    code.call(Helper::ChangeType);
    code.load(R1, Word, FLOW, Flow::INTERFACE);
    code.load(R2, Word, FLOW, Flow::WAY);
    code.jump_if(R2, Equal, Flow::TO_PEER as i32, peer);
    code.compute(R2, Set, 0);
    code.call(Helper::Redirect);
    code.exit();
    code.place(peer);
    code.compute(R2, Set, 0);
    code.call(Helper::RedirectPeer);
    code.exit();

    code.place(unmatched);
    code.store_value(Word, STACK, INDEX, 0);
    lookup(&mut code, maps.control, INDEX, next);
    code.compute(R1, Set, 1);
    code.add_atomically(R0, control::UNMATCHED, R1);
    code.place(next);
    code.compute(R0, Set, NEXT);
    code.exit();
    code.finish()
}
