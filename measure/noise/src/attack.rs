//! The attackers: each is a guest that does one hostile thing each time its step is called.

use crate::bed::{ACCOMPLICE, ATTACKER, Bed, SINK, frame, train, train_header};
use crate::scattered::{self, Pages};
use anyhow::Result;
use guestmem::Gpa;
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use test_guest::Guest;
use test_guest::driver::RingLayout;
use vhost::VhostBackend;
use vhost::vhost_user::VhostUserFrontend;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};
use wire::vnet::{Flags, VnetHeader};

/// One step of an attack. Steps are short, since the victims' generator waits until they end.
pub(crate) type Step = Box<dyn FnMut()>;

/// A kind of attacker.
#[derive(Clone, Copy)]
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// Whether the attacker's port has a rate limit, which the attack tries to dodge.
    pub(crate) limited: bool,
    pub(crate) start: fn(&Bed) -> Result<Step>,
}

pub(crate) const ATTACKS: [Attack; 20] = [
    attack("giant trains", giant_trains),
    attack("blocking eventfd", blocking_eventfd),
    attack("gso_size 1", |bed| trains(bed, 1, false)),
    attack("control queue refilled", control_queue),
    attack("MAC table filled", mac_table),
    attack("double tags", double_tags),
    attack("one-byte receive chains", one_byte_chains),
    attack("bad checksum offsets", bad_checksums),
    attack("reserved and broadcast", reserved),
    Attack { name: "rate limit dodged", limited: true, start: |bed| trains(bed, 1448, false) },
    attack("ECN trains", |bed| trains(bed, 1448, true)),
    attack("packed restarts", packed_restarts),
    attack("64 B flood", |bed| frames(bed, vec![frame(SINK, ATTACKER, 60)])),
    attack("crumbs from absent pages", |bed| scattered::send(bed, Pages::Punched, 1)),
    attack("scattered from cold pages", |bed| scattered::send(bed, Pages::Cold, 64)),
    attack("scattered from absent pages", |bed| scattered::send(bed, Pages::Punched, 64)),
    attack("scattered into cold pages", |bed| scattered::receive(bed, Pages::Cold)),
    attack("scattered into absent pages", |bed| scattered::receive(bed, Pages::Punched)),
    attack("slowly into absent pages", |bed| scattered::receive(bed, Pages::Slow)),
    attack("broadcast flood", |bed| frames(bed, vec![to_group(frame(0, ATTACKER, 60), [0xff; 6])])),
];

const fn attack(name: &'static str, start: fn(&Bed) -> Result<Step>) -> Attack {
    Attack { name, limited: false, start }
}

/// Frames that a step changes or sends.
const STEP: usize = 16;
/// Offset of the buffers of a hand-made ring, from its descriptors.
const SCRATCH: u64 = 0x40000;
/// User address of the guest's memory in its front end, see `vhost_user::guest`.
const USER: u64 = 0x7000_0000_0000;
/// Descriptors of a ring.
const SIZE: u16 = 256;

fn to_group(mut frame: Vec<u8>, address: [u8; 6]) -> Vec<u8> {
    if let Some(destination) = frame.first_chunk_mut() {
        *destination = address;
    }
    frame
}

/// Writes the guest's sending ring by hand. It holds these frames, and each step makes all that
/// were taken available again. That costs the attacker nothing, so it sends as fast as the switch
/// takes.
pub(crate) fn replay(guest: &Guest, header: VnetHeader, frames: &[Vec<u8>]) -> Option<RingLayout> {
    let rings = guest.rings(1)?;
    let mut at = rings.descriptors.0 + SCRATCH;
    for (place, frame) in (0..).zip(frames) {
        let bytes = [&header.encode()[..], frame].concat();
        guest.memory().write(Gpa(at), &bytes);
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        write_descriptor(guest, rings.descriptors.0, place, (at, len, 0, 0));
        at += u64::from(len).next_multiple_of(64);
    }
    let heads = (0..u16::try_from(frames.len()).unwrap_or(u16::MAX)).cycle().take(SIZE.into());
    let heads: Vec<u8> = heads.flat_map(u16::to_le_bytes).collect();
    guest.memory().write(Gpa(rings.driver.0 + 4), &heads);
    Some(rings)
}

fn replaying(guest: Guest, header: VnetHeader, frames: &[Vec<u8>]) -> Step {
    let rings = replay(&guest, header, frames);
    Box::new(move || {
        if let Some(rings) = rings {
            refill(&guest, rings.driver.0, rings.device.0);
        }
    })
}

fn frames(bed: &Bed, frames: Vec<Vec<u8>>) -> Result<Step> {
    Ok(replaying(bed.guest("attacker", false)?, VnetHeader::default(), &frames))
}

fn trains(bed: &Bed, segment: u16, ecn: bool) -> Result<Step> {
    let mut bytes = train(SINK, ATTACKER, 60_000);
    if ecn && let Some(flags) = bytes.get_mut(47) {
        *flags |= 0xc0;
    }
    Ok(replaying(bed.guest("attacker", false)?, train_header(segment, ecn), &[bytes]))
}

/// Sends a train with a valid header, and 60 descriptors of 64 KiB each behind its end.
fn giant_trains(bed: &Bed) -> Result<Step> {
    let guest = bed.guest("attacker", false)?;
    let bytes = train(SINK, ATTACKER, 1448 * 2);
    if let Some(RingLayout { descriptors, .. }) =
        replay(&guest, train_header(1448, false), &[bytes])
    {
        let first = (descriptors.0 + SCRATCH, 12 + 54 + 1448 * 2, 1, 1);
        write_descriptor(&guest, descriptors.0, 0, first);
        for place in 1..=60 {
            let flags = u16::from(place < 60);
            let trailing = (descriptors.0 + SCRATCH, 65_536, flags, place + 1);
            write_descriptor(&guest, descriptors.0, place.into(), trailing);
        }
    }
    let rings = guest.rings(1);
    Ok(Box::new(move || {
        if let Some(rings) = rings {
            refill(&guest, rings.driver.0, rings.device.0);
        }
    }))
}

/// Gives the switch a call descriptor on which a write would sleep for ever.
fn blocking_eventfd(bed: &Bed) -> Result<Step> {
    let mut guest = bed.guest("attacker", false)?;
    let full = EventFd::new(0)?;
    full.write(u64::MAX - 1)?;
    for ring in [0, 1] {
        // A back end that refuses it is not vulnerable.
        let _ = guest.frontend().set_vring_call(ring, &full);
    }
    let frames = [frame(SINK, ATTACKER, 60)];
    let mut send = replaying(guest, VnetHeader::default(), &frames);
    Ok(Box::new(move || {
        let _ = &full;
        send();
    }))
}

/// Keeps a control queue full: one command repeatedly, made available again as soon as it is used.
fn control_queue(bed: &Bed) -> Result<Step> {
    const RING: u32 = 2;
    let guest = bed.guest("attacker", false)?;
    let Some(unused) = guest.rings(1) else { return Ok(Box::new(|| {})) };
    // The buffers of the sending ring are free, since it sends nothing here.
    let start = unused.descriptors.0 + SCRATCH;
    let (table, available, used, buffer) = (start, start + 0x2000, start + 0x3000, start + 0x4000);
    write_descriptor(&guest, table, 0, (buffer, 2, 1, 1));
    write_descriptor(&guest, table, 1, (buffer + 64, 1, 2, 0));
    guest.memory().write(Gpa(available + 4), &[0; 512]);
    let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    let (kick, call) = (event()?, event()?);
    // Messages of our own, because the library's front end knows no rings except the pairs.
    let pair = |value: u32| [RING.to_le_bytes(), value.to_le_bytes()].concat();
    let places = [table, used, available, 0].map(|at| if at == 0 { 0 } else { USER + at });
    let places = places.map(u64::to_le_bytes).concat();
    say(&guest, 8, &pair(SIZE.into()), None)?;
    say(&guest, 9, &[pair(0), places].concat(), None)?;
    say(&guest, 10, &pair(0), None)?;
    say(&guest, 13, &pair(0), Some(call.as_fd()))?;
    say(&guest, 12, &pair(0), Some(kick.as_fd()))?;
    say(&guest, 18, &pair(1), None)?;
    Ok(Box::new(move || {
        refill(&guest, available, used);
        let _ = (rustix::io::write(&kick, &1u64.to_ne_bytes()), &call);
    }))
}

/// Sends a message of the vhost-user protocol that expects no reply.
fn say(guest: &Guest, request: u32, payload: &[u8], file: Option<BorrowedFd<'_>>) -> Result<()> {
    let words = [request, 1, u32::try_from(payload.len())?].map(u32::to_le_bytes);
    let bytes = [words.as_flattened(), payload].concat();
    let files = file.map(|file| [file]);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if let Some(files) = &files {
        ancillary.push(SendAncillaryMessage::ScmRights(files));
    }
    sendmsg(guest.connection(), &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

pub(crate) fn write_descriptor(
    guest: &Guest,
    table: u64,
    place: u64,
    (at, len, flags, next): (u64, u32, u16, u16),
) {
    let bytes =
        [&at.to_le_bytes()[..], &len.to_le_bytes(), &flags.to_le_bytes(), &next.to_le_bytes()];
    guest.memory().write(Gpa(table + 16 * place), &bytes.concat());
}

/// Makes all used buffers available again.
fn refill(guest: &Guest, available: u64, used: u64) {
    let mut index = [0; 2];
    guest.memory().read(Gpa(used + 2), &mut index);
    let index = u16::from_le_bytes(index).wrapping_add(SIZE);
    guest.memory().write(Gpa(available + 2), &index.to_le_bytes());
}

/// Sends each frame from another address.
fn mac_table(bed: &Bed) -> Result<Step> {
    let guest = bed.guest("attacker", false)?;
    let frames = vec![frame(SINK, 0, 52); SIZE.into()];
    let rings = replay(&guest, VnetHeader::default(), &frames);
    let mut next = 0_u32;
    Ok(Box::new(move || {
        let Some(rings) = rings else { return };
        for _ in 0..STEP {
            next = next.wrapping_add(1);
            let frame = rings.descriptors.0 + SCRATCH + 64 * u64::from(next % u32::from(SIZE));
            guest.memory().write(Gpa(frame + 12 + 7), &next.to_be_bytes());
        }
        refill(&guest, rings.driver.0, rings.device.0);
    }))
}

/// Sends a priority tag, with the tag of another VLAN behind it.
fn double_tags(bed: &Bed) -> Result<Step> {
    let mut bytes = frame(SINK, ATTACKER, 12);
    bytes.extend([0x81, 0, 0, 0, 0x81, 0, 0, 20, 0x88, 0xb5]);
    bytes.resize(64, 0);
    frames(bed, vec![bytes])
}

/// Sends to an accomplice with one-byte descriptors, in chains of 256.
fn one_byte_chains(bed: &Bed) -> Result<Step> {
    let accomplice = bed.guest("accomplice", false)?;
    let Some(rings) = accomplice.rings(0) else { return Ok(Box::new(|| {})) };
    let buffer = rings.descriptors.0 + SCRATCH;
    for place in 0..SIZE {
        let flags = if place + 1 < SIZE { 2 | 1 } else { 2 };
        write_descriptor(
            &accomplice,
            rings.descriptors.0,
            place.into(),
            (buffer + u64::from(place), 1, flags, place + 1),
        );
    }
    accomplice.memory().write(Gpa(rings.driver.0 + 4), &[0; 2 * SIZE as usize]);
    let mut send = frames(bed, vec![frame(ACCOMPLICE, ATTACKER, 1514)])?;
    // The switch must learn the accomplice's address, or its frames are flooded.
    let mut accomplice = accomplice;
    let mut hello = frame(SINK, ACCOMPLICE, 60);
    hello.truncate(60);
    accomplice.send(0, &[0; 12], &hello);
    Ok(Box::new(move || {
        refill(&accomplice, rings.driver.0, rings.device.0);
        send();
    }))
}

/// Sends a checksum that would be written into the addresses, the IP header and the payload.
fn bad_checksums(bed: &Bed) -> Result<Step> {
    let mut header = VnetHeader::default();
    header.set_flags(Flags::NEEDS_CSUM);
    header.csum_start.set(14);
    header.csum_offset.set(2);
    let bytes = train(SINK, ATTACKER, 1400);
    Ok(replaying(bed.guest("attacker", false)?, header, &[bytes]))
}

/// Sends frames to a reserved address, and broadcasts of full size.
fn reserved(bed: &Bed) -> Result<Step> {
    let pause = to_group(frame(0, ATTACKER, 60), [1, 0x80, 0xc2, 0, 0, 1]);
    let broadcast = to_group(frame(0, ATTACKER, 1514), [0xff; 6]);
    frames(bed, vec![pause, broadcast])
}

/// Stops and starts a packed ring while it sends. Another thread does that, since it waits for
/// replies.
fn packed_restarts(bed: &Bed) -> Result<Step> {
    const RING: usize = 1;
    let mut guest = bed.guest("attacker", true)?;
    let (mut front, bytes) = (guest.frontend().clone(), frame(SINK, ATTACKER, 60));
    let kick = EventFd::new(EFD_NONBLOCK)?;
    let going_on = Arc::new(());
    let over = Arc::downgrade(&going_on);
    thread::spawn(move || {
        while over.strong_count() > 0 {
            thread::sleep(Duration::from_millis(1));
            let Ok(base) = front.get_vring_base(RING) else { return };
            // The part of the reply that the message has.
            let base = u16::try_from(base & 0xffff).unwrap_or_default();
            let _ = front.set_vring_base(RING, base);
            let _ = front.set_vring_kick(RING, &kick);
            let _ = front.set_vring_enable(RING, true);
        }
    });
    Ok(Box::new(move || {
        let _ = &going_on;
        for _ in 0..STEP {
            guest.send(0, &[0; 12], &bytes);
        }
    }))
}
