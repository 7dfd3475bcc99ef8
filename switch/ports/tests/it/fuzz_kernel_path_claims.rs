//! Fuzz target: whatever a container says about a frame's checksum and segments, what the kernel
//! carries leaves the switch with the bytes that were judged, and with a right checksum; what is
//! said honestly is carried. A finding starts with `FINDING` and what kind it is.
//!
//! The frames are sent through real interfaces by a packet socket with a virtio-net header, as a
//! container with CAP_NET_RAW does. The interface that they leave by finishes no checksum and cuts
//! no train itself, so the kernel does, as it was told to, and the receiver sees the result.
//!
//! A run is as long as that of [`fuzz_team`](crate::fuzz_team).

#![allow(clippy::cast_possible_truncation, reason = "a test's frames are short")]

use crate::kernel_path::Bed;
use crate::support::in_namespace;
use crate::veth::{OUR_MAC, THEIR_MAC};
use bolero::TypeGenerator;
use ports::kernel_path::{Glance, LEASE, Offer, Start};
use ports::{Burst, IngressQueue, Nanos, Outgoing};
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use std::cell::RefCell;
use std::process::Command;
use std::time::{Duration, Instant};
use wire::vnet::{Flags, GsoType, VnetHeader};

/// A frame and what is said about it.
#[derive(Clone, Copy, Debug, TypeGenerator)]
struct Said {
    is_v6: bool,
    is_tcp: bool,
    payload: u16,
    /// Whether its checksum is left to others.
    is_partial: bool,
    /// How the place of the checksum is chosen, and with what numbers.
    place: u8,
    numbers: [u8; 2],
    /// The kind of train, and its segments' size.
    kind: u8,
    size: u16,
}

/// A frame as it is sent.
struct Sent {
    bytes: Vec<u8>,
    vnet: VnetHeader,
    transport: usize,
    /// Bytes of all headers.
    headers: usize,
    /// Whether all that is said is so.
    is_honest: bool,
}

const TCP: u8 = 6;
const UDP: u8 = 17;
/// UDP's destination port of the flows, of a flow that is never carried, and of one that is.
const PORT: u16 = 0x2000;
const TO_SWITCH: u16 = 0x2001;
const TO_RECEIVER: u16 = 0x2002;

/// Returns a frame without payload, and where its transport header starts.
fn headers(is_v6: bool, protocol: u8, port: u16, payload: usize) -> (Vec<u8>, usize) {
    let transport_len = if protocol == TCP { 20 } else { 8 };
    let length = u16::try_from(transport_len + payload).unwrap();
    let mut bytes = [&THEIR_MAC[..], &OUR_MAC].concat();
    if is_v6 {
        let station = |last| [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
        bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        bytes.extend(length.to_be_bytes());
        bytes.extend([protocol, 64]);
        bytes.extend([station(2), station(1)].concat());
    } else {
        bytes.extend([8, 0, 0x45, 0]);
        bytes.extend((20 + length).to_be_bytes());
        bytes.extend([0, 1, 0x40, 0, 64, protocol, 0, 0, 10, 9, 0, 2, 10, 9, 0, 1]);
        let sum = !fold(&bytes[14..34], 0);
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    let transport = bytes.len();
    bytes.extend([0x10, 0]);
    bytes.extend(port.to_be_bytes());
    if protocol == TCP {
        bytes.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    } else {
        bytes.extend(length.to_be_bytes());
        bytes.extend([0, 0]);
    }
    (bytes, transport)
}

impl Said {
    fn write(self) -> Sent {
        let is_train = self.is_tcp && self.kind & 3 != 0;
        let size = 48 + self.size % 1000;
        let payload = if is_train { 1200 + self.payload % 2000 } else { self.payload % 1200 };
        let protocol = if self.is_tcp { TCP } else { UDP };
        let (mut bytes, transport) = headers(self.is_v6, protocol, PORT, payload.into());
        let headers = bytes.len();
        bytes.extend((0..payload).map(|number| (number % 251) as u8));
        let own = [transport, if self.is_tcp { 16 } else { 6 }];
        let place = self.place(own);
        let mut vnet = VnetHeader::default();
        let is_partial = if is_train { self.kind & 0x60 != 0 } else { self.is_partial };
        if is_partial {
            vnet.set_flags(Flags::NEEDS_CSUM);
            vnet.csum_start.set(place[0] as u16);
            vnet.csum_offset.set(place[1] as u16);
            let at = transport + own[1];
            let sum = fold(&pseudo(&bytes, transport), 0);
            bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        let right = if self.is_v6 { GsoType::Tcp6 } else { GsoType::Tcp4 };
        let wrong = if self.is_v6 { GsoType::Tcp4 } else { GsoType::Tcp6 };
        let kind = if self.kind & 0x1c == 0 { wrong } else { right };
        if is_train {
            vnet.set_gso(kind, false);
            vnet.gso_size.set(size);
            vnet.hdr_len.set(headers as u16);
        }
        // A train without a checksum to be finished is cut by its sender's own kernel, which
        // finishes it.
        let is_honest = (!is_partial || place == own) && (!is_train || kind == right);
        Sent { bytes, vnet, transport, headers, is_honest }
    }

    /// Returns where the checksum is said to start, and its place from there on.
    fn place(self, own: [usize; 2]) -> [usize; 2] {
        let [first, second] = self.numbers.map(usize::from);
        match self.place % 8 {
            // The kernel asks for room for an IP header in front.
            0 => [20 + first % 80, second % 40],
            1 => [own[0], second % 40],
            2 => [20 + first % 80, own[1]],
            3 => [own[0] + first % 3, own[1] + second % 3],
            _ => own,
        }
    }
}

/// Returns the pseudo header of a whole packet.
fn pseudo(bytes: &[u8], transport: usize) -> Vec<u8> {
    let length = (bytes.len() - transport) as u32;
    let (addresses, protocol) =
        if transport == 34 { (&bytes[26..34], bytes[23]) } else { (&bytes[22..54], bytes[20]) };
    [addresses, &length.to_be_bytes(), &[0, 0, 0, protocol]].concat()
}

fn fold(bytes: &[u8], start: u32) -> u16 {
    let mut sum = bytes.chunks(2).fold(start, |sum, pair| {
        sum + u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]))
    });
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

impl Sent {
    /// Checks what came of it, frame by frame.
    fn compare(&self, came: &[Vec<u8>], said: Said) {
        let told = || format!("{said:?} as {:02x?}", self.bytes.get(..self.headers));
        let mut payload = vec![];
        for frame in came {
            let judged = self.judged();
            let is_same = judged
                .iter()
                .all(|place| frame.get(place.clone()) == self.bytes.get(place.clone()));
            assert!(is_same, "FINDING (changed) {:02x?} of {}", frame.get(..self.headers), told());
            payload.extend_from_slice(&frame[self.headers.min(frame.len())..]);
            if self.vnet.flags().contains(Flags::NEEDS_CSUM) {
                let sum = fold(&pseudo(frame, self.transport), 0);
                let sum = fold(&frame[self.transport..], sum.into());
                assert_eq!(sum, 0xffff, "FINDING (checksum) {}", told());
            }
        }
        // The switch refuses such a train.
        let is_train = self.vnet.gso() != GsoType::None;
        assert!(self.is_honest || !is_train || came.is_empty(), "FINDING (train) {}", told());
        let sent = &self.bytes[self.headers..];
        assert!(came.is_empty() || payload == sent, "FINDING (payload) {}", told());
        assert!(!self.is_honest || !came.is_empty(), "FINDING (kept) {}", told());
    }

    /// The places of all that a flow's key has.
    fn judged(&self) -> Vec<std::ops::Range<usize>> {
        let network = if self.transport == 34 { [23..24, 26..34] } else { [20..21, 22..54] };
        let [protocol, addresses] = network;
        vec![0..14, protocol, addresses, self.transport..self.transport + 4]
    }
}

/// The bed, and what was tried.
struct Site {
    bed: Bed,
    passes: u16,
    sent: u64,
    refused: u64,
    carried: u64,
}

impl Site {
    fn make() -> Option<Site> {
        let bed = Bed::make()?;
        if let Some(reason) = bed.path.unchecked() {
            eprintln!("skipped: the kernel does not check checksums: {reason}");
            return None;
        }
        let off = Command::new("ethtool").args(["-K", "millb0", "tx", "off"]).status();
        if !off.is_ok_and(|status| status.success()) {
            eprintln!("skipped: needs ethtool");
            return None;
        }
        // So that frames stay in order.
        let mut here = CpuSet::new();
        here.set(sched_getcpu());
        sched_setaffinity(None, &here).unwrap();
        let flows = [false, true].into_iter().flat_map(|is_v6| {
            [(TCP, PORT), (UDP, PORT), (UDP, TO_RECEIVER)]
                .map(|(protocol, port)| headers(is_v6, protocol, port, 1).0)
        });
        let [from, to] = bed.hooks();
        for header in flows {
            let key = Glance::read(&header).unwrap().key;
            let moment = from.moment();
            assert!(from.offer(to, Offer { key, vlan: 1, mtu: 1500, moment, start: Start::Now }));
        }
        Some(Site { bed, passes: 0, sent: 0, refused: 0, carried: 0 })
    }

    /// Sends a frame. Returns whether the kernel takes it.
    fn send(&self, bytes: &[u8], vnet: VnetHeader) -> bool {
        let mut drops = vec![];
        let frame = Outgoing { vnet, header: bytes, payload: &[], len: bytes.len() as u32 };
        self.bed.machines[0].device.egress[0].deliver(&[frame], &mut drops).unwrap();
        drops.is_empty()
    }

    /// Sends a frame and then the marks, which say that it has passed. Returns whether the kernel
    /// took it, and what came to the switch and to the receiver; `None` if the lease may have run
    /// out meanwhile.
    fn pass(&mut self, frame: Option<&Sent>) -> Option<(bool, [Vec<Vec<u8>>; 2])> {
        self.passes = self.passes.wrapping_add(1);
        let [switch, receiver] = [TO_SWITCH, TO_RECEIVER].map(|port| mark(port, self.passes));
        let start = Instant::now();
        self.bed.path.extend_lease();
        let is_taken = frame.is_none_or(|frame| self.send(&frame.bytes, frame.vnet));
        assert!(self.send(&switch, VnetHeader::default()));
        assert!(self.send(&receiver, VnetHeader::default()));
        if start.elapsed() > LEASE / 2 {
            return None;
        }
        let left = until_mark(self.bed.at_switch(), &switch);
        Some((is_taken, [left, until_mark(self.bed.at_receiver(), &receiver)]))
    }

    fn try_one(&mut self, said: Said) {
        let sent = said.write();
        let (is_taken, [left, came]) = loop {
            if let Some(passed) = self.pass(Some(&sent)) {
                break passed;
            }
            while self.pass(None).is_none() {}
        };
        self.sent += 1;
        if !is_taken {
            self.refused += 1;
            assert!(!sent.is_honest, "the kernel takes what is honest: {said:?}");
            return;
        }
        self.carried += u64::from(!came.is_empty());
        assert!(
            left.len() <= 1 && (left.is_empty() || came.is_empty()),
            "FINDING (copies) {said:?}"
        );
        assert!(!left.is_empty() || !came.is_empty(), "FINDING (nowhere) {said:?}");
        sent.compare(&came, said);
    }
}

/// Returns the mark of a pass: its number is IP's identification.
fn mark(port: u16, pass: u16) -> Vec<u8> {
    let mut mark = headers(false, UDP, port, 0).0;
    mark[18..20].copy_from_slice(&pass.to_be_bytes());
    mark
}

/// Takes what comes before the mark.
fn until_mark(queue: &mut IngressQueue, mark: &[u8]) -> Vec<Vec<u8>> {
    let (mut came, mut is_over, start) = (vec![], false, Instant::now());
    while !is_over {
        let mut burst = Burst::new();
        queue.take(Nanos(1), &mut burst).unwrap();
        for frame in burst.frames() {
            let mut bytes = vec![];
            burst.slices(frame).iter().for_each(|slice| slice.append_to(&mut bytes));
            let is_mark = bytes.starts_with(mark);
            is_over |= is_mark;
            // Not the kernel's own, such as neighbour discovery, which have another destination.
            if bytes.starts_with(&THEIR_MAC) && !is_mark {
                came.push(bytes);
            }
        }
        drop(burst);
        queue.release();
        assert!(start.elapsed() < Duration::from_secs(10), "FINDING (kept) a mark has not come");
    }
    came
}

thread_local! {
    static SITE: RefCell<Option<Site>> = const { RefCell::new(None) };
}

#[test]
fn fuzz_kernel_path_claims() {
    in_namespace(|| {
        SITE.set(Site::make());
        if SITE.with_borrow(Option::is_none) {
            return;
        }
        bolero::check!().with_type::<Vec<Said>>().for_each(|all| {
            SITE.with_borrow_mut(|site| {
                let site = site.as_mut().unwrap();
                all.iter().for_each(|said| site.try_one(*said));
            });
        });
        SITE.with_borrow(|site| {
            let Site { sent, refused, carried, .. } = site.as_ref().unwrap();
            eprintln!("{sent} sent, {refused} refused by the kernel, {carried} carried");
            assert!(carried * 4 > *sent && carried + refused < *sent, "of each kind");
        });
    });
}
