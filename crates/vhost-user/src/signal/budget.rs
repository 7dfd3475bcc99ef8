//! What the signals of a session may cost the threads that send them, and who sends those that are too dear.
//!
//! The kernel wakes every waiter of an eventfd in the thread that signals it, about 70 ns each, and a front end has as many
//! waiters as its descriptors allow: a signal takes 2 µs with one of them, 0.7 ms with 10,000. So each signal may take
//! [`ALLOWED`], and what it takes beyond that is a debt that cheap signals pay off. While a session's debt is above [`MOST`]
//! its own thread sends its signals, to which the workers only say that they are owed.
//!
//! The wall clock raises a suspicion, and processor time, which takes half a signal's time to ask for, proves it: a
//! worker that was preempted has not paid. The clocks decide which thread sends a signal, and nothing else.

use rustix::event::{EventfdFlags, eventfd};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// What a signal may take: that of a guest which sleeps takes a few microseconds.
const ALLOWED: Duration = Duration::from_micros(20);
/// The debt above which a session's signals are its own thread's, in nanoseconds.
const MOST: u64 = 1_000_000;
/// Signals without a debt after which a session is not suspected any more.
const CLEARED: u32 = 64;

/// See the head of this file. Shared by a session and its signals.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Nanoseconds.
    debt: AtomicU64,
    /// Signals whose processor time is still asked for.
    suspicion: AtomicU32,
    /// Readable when the session's thread is to send a signal.
    bell: OwnedFd,
    /// Held by each thread that writes to a pipe of the front end.
    pub(super) writers: Arc<()>,
}

impl Budget {
    pub(crate) fn new() -> io::Result<Budget> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (debt, suspicion) = (AtomicU64::new(0), AtomicU32::new(0));
        Ok(Budget { debt, suspicion, bell, writers: Arc::default() })
    }

    /// Whether the session's thread is to send the next signal.
    #[inline]
    pub(super) fn is_spent(&self) -> bool {
        self.debt.load(Relaxed) > MOST
    }

    /// Sends a signal and charges for it.
    #[inline]
    pub(super) fn charge(&self, send: impl FnOnce() -> bool) -> bool {
        if self.suspicion.load(Relaxed) > 0 {
            return self.charge_exactly(send);
        }
        let began = Instant::now();
        let sent = send();
        if began.elapsed() > ALLOWED {
            self.suspicion.store(CLEARED, Relaxed);
        }
        sent
    }

    #[cold]
    fn charge_exactly(&self, send: impl FnOnce() -> bool) -> bool {
        let began = processor_ns();
        let sent = send();
        self.note(processor_ns().saturating_sub(began));
        sent
    }

    /// A signal has taken this long.
    fn note(&self, ns: u64) {
        #[allow(clippy::cast_possible_truncation, reason = "20 µs")]
        let allowed = ALLOWED.as_nanos() as u64;
        let debt = self.debt.load(Relaxed).saturating_add(ns).saturating_sub(allowed);
        // Two workers that write at a time lose one signal's change.
        self.debt.store(debt, Relaxed);
        let left = self.suspicion.load(Relaxed).saturating_sub(1);
        self.suspicion.store(if debt > 0 { CLEARED } else { left }, Relaxed);
    }

    /// Tells the session's thread that a signal is owed.
    pub(super) fn ring_bell(&self) {
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Readable when a signal is owed, until [`Budget::silence`].
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Ends the bell. What is owed is looked for after this.
    pub(crate) fn silence(&self) {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }
}

/// Processor time of this thread.
fn processor_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, ns) = (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned());
    seconds.wrapping_mul(1_000_000_000).wrapping_add(ns)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::thread;

    /// Sends a signal that has so many waiters.
    pub(crate) fn send_dearly(budget: &Budget) {
        budget.charge(|| {
            let end = processor_ns() + 2 * MOST;
            while processor_ns() < end {}
            true
        });
    }

    #[test]
    fn dear_signals_are_the_session_s_own_until_cheap_ones_have_paid() {
        let budget = Budget::new().unwrap();
        // The first is suspected, the second is proof.
        send_dearly(&budget);
        assert!(!budget.is_spent());
        send_dearly(&budget);
        assert!(budget.is_spent());
        let mut paid = 0;
        while budget.is_spent() {
            budget.note(0);
            paid += 1;
        }
        assert!(paid >= 50, "2 ms were paid by {paid} signals");
        for _ in 0..=MOST {
            budget.note(0);
        }
        assert_eq!((budget.debt.load(Relaxed), budget.suspicion.load(Relaxed)), (0, 0));
    }

    #[test]
    fn time_without_a_processor_is_not_charged() {
        let budget = Budget::new().unwrap();
        for _ in 0..3 {
            budget.charge(|| {
                thread::sleep(Duration::from_nanos(2 * MOST));
                true
            });
        }
        assert!(budget.suspicion.load(Relaxed) > 0 && !budget.is_spent());
    }
}
