//! Locks of the data path and the ports. They ignore poisoning: a thread that panicked leaves
//! nothing inconsistent behind that would justify a second panic.
//!
//! **No payload and no guest's buffer is touched under one of them.** A guest decides how long that
//! takes: a frame of a thousand pieces in pages that are not mapped costs as many page faults, and
//! every worker that wants the lock would wait for them. So frames are copied before a lock is
//! taken or after it is given back, and where their place depends on the lock, room is reserved,
//! filled, and published. In debug builds [`expect_none_held`] checks it at every copy.
//!
//! The rings themselves are guest memory too, and are walked under their lock: at most a few
//! accesses for each frame.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

thread_local! {
    /// How many locks the thread holds; counted in debug builds.
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// A locked mutex, from [`lock`].
#[derive(Debug)]
pub struct Locked<'m, T> {
    guard: MutexGuard<'m, T>,
    _mark: Mark,
}

/// Counts a lock of this thread while it lives.
#[derive(Debug)]
struct Mark;

impl Mark {
    #[inline]
    fn set() -> Mark {
        if cfg!(debug_assertions) {
            HELD.set(HELD.get() + 1);
        }
        Mark
    }
}

impl Drop for Mark {
    #[inline]
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            HELD.set(HELD.get() - 1);
        }
    }
}

/// Locks a mutex, poisoned or not.
#[inline]
pub fn lock<T>(mutex: &Mutex<T>) -> Locked<'_, T> {
    let guard = mutex.lock().unwrap_or_else(PoisonError::into_inner);
    Locked { guard, _mark: Mark::set() }
}

/// Asserts that this thread holds no lock, in debug builds: payload or a guest's buffer is about to
/// be touched.
#[inline(always)]
pub fn expect_none_held() {
    debug_assert_eq!(HELD.get(), 0, "payload is touched under a lock that workers share");
}

impl<'m, T> Locked<'m, T> {
    /// Gives the mutex back and waits until `condition` no longer holds.
    pub(crate) fn wait_while(
        self,
        until: &Condvar,
        condition: impl FnMut(&mut T) -> bool,
    ) -> Locked<'m, T> {
        let Locked { guard, _mark } = self;
        let guard = until.wait_while(guard, condition).unwrap_or_else(PoisonError::into_inner);
        Locked { guard, _mark }
    }
}

impl<T> Deref for Locked<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Locked<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(not(debug_assertions), ignore = "checked in debug builds")]
    fn payload_is_not_touched_under_a_lock() {
        let mutex = Mutex::new(0);
        let touched = || std::panic::catch_unwind(expect_none_held).is_ok();
        let (held, other) = (lock(&mutex), Mutex::new(0));
        drop(lock(&other));
        assert!(!touched());
        drop(held);
        assert!(touched());
    }
}
