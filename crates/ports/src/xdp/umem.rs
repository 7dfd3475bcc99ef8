// UNSAFETY: the UMEM is memory that the kernel fills and reads; a chunk is ours or the kernel's, by the rings that it went through.
//! The UMEM: one piece of memory of a port, divided into chunks, that all of its sockets share (Linux
//! `Documentation/networking/af_xdp.rst`).
//!
//! Each queue has chunks of its own for either direction, so no queue waits for another. An ingress chunk is the kernel's
//! from the fill ring on and ours from the receive ring on. An egress chunk is ours while there is a [`Chunk`] of it, and the
//! kernel's from the transmit ring to the completion ring.
#![allow(unsafe_code)]

use crate::{Outgoing, Slice};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::io;
use std::ptr::NonNull;

/// How a port's UMEM is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Bytes of a chunk: 2048 or 4096, the sizes that the kernel takes.
    pub(super) chunk: u32,
    /// Ingress chunks of a queue, a power of two, as rings have to be.
    pub(super) ingress: u32,
    /// Egress chunks of a queue, a power of two.
    pub(super) egress: u32,
}

/// What the kernel keeps free before an ingress frame (`XDP_PACKET_HEADROOM`).
const HEADROOM: u32 = 256;
/// Ethernet header and two tags.
const LINK_HEADER: u32 = 22;
/// Where an egress frame starts in its chunk: behind what is asked of the device (`struct xsk_tx_metadata`).
pub(super) const METADATA: u32 = 32;
const SIZES: [u32; 2] = [2048, 4096];

impl Shape {
    /// The largest IP packet that any chunk holds.
    pub(super) const LARGEST_MTU: u32 = SIZES[1] - HEADROOM - LINK_HEADER;

    /// Chunks for frames of an MTU, in this much memory for the ingress of a queue and half of it for its egress. `None`: a
    /// frame has no room in a chunk.
    pub(super) fn fitting(mtu: u32, bytes: u32) -> Option<Shape> {
        let chunk = SIZES.into_iter().find(|size| mtu <= size - HEADROOM - LINK_HEADER)?;
        let chunks = |bytes: u32| 1 << (bytes / chunk).max(64).ilog2();
        Some(Shape { chunk, ingress: chunks(bytes), egress: chunks(bytes / 2) })
    }

    /// The largest IP packet that is received whole.
    pub(super) fn largest_mtu(self) -> u32 {
        self.chunk - HEADROOM - LINK_HEADER
    }

    /// Chunks of a queue.
    fn chunks(self) -> u32 {
        self.ingress + self.egress
    }
}

/// See the module.
pub(super) struct Umem {
    memory: NonNull<u8>,
    bytes: usize,
    pub(super) shape: Shape,
}

// SAFETY: all access is to chunks, each of which has one owner at a time.
unsafe impl Send for Umem {}
// SAFETY: as above.
unsafe impl Sync for Umem {}

/// An egress chunk that is ours: there is no other of the same place.
pub(super) struct Chunk(u64);

impl Umem {
    /// Memory for this many queues.
    pub(super) fn map(queues: u32, shape: Shape) -> io::Result<Umem> {
        let bytes = shape.chunk as usize * shape.chunks() as usize * queues as usize;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address the kernel chooses.
        let memory =
            unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE) }?;
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Umem { memory, bytes, shape })
    }

    /// Its address and length in bytes, for the kernel.
    pub(super) fn range(&self) -> (u64, u64) {
        (self.memory.as_ptr().addr() as u64, self.bytes as u64)
    }

    /// The ingress chunks of a queue, for its fill ring.
    pub(super) fn ingress_chunks(&self, queue: u32) -> impl Iterator<Item = u64> + use<> {
        let (shape, first) = (self.shape, u64::from(queue) * u64::from(self.shape.chunks()));
        (0..shape.ingress).map(move |place| (first + u64::from(place)) * u64::from(shape.chunk))
    }

    /// The egress chunks of a queue. To be asked for once: each is one [`Chunk`].
    pub(super) fn egress_chunks(&self, queue: u32) -> impl Iterator<Item = Chunk> + use<> {
        let shape = self.shape;
        let first = u64::from(queue) * u64::from(shape.chunks()) + u64::from(shape.ingress);
        (0..shape.egress)
            .map(move |place| Chunk((first + u64::from(place)) * u64::from(shape.chunk)))
    }

    /// The chunk that an address is in, for the fill ring.
    pub(super) fn chunk_of(&self, address: u64) -> u64 {
        address & !u64::from(self.shape.chunk - 1)
    }

    /// A received frame. `None`: the descriptor names no memory of ours.
    ///
    /// # Safety
    /// The descriptor came from the receive ring, and its chunk is not put into the fill ring while the frame is borrowed.
    pub(super) unsafe fn received(&self, address: u64, len: u32) -> Option<&[u8]> {
        let start = usize::try_from(address).ok()?;
        let end = start.checked_add(len as usize)?;
        // SAFETY: within the mapping, and nothing writes to a chunk between receive ring and fill ring, as the caller says.
        (end <= self.bytes).then(|| unsafe {
            std::slice::from_raw_parts(self.memory.as_ptr().add(start), len as usize)
        })
    }

    /// Most bytes of an egress frame.
    pub(super) fn egress_room(&self) -> u32 {
        self.shape.chunk - METADATA
    }

    /// Copies a frame, which has to fit, and what is asked of the device for it; its address.
    pub(super) fn put(&self, chunk: &mut Chunk, metadata: [u8; 16], frame: &Outgoing<'_>) -> u64 {
        let bytes = self.bytes_of(chunk);
        let (before, mut rest) = bytes.split_at_mut(METADATA as usize);
        before.fill(0);
        before.iter_mut().zip(metadata).for_each(|(place, byte)| *place = byte);
        for slice in std::iter::once(&Slice::from(frame.header)).chain(frame.payload) {
            let copied = slice.copy_to(rest);
            rest = rest.get_mut(copied..).unwrap_or_default();
        }
        chunk.0 + u64::from(METADATA)
    }

    fn bytes_of<'c>(&self, chunk: &'c mut Chunk) -> &'c mut [u8] {
        let start = usize::try_from(chunk.0).unwrap_or(usize::MAX);
        debug_assert!(start < self.bytes, "a chunk of this UMEM");
        // SAFETY: chunks are made in `egress_chunks` and `completed` alone, within the mapping, each once, so this one is ours
        // alone; the memory outlives the rings, and with them every chunk.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.memory.as_ptr().add(start),
                self.shape.chunk as usize,
            )
        }
    }

    /// The chunk of an address, ours again.
    ///
    /// # Safety
    /// The address came from a completion ring of this UMEM, for which no chunk was made yet.
    pub(super) unsafe fn completed(&self, address: u64) -> Chunk {
        Chunk(self.chunk_of(address))
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and nothing borrows it any more. The kernel holds the pages until it is done with them.
        let unmapped = unsafe { munmap(self.memory.as_ptr().cast(), self.bytes) };
        debug_assert_eq!(unmapped, Ok(()), "the mapping was ours");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn shapes_hold_the_frames_of_their_mtu() {
        let shape = |mtu| Shape::fitting(mtu, 8 << 20);
        let usual = Shape { chunk: 2048, ingress: 4096, egress: 2048 };
        assert_eq!((shape(1500), shape(1770)), (Some(usual), Some(usual)));
        let large = Shape { chunk: 4096, ingress: 2048, egress: 1024 };
        assert_eq!((shape(1771), shape(Shape::LARGEST_MTU)), (Some(large), Some(large)));
        assert_eq!(shape(Shape::LARGEST_MTU + 1), None);
    }

    proptest! {
        #[test]
        fn no_chunk_belongs_to_two_rings(queues in 1u32..5, bytes in 0u32..1 << 19, mtu in 68u32..3800) {
            let umem = Umem::map(queues, Shape::fitting(mtu, bytes).unwrap()).unwrap();
            let egress = |queue| umem.egress_chunks(queue).map(|chunk| chunk.0);
            let all: Vec<u64> =
                (0..queues).flat_map(|queue| umem.ingress_chunks(queue).chain(egress(queue))).collect();
            let places: BTreeSet<u64> = all.iter().copied().collect();
            prop_assert_eq!(places.len(), all.len());
            prop_assert!(all.iter().all(|place| place + u64::from(umem.shape.chunk) <= umem.range().1));
        }
    }
}
