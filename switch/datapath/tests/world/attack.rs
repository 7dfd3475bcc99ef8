//! What the attackers may do, as a fuzzer puts it together.

use super::frames::{Frame, From, Segment, Tag, To, Wrong, mac};
use super::hostile::{Hostile, PAGE, Range};
use super::packets::Packets;
use super::{HOSTILE, MEMORY_64K, MEMORY_1500, RULED, World};
use bolero::TypeGenerator;
use guestmem::Gpa;
use rustix::fs::ftruncate;
use rustix::io::pwrite;
use std::io::Write;
use wire::vnet::VnetHeader;

#[derive(Clone, Debug, TypeGenerator)]
pub(crate) enum Attack {
    /// A message of any kind (most numbers mean something), with a payload that may not fit it and
    /// descriptors.
    Message {
        request: u8,
        need_reply: bool,
        ring: u8,
        payload: Vec<u8>,
        descriptors: u8,
    },
    /// Bytes that are no message.
    Noise(Vec<u8>),
    /// A message about a ring with values that are nearly right.
    Ring {
        request: u8,
        ring: u8,
        value: u16,
    },
    /// 16 bits anywhere in a ring's descriptors, available or used part.
    Write {
        ring: u8,
        part: u8,
        place: u16,
        value: u16,
    },
    /// 16 bits anywhere in the region by which rings are resumed.
    Journal {
        place: u16,
        value: u16,
    },
    /// An address to be announced, an MTU, a status: what the `vhost` crate does not know.
    Unlisted {
        request: u8,
        number: [u8; 6],
        count: u8,
        need_reply: bool,
    },
    /// Another region, of a size that is nearly right.
    Inflight {
        bytes: u16,
        rings: u16,
        size: u16,
    },
    /// The memory file loses its end.
    Truncate(u16),
    Kick(u8),
    /// A frame, cut into pieces, and more memory behind it.
    Frame {
        frame: Frame,
        pieces: u16,
        indirect: bool,
        trailing: u8,
    },
    /// One frame after the other in one burst, which differ by their tags.
    Run {
        to: u8,
        tags: Vec<(Option<Tag>, Option<Tag>)>,
    },
    /// Many frames, each from another address.
    Addresses {
        count: u8,
        first: u16,
        to: To,
    },
    /// The same frame many times.
    Burst {
        to: To,
        len: u16,
        count: u8,
    },
    /// Frames in pieces, each in a page that nobody has touched, or that is to be found anew.
    Sparse {
        to: u8,
        frames: u8,
        pieces: u16,
        pages: u8,
        bytes: u8,
        anew: bool,
    },
    /// What rules and guards are about, from a port that has them or to one that has.
    Packets {
        packets: Packets,
        guarded: bool,
    },
    /// Buffers for receiving that are chains of small pieces.
    Receive {
        pieces: u16,
        bytes: u8,
    },
    /// An eventfd that is full and blocks, for signals or errors, from the start or from later on.
    Signal {
        error: bool,
        ring: bool,
        late: bool,
    },
    /// Memory in a file of a disk.
    MemoryOnDisk,
    /// A control queue that is never empty.
    Control,
    /// Frames of a port with a rate limit; steps of the clock, some of them back.
    Rated(Vec<Paced>),
    /// Segments from an uplink toward a port that coalesces.
    Outside {
        tagged: bool,
        segments: Vec<Segment>,
    },
    /// A port that may send from one address tries others.
    Guarded(Vec<u16>),
    /// Frames for a guest that is not there.
    Absent(u8),
    /// A guest that means well restarts its sending ring, or has it kicked anew.
    Restart {
        packed: bool,
        in_order: bool,
        laps: u8,
        pieces: u8,
        stop: bool,
    },
}

/// A frame of the rated port and the time until it.
#[derive(Clone, Copy, Debug, TypeGenerator)]
pub(crate) struct Paced {
    pub(crate) gap: u8,
    pub(crate) back: u8,
    pub(crate) train: bool,
}

/// Page faults that a frame may cost its sender's and its receiver's memory, and the bytes for each
/// of which it may cost one more.
const FAULTS_OF_FRAME: u64 = 32;
const BYTES_OF_FAULT: u64 = 64;
/// Page faults of the switch's own memory, and of the frames that the receivers had before.
const OTHER_FAULTS: u64 = 2048;

/// A frame whose pieces lie pages apart.
#[derive(Clone, Copy)]
struct SparseFrame {
    to: [u8; 6],
    pieces: usize,
    /// Pages from one piece to the next.
    pages: u64,
    /// Bytes of each piece.
    bytes: u32,
}

impl World {
    /// Carries out an attack, and the turns that it needs.
    pub(crate) fn carry_out(&mut self, attack: &Attack, hostile: &mut Hostile) {
        self.doing = format!("{attack:?}");
        match attack {
            Attack::Frame { frame, pieces, indirect, trailing } => {
                self.send_frame(frame, (*pieces, *indirect, *trailing), hostile);
            }
            Attack::Run { to, tags } => self.run_of_tags(*to, tags, hostile),
            Attack::Addresses { count, first, to } => self.addresses(*count, *first, *to, hostile),
            Attack::Burst { to, len, count } => self.burst(*to, *len, *count, hostile),
            Attack::Sparse { to, frames, pieces, pages, bytes, anew } => {
                let frame = SparseFrame {
                    to: To::Victim(*to).mac(),
                    pieces: 1023 - usize::from(pieces % 512),
                    pages: u64::from(pages % 16) + 1,
                    bytes: [1, 2, 4, 8, 64][usize::from(bytes % 5)],
                };
                self.sparse(frame, frames % 8 + 1, *anew, hostile);
            }
            Attack::Packets { packets, guarded } => self.packets(packets, *guarded, hostile),
            Attack::Receive { pieces, bytes } => self.slow_receiver(*pieces, *bytes),
            Attack::Signal { error, ring, late } => {
                let request = if *error { 14 } else { 13 };
                hostile.give_full_eventfd(request, u64::from(*ring), *late, &self.watch);
                self.watch.during("a signal", || hostile.settle());
            }
            Attack::MemoryOnDisk => {
                let taken = hostile.memory_on_disk();
                assert!(taken != Some(true), "FINDING (memory file): memory on a disk was taken");
            }
            Attack::Control => self.refill_control(hostile),
            Attack::Rated(frames) => self.rated(frames),
            Attack::Outside { tagged, segments } => self.outside(*tagged, segments),
            Attack::Guarded(sources) => self.guarded(sources),
            Attack::Absent(count) => self.absent(*count),
            Attack::Restart { packed, in_order, laps, pieces, stop } => {
                let count = [1, 5, 85, 128, 256, 300][usize::from(laps % 6)];
                self.restart((*packed, *in_order), count, *pieces, *stop);
            }
            _ => {
                self.sent.unknown = true;
                disturb(attack, hostile);
            }
        }
        let _ = self.step();
    }

    fn send_frame(
        &mut self,
        frame: &Frame,
        (pieces, indirect, trailing): (u16, bool, u8),
        hostile: &mut Hostile,
    ) {
        // Mostly few, in one of four frames up to what a table holds: that is what is wrong with it
        // then. Floods are left out: each receiver has its own copy of the pieces, and storm
        // control passes now one, now none.
        let scattered = pieces >> 14 == 3 && matches!(frame.to, To::Victim(_));
        let most = if scattered { 1024 } else { 8 };
        let train = Frame {
            from: From::Own,
            tags: (None, None),
            train: true,
            wrong: Wrong::Nothing,
            ..frame.clone()
        };
        let frame = if scattered { &train } else { frame };
        let id = self.sent.frames.len() as u32;
        let (vnet, bytes) = frame.build(HOSTILE as u8, id);
        let whole = hostile.place(&[&vnet.encode()[..], &bytes].concat());
        let usual = !matches!(frame.wrong, Wrong::Start(_) | Wrong::Offset(_) | Wrong::Flags(_));
        self.sent.frames.insert(id, (bytes, usual));
        let count = u32::from(pieces % most) + 1;
        let each = whole.len.div_ceil(count);
        let piece = |number: u32| Range {
            gpa: whole.gpa + u64::from(number * each),
            len: each.min(whole.len.saturating_sub(number * each)),
        };
        let mut ranges: Vec<Range> = (0..count).map(piece).filter(|range| range.len > 0).collect();
        // Mostly none; then up to 16 MiB.
        let trailing = usize::from(trailing.saturating_sub(127)) * 2;
        ranges.extend(vec![Range { gpa: 0, len: 1 << 16 }; trailing]);
        hostile.send(&ranges, indirect);
        self.steps(2);
        if scattered {
            self.scattered(&ranges, whole, hostile);
        }
    }

    fn addresses(&mut self, count: u8, first: u16, to: To, hostile: &mut Hostile) {
        for number in 0..u16::from(count) {
            let from = From::Random(first.wrapping_add(number)).mac(HOSTILE as u8);
            let frame = [&[0; 12][..], &to.mac(), &from, &[0x88, 0xb6], &[0; 46]].concat();
            let range = hostile.place(&frame);
            hostile.send(&[range], false);
        }
        self.run_dry();
    }

    /// Checks that a frame costs few page faults: some, and one for each so many of its bytes.
    fn sparse(&mut self, frame: SparseFrame, count: u8, anew: bool, hostile: &mut Hostile) {
        if anew {
            hostile.map_anew();
        }
        let header = [&[0; 12][..], &frame.to, &mac(HOSTILE as u8), &[0x88, 0xb6]].concat();
        self.run_dry();
        for _ in 0..count {
            let header = hostile.place(&header);
            let pieces = hostile.untouched(frame.pieces, frame.pages, frame.bytes);
            hostile.send(&[&[header][..], &pieces].concat(), true);
        }
        let faults = self.run_dry();
        let bytes = frame.pieces as u64 * u64::from(frame.bytes);
        let most = OTHER_FAULTS + 2 * u64::from(count) * (FAULTS_OF_FRAME + bytes / BYTES_OF_FAULT);
        assert!(faults <= most, "FINDING (page faults): {faults}, {most} may be: {}", self.doing);
    }

    /// What arrives is held against the rules and guards, see `collect`.
    fn packets(&mut self, packets: &Packets, guarded: bool, hostile: &mut Hostile) {
        let (from, to) = if guarded { (RULED, MEMORY_64K) } else { (HOSTILE, MEMORY_1500) };
        self.fragment_id = self.fragment_id.wrapping_add(1);
        for frame in packets.build(to, from, self.fragment_id) {
            if guarded {
                let _ = self.peers[&RULED].send(nothing(), &frame);
            } else {
                let range = hostile.place(&[&[0; 12][..], &frame].concat());
                hostile.send(&[range], false);
            }
        }
        self.run_dry();
    }

    fn burst(&mut self, to: To, len: u16, count: u8, hostile: &mut Hostile) {
        let mut frame = [&[0; 12][..], &to.mac(), &mac(HOSTILE as u8), &[0x88, 0xb6]].concat();
        frame.resize(12 + 14 + usize::from(len) % 1487, 0x44);
        let range = hostile.place(&frame);
        (0..=count).for_each(|_| hostile.send(&[range], false));
        self.run_dry();
    }
}

/// Spoils memory and messages.
fn disturb(attack: &Attack, hostile: &mut Hostile) {
    match attack {
        Attack::Message { request, need_reply, ring, payload, descriptors } => {
            let mut payload = payload.clone();
            payload.truncate(512);
            if let Some(first) = payload.first_mut() {
                *first = ring % 4;
            }
            hostile.incoherent = true;
            let files = usize::from(descriptors % 9);
            hostile.say_anything(u32::from(request % 48), *need_reply, &payload, files);
        }
        Attack::Noise(bytes) => {
            hostile.incoherent = true;
            let connection = hostile.guest.connection();
            let _ = connection.set_nonblocking(true);
            let _ = (&*connection).write_all(bytes);
            let _ = connection.set_nonblocking(false);
        }
        Attack::Ring { request, ring, value } => {
            // SET_VRING_NUM, SET_VRING_BASE, GET_VRING_BASE, KICK, CALL, ERR, ENABLE.
            let request = [8, 10, 11, 12, 13, 14, 18][usize::from(request % 7)];
            let (ring, value) = (u32::from(ring % 4), u32::from(*value));
            let payload = [ring.to_le_bytes(), value.to_le_bytes()];
            let files = usize::from((12..15).contains(&request));
            hostile.say_anything(request, false, payload.as_flattened(), files);
            hostile.settle();
        }
        Attack::Write { ring, part, place, value } => {
            let Some(rings) = hostile.guest.rings(usize::from(ring % 2)) else { return };
            let part = [rings.descriptors, rings.driver, rings.device][usize::from(part % 3)];
            let gpa = Gpa(part.0 + u64::from(place % 2048) * 2);
            hostile.guest.memory().write(gpa, &value.to_le_bytes());
        }
        Attack::Journal { place, value } => {
            let place = u64::from(place % 2200) * 2;
            let _ = pwrite(hostile.guest.inflight_file(), &value.to_le_bytes(), place);
        }
        Attack::Unlisted { request, number, count, need_reply } => {
            // SEND_RARP, NET_SET_MTU, SET_STATUS, GET_STATUS.
            let request = [19, 20, 39, 40][usize::from(request % 4)];
            let payload = [&number[..], &[0; 2]].concat();
            let payload = if request == 40 { &[][..] } else { &payload };
            hostile.incoherent |= *need_reply || request == 40;
            for _ in 0..count % 32 {
                hostile.say(request, *need_reply, payload, &[]);
            }
            hostile.settle();
        }
        Attack::Inflight { bytes, rings, size } => {
            let bytes = u64::from(*bytes).to_le_bytes();
            let counts = [(rings % 4).to_le_bytes(), size.to_le_bytes()].concat();
            // SET_INFLIGHT_FD: size, offset, rings, descriptors of each, filled up.
            let payload = [&bytes[..], &[0; 8], &counts, &[0; 4]].concat();
            hostile.incoherent = true;
            hostile.say_anything(32, false, &payload, 1);
        }
        Attack::Kick(ring) => hostile.guest.kick(usize::from(ring % 2)),
        Attack::Truncate(pages) => {
            // The rings lie in the first 600 pages.
            let _ = ftruncate(hostile.guest.memory_file(), u64::from(pages % 1024) * PAGE);
        }
        _ => {}
    }
}

/// Returns a frame without claims, for scenes.
pub(crate) fn train(to: usize, len: u16) -> Frame {
    Frame {
        to: To::Victim(to as u8),
        from: From::Own,
        tags: (None, None),
        v6: false,
        udp: false,
        flags: 0,
        payload: len,
        train: true,
        unfinished: true,
        ecn: false,
        wrong: Wrong::Nothing,
    }
}

/// Returns a header without claims.
pub(crate) fn nothing() -> VnetHeader {
    VnetHeader::default()
}
