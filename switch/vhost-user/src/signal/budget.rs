//! A session's budget of time for its signals, and the choice of the thread that sends those over
//! the budget.
//!
//! The kernel wakes every waiter of an eventfd in the thread that signals it, about 70 ns each, and
//! a front end has as many waiters as its descriptors allow: a signal takes 2 µs with one of them,
//! 0.7 ms with 10,000. So each signal may take [`ALLOWED`], and the time beyond that is added to a
//! debt of the session, which is paid off only by time, at 1/[`SHARE`] of its rate. While the debt
//! is above [`MOST`], workers leave signals to the session's own thread. The signals of that thread
//! are charged too, and the debt outlives a connection, so that reconnecting does not shed it. A
//! debt never takes longer than [`LONGEST`] to be paid off, which limits what the next guest
//! inherits.
//!
//! The wall clock of a signal raises a suspicion: it includes times in which the worker was
//! preempted. Only then is the processor time read, which takes half as long as a signal, and
//! charged. The clocks decide which thread sends a signal, and nothing else.

use rustix::event::{EventfdFlags, eventfd};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Time that each signal may take: one to a sleeping guest takes a few microseconds.
const ALLOWED: Duration = Duration::from_micros(20);
/// The debt above which the session's own thread sends its signals, in nanoseconds.
const MOST: u64 = 1_000_000;
/// Nanoseconds in which one nanosecond of debt is paid off.
const SHARE: u64 = 50;
/// The longest time in which a debt is paid off.
const LONGEST: Duration = Duration::from_secs(10);
/// How long the processor time of each signal is read, after one that took long by the wall clock.
const SUSPICION: Duration = Duration::from_secs(10);

/// The budget that the head of this file explains. Shared by a session and its signals.
#[derive(Debug)]
pub(crate) struct Budget {
    /// When the debt will be paid off, on [`now`]'s clock; 0 if there never was one.
    paid_at: AtomicU64,
    /// Until when signals are suspected, on the same clock.
    suspected_until: AtomicU64,
    /// An eventfd that is readable when the session's thread has to send a signal.
    owed_fd: OwnedFd,
}

impl Budget {
    pub(crate) fn new() -> io::Result<Budget> {
        let owed_fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (paid_at, suspected_until) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Budget { paid_at, suspected_until, owed_fd })
    }

    /// Whether the session's thread has to send the next signal.
    #[inline]
    pub(super) fn is_spent(&self) -> bool {
        let paid_at = self.paid_at.load(Relaxed);
        paid_at != 0 && paid_at > now() + MOST * SHARE
    }

    /// Sends a signal and adds the time that it took beyond the allowance to the debt.
    #[inline]
    pub(super) fn charge(&self, send: impl FnOnce() -> bool) -> bool {
        let began = now();
        if began < self.suspected_until.load(Relaxed) {
            return self.charge_exactly(began, send);
        }
        let sent = send();
        if now() - began > nanos(ALLOWED) {
            self.suspected_until.store(began + nanos(SUSPICION), Relaxed);
        }
        sent
    }

    #[cold]
    fn charge_exactly(&self, now: u64, send: impl FnOnce() -> bool) -> bool {
        let began = clock(ClockId::ThreadCPUTime);
        let sent = send();
        self.note(now, clock(ClockId::ThreadCPUTime).saturating_sub(began));
        sent
    }

    /// Charges a signal that has taken `ns` nanoseconds of a processor.
    fn note(&self, now: u64, ns: u64) {
        let Some(beyond @ 1..) = ns.checked_sub(nanos(ALLOWED)) else { return };
        let from = self.paid_at.load(Relaxed).max(now);
        // Two workers that write at a time lose one signal's debt.
        let paid_at = from.saturating_add(beyond.saturating_mul(SHARE));
        self.paid_at.store(paid_at.min(now + nanos(LONGEST)), Relaxed);
        self.suspected_until.store(now + nanos(SUSPICION), Relaxed);
    }

    /// Tells the session's thread that a signal is owed.
    pub(super) fn note_owed(&self) {
        let _ = rustix::io::write(&self.owed_fd, &1u64.to_ne_bytes());
    }

    /// Returns the eventfd that is readable when a signal is owed, until [`Budget::clear_owed`].
    pub(crate) fn owed_fd(&self) -> BorrowedFd<'_> {
        self.owed_fd.as_fd()
    }

    /// Clears the eventfd. The caller looks for owed signals after this.
    pub(crate) fn clear_owed(&self) {
        let _ = rustix::io::read(&self.owed_fd, &mut [0; 8]);
    }
}

/// Returns the time of a monotonic clock, in nanoseconds.
fn now() -> u64 {
    clock(ClockId::Monotonic)
}

/// Returns the time of a clock, in nanoseconds.
fn clock(which: ClockId) -> u64 {
    let time = clock_gettime(which);
    let (seconds, ns) = (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned());
    seconds.wrapping_mul(1_000_000_000).wrapping_add(ns)
}

#[allow(clippy::cast_possible_truncation, reason = "some seconds")]
const fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::thread;

    /// Spends the budget of a session for [`LONGEST`].
    pub(crate) fn spend(budget: &Budget) {
        budget.note(now(), nanos(LONGEST));
        assert!(budget.is_spent());
    }

    /// Pays what signals have cost so far, which on a busy machine is much.
    pub(crate) fn pay(budget: &Budget) {
        budget.paid_at.store(0, Relaxed);
    }

    /// Sends a signal that takes as long as one with thousands of waiters.
    fn send_dearly(budget: &Budget) {
        budget.charge(|| {
            let end = clock(ClockId::ThreadCPUTime) + 2 * MOST;
            while clock(ClockId::ThreadCPUTime) < end {}
            true
        });
    }

    #[test]
    fn the_first_dear_signal_is_suspected_and_the_second_is_proof() {
        let budget = Budget::new().unwrap();
        send_dearly(&budget);
        assert_eq!(budget.paid_at.load(Relaxed), 0);
        send_dearly(&budget);
        assert_ne!(budget.paid_at.load(Relaxed), 0);
    }

    /// A front end can have its own thread send any number of cheap signals.
    #[test]
    fn cheap_signals_pay_no_debt() {
        let budget = Budget::new().unwrap();
        spend(&budget);
        let debt = budget.paid_at.load(Relaxed);
        for _ in 0..1000 {
            budget.charge(|| true);
        }
        assert!(budget.is_spent() && budget.paid_at.load(Relaxed) >= debt);
    }

    #[test]
    fn time_pays_a_fiftieth_of_itself() {
        let budget = Budget::new().unwrap();
        budget.note(1000, nanos(ALLOWED));
        assert_eq!(budget.paid_at.load(Relaxed), 0, "as much is allowed");
        budget.note(1000, nanos(ALLOWED) + 7);
        budget.note(1100, nanos(ALLOWED) + 1);
        assert_eq!(budget.paid_at.load(Relaxed), 1000 + 8 * SHARE);
    }

    /// The debt grew with each signal of the session's own thread, and the next guest at the port
    /// inherited hours of it.
    #[test]
    fn a_debt_is_paid_off_in_ten_seconds_at_most() {
        let budget = Budget::new().unwrap();
        for second in 1..1000 {
            budget.note(nanos(Duration::from_secs(second)), MOST * SHARE);
        }
        assert_eq!(budget.paid_at.load(Relaxed), nanos(Duration::from_secs(999) + LONGEST));
    }

    #[test]
    fn time_without_a_processor_is_not_charged() {
        let budget = Budget::new().unwrap();
        for _ in 0..3 {
            budget.charge(|| {
                thread::sleep(Duration::from_millis(2));
                true
            });
        }
        assert!(budget.suspected_until.load(Relaxed) > now() && !budget.is_spent());
    }
}
