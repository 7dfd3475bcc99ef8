//! Notification: the handshake between a side that publishes and a side that goes to sleep.
//!
//! Both sides store something, then look at what the other stored: the publisher stores buffers and
//! looks at the request to be notified; the sleeper stores its request and looks for buffers. A
//! full fence between the two steps, on both sides, makes it impossible that both look too early
//! (virtio 1.2, sections 2.7.13.4.1, 2.7.7, 2.8.21.3.1). In the loom model at the end the same
//! functions stand for the driver too, with the sides exchanged, and every interleaving is run.
//!
//! The functions are generic over the words they touch, so that loom's can stand in for guest
//! memory.

use std::sync::atomic::Ordering;
#[cfg(not(loom))]
use std::sync::atomic::fence;

#[cfg(loom)]
use loom::sync::atomic::fence;

/// An atomic word of a ring.
pub(crate) trait Word<T> {
    fn load(&self, order: Ordering) -> T;
    fn store(&self, value: T, order: Ordering);
}

macro_rules! word {
    ($atomic:ty, $value:ty) => {
        impl Word<$value> for $atomic {
            #[inline(always)]
            fn load(&self, order: Ordering) -> $value {
                self.load(order)
            }
            #[inline(always)]
            fn store(&self, value: $value, order: Ordering) {
                self.store(value, order);
            }
        }
    };
}

word!(std::sync::atomic::AtomicU16, u16);
word!(std::sync::atomic::AtomicU32, u32);

/// Whether a publisher that went from `old` to `new` has passed the position that the sleeper waits
/// for (`vring_need_event` of the specification's `virtio_ring.h`).
#[inline]
pub(crate) fn need_event(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

/// Split ring: the words of one direction. The device publishes `used.idx` and reads the driver's
/// request, the driver publishes `avail.idx` and reads the device's.
pub(crate) struct SplitWords<'a, W> {
    /// The position up to which the publisher has published.
    pub(crate) index: &'a W,
    /// The sleeper's flags: 1 is "do not notify" (sections 2.7.6 and 2.7.8).
    pub(crate) flags: &'a W,
    /// The position the sleeper waits for, with EVENT_IDX.
    pub(crate) event: &'a W,
    /// EVENT_IDX was negotiated.
    pub(crate) by_position: bool,
}

impl<W: Word<u16>> SplitWords<'_, W> {
    /// Publishes the index. Returns whether the other side wants to be notified.
    #[inline]
    pub(crate) fn publish(&self, old: u16, new: u16) -> bool {
        // Pairs with the other side's acquire load of the index: elements and buffers come before
        // it.
        self.index.store(new, Ordering::Release);
        // Pairs with the fence in the other side's `arm`: one of us sees the other's store.
        fence(Ordering::SeqCst);
        if self.by_position {
            need_event(self.event.load(Ordering::Relaxed), new, old)
        } else {
            self.flags.load(Ordering::Relaxed) & 1 == 0
        }
    }

    /// Asks to be notified of what comes after `seen`. Returns `true` if it has come already: the
    /// caller must not sleep.
    pub(crate) fn arm(&self, seen: u16) -> bool {
        if self.by_position {
            self.event.store(seen, Ordering::Relaxed);
        } else {
            self.flags.store(0, Ordering::Relaxed);
        }
        // Pairs with the fence in the other side's `publish`.
        fence(Ordering::SeqCst);
        self.index.load(Ordering::Acquire) != seen
    }

    /// Notifications are a waste. By position there is nothing to do: a position that was passed is
    /// not passed again for 65536 buffers, and a notification too many is harmless.
    pub(crate) fn disarm(&self) {
        if !self.by_position {
            self.flags.store(1, Ordering::Relaxed);
        }
    }
}

/// Flags of an event suppression word (section 2.8.14): never, and at a position; 0 is always.
const DISABLE: u32 = 1 << 16;
const AT_POSITION: u32 = 2 << 16;

/// Packed ring: asks to be notified once `position` (slot, wrap counter in bit 15) is published.
/// `published` checks whether that has happened. Returns `true` if it has: do not sleep.
pub(crate) fn arm_packed<W: Word<u32>>(
    event: &W,
    by_position: bool,
    position: u16,
    published: impl FnOnce() -> bool,
) -> bool {
    let request = if by_position { AT_POSITION | u32::from(position) } else { 0 };
    event.store(request, Ordering::Relaxed);
    // Pairs with the fence in the other side's `wanted_packed`: one of us sees the other's store.
    fence(Ordering::SeqCst);
    published()
}

/// Packed ring: notifications are a waste.
pub(crate) fn disarm_packed<W: Word<u32>>(event: &W) {
    event.store(DISABLE, Ordering::Relaxed);
}

/// Packed ring, after descriptors were published: whether the other side wants to be notified.
/// `position` is the publisher's next one (slot, wrap counter in bit 15), `slots` how many were
/// published since the last question.
#[inline]
pub(crate) fn wanted_packed<W: Word<u32>>(event: &W, position: u16, slots: u16, size: u16) -> bool {
    // Pairs with the fence in the other side's `arm_packed`.
    fence(Ordering::SeqCst);
    let request = event.load(Ordering::Relaxed);
    match request >> 16 & 3 {
        0 => true,
        2 => passed(request & 0xffff, position, slots, size),
        _ => false,
    }
}

/// `need_event` on a ring of any size (section 2.8.14): a requested position of the other lap is
/// one ring behind.
#[allow(clippy::cast_possible_truncation, reason = "the caller cuts the low half of a word")]
fn passed(request: u32, position: u16, slots: u16, size: u16) -> bool {
    let (request, new) = (request as u16, position & 0x7fff);
    let event = request & 0x7fff;
    let same_lap = (request ^ position) & 1 << 15 == 0;
    let event = if same_lap { event } else { event.wrapping_sub(size) };
    need_event(event, new, new.wrapping_sub(slots))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::AtomicU32;

    proptest! {
        /// The specification's words: notify when the buffer at the position waited for was among
        /// those published.
        #[test]
        fn need_event_is_membership(old: u16, count in 0u16..2000, event: u16, near in 0u16..4000, close: bool) {
            let event = if close { old.wrapping_sub(1000).wrapping_add(near) } else { event };
            let member = (0..count).any(|step| old.wrapping_add(step) == event);
            prop_assert_eq!(need_event(event, old.wrapping_add(count), old), member);
        }

        /// Membership for a packed ring, counted in slots over two laps.
        #[test]
        fn passed_is_membership(size in 1u16..300, old in 0u32..600, count in 0u16..300, request in 0u32..600) {
            let count = count.min(size);
            let place = |step: u32| {
                let (lap, slot) = (step / u32::from(size), step % u32::from(size));
                u16::try_from(slot).unwrap() | if lap.is_multiple_of(2) { 1 << 15 } else { 0 }
            };
            let new = old + u32::from(count);
            // What the driver may wait for: something that was not published before, at most a ring
            // ahead.
            let request = old + request % u32::from(size);
            let member = (old..new).contains(&request);
            let found = passed(u32::from(place(request)), place(new), count, size);
            prop_assert_eq!(found, member, "old {} new {} request {}", old, new, request);
        }
    }

    #[test]
    fn flags_of_a_packed_ring() {
        let event = AtomicU32::new(0);
        assert!(wanted_packed(&event, 5, 1, 8));
        disarm_packed(&event);
        assert!(!wanted_packed(&event, 5, 1, 8));
        // A value the specification reserves.
        event.store(3 << 16, Ordering::Relaxed);
        assert!(!wanted_packed(&event, 5, 1, 8));
        assert!(arm_packed(&event, true, 5, || true));
        assert!(!wanted_packed(&event, 5, 1, 8));
        assert!(wanted_packed(&event, 6, 1, 8));
    }
}

/// Run with `RUSTFLAGS="--cfg loom" cargo test -p millrace-virtqueue --release loom`.
#[cfg(all(test, loom))]
mod loom_model {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, AtomicU16, AtomicU32};
    use loom::thread;

    word!(AtomicU16, u16);
    word!(AtomicU32, u32);

    /// The words of a ring, one buffer, and the eventfd.
    struct Shared {
        index: AtomicU16,
        flags: AtomicU16,
        event: AtomicU16,
        word: AtomicU32,
        /// Written and read relaxed: only the handshake orders it.
        buffer: AtomicU16,
        kicked: AtomicBool,
    }

    fn shared() -> Arc<Shared> {
        Arc::new(Shared {
            index: AtomicU16::new(0),
            flags: AtomicU16::new(1),
            event: AtomicU16::new(u16::MAX),
            word: AtomicU32::new(DISABLE),
            buffer: AtomicU16::new(0),
            kicked: AtomicBool::new(false),
        })
    }

    fn check(publish: fn(&Shared) -> bool, arm: fn(&Shared) -> bool) {
        loom::model(move || {
            let shared = shared();
            let publisher = shared.clone();
            let publisher = thread::spawn(move || {
                publisher.buffer.store(7, Ordering::Relaxed);
                if publish(&publisher) {
                    publisher.kicked.store(true, Ordering::SeqCst);
                }
            });
            let saw = arm(&shared);
            if saw {
                assert_eq!(
                    shared.buffer.load(Ordering::Relaxed),
                    7,
                    "published before it is written"
                );
            }
            publisher.join().unwrap();
            assert!(saw || shared.kicked.load(Ordering::SeqCst), "asleep without a notification");
        });
    }

    fn split(shared: &Shared, by_position: bool) -> SplitWords<'_, AtomicU16> {
        let Shared { index, flags, event, .. } = shared;
        SplitWords { index, flags, event, by_position }
    }

    #[test]
    fn loom_split_by_position() {
        check(|shared| split(shared, true).publish(0, 1), |shared| split(shared, true).arm(0));
    }

    #[test]
    fn loom_split_by_flags() {
        check(|shared| split(shared, false).publish(0, 1), |shared| split(shared, false).arm(0));
    }

    /// `index` stands for the flags of the descriptor that is published.
    fn publish_packed(shared: &Shared) -> bool {
        shared.index.store(1, Ordering::Release);
        wanted_packed(&shared.word, 1 | 1 << 15, 1, 8)
    }

    fn arm_with(shared: &Shared, by_position: bool) -> bool {
        let published = || shared.index.load(Ordering::Acquire) != 0;
        arm_packed(&shared.word, by_position, 1 << 15, published)
    }

    #[test]
    fn loom_packed_by_position() {
        check(publish_packed, |shared| arm_with(shared, true));
    }

    #[test]
    fn loom_packed_by_flags() {
        check(publish_packed, |shared| arm_with(shared, false));
    }
}
