// UNSAFETY: the ring is memory that the kernel writes; a status word in each slot says whether the
// kernel or we own it.
//! The mapped ring of received frames (TPACKET_V2, Linux
//! `Documentation/networking/packet_mmap.rst`).
//!
//! Slots are filled in order. We own a slot with `TP_STATUS_USER` in its status until we store
//! `TP_STATUS_KERNEL`; until then the kernel does not touch it. [`Ring::take`] lends slots for as
//! long as the ring is borrowed, and [`Ring::release`], which needs the ring alone, gives all of
//! them back. A kept ring stores its [`Position`] there, so that another process can resume it.
//!
//! A slot can also be lent before its turn ([`Ring::look_ahead`]). Once its frame is delivered that
//! is noted in the slot's header, which the next process sees too; in its turn the slot is skipped,
//! and given back with its neighbours.
#![allow(unsafe_code)]

use super::gate::Slots;
use super::position::Position;
use super::socket::processors;
use super::{VNET_LEN, socket::PacketSocket};
use crate::Slice;
use crate::kept::Flaw;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use wire::vnet::VnetHeader;
use zerocopy::IntoBytes;

/// How a ring is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Bytes of a slot: a power of two, so that a block holds a whole number of slots.
    pub(super) slot_size: u32,
    /// Number of slots.
    pub(super) slots: u32,
}

/// Bytes of a slot before the frame: its header, the sender's address, the virtio header, and
/// alignment.
const SLOT_OVERHEAD: u32 = 128;
/// Bytes of an Ethernet header and two tags.
const LINK_HEADER: u32 = 22;
/// Bytes of a block, which the kernel allocates in one piece. A larger slot has a larger block.
const BLOCK: u32 = 64 << 10;

impl Shape {
    /// Returns slots for frames of an MTU (at most of a maximum IP packet), as many as fit the
    /// memory.
    pub(super) fn fitting(mtu: u32, bytes: usize) -> Shape {
        let needed = mtu.min(u16::MAX.into()) + LINK_HEADER + SLOT_OVERHEAD;
        let slot_size = needed.next_power_of_two().max(2048);
        let block = slot_size.max(BLOCK);
        let blocks = u32::try_from(bytes / block as usize).unwrap_or(u32::MAX / block).max(1);
        Shape { slot_size, slots: blocks.min(u32::MAX / block) * (block / slot_size) }
    }

    fn bytes(self) -> usize {
        self.slot_size as usize * self.slots as usize
    }

    fn request(self) -> libc::tpacket_req {
        let block = self.slot_size.max(BLOCK);
        libc::tpacket_req {
            tp_block_size: block,
            tp_block_nr: self.slots / (block / self.slot_size),
            tp_frame_size: self.slot_size,
            tp_frame_nr: self.slots,
        }
    }
}

/// The mapped slots. A fence reads their status words while a ring is in use.
pub(super) struct Mapping {
    memory: NonNull<u8>,
    shape: Shape,
}

/// The mapped ring of a socket, and how far it was read.
pub(super) struct Ring {
    mapping: Arc<Mapping>,
    /// The slot that the kernel fills next after those already seen.
    next: Cell<u32>,
    /// Number of lent slots before `next`.
    lent: Cell<u32>,
    /// The position for the next process, if the ring is kept.
    position: Option<Position>,
}

// SAFETY: only the one ring uses the slots, in turn with the kernel by the status words; other
// threads access the status words alone, atomically.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Padding of a filled slot's header whose frame was delivered before its turn; the kernel fills in
/// zeros.
const TAKEN: [u8; 4] = [1, 0, 0, 0];

/// Whether the frame of a filled slot was delivered before its turn.
pub(super) fn was_taken(header: &libc::tpacket2_hdr) -> bool {
    header.tp_padding == TAKEN
}

/// A slot the kernel filled.
pub(super) struct Filled<'q> {
    /// Copy of the slot's header, with the status as read.
    pub(super) header: libc::tpacket2_hdr,
    /// Checksum and segmentation as the kernel states them.
    pub(super) vnet: VnetHeader,
    /// The frame's bytes, as far as the slot holds them.
    pub(super) bytes: Slice<'q>,
}

impl Ring {
    /// Makes the ring of a socket and maps it. Fails if the kernel lacks the memory.
    pub(super) fn map(socket: &PacketSocket, shape: Shape) -> io::Result<Ring> {
        socket.request_ring(&shape.request())?;
        Ring::of(socket, shape)
    }

    /// Maps the ring that a socket has. Fails if its size differs.
    fn of(socket: &PacketSocket, shape: Shape) -> io::Result<Ring> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address the kernel chooses.
        let memory = unsafe {
            mmap(
                std::ptr::null_mut(),
                shape.bytes(),
                protection,
                MapFlags::SHARED,
                socket.as_fd(),
                0,
            )
        }?;
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Arc::new(Mapping { memory, shape });
        Ok(Ring { mapping, next: Cell::new(0), lent: Cell::new(0), position: None })
    }

    /// Resumes the ring of a socket from the position that an earlier process has recorded. Slots
    /// that it had taken and not released are taken once more. Fails if the size of the ring or the
    /// position is wrong.
    pub(super) fn resume(
        socket: &PacketSocket,
        shape: Shape,
        position: impl AsFd,
    ) -> Result<Ring, Flaw> {
        let position = Position::adopt(position, shape)?;
        let ring =
            Ring::of(socket, shape).map_err(|error| Flaw::of("it has no such ring", &error))?;
        ring.next.set(position.find(&*ring.mapping, processors() as u64)?);
        Ok(Ring { position: Some(position), ..ring })
    }

    /// Creates a file that records the ring's position from now on, so that another process can
    /// resume the ring. Called before any slot is taken. Returns the file; fails if it cannot be
    /// created.
    pub(super) fn keep(&mut self) -> io::Result<OwnedFd> {
        let (position, file) = Position::create(self.mapping.shape)?;
        self.position = Some(position);
        Ok(file)
    }

    /// Returns the ring's slots, for readers of their status words.
    pub(super) fn slots(&self) -> Arc<dyn Slots> {
        self.mapping.clone()
    }

    /// Whether a slot is filled and not taken.
    pub(super) fn has_filled(&self) -> bool {
        // Without this bound a wholly lent ring would start again at slots that are still lent.
        self.lent.get() < self.mapping.shape.slots
            && self.mapping.status(self.next.get()).load(Ordering::Acquire) & libc::TP_STATUS_USER
                != 0
    }

    /// Takes the next filled slot, lent until [`Ring::release`]. The caller skips slots that were
    /// taken before.
    pub(super) fn take(&self) -> Option<Filled<'_>> {
        self.take_if(|_| true)
    }

    /// Takes the next filled slot if its header is wanted, lent until [`Ring::release`].
    pub(super) fn take_if(
        &self,
        is_wanted: impl FnOnce(&libc::tpacket2_hdr) -> bool,
    ) -> Option<Filled<'_>> {
        // The acquiring load pairs with the kernel's write barrier between filling a slot and
        // setting its status.
        if !self.has_filled() {
            return None;
        }
        let header = self.mapping.header(self.next.get());
        is_wanted(&header).then(|| self.lend(self.advance(), header))
    }

    /// Whether the next slot is filled and was taken before its turn.
    pub(super) fn was_taken(&self) -> bool {
        self.has_filled() && was_taken(&self.mapping.header(self.next.get()))
    }

    /// Skips the next slot, which is filled, until it is given back with the others.
    pub(super) fn skip(&self) {
        self.advance();
    }

    /// Counts the next slot as lent. Returns its index.
    fn advance(&self) -> u32 {
        self.lent.set(self.lent.get() + 1);
        self.next.replace(self.index_ahead(1))
    }

    /// Whether the slot that is `ahead` of the next one is filled.
    pub(super) fn is_filled_ahead(&self, ahead: u32) -> bool {
        self.lent.get() + ahead < self.mapping.shape.slots
            && self.mapping.status(self.index_ahead(ahead)).load(Ordering::Acquire)
                & libc::TP_STATUS_USER
                != 0
    }

    /// Lends the slot that is `ahead` of the next one, if it is filled. It keeps its turn.
    pub(super) fn look_ahead(&self, ahead: u32) -> Option<Filled<'_>> {
        let index = self.index_ahead(ahead);
        self.is_filled_ahead(ahead).then(|| self.lend(index, self.mapping.header(index)))
    }

    /// Notes in the slot that is `ahead` of the next one, which is filled, that its frame was
    /// delivered before its turn.
    pub(super) fn note_taken(&self, ahead: u32) {
        self.mapping.set_padding(self.index_ahead(ahead), TAKEN);
    }

    fn index_ahead(&self, ahead: u32) -> u32 {
        (self.next.get() + ahead) % self.mapping.shape.slots
    }

    /// Returns a filled slot.
    fn lend(&self, index: u32, header: libc::tpacket2_hdr) -> Filled<'_> {
        let slot = self.mapping.slot(index);
        let size = self.mapping.shape.slot_size as usize;
        let start = usize::from(header.tp_mac).min(size);
        let len = (header.tp_snaplen as usize).min(size - start);
        // SAFETY: within the slot, which stays ours and unchanged as long as the ring is borrowed.
        let bytes = unsafe { Slice::from_raw(slot.as_ptr().add(start), len) };
        let mut vnet = VnetHeader::default();
        let vnet_start = start.saturating_sub(VNET_LEN);
        // SAFETY: within the slot as well; the kernel puts the header right before the frame.
        let before = unsafe { Slice::from_raw(slot.as_ptr().add(vnet_start), start - vnet_start) };
        before.copy_to(vnet.as_mut_bytes());
        Filled { header, vnet, bytes }
    }

    /// Gives all lent slots back, oldest first. Returns their number.
    pub(super) fn release(&mut self) -> u32 {
        let slots = self.mapping.shape.slots;
        let lent = self.lent.replace(0);
        let oldest = (self.next.get() + slots - lent) % slots;
        let give_back = || {
            for place in 0..lent {
                // Pairs with the kernel's read barrier after it read the status: it fills the slot
                // only after our last read.
                let status = self.mapping.status((oldest + place) % slots);
                status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
            }
        };
        match &self.position {
            Some(position) => position.while_released(oldest, lent, self.next.get(), give_back),
            None => give_back(),
        }
        lent
    }
}

impl Mapping {
    fn slot(&self, index: u32) -> NonNull<u8> {
        debug_assert!(index < self.shape.slots, "a slot of the ring");
        // SAFETY: the index is below `slots`, so the slot lies within the mapping.
        unsafe { self.memory.add(index as usize * self.shape.slot_size as usize) }
    }

    /// Returns the header of a filled slot.
    fn header(&self, index: u32) -> libc::tpacket2_hdr {
        // SAFETY: the slot is ours and begins with its header, aligned to 16 bytes.
        unsafe { self.slot(index).cast::<libc::tpacket2_hdr>().read() }
    }

    /// Writes the padding of a filled slot's header. The kernel clears it when it fills the slot.
    fn set_padding(&self, index: u32, padding: [u8; 4]) {
        let header = self.slot(index).cast::<libc::tpacket2_hdr>();
        // SAFETY: the slot is ours and begins with its header, aligned to 16 bytes; no reference to
        // it exists.
        unsafe { (&raw mut (*header.as_ptr()).tp_padding).write(padding) };
    }

    /// Returns `tp_status`, the first word of a slot.
    fn status(&self, index: u32) -> &AtomicU32 {
        // SAFETY: mapped as long as `self` lives, aligned to 16 bytes, and only ever accessed
        // atomically or when ours.
        unsafe { AtomicU32::from_ptr(self.slot(index).as_ptr().cast()) }
    }
}

impl Slots for Mapping {
    fn count(&self) -> u64 {
        self.shape.slots.into()
    }

    fn is_filled(&self, place: u64) -> bool {
        let index = u32::try_from(place % self.count()).unwrap_or_default();
        self.status(index).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and no slot is borrowed any more.
        let unmapped = unsafe { munmap(self.memory.as_ptr().cast(), self.shape.bytes()) };
        debug_assert_eq!(unmapped, Ok(()), "the mapping was ours");
    }
}

/// A ring that a test fills in the kernel's place.
#[cfg(test)]
pub(super) mod simulated {
    use super::*;

    /// Where the frame begins in a slot.
    const FRAME: u16 = 96;

    /// The kernel's side of a ring.
    pub(in super::super) struct Kernel {
        mapping: Arc<Mapping>,
        next: u32,
    }

    impl Kernel {
        /// Returns a ring of so many slots, and its kernel.
        pub(in super::super) fn new(slots: u32) -> (Ring, Kernel) {
            let shape = Shape { slot_size: 2048, slots };
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            let flags = MapFlags::PRIVATE;
            // SAFETY: a new mapping at an address the kernel chooses.
            let memory = unsafe {
                rustix::mm::mmap_anonymous(std::ptr::null_mut(), shape.bytes(), protection, flags)
            };
            let memory = NonNull::new(memory.unwrap().cast()).unwrap();
            let mapping = Arc::new(Mapping { memory, shape });
            let kernel = Kernel { mapping: mapping.clone(), next: 0 };
            let (next, lent) = (Cell::new(0), Cell::new(0));
            (Ring { mapping, next, lent, position: None }, kernel)
        }

        /// Fills the next slot. Returns `false` if it has not been given back.
        pub(in super::super) fn fill(&mut self, frame: &[u8]) -> bool {
            let status = self.mapping.status(self.next);
            if status.load(Ordering::Acquire) & libc::TP_STATUS_USER != 0 {
                return false;
            }
            let slot = self.mapping.slot(self.next);
            let header = libc::tpacket2_hdr {
                tp_status: libc::TP_STATUS_KERNEL,
                tp_len: frame.len().try_into().unwrap(),
                tp_snaplen: frame.len().try_into().unwrap(),
                tp_mac: FRAME,
                tp_net: 0,
                tp_sec: 0,
                tp_nsec: 0,
                tp_vlan_tci: 0,
                tp_vlan_tpid: 0,
                tp_padding: [0; 4],
            };
            // SAFETY: the slot is the kernel's, which this is, and large enough.
            unsafe {
                slot.cast::<libc::tpacket2_hdr>().write(header);
                let to = slot.as_ptr().add(FRAME.into());
                to.copy_from_nonoverlapping(frame.as_ptr(), frame.len());
            }
            status.store(libc::TP_STATUS_USER, Ordering::Release);
            self.next = (self.next + 1) % self.mapping.shape.slots;
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shapes_fill_their_blocks_and_stay_in_their_memory(mtu in 0u32..=100_000, bytes in 0usize..64 << 20) {
            let shape = Shape::fitting(mtu, bytes);
            let request = shape.request();
            prop_assert_eq!(request.tp_block_size * request.tp_block_nr, shape.slot_size * shape.slots);
            prop_assert!(shape.slot_size >= mtu.min(65_535) + 100);
            prop_assert!(shape.bytes() <= bytes.max(request.tp_block_size as usize));
        }
    }

    #[test]
    fn the_usual_shape_has_4096_slots_of_2_kib() {
        assert_eq!(Shape::fitting(1500, 8 << 20), Shape { slot_size: 2048, slots: 4096 });
        assert_eq!(Shape::fitting(9000, 8 << 20), Shape { slot_size: 16384, slots: 512 });
    }
}
