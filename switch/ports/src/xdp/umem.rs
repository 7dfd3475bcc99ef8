// UNSAFETY: the UMEM is memory that the kernel fills and reads; the rings decide whether a chunk is
// ours or the kernel's.
//! The UMEM: one piece of memory of a port, divided into chunks, that all of its sockets share
//! (Linux `Documentation/networking/af_xdp.rst`).
//!
//! Each queue has its own chunks for each direction, so no queue waits for another. The kernel owns
//! an ingress chunk from the fill ring on, and we own it from the receive ring on. The kernel owns
//! an egress chunk from the transmit ring to the completion ring ([`EgressChunks`]). Addresses that
//! the kernel names are checked against the chunks that it has.
#![allow(unsafe_code)]

use crate::{Outgoing, Slice};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// How a port's UMEM is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Bytes of a chunk: 2048 or 4096, the sizes that the kernel supports.
    pub(super) chunk: u32,
    /// Ingress chunks of a queue; a power of two, which rings require.
    pub(super) ingress: u32,
    /// Egress chunks of a queue, a power of two.
    pub(super) egress: u32,
}

/// Bytes that the kernel keeps free before an ingress frame (`XDP_PACKET_HEADROOM`).
const HEADROOM: u32 = 256;
/// Bytes of an Ethernet header and two tags.
const LINK_HEADER: u32 = 22;
/// Offset of an egress frame in its chunk, behind its metadata (`struct xsk_tx_metadata`).
pub(super) const METADATA: u32 = 32;
const SIZES: [u32; 2] = [2048, 4096];

impl Shape {
    /// The largest MTU that any chunk holds.
    pub(super) const LARGEST_MTU: u32 = SIZES[1] - HEADROOM - LINK_HEADER;

    /// Returns the shape for frames of an MTU, with `bytes` of memory for the ingress of a queue
    /// and half as much for its egress. `None` if a frame does not fit into a chunk.
    pub(super) fn fitting(mtu: u32, bytes: u32) -> Option<Shape> {
        let chunk = SIZES.into_iter().find(|size| mtu <= size - HEADROOM - LINK_HEADER)?;
        let chunks = |bytes: u32| 1 << (bytes / chunk).max(64).ilog2();
        Some(Shape { chunk, ingress: chunks(bytes), egress: chunks(bytes / 2) })
    }

    /// Returns the largest MTU that is received whole.
    pub(super) fn largest_mtu(self) -> u32 {
        self.chunk - HEADROOM - LINK_HEADER
    }

    /// Returns the chunks of a queue.
    fn chunks(self) -> u32 {
        self.ingress + self.egress
    }
}

/// The mapped memory of a port's chunks.
pub(super) struct Umem {
    memory: NonNull<u8>,
    bytes: usize,
    pub(super) shape: Shape,
}

// SAFETY: all access is to chunks, each of which has one owner at a time.
unsafe impl Send for Umem {}
// SAFETY: as above.
unsafe impl Sync for Umem {}

impl Umem {
    /// Maps memory for this many queues. Fails if the host is short of memory.
    pub(super) fn map(queues: u32, shape: Shape) -> io::Result<Umem> {
        let bytes = shape.chunk as usize * shape.chunks() as usize * queues as usize;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address the kernel chooses.
        let memory =
            unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE) }?;
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Umem { memory, bytes, shape })
    }

    /// Returns the address and the length in bytes of the memory, for the kernel.
    pub(super) fn range(&self) -> (u64, u64) {
        (self.memory.as_ptr().addr() as u64, self.bytes as u64)
    }

    /// Returns the ingress chunks of a queue, for its fill ring.
    pub(super) fn ingress_chunks(&self, queue: u32) -> impl Iterator<Item = u64> + use<> {
        let (shape, first) = (self.shape, u64::from(queue) * u64::from(self.shape.chunks()));
        (0..shape.ingress).map(move |place| (first + u64::from(place)) * u64::from(shape.chunk))
    }

    /// Returns the ingress chunk of the queue that contains the address, for the fill ring; `None`
    /// if none does.
    pub(super) fn ingress_chunk(&self, queue: u32, address: u64) -> Option<u64> {
        let place = self.place(queue, address)?;
        (place < self.shape.ingress.into()).then(|| address & !u64::from(self.shape.chunk - 1))
    }

    /// Returns a received frame; `None` if it does not lie within one ingress chunk of the queue.
    ///
    /// # Safety
    /// The descriptor came from the receive ring, and its chunk is not put into the fill ring while
    /// the frame is borrowed.
    pub(super) unsafe fn received(&self, queue: u32, address: u64, len: u32) -> Option<&[u8]> {
        let chunk = self.ingress_chunk(queue, address)?;
        let fits = address - chunk + u64::from(len) <= self.shape.chunk.into();
        let start = usize::try_from(address).ok()?;
        // SAFETY: within one chunk, which nothing writes to between receive ring and fill ring, as
        // the caller says.
        fits.then(|| unsafe {
            std::slice::from_raw_parts(self.memory.as_ptr().add(start), len as usize)
        })
    }

    /// Returns which of a queue's chunks contains the address: ingress chunks come first, then
    /// egress chunks.
    fn place(&self, queue: u32, address: u64) -> Option<u64> {
        let chunks = u64::from(self.shape.chunks());
        let place =
            (address / u64::from(self.shape.chunk)).checked_sub(chunks * u64::from(queue))?;
        (place < chunks).then_some(place)
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and nothing borrows it any more. The kernel holds the pages
        // until it is done with them.
        let unmapped = unsafe { munmap(self.memory.as_ptr().cast(), self.bytes) };
        debug_assert_eq!(unmapped, Ok(()), "the mapping was ours");
    }
}

/// The egress chunks of a queue: free, or in use by the kernel.
pub(super) struct EgressChunks {
    umem: Arc<Umem>,
    queue: u32,
    /// Indices of the free chunks.
    free: Vec<u32>,
    /// For each chunk, whether it is in the transmit ring or in the device.
    under_way: Box<[bool]>,
}

impl EgressChunks {
    /// Returns the chunks of a queue, all free. Must be called only once for a queue.
    pub(super) fn new(umem: Arc<Umem>, queue: u32) -> EgressChunks {
        let count = umem.shape.egress;
        let under_way = (0..count).map(|_| false).collect();
        EgressChunks { umem, queue, free: (0..count).collect(), under_way }
    }

    pub(super) fn are_used_up(&self) -> bool {
        self.free.is_empty()
    }

    /// Returns the number of free chunks.
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Returns the size of the largest frame, in bytes.
    pub(super) fn room(&self) -> u32 {
        self.umem.shape.chunk - METADATA
    }

    /// Returns the memory of these chunks, to fill reserved ones without the lock of this list.
    pub(super) fn memory(&self) -> ChunkMemory {
        ChunkMemory { umem: self.umem.clone(), queue: self.queue }
    }

    /// Takes a free chunk for a frame; `None` if there is none.
    pub(super) fn reserve(&mut self) -> Option<Reserved> {
        self.free.pop().map(Reserved)
    }

    /// Returns the address of a filled chunk for the transmit ring, where it now belongs.
    pub(super) fn send(&mut self, chunk: Filled) -> u64 {
        if let Some(under_way) = self.under_way.get_mut(chunk.place as usize) {
            *under_way = true;
        }
        chunk.address
    }

    /// Frees the chunk of an address from the completion ring, if it was in use.
    pub(super) fn completed(&mut self, address: u64) {
        let shape = self.umem.shape;
        let place = self.umem.place(self.queue, address);
        let place = place.and_then(|place| place.checked_sub(shape.ingress.into()));
        let Some(place) = place.and_then(|place| u32::try_from(place).ok()) else { return };
        if self.under_way.get_mut(place as usize).is_some_and(std::mem::take) {
            self.free.push(place);
        }
    }
}

/// A chunk that is neither free nor the kernel's, by its index: there is one for each.
#[derive(Debug)]
pub(super) struct Reserved(u32);

/// A reserved chunk with a frame in it.
#[derive(Debug)]
pub(super) struct Filled {
    place: u32,
    /// Where the frame is in the UMEM.
    address: u64,
}

/// The memory of a queue's egress chunks.
pub(super) struct ChunkMemory {
    umem: Arc<Umem>,
    queue: u32,
}

impl ChunkMemory {
    /// Copies a frame, which must fit, and its metadata into a chunk that was reserved of the same
    /// queue.
    pub(super) fn fill(
        &self,
        mut chunk: Reserved,
        metadata: [u8; 16],
        frame: &Outgoing<'_>,
    ) -> Filled {
        let (address, bytes) = self.chunk(&mut chunk);
        let (before, mut rest) = bytes.split_at_mut(METADATA as usize);
        before.fill(0);
        before.iter_mut().zip(metadata).for_each(|(place, byte)| *place = byte);
        for slice in std::iter::once(&Slice::from(frame.header)).chain(frame.payload) {
            let copied = slice.copy_to(rest);
            rest = rest.get_mut(copied..).unwrap_or_default();
        }
        Filled { place: chunk.0, address: address + u64::from(METADATA) }
    }

    fn chunk<'c>(&'c self, Reserved(place): &'c mut Reserved) -> (u64, &'c mut [u8]) {
        let place = *place;
        debug_assert!(place < self.umem.shape.egress, "a place of this queue");
        let Shape { chunk, ingress, .. } = self.umem.shape;
        let number = u64::from(self.queue) * u64::from(self.umem.shape.chunks());
        let address = (number + u64::from(ingress) + u64::from(place)) * u64::from(chunk);
        let start = usize::try_from(address).unwrap_or(usize::MAX);
        // SAFETY: indices in `free` are below `egress`, so the chunk lies within the mapping, which
        // the UMEM keeps. A reserved chunk was taken from `free`, so it is not the kernel's, and by
        // `under_way` it is not in `free` a second time: this is the only `Reserved` of its index.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(self.umem.memory.as_ptr().add(start), chunk as usize)
        };
        (address, bytes)
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
            let umem = Arc::new(Umem::map(queues, Shape::fitting(mtu, bytes).unwrap()).unwrap());
            let all: Vec<u64> = (0..queues)
                .flat_map(|queue| umem.ingress_chunks(queue).chain(put_all(&umem, queue)))
                .collect();
            let places: BTreeSet<u64> = all.iter().copied().collect();
            prop_assert_eq!(places.len(), all.len());
            let end = |place: &u64| place + u64::from(umem.shape.chunk);
            prop_assert!(all.iter().all(|place| end(place) <= umem.range().1));
        }

        /// Such addresses come only from a faulty kernel.
        #[test]
        fn a_frame_that_does_not_lie_in_a_chunk_of_its_queue_is_none(
            queues in 1u32..5,
            address in prop_oneof![0u64..1 << 20, any::<u64>()],
            len in 0u32..5000,
        ) {
            let umem = Umem::map(queues, Shape::fitting(1500, 1 << 17).unwrap()).unwrap();
            for queue in 0..queues {
                let chunk = address & !2047;
                let is_ours = umem.ingress_chunks(queue).any(|place| place == chunk);
                prop_assert_eq!(umem.ingress_chunk(queue, address), is_ours.then_some(chunk));
                // SAFETY: no ring has the chunks of this UMEM, and none is written to.
                let frame = unsafe { umem.received(queue, address, len) };
                prop_assert_eq!(frame.is_some(), is_ours && address % 2048 + u64::from(len) <= 2048);
            }
        }

        /// Whatever a completion ring says, no two frames share a chunk.
        #[test]
        fn a_chunk_comes_back_once_and_only_if_it_was_under_way(
            queue in 0u32..3,
            completed in proptest::collection::vec(prop_oneof![0u64..1 << 20, any::<u64>()], 0..200),
        ) {
            let umem = Arc::new(Umem::map(3, Shape::fitting(1500, 1 << 17).unwrap()).unwrap());
            let mut chunks = EgressChunks::new(umem, queue);
            let mut under_way = BTreeSet::new();
            for address in completed {
                for _ in 0..3 {
                    under_way.extend(chunks.put([0; 16], &empty()).map(|put| put & !2047));
                }
                // Twice, as from a faulty kernel.
                chunks.completed(address);
                chunks.completed(address);
                under_way.remove(&(address & !2047));
                let all = usize::try_from(chunks.umem.shape.egress).unwrap();
                prop_assert_eq!(chunks.free.len() + under_way.len(), all);
            }
        }
    }

    impl EgressChunks {
        /// Reserves a chunk and fills it.
        pub(crate) fn put(&mut self, metadata: [u8; 16], frame: &Outgoing<'_>) -> Option<u64> {
            let chunk = self.reserve()?;
            let filled = self.memory().fill(chunk, metadata, frame);
            Some(self.send(filled))
        }
    }

    fn empty() -> Outgoing<'static> {
        Outgoing { vnet: wire::vnet::VnetHeader::default(), header: &[], payload: &[], len: 0 }
    }

    /// Returns the chunks of as many frames as there is room for.
    fn put_all(umem: &Arc<Umem>, queue: u32) -> Vec<u64> {
        let mut chunks = EgressChunks::new(umem.clone(), queue);
        let put = || Some(chunks.put([0; 16], &empty())? - u64::from(METADATA));
        let all = std::iter::from_fn(put).collect();
        assert!(chunks.are_used_up());
        all
    }
}
