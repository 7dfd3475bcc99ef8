//! A queue from the device's side: what a port uses, burst by burst.

use crate::any_ring::AnyRing;
use crate::chain::{ELEMENT_WEIGHT, Walk, Want};
use crate::packed::Packed;
use crate::ring::Ring;
use crate::split::Split;
use crate::{
    ChainElement, ControlChain, FrameBuffers, InflightJournal, Limit, QueueFault, Reserved,
    RingFeatures, Setup, SetupError,
};
use guestmem::{DirtyLog, GuestMemory};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

/// Chains looked up at a time for [`Queue::reserve`]: enough that their prefetches overlap.
const AHEAD: usize = 32;

/// Weight of the chains that an egress queue holds at most, in bytes: 8192 elements, as many as 431
/// chains of a driver that merges no buffers have. A receiver that offers buffers of one byte gets
/// no more of them filled in a burst and loses the frames that do not fit; its senders pay for the
/// time of walking and filling that many.
const AHEAD_WEIGHT: usize = 8192 * ELEMENT_WEIGHT;

/// Weight that its batches may have in addition, in bytes.
const BATCHES_WEIGHT: usize = 8 * AHEAD_WEIGHT;

/// Chains that were filled together, and are published when all before them are.
#[derive(Debug)]
struct Batch {
    chains: usize,
    written: bool,
}

/// Number of a batch, from [`Queue::begin_batch`] for [`Queue::end_batch`].
#[derive(Debug)]
#[must_use = "nothing behind a batch is published before it ends"]
pub struct BatchNumber(u64);

/// The device side of a queue of either format.
#[derive(Debug)]
pub struct Queue {
    ring: AnyRing,
    walk: Walk,
    /// Egress: how many of the walked chains have a frame in them, or will have one when their
    /// batch is written.
    filled: usize,
    /// Egress: the batches among them, oldest first; what was filled since is behind them.
    batches: VecDeque<Batch>,
    /// Number of the oldest batch.
    oldest: u64,
    /// Egress: chains are walked before they are needed.
    ahead: bool,
    enabled: bool,
    /// The driver has been asked to notify us, as it is at the beginning.
    armed: bool,
    fault: Option<QueueFault>,
    log: Option<Arc<DirtyLog>>,
    setup: Setup,
}

impl Queue {
    /// Starts a queue of the negotiated format, disabled as vhost-user requires.
    ///
    /// A split ring resumes at the used index in guest memory. A packed ring resumes where the
    /// journal says, and at `setup.base` if there is no journal or it is still empty. With a
    /// journal, another process may have served the queue before, and a later one may serve it
    /// after us.
    ///
    /// # Errors
    /// Fails if the size or base is not possible in the format, if a part of the ring is unaligned
    /// or outside guest memory, or if the journal belongs to another ring.
    pub fn resume(
        memory: Arc<GuestMemory>,
        setup: &Setup,
        journal: Option<InflightJournal>,
    ) -> Result<Queue, SetupError> {
        let is_packed = setup.features.contains(RingFeatures::RING_PACKED);
        Ok(Queue {
            ring: match is_packed {
                true => AnyRing::Packed(Packed::new(&memory, setup, journal)?),
                // A journal could say no more than the used index.
                false => AnyRing::Split(Split::new(&memory, setup)?),
            },
            walk: Walk::new(memory),
            filled: 0,
            batches: VecDeque::new(),
            oldest: 0,
            ahead: false,
            enabled: false,
            armed: true,
            fault: None,
            log: None,
            setup: *setup,
        })
    }

    /// Takes available chains of readable buffers, at most `limit`. Returns how many.
    ///
    /// # Errors
    /// Fails if the driver broke the rules of the ring, or if guest memory was truncated. Chains
    /// before a fault are returned first, and the fault by the next call and all later ones.
    #[inline]
    pub fn take(&mut self, limit: Limit) -> Result<usize, QueueFault> {
        self.walk_on(limit, Want::Readable)
    }

    /// Returns the elements of each chain that was taken and not completed, oldest first.
    #[inline]
    pub fn taken(&self) -> impl Iterator<Item = &[ChainElement]> {
        self.walk.each()
    }

    /// Returns the elements of each chain that [`Queue::taken`] returns behind the first `count`.
    #[inline]
    pub fn taken_after(&self, count: usize) -> impl Iterator<Item = &[ChainElement]> {
        self.walk.each_after(count)
    }

    /// Gives the oldest `count` taken chains back to the driver. Returns whether to notify it.
    #[inline]
    pub fn complete(&mut self, count: usize) -> bool {
        debug_assert!(self.batches.is_empty(), "batches are for egress");
        self.filled = count.min(self.walk.chains().len());
        self.publish()
    }

    /// Returns the next buffer if it is known already and has room for `len` bytes. Nearly every
    /// frame finds one. The frame counts as written from then on: the caller copies it before it
    /// publishes or ends its batch. After `None` the caller calls [`Queue::reserve`].
    #[inline(always)]
    pub fn reserve_one(&mut self, len: u32) -> Option<&[ChainElement]> {
        let chain = self.walk.chains_mut().get_mut(self.filled)?;
        if chain.bytes < len {
            return None;
        }
        chain.written = len;
        self.filled += 1;
        Some(self.walk.elements(self.filled - 1, self.filled))
    }

    /// Finds room for a frame of `len` bytes in at most `buffers` buffers, and looks ahead where
    /// nothing is known. The frame counts as written, like that of [`Queue::reserve_one`].
    ///
    /// # Errors
    /// Fails like [`Queue::take`].
    #[cold]
    pub fn reserve(&mut self, len: u32, buffers: u16) -> Result<Reserved<'_>, QueueFault> {
        let first = self.filled;
        let refusal = self.gather(len, buffers);
        if !matches!(refusal, Ok(None)) {
            self.filled = first;
        }
        if let Some(refusal) = refusal? {
            return Ok(refusal);
        }
        #[allow(clippy::cast_possible_truncation, reason = "at most `buffers`, or 1")]
        let buffers = (self.filled - first) as u16;
        Ok(Reserved::Buffers(FrameBuffers {
            elements: self.walk.elements(first, self.filled),
            buffers,
        }))
    }

    /// Fills chains until the frame fits. Returns the reason if it does not.
    fn gather(&mut self, len: u32, buffers: u16) -> Result<Option<Reserved<'static>>, QueueFault> {
        let (mut left, mut count) = (len, 0);
        loop {
            let Some(chain) = self.walk.chains_mut().get_mut(self.filled) else {
                if !self.look_ahead()? {
                    return Ok(Some(Reserved::Full));
                }
                continue;
            };
            chain.written = chain.bytes.min(left);
            left -= chain.written;
            self.filled += 1;
            count += 1;
            if left == 0 {
                return Ok(None);
            }
            if count >= buffers {
                return Ok(Some(Reserved::TooSmall));
            }
        }
    }

    /// Returns the free buffers of an egress queue, as far as `most` of them: how many, and their
    /// bytes. Looks ahead of need, which is no work lost. A fault shows when a frame is delivered.
    pub fn room(&mut self, most: usize) -> (usize, usize) {
        while self.walk.chains().len() - self.filled < most && matches!(self.look_ahead(), Ok(true))
        {
        }
        let free = self.walk.chains().get(self.filled..).unwrap_or_default().iter().take(most);
        (free.len(), free.map(|chain| chain.bytes as usize).sum())
    }

    fn look_ahead(&mut self) -> Result<bool, QueueFault> {
        self.ahead = true;
        let ahead = self.walk.weight(self.batched());
        let batches = self.walk.weight(0) - ahead;
        let most = if batches < BATCHES_WEIGHT { AHEAD_WEIGHT } else { 0 };
        let limit = Limit { chains: AHEAD, bytes: most.saturating_sub(ahead) };
        Ok(self.walk_on(limit, Want::Writable)? > 0)
    }

    /// Hands all frames with reserved room to the driver. Frames behind a batch that is being
    /// written follow when that batch ends. Returns whether to notify the driver.
    #[inline]
    pub fn publish(&mut self) -> bool {
        if self.batches.is_empty() {
            return self.give_back(self.filled);
        }
        self.push_batch(true);
        false
    }

    /// Makes a batch of the chains filled since the last one: its frames are written without the
    /// queue, which must not be remapped or dropped before [`Queue::end_batch`].
    pub fn begin_batch(&mut self) -> BatchNumber {
        self.push_batch(false);
        BatchNumber(self.oldest + self.batches.len() as u64 - 1)
    }

    /// Ends a batch that is written. Hands over all written batches with no open one in front.
    /// Returns whether to notify the driver.
    pub fn end_batch(&mut self, number: BatchNumber) -> bool {
        self.end_batch_partly(number, 0)
    }

    /// Does what [`Queue::end_batch`] does, for a batch whose last `empty` buffers were not written.
    /// The driver gets them with a length of 0: later batches may be behind them.
    pub fn end_batch_partly(&mut self, BatchNumber(number): BatchNumber, empty: usize) -> bool {
        #[allow(clippy::cast_possible_truncation, reason = "a place in the list")]
        let place = number.wrapping_sub(self.oldest) as usize;
        let after = self.batches.iter().take(place + 1).map(|batch| batch.chains).sum();
        let chains = self.walk.chains_mut().get_mut(..after).unwrap_or_default();
        chains.iter_mut().rev().take(empty).for_each(|chain| chain.written = 0);
        self.batches.get_mut(place).into_iter().for_each(|batch| batch.written = true);
        self.merge_last();
        let mut chains = 0;
        while let Some(batch) = self.batches.front().filter(|batch| batch.written) {
            chains += batch.chains;
            self.oldest += 1;
            self.batches.pop_front();
        }
        self.give_back(chains)
    }

    /// Makes a batch of the chains that were filled since the last one.
    fn push_batch(&mut self, written: bool) {
        let chains = self.filled - self.batched();
        self.batches.push_back(Batch { chains, written });
        self.merge_last();
    }

    /// Merges written batches behind all open ones into one: no caller holds a number for them.
    fn merge_last(&mut self) {
        while let Some(last) = self.batches.pop_back() {
            match self.batches.back_mut() {
                Some(before) if before.written && last.written => before.chains += last.chains,
                _ => return self.batches.push_back(last),
            }
        }
    }

    /// Chains of all batches.
    fn batched(&self) -> usize {
        self.batches.iter().map(|batch| batch.chains).sum()
    }

    /// Publishes the oldest chains. Returns whether to notify the driver.
    #[inline]
    fn give_back(&mut self, count: usize) -> bool {
        if count == 0 {
            return false;
        }
        let given = self.walk.chains().get(..count).unwrap_or_default();
        let base = self.log.as_ref().map(|_| self.ring.base());
        if base.is_some() {
            // Before they are published: a switch that is killed in between must not leave
            // published buffers in no log.
            self.log_buffers(count);
        }
        let notify = match &mut self.ring {
            AnyRing::Split(ring) => ring.give_back(given),
            AnyRing::Packed(ring) => ring.give_back(given),
        };
        if let Some((base, log)) = base.zip(self.log.as_ref()) {
            self.ring.log_used(log, base, self.walk.chains().get(..count).unwrap_or_default());
        }
        self.walk.forget_front(count);
        self.filled -= count;
        notify
    }

    /// Takes one chain of any buffers. Until it is answered, further calls return the same one.
    ///
    /// # Errors
    /// Fails like [`Queue::take`].
    pub fn take_control(&mut self) -> Result<Option<ControlChain<'_>>, QueueFault> {
        if self.walk.chains().is_empty() {
            self.walk_on(Limit { chains: 1, bytes: usize::MAX }, Want::Either)?;
        }
        if self.walk.chains().is_empty() {
            return Ok(None);
        }
        let elements = self.walk.elements(0, 1);
        let (readable, writable) = elements.split_at(self.walk.readable().min(elements.len()));
        Ok(Some(ControlChain { readable, writable, of_queue: PhantomData }))
    }

    /// Gives the request back with `written` bytes in its answer. Returns whether to notify the
    /// driver.
    pub fn answer(&mut self, written: u32) -> bool {
        if let Some(chain) = self.walk.chains_mut().first_mut() {
            chain.written = written;
        }
        self.complete(1)
    }

    /// Walks on from what was taken before, and sorts out what a fault means.
    #[inline(always)]
    fn walk_on(&mut self, limit: Limit, want: Want) -> Result<usize, QueueFault> {
        if !self.enabled {
            return Ok(0);
        }
        if self.walk.memory().is_broken() {
            self.fault.get_or_insert(QueueFault::MemoryBroken);
        }
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let before = self.walk.chains().len();
        let result = match &mut self.ring {
            AnyRing::Split(ring) => ring.take(&mut self.walk, limit, want),
            AnyRing::Packed(ring) => ring.take(&mut self.walk, limit, want),
        };
        let taken = self.walk.chains().len() - before;
        match result {
            Ok(()) => Ok(taken),
            Err(fault) => self.stop(fault, taken),
        }
    }

    #[cold]
    fn stop(&mut self, fault: QueueFault, taken: usize) -> Result<usize, QueueFault> {
        self.walk.forget_partial();
        self.fault = Some(fault);
        if taken > 0 { Ok(taken) } else { Err(fault) }
    }

    #[cold]
    fn log_buffers(&self, count: usize) {
        let Some(log) = &self.log else { return };
        let memory = self.walk.memory();
        for (chain, elements) in self.walk.chains().iter().zip(self.walk.each()).take(count) {
            let mut left = chain.written as usize;
            for element in elements.iter().skip(self.walk.readable()) {
                let len = element.len.min(left);
                left -= len;
                if let Some(start) = NonNull::new(element.start) {
                    memory.mark_written(log, start, len);
                }
            }
        }
    }

    /// Asks the driver to notify us of what comes next. Returns `true` if something is there
    /// already: the caller must not sleep.
    pub fn arm(&mut self) -> bool {
        let waiting = self.ring.arm();
        self.armed = true;
        self.log_wish();
        waiting && self.enabled && self.fault.is_none()
    }

    /// Tells the driver not to notify. A repeated call costs next to nothing.
    pub fn disarm(&mut self) {
        if !self.armed {
            return;
        }
        self.armed = false;
        self.ring.disarm();
        self.log_wish();
    }

    fn log_wish(&self) {
        self.log.iter().for_each(|log| self.ring.log_wish(log));
    }

    /// Returns where a successor resumes, as in `VHOST_USER_GET_VRING_BASE`: the oldest chain that
    /// was not given back.
    pub fn base(&self) -> u32 {
        self.ring.base()
    }

    /// Starts or stops taking chains (`VHOST_USER_SET_VRING_ENABLE`). What is lent stays lent.
    pub fn set_enabled(&mut self, enabled: bool) {
        self.enabled = enabled;
    }

    /// Returns whether chains are taken.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Returns the fault for which the queue was stopped; only a new queue can go on.
    pub fn fault(&self) -> Option<QueueFault> {
        self.fault
    }

    /// Logs every write to the guest from now on, or no longer.
    pub fn set_log(&mut self, log: Option<Arc<DirtyLog>>) {
        self.log = log;
        self.log.iter().for_each(|log| self.ring.log_start(log));
    }

    /// Moves to another generation of the guest's memory, with the ring at the same guest
    /// addresses. Chains that were looked up ahead are looked up anew.
    ///
    /// # Errors
    /// Fails if chains are lent, or if a part of the ring is not in the new memory.
    pub fn remap(&mut self, memory: Arc<GuestMemory>) -> Result<(), SetupError> {
        let chains = if self.ahead { self.filled } else { self.walk.chains().len() };
        if chains > 0 {
            return Err(SetupError::Lent(chains));
        }
        self.ring.remap(&memory, self.setup.rings)?;
        self.walk = Walk::new(memory);
        Ok(())
    }
}
