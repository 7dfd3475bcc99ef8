//! Fuzz target: whatever a front end says and whatever its guest writes into rings and descriptors, the switch neither
//! crashes nor hangs, a clean flow between two other vNICs loses nothing, and the next front end is served.
//!
//! `cargo test` runs it over random bytes for a moment, `fuzz/run` under libFuzzer for as long as it is told.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what it means")]

use bolero::TypeGenerator;
use datapath::{PortSettings, Switch, SwitchOptions, Vlan};
use guestmem::Gpa;
use ports::vhost::{self, Features, Session, State, VhostOptions};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::pwrite;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use vhost_user::guest::Guest;

#[derive(Debug, TypeGenerator)]
enum Attack {
    /// A message of any kind (most numbers mean something), with a payload that may not fit it and descriptors.
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
    /// Another region, of a size that is nearly right.
    Inflight {
        bytes: u16,
        rings: u16,
        size: u16,
    },
    /// A frame in good order, with any virtio header.
    Send {
        header: [u8; 12],
        len: u16,
    },
    Kick(u8),
    /// The memory file loses its end.
    Truncate(u16),
}

/// The switch, its clean guests, and the socket of the hostile one.
struct Bench {
    folder: TempDir,
    _switch: Switch,
    sessions: Vec<Session>,
    clean: Vec<Guest>,
    round: u32,
}

static BENCH: Mutex<Option<Bench>> = Mutex::new(None);

fn modern() -> Features {
    Features::VERSION_1
        | Features::MRG_RXBUF
        | Features::CSUM
        | Features::GUEST_CSUM
        | Features::INDIRECT_DESC
}

impl Bench {
    fn new() -> Bench {
        let folder = TempDir::new().unwrap();
        let mut switch = Switch::start(SwitchOptions::default()).unwrap();
        let mut sessions = Vec::new();
        for number in 0..3 {
            let name = format!("vm{number}");
            let opened = vhost::open(&VhostOptions::new(folder.path().join(&name))).unwrap();
            // Frames of the hostile guest, which may be good ones, stay among its own.
            let vlan = Vlan::Access(if number == 2 { 5 } else { 0 });
            let settings = PortSettings { mtu: 1500, vlan, ..PortSettings::default() };
            switch.add_port(&name, opened.device, settings).unwrap();
            sessions.push(opened.session);
        }
        let connect =
            |number| Guest::connect(&folder.path().join(format!("vm{number}")), modern(), 1);
        let clean = (0..2).map(|number| connect(number).unwrap()).collect();
        Bench { folder, _switch: switch, sessions, clean, round: 0 }
    }

    /// A frame each way between the clean guests arrives as it was sent.
    fn check(&mut self) {
        self.round += 1;
        for (from, to) in [(0u8, 1u8), (1, 0)] {
            let mut frame = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x88, 0xb5];
            frame.extend(self.round.to_le_bytes());
            frame.resize(60, 0x5a);
            assert!(
                self.clean[usize::from(from)].send(0, &[0; 12], &frame),
                "no room in a clean guest's ring"
            );
            let received = until("a clean frame", || self.clean[usize::from(to)].receive(0));
            assert!(received.1 == frame);
        }
        assert!(self.sessions[..2].iter().all(|session| session.status().state == State::Running));
    }

    fn hostile(&self, packed: bool) -> Guest {
        let wanted = if packed { modern() | Features::RING_PACKED } else { modern() };
        until("a session for the next front end", || {
            Guest::connect(&self.folder.path().join("vm2"), wanted, 1).ok()
        })
    }
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what} did not come about");
        std::thread::yield_now();
    }
}

/// A message's header and payload, with some descriptors.
fn say(guest: &Guest, request: u32, need_reply: bool, payload: &[u8], descriptors: usize) {
    let flags = 1 | if need_reply { 8 } else { 0 };
    let len = u32::try_from(payload.len()).unwrap();
    let words = [request.to_le_bytes(), u32::to_le_bytes(flags), len.to_le_bytes()];
    let bytes = [words.as_flattened(), payload].concat();
    let file = memfd_create("attack", MemfdFlags::CLOEXEC).unwrap();
    let _ = ftruncate(&file, 1 << 20);
    let files = vec![file.as_fd(); descriptors];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if descriptors > 0 {
        ancillary.push(SendAncillaryMessage::ScmRights(&files));
    }
    // One that does not read our messages is not waited for.
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let _ = sendmsg(guest.connection(), &[IoSlice::new(&bytes)], &mut ancillary, flags);
}

fn carry_out(attack: &Attack, guest: &mut Guest) {
    match attack {
        Attack::Message { request, need_reply, ring, payload, descriptors } => {
            let mut payload = payload.clone();
            payload.truncate(512);
            if let Some(first) = payload.first_mut() {
                *first = ring % 4;
            }
            say(
                guest,
                u32::from(request % 48),
                *need_reply,
                &payload,
                usize::from(descriptors % 9),
            );
        }
        Attack::Noise(bytes) => {
            let _ = guest.connection().set_nonblocking(true);
            let _ = guest.connection().write_all(bytes);
            let _ = guest.connection().set_nonblocking(false);
        }
        Attack::Ring { request, ring, value } => {
            // SET_VRING_NUM, SET_VRING_BASE, GET_VRING_BASE, KICK, CALL, ERR, ENABLE.
            let request = [8, 10, 11, 12, 13, 14, 18][usize::from(request % 7)];
            let (ring, value) = (u32::from(ring % 4), u32::from(*value));
            let payload = [ring.to_le_bytes(), value.to_le_bytes()];
            let descriptors = usize::from((12..15).contains(&request));
            say(guest, request, false, payload.as_flattened(), descriptors);
        }
        Attack::Write { ring, part, place, value } => {
            let Some(rings) = guest.rings(usize::from(ring % 2)) else { return };
            let part = [rings.descriptors, rings.driver, rings.device][usize::from(part % 3)];
            let gpa = Gpa(part.0 + u64::from(place % 2048) * 2);
            guest.memory().write(gpa, &value.to_le_bytes());
        }
        Attack::Journal { place, value } => {
            let place = u64::from(place % 2200) * 2;
            let _ = pwrite(guest.inflight_file(), &value.to_le_bytes(), place);
        }
        Attack::Inflight { bytes, rings, size } => {
            let bytes = u64::from(*bytes).to_le_bytes();
            let counts = [(rings % 4).to_le_bytes(), size.to_le_bytes()].concat();
            // SET_INFLIGHT_FD: size, offset, rings, descriptors of each, filled up.
            say(guest, 32, false, &[&bytes[..], &[0; 8], &counts, &[0; 4]].concat(), 1);
        }
        Attack::Send { header, len } => {
            guest.send(0, header, &vec![0x11; usize::from(*len)]);
        }
        Attack::Kick(ring) => guest.kick(usize::from(ring % 2)),
        Attack::Truncate(pages) => {
            let _ = ftruncate(guest.memory_file(), u64::from(*pages) * 4096);
        }
    }
}

#[test]
fn fuzz_vhost() {
    bolero::check!().with_type::<(bool, Vec<Attack>)>().for_each(|(packed, attacks)| {
        let mut bench = BENCH.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let bench = bench.get_or_insert_with(Bench::new);
        let mut hostile = bench.hostile(*packed);
        for attack in attacks.iter().take(40) {
            carry_out(attack, &mut hostile);
        }
        hostile.kick(0);
        hostile.kick(1);
        bench.check();
        drop(hostile);
        bench.check();
    });
}
