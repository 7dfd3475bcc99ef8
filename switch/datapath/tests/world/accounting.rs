//! What a turn costs: bytes and calls of the allocator on the calling thread, write calls, page
//! faults, processor time; and a watch that tells a call that sleeps from one that waits for a processor.

#![allow(unsafe_code, reason = "an allocator that counts")]

use rustix::fd::OwnedFd;
use rustix::time::{ClockId, clock_gettime};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

/// What the allocator gave the calling thread so far.
#[derive(Clone, Copy, Default)]
struct Given {
    calls: u64,
    bytes: u64,
    largest: u64,
}

thread_local! {
    // No destructor and no lazy start, so that the allocator may use it at any time.
    static GIVEN: Cell<Given> = const { Cell::new(Given { calls: 0, bytes: 0, largest: 0 }) };
}

/// More in one allocation is refused, so that the finding does not take the machine along.
const REFUSED: usize = 1 << 29;

/// Counts an allocation; `false`: it is not to be.
fn count(size: usize) -> bool {
    let size = size as u64;
    let given = GIVEN.get();
    GIVEN.set(Given {
        calls: given.calls + 1,
        bytes: given.bytes + size,
        largest: given.largest.max(size),
    });
    let refused = size >= REFUSED as u64;
    if refused {
        // Whoever asked aborts; nothing here may allocate.
        let words = b"FINDING (one allocation): of 512 MiB and more\n";
        let _ = rustix::io::write(std::io::stderr(), words);
    }
    !refused
}

// SAFETY: all is left to the system's allocator; counting touches no heap.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !count(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(start, layout) };
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !count(size) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(start, layout, size) }
    }
}

/// What something cost the thread that did it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// Calls of the allocator.
    pub(crate) allocations: u64,
    /// Bytes asked of it.
    pub(crate) allocated: u64,
    /// The most bytes in one call.
    pub(crate) largest: u64,
    /// `write` and `writev` calls; 0 where the kernel does not count them.
    pub(crate) writes: u64,
    /// Page faults without a disk.
    pub(crate) faults: u64,
    /// Processor time.
    pub(crate) cpu: Duration,
}

/// Does something and says what it cost.
pub(crate) fn measure<T>(work: impl FnOnce() -> T) -> (T, Cost) {
    let (writes, faults) = (write_calls(), page_faults("thread-self"));
    let given = GIVEN.get();
    GIVEN.set(Given { largest: 0, ..given });
    let start = cpu_time();
    let result = work();
    let cpu = cpu_time().saturating_sub(start);
    let now = GIVEN.get();
    let cost = Cost {
        allocations: now.calls - given.calls,
        allocated: now.bytes - given.bytes,
        largest: now.largest,
        faults: page_faults("thread-self").saturating_sub(faults),
        writes: write_calls().saturating_sub(writes),
        cpu,
    };
    (result, cost)
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn write_calls() -> u64 {
    let all = std::fs::read_to_string("/proc/thread-self/io").unwrap_or_default();
    let line = all.lines().find_map(|line| line.strip_prefix("syscw: "));
    line.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Returns the minor page faults of a thread so far; its directory is in `/proc`.
pub(crate) fn page_faults(thread: &str) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{thread}/stat")).unwrap_or_default();
    // Behind the name: state, parent, group, session, terminal, its group, flags, faults.
    let count = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(7));
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// A thread that looks after calls which must not sleep.
pub(crate) struct Watch {
    shared: Arc<Watched>,
}

struct Watched {
    /// Odd while a watched call runs; grows by one at its start and at its end.
    call: AtomicU64,
    /// The last call slept.
    slept: AtomicBool,
    /// A call has slept in this case: whoever sleeps is woken from now on, or the end of the world
    /// would wait for it.
    rescuing: AtomicBool,
    /// Descriptors to be read so that a sleeping writer continues.
    rescue: Mutex<Vec<OwnedFd>>,
    thread: i32,
}

/// So long must a thread be seen asleep, at every look.
const ASLEEP: u32 = 40;
const LOOK: Duration = Duration::from_millis(25);
/// After this nothing helps any more.
const LOST: u32 = 800;

impl Watch {
    /// Watches the calling thread.
    pub(crate) fn new() -> Watch {
        let shared = Arc::new(Watched {
            call: AtomicU64::new(0),
            slept: AtomicBool::new(false),
            rescuing: AtomicBool::new(false),
            rescue: Mutex::default(),
            thread: rustix::thread::gettid().as_raw_nonzero().get(),
        });
        let weak = Arc::downgrade(&shared);
        std::thread::spawn(move || {
            let (mut last, mut asleep) = (0, 0);
            while let Some(watched) = weak.upgrade() {
                let call = watched.call.load(Ordering::Acquire);
                asleep =
                    if call % 2 == 1 && call == last && watched.sleeps() { asleep + 1 } else { 0 };
                last = call;
                watched.act(asleep);
                drop(watched);
                std::thread::sleep(LOOK);
            }
        });
        Watch { shared }
    }

    /// Does something that must not sleep for long: a second asleep, at every look, is a finding.
    pub(crate) fn during<T>(&self, what: &str, work: impl FnOnce() -> T) -> T {
        self.shared.call.fetch_add(1, Ordering::AcqRel);
        let result = work();
        self.shared.call.fetch_add(1, Ordering::AcqRel);
        let slept = self.shared.slept.swap(false, Ordering::AcqRel);
        assert!(!slept, "FINDING (sleep): {what} slept for a second and more");
        result
    }

    /// Adds a descriptor; reading it may wake a blocked writer of ours.
    pub(crate) fn rescue_by(&self, fd: OwnedFd) {
        let mut rescue = self.shared.rescue.lock().unwrap_or_else(PoisonError::into_inner);
        rescue.push(fd);
    }

    /// Forgets the descriptors of the last case.
    pub(crate) fn forget_rescues(&self) {
        self.shared.rescue.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Whether the watched thread sleeps.
    pub(crate) fn probe(&self) -> impl Fn() -> bool + Send + 'static {
        let shared = self.shared.clone();
        move || shared.sleeps()
    }
}

/// Whether a thread of this process sleeps, rather than waits for a processor.
pub(crate) fn sleeps(thread: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
    let stat = stat.unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['S', 'D']))
}

impl Watched {
    fn sleeps(&self) -> bool {
        sleeps(self.thread)
    }

    fn act(&self, asleep: u32) {
        if asleep >= ASLEEP {
            self.slept.store(true, Ordering::Release);
            self.rescuing.store(true, Ordering::Release);
        }
        if self.rescuing.load(Ordering::Acquire) {
            for fd in self.rescue.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                let _ = rustix::fs::fcntl_setfl(fd, rustix::fs::OFlags::NONBLOCK);
                let _ = rustix::io::read(fd, &mut [0; 8]);
            }
        }
        if asleep >= LOST {
            eprintln!("FINDING (sleep): a call sleeps and cannot be woken");
            std::process::abort();
        }
    }
}

/// Waits for something that another thread brings about.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "FINDING (service): {what} did not come about");
        std::thread::yield_now();
    }
}
