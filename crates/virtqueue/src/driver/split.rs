//! The driver side of a split ring.

use super::{Buffer, Shape, Tables, Used, kind};
use crate::descriptor::{Descriptor, NEXT};
use crate::event::SplitWords;
use crate::split_area::SplitArea;
use crate::{RingFeatures, Setup, SetupError};
use guestmem::{Gpa, GuestMemory};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// See [`Driver`](super::Driver).
#[derive(Debug)]
pub struct SplitDriver {
    area: SplitArea,
    tables: Tables,
    by_position: bool,
    /// Descriptors that are ours. First in, first out: with IN_ORDER that is the order of the ring (section 2.7.9).
    free: VecDeque<u16>,
    /// The descriptors of each chain in the device's hands, by its head.
    lent: Vec<Vec<u16>>,
    /// The next available index; what the device knows of it.
    next: u16,
    published: u16,
    /// The next used element to read.
    used: u16,
}

impl SplitDriver {
    pub(super) fn new(
        memory: Arc<GuestMemory>,
        setup: &Setup,
        tables: Gpa,
    ) -> Result<SplitDriver, SetupError> {
        let area = SplitArea::new(&memory, setup.rings, setup.size)?;
        Ok(SplitDriver {
            area,
            tables: Tables { memory, start: tables },
            by_position: setup.features.contains(RingFeatures::EVENT_IDX),
            free: (0..setup.size).collect(),
            lent: vec![Vec::new(); usize::from(setup.size)],
            next: 0,
            published: 0,
            used: 0,
        })
    }

    pub(super) fn add(&mut self, buffers: &[Buffer], shape: Shape) -> Option<u16> {
        let needed = if shape == Shape::Indirect { 1 } else { buffers.len() };
        if buffers.is_empty() || needed > self.free.len() {
            return None;
        }
        let head = *self.free.front()?;
        if shape == Shape::Indirect {
            let table = self.tables.fill(head, buffers, false)?;
            self.write(head, table);
        } else {
            self.write_chain(buffers);
        }
        let chain = self.free.drain(..needed);
        self.lent.get_mut(usize::from(head))?.extend(chain);
        // Relaxed: published by the release store of the index.
        self.area.heads.get(self.area.place(self.next))?.store(head, Ordering::Relaxed);
        self.next = self.next.wrapping_add(1);
        Some(head)
    }

    fn write(&self, index: u16, descriptor: Descriptor) {
        if let Some(cell) = self.area.descriptors.get(usize::from(index)) {
            cell.write(descriptor);
        }
    }

    fn write_chain(&self, buffers: &[Buffer]) {
        let places = self.free.iter().take(buffers.len());
        let nexts = self.free.iter().take(buffers.len()).skip(1).map(Some).chain([None]);
        for ((buffer, place), next) in buffers.iter().zip(places).zip(nexts) {
            let flags = kind(buffer) | if next.is_some() { NEXT } else { 0 };
            let tag = next.copied().unwrap_or(0);
            let Buffer { gpa, len, .. } = *buffer;
            self.write(*place, Descriptor { gpa, len, flags, tag });
        }
    }

    pub(super) fn publish(&mut self) -> bool {
        if self.published == self.next {
            return false;
        }
        let old = std::mem::replace(&mut self.published, self.next);
        let SplitArea { used, avail, avail_event, .. } = &self.area;
        let (index, flags, event) = (&avail.index, &used.flags, &**avail_event);
        let words = SplitWords { index, flags, event, by_position: self.by_position };
        words.publish(old, self.next)
    }

    pub(super) fn reap(&mut self) -> Option<Used> {
        // Pairs with the device's release store of used.idx: elements and buffers were written before it.
        while self.area.used.index.load(Ordering::Acquire) != self.used {
            let element = self.area.used_elements.get(self.area.place(self.used))?;
            // Relaxed: ordered by the load of the index.
            let [id, len] = [&element.id, &element.len].map(|word| word.load(Ordering::Relaxed));
            self.used = self.used.wrapping_add(1);
            let Ok(id) = u16::try_from(id) else { continue };
            let Some(chain) = self.lent.get_mut(usize::from(id)) else { continue };
            if !chain.is_empty() {
                self.free.extend(chain.drain(..));
                return Some(Used { id, len });
            }
        }
        None
    }

    /// The device's index, our wish.
    fn wishes(&self) -> SplitWords<'_, AtomicU16> {
        let SplitArea { used, avail, used_event, .. } = &self.area;
        let (index, flags, event) = (&used.index, &avail.flags, &**used_event);
        SplitWords { index, flags, event, by_position: self.by_position }
    }

    pub(super) fn arm(&mut self) -> bool {
        self.wishes().arm(self.used)
    }

    pub(super) fn disarm(&mut self) {
        self.wishes().disarm();
    }
}
