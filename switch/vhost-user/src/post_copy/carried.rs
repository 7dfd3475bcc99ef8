// UNSAFETY: copies between a guest's buffers and those of a relay.
//! One ring of a guest as a ferry carries it: frames go between the guest's ring, of which this is
//! the device, and a relay, of which this is the driver.
//!
//! Frames are copied whole, with their virtio headers. Any access to the guest's memory may wait
//! for a page.
#![allow(unsafe_code)]

use super::order::{Files, Start, Stopped};
use super::relay::{Driver, RelayError, SLOT, SLOTS};
use guestmem::GuestMemory;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use virtqueue::{ChainElement, FrameBuffers, Limit, Queue, Reserved, SetupError};

/// Where the count of buffers is in a virtio header (virtio 1.2, section 5.1.6).
const COUNT: usize = 10;

/// Why a ring cannot be carried.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    Relay(#[from] RelayError),
    #[error(transparent)]
    Setup(#[from] SetupError),
}

/// A ring that is carried.
#[derive(Debug)]
pub(crate) struct Carried {
    queue: Queue,
    relay: Driver,
    /// Whether the guest receives by it.
    is_egress: bool,
    buffers: u16,
    is_counted: bool,
    files: Files,
    /// Egress: buffers of the relay with frames for which the guest has had no room, and their
    /// bytes.
    waiting: VecDeque<(u16, u32)>,
}

impl Carried {
    pub(crate) fn new(memory: Arc<GuestMemory>, start: Start) -> Result<Carried, StartError> {
        let Start { place, setup, is_enabled, buffers, is_counted, files } = start;
        let relay = files.relay.try_clone().map_err(RelayError::from)?;
        let mut relay = Driver::new(relay)?;
        let mut queue = Queue::resume(memory, &setup, None)?;
        queue.set_enabled(is_enabled);
        let is_egress = place.is_multiple_of(2);
        if is_egress {
            (0..SLOTS).for_each(|_| offer_free(&mut relay));
            relay.publish();
        }
        let waiting = VecDeque::new();
        Ok(Carried { queue, relay, is_egress, buffers, is_counted, files, waiting })
    }

    /// Returns what is readable when there is something to carry.
    pub(crate) fn sources(&self) -> [BorrowedFd<'_>; 2] {
        [self.files.kick.as_fd(), self.files.from_worker.as_fd()]
    }

    pub(crate) fn position(&self) -> u32 {
        self.queue.base()
    }

    /// Returns where it stops. Frames for which the guest has no room are not carried.
    pub(crate) fn stopped(&self) -> Stopped {
        #[allow(clippy::cast_possible_truncation, reason = "at most as many as the relay has")]
        let waiting = self.waiting.len() as u16;
        Stopped { position: self.position(), relay: self.relay.used().wrapping_sub(waiting) }
    }

    pub(crate) fn enable(&mut self, is_enabled: bool) {
        self.queue.set_enabled(is_enabled);
    }

    pub(crate) fn call_by(&mut self, call: Option<Arc<OwnedFd>>) {
        self.files.call = call;
        // Buffers may have been used before there was a descriptor.
        self.call();
    }

    /// Carries what is there. Returns whether there may be more by now; if not, a descriptor of
    /// [`Carried::sources`] says when.
    pub(crate) fn carry(&mut self) -> bool {
        if self.is_egress { self.carry_out() } else { self.carry_in() }
    }

    /// Carries frames of the guest to the relay.
    fn carry_in(&mut self) -> bool {
        while let Some((slot, _)) = self.relay.reap() {
            self.relay.put_free(slot);
        }
        let chains = self.relay.free();
        if chains == 0 {
            return false;
        }
        let Ok(taken @ 1..) = self.queue.take(Limit { chains, bytes: usize::MAX }) else {
            return self.queue.arm();
        };
        for chain in self.queue.taken() {
            let Some(slot) = self.relay.take_free() else { break };
            let Some(to) = self.relay.bytes(slot) else { continue };
            self.relay.offer(slot, gather(chain, to), false);
        }
        if self.queue.complete(taken) {
            self.call();
        }
        if self.relay.publish() {
            signal(&self.files.to_worker);
        }
        true
    }

    /// Carries frames of the relay to the guest. They wait in the relay while the guest has no room:
    /// when that is full the worker drops and counts the next.
    fn carry_out(&mut self) -> bool {
        while let Some((slot, len)) = self.relay.reap() {
            self.waiting.push_back((slot, len));
        }
        while let Some((slot, len)) = self.waiting.front().copied() {
            // Buffers of which the worker filled none are given back with a length of 0.
            if len > 0 && !self.deliver(slot, len) {
                break;
            }
            self.waiting.pop_front();
            self.relay.put_free(slot);
            offer_free(&mut self.relay);
        }
        if self.queue.publish() {
            self.call();
        }
        self.relay.publish();
        !self.waiting.is_empty() && self.queue.arm()
    }

    /// Copies a frame into the guest's buffers. Returns `false` if there is no room now. A frame
    /// that fits into no number of the guest's buffers is dropped.
    fn deliver(&mut self, slot: u16, len: u32) -> bool {
        let Some(from) = self.relay.bytes(slot) else { return true };
        match self.queue.reserve(len, self.buffers) {
            Ok(Reserved::Buffers(room)) => scatter(from, len, self.is_counted, room),
            Ok(Reserved::TooSmall) => {}
            Ok(Reserved::Full) | Err(_) => return false,
        }
        true
    }

    fn call(&self) {
        self.files.call.iter().for_each(|call| signal(call));
    }
}

/// Makes a free buffer of the relay available to the worker, for a frame to the guest.
fn offer_free(relay: &mut Driver) {
    if let Some(slot) = relay.take_free() {
        relay.offer(slot, SLOT, true);
    }
}

/// Adds one to an eventfd, or writes to a guest's socket. A front end that makes it block stops its
/// own ferry.
fn signal(file: &OwnedFd) {
    let _ = rustix::io::write(file, &1u64.to_ne_bytes());
}

/// Copies a chain into a buffer of the relay. Returns its bytes: of a longer chain those that fit,
/// more than a port takes.
fn gather(chain: &[ChainElement], to: NonNull<u8>) -> u32 {
    let mut done = 0;
    for element in chain {
        let len = element.len.min(SLOT as usize - done);
        // SAFETY: the element is mapped while the chain is taken, the buffer has SLOT bytes, and
        // they are different memory, or as good as: `copy` allows an overlap.
        unsafe { std::ptr::copy(element.start, to.add(done).as_ptr(), len) };
        done += len;
    }
    u32::try_from(done).unwrap_or(SLOT)
}

/// Copies a frame of the relay into the guest's buffers, and their number into its header.
pub(super) fn scatter(from: NonNull<u8>, len: u32, is_counted: bool, room: FrameBuffers<'_>) {
    let [low, high] = room.buffers.to_le_bytes();
    let mut left = len as usize;
    if is_counted && left >= COUNT + 2 {
        // SAFETY: within the frame.
        unsafe { from.add(COUNT).cast::<[u8; 2]>().write_unaligned([low, high]) };
    }
    for element in room.elements {
        let now = element.len.min(left);
        // SAFETY: the element is mapped while its room is reserved, and the frame has `len` bytes,
        // of which `left` are not copied yet. `copy` allows an overlap.
        unsafe { std::ptr::copy(from.add(len as usize - left).as_ptr(), element.start, now) };
        left -= now;
    }
}
