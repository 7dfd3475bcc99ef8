//! The driver side of a split ring.

use super::{Buffer, INDIRECT, NEXT, Ring, Shape, Used, kind, need_event};
use crate::shared::at;
use guestmem::Gpa;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering, fence};

/// The driver side of a split ring. See [`Driver`](super::Driver).
#[derive(Debug)]
pub struct SplitDriver {
    pub(super) ring: Ring,
    /// Descriptors that are ours. First in, first out: with IN_ORDER that is the order of the ring
    /// (section 2.7.9).
    free: VecDeque<u16>,
    /// The descriptors of each chain in the device's hands, by its head.
    chains: Vec<Vec<u16>>,
    /// The next available index, and the last one published.
    next: u16,
    published: u16,
    /// The next used element to read.
    used: u16,
}

impl SplitDriver {
    pub(super) fn new(ring: Ring) -> SplitDriver {
        let size = ring.layout.size;
        SplitDriver {
            ring,
            free: (0..size).collect(),
            chains: vec![Vec::new(); usize::from(size)],
            next: 0,
            published: 0,
            used: 0,
        }
    }

    /// Returns a word of the available ring (section 2.7.6): flags, index, heads, `used_event`.
    fn available(&self, word: u16) -> &AtomicU16 {
        at(&self.ring.memory, Gpa(self.ring.layout.driver.0 + 2 * u64::from(word)))
    }

    /// Returns the address of a part of the used ring (section 2.7.8), by its offset in bytes.
    fn used_ring(&self, offset: u64) -> Gpa {
        Gpa(self.ring.layout.device.0 + offset)
    }

    fn used_index(&self) -> u16 {
        // Pairs with the device's release store of used.idx: elements and buffers were written
        // before it.
        at::<AtomicU16>(&self.ring.memory, self.used_ring(2)).load(Ordering::Acquire)
    }

    fn place(&self, index: u16) -> u16 {
        index & (self.ring.layout.size - 1)
    }

    pub(super) fn add(&mut self, buffers: &[Buffer], shape: Shape) -> Option<u16> {
        let needed = if shape == Shape::Indirect { 1 } else { buffers.len() };
        if buffers.is_empty() || needed > self.free.len() {
            return None;
        }
        let head = *self.free.front()?;
        if shape == Shape::Indirect {
            let (table, len) = self.ring.fill_table(head, buffers)?;
            let cell = self.ring.descriptor(head);
            cell.write(table, len);
            cell.write_last([INDIRECT, 0]);
        } else {
            self.write_chain(buffers);
        }
        let chain = self.free.drain(..needed);
        self.chains.get_mut(usize::from(head))?.extend(chain);
        // Relaxed: published by the release store of the index.
        self.available(2 + self.place(self.next)).store(head, Ordering::Relaxed);
        self.next = self.next.wrapping_add(1);
        Some(head)
    }

    fn write_chain(&self, buffers: &[Buffer]) {
        let nexts = self.free.iter().take(buffers.len()).skip(1).map(Some).chain([None]);
        for ((buffer, index), next) in buffers.iter().zip(&self.free).zip(nexts) {
            let more = if next.is_some() { NEXT } else { 0 };
            let cell = self.ring.descriptor(*index);
            cell.write(buffer.gpa, buffer.len);
            cell.write_last([kind(buffer) | more, next.copied().unwrap_or(0)]);
        }
    }

    pub(super) fn publish(&mut self) -> bool {
        if self.published == self.next {
            return false;
        }
        let old = std::mem::replace(&mut self.published, self.next);
        // Pairs with the device's acquire load of avail.idx: heads, descriptors and buffers come
        // before it.
        self.available(1).store(self.next, Ordering::Release);
        // Pairs with the device's fence between asking for a notification and its last look at
        // avail.idx.
        fence(Ordering::SeqCst);
        let word = |offset| {
            at::<AtomicU16>(&self.ring.memory, self.used_ring(offset)).load(Ordering::Relaxed)
        };
        if self.ring.by_position() {
            need_event(word(4 + 8 * u64::from(self.ring.layout.size)), self.next, old)
        } else {
            word(0) & 1 == 0
        }
    }

    pub(super) fn reap(&mut self) -> Option<Used> {
        while self.used_index() != self.used {
            let element = 4 + 8 * u64::from(self.place(self.used));
            // Relaxed: ordered by the load of the index.
            let [id, len] = [element, element + 4].map(|offset| {
                at::<AtomicU32>(&self.ring.memory, self.used_ring(offset)).load(Ordering::Relaxed)
            });
            self.used = self.used.wrapping_add(1);
            let Ok(id) = u16::try_from(id) else { continue };
            let Some(chain) = self.chains.get_mut(usize::from(id)) else { continue };
            if !chain.is_empty() {
                self.free.extend(chain.drain(..));
                return Some(Used { id, len });
            }
        }
        None
    }

    pub(super) fn arm(&mut self) -> bool {
        if self.ring.by_position() {
            self.available(2 + self.ring.layout.size).store(self.used, Ordering::Relaxed);
        } else {
            self.available(0).store(0, Ordering::Relaxed);
        }
        // Pairs with the device's fence between publishing and its look at our words.
        fence(Ordering::SeqCst);
        self.used_index() != self.used
    }

    /// Asks the device not to notify us. With EVENT_IDX there is nothing to do: a position that was
    /// passed is not passed again for 65536 buffers.
    pub(super) fn disarm(&mut self) {
        if !self.ring.by_position() {
            self.available(0).store(1, Ordering::Relaxed);
        }
    }
}
