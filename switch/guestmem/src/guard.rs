// UNSAFETY: a signal handler is installed, and it maps memory over a place where the kernel has
// just reported a fault.
//! Handles a front end that truncates a mapped memory file.
//!
//! Touching a page that the file no longer has raises SIGBUS in the thread that touches it. The
//! handler, one for the process, looks the address up among the registered reservations and maps
//! anonymous zeros over the whole of that one: the guest is lost in any case, and one fault is
//! cheaper than one a page. It sets the reservation's `broken` mark; the thread carries on, reads
//! zeros, and the port stops at its next look at the mark. A SIGBUS elsewhere goes to the
//! handler that was installed before.
//!
//! The handler only reads atomics and calls `mmap` and `sigaction`, so it may interrupt anything.
#![allow(unsafe_code)]

use crate::MemoryError;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

/// Reservations that can be watched at a time: memory, dirty log, inflight region and the next of
/// one of them at each of 1024 ports, so that no front end takes the place of another.
pub(crate) const LIMIT: usize = 4 * 1024;

/// One watched reservation. Written by its owner, read by the handler in any thread.
struct Watch {
    taken: AtomicBool,
    /// Odd while `start` and `end` change.
    version: AtomicUsize,
    start: AtomicUsize,
    end: AtomicUsize,
    broken: AtomicBool,
}

static WATCHES: [Watch; LIMIT] = [const {
    Watch {
        taken: AtomicBool::new(false),
        version: AtomicUsize::new(0),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        broken: AtomicBool::new(false),
    }
}; LIMIT];

/// The SIGBUS action of the process before ours.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

impl Watch {
    fn set(&self, addresses: Range<usize>) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // Pairs with the acquire fence in `range`: a reader that sees a new bound sees the odd
        // version.
        fence(Ordering::Release);
        self.start.store(addresses.start, Ordering::Relaxed);
        self.end.store(addresses.end, Ordering::Relaxed);
        // Pairs with the acquire load in `range`: a reader that sees the even version sees both
        // bounds.
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// Returns the bounds of the reservation; `None` while they change, which they never do for a
    /// reservation that a thread is using.
    fn range(&self) -> Option<Range<usize>> {
        let version = self.version.load(Ordering::Acquire);
        let range = self.start.load(Ordering::Relaxed)..self.end.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        (version.is_multiple_of(2) && version == self.version.load(Ordering::Relaxed))
            .then_some(range)
    }
}

/// Keeps a reservation watched.
#[derive(Debug)]
pub(crate) struct Guard {
    place: usize,
}

impl Guard {
    /// Watches a reservation of the caller's, until dropped. It must be dropped before the
    /// addresses are given up.
    pub(crate) fn watch(addresses: Range<usize>) -> Result<Guard, MemoryError> {
        install();
        let free = |watch: &Watch| !watch.taken.swap(true, Ordering::Acquire);
        let place = WATCHES.iter().position(free);
        let place = place.ok_or(MemoryError::TooManyMemories)?;
        let guard = Guard { place };
        guard.entry().broken.store(false, Ordering::Relaxed);
        guard.entry().set(addresses);
        Ok(guard)
    }

    fn entry(&self) -> &'static Watch {
        // `place` was found by position in this array.
        &WATCHES[self.place]
    }

    /// Whether a thread accessed a page that was missing.
    pub(crate) fn is_broken(&self) -> bool {
        self.entry().broken.load(Ordering::Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.entry().set(0..0);
        // Pairs with the swap in `watch`: the next owner's bounds come after ours were taken away.
        self.entry().taken.store(false, Ordering::Release);
    }
}

fn install() {
    BEFORE.get_or_init(|| {
        // SAFETY: both structs are plain data for which zeros are valid; the handler is
        // async-signal-safe (see the file's head) and has the signature SA_SIGINFO asks for.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            let mut ours: libc::sigaction = std::mem::zeroed();
            ours.sa_sigaction = on_sigbus as *const () as usize;
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGBUS, &ours, &mut before);
            before
        }
    });
}

extern "C" fn on_sigbus(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid siginfo to an SA_SIGINFO handler; `si_addr` is filled in for
    // faults, which are the ones with a positive code.
    let fault = unsafe { ((*info).si_code > 0).then(|| (*info).si_addr() as usize) };
    if !fault.is_some_and(mend) {
        pass_on(signal, info, context);
    }
}

/// Maps zeros over the reservation that holds the address. Returns `false` if none does, or if the
/// kernel refuses.
fn mend(address: usize) -> bool {
    let found = WATCHES.iter().find_map(|watch| {
        let range = watch.range().filter(|range| range.contains(&address))?;
        Some((watch, range))
    });
    let Some((watch, range)) = found else { return false };
    watch.broken.store(true, Ordering::Relaxed);
    // SAFETY: the range is a reservation of ours: its owner is alive, since this thread is just
    // using it. Other threads read and write it through raw pointers and find zeros instead of a
    // file. `errno` belongs to the code that was interrupted.
    unsafe {
        let errno = *libc::__errno_location();
        let mapped = libc::mmap(
            range.start as *mut libc::c_void,
            range.end - range.start,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
            -1,
            0,
        );
        *libc::__errno_location() = errno;
        mapped != libc::MAP_FAILED
    }
}

/// Does what the process would have done without us.
fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    type WithInfo = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);
    type Plain = extern "C" fn(i32);
    let handler = BEFORE.get().map_or(libc::SIG_DFL, |before| before.sa_sigaction);
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // SAFETY: both calls are async-signal-safe. The signal is blocked in its handler, so it
        // strikes on return.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
        return;
    }
    let with_info = BEFORE.get().is_some_and(|before| before.sa_flags & libc::SA_SIGINFO != 0);
    // SAFETY: the address came from the kernel as a handler of the kind its flags tell.
    unsafe {
        if with_info {
            std::mem::transmute::<usize, WithInfo>(handler)(signal, info, context);
        } else {
            std::mem::transmute::<usize, Plain>(handler)(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A third of the front ends could take all places there were.
    #[test]
    fn each_port_has_places_of_its_own() {
        let ports = (0..1000usize).map(|port| 0x10000 * port..0x10000 * port + 0x1000);
        let guards: Result<Vec<_>, _> =
            ports.flat_map(|range| [(); 4].map(|()| Guard::watch(range.clone()))).collect();
        assert_eq!(guards.unwrap().len(), 4000);
    }

    #[test]
    fn a_watch_finds_its_own_addresses_only() {
        let guard = Guard::watch(0x1000..0x3000).unwrap();
        assert_eq!(guard.entry().range(), Some(0x1000..0x3000));
        let entry = guard.entry();
        drop(guard);
        // The place is free at once; another test may have taken it already, but never with our
        // addresses.
        assert_ne!(entry.range(), Some(0x1000..0x3000));
        assert!(!mend(0x1000));
    }
}
