//! Chains of descriptors, checked and turned into elements of host memory. Both ring formats walk
//! their descriptors in here.

use crate::Limit;
use crate::descriptor::{Descriptor, INDIRECT, KIND, NEXT, WRITE};
use crate::list::List;
use crate::{ChainElement, QueueFault, prefetch};
use guestmem::{Gpa, GuestMemory, MemorySpan, Translator};
use std::ptr::NonNull;
use std::sync::Arc;

/// Descriptors served in a chain, whatever the ring's size: as many as QEMU serves. Linux makes
/// indirect tables longer than a small ring, and nothing makes longer ones than this.
pub(crate) const LONGEST: u16 = 1024;

/// Bytes of a linked table that are copied at once: more entries than drivers use.
const HEAD: u32 = 512;

/// Bytes a buffer counts for at least, where a chain has several: 1024 of them fill a burst of 512
/// KiB. Each may lie in a page of its own that the kernel has to find first.
pub const ELEMENT_WEIGHT: usize = 512;

/// Direction that a chain's buffers must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// All for the device to read.
    Readable,
    /// All for the device to write.
    Writable,
    /// Some to read, then some to write.
    Either,
}

impl Want {
    /// Returns the address of the only buffer of a chain, if the chain is of one direct descriptor
    /// of this kind and lies in the span. Most are; the others go the long way.
    #[inline(always)]
    pub(crate) fn simple(self, descriptor: Descriptor, span: &MemorySpan) -> Option<NonNull<u8>> {
        let kind = match self {
            Want::Readable => 0,
            Want::Writable => WRITE,
            Want::Either => return None,
        };
        if descriptor.flags & KIND != kind || descriptor.len == 0 {
            return None;
        }
        let start = span.find(descriptor.gpa, descriptor.len)?;
        match self {
            Want::Writable => prefetch::to_write(start),
            _ => prefetch::to_read(start),
        }
        Some(start)
    }
}

/// A chain that was taken from the ring and not given back yet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chain {
    /// Where its elements end; they start where those of the chain before it end.
    pub(crate) end: u32,
    /// Bytes of all its buffers.
    pub(crate) bytes: u32,
    /// Bytes the device has written to it.
    pub(crate) written: u32,
    /// The driver's id for the chain.
    pub(crate) id: u16,
    /// Places it takes in a packed ring.
    pub(crate) slots: u16,
}

/// The chains that were taken, oldest first, and the guest's memory.
#[derive(Debug)]
pub(crate) struct Walk {
    translator: Translator,
    chains: List<Chain>,
    elements: List<ChainElement>,
    /// Number of elements to read in the chain walked last.
    readable: u16,
    /// The indirect table that is being walked, copied so that it cannot change.
    table: Vec<u8>,
}

/// Order of the descriptors of an indirect table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TableOrder {
    /// By their `next` field (split, section 2.7.5.3).
    Linked,
    /// One after the other, to the table's end (packed, section 2.8.7).
    Sequential,
}

impl Walk {
    /// Returns an empty walk with room for a full burst of single-buffer chains.
    pub(crate) fn new(memory: Arc<GuestMemory>) -> Walk {
        Walk {
            translator: Translator::new(memory),
            chains: List::new(256),
            elements: List::new(1024),
            readable: 0,
            table: Vec::new(),
        }
    }

    pub(crate) fn memory(&self) -> &Arc<GuestMemory> {
        self.translator.memory()
    }

    #[inline(always)]
    pub(crate) fn chains(&self) -> &[Chain] {
        self.chains.as_slice()
    }

    #[inline(always)]
    pub(crate) fn chains_mut(&mut self) -> &mut [Chain] {
        self.chains.as_mut_slice()
    }

    /// Returns the number of elements to read in the chain walked last.
    pub(crate) fn readable(&self) -> usize {
        usize::from(self.readable)
    }

    /// Returns the elements of some chains that follow each other.
    #[inline(always)]
    pub(crate) fn elements(&self, first: usize, after: usize) -> &[ChainElement] {
        let range = self.start_of(first) as usize..self.start_of(after) as usize;
        self.elements.as_slice().get(range).unwrap_or_default()
    }

    /// Returns where the elements of a chain start.
    #[inline(always)]
    fn start_of(&self, chain: usize) -> u32 {
        let before = chain.checked_sub(1).and_then(|before| self.chains().get(before));
        before.map_or(0, |before| before.end)
    }

    /// Returns the elements of each chain.
    #[inline(always)]
    pub(crate) fn each(&self) -> impl Iterator<Item = &[ChainElement]> {
        self.each_after(0)
    }

    /// Returns the elements of each chain behind the first `count`.
    #[inline(always)]
    pub(crate) fn each_after(&self, count: usize) -> impl Iterator<Item = &[ChainElement]> {
        let (mut start, elements) = (self.start_of(count) as usize, self.elements.as_slice());
        self.chains().get(count..).unwrap_or_default().iter().map(move |chain| {
            let range = start..chain.end as usize;
            start = range.end;
            elements.get(range).unwrap_or_default()
        })
    }

    /// Takes chains of one descriptor from the cells of a ring, as far as the limit allows: up to
    /// one that is not as simple or that `read` has not got. `read` gives a cell's descriptor, and
    /// what the driver knows the chain by. How many chains, and how many bytes are left of the
    /// limit.
    #[inline(always)]
    pub(crate) fn take_simple<Cell>(
        &mut self,
        cells: &[Cell],
        limit: Limit,
        want: Want,
        read: impl Fn(&Cell) -> Option<(Descriptor, u16)>,
    ) -> (usize, usize) {
        let (span, mut end) = (self.translator.span(), self.end());
        let (mut taken, mut left) = (0, limit.bytes);
        let (elements, chains) =
            (self.elements.spare(limit.chains), self.chains.spare(limit.chains));
        for ((cell, element), chain) in cells.iter().zip(elements).zip(chains) {
            let Some((descriptor, id)) = read(cell) else { break };
            let Some(start) = want.simple(descriptor, &span) else { break };
            let bytes = descriptor.len;
            end += 1;
            *element = ChainElement { start: start.as_ptr(), len: bytes as usize };
            *chain = Chain { end, bytes, written: 0, id, slots: 1 };
            taken += 1;
            left = left.saturating_sub(bytes as usize);
            if left == 0 {
                break;
            }
        }
        self.elements.extend(taken);
        self.chains.extend(taken);
        (taken, left)
    }

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "65536 chains of 1024 descriptors at most")]
    fn end(&self) -> u32 {
        self.elements.len() as u32
    }

    /// Begins a chain of any kind.
    pub(crate) fn begin(&mut self, want: Want, order: TableOrder) -> OpenChain<'_> {
        OpenChain { walk: self, want, order, bytes: 0, readable: 0, is_writable: false }
    }

    /// Returns what the chain just finished counts for in a burst, in bytes. Very many tiny buffers
    /// count as many bytes, so that a guest cannot make a burst of millions of them.
    pub(crate) fn weight_of_last(&self) -> usize {
        let count = self.chains.len();
        let elements = self.elements(count.saturating_sub(1), count);
        let bytes = self.chains().last().map_or(0, |chain| chain.bytes);
        (bytes as usize).max(elements.len() * ELEMENT_WEIGHT)
    }

    /// Returns the weight of the chains from `first` on that were taken and not given back.
    pub(crate) fn weight(&self, first: usize) -> usize {
        (self.elements.len() - self.start_of(first) as usize) * ELEMENT_WEIGHT
    }

    /// Forgets the elements of a chain that was not completed.
    pub(crate) fn forget_partial(&mut self) {
        self.elements.truncate(self.start_of(self.chains.len()) as usize);
    }

    /// Forgets the oldest chains.
    #[inline]
    pub(crate) fn forget_front(&mut self, count: usize) {
        let gone = self.start_of(count);
        self.chains.forget_front(count);
        self.elements.forget_front(gone as usize);
        for chain in self.chains.as_mut_slice() {
            chain.end -= gone;
        }
    }
}

/// A chain that is being walked: its elements are the last of the walk's.
pub(crate) struct OpenChain<'w> {
    walk: &'w mut Walk,
    want: Want,
    order: TableOrder,
    bytes: u64,
    readable: u16,
    /// The last element is for the device to write.
    is_writable: bool,
}

impl OpenChain<'_> {
    /// Adds one descriptor, or all those of its table.
    pub(crate) fn add(&mut self, descriptor: Descriptor) -> Result<(), QueueFault> {
        if descriptor.flags & INDIRECT == 0 {
            return self.add_direct(descriptor);
        }
        if descriptor.flags & NEXT != 0 {
            return Err(QueueFault::IndirectWithNext);
        }
        self.add_table(descriptor)
    }

    fn add_direct(&mut self, descriptor: Descriptor) -> Result<(), QueueFault> {
        let Descriptor { gpa, len, flags, .. } = descriptor;
        let is_writable = flags & WRITE != 0;
        if is_writable && self.want == Want::Readable {
            return Err(QueueFault::NotReadable(gpa));
        }
        if !is_writable && (self.want == Want::Writable || self.is_writable) {
            return Err(QueueFault::NotWritable(gpa));
        }
        if len == 0 {
            return Err(QueueFault::EmptyBuffer(gpa));
        }
        let start = self.walk.translator.translate(gpa, len);
        let start = start.ok_or(QueueFault::OutsideMemory { gpa, len })?;
        self.bytes += u64::from(len);
        self.is_writable = is_writable;
        self.readable += u16::from(!is_writable);
        self.walk.elements.push(ChainElement { start: start.as_ptr(), len: len as usize });
        Ok(())
    }

    fn add_table(&mut self, table: Descriptor) -> Result<(), QueueFault> {
        let count = self.copy_table(table)?;
        let mut index = 0;
        for _ in 0..count {
            let Some(descriptor) = self.table_entry(table, index) else {
                let index = u16::try_from(index).unwrap_or(u16::MAX);
                return Err(QueueFault::NoSuchDescriptor { index, size: count });
            };
            if descriptor.flags & INDIRECT != 0 {
                return Err(QueueFault::NestedIndirect);
            }
            self.add_direct(descriptor)?;
            index = match self.order {
                TableOrder::Sequential => index + 1,
                TableOrder::Linked if descriptor.flags & NEXT == 0 => return Ok(()),
                TableOrder::Linked => usize::from(descriptor.tag),
            };
        }
        match self.order {
            TableOrder::Sequential => Ok(()),
            TableOrder::Linked => Err(QueueFault::ChainTooLong(count)),
        }
    }

    /// Copies the table a descriptor names, of a linked one the first [`HEAD`] bytes: the driver
    /// may use one entry of 16 KiB. How many descriptors it has.
    fn copy_table(&mut self, table: Descriptor) -> Result<u32, QueueFault> {
        let Descriptor { gpa, len, .. } = table;
        let count = len / 16;
        if len % 16 != 0 || count == 0 || count > u32::from(LONGEST) {
            return Err(QueueFault::IndirectLength(len));
        }
        let copied = match self.order {
            TableOrder::Linked => len.min(HEAD),
            TableOrder::Sequential => len,
        };
        let Walk { translator, table, .. } = &mut *self.walk;
        table.resize(copied as usize, 0);
        if !translator.read(gpa, table) {
            return Err(QueueFault::OutsideMemory { gpa, len });
        }
        Ok(count)
    }

    /// Returns an entry; `None` if the table has no such entry, or if it is outside of the memory.
    fn table_entry(&mut self, table: Descriptor, index: usize) -> Option<Descriptor> {
        let bytes = match self.walk.table.as_chunks().0.get(index) {
            Some(bytes) => *bytes,
            None => self.read_entry(table, index)?,
        };
        let is_sequential = self.order == TableOrder::Sequential;
        let mut descriptor = Descriptor::from_table(&bytes, is_sequential);
        if is_sequential {
            // Only WRITE counts in such a table (section 2.8.7), and INDIRECT is not allowed.
            descriptor.flags &= WRITE | INDIRECT;
        }
        Some(descriptor)
    }

    #[cold]
    fn read_entry(&mut self, table: Descriptor, index: usize) -> Option<[u8; 16]> {
        let offset = 16 * index as u64;
        let gpa = Gpa(table.gpa.0.checked_add(offset)?);
        let mut bytes = [0; 16];
        (offset < table.len.into() && self.walk.translator.read(gpa, &mut bytes)).then_some(bytes)
    }

    /// Completes the chain.
    pub(crate) fn finish(self, id: u16, slots: u16) -> Result<(), QueueFault> {
        let bytes = u32::try_from(self.bytes).map_err(|_| QueueFault::TooManyBytes(self.bytes))?;
        let end = self.walk.end();
        self.walk.chains.push(Chain { end, bytes, written: 0, id, slots });
        self.walk.readable = self.readable;
        Ok(())
    }
}
