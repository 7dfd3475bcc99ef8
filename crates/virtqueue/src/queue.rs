//! A queue of either format. Match it once per burst and use what is inside; the verbs here are for the control side
//! and for what is done once per burst anyway.

use crate::{
    BatchNumber, ControlChain, InflightJournal, Packed, QueueFault, RingFeatures, Setup,
    SetupError, Split, Virtqueue,
};
use guestmem::{DirtyLog, GuestMemory};
use std::sync::Arc;

/// The device side of a queue.
#[derive(Debug)]
pub enum Queue {
    /// Virtio 1.2, section 2.7.
    Split(Virtqueue<Split>),
    /// Virtio 1.2, section 2.8.
    Packed(Virtqueue<Packed>),
}

/// Does the same with either kind.
macro_rules! each {
    ($queue:expr, $inner:ident => $do:expr) => {
        match $queue {
            Queue::Split($inner) => $do,
            Queue::Packed($inner) => $do,
        }
    };
}

impl Queue {
    /// Starts a queue of the negotiated format: [`Virtqueue::resume`].
    pub fn resume(
        memory: Arc<GuestMemory>,
        setup: &Setup,
        journal: Option<InflightJournal>,
    ) -> Result<Queue, SetupError> {
        if setup.features.contains(RingFeatures::RING_PACKED) {
            Virtqueue::resume(memory, setup, journal).map(Queue::Packed)
        } else {
            Virtqueue::resume(memory, setup, journal).map(Queue::Split)
        }
    }

    /// See [`Virtqueue::complete`].
    pub fn complete(&mut self, count: usize) -> bool {
        each!(self, queue => queue.complete(count))
    }

    /// See [`Virtqueue::publish`].
    pub fn publish(&mut self) -> bool {
        each!(self, queue => queue.publish())
    }

    /// See [`Virtqueue::begin_batch`].
    pub fn begin_batch(&mut self) -> BatchNumber {
        each!(self, queue => queue.begin_batch())
    }

    /// See [`Virtqueue::end_batch`].
    pub fn end_batch(&mut self, number: BatchNumber) -> bool {
        each!(self, queue => queue.end_batch(number))
    }

    /// See [`Virtqueue::room`].
    pub fn room(&mut self, most: usize) -> (usize, usize) {
        each!(self, queue => queue.room(most))
    }

    /// See [`Virtqueue::take_control`].
    pub fn take_control(&mut self) -> Result<Option<ControlChain<'_>>, QueueFault> {
        each!(self, queue => queue.take_control())
    }

    /// See [`Virtqueue::answer`].
    pub fn answer(&mut self, written: u32) -> bool {
        each!(self, queue => queue.answer(written))
    }

    /// See [`Virtqueue::arm`].
    pub fn arm(&mut self) -> bool {
        each!(self, queue => queue.arm())
    }

    /// See [`Virtqueue::disarm`].
    pub fn disarm(&mut self) {
        each!(self, queue => queue.disarm());
    }

    /// See [`Virtqueue::base`].
    pub fn base(&self) -> u32 {
        each!(self, queue => queue.base())
    }

    /// See [`Virtqueue::set_enabled`].
    pub fn set_enabled(&mut self, enabled: bool) {
        each!(self, queue => queue.set_enabled(enabled));
    }

    /// See [`Virtqueue::is_enabled`].
    pub fn is_enabled(&self) -> bool {
        each!(self, queue => queue.is_enabled())
    }

    /// See [`Virtqueue::fault`].
    pub fn fault(&self) -> Option<QueueFault> {
        each!(self, queue => queue.fault())
    }

    /// See [`Virtqueue::set_log`].
    pub fn set_log(&mut self, log: Option<Arc<DirtyLog>>) {
        each!(self, queue => queue.set_log(log));
    }

    /// See [`Virtqueue::remap`].
    pub fn remap(&mut self, memory: Arc<GuestMemory>) -> Result<(), SetupError> {
        each!(self, queue => queue.remap(memory))
    }
}
