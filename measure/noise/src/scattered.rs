//! Attackers whose frames lie in very many pages, which the kernel has to find, or to make, for the
//! worker that touches them: the worker's time is the attacker's weapon.

use crate::attack::{Step, replay, write_descriptor};
use crate::bed::{ACCOMPLICE, ATTACKER, Bed, SINK, frame};
use anyhow::Result;
use guestmem::Gpa;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use std::time::{Duration, Instant};
use test_guest::Guest;
use test_guest::driver::RingLayout;
use vhost::VhostUserMemoryRegionInfo;
use vhost::vhost_user::VhostUserFrontend;
use wire::vnet::VnetHeader;

/// What becomes of the pages that the switch has touched.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Pages {
    /// They stay: each is absent once.
    Cold,
    /// The front end punches them out of their file, so that they are always absent.
    Punched,
    /// As punched, but eight frames each 20 ms.
    Slow,
}

/// Guest address of the memory of the attack, and of its parts there: indirect tables, the frames'
/// headers, and the pages.
const START: u64 = 1 << 40;
const HEADER: u64 = START + (8 << 20);
const DATA: u64 = START + (16 << 20);
/// Descriptors of the ring, pieces of a frame, and bytes of a page.
const HEADS: u64 = 256;
const PIECES: u64 = 1024;
const PAGE: u64 = 4096;
const BYTES: u64 = (16 << 20) + HEADS * PIECES * PAGE;

/// Flags of a descriptor (virtio 1.2, section 2.7.5).
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// A ring of frames in pieces, each piece in a page of its own.
struct Scattered {
    guest: Guest,
    rings: RingLayout,
    file: OwnedFd,
    pages: Pages,
    /// Frames that were given back to the switch.
    done: u16,
}

impl Scattered {
    /// Lays the frames out in a ring: to read, behind this header, or to write.
    fn new(
        mut guest: Guest,
        rings: RingLayout,
        pages: Pages,
        piece: u32,
        header: Option<&[u8]>,
    ) -> Result<Scattered> {
        let file = memfd_create("scattered", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, BYTES)?;
        let kind = if header.is_some() { 0 } else { WRITE };
        let mut tables = Vec::new();
        for (head, place) in (0..HEADS).flat_map(|head| (0..PIECES).map(move |at| (head, at))) {
            let at = DATA + (head * PIECES + place) * PAGE + (place % 60) * 64;
            let (at, len) = match header {
                Some(header) if place == 0 => (HEADER, u32::try_from(header.len())?),
                _ => (at, piece),
            };
            let flags = if place + 1 < PIECES { kind | NEXT } else { kind };
            tables.extend(at.to_le_bytes());
            tables.extend(len.to_le_bytes());
            tables.extend(flags.to_le_bytes());
            tables.extend(u16::try_from(place + 1)?.to_le_bytes());
        }
        rustix::io::pwrite(&file, &tables, 0)?;
        rustix::io::pwrite(&file, header.unwrap_or_default(), HEADER - START)?;
        guest.frontend().add_mem_region(&VhostUserMemoryRegionInfo {
            guest_phys_addr: START,
            memory_size: BYTES,
            userspace_addr: START,
            mmap_offset: 0,
            mmap_handle: file.as_raw_fd(),
        })?;
        for head in 0..HEADS {
            let table = START + head * PIECES * 16;
            let len = u32::try_from(PIECES * 16)?;
            write_descriptor(&guest, rings.descriptors.0, head, (table, len, INDIRECT, 0));
        }
        let heads: Vec<u8> = (0..u16::try_from(HEADS)?).flat_map(u16::to_le_bytes).collect();
        guest.memory().write(Gpa(rings.driver.0 + 4), &heads);
        let done = word(&guest, rings.device.0 + 2);
        let scattered = Scattered { guest, rings, file, pages, done };
        scattered.offer();
        Ok(scattered)
    }

    /// Makes all frames but one available that the switch does not have.
    fn offer(&self) {
        let index = self.done.wrapping_add(255);
        self.guest.memory().write(Gpa(self.rings.driver.0 + 2), &index.to_le_bytes());
    }

    /// Makes one used frame available again.
    fn recycle(&mut self) {
        if self.done == word(&self.guest, self.rings.device.0 + 2) {
            return;
        }
        if self.pages != Pages::Cold {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let head = u64::from(self.done) % HEADS;
            let start = DATA - START + head * PIECES * PAGE;
            let _ = fallocate(&self.file, flags, start, PIECES * PAGE);
        }
        self.done = self.done.wrapping_add(1);
        self.offer();
    }
}

fn word(guest: &Guest, at: u64) -> u16 {
    let mut word = [0; 2];
    guest.memory().read(Gpa(at), &mut word);
    u16::from_le_bytes(word)
}

/// Sends frames in pieces of so many bytes.
pub(crate) fn send(bed: &Bed, pages: Pages, piece: u32) -> Result<Step> {
    let guest = bed.guest("attacker", false)?;
    let Some(rings) = guest.rings(1) else { return Ok(Box::new(|| {})) };
    let header = [&[0; 12][..], &frame(SINK, ATTACKER, 14)].concat();
    let mut scattered = Scattered::new(guest, rings, pages, piece, Some(&header))?;
    Ok(Box::new(move || scattered.recycle()))
}

/// Has an accomplice receive frames in pieces of one byte.
pub(crate) fn receive(bed: &Bed, pages: Pages) -> Result<Step> {
    let mut accomplice = bed.guest("accomplice", false)?;
    // The switch must learn the accomplice's address, or its frames are flooded.
    accomplice.send(0, &[0; 12], &frame(SINK, ACCOMPLICE, 60));
    let Some(rings) = accomplice.rings(0) else { return Ok(Box::new(|| {})) };
    let mut scattered = Scattered::new(accomplice, rings, pages, 1, None)?;
    let guest = bed.guest("attacker", false)?;
    let bytes = frame(ACCOMPLICE, ATTACKER, usize::try_from(PIECES)? - 12);
    let rings = replay(&guest, VnetHeader::default(), &[bytes]);
    let mut last = Instant::now();
    Ok(Box::new(move || {
        scattered.recycle();
        let Some(rings) = rings else { return };
        let (used, available) =
            (word(&guest, rings.device.0 + 2), word(&guest, rings.driver.0 + 2));
        let is_due = pages != Pages::Slow || last.elapsed() > Duration::from_millis(20);
        if used == available && is_due {
            last = Instant::now();
            guest.memory().write(Gpa(rings.driver.0 + 2), &used.wrapping_add(8).to_le_bytes());
        }
    }))
}
