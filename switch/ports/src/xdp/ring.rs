// UNSAFETY: the rings are memory that the kernel shares; two indices say which side owns each
// entry.
//! The four rings of a socket (Linux `Documentation/networking/af_xdp.rst`). A [`Writer`] fills the
//! fill and transmit rings; a [`Reader`] empties the completion and receive rings.
//!
//! Each ring has a producer's and a consumer's index that only grow, modulo 2^32; the consumer owns
//! the entries between them. A mapped ring keeps its queue of the device busy even when its socket
//! is closed, so rings are unmapped with the queue.
#![allow(unsafe_code)]

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::xdp::{XdpRingFlags, XdpRingOffset};
use std::io;
use std::marker::PhantomData;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// A mapped ring with entries of type `T`; any bytes are a valid `T`.
struct Mapping<T> {
    memory: NonNull<u8>,
    bytes: usize,
    entries: u32,
    offsets: XdpRingOffset,
    of: PhantomData<T>,
}

// SAFETY: the indices are atomics; entries are reached by the one reader or writer alone.
unsafe impl<T: Send> Send for Mapping<T> {}

impl<T: Copy> Mapping<T> {
    fn map(
        socket: impl AsFd,
        offset: u64,
        entries: u32,
        offsets: XdpRingOffset,
    ) -> io::Result<Mapping<T>> {
        let invalid = |_| io::ErrorKind::InvalidData;
        let start = usize::try_from(offsets.desc).map_err(invalid)?;
        let bytes = start + entries as usize * size_of::<T>();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address the kernel chooses.
        let memory =
            unsafe { mmap(std::ptr::null_mut(), bytes, protection, flags, socket, offset) }?;
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { memory, bytes, entries, offsets, of: PhantomData })
    }

    fn producer(&self) -> &AtomicU32 {
        self.word(self.offsets.producer)
    }

    fn consumer(&self) -> &AtomicU32 {
        self.word(self.offsets.consumer)
    }

    fn needs_wakeup(&self) -> bool {
        let flags = self.offsets.flags.map(|offset| self.word(offset).load(Ordering::Relaxed));
        flags.is_some_and(|flags| {
            XdpRingFlags::from_bits_retain(flags).contains(XdpRingFlags::XDP_RING_NEED_WAKEUP)
        })
    }

    #[allow(
        clippy::cast_possible_truncation,
        reason = "the kernel's offsets of its own ring, below a page"
    )]
    fn word(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the kernel's own offset of an aligned word in its ring, which is mapped as long
        // as `self` lives.
        unsafe { AtomicU32::from_ptr(self.memory.as_ptr().add(offset as usize).cast()) }
    }

    #[allow(clippy::cast_possible_truncation, reason = "as above")]
    fn entry(&self, index: u32) -> *mut T {
        let place = (index & (self.entries - 1)) as usize;
        // SAFETY: below `entries`, a power of two, so the entry lies within the mapping.
        unsafe { self.memory.as_ptr().add(self.offsets.desc as usize).cast::<T>().add(place) }
    }
}

impl<T> Drop for Mapping<T> {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and nothing borrows it any more.
        let unmapped = unsafe { munmap(self.memory.as_ptr().cast(), self.bytes) };
        debug_assert_eq!(unmapped, Ok(()), "the mapping was ours");
    }
}

/// A ring that the kernel fills.
pub(super) struct Reader<T> {
    ring: Mapping<T>,
    /// The next entry to take, at or after the consumer's index; the entries between the two are
    /// lent.
    next: u32,
    /// The kernel's index as last read.
    filled: u32,
}

impl<T: Copy> Reader<T> {
    /// Maps a ring that starts at `offset` of the socket; `entries` is a power of two. Fails if the
    /// kernel refuses the mapping.
    pub(super) fn map(
        socket: impl AsFd,
        offset: u64,
        entries: u32,
        offsets: XdpRingOffset,
    ) -> io::Result<Reader<T>> {
        Ok(Reader { ring: Mapping::map(socket, offset, entries, offsets)?, next: 0, filled: 0 })
    }

    /// Whether an entry is filled and not taken.
    pub(super) fn has_filled(&self) -> bool {
        self.next != self.ring.producer().load(Ordering::Acquire)
    }

    /// Takes the next filled entry.
    pub(super) fn take(&mut self) -> Option<T> {
        if self.next == self.filled {
            // Pairs with the kernel's release of its index after it filled the entries before it.
            self.filled = self.ring.producer().load(Ordering::Acquire);
        }
        if self.next == self.filled {
            return None;
        }
        // SAFETY: filled and not given back, so the kernel does not write to it.
        let entry = unsafe { self.ring.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// Gives the taken entries back to the kernel, and calls `each` with every entry first.
    pub(super) fn release(&mut self, mut each: impl FnMut(T)) {
        let consumer = self.ring.consumer();
        let mut index = consumer.load(Ordering::Relaxed);
        while index != self.next {
            // SAFETY: taken and not given back yet.
            each(unsafe { self.ring.entry(index).read() });
            index = index.wrapping_add(1);
        }
        // Pairs with the kernel's acquire of this index: it writes to the entries only after our
        // last read.
        consumer.store(index, Ordering::Release);
    }
}

/// A ring that we fill.
pub(super) struct Writer<T> {
    ring: Mapping<T>,
    /// Index behind the last entry added, which may not be published yet.
    next: u32,
}

impl<T: Copy> Writer<T> {
    /// Maps a ring that starts at `offset` of the socket; `entries` is a power of two. Fails if the
    /// kernel refuses the mapping.
    pub(super) fn map(
        socket: impl AsFd,
        offset: u64,
        entries: u32,
        offsets: XdpRingOffset,
    ) -> io::Result<Writer<T>> {
        Ok(Writer { ring: Mapping::map(socket, offset, entries, offsets)?, next: 0 })
    }

    /// Adds an entry. There is always room: a ring has as many entries as there are chunks for it.
    pub(super) fn put(&mut self, entry: T) {
        // SAFETY: not published, so it is ours.
        unsafe { self.ring.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
    }

    /// Hands all entries added so far to the kernel.
    pub(super) fn publish(&self) {
        // Pairs with the kernel's acquire of this index: it reads the entries only after we wrote
        // them.
        self.ring.producer().store(self.next, Ordering::Release);
        // Pairs with the driver's barrier between setting its wake-up flag, which is read after
        // this, and its last look at the ring: one of both sees the other's.
        fence(Ordering::SeqCst);
    }

    /// Returns the number of published entries that the kernel has not taken.
    pub(super) fn pending(&self) -> u32 {
        self.next.wrapping_sub(self.ring.consumer().load(Ordering::Acquire))
    }

    /// Whether the kernel looks at the ring only when called.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}
