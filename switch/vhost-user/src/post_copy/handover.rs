//! The change from a relay to the guest's own receive ring, once all pages are here.
//!
//! A worker delivers at any moment, so the relay takes its frames until the guest's ring is in the
//! slot. Those that came after the ferry stopped are copied here, before any later one.

use super::carried::scatter;
use super::order::Stopped;
use super::relay::{Relay, SLOTS};
use crate::RingSlot;
use crate::ring_slot::Running;
use std::io;
use virtqueue::{ChainElement, FrameBuffers, Queue, Reserved};

/// A receive ring that the ferry has stopped, while its relay still takes frames.
pub(crate) struct Handover {
    pub(super) relay: Relay,
    pub(super) stopped: Stopped,
    /// As in [`Start`](super::order::Start).
    pub(super) buffers: u16,
    pub(super) is_counted: bool,
}

/// A frame of the relay, and its room in the guest's ring.
struct Late {
    slot: u16,
    len: u32,
    buffers: u16,
    elements: Vec<ChainElement>,
}

impl Handover {
    /// Returns where the guest's ring goes on.
    pub(crate) fn position(&self) -> u32 {
        self.stopped.position
    }

    /// Puts the guest's ring in the relay's place. Like a worker it copies without the slot's lock.
    pub(crate) fn complete(self, slot: &RingSlot, own: Running) -> io::Result<()> {
        let (late, batch) = slot.replace(own, |running| {
            (self.reserve(&mut running.queue), running.queue.begin_batch())
        })?;
        let relay = self.relay.driver_at(self.stopped.relay);
        for Late { slot, len, buffers, elements } in &late {
            let room = FrameBuffers { elements, buffers: *buffers };
            relay
                .bytes(*slot)
                .into_iter()
                .for_each(|from| scatter(from, *len, self.is_counted, room));
        }
        slot.end(|running| {
            if running.queue.end_batch(batch) {
                running.notify();
            }
        });
        Ok(())
    }

    /// Reserves room for the frames that the ferry has not carried. Those without room are dropped,
    /// as by the ferry.
    fn reserve(&self, queue: &mut Queue) -> Vec<Late> {
        let (mut relay, mut late) = (self.relay.driver_at(self.stopped.relay), Vec::new());
        // The ferry could write an index of its own.
        let used = std::iter::from_fn(|| relay.reap()).take(SLOTS.into());
        for (slot, len) in used.filter(|(_, len)| *len > 0) {
            match queue.reserve(len, self.buffers) {
                Ok(Reserved::Buffers(FrameBuffers { elements, buffers })) => {
                    late.push(Late { slot, len, buffers, elements: elements.to_vec() });
                }
                Ok(Reserved::TooSmall) => {}
                Ok(Reserved::Full) | Err(_) => break,
            }
        }
        late
    }
}

#[cfg(test)]
mod tests {
    use super::super::relay::{BUFFERS, Driver, SLOT};
    use super::*;
    use crate::vring::tests::ring;
    use guestmem::Gpa;
    use test_guest::driver::{Buffer, Driver as GuestDriver, RingLayout, Shape};

    /// They were dropped while neither ring was in the slot.
    #[test]
    fn frames_that_come_while_the_rings_change_arrive_before_later_ones() {
        let relay = Relay::new().unwrap();
        let mut ferry = Driver::new(relay.file().try_clone().unwrap()).unwrap();
        for number in 0..3 {
            let slot = ferry.take_free().unwrap();
            ferry.offer(slot, SLOT, true);
            let place = BUFFERS + u64::from(slot) * u64::from(SLOT);
            rustix::io::pwrite(relay.file(), &[number; 60], place).unwrap();
        }
        ferry.publish();
        let (mut own, memory, setup) = ring();
        let rings = setup.rings;
        let mut guest = GuestDriver::new(
            memory.clone(),
            RingLayout {
                size: setup.size,
                descriptors: rings.descriptors,
                driver: rings.driver,
                device: rings.device,
                tables: Gpa(0x3000),
                features: 0,
            },
        );
        let places = [0x4000, 0x5000, 0x6000].map(Gpa);
        let ids = places.map(|gpa| {
            guest.add(&[Buffer { gpa, len: 100, writable: true }], Shape::Direct).unwrap()
        });
        guest.publish();
        own.queue.set_enabled(true);
        let slot = RingSlot::without_kicks();
        let mut queue = relay.queue().unwrap();
        queue.set_enabled(true);
        slot.start(Running { queue, ..ring().0 }).unwrap();
        let deliver = |frames, len| {
            slot.with(|running| {
                for _ in 0..frames {
                    let room = running.queue.reserve(len, 1);
                    assert!(matches!(room, Ok(Reserved::Buffers(_))));
                }
                running.queue.publish();
            });
        };
        deliver(3, 60);
        // The ferry has carried the first.
        let stopped = Stopped { position: 0, relay: 1 };
        let handover = Handover { relay, stopped, buffers: 1, is_counted: false };
        handover.complete(&slot, own).unwrap();
        deliver(1, 70);
        let used = std::iter::from_fn(|| guest.reap()).map(|used| (used.id, used.len));
        assert!(used.eq(ids.into_iter().zip([60, 60, 70])));
        for (place, number) in places.into_iter().zip([1, 2]) {
            let mut bytes = [0; 60];
            memory.read(place, &mut bytes);
            assert_eq!(bytes, [number; 60]);
        }
    }
}
